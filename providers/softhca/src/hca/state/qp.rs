//! Queue pairs: context, ring counters, and the state machine (IBTA vol 1, 10.3.1).

use std::ops::Range;
use std::time::Duration;

use crate::hca::config::HcaConfig;
use crate::hca::counters::{QCounters, Sets};
use crate::hca::state::keys::Who;
use crate::hca::state::requester::{Request, Requester};
use crate::hca::state::responder::Responder;
use crate::hca::state::wqe::Op;
use crate::wire::Psn;
use uverbs_front::backend::context::{
    QpAttrs, QpContext, QpState, QpTransition, STRIDE_SHIFTS, Service,
};
use uverbs_front::backend::error::HcaError;
use uverbs_front::backend::number::Qpn;

/// Lowest QPN handed out: 0 and 1 are the management QPs, and silicon reserves the next ones.
pub(crate) const FIRST_QPN: u32 = 0x40;
/// QPNs are 24 bits.
pub(crate) const LAST_QPN: u32 = RESERVED_QPNS.start - 1;
/// Numbers for callers that need one without queue pair. Below the multicast number 0xffffff.
pub(crate) const RESERVED_QPNS: Range<u32> = 0x00f0_0000..0x00ff_0000;

/// A due acknowledgement timer that waits for the peer's thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overdue {
    /// Time at which the timer was due.
    pub(crate) due: Duration,
    /// Position that the peer's reading must pass; `None` once it has.
    pub(crate) mark: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) qpn: Qpn,
    pub(crate) ctx: QpContext,
    /// The QP's SRQ does tag matching.
    pub(crate) tags: bool,
    pub(crate) state: QpState,
    pub(crate) attrs: QpAttrs,
    /// Send WQEBBs that the doorbell record has published, modulo 2^16.
    pub(crate) sq_published: u16,
    /// Send WQEBBs fetched.
    pub(crate) sq_fetched: u16,
    /// Receive WQEs taken, modulo 2^16.
    pub(crate) rq_taken: u16,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// In the device's list of QPs with work.
    pub(crate) queued: bool,
    /// The QP's time in the device's timer list.
    pub(crate) timer: Option<Duration>,
    /// A timer that waits for the peer's thread.
    pub(crate) overdue: Option<Overdue>,
    /// A CQ of the QP died, or the rings are unusable: no CQE is written any more.
    pub(crate) mute: bool,
    /// In ERR: the last-WQE event was raised.
    pub(crate) last_wqe_told: bool,
    /// Time of the last congestion notification to the peer.
    pub(crate) noticed: Option<Duration>,
}

impl Qp {
    /// Counters of the QP's set.
    pub(crate) fn counts<'a>(&self, sets: &'a mut Sets) -> &'a mut QCounters {
        sets.of(self.ctx.counter_set)
    }

    /// Identity for access to local memory.
    pub(crate) fn who(&self) -> Who {
        Who { pd: self.ctx.pd, qpn: self.qpn }
    }

    pub(crate) fn new(qpn: Qpn, ctx: QpContext) -> Qp {
        Qp {
            qpn,
            ctx,
            tags: false,
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
            noticed: None,
        }
    }

    /// Payload bytes per packet.
    pub(crate) fn mtu(&self) -> u32 {
        self.attrs.path_mtu.bytes()
    }

    /// True if packets of the peer are processed (IBTA 10.3.1: in RTR and later, except ERR).
    pub(crate) fn receives(&self) -> bool {
        matches!(self.state, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }

    /// True if the send side may have packets in flight.
    pub(crate) fn sends(&self) -> bool {
        matches!(self.state, QpState::Rts | QpState::Sqd)
    }

    /// True if the send queue is draining.
    pub(crate) fn is_draining(&self) -> bool {
        self.state == QpState::Sqd && self.attrs.sq_draining
    }

    /// Send WQEBBs published and not fetched.
    pub(crate) fn sq_pending(&self) -> u16 {
        self.sq_published.wrapping_sub(self.sq_fetched)
    }

    /// Time at which an acknowledgement is late.
    pub(crate) fn ack_deadline(&self) -> Option<Duration> {
        self.requester.ack_timer.filter(|_| self.sends())
    }

    /// Time of the requester's next timer.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        if self.sends() { self.requester.deadline() } else { None }
    }

    /// Appends a request to the queue. A READ is split into parts, so that `max_rd_atomic` parts,
    /// four at most, fill the window of `read_window` PSNs.
    #[inline]
    pub(crate) fn enqueue(&mut self, mut request: Box<Request>, read_window: u32) {
        let wqe = &request.wqe;
        let packets = match wqe.op {
            Op::Nop | Op::Umr | Op::Copy | Op::Tags => 0,
            _ if self.ctx.service == Service::Raw => 0,
            _ if self.ctx.service == Service::Ud => 1,
            // Most messages are short, and a division takes longer than this comparison.
            _ if wqe.len <= self.mtu() => 1,
            _ => wqe.len.div_ceil(self.mtu()),
        };
        let local = matches!(wqe.op, Op::Umr | Op::Copy | Op::Tags) || wqe.ethernet.is_some();
        let part = match wqe.op {
            Op::Read { .. } => {
                (read_window / u32::from(self.attrs.max_rd_atomic).clamp(1, 4)).max(1)
            }
            _ => u32::MAX,
        };
        let first = self.requester.next_psn;
        self.requester.next_psn = first + packets;
        (request.first, request.packets, request.part) = (first, packets, part);
        request.executed = !local;
        self.requester.push(request);
    }

    pub(crate) fn snapshot(&self) -> QpAttrs {
        let mut attrs = self.attrs;
        attrs.sq_psn = Psn::new(self.requester.next_psn.get());
        attrs.rq_psn = Psn::new(self.responder.expected.get());
        attrs
    }

    /// Moves along one edge. Drops the work that the edge ends, without completions: the flush
    /// writes those.
    pub(crate) fn modify(
        &mut self,
        to: QpTransition,
        attrs: &QpAttrs,
        config: &HcaConfig,
    ) -> Result<(), HcaError> {
        use QpTransition::{
            InitToInit, InitToRtr, RstToInit, RtrToRts, RtsToRts, RtsToSqd, SqdToRts, SqdToSqd,
            SqeToRts, ToErr, ToRst,
        };
        if !self.may_go(to) {
            return Err(HcaError::BadState { state: self.state, transition: to });
        }
        if !matches!(to, ToErr | ToRst) {
            check_attrs(attrs, config, to)?;
        }
        match to {
            RstToInit | InitToInit => {
                self.attrs = QpAttrs { sq_draining: false, ..*attrs };
            }
            InitToRtr => {
                self.attrs = QpAttrs { sq_draining: false, ..*attrs };
                self.responder = Responder::starting_at(Psn::new(attrs.rq_psn.get()));
            }
            RtrToRts => self.start_sending(attrs),
            RtsToRts | SqeToRts => {
                self.attrs.access = attrs.access;
                self.attrs.min_rnr_timer = attrs.min_rnr_timer;
                self.attrs.qkey = attrs.qkey;
            }
            RtsToSqd => {
                self.attrs.en_sqd_async_notify = attrs.en_sqd_async_notify;
                self.attrs.sq_draining = true;
            }
            SqdToSqd | SqdToRts => self.change_drained(to, attrs),
            ToErr => self.responder.silence(),
            ToRst => self.clear(),
        }
        self.state = match to {
            RstToInit | InitToInit => QpState::Init,
            InitToRtr => QpState::Rtr,
            RtrToRts | RtsToRts | SqeToRts | SqdToRts => QpState::Rts,
            RtsToSqd | SqdToSqd => QpState::Sqd,
            ToErr => QpState::Err,
            ToRst => QpState::Reset,
        };
        Ok(())
    }

    /// True if the queue pair is in the edge's start state.
    fn may_go(&self, to: QpTransition) -> bool {
        match to {
            QpTransition::RstToInit => self.state == QpState::Reset,
            QpTransition::InitToInit | QpTransition::InitToRtr => self.state == QpState::Init,
            QpTransition::RtrToRts => self.state == QpState::Rtr,
            QpTransition::RtsToRts | QpTransition::RtsToSqd => self.state == QpState::Rts,
            QpTransition::SqdToSqd => self.state == QpState::Sqd,
            QpTransition::SqeToRts => self.state == QpState::Sqe && !self.ctx.service.is_reliable(),
            QpTransition::SqdToRts => self.state == QpState::Sqd && !self.attrs.sq_draining,
            QpTransition::ToErr => self.state != QpState::Reset,
            QpTransition::ToRst => true,
        }
    }

    fn start_sending(&mut self, attrs: &QpAttrs) {
        // RTR2RTS can't change the attributes of INIT2RTR.
        self.attrs = QpAttrs {
            path: self.attrs.path,
            path_mtu: self.attrs.path_mtu,
            dest_qpn: self.attrs.dest_qpn,
            max_dest_rd_atomic: self.attrs.max_dest_rd_atomic,
            ..*attrs
        };
        self.requester = Requester::starting_at(Psn::new(attrs.sq_psn.get()), &self.attrs);
    }

    fn change_drained(&mut self, to: QpTransition, attrs: &QpAttrs) {
        let stays = to == QpTransition::SqdToSqd;
        self.attrs = QpAttrs {
            dest_qpn: self.attrs.dest_qpn,
            sq_draining: self.attrs.sq_draining,
            path_mtu: if stays { attrs.path_mtu } else { self.attrs.path_mtu },
            ..*attrs
        };
        self.requester.reset_retries(&self.attrs);
    }

    /// Resets the queue pair to its state after creation.
    fn clear(&mut self) {
        self.attrs = QpAttrs::default();
        self.sq_published = 0;
        self.sq_fetched = 0;
        self.rq_taken = 0;
        self.requester = Requester::default();
        self.responder = Responder::default();
        self.mute = false;
        self.last_wqe_told = false;
    }
}

/// Checks the parameters of CREATE_QP.
pub(crate) fn check_context(ctx: &QpContext, config: &HcaConfig) -> Result<(), HcaError> {
    let bad = |what, value| Err(HcaError::BadParam { what, value });
    for bytes in [ctx.scatter.requester, ctx.scatter.responder] {
        if !matches!(bytes, 0 | 32 | 64) {
            return bad("scatter", bytes.into());
        }
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
    if let Some(streams) = ctx.streams {
        if ctx.service != Service::Dci {
            return bad("streams", 0);
        }
        for log in [streams.log_channels, streams.log_errored] {
            if log > config.log_max_dci_streams {
                let limit = config.log_max_dci_streams.into();
                return Err(HcaError::Limit { what: "log_max_dci_streams", limit });
            }
        }
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
    limit("dest_qpn", attrs.dest_qpn.0.into(), 0x00ff_ffff)?;
    limit("min_rnr_timer", attrs.min_rnr_timer.into(), 31)?;
    limit("timeout", attrs.timeout.into(), 31)?;
    limit("retry_cnt", attrs.retry_cnt.into(), 7)?;
    limit("rnr_retry", attrs.rnr_retry.into(), 7)?;
    let most = config.max_rd_atomic.max(config.max_dc_rd_atomic);
    limit("max_rd_atomic", attrs.max_rd_atomic.into(), most.into())?;
    let max_dest = config.max_dest_rd_atomic.into();
    limit("max_dest_rd_atomic", attrs.max_dest_rd_atomic.into(), max_dest)
}
