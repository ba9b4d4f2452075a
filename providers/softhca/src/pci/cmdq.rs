//! The command queue: entries and mailboxes in the driver's memory (Linux `core/cmd.c`).

use uverbs_mlx5_prm::cmd::opcode::Delivery;
use uverbs_mlx5_prm::cmd::queue::{
    INLINE_BYTES, MAILBOX_ALIGN, MLX5_CMD_DATA_BLOCK_SIZE, MLX5_PCI_CMD_XPORT, StatusOwn,
    mlx5_cmd_layout, mlx5_cmd_prot_block,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::hca::{Dma, DmaFault};

/// Longest input. The longest command registers memory: eight bytes for each page.
const MAX_INPUT: usize = 32 << 20;
/// Longest output.
const MAX_OUTPUT: usize = 1 << 20;
/// Offsets in an entry: output, and last byte.
const OUT: u64 = std::mem::offset_of!(mlx5_cmd_layout, out) as u64;
const STATUS_OWN: u64 = std::mem::offset_of!(mlx5_cmd_layout, status_own) as u64;

/// A command queue entry with its input.
#[derive(Debug)]
pub(super) struct CommandQueueEntry {
    at: u64,
    layout: mlx5_cmd_layout,
    pub(super) input: Vec<u8>,
}

impl CommandQueueEntry {
    /// Reads the entry at bus address `at` with all its mailboxes. None if the driver owns the
    /// entry, or it can't be read.
    pub(super) fn read(dma: &dyn Dma, at: u64) -> Option<Result<Self, Delivery>> {
        let mut layout = mlx5_cmd_layout::new_zeroed();
        dma.read(at, layout.as_mut_bytes()).ok()?;
        if !StatusOwn(layout.status_own).own() {
            return None;
        }
        Some(match read_input(dma, &layout) {
            Ok(input) => Ok(Self { at, layout, input }),
            Err(delivery) => {
                finish(dma, at, delivery);
                Err(delivery)
            }
        })
    }

    /// Bytes of the driver's output buffer.
    pub(super) fn output_len(&self) -> usize {
        // `read_input` has checked it.
        self.layout.outlen.get() as usize
    }

    /// Writes the output and returns the entry to the driver.
    pub(super) fn complete(&self, dma: &dyn Dma, output: &[u8]) -> Delivery {
        let delivery = match self.write_output(dma, output) {
            Ok(()) => Delivery::OK,
            Err(delivery) => delivery,
        };
        finish(dma, self.at, delivery);
        delivery
    }

    fn write_output(&self, dma: &dyn Dma, output: &[u8]) -> Result<(), Delivery> {
        let (inline, rest) = output.split_at(output.len().min(INLINE_BYTES));
        dma.write(self.at + OUT, inline).map_err(unreachable)?;
        let mut at = self.layout.out_ptr.get();
        for (number, part) in (0..).zip(rest.chunks(MLX5_CMD_DATA_BLOCK_SIZE)) {
            let block = mailbox(dma, at, (number, self.layout.token), Delivery::OUT_PTR_ALIGN_ERR)?;
            dma.write(at, part).map_err(unreachable)?;
            at = block.next.get();
        }
        Ok(())
    }
}

fn read_input(dma: &dyn Dma, layout: &mlx5_cmd_layout) -> Result<Vec<u8>, Delivery> {
    if layout.type_ != MLX5_PCI_CMD_XPORT {
        return Err(Delivery::CMD_DESCR_ERR);
    }
    let len = layout.inlen.get() as usize;
    // Every input has opcode and modifier, every output a status.
    if !(INLINE_BYTES / 2..=MAX_INPUT).contains(&len) {
        return Err(Delivery::IN_LENGTH_ERR);
    }
    if !(INLINE_BYTES / 2..=MAX_OUTPUT).contains(&(layout.outlen.get() as usize)) {
        return Err(Delivery::OUT_LENGTH_ERR);
    }
    let mut input = layout.in_[..len.min(INLINE_BYTES)].to_vec();
    let mut at = layout.in_ptr.get();
    let mut number = 0;
    // Terminates for any links of the mailboxes: each adds to the input, whose length is limited.
    while input.len() < len {
        let block = mailbox(dma, at, (number, layout.token), Delivery::IN_PTR_ALIGN_ERR)?;
        let part = (len - input.len()).min(MLX5_CMD_DATA_BLOCK_SIZE);
        input.extend_from_slice(&block.data[..part]);
        at = block.next.get();
        number += 1;
    }
    Ok(input)
}

/// Reads a mailbox and checks that it is the next one.
fn mailbox(
    dma: &dyn Dma,
    at: u64,
    (number, token): (u32, u8),
    misaligned: Delivery,
) -> Result<mlx5_cmd_prot_block, Delivery> {
    if at == 0 || !at.is_multiple_of(MAILBOX_ALIGN) {
        return Err(misaligned);
    }
    let mut block = mlx5_cmd_prot_block::new_zeroed();
    dma.read(at, block.as_mut_bytes()).map_err(unreachable)?;
    if block.token != token {
        return Err(Delivery::TOK_ERR);
    }
    if block.block_num.get() != number {
        return Err(Delivery::BAD_BLK_NUM_ERR);
    }
    Ok(block)
}

/// Delivery status for memory that can't be accessed.
fn unreachable(_: DmaFault) -> Delivery {
    Delivery::FW_ERR
}

/// Returns the entry to the driver. A driver that polls watches this byte, so it is written last.
fn finish(dma: &dyn Dma, at: u64, delivery: Delivery) {
    let byte = StatusOwn::ZERO.with_status(delivery.0);
    // A failed write means that the entry's memory went away meanwhile, so no driver waits there.
    let _ = dma.store_u8(at + STATUS_OWN, byte.0);
}
