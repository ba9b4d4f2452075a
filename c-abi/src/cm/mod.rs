//! librdmacm: connections by address, over the connection manager commands of `uverbs-core`. An
//! embedded device brings a connection manager; all other devices use the kernel's.
//!
//! From the ground up:
//!
//! | file | what |
//! |---|---|
//! | [`sys`] | C's structs |
//! | `address` | socket addresses |
//! | `info` | names of hosts |
//! | `channel` | event channels and their connection manager |
//! | `device` | open devices of ids |
//! | `state`, `id` | ids and what C's struct has no room for |
//! | `event` | events |
//! | `groups` | memberships in multicast groups |
//! | `ece` | vendor options |
//! | `qp_states` | states of queue pairs |
//! | `service` | InfiniBand's services |
//! | `lifetime` | creation, destruction, migration of ids |
//! | `delivery` | delivery of events, waits of synchronous calls |
//! | `qp` | queue pairs of ids |
//! | `resolve` | addresses, routes, options |
//! | `addrinfo` | addresses resolved with an event |
//! | `connect` | listen, connect, accept, reject, disconnect |
//! | `multicast` | join and leave |
//! | `endpoint` | `rdma_create_ep` and `rdma_get_request` |

pub(crate) mod address;
pub(crate) mod addrinfo;
pub(crate) mod channel;
pub(crate) mod connect;
pub(crate) mod delivery;
pub(crate) mod device;
pub(crate) mod ece;
pub(crate) mod endpoint;
pub(crate) mod event;
pub(crate) mod groups;
pub(crate) mod id;
pub(crate) mod info;
pub(crate) mod lifetime;
pub(crate) mod multicast;
pub(crate) mod qp;
pub(crate) mod qp_states;
pub(crate) mod resolve;
pub(crate) mod service;
pub(crate) mod state;
pub(crate) mod sys;

use std::ffi::c_int;

use uverbs_core::Errno;
use uverbs_core::error::Error;

use crate::base::answer::minus_one;

/// 0, or -1 with the error in `errno`, as librdmacm answers.
fn done(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => minus_one(error.to_errno()),
    }
}

/// Error of an invalid call.
fn invalid(verb: &'static str) -> Error {
    Error::kernel(verb, Errno::EINVAL)
}
