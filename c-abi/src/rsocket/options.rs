//! Socket options and file flags.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_long, c_void};
use std::time::Duration;

use libc::{
    F_GETFD, F_GETFL, F_SETFD, F_SETFL, IPPROTO_IPV6, IPPROTO_TCP, IPV6_V6ONLY, O_NONBLOCK,
    SO_ERROR, SO_KEEPALIVE, SO_LINGER, SO_OOBINLINE, SO_RCVBUF, SO_REUSEADDR, SO_SNDBUF, SO_TYPE,
    SOL_SOCKET, TCP_KEEPCNT, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_MAXSEG, TCP_NODELAY, linger,
    socklen_t,
};
use uverbs_core::Errno;
use uverbs_streams::StreamOptions;

use super::done;
use super::socket::{Phase, State, of, on_device};
use crate::base::answer::minus_one;

/// Option level of rsocket and its options (`rsocket.h`).
const SOL_RDMA: c_int = 0x1_0000;
const SQSIZE: c_int = 0;
const RQSIZE: c_int = 1;
const INLINE: c_int = 2;
const IOMAPSIZE: c_int = 3;
/// Minimum and maximum bytes of a stream's buffer.
const BUFFER: std::ops::RangeInclusive<u32> = 2 << 10..=512 << 20;
/// Maximum number of mappings, and the step by which the number grows (`rs_value_to_scale`).
const MAPPINGS: u32 = 128;
const STEP: u32 = 8;
/// Value of `TCP_MAXSEG` while the path is unknown: bytes of a packet.
const SEGMENT: c_int = 2048;

/// Options that the program set, with C's values.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) send_buffer: u32,
    pub(super) recv_buffer: u32,
    sends: u16,
    recvs: u16,
    inline: u32,
    mappings: u32,
    keep_alive: bool,
    /// Seconds.
    keep_idle: c_int,
    reuse_addr: bool,
    no_delay: bool,
    linger: bool,
    oob_inline: bool,
    v6_only: bool,
    pub(super) backlog: u32,
}

impl Default for Options {
    /// Defaults of rsocket (`rs_configure`); keep-alives as in TCP (`tcp_keepalive_time`).
    fn default() -> Self {
        Self {
            send_buffer: 128 << 10,
            recv_buffer: 128 << 10,
            sends: 384,
            recvs: 384,
            inline: 64,
            mappings: 0,
            keep_alive: false,
            keep_idle: 7200,
            reuse_addr: false,
            no_delay: false,
            linger: true,
            oob_inline: false,
            v6_only: false,
            backlog: 0,
        }
    }
}

impl Options {
    /// The options in the form that streams take.
    pub(super) fn of_streams(&self) -> Result<StreamOptions, Errno> {
        let within = |bytes: u32| bytes.clamp(*BUFFER.start(), *BUFFER.end());
        let options = StreamOptions::new()
            .send_buffer(within(self.send_buffer))
            .recv_buffer(within(self.recv_buffer))
            .sends(self.sends)
            .recvs(self.recvs)
            .inline(self.inline)
            .mappings(self.mappings as u16)
            .backlog(self.backlog);
        let options = if self.v6_only { options.v6_only() } else { options };
        let options = match self.keep_alive_every() {
            Some(every) => options.keep_alive(every),
            None => options,
        };
        on_device(options)
    }

    fn keep_alive_every(&self) -> Option<Duration> {
        let every = Duration::from_secs(self.keep_idle.unsigned_abs().into());
        self.keep_alive.then_some(every)
    }
}

impl State {
    fn set(&mut self, level: c_int, name: c_int, value: c_int) -> Result<(), Errno> {
        let (on, number) = (value != 0, value as u32);
        let is_new = matches!(
            self.phase,
            Phase::New(_) | Phase::Listening(_) | Phase::Inherited(_) | Phase::Failed(_)
        );
        let options = &mut self.options;
        match (level, name) {
            (SOL_SOCKET, SO_REUSEADDR) => options.reuse_addr = on,
            // The stream's buffer has two halves, each of the requested size.
            (SOL_SOCKET, SO_RCVBUF) if is_new => options.recv_buffer = number.saturating_mul(2),
            (SOL_SOCKET, SO_SNDBUF) if is_new => options.send_buffer = number.saturating_mul(2),
            // Ignored on a socket that has its buffers, as in C's library.
            (SOL_SOCKET, SO_RCVBUF | SO_SNDBUF) => {}
            (SOL_SOCKET, SO_OOBINLINE) => options.oob_inline = on,
            (SOL_SOCKET, SO_LINGER) => options.linger = on,
            (SOL_SOCKET, SO_KEEPALIVE) => {
                options.keep_alive = on;
                return self.keep_alive();
            }
            (IPPROTO_TCP, TCP_KEEPIDLE) if value <= 0 => return Err(Errno::EINVAL),
            (IPPROTO_TCP, TCP_KEEPIDLE) => {
                options.keep_idle = value;
                return self.keep_alive();
            }
            (IPPROTO_TCP, TCP_NODELAY) => options.no_delay = on,
            // The device determines the retries.
            (IPPROTO_TCP, TCP_KEEPCNT | TCP_KEEPINTVL | TCP_MAXSEG) => {}
            (IPPROTO_IPV6, IPV6_V6ONLY) => options.v6_only = on,
            (SOL_RDMA, _) if !is_new => return Err(Errno::EINVAL),
            (SOL_RDMA, SQSIZE) => options.sends = number.min(0xfffe) as u16,
            (SOL_RDMA, RQSIZE) => options.recvs = number.min(0xfffe) as u16,
            (SOL_RDMA, INLINE) => options.inline = number.min(0xfffe),
            (SOL_RDMA, IOMAPSIZE) => {
                options.mappings = number.min(MAPPINGS).next_multiple_of(STEP);
            }
            _ => return Err(Errno::ENOTSUP),
        }
        Ok(())
    }

    /// Applies the keep-alive options to a connected stream.
    fn keep_alive(&mut self) -> Result<(), Errno> {
        let Phase::Connected(stream) = &self.phase else { return Ok(()) };
        let every = self.options.keep_alive_every();
        stream.set_keep_alive(every).map_err(|error| super::errno(&error))
    }

    fn get(&mut self, kind: c_int, level: c_int, name: c_int) -> Result<c_int, Errno> {
        let options = &self.options;
        Ok(match (level, name) {
            (SOL_SOCKET, SO_REUSEADDR) => options.reuse_addr.into(),
            (SOL_SOCKET, SO_RCVBUF) => options.recv_buffer as c_int,
            (SOL_SOCKET, SO_SNDBUF) => options.send_buffer as c_int,
            (SOL_SOCKET, SO_OOBINLINE) => options.oob_inline.into(),
            (SOL_SOCKET, SO_KEEPALIVE) => options.keep_alive.into(),
            (SOL_SOCKET, SO_TYPE) => kind,
            (SOL_SOCKET, SO_ERROR) => std::mem::take(&mut self.error),
            (IPPROTO_TCP, TCP_KEEPCNT | TCP_KEEPINTVL) => 1,
            (IPPROTO_TCP, TCP_KEEPIDLE) => options.keep_idle,
            (IPPROTO_TCP, TCP_NODELAY) => options.no_delay.into(),
            (IPPROTO_TCP, TCP_MAXSEG) => SEGMENT,
            (IPPROTO_IPV6, IPV6_V6ONLY) => options.v6_only.into(),
            (SOL_RDMA, SQSIZE) => options.sends.into(),
            (SOL_RDMA, RQSIZE) => options.recvs.into(),
            (SOL_RDMA, INLINE) => options.inline as c_int,
            (SOL_RDMA, IOMAPSIZE) => options.mappings as c_int,
            _ => return Err(Errno::ENOTSUP),
        })
    }
}

pub(crate) unsafe extern "C" fn rsetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    done(of(socket).and_then(|socket| {
        if value.is_null() || (len as usize) < size_of::<c_int>() {
            return Err(Errno::EINVAL);
        }
        // SAFETY: C's contract: so many bytes; of a `struct linger` the first word counts.
        let value = unsafe { value.cast::<c_int>().read_unaligned() };
        socket.state().set(level, name, value)
    }))
}

pub(crate) unsafe extern "C" fn rgetsockopt(
    socket: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    done(of(socket).and_then(|socket| {
        if value.is_null() || len.is_null() {
            return Err(Errno::EINVAL);
        }
        let mut state = socket.state();
        let is_linger = (level, name) == (SOL_SOCKET, SO_LINGER);
        let needed = if is_linger { size_of::<linger>() } else { size_of::<c_int>() };
        // SAFETY: C's contract: `len` says how many bytes there are.
        unsafe {
            if (*len as usize) < needed {
                return Err(Errno::EINVAL);
            }
            if is_linger {
                let answer = linger { l_onoff: state.options.linger.into(), l_linger: 0 };
                value.cast::<linger>().write_unaligned(answer);
            } else {
                value.cast::<c_int>().write_unaligned(state.get(socket.kind, level, name)?);
            }
            *len = needed as socklen_t;
        }
        Ok(())
    }))
}

/// `argument` is the third argument of a variadic function. On x86-64 and AArch64 it is passed as a
/// declared third argument is.
pub(crate) unsafe extern "C" fn rfcntl(socket: c_int, command: c_int, argument: c_long) -> c_int {
    let socket = match of(socket) {
        Ok(socket) => socket,
        Err(errno) => return minus_one(errno),
    };
    let mut state = socket.state();
    let argument = argument as c_int;
    match command {
        F_GETFL => return state.status,
        F_SETFL => {
            state.status = argument;
            if let Phase::Listening(listener) = &state.phase {
                let set = listener.set_nonblocking(argument & O_NONBLOCK != 0);
                return done(set.map_err(|error| super::errno(&error)));
            }
        }
        F_GETFD => return state.descriptor,
        F_SETFD => state.descriptor = argument,
        _ => return minus_one(Errno::ENOTSUP),
    }
    0
}
