//! Checks of each request (domain, key, range), and the reasons to refuse it.

use crate::hca::engine::scheduler::page_faults::Wanted;
use crate::hca::engine::wqe::recv_wqe;
use crate::hca::state::common::Common;
use crate::hca::state::keys::{KeyFault, Segment, Who};
use crate::hca::state::qp::Qp;
use crate::hca::state::receive::Source;
use crate::wire::{NakCode, Packet};
use uverbs_front::backend::context::{Access, Service};
use uverbs_front::backend::number::Key;

/// Reason why a request was not executed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Refusal {
    /// No receive is posted: answered with an RNR NAK.
    NotReady,
    /// Class C and comparable errors (IBTA 9.9.3): NAK, and the QP goes to error.
    Fatal(NakCode),
    /// NAK and error state as `Fatal`, without the async event: a receive completed with the error.
    Told(NakCode),
    /// A page is missing: the requester asks again when the driver has brought it.
    Absent(Wanted),
    /// The payload was lent, and could not be read.
    Lost,
}

pub(crate) const INVALID: Refusal = Refusal::Fatal(NakCode::INVALID_REQUEST);
pub(crate) const ACCESS: Refusal = Refusal::Fatal(NakCode::REMOTE_ACCESS);
pub(crate) const OPERATIONAL: Refusal = Refusal::Fatal(NakCode::REMOTE_OPERATIONAL);

/// Refusal for a key fault. A DMA fault is the responder's error, all others are the requester's.
pub(crate) fn refusal_of(fault: KeyFault) -> Refusal {
    match fault {
        KeyFault::Dma(_) | KeyFault::Absent => OPERATIONAL,
        _ => ACCESS,
    }
}

/// Refusal for a key fault, where a missing page (`wanted`) may be brought by a driver.
pub(crate) fn refusal_or(wanted: Wanted) -> impl FnOnce(KeyFault) -> Refusal {
    move |fault| match fault {
        KeyFault::Absent => Refusal::Absent(wanted),
        fault => refusal_of(fault),
    }
}

pub(crate) fn source(qp: &Qp, common: &Common, packet: &Packet<'_>) -> Result<Source, Refusal> {
    recv_wqe::source(qp, common, packet).ok_or(INVALID)
}

/// The protection domain and queue pair for key checks of a request.
pub(crate) fn owner(qp: &Qp, common: &Common, packet: &Packet<'_>) -> Result<Who, Refusal> {
    let pd = match qp.ctx.service {
        // An XRC target QP's domain is the kernel's; the SRQ has the receiving program's (IBTA
        // annex A14).
        Service::Xrc => recv_wqe::landing(qp, common, source(qp, common, packet)?).pd,
        _ => qp.ctx.pd,
    };
    Ok(Who { pd, qpn: qp.qpn })
}

/// Checks key, domain, right and range. A request of no bytes needs no valid key (IBTA 9.7.4.1.4,
/// 9.7.4.1.5).
pub(crate) fn check(
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
