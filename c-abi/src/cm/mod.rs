//! librdmacm: connections by address, over the connection manager's commands of `uverbs-core`.
//! An embedded device has a connection manager of its own; all others have the kernel's.
//!
//! | file | what |
//! |---|---|
//! | [`sys`] | C's structs |
//! | `channel` | event channels, and which connection manager they are of |
//! | `id` | ids, their life, options and addresses |
//! | `device` | open devices that ids are on |
//! | `connect` | listening, asking, accepting, refusing, parting |
//! | `event` | events |
//! | `ece` | vendors' options |
//! | `qp` | queue pairs of ids |
//! | `endpoint` | the calls that wait, `rdma_create_ep` and `rdma_get_request` |
//! | `info` | names of hosts |
//! | `resolve` | addresses that are found with an event |
//! | `multicast` | groups |

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

use crate::answer::minus_one;

/// 0, or -1 with the error in `errno`, as librdmacm answers.
fn done(result: Result<(), Error>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(error) => minus_one(error.to_errno()),
    }
}

/// What a wrong call is refused with.
fn invalid(verb: &'static str) -> Error {
    Error::kernel(verb, Errno::EINVAL)
}
