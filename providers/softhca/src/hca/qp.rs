//! Queue pairs: context, rings' counters, and the state machine (IBTA vol 1, 10.3.1).

use super::config::HcaConfig;
use super::context::{QpAttrs, QpContext, QpState, QpTransition, Service};
use super::counters::{QCounters, Sets};
use super::error::HcaError;
use super::mkey::Who;
use super::patience::Overdue;
use super::requester::Requester;
use super::responder::Responder;
use crate::wire::Psn;
use std::time::Duration;

/// Lowest QPN handed out: 0 and 1 are the management QPs, and silicon keeps the next ones, too.
pub(super) const FIRST_QPN: u32 = 0x40;
/// QPNs are 24 bits; 0xffffff is multicast.
pub(super) const LAST_QPN: u32 = 0x00ff_fffe;
/// The longest send WQE: ds is 6 bits, of 16 bytes (mlx5dv.h, `mlx5_wqe_ctrl_seg`).
pub(super) const STRIDE_SHIFTS: std::ops::RangeInclusive<u8> = 4..=10;

#[derive(Debug)]
pub(super) struct Qp {
    pub(super) qpn: u32,
    pub(super) ctx: QpContext,
    pub(super) state: QpState,
    pub(super) attrs: QpAttrs,
    /// Send WQEBBs that the doorbell record has published, modulo 2^16.
    pub(super) sq_published: u16,
    /// Send WQEBBs fetched.
    pub(super) sq_fetched: u16,
    /// Receive WQEs taken, modulo 2^16.
    pub(super) rq_taken: u16,
    pub(super) requester: Requester,
    pub(super) responder: Responder,
    /// In the device's list of QPs with work.
    pub(super) queued: bool,
    /// Under which time the device's timer list has it.
    pub(super) timer: Option<Duration>,
    /// A timer that waits for the peer.
    pub(super) overdue: Option<Overdue>,
    /// A CQ of it died, or the rings are unusable: no CQE is written any more.
    pub(super) mute: bool,
    /// In ERR: the event about the last WQE is out.
    pub(super) last_wqe_told: bool,
}

impl Qp {
    /// The counts of its set.
    pub(super) fn counts<'a>(&self, sets: &'a mut Sets) -> &'a mut QCounters {
        sets.of(self.ctx.counter_set)
    }

    /// On whose behalf it accesses memory of its own.
    pub(super) fn who(&self) -> Who {
        Who { pd: self.ctx.pd, qpn: self.qpn }
    }

    pub(super) fn new(qpn: u32, ctx: QpContext) -> Qp {
        Qp {
            qpn,
            ctx,
            state: QpState::Reset,
            attrs: QpAttrs::default(),
            sq_published: 0,
            sq_fetched: 0,
            rq_taken: 0,
            requester: Requester::default(),
            responder: Responder::default(),
            queued: false,
            timer: None,
            overdue: None,
            mute: false,
            last_wqe_told: false,
        }
    }

    /// Payload bytes per packet.
    pub(super) fn mtu(&self) -> u32 {
        self.attrs.path_mtu.bytes()
    }

    /// Whether packets of the peer are looked at (IBTA 10.3.1: RTR and on, but not ERR).
    pub(super) fn receives(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    /// Whether the send side may have packets under way.
    pub(super) fn sends(&self) -> bool {
        matches!(self.state, QpState::Rts | QpState::Sqd)
    }

    /// Whether the send queue waits to be drained.
    pub(super) fn is_draining(&self) -> bool {
        self.state == QpState::Sqd && self.attrs.sq_draining
    }

    /// Send WQEBBs published and not fetched.
    pub(super) fn sq_pending(&self) -> u16 {
        self.sq_published.wrapping_sub(self.sq_fetched)
    }

    pub(super) fn snapshot(&self) -> QpAttrs {
        let mut attrs = self.attrs;
        attrs.sq_psn = self.requester.next_psn.get();
        attrs.rq_psn = self.responder.expected.get();
        attrs
    }

    /// Moves along one edge. Work that has to be dropped is dropped here; completions for it are
    /// the flush's business.
    pub(super) fn modify(
        &mut self,
        to: QpTransition,
        attrs: &QpAttrs,
        config: &HcaConfig,
    ) -> Result<(), HcaError> {
        use QpState::{Init, Reset, Rtr, Rts, Sqd, Sqe};
        use QpTransition::*;
        let allowed = match to {
            RstToInit => self.state == Reset,
            InitToInit | InitToRtr => self.state == Init,
            RtrToRts => self.state == Rtr,
            RtsToRts | RtsToSqd => self.state == Rts,
            SqdToSqd => self.state == Sqd,
            SqeToRts => self.state == Sqe && !self.ctx.service.is_reliable(),
            SqdToRts => self.state == Sqd && !self.attrs.sq_draining,
            ToErr => self.state != Reset,
            ToRst => true,
        };
        if !allowed {
            return Err(HcaError::BadState { state: self.state, transition: to });
        }
        if !matches!(to, ToErr | ToRst) {
            check_attrs(attrs, config, to)?;
        }
        let old = self.attrs;
        match to {
            RstToInit | InitToInit => {
                self.attrs = QpAttrs { sq_draining: false, ..*attrs };
                self.state = Init;
            }
            InitToRtr => {
                self.attrs = QpAttrs { sq_draining: false, ..*attrs };
                self.responder = Responder::starting_at(Psn::new(attrs.rq_psn));
                self.state = Rtr;
            }
            RtrToRts => {
                // What RTR fixed stays fixed.
                self.attrs = QpAttrs {
                    path: old.path,
                    path_mtu: old.path_mtu,
                    dest_qpn: old.dest_qpn,
                    max_dest_rd_atomic: old.max_dest_rd_atomic,
                    ..*attrs
                };
                self.requester = Requester::starting_at(Psn::new(attrs.sq_psn), &self.attrs);
                self.state = Rts;
            }
            RtsToRts | SqeToRts => {
                self.state = Rts;
                self.attrs.access = attrs.access;
                self.attrs.min_rnr_timer = attrs.min_rnr_timer;
                self.attrs.qkey = attrs.qkey;
            }
            RtsToSqd => {
                self.attrs.en_sqd_async_notify = attrs.en_sqd_async_notify;
                self.attrs.sq_draining = true;
                self.state = Sqd;
            }
            SqdToSqd | SqdToRts => {
                self.attrs = QpAttrs {
                    dest_qpn: old.dest_qpn,
                    sq_draining: old.sq_draining,
                    path_mtu: if to == SqdToSqd { attrs.path_mtu } else { old.path_mtu },
                    ..*attrs
                };
                self.requester.reset_retries(&self.attrs);
                if to == SqdToRts {
                    self.state = Rts;
                }
            }
            ToErr => {
                self.responder.silence();
                self.state = QpState::Err;
            }
            ToRst => {
                self.attrs = QpAttrs::default();
                self.sq_published = 0;
                self.sq_fetched = 0;
                self.rq_taken = 0;
                self.requester = Requester::default();
                self.responder = Responder::default();
                self.mute = false;
                self.last_wqe_told = false;
                self.state = Reset;
            }
        }
        Ok(())
    }
}

/// The checks of CREATE_QP.
pub(super) fn check_context(ctx: &QpContext, config: &HcaConfig) -> Result<(), HcaError> {
    let bad = |what, value| Err(HcaError::BadParam { what, value });
    if ctx.scatter_to_cqe {
        return bad("scatter_to_cqe", 1);
    }
    if ctx.cqe_version > 1 {
        return bad("cqe_version", ctx.cqe_version.into());
    }
    if ctx.doorbell_record & 7 != 0 {
        return bad("doorbell_record", ctx.doorbell_record);
    }
    if let Some(sq) = &ctx.sq {
        if sq.log_wqebbs > config.log_max_wqebbs {
            let limit = config.log_max_wqebbs.into();
            return Err(HcaError::Limit { what: "log_max_wqebbs", limit });
        }
        if !sq.region.is_sound() || sq.region.len() < 64 << sq.log_wqebbs {
            return bad("sq.region", sq.region.len());
        }
    }
    if matches!(ctx.service, Service::Xrc | Service::Dci) && ctx.rq.is_some() {
        return bad("rq of an initiator", 1);
    }
    if ctx.service == Service::Dct {
        return bad("service", 0);
    }
    if ctx.srq.is_some() && ctx.rq.is_some() {
        return bad("rq", 1);
    }
    if let Some(rq) = &ctx.rq {
        if rq.log_entries > config.log_max_rq_entries {
            let limit = config.log_max_rq_entries.into();
            return Err(HcaError::Limit { what: "log_max_rq_entries", limit });
        }
        if !STRIDE_SHIFTS.contains(&rq.stride_shift) {
            return bad("rq.stride_shift", rq.stride_shift.into());
        }
        let need = 1u64 << (rq.log_entries + rq.stride_shift);
        if !rq.region.is_sound() || rq.region.len() < need {
            return bad("rq.region", rq.region.len());
        }
    }
    Ok(())
}

fn check_attrs(attrs: &QpAttrs, config: &HcaConfig, to: QpTransition) -> Result<(), HcaError> {
    let limit = |what, value: u64, max: u64| {
        if value > max { Err(HcaError::BadParam { what, value }) } else { Ok(()) }
    };
    if usize::from(attrs.pkey_index) >= config.pkeys.len() {
        let value = attrs.pkey_index.into();
        return Err(HcaError::BadParam { what: "pkey_index", value });
    }
    if matches!(to, QpTransition::RstToInit | QpTransition::InitToInit) {
        return Ok(());
    }
    if attrs.path_mtu > config.active_mtu {
        let value = attrs.path_mtu as u64;
        return Err(HcaError::BadParam { what: "path_mtu", value });
    }
    limit("dest_qpn", attrs.dest_qpn.into(), 0x00ff_ffff)?;
    limit("min_rnr_timer", attrs.min_rnr_timer.into(), 31)?;
    limit("timeout", attrs.timeout.into(), 31)?;
    limit("retry_cnt", attrs.retry_cnt.into(), 7)?;
    limit("rnr_retry", attrs.rnr_retry.into(), 7)?;
    limit("max_rd_atomic", attrs.max_rd_atomic.into(), config.max_rd_atomic.into())?;
    let max_dest = config.max_dest_rd_atomic.into();
    limit("max_dest_rd_atomic", attrs.max_dest_rd_atomic.into(), max_dest)
}
