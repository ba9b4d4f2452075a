//! librdmacm: connections by address, over the connection manager commands of `uverbs-core`. An
//! embedded device brings a connection manager; all other devices use the kernel's.
//!
//! | file | what |
//! |---|---|
//! | [`sys`] | C's structs |
//! | `channel` | event channels and their connection manager |
//! | `id` | ids, their life, options and addresses |
//! | `device` | open devices of ids |
//! | `connect` | listen, connect, accept, reject, disconnect |
//! | `event` | events |
//! | `ece` | vendor options |
//! | `qp` | queue pairs of ids |
//! | `endpoint` | synchronous calls, `rdma_create_ep` and `rdma_get_request` |
//! | `info` | names of hosts |
//! | `resolve` | addresses resolved with an event |
//! | `multicast` | multicast groups |

pub(crate) mod channel;
pub(crate) mod connect;
pub(crate) mod device;
pub(crate) mod ece;
pub(crate) mod endpoint;
pub(crate) mod event;
pub(crate) mod id;
pub(crate) mod info;
pub(crate) mod multicast;
pub(crate) mod qp;
pub(crate) mod resolve;
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
