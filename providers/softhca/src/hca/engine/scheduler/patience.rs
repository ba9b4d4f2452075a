//! Defers timers for a peer without processor time.
//!
//! A late acknowledgement need not be lost: on a busy machine the peer's thread may not have run,
//! and the packet lies unread in its queue. Retries spent meanwhile would end a healthy connection.
//! So a timer that is due counts only when the peer has read all packets that were queued for it at
//! that time, and this device has read once more.

use std::time::Duration;

use crate::hca::state::common::Common;
use crate::hca::state::qp::{Overdue, Qp};

/// Longest wait for a peer that does not run.
const PATIENCE: Duration = Duration::from_secs(10);
/// Shortest and longest time until the next check.
const LOOK: [Duration; 2] = [Duration::from_micros(20), Duration::from_millis(1)];

/// Time of the next check of a queue pair whose timer is due. None: the timer counts now.
pub(crate) fn later(qp: &mut Qp, common: &Common) -> Option<Duration> {
    let now = common.now;
    let due = qp.ack_deadline().filter(|due| *due <= now)?;
    let known = qp.overdue.take().filter(|overdue| overdue.due == due);
    if now - due >= PATIENCE {
        return None;
    }
    let peer = qp.requester.connected_to().map_or(qp.attrs.path.dst, |to| to.dst);
    let mark = match known {
        None => Some(common.port.mark(peer)?),
        Some(Overdue { mark: Some(mark), .. }) if !common.port.is_past(peer, mark) => Some(mark),
        // The peer's answers, if any, arrived before the next step reads.
        Some(Overdue { mark: Some(_), .. }) => None,
        Some(Overdue { mark: None, .. }) => return None,
    };
    qp.overdue = Some(Overdue { due, mark });
    Some(now + (now - due).clamp(LOOK[0], LOOK[1]))
}
