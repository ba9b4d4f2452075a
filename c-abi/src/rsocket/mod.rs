//! librdmacm's sockets (`rsocket.h`): streams and datagrams, over [`uverbs_streams`].
//!
//! | file | what |
//! |---|---|
//! | `socket` | a socket, and its number |
//! | `address` | C's addresses |
//! | `connect` | making, listening, connecting, ending |
//! | `transfer` | sending and receiving bytes |
//! | `datagrams` | sending and receiving on sockets of `SOCK_DGRAM` |
//! | `poll` | waiting for several |
//! | `epoll` | epoll sets: `repoll_create` |
//! | `options` | options and flags |
//! | `mapping` | memory that the peer writes by offsets |
//!
//! A forked child can only close its parent's connections: other calls answer ENOTCONN.

mod address;
pub(crate) mod connect;
mod datagrams;
pub(crate) mod epoll;
pub(crate) mod forks;
pub(crate) mod mapping;
pub(crate) mod options;
pub(crate) mod poll;
mod socket;
pub(crate) mod transfer;

use std::ffi::c_int;
use std::io;

use uverbs_core::Errno;

use crate::base::answer::minus_one;

/// 0, or -1 with the error in `errno`.
fn done(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => minus_one(errno),
    }
}

/// Number of bytes, or -1 with the error in `errno`.
fn bytes(result: Result<usize, Errno>) -> isize {
    match result {
        Ok(count) => count as isize,
        Err(errno) => minus_one(errno) as isize,
    }
}

/// Error number of a stream's error.
fn errno(error: &io::Error) -> Errno {
    use io::ErrorKind;
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<uverbs::Error>());
    if let Some(errno) = inner.map(uverbs::Error::to_errno) {
        return errno;
    }
    if let Some(raw) = error.raw_os_error() {
        return Errno::from_raw(raw);
    }
    match error.kind() {
        ErrorKind::WouldBlock => Errno::EAGAIN,
        ErrorKind::TimedOut => Errno::ETIMEDOUT,
        ErrorKind::ConnectionRefused => Errno::ECONNREFUSED,
        ErrorKind::ConnectionReset => Errno::ECONNRESET,
        ErrorKind::ConnectionAborted => Errno::ECONNABORTED,
        ErrorKind::NotConnected => Errno::ENOTCONN,
        ErrorKind::BrokenPipe => Errno::EPIPE,
        ErrorKind::AddrInUse => Errno::EADDRINUSE,
        ErrorKind::AddrNotAvailable => Errno::EADDRNOTAVAIL,
        ErrorKind::InvalidInput => Errno::EINVAL,
        ErrorKind::PermissionDenied => Errno::EACCES,
        // C's `rs_get_iomap_mr` returns `ENOMEM` for a full table.
        ErrorKind::QuotaExceeded | ErrorKind::OutOfMemory => Errno::ENOMEM,
        _ => Errno::EIO,
    }
}
