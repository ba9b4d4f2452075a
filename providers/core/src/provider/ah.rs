//! Address handles as posts see them.
//!
//! # Safety
//!
//! The trait is unsafe to implement; the file calls no unsafe function.
#![allow(unsafe_code, reason = "a post leans on what an implementation answers")]

use std::fmt::Debug;

use crate::objects::ah::AhCore;
use crate::queues::work::Destination;

/// An address handle: the route of datagrams. Cloning is cheap.
///
/// # Safety
///
/// [`core`](Self::core) belongs to the protection domain that the address handle was created in.
/// Posts rely on it.
pub unsafe trait AhOps: Debug + Clone + Send + Sync + 'static {
    /// Kernel object of the address handle.
    fn core(&self) -> &AhCore;

    /// Encodes a datagram's peer for this provider's posts: the 24-bit queue pair number and the
    /// Q_Key. A Q_Key with the highest bit set selects the sending queue pair's own Q_Key (IBTA vol
    /// 1, 10.2.5).
    fn peer(&self, qpn: u32, qkey: u32) -> [u64; 2];

    /// Destination: queue pair `qpn` behind this address handle.
    #[inline(always)]
    fn to(&self, qpn: u32, qkey: u32) -> Destination<'_, Self> {
        Destination { ah: self, peer: self.peer(qpn, qkey) }
    }
}
