//! Extended queue pairs: a program makes work requests piece by piece, with `ibv_wr_*`. From
//! `wr_start` to `wr_complete` or `wr_abort` the send queue is locked.
//!
//! An operation is written into the ring at once, and behind it where a datagram goes and what it
//! carries. One that names where it goes otherwise, of XRC or of another provider, waits until all
//! its pieces are there, which may come in any order; a whole packet waits for its bytes.
//!
//! # Safety
//!
//! C's contract: the functions are called between `wr_start` and its end, by that thread.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};

use uverbs_core::Errno;
use uverbs_core::provider::AhOps;
use uverbs_core::queues::placement::{FlushLevel, PlaceOp, PlacementTypes};
use uverbs_core::queues::work::{Data, DcDestination, PostError, Rekey, Remote, SendOp, Sge, Wr};

use crate::ah::Ah;
use crate::mw;
use crate::post::{checksums, flags, memory, pieces};
use crate::qp::{DRIVER, Qp, RAW_PACKET, UD, XRC_SEND};
use crate::send::{Build, Kept, Peer, Sends, Side, Target, To};
use crate::sys::{ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_sge};

/// Kinds of queue pairs: whose sends go to the one peer; datagrams that are written piece by piece;
/// other sends that name where they go; whole packets.
const CONNECTED: u8 = 0;
const DATAGRAMS: u8 = 1;
const DIRECTED: u8 = 2;
const PACKETS: u8 = 3;

/// Whether a work request is written when all its pieces are there.
const fn waits(kind: u8) -> bool {
    matches!(kind, DIRECTED | PACKETS)
}

/// C's struct with the functions for queue pairs of this provider and of this type.
pub(crate) fn functions<S: Sends>(qp_base: ibv_qp) -> ibv_qp_ex {
    match qp_base.qp_type {
        UD if S::DATAGRAMS => table::<S, DATAGRAMS>(qp_base),
        UD | XRC_SEND | DRIVER => table::<S, DIRECTED>(qp_base),
        RAW_PACKET => table::<S, PACKETS>(qp_base),
        _ => table::<S, CONNECTED>(qp_base),
    }
}

fn table<S: Sends, const TO: u8>(qp_base: ibv_qp) -> ibv_qp_ex {
    ibv_qp_ex {
        qp_base,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: Some(compare_swap::<S, TO>),
        wr_atomic_fetch_add: Some(fetch_add::<S, TO>),
        wr_bind_mw: Some(bind_mw::<S>),
        wr_local_inv: Some(local_inv::<S>),
        wr_rdma_read: Some(read::<S, TO>),
        wr_rdma_write: Some(write::<S, TO>),
        wr_rdma_write_imm: Some(write_imm::<S, TO>),
        wr_send: Some(send::<S, TO>),
        wr_send_imm: Some(send_imm::<S, TO>),
        wr_send_inv: Some(send_inv::<S, TO>),
        wr_send_tso: None,
        wr_set_ud_addr: Some(set_ud_addr::<S, TO>),
        wr_set_xrc_srqn: Some(set_xrc_srqn::<S>),
        wr_set_inline_data: Some(set_inline_data::<S, TO>),
        wr_set_inline_data_list: Some(set_inline_data_list::<S, TO>),
        wr_set_sge: Some(set_sge::<S, TO>),
        wr_set_sge_list: Some(set_sge_list::<S, TO>),
        wr_start: Some(start::<S, TO>),
        wr_complete: Some(complete::<S>),
        wr_abort: Some(abort::<S>),
        wr_atomic_write: Some(atomic_write::<S>),
        wr_flush: Some(flush::<S>),
    }
}

/// C's struct without functions: of a queue pair that takes no sends.
pub(crate) fn none(qp_base: ibv_qp) -> ibv_qp_ex {
    ibv_qp_ex {
        qp_base,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: None,
        wr_atomic_fetch_add: None,
        wr_bind_mw: None,
        wr_local_inv: None,
        wr_rdma_read: None,
        wr_rdma_write: None,
        wr_rdma_write_imm: None,
        wr_send: None,
        wr_send_imm: None,
        wr_send_inv: None,
        wr_send_tso: None,
        wr_set_ud_addr: None,
        wr_set_xrc_srqn: None,
        wr_set_inline_data: None,
        wr_set_inline_data_list: None,
        wr_set_sge: None,
        wr_set_sge_list: None,
        wr_start: None,
        wr_complete: None,
        wr_abort: None,
        wr_atomic_write: None,
        wr_flush: None,
    }
}

/// The queue pair, and what this thread builds.
///
/// # Safety
///
/// C's contract: its thread has the lock. The queue pair is of this provider.
#[inline(always)]
unsafe fn of<'a, S: Sends>(qp: *const ibv_qp_ex) -> (&'a Qp, &'a mut Side<S>) {
    // SAFETY: C's contract.
    let qp = unsafe { Qp::of(qp.cast()) };
    // SAFETY: as above; `functions` was asked for by the queue's own provider.
    let side = unsafe { S::side(qp.send().held()).unwrap_unchecked() };
    (qp, side)
}

unsafe extern "C" fn start<S: Sends, const TO: u8>(qp: *const ibv_qp_ex) {
    // SAFETY: C's contract.
    unsafe { Qp::of(qp.cast()) }.send().lock().keep();
    // SAFETY: locked just now.
    let (_, Side { sq, build }) = unsafe { of::<S>(qp) };
    build.at = Some(sq.start());
    (build.failed, build.begun) = (None, None);
    if waits(TO) {
        build.forget();
    }
}

unsafe extern "C" fn complete<S: Sends>(qp: *const ibv_qp_ex) -> c_int {
    // SAFETY: C's contract.
    let (qp, Side { sq, build }) = unsafe { of::<S>(qp) };
    let code = if let Some(at) = &build.at {
        // SAFETY: of this queue's last `start`; a queue pair that is posted to isn't destroyed.
        unsafe { sq.finish(at) };
        build.at = None;
        sq.refused().map_or(0, Errno::raw)
    } else {
        build.failed.map_or(0, Errno::raw)
    };
    qp.send().release();
    code
}

unsafe extern "C" fn abort<S: Sends>(qp: *const ibv_qp_ex) {
    // SAFETY: C's contract.
    let (qp, side) = unsafe { of::<S>(qp) };
    (side.build.at, side.build.begun) = (None, None);
    // SAFETY: as above; the lock is still held.
    unsafe { qp.forget_layout() };
    qp.send().release();
}

/// Begins an operation.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn begin<S: Sends, const TO: u8>(qp: *const ibv_qp_ex, op: SendOp) {
    // SAFETY: C's contract; the program wrote the two members before.
    let ((of, side), id, c_flags) = unsafe { (of::<S>(qp), (*qp).wr_id, (*qp).wr_flags) };
    let Side { sq, build } = side;
    let wr = Wr { id, flags: flags(c_flags | of.signal()) };
    if waits(TO) {
        build.forget();
        build.waits = Some((wr, op));
        if TO == PACKETS {
            build.to = Some(To::Wire(checksums(c_flags)));
        }
        return;
    }
    if TO == DATAGRAMS {
        build.addressed = false;
        if build.kept.is_some() {
            build.drop_kept();
        }
    }
    let Some(at) = &mut build.at else { return };
    // SAFETY: C's contract; the place is of this queue's last `start`.
    let opened = unsafe {
        match TO {
            DATAGRAMS => sq.open_to(at, wr, op, &mut build.begun),
            _ => sq.open(at, wr, op, &mut build.begun),
        }
    };
    if let Err(error) = opened {
        build.fail(error);
    }
}

/// Gives an operation what it carries, and so ends it, unless it is a datagram that doesn't know
/// yet where it goes.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn set<S: Sends, const TO: u8>(qp: *const ibv_qp_ex, data: Data<'_>) {
    // SAFETY: C's contract.
    let (_, side) = unsafe { of::<S>(qp) };
    if waits(TO) {
        // SAFETY: as above.
        return unsafe { post_waiting(side, data) };
    }
    let Side { sq, build } = side;
    // By reference: what was just stored in parts isn't loaded as a whole.
    let Some(begun) = &build.begun else { return };
    if TO == DATAGRAMS && !build.addressed {
        return build.keep(data);
    }
    // SAFETY: what is begun is begun at a place, and goes with it.
    let at = unsafe { build.at.as_mut().unwrap_unchecked() };
    // SAFETY: C's contract; the place is as `open` left it.
    let closed = unsafe {
        match TO {
            DATAGRAMS => sq.close_to(at, begun, data),
            _ => sq.close(at, begun, data),
        }
    };
    match closed {
        Ok(()) => build.begun = None,
        Err(error) => build.fail(error),
    }
}

unsafe extern "C" fn compare_swap<S: Sends, const TO: u8>(
    q: *const ibv_qp_ex,
    rkey: u32,
    addr: u64,
    compare: u64,
    swap: u64,
) {
    let op = SendOp::CompareSwap { remote: Remote { addr, rkey }, compare, swap };
    // SAFETY: C's contract.
    unsafe { begin::<S, TO>(q, op) }
}

unsafe extern "C" fn fetch_add<S: Sends, const TO: u8>(
    q: *const ibv_qp_ex,
    rkey: u32,
    addr: u64,
    add: u64,
) {
    // SAFETY: C's contract.
    unsafe { begin::<S, TO>(q, SendOp::FetchAdd { remote: Remote { addr, rkey }, add }) }
}

unsafe extern "C" fn read<S: Sends, const TO: u8>(q: *const ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: C's contract.
    unsafe { begin::<S, TO>(q, SendOp::Read(Remote { addr, rkey })) }
}

unsafe extern "C" fn write<S: Sends, const TO: u8>(q: *const ibv_qp_ex, rkey: u32, addr: u64) {
    // SAFETY: C's contract.
    unsafe { begin::<S, TO>(q, SendOp::Write(Remote { addr, rkey })) }
}

unsafe extern "C" fn write_imm<S: Sends, const TO: u8>(
    q: *const ibv_qp_ex,
    rkey: u32,
    addr: u64,
    imm: u32,
) {
    let op = SendOp::WriteImm(Remote { addr, rkey }, u32::from_be(imm));
    // SAFETY: C's contract.
    unsafe { begin::<S, TO>(q, op) }
}

unsafe extern "C" fn send<S: Sends, const TO: u8>(q: *const ibv_qp_ex) {
    // SAFETY: C's contract.
    unsafe { begin::<S, TO>(q, SendOp::Send) }
}

unsafe extern "C" fn send_imm<S: Sends, const TO: u8>(q: *const ibv_qp_ex, imm: u32) {
    // SAFETY: C's contract.
    unsafe { begin::<S, TO>(q, SendOp::SendImm(u32::from_be(imm))) }
}

unsafe extern "C" fn send_inv<S: Sends, const TO: u8>(q: *const ibv_qp_ex, key: u32) {
    // SAFETY: C's contract.
    unsafe { begin::<S, TO>(q, SendOp::SendInvalidate(key)) }
}

/// Changes a key; there is nothing to be set behind it.
///
/// # Safety
///
/// C's contract.
unsafe fn rekey<S: Sends>(qp: *const ibv_qp_ex, op: &Rekey) {
    // SAFETY: C's contract; the program wrote the two members before.
    let ((of, side), id, c_flags) = unsafe { (of::<S>(qp), (*qp).wr_id, (*qp).wr_flags) };
    side.build.begun = None;
    let wr = Wr { id, flags: flags(c_flags | of.signal()) };
    // SAFETY: C's contract; the cursor is of this queue's last `start`.
    side.post(|sq, at| unsafe { sq.rekey(at, wr, op) }.map(drop));
}

unsafe extern "C" fn bind_mw<S: Sends>(
    q: *const ibv_qp_ex,
    window: *const ibv_mw,
    rkey: u32,
    info: *const ibv_mw_bind_info,
) {
    // SAFETY: C's contract.
    unsafe { rekey::<S>(q, &mw::bind(window, rkey, &*info)) }
}

unsafe extern "C" fn local_inv<S: Sends>(q: *const ibv_qp_ex, key: u32) {
    // SAFETY: C's contract.
    unsafe { rekey::<S>(q, &Rekey::Invalidate { key }) }
}

/// FLUSH or ATOMIC WRITE; there is nothing to be set behind it.
///
/// # Safety
///
/// C's contract.
unsafe fn place<S: Sends>(qp: *const ibv_qp_ex, op: Result<PlaceOp, PostError>) {
    // SAFETY: C's contract; the program wrote the two members before.
    let ((of, side), id, c_flags) = unsafe { (of::<S>(qp), (*qp).wr_id, (*qp).wr_flags) };
    side.build.begun = None;
    let wr = Wr { id, flags: flags(c_flags | of.signal()) };
    // SAFETY: C's contract; the cursor is of this queue's last `start`.
    side.post(|sq, at| op.and_then(|op| unsafe { sq.place(at, wr, &op) }).map(drop));
}

unsafe extern "C" fn atomic_write<S: Sends>(
    q: *const ibv_qp_ex,
    rkey: u32,
    addr: u64,
    data: *const c_void,
) {
    // SAFETY: C's contract: eight bytes.
    let data = unsafe { data.cast::<[u8; 8]>().read_unaligned() };
    // SAFETY: C's contract.
    unsafe { place::<S>(q, Ok(PlaceOp::AtomicWrite { remote: Remote { addr, rkey }, data })) }
}

unsafe extern "C" fn flush<S: Sends>(
    q: *const ibv_qp_ex,
    rkey: u32,
    addr: u64,
    len: usize,
    types: u8,
    level: u8,
) {
    let op = || {
        let types = PlacementTypes::from_bits(types).ok_or(PostError::BadData)?;
        let level = match level {
            0 => FlushLevel::Range,
            1 => FlushLevel::Region,
            _ => return Err(PostError::BadData),
        };
        let len = u32::try_from(len).map_err(|_| PostError::MessageTooLong)?;
        Ok(PlaceOp::Flush { remote: Remote { addr, rkey }, len, types, level })
    };
    // SAFETY: C's contract.
    unsafe { place::<S>(q, op()) }
}

unsafe extern "C" fn set_sge<S: Sends, const TO: u8>(
    q: *const ibv_qp_ex,
    lkey: u32,
    addr: u64,
    len: u32,
) {
    // SAFETY: C's contract.
    unsafe { set::<S, TO>(q, Data::One(Sge { addr, len, lkey })) }
}

unsafe extern "C" fn set_sge_list<S: Sends, const TO: u8>(
    q: *const ibv_qp_ex,
    count: usize,
    list: *const ibv_sge,
) {
    // SAFETY: C's contract.
    unsafe { set::<S, TO>(q, Data::List(pieces(list, count as c_int))) }
}

unsafe extern "C" fn set_inline_data<S: Sends, const TO: u8>(
    q: *const ibv_qp_ex,
    addr: *const c_void,
    len: usize,
) {
    // SAFETY: C's contract.
    unsafe { set::<S, TO>(q, Data::Inline(memory(addr.cast(), len))) }
}

unsafe extern "C" fn set_inline_data_list<S: Sends, const TO: u8>(
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
    unsafe { set::<S, TO>(q, Data::InlineList(&all)) }
}

unsafe extern "C" fn set_ud_addr<S: Sends, const TO: u8>(
    q: *const ibv_qp_ex,
    ah: *const ibv_ah,
    qpn: u32,
    qkey: u32,
) {
    if TO != DATAGRAMS {
        // SAFETY: C's contract.
        return unsafe { direct::<S>(q, To::Datagram(Peer { ah, qpn, qkey })) };
    }
    // SAFETY: as above.
    let (_, Side { sq, build }) = unsafe { of::<S>(q) };
    if build.begun.is_none() {
        return;
    }
    // SAFETY: as above: a handle of the queue pair's domain.
    let Some(ah) = S::own_ah(unsafe { Ah::of(ah) }.any()) else {
        return build.fail(PostError::ForeignAddress);
    };
    // SAFETY: what is begun is begun at a place.
    let at = unsafe { build.at.as_ref().unwrap_unchecked() };
    // SAFETY: C's contract; the place is as `open_to` left it.
    unsafe { sq.address(at, ah.to(qpn, qkey)) };
    build.addressed = true;
    if build.kept.is_some() {
        // SAFETY: C's contract.
        unsafe { close_kept::<S>(q) };
    }
}

/// Ends a datagram that waited for where it goes.
///
/// # Safety
///
/// C's contract.
#[cold]
#[inline(never)]
unsafe fn close_kept<S: Sends>(q: *const ibv_qp_ex) {
    // SAFETY: C's contract.
    let (_, Side { build, .. }) = unsafe { of::<S>(q) };
    match build.kept.take() {
        // SAFETY: as above.
        Some(Kept::Pieces(list)) => unsafe { set::<S, DATAGRAMS>(q, Data::List(&list)) },
        // SAFETY: as above.
        Some(Kept::Bytes(bytes)) => unsafe { set::<S, DATAGRAMS>(q, Data::Inline(&bytes)) },
        None => {}
    }
}

unsafe extern "C" fn set_xrc_srqn<S: Sends>(q: *const ibv_qp_ex, srqn: u32) {
    // SAFETY: C's contract.
    unsafe { direct::<S>(q, To::Srq(srqn)) }
}

/// Says where a send goes, and posts it if what it carries is there.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
pub(crate) unsafe fn direct<S: Sends>(q: *const ibv_qp_ex, to: To) {
    // SAFETY: C's contract.
    let (_, side) = unsafe { of::<S>(q) };
    // Written here, where its parts are in registers.
    side.build.to = Some(to);
    if side.build.kept.is_some() {
        // SAFETY: as above.
        unsafe { post_kept(side) };
    }
}

/// Posts a send that waited for where it goes.
///
/// # Safety
///
/// C's contract.
#[cold]
#[inline(never)]
unsafe fn post_kept<S: Sends>(side: &mut Side<S>) {
    match side.build.kept.take() {
        // SAFETY: C's contract.
        Some(Kept::Pieces(list)) => unsafe { post_waiting(side, Data::List(&list)) },
        // SAFETY: as above.
        Some(Kept::Bytes(bytes)) => unsafe { post_waiting(side, Data::Inline(&bytes)) },
        None => {}
    }
}

impl<S: Sends> Build<S> {
    /// Forgets the pieces of a send.
    #[inline(always)]
    fn forget(&mut self) {
        (self.waits, self.to) = (None, None);
        if self.kept.is_some() {
            self.drop_kept();
        }
    }

    #[cold]
    #[inline(never)]
    fn drop_kept(&mut self) {
        self.kept = None;
    }

    /// Keeps what a send carries until it is known where it goes.
    #[cold]
    fn keep(&mut self, data: Data<'_>) {
        self.kept = Some(match data {
            Data::One(one) => Kept::Pieces(vec![one]),
            Data::List(list) => Kept::Pieces(list.to_vec()),
            Data::Inline(bytes) => Kept::Bytes(bytes.to_vec()),
            Data::InlineList(list) => Kept::Bytes(list.concat()),
        });
    }
}

/// Posts the send that waits, unless it doesn't know yet where it goes.
///
/// # Safety
///
/// C's contract.
#[inline(never)]
unsafe fn post_waiting<S: Sends>(side: &mut Side<S>, data: Data<'_>) {
    let Some((wr, op)) = side.build.waits else { return };
    let Some(to) = side.build.to else { return side.build.keep(data) };
    side.build.waits = None;
    // SAFETY: C's contract; the cursor is of this queue's last `start`.
    side.post(|sq, at| unsafe {
        match to {
            To::Datagram(to) => post_to(sq, at, wr, op, &to, data),
            To::Srq(srqn) => sq.post_xrc(at, wr, op, srqn, data).map(drop),
            To::Target(to) => post_dc(sq, at, wr, op, &to, data),
            To::Wire(checksums) if op == SendOp::Send => {
                sq.post_packet(at, wr, checksums, data).map(drop)
            }
            To::Wire(_) => Err(PostError::BadOperation),
        }
    });
}

/// Posts a datagram.
///
/// # Safety
///
/// C's contract; the cursor is of this queue's last `begin`.
#[inline(always)]
unsafe fn post_to<S: Sends>(
    sq: &mut S,
    at: &mut S::Cursor,
    wr: Wr,
    op: SendOp,
    &Peer { ah, qpn, qkey }: &Peer,
    data: Data<'_>,
) -> Result<(), PostError> {
    // SAFETY: C's contract: a handle of the queue pair's domain.
    let ah = S::own_ah(unsafe { Ah::of(ah) }.any()).ok_or(PostError::ForeignAddress)?;
    // SAFETY: the caller's promise.
    unsafe { sq.post_to(at, wr, op, ah.to(qpn, qkey), data) }.map(drop)
}

/// Posts to a target of dynamic connections.
///
/// # Safety
///
/// As for [`post_to`].
unsafe fn post_dc<S: Sends>(
    sq: &mut S,
    at: &mut S::Cursor,
    wr: Wr,
    op: SendOp,
    &Target { ah, dctn, key, stream }: &Target,
    data: Data<'_>,
) -> Result<(), PostError> {
    // SAFETY: C's contract: a handle of the queue pair's domain.
    let ah = S::own_ah(unsafe { Ah::of(ah) }.any()).ok_or(PostError::ForeignAddress)?;
    // SAFETY: the caller's promise.
    unsafe { sq.post_dc(at, wr, op, DcDestination { ah, dctn, key, stream }, data) }.map(drop)
}
