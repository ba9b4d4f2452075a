//! Streams of a DC initiator (rdma-core `man/mlx5dv_dci_stream_id_reset.3.md`): an error stops its
//! own stream only. Work requests of a stopped stream are flushed in turn until the driver resets
//! the stream. The other streams go on, over a new connection since the error ended the old one.
//! The initiator fails when as many streams have stopped as it was created for.
//! made for.

use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::syndrome::Syndrome;

use crate::hca::device::Hca;
use crate::hca::failure::{Failure, Vendor};
use crate::hca::state::qp::Qp;
use crate::hca::state::requester::{QueuedRequest, Requester};
use uverbs_front::backend::context::QpState;
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::Qpn;

impl Hca {
    /// Resets a stopped stream, so that it goes on. A running stream is unchanged.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`]; [`HcaError::BadParam`] for a QP without streams, or one that isn't
    /// in RTS.
    pub(crate) fn reset_stream(&mut self, qpn: Qpn, stream: u16) -> Result<(), HcaError> {
        let missing = HcaError::BadHandle { noun: Noun::Qp, number: qpn.0 };
        let qp = self.qps.get_mut(&qpn).ok_or(missing)?;
        if qp.ctx.streams.is_none() {
            return Err(HcaError::BadParam { what: "stream", value: stream.into() });
        }
        if qp.state != QpState::Rts {
            return Err(HcaError::BadParam { what: "state", value: qp.state as u64 });
        }
        qp.requester.stopped.remove(&stream);
        Ok(())
    }
}

/// Stops the stream of a failed work request. False if the queue pair fails instead: it has no
/// streams, too many of them stopped, or the ring is inconsistent.
pub(crate) fn stop(qp: &mut Qp, (stream, opcode): (Option<u16>, Opcode), why: Failure) -> bool {
    let (Some(streams), Some(stream)) = (qp.ctx.streams, stream) else { return false };
    if why.syndrome == Syndrome::WR_FLUSH_ERR {
        // The stream stopped before.
        return true;
    }
    if why.syndrome == Syndrome::LOCAL_QP_OP_ERR {
        return false;
    }
    qp.requester.stopped.insert(stream);
    if qp.requester.stopped.len() >= 1 << streams.log_errored {
        return false;
    }
    restart(&mut qp.requester, opcode, why);
    qp.requester.reset_retries(&qp.attrs);
    true
}

/// Continues behind a failed request, with PSNs that no packet had.
fn restart(requester: &mut Requester, opcode: Opcode, why: Failure) {
    // A NAK confirms that the target executed no later request. A READ is an exception: its
    // response may fail after later requests were executed. Without that certainty, requests
    // already sent fail too: sent again, they could be executed twice.
    let known = matches!(why.vendor, Vendor::PEER | Vendor::RNR) && opcode != Opcode::RDMA_READ;
    let (high, start) = (requester.high, requester.next_psn);
    let mut next = start;
    for entry in &mut requester.queue {
        let QueuedRequest::Live(request) = entry else { continue };
        let sent = request.packets != 0 && request.first.is_before(high);
        if requester.stopped.contains(&request.wqe.stream) {
            entry.fail(Failure::FLUSHED);
        } else if sent && !known {
            entry.fail(why);
        } else {
            request.first = next;
            next = next + request.packets;
        }
    }
    requester.next_psn = next;
    requester.oldest = start;
    requester.high = start;
    requester.cursor = 0;
    requester.packet = 0;
    requester.unasked = 0;
    requester.ack_timer = None;
    requester.rnr_timer = None;
    requester.gap_at = None;
    requester.connection = None;
}
