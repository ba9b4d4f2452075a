//! Firmware commands through the command queue (PRM "Command Interface"; Linux `core/cmd.c`).
//!
//! A command takes a slot, writes entry and mailboxes, rings, and polls the entry's ownership bit.
//! Polling needs no event, so a device that loses or forges events delays no command. The last slot
//! is kept for pages: a command may wait for pages in the firmware, and the pages must not wait for
//! it (`cmd.c`, `page_queue`). The driver's thread serves pages while it waits itself.
//!
//! A command that times out may still be executed. Its slot and memory are never used again, and
//! the device is marked as failed.

mod mailbox;
mod slots;

use std::time::{Duration, Instant};

use uverbs_mlx5_prm::cmd::header::{cmd_in, cmd_out};
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus, Delivery};
use uverbs_mlx5_prm::cmd::queue::{INLINE_BYTES, MLX5_PCI_CMD_XPORT, StatusOwn, mlx5_cmd_layout};
use zerocopy::{FromZeros, IntoBytes};

use self::mailbox::{Mailboxes, xor};
use self::slots::{Slot, Slots};
use crate::device::Device;
use crate::dma::Buffer;
use crate::error::Error;
use crate::registers::{self, QueueShape};

/// Bytes of an input or output with at most two words after its header.
pub(crate) const SHORT: usize = 16;
/// Maximum bytes of input and of output.
const MAX_BYTES: usize = 1 << 20;
/// Pause between two looks at an entry, growing from the first to the last.
const PAUSE: (Duration, Duration) = (Duration::from_micros(10), Duration::from_millis(1));
/// Time after which a wait asks whether the device is still there.
const LOOK: Duration = Duration::from_millis(50);
/// Offset of an entry's last byte.
const STATUS_OWN: usize = std::mem::offset_of!(mlx5_cmd_layout, status_own);

/// Command queue of a function.
#[derive(Debug)]
pub(crate) struct CommandQueue {
    ring: Buffer,
    stride: usize,
    slots: Slots,
}

impl CommandQueue {
    /// Uses `ring`, a page whose address the device knows.
    pub(crate) fn new(ring: Buffer, shape: QueueShape) -> Self {
        Self { ring, stride: shape.stride, slots: Slots::new(shape.slots) }
    }
}

impl Device {
    /// Runs a command, and returns `outlen` bytes of output.
    ///
    /// `input` has the command's own fields; opcode and modifier are set here.
    pub(crate) fn run(
        &self,
        opcode: CmdOpcode,
        op_mod: u16,
        input: &[u8],
        outlen: usize,
    ) -> Result<Vec<u8>, Error> {
        let longest = input.len().max(outlen);
        if longest > MAX_BYTES {
            let (value, limit) = (longest as u64, MAX_BYTES as u64);
            return Err(Error::Limit { what: "bytes of a command", value, limit });
        }
        let mut input = input.to_vec();
        input.resize(input.len().max(INLINE_BYTES), 0);
        let outlen = outlen.max(INLINE_BYTES);
        cmd_in::OPCODE.set(&mut input, opcode.0.into());
        cmd_in::OP_MOD.set(&mut input, op_mod.into());
        self.check()?;
        let queue = self.queue()?;
        let for_pages = opcode == CmdOpcode::MANAGE_PAGES;
        let slot = queue.slots.take(for_pages, self.command_limit())?;
        let output = self.exchange(queue, slot, opcode, &input, outlen)?;
        match CmdStatus(cmd_out::STATUS.get(&output) as u8) {
            CmdStatus::OK => Ok(output),
            status => {
                let syndrome = cmd_out::SYNDROME.get32(&output);
                Err(Error::Refused { opcode, status, syndrome })
            }
        }
    }

    /// Writes a command into its slot, waits for its end, and reads the output.
    fn exchange(
        &self,
        queue: &CommandQueue,
        slot: Slot<'_>,
        opcode: CmdOpcode,
        input: &[u8],
        outlen: usize,
    ) -> Result<Vec<u8>, Error> {
        let (inline, rest) = input.split_at(INLINE_BYTES);
        let boxes_in = Mailboxes::new(self.dma(), rest.len(), slot.token)?;
        boxes_in.write(rest, slot.token)?;
        let boxes_out = Mailboxes::new(self.dma(), outlen - INLINE_BYTES, slot.token)?;
        let mut entry = mlx5_cmd_layout::new_zeroed();
        entry.type_ = MLX5_PCI_CMD_XPORT;
        entry.inlen.set(input.len() as u32);
        entry.in_ptr.set(boxes_in.first());
        entry.in_.copy_from_slice(inline);
        entry.out_ptr.set(boxes_out.first());
        entry.outlen.set(outlen as u32);
        entry.token = slot.token;
        entry.status_own = StatusOwn::ZERO.with_own(true).0;
        // Over the whole entry, with the owner set (`set_signature`).
        entry.sig = !xor(entry.as_bytes());
        let at = slot.number as usize * queue.stride;
        let owner = at + STATUS_OWN;
        queue.ring.write(at, &entry.as_bytes()[..STATUS_OWN])?;
        // The device reads the entry once it owns it.
        queue.ring.store_owner(owner, entry.status_own)?;
        let rung = registers::ring_command(self.transport(), slot.number);
        let done = rung.and_then(|()| self.wait(&queue.ring, owner, opcode));
        let status = match done {
            Ok(status) => status,
            Err(error) => {
                // The device may still execute the command, and write its answer.
                // `fail` keeps the memory from reuse, before it is dropped here.
                let error = self.fail(error);
                slot.lose();
                return Err(error);
            }
        };
        match Delivery(StatusOwn(status).status()) {
            Delivery::OK => {}
            delivery => return Err(Error::Undelivered { opcode, delivery }),
        }
        let mut output = vec![0; outlen];
        let (inline, rest) = output.split_at_mut(INLINE_BYTES);
        queue.ring.read(at + std::mem::offset_of!(mlx5_cmd_layout, out), inline)?;
        boxes_out.read(rest)?;
        Ok(output)
    }

    /// Waits until the device returns an entry. Returns its last byte.
    fn wait(&self, ring: &Buffer, owner: usize, opcode: CmdOpcode) -> Result<u8, Error> {
        let start = Instant::now();
        let (mut pause, last) = PAUSE;
        let mut looked = start;
        loop {
            let status = ring.load_owner(owner)?;
            if !StatusOwn(status).own() {
                return Ok(status);
            }
            let waited = start.elapsed();
            if waited >= self.command_limit() {
                return Err(Error::TimedOut { what: format!("the answer to {opcode}"), waited });
            }
            if looked.elapsed() >= LOOK {
                registers::health(self.transport())?;
                looked = Instant::now();
            }
            self.pump_waiting()?;
            std::thread::sleep(pause);
            pause = last.min(pause * 2);
        }
    }
}
