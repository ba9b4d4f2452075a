//! Indirect mkeys, and the work requests that lay them out: `mlx5dv_create_mkey`,
//! `mlx5dv_wr_mr_list`, `mlx5dv_wr_mkey_configure` and its setters (rdma-core
//! `providers/mlx5/qp.c`, `mlx5_send_wr_mkey_configure` and the functions after it).
//!
//! # Safety
//!
//! By C's contract (crate root), posts are made between `wr_start` and `wr_complete` or `wr_abort`
//! by one thread, and the memory that they name stays registered.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::slice;

use uverbs_core::Errno;
use uverbs_core::attr::AccessFlags;
use uverbs_core::objects::mw::MwCore;
use uverbs_core::provider::{ContextOps, SendOps};
use uverbs_core::queues::layout::{Block, KeyLayout, KeyParts};
use uverbs_core::queues::work::{Sge, Wr};

use crate::base::answer::{code, kept, null};
use crate::base::live::Kind;
use crate::memory::pd::Pd;
use crate::post::extended::{Ex, of};
use crate::post::request::{flags, pieces};
use crate::post::send::Side;
use crate::queues::qp::Qp;
use crate::sys::{IBV_SEND_INLINE, IBV_WC_DRIVER1, ibv_pd, ibv_sge};

/// Accepted flags: `MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT` and `_REMOTE_INVALIDATE`. Every mkey is
/// both.
const FLAGS: u32 = 1 | 1 << 4;
/// Access rights that an mkey may have.
const ACCESS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC);

/// `struct mlx5dv_mkey_init_attr`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct MkeyInit {
    pd: *mut ibv_pd,
    create_flags: u32,
    max_entries: u16,
}

/// `struct mlx5dv_mkey`, followed by our members.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Mkey {
    lkey: u32,
    rkey: u32,
    pd: *mut ibv_pd,
    core: MwCore,
    /// Maximum entries of a layout.
    room: u32,
}

pub(crate) unsafe extern "C" fn create_mkey(attr: *mut MkeyInit) -> *mut Mkey {
    // SAFETY: C's contract.
    let attr = unsafe { &*attr };
    if attr.create_flags == 0 || attr.create_flags & !FLAGS != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    let pd = attr.pd;
    // SAFETY: C's contract.
    let of = unsafe { Pd::of(pd) };
    let made = of.context().ops().alloc_indirect(of.core(), attr.max_entries.into());
    let made = made.map(|(core, room)| {
        // The lowest byte is 0, as in C's provider (`verbs.c:_mlx5dv_create_mkey`). The first
        // layout sets it; the key is unusable before.
        let key = core.rkey() & !0xff;
        Box::new(Mkey { lkey: key, rkey: key, pd, core, room })
    });
    kept(of.context().left(), Kind::Window, made)
}

pub(crate) unsafe extern "C" fn destroy_mkey(mkey: *mut Mkey) -> c_int {
    // SAFETY: C's contract.
    let all = unsafe { &mut *mkey };
    let (pd, done) = (all.pd, all.core.dealloc());
    if done.is_ok() {
        // SAFETY: the kernel does not destroy a domain before its mkeys.
        let left = unsafe { Pd::of(pd) }.context().left();
        // SAFETY: the object was kept as a box of this type, and is destroyed.
        drop(unsafe { left.take::<Mkey>(Kind::Window, mkey) });
    }
    code(done)
}

/// `struct mlx5dv_mr_interleaved`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Interleaved {
    addr: u64,
    bytes_count: u32,
    bytes_skip: u32,
    lkey: u32,
}

/// `struct mlx5dv_mkey_conf_attr`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Configuration {
    conf_flags: u32,
    comp_mask: u64,
}

/// Layout of an mkey that is being built.
#[derive(Debug)]
pub(crate) struct Building {
    /// The mkey, and the maximum entries of its layout.
    key: (u32, u32),
    wr: Wr,
    /// Missing calls of setters.
    left: u8,
    access: Option<AccessFlags>,
    parts: Option<Parts>,
}

/// Entries of a layout that is being built.
#[derive(Debug)]
enum Parts {
    List(Vec<Sge>),
    Interleaved(u32, Vec<Block>),
}

impl Parts {
    fn borrowed(&self) -> KeyParts<'_> {
        match self {
            Self::List(list) => KeyParts::List(list),
            Self::Interleaved(rounds, blocks) => KeyParts::Interleaved { rounds: *rounds, blocks },
        }
    }
}

/// Begins a layout that `setters` calls complete.
///
/// # Safety
///
/// C's contract.
unsafe fn configure(ex: Ex, mkey: *const Mkey, setters: u8) {
    // SAFETY: C's contract.
    let Some((qp, side, building)) = (unsafe { of(ex) }) else { return };
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
    let Some((qp, side, waiting)) = (unsafe { of(ex) }) else { return };
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
    Ok(Parts::List(unsafe { pieces(list, count.into()) }.to_vec()))
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
    if let Some((_, side, building)) = unsafe { of(ex) } {
        *building = None;
        side.build.refuse(Errno::EOPNOTSUPP);
    }
}
