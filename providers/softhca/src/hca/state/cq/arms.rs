//! Arming of a CQ, and the events that answer an arm.

use std::time::Duration;

use uverbs_mlx5_prm::doorbell::CqArm;

use super::{Armed, Cq, INDEX_MASK};
use crate::hca::state::events::Events;
use crate::hca::stats::HcaStats;
use uverbs_front::backend::context::Moderation;
use uverbs_front::backend::error::HcaEvent;

impl Cq {
    #[inline]
    pub(super) fn after_push(
        &mut self,
        solicited: bool,
        now: Duration,
        events: &mut Events,
        stats: &mut HcaStats,
    ) {
        self.untold = self.untold.saturating_add(1);
        self.fresh = self.fresh.saturating_add(1);
        if solicited {
            self.solicited = Some(self.producer);
        }
        let fires = match self.armed {
            Some(Armed::Any) => true,
            Some(Armed::Solicited) => solicited,
            None => false,
        };
        if fires {
            self.bundle(solicited, now, events, stats);
        }
    }

    /// True if a solicited arm waits for one of the last `count` CQEs.
    fn solicited_within(&self, count: u32) -> bool {
        self.solicited.is_some_and(|at| self.producer.wrapping_sub(at) & INDEX_MASK < count)
    }

    /// Raises the event of a completion that the arm waits for, or starts the moderation period.
    fn bundle(
        &mut self,
        solicited: bool,
        now: Duration,
        events: &mut Events,
        stats: &mut HcaStats,
    ) {
        let Moderation { period, count, from_completion, solicited_breaks } = self.moderation;
        let many = count != 0 && self.untold >= count.into();
        let none = count == 0 && period.is_zero();
        let when = match from_completion {
            true => now + period,
            false => self.deadline.unwrap_or(self.told + period),
        };
        let late = !period.is_zero() && when <= now;
        if none || many || late || solicited && solicited_breaks {
            self.tell(now, events, stats);
        } else if !period.is_zero() {
            self.deadline = Some(when);
        }
    }

    pub(super) fn tell(&mut self, now: Duration, events: &mut Events, stats: &mut HcaStats) {
        (self.armed, self.deadline, self.untold, self.told) = (None, None, 0, now);
        (self.told_sn, self.fresh) = (Some(self.sn), 0);
        events.push(HcaEvent::CqCompletion { cqn: self.cqn }, stats);
    }

    /// CQEs beyond the consumer index of an arm. A driver may keep fewer bits of the index than the
    /// 24 of the doorbell.
    fn unconsumed(&self, ci: u32) -> u32 {
        let beyond = self.producer.wrapping_sub(ci) & INDEX_MASK;
        let entries = 1u32 << self.ctx.log_entries;
        if beyond <= entries { beyond } else { beyond & (entries - 1) }
    }

    pub(super) fn arm(
        &mut self,
        word: u32,
        now: Duration,
        events: &mut Events,
        stats: &mut HcaStats,
    ) {
        let word = CqArm(word);
        // Software increments the sequence number with each event that it takes (PRM, "CQ arm",
        // cmd_sn; rdma-core cq.c, `mlx5_cq_event`; Linux
        // drivers/net/ethernet/mellanox/mlx5/core/eq.c, `mlx5_eq_comp_int`). The number of the last
        // event's arm means that software did not take that event yet, so the event answers this
        // arm, too.
        if self.armed.is_none() && self.told_sn == Some(word.sn()) {
            stats.stale_arms += 1;
            return;
        }
        stats.arms += 1;
        self.sn = word.sn();
        // Solicited: mlx5dv.h, `MLX5_CQ_DB_REQ_NOT_SOL`.
        let kind = if word.solicited() { Armed::Solicited } else { Armed::Any };
        // CQEs written between the driver's last poll and this arm fire at once; otherwise the
        // driver would sleep on them. CQEs from before the last event do not: the driver took that
        // event, and polls after it. IBTA 11.4.2.2 counts later completions only.
        let beyond = self.unconsumed(word.ci()).min(self.fresh);
        let fires = beyond != 0
            && match kind {
                Armed::Any => true,
                Armed::Solicited => self.solicited_within(beyond),
            };
        // Another arm restarts the count at these CQEs.
        self.untold = beyond;
        self.deadline = None;
        self.armed = Some(kind);
        if fires {
            let solicited = self.solicited_within(beyond);
            self.bundle(solicited, now, events, stats);
        }
    }
}
