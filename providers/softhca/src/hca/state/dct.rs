//! Targets of dynamic connections, and the connections of each target. `engine::dct` describes
//! them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use crate::hca::state::common::Common;
use crate::hca::state::qp::Qp;
use crate::hca::state::responder::Responder;
use crate::wire::{DcEth, Frame, Packet};
use uverbs_front::backend::context::{
    AddressVector, DctContext, DctState, QpAttrs, QpContext, QpState, Service,
};
use uverbs_front::backend::error::{HcaError, HcaEvent, Noun};
use uverbs_front::backend::number::{Cqn, Qpn};

/// An initiator: LID, GID and QPN.
pub(crate) type Peer = (u16, [u8; 16], Qpn);

#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) number: u32,
    /// Time of the last packet.
    pub(crate) seen: Duration,
    /// Responder and context of the connection; it has no rings.
    pub(crate) qp: Qp,
}

#[derive(Debug)]
pub(crate) struct Dct {
    pub(crate) ctx: DctContext,
    pub(crate) state: DctState,
    pub(crate) connections: BTreeMap<Peer, Connection>,
    /// Connections with answers to send, in the order of their turns, each once.
    pub(crate) ready: VecDeque<Peer>,
    /// In the device's list of queues with work.
    pub(crate) queued: bool,
    /// The CQ died: no packet is taken any more.
    pub(crate) dead: bool,
    pub(crate) violations: u32,
    pub(crate) armed: bool,
}

/// All targets.
#[derive(Debug, Default)]
pub(crate) struct Targets {
    pub(crate) dcts: BTreeMap<Qpn, Dct>,
}

impl Targets {
    pub(crate) fn len(&self) -> usize {
        self.dcts.len()
    }

    pub(crate) fn contains(&self, dctn: Qpn) -> bool {
        self.dcts.contains_key(&dctn)
    }

    pub(crate) fn create(
        &mut self,
        dctn: Qpn,
        ctx: DctContext,
        common: &mut Common,
    ) -> Result<(), HcaError> {
        let bad = |what, value| Err(HcaError::BadParam { what, value });
        if usize::from(ctx.pkey_index) >= common.config.pkeys.len() {
            return bad("pkey_index", ctx.pkey_index.into());
        }
        if ctx.path_mtu > common.config.active_mtu {
            return bad("path_mtu", ctx.path_mtu as u64);
        }
        if ctx.min_rnr_timer > 31 {
            return bad("min_rnr_timer", ctx.min_rnr_timer.into());
        }
        if ctx.cqe_version > 1 {
            return bad("cqe_version", ctx.cqe_version.into());
        }
        let srq = &common.srqs.get(ctx.srq)?.ctx;
        if srq.xrc.is_some() || srq.tags.is_some() {
            return bad("srq", ctx.srq.0.into());
        }
        common.cqs.get_mut(ctx.cq)?.users += 1;
        common.srqs.get_mut(ctx.srq)?.users += 1;
        let dct = Dct {
            ctx,
            state: DctState::Active,
            connections: BTreeMap::new(),
            ready: VecDeque::new(),
            queued: false,
            dead: false,
            violations: 0,
            armed: false,
        };
        self.dcts.insert(dctn, dct);
        Ok(())
    }

    pub(crate) fn query(&self, dctn: Qpn) -> Result<(DctState, u32), HcaError> {
        let dct = self.dcts.get(&dctn).ok_or(no_dct(dctn))?;
        Ok((dct.state, dct.violations))
    }

    pub(crate) fn arm(&mut self, dctn: Qpn) -> Result<(), HcaError> {
        self.get_mut(dctn)?.armed = true;
        Ok(())
    }

    /// Marks a target as queued. True if it was not, and must be added to the list of queues with
    /// work.
    pub(crate) fn queue(&mut self, dctn: Qpn) -> bool {
        self.dcts.get_mut(&dctn).is_some_and(|dct| !std::mem::replace(&mut dct.queued, true))
    }

    /// Stops the targets of a CQ that died, since they cannot complete messages.
    pub(crate) fn bury(&mut self, cqn: Cqn) {
        for dct in self.dcts.values_mut().filter(|dct| dct.ctx.cq == cqn) {
            dct.dead = true;
            dct.connections.clear();
            dct.ready.clear();
        }
    }

    pub(crate) fn get_mut(&mut self, dctn: Qpn) -> Result<&mut Dct, HcaError> {
        self.dcts.get_mut(&dctn).ok_or(no_dct(dctn))
    }

    /// Number of connections of all targets.
    pub(crate) fn connections(&self) -> usize {
        self.dcts.values().map(|dct| dct.connections.len()).sum()
    }
}

impl Dct {
    pub(crate) fn violate(&mut self, dctn: Qpn, common: &mut Common) {
        let Common { events, stats, .. } = common;
        stats.bad_dc_keys += 1;
        self.violations = self.violations.saturating_add(1);
        if std::mem::take(&mut self.armed) {
            events.push(HcaEvent::DctKeyViolation { dctn }, stats);
        }
    }
}

impl Connection {
    pub(crate) fn new(
        dctn: Qpn,
        ctx: &DctContext,
        common: &Common,
        packet: &Packet<'_>,
        frame: &Frame,
        header: &DcEth,
    ) -> Connection {
        let mut qp = Qp::new(
            dctn,
            QpContext {
                srq: Some(ctx.srq),
                user_index: ctx.user_index,
                cqe_version: ctx.cqe_version,
                counter_set: ctx.counter_set,
                ..QpContext::bare(Service::Dct, ctx.pd, ctx.cq)
            },
        );
        qp.state = QpState::Rts;
        qp.attrs = QpAttrs {
            access: ctx.access,
            path: AddressVector {
                src: frame.dst,
                dst: frame.src,
                sgid_index: common.port.index_of(frame).unwrap_or(0) as u8,
                sl: (frame.route.tag >> 13) as u8,
                ..AddressVector::default()
            },
            path_mtu: ctx.path_mtu,
            pkey_index: ctx.pkey_index,
            dest_qpn: Qpn(header.src_qp.get()),
            max_dest_rd_atomic: common.config.max_dest_rd_atomic,
            min_rnr_timer: ctx.min_rnr_timer,
            ..QpAttrs::default()
        };
        qp.responder = Responder::starting_at(packet.psn());
        Connection { number: header.connection.get(), seen: common.now, qp }
    }
}

fn no_dct(dctn: Qpn) -> HcaError {
    HcaError::BadHandle { noun: Noun::Dct, number: dctn.0 }
}
