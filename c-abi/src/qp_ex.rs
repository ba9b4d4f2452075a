//! Extended queue pairs: a program makes work requests piece by piece, with `ibv_wr_*`. From
//! `wr_start` to `wr_complete` or `wr_abort` the send queue is locked.
//!
//! An operation waits until all its pieces are there: what it carries, and of a datagram where it
//! goes. It is posted with the last piece.
//!
//! # Safety
//!
//! C's contract: the functions are called between `wr_start` and its end, by that thread.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};

use uverbs::SendOpSet;
use uverbs::provider::{AnySq, SendOps};
use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::queues::work::{Data, Destination, PostError, Remote, SendOp, Sge, Wr};

use crate::ah::Ah;
use crate::answer::given;
use crate::post::{errno, flags, memory, pieces};
use crate::qp::{self, Extension, Qp, Send};
use crate::sys::{
    ibv_ah, ibv_context, ibv_data_buf, ibv_qp, ibv_qp_ex, ibv_qp_init_attr, ibv_qp_init_attr_ex,
    ibv_sge,
};

/// What stands between `wr_start` and its end.
#[derive(Default)]
pub(crate) struct Build {
    at: Option<<AnySq as SendOps>::Cursor>,
    /// The first error; nothing is posted from there on.
    failed: Option<Errno>,
    /// The operation that waits for its pieces.
    waits: Option<(Wr, SendOp)>,
    to: Option<To>,
    /// What a datagram carries that came before where it goes.
    kept: Option<Kept>,
}

#[derive(Clone, Copy)]
struct To {
    ah: *const ibv_ah,
    qpn: u32,
    qkey: u32,
}

// SAFETY: the handle is reached by whoever holds the lock, as its program promises.
unsafe impl std::marker::Send for To {}

enum Kept {
    Pieces(Vec<Sge>),
    Bytes(Vec<u8>),
}

/// `IBV_QP_INIT_ATTR_*`.
const ATTR_PD: u32 = 1;
const ATTR_CREATE_FLAGS: u32 = 4;
const ATTR_SEND_OPS: u32 = 64;
const ATTR_KNOWN: u32 = 127;

/// `IBV_QP_EX_WITH_*`, and the set that the providers know them by.
const SEND_OPS: [(u64, SendOpSet); 4] = [
    (1 | 2, SendOpSet::WRITE),
    (4 | 8 | 1 << 9, SendOpSet::SEND),
    (1 << 4, SendOpSet::READ),
    (1 << 5 | 1 << 6, SendOpSet::ATOMIC),
];

/// The operations of a mask; `None` if there is one that isn't posted here.
fn send_ops(mask: u64) -> Option<SendOpSet> {
    let known = SEND_OPS.iter().fold(0, |all, (bits, _)| all | bits);
    let of = |all: SendOpSet, (bits, ops): &(u64, SendOpSet)| {
        if mask & bits == 0 { all } else { all | *ops }
    };
    (mask & !known == 0).then(|| SEND_OPS.iter().fold(SendOpSet::empty(), of))
}

/// # Safety
///
/// C's contract.
unsafe fn create(attr: &mut ibv_qp_init_attr_ex) -> Result<*mut ibv_qp, Error> {
    let refuse = |errno| Err(Error::kernel("create_qp", errno));
    let has = |bit| attr.comp_mask & bit != 0;
    if attr.comp_mask & !ATTR_KNOWN != 0 || !has(ATTR_PD) {
        return refuse(Errno::EINVAL);
    }
    if attr.comp_mask & !(ATTR_PD | ATTR_CREATE_FLAGS | ATTR_SEND_OPS) != 0
        || has(ATTR_CREATE_FLAGS) && attr.create_flags != 0
    {
        return refuse(Errno::EOPNOTSUPP);
    }
    let mut extension = Extension::default();
    if has(ATTR_SEND_OPS) {
        extension.send_ops = send_ops(attr.send_ops_flags);
        if extension.send_ops.is_none() {
            return refuse(Errno::EOPNOTSUPP);
        }
    }
    let mut init = ibv_qp_init_attr {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    };
    // SAFETY: C's contract.
    let qp = unsafe { qp::create(attr.pd, &mut init, &extension) }?;
    attr.cap = init.cap;
    Ok(qp)
}

pub(crate) unsafe extern "C" fn create_qp_ex(
    _: *const ibv_context,
    attr: *mut ibv_qp_init_attr_ex,
) -> *mut ibv_qp {
    // SAFETY: C's contract.
    given(unsafe { create(&mut *attr) })
}

pub(crate) unsafe extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: C's contract.
    if unsafe { Qp::of(qp) }.is_extended() { qp.cast() } else { std::ptr::null_mut() }
}

/// C's struct with its functions.
pub(crate) fn functions(qp_base: ibv_qp) -> ibv_qp_ex {
    ibv_qp_ex {
        qp_base,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: Some(compare_swap),
        wr_atomic_fetch_add: Some(fetch_add),
        wr_bind_mw: None,
        wr_local_inv: None,
        wr_rdma_read: Some(read),
        wr_rdma_write: Some(write),
        wr_rdma_write_imm: Some(write_imm),
        wr_send: Some(send),
        wr_send_imm: Some(send_imm),
        wr_send_inv: Some(send_inv),
        wr_send_tso: None,
        wr_set_ud_addr: Some(set_ud_addr),
        wr_set_xrc_srqn: None,
        wr_set_inline_data: Some(set_inline_data),
        wr_set_inline_data_list: Some(set_inline_data_list),
        wr_set_sge: Some(set_sge),
        wr_set_sge_list: Some(set_sge_list),
        wr_start: Some(start),
        wr_complete: Some(complete),
        wr_abort: Some(abort),
        wr_atomic_write: None,
        wr_flush: None,
    }
}

/// The queue pair, and what this thread builds.
///
/// # Safety
///
/// C's contract: its thread has the lock.
#[inline(always)]
unsafe fn of<'a>(qp: *const ibv_qp_ex) -> (&'a Qp, &'a mut Send) {
    // SAFETY: C's contract.
    unsafe {
        let qp = Qp::of(qp.cast());
        (qp, qp.send().held())
    }
}

unsafe extern "C" fn start(qp: *const ibv_qp_ex) {
    // SAFETY: C's contract.
    let mut send = unsafe { Qp::of(qp.cast()) }.send().lock();
    let at = send.sq.begin();
    send.build.at = Some(at);
    send.build.failed = None;
    send.build.forget();
    send.keep();
}

unsafe extern "C" fn complete(qp: *const ibv_qp_ex) -> c_int {
    // SAFETY: C's contract.
    let (qp, send) = unsafe { of(qp) };
    let mut code = send.build.failed.map_or(0, Errno::raw);
    if let Some(at) = send.build.at.take()
        && code == 0
    {
        // SAFETY: of this queue's last `begin`; a queue pair that is posted to isn't destroyed.
        unsafe { send.sq.ring(at) };
        code = send.sq.refused().map_or(0, Errno::raw);
    }
    qp.send().release();
    code
}

unsafe extern "C" fn abort(qp: *const ibv_qp_ex) {
    // SAFETY: C's contract.
    let (qp, send) = unsafe { of(qp) };
    send.build.at = None;
    qp.send().release();
}

/// Begins an operation.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn begin(qp: *const ibv_qp_ex, op: SendOp) {
    // SAFETY: C's contract; the program wrote the two members before.
    let ((of, send), id, c_flags) = unsafe { (of(qp), (*qp).wr_id, (*qp).wr_flags) };
    send.build.forget();
    send.build.waits = Some((Wr { id, flags: flags(c_flags | of.signal()) }, op));
}

unsafe extern "C" fn compare_swap(
    q: *const ibv_qp_ex,
    rkey: u32,
    addr: u64,
    compare: u64,
    swap: u64,
) {
    // SAFETY: C's contract.
    unsafe { begin(q, SendOp::CompareSwap { remote: Remote { addr, rkey }, compare, swap }) }
}

unsafe extern "C" fn fetch_add(q: *const ibv_qp_ex, rkey: u32, addr: u64, add: u64) {
    // SAFETY: C's contract.
    unsafe { begin(q, SendOp::FetchAdd { remote: Remote { addr, rkey }, add }) }
}

unsafe extern "C" fn read(q: *const ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: C's contract.
    unsafe { begin(q, SendOp::Read(Remote { addr, rkey })) }
}

unsafe extern "C" fn write(q: *const ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: C's contract.
    unsafe { begin(q, SendOp::Write(Remote { addr, rkey })) }
}

unsafe extern "C" fn write_imm(q: *const ibv_qp_ex, rkey: u32, addr: u64, imm: u32) {
    // SAFETY: C's contract.
    unsafe { begin(q, SendOp::WriteImm(Remote { addr, rkey }, u32::from_be(imm))) }
}

unsafe extern "C" fn send(q: *const ibv_qp_ex) {
    // SAFETY: C's contract.
    unsafe { begin(q, SendOp::Send) }
}

unsafe extern "C" fn send_imm(q: *const ibv_qp_ex, imm: u32) {
    // SAFETY: C's contract.
    unsafe { begin(q, SendOp::SendImm(u32::from_be(imm))) }
}

unsafe extern "C" fn send_inv(q: *const ibv_qp_ex, key: u32) {
    // SAFETY: C's contract.
    unsafe { begin(q, SendOp::SendInvalidate(key)) }
}

unsafe extern "C" fn set_ud_addr(q: *const ibv_qp_ex, ah: *const ibv_ah, qpn: u32, qkey: u32) {
    // SAFETY: C's contract.
    let (qp, send) = unsafe { of(q) };
    send.build.to = Some(To { ah, qpn, qkey });
    match send.build.kept.take() {
        // SAFETY: C's contract.
        Some(Kept::Pieces(list)) => unsafe { post(qp, send, Data::List(&list)) },
        // SAFETY: as above.
        Some(Kept::Bytes(bytes)) => unsafe { post(qp, send, Data::Inline(&bytes)) },
        None => {}
    }
}

unsafe extern "C" fn set_sge(q: *const ibv_qp_ex, lkey: u32, addr: u64, len: u32) {
    // SAFETY: C's contract.
    unsafe {
        let (qp, send) = of(q);
        post(qp, send, Data::One(Sge { addr, len, lkey }));
    }
}

unsafe extern "C" fn set_sge_list(q: *const ibv_qp_ex, count: usize, list: *const ibv_sge) {
    // SAFETY: C's contract.
    unsafe {
        let (qp, send) = of(q);
        post(qp, send, Data::List(pieces(list, count as c_int)));
    }
}

unsafe extern "C" fn set_inline_data(q: *const ibv_qp_ex, addr: *const c_void, len: usize) {
    // SAFETY: C's contract.
    unsafe {
        let (qp, send) = of(q);
        post(qp, send, Data::Inline(memory(addr.cast(), len)));
    }
}

unsafe extern "C" fn set_inline_data_list(
    q: *const ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    let mut all = Vec::with_capacity(count);
    for at in 0..count {
        // SAFETY: C's contract.
        let piece = unsafe { *list.add(at) };
        // SAFETY: as above.
        all.push(unsafe { memory(piece.addr.cast(), piece.length) });
    }
    // SAFETY: as above.
    unsafe {
        let (qp, send) = of(q);
        post(qp, send, Data::InlineList(&all));
    }
}

impl Build {
    /// Forgets the pieces of an operation.
    #[inline(always)]
    fn forget(&mut self) {
        (self.waits, self.to) = (None, None);
        if self.kept.is_some() {
            self.kept = None;
        }
    }

    /// Keeps what a datagram carries until it is known where it goes.
    #[cold]
    fn keep(&mut self, data: Data<'_>) {
        self.kept = Some(match data {
            Data::One(one) => Kept::Pieces(vec![one]),
            Data::List(list) => Kept::Pieces(list.to_vec()),
            Data::Inline(bytes) => Kept::Bytes(bytes.to_vec()),
            Data::InlineList(list) => Kept::Bytes(list.concat()),
        });
    }

    #[cold]
    fn fail(&mut self, error: PostError) {
        self.failed = Some(Errno::from_raw(errno(error)));
    }
}

/// Posts the operation that waits, unless it is a datagram that doesn't know yet where it goes.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn post(qp: &Qp, send: &mut Send, data: Data<'_>) {
    let Send { sq, build } = send;
    let (Some(at), Some((wr, op)), None) = (build.at.as_mut(), build.waits, build.failed) else {
        return;
    };
    let posted = if !qp.is_datagram() {
        // SAFETY: C's contract; the cursor is of this queue's last `begin`.
        unsafe { sq.post(at, wr, op, data) }
    } else if let Some(to) = build.to {
        // SAFETY: C's contract: a handle of the queue pair's domain.
        unsafe {
            let to = Destination { ah: Ah::of(to.ah).any(), qpn: to.qpn, qkey: to.qkey };
            sq.post_to(at, wr, op, to, data)
        }
    } else {
        return build.keep(data);
    };
    build.waits = None;
    if let Err(error) = posted {
        build.fail(error);
    }
}
