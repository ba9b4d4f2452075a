//! Why a responder executes no request, and what each request is checked for: its domain, its key
//! and its range.

use crate::hca::context::{Access, Service};
use crate::hca::engine::page_faults::Wanted;
use crate::hca::engine::receives;
use crate::hca::number::Key;
use crate::hca::state::common::Common;
use crate::hca::state::keys::{KeyFault, Segment, Who};
use crate::hca::state::qp::Qp;
use crate::hca::state::receive::Source;
use crate::wire::{NakCode, Packet};

/// Why a request was not executed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Refusal {
    /// No receive is posted; ask again later.
    NotReady,
    /// Class C and its like (IBTA 9.9.3): NAK, and the QP goes to error.
    Fatal(NakCode),
    /// Likewise, but a receive completed with the error: no async event tells it again.
    Told(NakCode),
    /// A page isn't there; ask again when it is.
    Absent(Wanted),
    /// The payload was lent, and can't be had.
    Lost,
}

pub(super) const INVALID: Refusal = Refusal::Fatal(NakCode::INVALID_REQUEST);
pub(super) const ACCESS: Refusal = Refusal::Fatal(NakCode::REMOTE_ACCESS);
pub(super) const OPERATIONAL: Refusal = Refusal::Fatal(NakCode::REMOTE_OPERATIONAL);

/// A DMA fault is the responder's own trouble; all else is the requester's.
pub(super) fn refusal_of(fault: KeyFault) -> Refusal {
    match fault {
        KeyFault::Dma(_) | KeyFault::Absent => OPERATIONAL,
        _ => ACCESS,
    }
}

/// The same, where a page may be missing that a driver brings.
pub(super) fn refusal_or(wanted: Wanted) -> impl FnOnce(KeyFault) -> Refusal {
    move |fault| match fault {
        KeyFault::Absent => Refusal::Absent(wanted),
        fault => refusal_of(fault),
    }
}

pub(super) fn source(qp: &Qp, common: &Common, packet: &Packet<'_>) -> Result<Source, Refusal> {
    receives::source(qp, common, packet).ok_or(INVALID)
}

/// The protection domain and queue pair whose keys a request may use.
pub(super) fn owner(qp: &Qp, common: &Common, packet: &Packet<'_>) -> Result<Who, Refusal> {
    let pd = match qp.ctx.service {
        // An XRC target is the kernel's; the SRQ belongs to who receives (IBTA annex A14).
        Service::Xrc => receives::landing(qp, common, source(qp, common, packet)?).pd,
        _ => qp.ctx.pd,
    };
    Ok(Who { pd, qpn: qp.qpn })
}

/// Key, domain, right and range; a request of no bytes names nothing (IBTA 9.7.4.1.4, 9.7.4.1.5).
pub(super) fn check(
    common: &Common,
    who: Who,
    (va, rkey, len): (u64, u32, u32),
    need: Access,
) -> Result<(), Refusal> {
    if len == 0 {
        return Ok(());
    }
    let segment = Segment { key: Key(rkey), addr: va, len: len.into() };
    common.keys.check(who, segment, need).map_err(refusal_of)
}
