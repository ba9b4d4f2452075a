//! Layouts of mkeys, built by setters between `wr_start` and its end.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_void;
use std::slice;

use uverbs_core::Errno;
use uverbs_core::attr::AccessFlags;
use uverbs_core::provider::SendOps;
use uverbs_core::queues::layout::{Block, KeyLayout};
use uverbs_core::queues::work::Wr;

use crate::memory::mkey::{Building, Configuration, Interleaved, Mkey, Parts};
use crate::post::extended::Ex;
use crate::post::request::{copied, flags};
use crate::post::send::Side;
use crate::queues::qp::Qp;
use crate::sys::{IBV_SEND_INLINE, IBV_WC_DRIVER1, ibv_sge};

/// Access rights that an mkey may have.
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Begins a layout that `setters` calls complete.
///
/// # Safety
///
/// C's contract.
unsafe fn configure(ex: Ex, mkey: *const Mkey, setters: u8) {
    // SAFETY: C's contract.
    let Some((qp, side, building)) = (unsafe { Qp::of_extended(ex) }) else { return };
    // SAFETY: C's contract; the program set both members before.
    let (id, c_flags) = unsafe { ((*qp.c()).wr_id, (*qp.c()).wr_flags) };
    if c_flags & IBV_SEND_INLINE == 0 {
        return side.build.refuse(Errno::EOPNOTSUPP);
    }
    let wr = Wr { id, flags: flags(c_flags | qp.signal()) };
    // SAFETY: C's contract.
    let key = unsafe { ((*mkey).lkey, (*mkey).room) };
    *building = Some(Building { key, wr, left: setters, access: None, parts: None });
}

/// Applies a setter; the last one posts the layout.
///
/// # Safety
///
/// C's contract.
unsafe fn set(ex: Ex, say: impl FnOnce(&mut Building) -> Result<(), Errno>) {
    // SAFETY: C's contract.
    let Some((qp, side, waiting)) = (unsafe { Qp::of_extended(ex) }) else { return };
    let Some(building) = waiting else { return side.build.refuse(Errno::EINVAL) };
    let said = say(building);
    building.left = building.left.wrapping_sub(1);
    if said.is_ok() && building.left != 0 {
        return;
    }
    // SAFETY: C's contract.
    let done = said.and_then(|()| unsafe { post(qp, side, building) });
    *waiting = None;
    if let Err(errno) = done {
        side.build.refuse(errno);
    }
}

/// Posts a layout (UMR).
///
/// # Safety
///
/// C's contract.
unsafe fn post(
    qp: &Qp,
    side: &mut Side<uverbs_mlx5::Sq>,
    building: &Building,
) -> Result<(), Errno> {
    // C keeps the previous value of what is not set. Here both setters are required.
    let (Some(access), Some(parts)) = (building.access, &building.parts) else {
        return Err(Errno::EOPNOTSUPP);
    };
    let ((key, room), parts) = (building.key, parts.borrowed());
    if parts.entries() > room as usize {
        return Err(Errno::ENOMEM);
    }
    let op = KeyLayout { old: key, new: key, access, parts };
    side.post(|sq, at| {
        let index = at.index();
        // SAFETY: C's contract; the cursor is of this queue's last `start`.
        unsafe { sq.lay_out(at, building.wr, &op) }?;
        // MLX5DV_WC_UMR.
        qp.note_sent(Some(index), IBV_WC_DRIVER1);
        Ok(())
    });
    Ok(())
}

fn access(building: &mut Building, access: u32) -> Result<(), Errno> {
    let access = AccessFlags::from_bits_retain(access);
    if building.access.is_some() || !ACCESS.contains(access) {
        return Err(Errno::EINVAL);
    }
    building.access = Some(access);
    Ok(())
}

fn layout(building: &mut Building, parts: Result<Parts, Errno>) -> Result<(), Errno> {
    let parts = parts?;
    match building.parts.replace(parts) {
        None => Ok(()),
        Some(_) => Err(Errno::EINVAL),
    }
}

/// # Safety
///
/// C's contract.
unsafe fn list(count: u16, list: *const ibv_sge) -> Result<Parts, Errno> {
    // SAFETY: C's contract.
    Ok(Parts::List(unsafe { copied(list, count.into()) }))
}

/// Interleaved blocks. Lengths and strides have 16 bits in the WQE; larger ones fail, and C's
/// provider truncates them.
///
/// # Safety
///
/// C's contract.
unsafe fn blocks(rounds: u32, count: u16, list: *const Interleaved) -> Result<Parts, Errno> {
    let list = match count {
        0 => &[][..],
        // SAFETY: C's contract.
        _ => unsafe { slice::from_raw_parts(list, count.into()) },
    };
    let block = |given: &Interleaved| {
        let len = u16::try_from(given.bytes_count).ok()?;
        let stride = given.bytes_count.checked_add(given.bytes_skip)?;
        let stride = u16::try_from(stride).ok()?;
        Some(Block { addr: given.addr, lkey: given.lkey, len, stride })
    };
    let blocks: Option<Vec<_>> = list.iter().map(block).collect();
    blocks.map(|blocks| Parts::Interleaved(rounds, blocks)).ok_or(Errno::EINVAL)
}

pub(crate) unsafe extern "C" fn wr_mr_list(
    ex: Ex,
    mkey: *mut Mkey,
    rights: u32,
    count: u16,
    sges: *const ibv_sge,
) {
    // SAFETY: C's contract.
    unsafe {
        configure(ex, mkey, 2);
        set(ex, |building| access(building, rights));
        set(ex, |building| layout(building, list(count, sges)));
    }
}

pub(crate) unsafe extern "C" fn wr_mr_interleaved(
    ex: Ex,
    mkey: *mut Mkey,
    rights: u32,
    rounds: u32,
    count: u16,
    data: *const Interleaved,
) {
    // SAFETY: C's contract.
    unsafe {
        configure(ex, mkey, 2);
        set(ex, |building| access(building, rights));
        set(ex, |building| layout(building, blocks(rounds, count, data)));
    }
}

pub(crate) unsafe extern "C" fn wr_mkey_configure(
    ex: Ex,
    mkey: *mut Mkey,
    setters: u8,
    attr: *const Configuration,
) {
    // SAFETY: C's contract.
    let attr = unsafe { &*attr };
    // Resets of signatures are unsupported, and a layout without setters would post nothing.
    if attr.conf_flags != 0 || attr.comp_mask != 0 || setters == 0 {
        // SAFETY: C's contract.
        return unsafe { not_there(ex, std::ptr::null()) };
    }
    // SAFETY: C's contract.
    unsafe { configure(ex, mkey, setters) };
}

pub(crate) unsafe extern "C" fn wr_set_mkey_access_flags(ex: Ex, rights: u32) {
    // SAFETY: C's contract.
    unsafe { set(ex, |building| access(building, rights)) };
}

pub(crate) unsafe extern "C" fn wr_set_mkey_layout_list(ex: Ex, count: u16, sges: *const ibv_sge) {
    // SAFETY: C's contract.
    unsafe { set(ex, |building| layout(building, list(count, sges))) };
}

pub(crate) unsafe extern "C" fn wr_set_mkey_layout_interleaved(
    ex: Ex,
    rounds: u32,
    count: u16,
    data: *const Interleaved,
) {
    // SAFETY: C's contract.
    unsafe { set(ex, |building| layout(building, blocks(rounds, count, data))) };
}

/// Refuses unsupported setters: signatures and encryption.
pub(crate) unsafe extern "C" fn not_there(ex: Ex, _: *const c_void) {
    // SAFETY: C's contract.
    if let Some((_, side, building)) = unsafe { Qp::of_extended(ex) } {
        *building = None;
        side.build.refuse(Errno::EOPNOTSUPP);
    }
}
