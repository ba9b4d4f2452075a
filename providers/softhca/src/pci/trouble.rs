//! Behaviour that a driver may meet on silicon, and that this device has on request alone: firmware
//! that starts late or fails, a command without an answer, pages asked for and returned at any
//! time, reserved bits that are refused.

use std::time::Duration;

use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::eqe::{EventType, mlx5_eqe};

use super::iseg::Signs;
use super::strict::{self, Violation};
use crate::firmware::Firmware;
use crate::hca::Dma;

/// Maximum pages of a request.
const MOST: u64 = 700;

/// Trouble that a device makes for its driver. By default it makes no trouble.
#[derive(Clone, Debug, Default)]
pub struct Trouble {
    /// Time after power-on and after each reset until the firmware runs. Until then it takes no
    /// command.
    pub starting: Duration,
    /// Opcode of the commands that get no answer.
    pub stuck: Option<u16>,
    /// Opcode of the command after which the health buffer has a syndrome, and the syndrome.
    /// Commands are still answered.
    pub fails: Option<(u16, u8)>,
    /// Seed of page requests, positive and negative, which follow some commands.
    pub pages: Option<u64>,
    /// Refuses commands with reserved bits, or with changes selected that they do not make.
    pub strict: bool,
}

impl Trouble {
    /// Strict mode alone.
    #[must_use]
    pub fn strict() -> Self {
        Self { strict: true, ..Self::default() }
    }
}

/// Trouble of a function, and the time since its reset.
#[derive(Debug)]
pub(super) struct Troubles {
    plan: Trouble,
    reset: Duration,
    /// Health syndrome; 0 if healthy.
    syndrome: u8,
}

impl Troubles {
    pub(super) fn new(plan: Trouble) -> Self {
        Self { plan, reset: Duration::ZERO, syndrome: 0 }
    }

    /// The function was reset.
    pub(super) fn restart(&mut self, now: Duration) {
        self.reset = now;
        self.syndrome = 0;
    }

    /// True until the firmware runs.
    pub(super) fn is_starting(&self, now: Duration) -> bool {
        now.saturating_sub(self.reset) < self.plan.starting
    }

    /// Signs of trouble in the registers.
    pub(super) fn signs(&self, now: Duration) -> Signs {
        Signs { is_starting: self.is_starting(now), syndrome: self.syndrome }
    }

    /// A command ran.
    pub(super) fn ran(&mut self, opcode: CmdOpcode) {
        if let Some((fails, syndrome)) = self.plan.fails
            && fails == opcode.0
        {
            self.syndrome = syndrome;
        }
    }

    /// True if a command with this input gets no answer.
    pub(super) fn is_stuck(&self, input: &[u8]) -> bool {
        let opcode = input.first_chunk().map(|bytes| u16::from_be_bytes(*bytes));
        opcode.is_some() && opcode == self.plan.stuck
    }

    /// Returns the reason to refuse a command with this input, in strict mode.
    pub(super) fn violation(&self, input: &[u8]) -> Option<Violation> {
        if self.plan.strict { strict::violation(input) } else { None }
    }

    /// Asks for pages, or offers some back, after one command of four. Returns the number.
    pub(super) fn ask(
        &mut self,
        firmware: &mut Firmware,
        dma: &dyn Dma,
        opcode: CmdOpcode,
    ) -> Option<i32> {
        let seed = self.plan.pages.as_mut()?;
        let eqn = firmware.eqs.of(EventType::PAGE_REQUEST)?;
        // xorshift64*, never 0.
        *seed |= u64::from(*seed == 0);
        *seed ^= *seed >> 12;
        *seed ^= *seed << 25;
        *seed ^= *seed >> 27;
        let random = seed.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32;
        // Supplying pages takes commands; these ask rarely, so that the driver gets done.
        let one_of = if opcode == CmdOpcode::MANAGE_PAGES { 16 } else { 4 };
        if random % one_of != 0 {
            return None;
        }
        let count = (random >> 8) % MOST;
        let count = if random >> 7 & 1 == 0 { count as i32 } else { -(count as i32) };
        firmware.eqs.post(dma, eqn, mlx5_eqe::page_request(0, count));
        Some(count)
    }
}
