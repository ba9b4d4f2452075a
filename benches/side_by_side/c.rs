//! The C half: `shim.c`, loaded where the C stack is.
//!
//! # Safety
//!
//! The shim's functions have the signatures given here, and are called with a side that it made and
//! that is never freed. Its completion queue's ring is written by the harness between polls.
#![allow(unsafe_code, reason = "calls C by address")]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

use crate::abi::OURS;
use crate::device::{CqRing, Event, SrqRing};

type Loop = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

#[repr(C)]
#[derive(Debug, Clone, Copy)]
struct Parts {
    cq_buf: *mut u8,
    cq_entries: u32,
    cqe_size: u32,
    sq_units: u32,
    rq_entries: u32,
    srq_buf: *mut u8,
    srq_stride: u32,
    srq_head: u32,
}

/// Object of a side in addition to RC queue pairs and their completion queue; `enum special` of the
/// shim.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Plain,
    /// A queue pair of UD in the other's place.
    Datagrams,
    /// A shared receive queue.
    Shared,
    /// A completion channel.
    Channel,
}

/// Returns `true` if the C stack here is our library.
pub(crate) fn is_ours() -> bool {
    std::env::var_os(OURS).is_some()
}

/// The loaded shim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shim {
    library: *mut c_void,
}

impl Shim {
    pub(crate) fn load(path: &Path) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_encoded_bytes()).map_err(|e| e.to_string())?;
        // SAFETY: a C string; the C stack's library may run its constructors.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            // SAFETY: says why the last call failed; null or a C string.
            let why = unsafe { libc::dlerror() };
            return Err(text(why));
        }
        Ok(Self { library })
    }

    fn symbol(self, name: &str) -> *mut c_void {
        let name = CString::new(name).expect("no NUL in a name");
        // SAFETY: an open library and a C string.
        let symbol = unsafe { libc::dlsym(self.library, name.as_ptr()) };
        assert!(!symbol.is_null(), "the shim has no {name:?}");
        symbol
    }

    fn function(self, name: &str) -> Loop {
        // SAFETY: all functions asked for by this have this signature in `shim.c`.
        unsafe { std::mem::transmute::<*mut c_void, Loop>(self.symbol(name)) }
    }
}

fn text(text: *const c_char) -> String {
    if text.is_null() {
        return "unknown".to_owned();
    }
    // SAFETY: not null, so a C string.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// User index of a context's queue pair in completions: counted from 0, and with libmlx5 the
/// last place of each table of 4096 stays empty (rdma-core `mlx5.c:mlx5_store_uidx`).
fn user_index(at: u32, ours: bool) -> u32 {
    if ours { at } else { at / 4095 * 4096 + at % 4095 }
}

/// Queue pairs with one completion queue.
#[derive(Debug)]
pub(crate) struct Side {
    shim: Shim,
    side: *mut c_void,
    qpns: Vec<u32>,
    pub(crate) units: u32,
    ring: CqRing,
    shared: SrqRing,
    pi: Vec<u32>,
    drain: Loop,
    /// The loops run on our library.
    ours: bool,
}

impl Side {
    pub(crate) fn new(
        shim: Shim,
        extended: bool,
        special: Special,
        qps: u32,
        depth: u32,
        cqes: u32,
    ) -> Result<Self, String> {
        type New = unsafe extern "C" fn(c_int, Special, c_int, c_int, c_int) -> *mut c_void;
        type GetParts = unsafe extern "C" fn(*mut c_void, *mut Parts) -> c_int;
        type GetQpn = unsafe extern "C" fn(*mut c_void, c_int) -> u32;
        // SAFETY: its signature in `shim.c`.
        let new = unsafe { std::mem::transmute::<*mut c_void, New>(shim.symbol("sbs_side")) };
        // SAFETY: its signature in `shim.c`.
        let get = unsafe { std::mem::transmute::<*mut c_void, GetParts>(shim.symbol("sbs_parts")) };
        // SAFETY: its signature in `shim.c`.
        let qpn = unsafe { std::mem::transmute::<*mut c_void, GetQpn>(shim.symbol("sbs_qpn")) };
        // SAFETY: numbers only.
        let side = unsafe {
            new(extended.into(), special, qps as c_int, depth as c_int, cqes as c_int - 1)
        };
        if side.is_null() {
            return Err(std::io::Error::last_os_error().to_string());
        }
        let mut parts = Parts {
            cq_buf: std::ptr::null_mut(),
            cq_entries: 0,
            cqe_size: 0,
            sq_units: 0,
            rq_entries: 0,
            srq_buf: std::ptr::null_mut(),
            srq_stride: 0,
            srq_head: 0,
        };
        // SAFETY: a side, and a struct of the same layout.
        if unsafe { get(side, &mut parts) } != 0 {
            return Err("mlx5dv_init_obj".to_owned());
        }
        let qpns = (0..qps as c_int)
            .map(|at| {
                // SAFETY: a side, and an index below its queue pairs.
                unsafe { qpn(side, at) }
            })
            .collect();
        Ok(Self {
            shim,
            side,
            qpns,
            units: parts.sq_units,
            ring: CqRing::new(parts.cq_buf, parts.cq_entries, parts.cqe_size as usize),
            shared: SrqRing::new(parts.srq_buf, parts.srq_stride as usize, parts.srq_head),
            pi: vec![0; qps as usize],
            drain: if extended {
                shim.function("sbs_poll_ex_64")
            } else {
                shim.function("sbs_poll_64")
            },
            ours: is_ours(),
        })
    }

    pub(crate) fn ring(&self) -> &CqRing {
        &self.ring
    }

    /// A loop of the shim, for [`Side::run`].
    pub(crate) fn prepare(&self, name: &str) -> Loop {
        self.shim.function(name)
    }

    /// Runs it.
    #[inline(always)]
    pub(crate) fn run(&mut self, function: Loop, count: usize) -> c_int {
        // SAFETY: a side of the shim that `function` is of.
        unsafe { function(self.side, count as c_int) }
    }

    fn complete(&mut self, qp: usize, event: Event) {
        self.ring.complete(user_index(qp as u32, self.ours), self.qpns[qp], event);
    }

    fn drain(&mut self) -> usize {
        let mut seen = 0;
        loop {
            let got = self.run(self.drain, 1);
            assert!(got >= 0, "a completion of the C stack failed");
            if got == 0 {
                return seen;
            }
            seen += got as usize;
        }
    }

    pub(crate) fn retire_sends(&mut self, posts: u32, units: u32) {
        self.pi[0] = self.pi[0].wrapping_add(posts * units);
        let last = self.pi[0].wrapping_sub(units);
        self.complete(0, Event::Send(last));
        assert_eq!(self.drain(), 1);
    }

    pub(crate) fn retire_recvs(&mut self, posts: u32) {
        for _ in 0..posts {
            self.complete(0, Event::Recv);
        }
        assert_eq!(self.drain(), posts as usize);
    }

    pub(crate) fn retire_shared_recvs(&mut self, posts: u32) {
        for _ in 0..posts {
            let index = self.shared.take();
            self.complete(0, Event::SharedRecv(index));
        }
        assert_eq!(self.drain(), posts as usize);
    }

    pub(crate) fn fill_sends(&mut self, count: u32) {
        type Fill = unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int;
        // SAFETY: its signature in `shim.c`.
        let fill =
            unsafe { std::mem::transmute::<*mut c_void, Fill>(self.shim.symbol("sbs_fill_sends")) };
        let qps = self.qpns.len() as u32;
        let mut left = count;
        while left > 0 {
            let now = if qps == 1 { left } else { left.min(qps) };
            // SAFETY: a side, and as many queue pairs at most as it has.
            let result = unsafe { fill(self.side, 0, now as c_int) };
            assert_eq!(result, 0, "post_send");
            left -= now;
        }
        for at in 0..count as usize {
            let at = at % qps as usize;
            let index = self.pi[at];
            self.pi[at] = index.wrapping_add(1);
            self.complete(at, Event::Send(index));
        }
    }

    pub(crate) fn fill_recvs(&mut self, count: u32) {
        let fill = self.shim.function("sbs_fill_recvs");
        assert_eq!(self.run(fill, count as usize), 0, "post_recv");
        for _ in 0..count {
            self.complete(0, Event::Recv);
        }
    }
}
