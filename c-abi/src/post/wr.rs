//! `ibv_wr_*` of extended queue pairs: a program builds each work request by several calls. From
//! `wr_start` to `wr_complete` or `wr_abort` the send queue is locked.
//!
//! A call writes the operation into the ring at once; later calls add the UD address and the data.
//! Sends of XRC, of dynamic connections, of raw packets, and of providers that do not write in
//! place are written when complete. Address and data may come in either order.
//!
//! Functions called once per work request save no registers: their slow paths are tail calls.
//!
//! # Safety
//!
//! By C's contract (crate root), the functions are called between `wr_start` and `wr_complete` or
//! `wr_abort`, by one thread.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};

use uverbs_core::Errno;
use uverbs_core::provider::AhOps;
use uverbs_core::queues::placement::{FlushLevel, PlaceOp, PlacementTypes};
use uverbs_core::queues::work::{Data, PostError, Rekey, Remote, SendOp, Sge, Wr};

use crate::memory::mw;
use crate::post::pending::{direct, post_waiting};
use crate::post::request::{checksums, flags, key_opcode, memory, pieces, with_list};
use crate::post::send::{Build, Datagram, Kept, SendSide, Sends, Side, To};
use crate::queues::ah::Ah;
use crate::queues::qp::{DRIVER, Qp, RAW_PACKET, UD, XRC_SEND};
use crate::sys::{ibv_ah, ibv_data_buf, ibv_mw, ibv_mw_bind_info, ibv_qp, ibv_qp_ex, ibv_sge};

/// Group of queue pairs: connected, work requests written in place.
const CONNECTED: u8 = 0;
/// UD, written in place.
const DATAGRAMS: u8 = 1;
/// Connected, written when complete.
const WHOLE: u8 = 2;
/// Other sends that name a destination, written when complete.
const DIRECTED: u8 = 3;
/// Raw packets, written when complete.
const PACKETS: u8 = 4;

/// Tests for a group whose work requests are written only when complete.
const fn waits(group: u8) -> bool {
    matches!(group, WHOLE | DIRECTED | PACKETS)
}

/// `ibv_qp_ex` with the functions for a queue pair with this send queue.
pub(crate) fn functions(side: &SendSide, base: ibv_qp) -> ibv_qp_ex {
    match side {
        SendSide::Mlx5(_) => of_provider::<uverbs_mlx5::Sq>(base),
        SendSide::Rxe(_) => of_provider::<uverbs_rxe::Sq>(base),
        SendSide::Siw(_) => of_provider::<uverbs_siw::Sq>(base),
        SendSide::Rdmavt(_) => of_provider::<uverbs_rdmavt::Sq>(base),
        SendSide::Efa(_) => of_provider::<uverbs_efa::Sq>(base),
        SendSide::None => none(base),
    }
}

fn of_provider<S: Sends>(qp_base: ibv_qp) -> ibv_qp_ex {
    match qp_base.qp_type {
        UD if S::IN_PLACE => table::<S, DATAGRAMS>(qp_base),
        UD | XRC_SEND | DRIVER => table::<S, DIRECTED>(qp_base),
        RAW_PACKET => table::<S, PACKETS>(qp_base),
        _ if S::IN_PLACE => table::<S, CONNECTED>(qp_base),
        _ => table::<S, WHOLE>(qp_base),
    }
}

fn table<S: Sends, const GROUP: u8>(qp_base: ibv_qp) -> ibv_qp_ex {
    let of = qp_base.qp_type;
    ibv_qp_ex {
        qp_base,
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        wr_atomic_cmp_swp: Some(compare_swap::<S, GROUP>),
        wr_atomic_fetch_add: Some(fetch_add::<S, GROUP>),
        wr_bind_mw: Some(bind_mw::<S>),
        wr_local_inv: Some(local_inv::<S>),
        wr_rdma_read: Some(read::<S, GROUP>),
        wr_rdma_write: Some(write::<S, GROUP>),
        wr_rdma_write_imm: Some(write_imm::<S, GROUP>),
        wr_send: Some(send::<S, GROUP>),
        wr_send_imm: Some(send_imm::<S, GROUP>),
        wr_send_inv: Some(send_inv::<S, GROUP>),
        wr_send_tso: None,
        // As in C, only for its type: a WQE of another type has no room for the address.
        wr_set_ud_addr: if names_peers::<S>(of) { Some(set_ud_addr::<S, GROUP>) } else { None },
        wr_set_xrc_srqn: if of == XRC_SEND { Some(set_xrc_srqn::<S>) } else { None },
        wr_set_inline_data: Some(set_inline_data::<S, GROUP>),
        wr_set_inline_data_list: Some(set_inline_data_list::<S, GROUP>),
        wr_set_sge: Some(set_sge::<S, GROUP>),
        wr_set_sge_list: Some(set_sge_list::<S, GROUP>),
        wr_start: Some(start::<S, GROUP>),
        wr_complete: Some(complete::<S>),
        wr_abort: Some(abort::<S>),
        wr_atomic_write: Some(atomic_write::<S>),
        wr_flush: Some(flush::<S>),
    }
}

/// Tests for a type whose sends name a peer by address handle, number and Q_Key.
pub(crate) fn names_peers<S: Sends>(qp_type: u32) -> bool {
    qp_type == UD || qp_type == DRIVER && S::DRIVER_NAMES_PEERS
}

/// `ibv_qp_ex` without functions, for a queue pair without a send queue.
fn none(qp_base: ibv_qp) -> ibv_qp_ex {
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

/// Queue pair and send side.
///
/// # Safety
///
/// C's contract: this thread holds the lock. The queue pair is of this provider.
#[inline(always)]
unsafe fn of<'a, S: Sends>(qp: *const ibv_qp_ex) -> (&'a Qp, &'a mut Side<S>) {
    // SAFETY: C's contract.
    let qp = unsafe { Qp::of(qp.cast()) };
    // SAFETY: this thread holds the lock; only queue pairs of provider `S` have these functions.
    let side = unsafe { S::side(qp.send().held()).unwrap_unchecked() };
    (qp, side)
}

unsafe extern "C" fn start<S: Sends, const GROUP: u8>(q: *const ibv_qp_ex) {
    // SAFETY: C's contract.
    let lock = unsafe { Qp::of(q.cast()) }.send();
    if !waits(GROUP)
        && let Some(mut side) = lock.lock_own()
    {
        // SAFETY: only queue pairs of provider `S` have this function.
        let Side { sq, build } = unsafe { S::side(&mut side).unwrap_unchecked() };
        if (GROUP != DATAGRAMS || build.kept.is_none()) && begin_at_once::<S, GROUP>(sq, build) {
            return side.keep();
        }
    }
    // SAFETY: C's contract.
    unsafe { start_any::<S, GROUP>(q) }
}

/// `wr_start` of a queue that several threads use, or that keeps what a batch left.
#[inline(never)]
unsafe extern "C" fn start_any<S: Sends, const GROUP: u8>(q: *const ibv_qp_ex) {
    // SAFETY: C's contract.
    unsafe { Qp::of(q.cast()) }.send().lock().keep();
    // SAFETY: locked by the line above.
    let (_, Side { sq, build }) = unsafe { of::<S>(q) };
    build.forget();
    if !begin_at_once::<S, GROUP>(sq, build) {
        (build.at, build.open) = (sq.begin(), S::Open::default());
    }
}

#[inline(always)]
fn begin_at_once<S: Sends, const GROUP: u8>(sq: &mut S, build: &mut Build<S>) -> bool {
    match GROUP {
        DATAGRAMS => sq.begin_at_once::<true>(&mut build.at, &mut build.open),
        _ => sq.begin_at_once::<false>(&mut build.at, &mut build.open),
    }
}

unsafe extern "C" fn complete<S: Sends>(q: *const ibv_qp_ex) -> c_int {
    // SAFETY: C's contract.
    let (qp, Side { sq, build }) = unsafe { of::<S>(q) };
    // SAFETY: C's contract; the cursor is of this queue's last `start`. Errors and whole posts
    // replace the open work request, so that this is false.
    if !unsafe { sq.ring_at_once(&build.at, &build.open) } {
        // SAFETY: C's contract.
        return unsafe { complete_any::<S>(q) };
    }
    qp.send().release();
    0
}

/// `wr_complete` of any batch. After an error it drops all work requests since `wr_start`.
#[inline(never)]
unsafe extern "C" fn complete_any<S: Sends>(q: *const ibv_qp_ex) -> c_int {
    // SAFETY: C's contract.
    let (qp, Side { sq, build }) = unsafe { of::<S>(q) };
    if let Some(errno) = build.failed {
        // SAFETY: C's contract.
        unsafe { abort::<S>(q) };
        return errno.raw();
    }
    // SAFETY: C's contract; the cursor is of this queue's last `start`.
    unsafe { sq.ring_built(build.at) };
    let code = sq.doorbell_error().map_or(0, Errno::raw);
    qp.send().release();
    code
}

unsafe extern "C" fn abort<S: Sends>(q: *const ibv_qp_ex) {
    // SAFETY: C's contract.
    let (qp, Side { build, .. }) = unsafe { of::<S>(q) };
    build.failed = None;
    // SAFETY: this thread holds the lock.
    unsafe { qp.give_up() };
    qp.send().release();
}

/// Tests that an operation must look for room first.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn is_full<S: Sends, const GROUP: u8>(qp: *const ibv_qp_ex) -> bool {
    // SAFETY: C's contract.
    let (_, Side { build, .. }) = unsafe { of::<S>(qp) };
    !waits(GROUP) && !S::has_room(&build.at)
}

/// Begins an operation. `LOOK`: look for room first; otherwise there is room.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn begin<S: Sends, const GROUP: u8, const LOOK: bool>(qp: *const ibv_qp_ex, op: SendOp) {
    // SAFETY: C's contract; the program set both members before.
    let ((of, side), id, c_flags) = unsafe { (of::<S>(qp), (*qp).wr_id, (*qp).wr_flags) };
    let Side { sq, build } = side;
    let wr = Wr { id, flags: flags(c_flags | of.signal()) };
    if waits(GROUP) {
        build.forget();
        build.waits = Some((wr, op));
        match GROUP {
            PACKETS => build.to = Some(To::Wire(checksums(c_flags))),
            WHOLE => build.to = Some(To::Peer),
            _ => {}
        }
        return;
    }
    // SAFETY: C's contract; the cursor is of this queue's last `start`. Without `LOOK` it has room.
    let opened = unsafe {
        match GROUP {
            DATAGRAMS => sq.open::<true, LOOK>(&mut build.at, &mut build.open, wr, op),
            _ => sq.open::<false, LOOK>(&mut build.at, &mut build.open, wr, op),
        }
    };
    if let Err(error) = opened {
        build.fail(error);
    }
}

/// Defines the function of an operation. Its inner function looks for room first.
macro_rules! operation {
    ($name:ident($($argument:ident: $type:ty),*), $op:expr) => {
        unsafe extern "C" fn $name<S: Sends, const GROUP: u8>(
            q: *const ibv_qp_ex,
            $($argument: $type),*
        ) {
            #[cold]
            #[inline(never)]
            unsafe extern "C" fn look<S: Sends, const GROUP: u8>(
                q: *const ibv_qp_ex,
                $($argument: $type),*
            ) {
                // SAFETY: C's contract.
                unsafe { begin::<S, GROUP, true>(q, $op) }
            }
            // SAFETY: C's contract.
            unsafe {
                if is_full::<S, GROUP>(q) {
                    return look::<S, GROUP>(q, $($argument),*);
                }
                begin::<S, GROUP, false>(q, $op);
            }
        }
    };
}

operation!(send(), SendOp::Send);
operation!(send_imm(imm: u32), SendOp::SendImm(u32::from_be(imm)));
operation!(send_inv(key: u32), SendOp::SendInvalidate(key));
operation!(write(rkey: u32, addr: u64), SendOp::Write(Remote { addr, rkey }));
operation!(
    write_imm(rkey: u32, addr: u64, imm: u32),
    SendOp::WriteImm(Remote { addr, rkey }, u32::from_be(imm))
);
operation!(read(rkey: u32, addr: u64), SendOp::Read(Remote { addr, rkey }));
operation!(
    fetch_add(rkey: u32, addr: u64, add: u64),
    SendOp::FetchAdd { remote: Remote { addr, rkey }, add }
);
operation!(
    compare_swap(rkey: u32, addr: u64, compare: u64, swap: u64),
    SendOp::CompareSwap { remote: Remote { addr, rkey }, compare, swap }
);

/// Sets the data of an operation and ends it, if it takes the fast path. False: nothing is done.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn set_at_once<S: Sends, const GROUP: u8>(qp: *const ibv_qp_ex, data: Data<'_>) -> bool {
    // SAFETY: C's contract.
    let (_, Side { sq, build }) = unsafe { of::<S>(qp) };
    if waits(GROUP) || !S::takes_data(&build.open) {
        return false;
    }
    // SAFETY: C's contract; `open` began the operation.
    unsafe {
        match GROUP {
            DATAGRAMS => sq.close_at_once::<true>(&mut build.at, &mut build.open, data),
            _ => sq.close_at_once::<false>(&mut build.at, &mut build.open, data),
        }
    }
}

/// Sets the data of an operation and ends it. A UD send without an address keeps the data until the
/// address is set.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
unsafe fn set<S: Sends, const GROUP: u8>(qp: *const ibv_qp_ex, data: Data<'_>) {
    // SAFETY: C's contract.
    let (_, side) = unsafe { of::<S>(qp) };
    if waits(GROUP) {
        // SAFETY: C's contract.
        return unsafe { post_waiting(side, data) };
    }
    let Side { sq, build } = side;
    if !S::takes_data(&build.open) {
        if GROUP == DATAGRAMS && S::is_open(&build.open) {
            build.keep(data);
        }
        return;
    }
    // SAFETY: C's contract; `open` began the operation.
    if let Err(error) = unsafe { sq.close(&mut build.at, &mut build.open, data) } {
        build.fail(error);
    }
}

/// Posts a key operation, which takes neither destination nor data.
///
/// # Safety
///
/// C's contract.
unsafe fn rekey<S: Sends>(qp: *const ibv_qp_ex, op: &Rekey) {
    // SAFETY: C's contract; the program set both members before.
    let ((of, side), id, c_flags) = unsafe { (of::<S>(qp), (*qp).wr_id, (*qp).wr_flags) };
    let wr = Wr { id, flags: flags(c_flags | of.signal()) };
    side.post(|sq, at| {
        let index = S::index(at);
        // SAFETY: C's contract; the cursor is of this queue's last `start`.
        unsafe { sq.rekey(at, wr, op) }?;
        of.note_sent(index, key_opcode(op));
        Ok(())
    });
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

/// Posts a FLUSH or ATOMIC WRITE, which takes neither destination nor data.
///
/// # Safety
///
/// C's contract.
unsafe fn place<S: Sends>(qp: *const ibv_qp_ex, op: Result<PlaceOp, PostError>) {
    // SAFETY: C's contract; the program set both members before.
    let ((of, side), id, c_flags) = unsafe { (of::<S>(qp), (*qp).wr_id, (*qp).wr_flags) };
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

unsafe extern "C" fn set_sge<S: Sends, const GROUP: u8>(
    q: *const ibv_qp_ex,
    lkey: u32,
    addr: u64,
    len: u32,
) {
    // SAFETY: C's contract.
    unsafe {
        if !set_at_once::<S, GROUP>(q, Data::One(Sge { addr, len, lkey })) {
            set_rare_sge::<S, GROUP>(q, lkey, addr, len);
        }
    }
}

#[inline(never)]
unsafe extern "C" fn set_rare_sge<S: Sends, const GROUP: u8>(
    q: *const ibv_qp_ex,
    lkey: u32,
    addr: u64,
    len: u32,
) {
    // SAFETY: C's contract.
    unsafe { set::<S, GROUP>(q, Data::One(Sge { addr, len, lkey })) }
}

unsafe extern "C" fn set_sge_list<S: Sends, const GROUP: u8>(
    q: *const ibv_qp_ex,
    count: usize,
    list: *const ibv_sge,
) {
    // SAFETY: C's contract.
    unsafe {
        // `pieces` tests the count, too. Tested here, its empty slice costs no instructions.
        let ended = count as c_int > 0
            && list.is_aligned()
            && set_at_once::<S, GROUP>(q, Data::List(pieces(list, count as c_int)));
        if !ended {
            set_rare_list::<S, GROUP>(q, count, list);
        }
    }
}

#[inline(never)]
unsafe extern "C" fn set_rare_list<S: Sends, const GROUP: u8>(
    q: *const ibv_qp_ex,
    count: usize,
    list: *const ibv_sge,
) {
    // SAFETY: C's contract.
    unsafe { with_list(list, count as c_int, |list| set::<S, GROUP>(q, Data::List(list))) }
}

unsafe extern "C" fn set_inline_data<S: Sends, const GROUP: u8>(
    q: *const ibv_qp_ex,
    addr: *const c_void,
    len: usize,
) {
    // SAFETY: C's contract.
    unsafe {
        if !set_at_once::<S, GROUP>(q, Data::Inline(memory(addr.cast(), len))) {
            set_long_inline::<S, GROUP>(q, addr, len);
        }
    }
}

#[inline(never)]
unsafe extern "C" fn set_long_inline<S: Sends, const GROUP: u8>(
    q: *const ibv_qp_ex,
    addr: *const c_void,
    len: usize,
) {
    // SAFETY: C's contract.
    unsafe { set::<S, GROUP>(q, Data::Inline(memory(addr.cast(), len))) }
}

unsafe extern "C" fn set_inline_data_list<S: Sends, const GROUP: u8>(
    q: *const ibv_qp_ex,
    count: usize,
    list: *const ibv_data_buf,
) {
    let mut all = Vec::with_capacity(count);
    for at in 0..count {
        // SAFETY: C's contract.
        let piece = unsafe { *list.add(at) };
        // SAFETY: C's contract.
        all.push(unsafe { memory(piece.addr.cast(), piece.length) });
    }
    // SAFETY: C's contract.
    unsafe { set::<S, GROUP>(q, Data::InlineList(&all)) }
}

unsafe extern "C" fn set_ud_addr<S: Sends, const GROUP: u8>(
    q: *const ibv_qp_ex,
    ah: *const ibv_ah,
    qpn: u32,
    qkey: u32,
) {
    if GROUP != DATAGRAMS {
        // SAFETY: C's contract.
        return unsafe { direct(of::<S>(q).1, To::Datagram(Datagram { ah, qpn, qkey })) };
    }
    // SAFETY: C's contract.
    let (_, Side { sq, build }) = unsafe { of::<S>(q) };
    if !S::is_open(&build.open) {
        return;
    }
    // SAFETY: C's contract: a handle of the queue pair's domain.
    let Some(ah) = S::own_ah(unsafe { Ah::of(ah) }.any()) else {
        return build.fail(PostError::ForeignAddress);
    };
    // SAFETY: C's contract; `open` began the operation.
    unsafe { sq.address(&build.at, &mut build.open, ah.to(qpn, qkey)) };
    if build.kept.is_some() {
        // SAFETY: C's contract.
        unsafe { close_kept::<S>(q) };
    }
}

/// Ends a UD send whose data was set before its address.
///
/// # Safety
///
/// C's contract.
#[cold]
#[inline(never)]
unsafe extern "C" fn close_kept<S: Sends>(q: *const ibv_qp_ex) {
    // SAFETY: C's contract.
    let (_, Side { build, .. }) = unsafe { of::<S>(q) };
    match build.kept.take() {
        // SAFETY: C's contract.
        Some(Kept::Pieces(list)) => unsafe { set::<S, DATAGRAMS>(q, Data::List(&list)) },
        // SAFETY: C's contract.
        Some(Kept::Bytes(bytes)) => unsafe { set::<S, DATAGRAMS>(q, Data::Inline(&bytes)) },
        None => {}
    }
}

unsafe extern "C" fn set_xrc_srqn<S: Sends>(q: *const ibv_qp_ex, srqn: u32) {
    // SAFETY: C's contract.
    unsafe { direct(of::<S>(q).1, To::Srq(srqn)) }
}
