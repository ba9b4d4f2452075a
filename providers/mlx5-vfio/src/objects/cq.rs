//! Completion queues (PRM "Completion Queues"; `mlx5_ib_create_cq` of Linux's mlx5_ib).

use uverbs_core::order::fence;
use uverbs_mlx5_prm::cmd::cq::{cqc, create_cq_in, create_cq_out, destroy_cq_in};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cqe::{CqeOpcode, OpOwn, mlx5_cqe64};
use uverbs_mlx5_prm::doorbell::{CI_MASK, CqArm, MLX5_CQ_ARM_DB, MLX5_CQ_DOORBELL};
use zerocopy::{FromZeros, IntoBytes};

use super::destroy;
use crate::dma::{Buffer, PAGE};
use crate::error::Error;
use crate::function::Function;

/// Offset of the ownership byte.
const OWNER: usize = std::mem::offset_of!(mlx5_cqe64, op_own);
/// Offset of the word in the doorbell record that asks for an event.
const ARM: usize = 4 * MLX5_CQ_ARM_DB;
/// Maximum log2 of the entries that a queue may have here.
const LOG_MAX: u32 = 16;

/// A completion queue that is polled. It reports no events.
#[derive(Debug)]
pub struct CompletionQueue<'f> {
    function: &'f Function,
    ring: CqRing,
}

/// A completion queue of the driver. Its owner destroys it.
#[derive(Debug)]
pub(crate) struct CqRing {
    /// The ring, then a page with the doorbell record.
    memory: Buffer,
    log_entries: u32,
    pub(crate) number: u32,
    consumed: u32,
    /// Events that were asked for and came, as armings count them.
    events: u8,
    is_armed: bool,
}

impl Function {
    /// Creates a completion queue of `1 << log_entries` entries of 64 bytes, 16 at most.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`], [`Error::Refused`], or the device's failure.
    pub fn create_cq(&self, log_entries: u32) -> Result<CompletionQueue<'_>, Error> {
        Ok(CompletionQueue { function: self, ring: CqRing::create(self, log_entries)? })
    }
}

impl CqRing {
    pub(crate) fn create(function: &Function, log_entries: u32) -> Result<Self, Error> {
        if log_entries > LOG_MAX {
            let (what, value) = ("log2 of the entries of a CQ", log_entries.into());
            return Err(Error::Limit { what, value, limit: LOG_MAX.into() });
        }
        let ring = (size_of::<mlx5_cqe64>() << log_entries).next_multiple_of(PAGE);
        let memory = function.buffer(ring + PAGE)?;
        let unwritten = OpOwn::ZERO.with_opcode(CqeOpcode::INVALID.0).with_owner(true);
        for entry in 0..1 << log_entries {
            memory.store_owner(entry * size_of::<mlx5_cqe64>() + OWNER, unwritten.0)?;
        }
        let mut input = vec![0; create_cq_in::SIZE];
        let context = create_cq_in::CQ_CONTEXT.of_mut(&mut input);
        cqc::LOG_CQ_SIZE.set(context, log_entries.into());
        cqc::UAR_PAGE.set(context, function.uar().into());
        cqc::C_EQN_OR_APU_ELEMENT.set(context, function.eqn().into());
        cqc::DBR_ADDR.set(context, memory.iova() + ring as u64);
        let pages = memory.page_addresses().take(ring / PAGE);
        input.extend(pages.flat_map(u64::to_be_bytes));
        let output = function.command(CmdOpcode::CREATE_CQ, 0, &input, create_cq_out::SIZE)?;
        let number = create_cq_out::CQN.get32(&output);
        Ok(Self { memory, log_entries, number, consumed: 0, events: 0, is_armed: false })
    }

    /// Takes the next completion. The device's failure shows elsewhere.
    pub(crate) fn poll(&mut self) -> Result<Option<mlx5_cqe64>, Error> {
        let memory = &self.memory;
        let entry = self.consumed & ((1 << self.log_entries) - 1);
        let at = entry as usize * size_of::<mlx5_cqe64>();
        let owner = OpOwn(memory.load_owner(at + OWNER)?);
        let lap = self.consumed >> self.log_entries & 1 != 0;
        // The owner bit flips with each lap (`get_sw_cqe` of mlx5_ib).
        if owner.opcode() == CqeOpcode::INVALID.0 || owner.owner() != lap {
            return Ok(None);
        }
        fence::cqe_owner_before_body();
        let mut cqe = mlx5_cqe64::new_zeroed();
        memory.read(at, cqe.as_mut_bytes())?;
        self.consumed = self.consumed.wrapping_add(1);
        memory.store_record(memory.len() - PAGE, self.consumed & CI_MASK)?;
        if std::mem::take(&mut self.is_armed) {
            self.events = self.events.wrapping_add(1);
        }
        Ok(Some(cqe))
    }

    /// Asks for an event at the next completion, unless it is asked for. Completions that came
    /// before raise it at once.
    pub(crate) fn arm(&mut self, function: &Function) -> Result<(), Error> {
        if std::mem::replace(&mut self.is_armed, true) {
            return Ok(());
        }
        let word = CqArm::ZERO.with_sn(self.events & 3).with_ci(self.consumed & CI_MASK);
        self.memory.store_record(self.memory.len() - PAGE + ARM, word.0)?;
        let doorbell = u64::from(word.0) << 32 | u64::from(self.number);
        function.ring_soon(MLX5_CQ_DOORBELL as u64, doorbell)
    }

    /// Destroys the queue, before its memory is dropped.
    pub(crate) fn destroy(&self, function: &Function) {
        destroy(function, CmdOpcode::DESTROY_CQ, (destroy_cq_in::CQN, self.number), {
            Some(&self.memory)
        });
    }
}

impl CompletionQueue<'_> {
    /// Number in commands.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.ring.number
    }

    /// Takes the next completion.
    ///
    /// # Errors
    ///
    /// The device's failure.
    pub fn poll(&mut self) -> Result<Option<mlx5_cqe64>, Error> {
        let cqe = self.ring.poll()?;
        match cqe {
            Some(cqe) => Ok(Some(cqe)),
            None => self.function.alive().map(|()| None),
        }
    }
}

impl Drop for CompletionQueue<'_> {
    fn drop(&mut self) {
        self.ring.destroy(self.function);
    }
}
