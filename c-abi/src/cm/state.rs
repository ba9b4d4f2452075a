//! State of an id beyond C's struct.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use uverbs_core::attr::Ece;
use uverbs_core::commands::cm::SockAddr;

use super::info;
use super::sys::rdma_addrinfo;
use crate::sys::{ibv_gid, ibv_qp_init_attr};

/// State of an id beyond C's struct.
#[derive(Default)]
pub(crate) struct State {
    /// Synchronous: each call waits for its event on the id's private channel.
    pub(crate) waits: bool,
    /// Attributes of the queue pairs of a listener's connections.
    pub(crate) init: Option<ibv_qp_init_attr>,
    /// READs and atomics: as responder, and as initiator.
    pub(crate) serves: u8,
    pub(crate) asks: u8,
    /// The queue pair could not be brought up, so later events of the connection are dropped.
    pub(crate) failed: bool,
    pub(crate) ece: Options,
    pub(crate) groups: Vec<Group>,
    pub(crate) resolution: Resolution,
}

// SAFETY: by C's contract the attributes point to memory that any thread of the program may use.
unsafe impl Send for State {}

/// Options of an id; vendor 0 if unset.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Options {
    pub(crate) local: Ece,
    pub(crate) remote: Ece,
}

impl Options {
    /// Options of a request.
    pub(crate) fn asked(self) -> Ece {
        self.local
    }

    /// Options of a reply, under the vendor of the request.
    pub(crate) fn answered(self) -> Ece {
        Ece { vendor: self.remote.vendor, options: self.local.options }
    }
}

/// Membership of an id in a multicast group.
pub(crate) struct Group {
    pub(crate) key: u64,
    /// Number of the membership in the connection manager.
    pub(crate) number: u32,
    pub(crate) addr: SockAddr,
    /// Context that the program passed to the join.
    pub(crate) context: usize,
    /// Group and LID that the queue pair is attached to, once joined.
    pub(crate) joined: Option<(ibv_gid, u16)>,
}

/// Pending resolution of an id. Until its result is fetched, the id accepts no further one.
#[derive(Default)]
pub(crate) enum Resolution {
    #[default]
    None,
    Begun,
    Found(Found),
}

/// Resolved addresses, kept until the program fetches them.
pub(crate) struct Found(pub(crate) *mut rdma_addrinfo);

impl Found {
    /// Passes the addresses to the program.
    pub(crate) fn give(self) -> *mut rdma_addrinfo {
        std::mem::ManuallyDrop::new(self).0
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        // SAFETY: the list was not passed to the program, so this is its only owner.
        unsafe { info::freeaddrinfo(self.0) };
    }
}
