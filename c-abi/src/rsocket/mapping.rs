//! Program memory that the peer writes by offsets: `riomap`, `riowrite`.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. Memory stays mapped until
//! `riounmap` or the socket's end.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::io;

use libc::{PROT_WRITE, off_t};
use uverbs_core::Errno;

use super::socket::{Mapped, of};
use super::{bytes, done, errno};
use crate::base::answer::minus_one;
use crate::post::request::memory;

fn map(
    socket: c_int,
    at: *mut c_void,
    len: usize,
    protection: c_int,
    offset: off_t,
) -> Result<off_t, Errno> {
    let socket = of(socket)?;
    let stream = socket.stream().map_err(|_| Errno::EINVAL)?;
    if protection & !PROT_WRITE != 0 {
        return Err(Errno::EINVAL);
    }
    let addr = at.expose_provenance();
    let offset = if offset == -1 { addr as off_t } else { offset };
    let is_offered = protection & PROT_WRITE != 0;
    // Without `PROT_WRITE` the peer is not told, and C's library registers memory for sends that it
    // never does.
    if is_offered {
        // SAFETY: by C's contract.
        let mapped = unsafe { stream.map_at(at.cast(), len, offset as u64) };
        mapped.map_err(|error| errno(&error))?;
    }
    socket.state().mapped.push(Mapped { addr, len, is_offered });
    Ok(offset)
}

pub(crate) unsafe extern "C" fn riomap(
    socket: c_int,
    at: *mut c_void,
    len: usize,
    protection: c_int,
    _flags: c_int,
    offset: off_t,
) -> off_t {
    map(socket, at, len, protection, offset).unwrap_or_else(|errno| minus_one(errno).into())
}

pub(crate) unsafe extern "C" fn riounmap(socket: c_int, at: *mut c_void, len: usize) -> c_int {
    done(of(socket).and_then(|socket| {
        let stream = socket.stream().map_err(|_| Errno::EINVAL)?;
        let is_it = |mapped: &Mapped| (mapped.addr, mapped.len) == (at.addr(), len);
        let mut state = socket.state();
        let found = state.mapped.iter().position(is_it).ok_or(Errno::EINVAL)?;
        if state.mapped[found].is_offered {
            stream.unmap(at.addr() as u64, len).map_err(|error| errno(&error))?;
        }
        state.mapped.swap_remove(found);
        Ok(())
    }))
}

/// Returns -1 on failure, although the header declares the result unsigned.
pub(crate) unsafe extern "C" fn riowrite(
    socket: c_int,
    from: *const c_void,
    len: usize,
    offset: off_t,
    flags: c_int,
) -> isize {
    bytes(of(socket).and_then(|socket| {
        // SAFETY: by C's contract.
        let from = unsafe { memory(from.cast(), len) };
        let (stream, now) = (socket.stream()?, socket.is_nonblocking(flags));
        let mut sent = 0;
        while sent < len {
            let at = (offset as u64).wrapping_add(sent as u64);
            let part = &from[sent..];
            let wrote = if now { stream.try_write_at(part, at) } else { stream.write_at(part, at) };
            match wrote {
                Ok(count) => sent += count,
                Err(_) if sent > 0 => break,
                // The peer's message is still under way, or the peer mapped nothing at this offset:
                // `riowrite` returns the bytes sent so far.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
                Err(error) => return Err(errno(&error)),
            }
            if now {
                break;
            }
        }
        Ok(sent)
    }))
}
