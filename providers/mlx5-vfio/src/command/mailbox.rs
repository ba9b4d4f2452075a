//! Mailboxes: the part of a command's input or output that has no room in the entry.

use std::sync::Arc;

use uverbs_mlx5_prm::cmd::queue::{MLX5_CMD_DATA_BLOCK_SIZE, mlx5_cmd_prot_block};
use zerocopy::{FromZeros, IntoBytes};

use crate::dma::{Buffer, Dma};
use crate::error::Error;

/// Distance of two mailboxes, which are aligned to a power of two (`create_msg_cache` of `cmd.c`).
const STRIDE: usize = 1024;
/// First byte of a mailbox that its own signature covers.
const CONTROL: usize = std::mem::offset_of!(mlx5_cmd_prot_block, rsvd0);
const CTRL_SIG: usize = std::mem::offset_of!(mlx5_cmd_prot_block, ctrl_sig);
const SIG: usize = std::mem::offset_of!(mlx5_cmd_prot_block, sig);

/// A chain of mailboxes. The driver follows its own list, never the links, which the device could
/// change.
#[derive(Debug)]
pub(super) struct Mailboxes {
    /// `None`: no mailbox.
    buffer: Option<Buffer>,
    count: usize,
}

impl Mailboxes {
    /// QueueLinks mailboxes for `len` bytes, which are zero.
    pub(super) fn new(dma: &Arc<Dma>, len: usize, token: u8) -> Result<Self, Error> {
        let count = len.div_ceil(MLX5_CMD_DATA_BLOCK_SIZE);
        let buffer = (count != 0).then(|| dma.buffer(count * STRIDE)).transpose()?;
        let boxes = Self { buffer, count };
        boxes.write(&vec![0; len], token)?;
        Ok(boxes)
    }

    /// Address of the first mailbox; 0 without one.
    pub(super) fn first(&self) -> u64 {
        self.buffer.as_ref().map_or(0, Buffer::iova)
    }

    /// Writes the data, links, numbers and signatures of all mailboxes.
    pub(super) fn write(&self, data: &[u8], token: u8) -> Result<(), Error> {
        let Some(buffer) = &self.buffer else { return Ok(()) };
        for (number, part) in data.chunks(MLX5_CMD_DATA_BLOCK_SIZE).enumerate() {
            let mut block = mlx5_cmd_prot_block::new_zeroed();
            block.data[..part.len()].copy_from_slice(part);
            if number + 1 < self.count {
                block.next.set(buffer.iova() + ((number + 1) * STRIDE) as u64);
            }
            block.block_num.set(number as u32);
            block.token = token;
            // `calc_block_sig`: first the control fields, then the whole.
            block.ctrl_sig = !xor(&block.as_bytes()[CONTROL..CTRL_SIG]);
            block.sig = !xor(&block.as_bytes()[..SIG]);
            buffer.write(number * STRIDE, block.as_bytes())?;
        }
        Ok(())
    }

    /// Reads the data.
    pub(super) fn read(&self, data: &mut [u8]) -> Result<(), Error> {
        let Some(buffer) = &self.buffer else { return Ok(()) };
        for (number, part) in data.chunks_mut(MLX5_CMD_DATA_BLOCK_SIZE).enumerate() {
            buffer.read(number * STRIDE, part)?;
        }
        Ok(())
    }
}

/// Exclusive or of all bytes (`xor8_buf`), of which a signature is the complement.
pub(super) fn xor(bytes: &[u8]) -> u8 {
    bytes.iter().fold(0, |sum, byte| sum ^ byte)
}
