//! Address handles as posts see them.
//!
//! # Safety
//!
//! The trait is unsafe to implement; nothing is called.
#![allow(unsafe_code, reason = "a post leans on what an implementation answers")]

use std::fmt::Debug;

use crate::objects::ah::AhCore;
use crate::queues::work::Destination;

/// An address handle: where datagrams go. A cheap handle.
///
/// # Safety
///
/// [`core`](Self::core) is of the protection domain that the handle was made in: a post leans on
/// that.
pub unsafe trait AhOps: Debug + Clone + Send + Sync + 'static {
    /// The kernel's side of it.
    fn core(&self) -> &AhCore;

    /// How this provider's posts have a datagram's peer: the queue pair's number of 24 bits, and
    /// the Q_Key that it asks for. A key with the highest bit set stands for the sender's own (IBTA
    /// vol 1, 10.2.5).
    fn peer(&self, qpn: u32, qkey: u32) -> [u64; 2];

    /// A queue pair at the end of this way.
    #[inline(always)]
    fn to(&self, qpn: u32, qkey: u32) -> Destination<'_, Self> {
        Destination { ah: self, peer: self.peer(qpn, qkey) }
    }
}
