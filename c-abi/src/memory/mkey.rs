//! Keys that are made of parts of other keys, and the work requests that give them their parts:
//! `mlx5dv_create_mkey`, `mlx5dv_wr_mr_list` and their like (rdma-core `providers/mlx5/qp.c`,
//! `mlx5_send_wr_mkey_configure` and what follows).
//!
//! # Safety
//!
//! C's contract: posts are made between `wr_start` and its end, by that thread; what they name
//! stays registered.
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

/// `MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT` and `_REMOTE_INVALIDATE`: each key here is both.
const FLAGS: u32 = 1 | 1 << 4;
/// `IBV_ACCESS_*` that such a key may have.
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

/// `struct mlx5dv_mkey`, and what is behind it.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Mkey {
    lkey: u32,
    rkey: u32,
    pd: *mut ibv_pd,
    core: MwCore,
    /// Parts that it has room for.
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
        // The lowest byte is 0, as C's provider gives it (`verbs.c:_mlx5dv_create_mkey`). A key is
        // used behind its first layout, which gives it the byte.
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
        // SAFETY: its domain outlives it, says the kernel.
        let left = unsafe { Pd::of(pd) }.context().left();
        // SAFETY: it was made as this box, and is gone.
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

/// A key's layout, as far as it was said.
#[derive(Debug)]
pub(crate) struct Building {
    /// The key, and the parts that it has room for.
    key: (u32, u32),
    wr: Wr,
    /// Setters that are to come.
    left: u8,
    access: Option<AccessFlags>,
    parts: Option<Parts>,
}

/// Parts that wait for the other setters.
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

/// Begins a key's layout, which `setters` are to say.
///
/// # Safety
///
/// C's contract.
unsafe fn configure(ex: Ex, mkey: *const Mkey, setters: u8) {
    // SAFETY: C's contract.
    let Some((qp, side, building)) = (unsafe { of(ex) }) else { return };
    // SAFETY: as above; the program wrote the two members before.
    let (id, c_flags) = unsafe { ((*qp.c()).wr_id, (*qp.c()).wr_flags) };
    if c_flags & IBV_SEND_INLINE == 0 {
        return side.build.refuse(Errno::EOPNOTSUPP);
    }
    let wr = Wr { id, flags: flags(c_flags | qp.signal()) };
    // SAFETY: C's contract.
    let key = unsafe { ((*mkey).lkey, (*mkey).room) };
    *building = Some(Building { key, wr, left: setters, access: None, parts: None });
}

/// Takes what a setter says, and posts the layout behind the last one.
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

/// Posts a layout.
///
/// # Safety
///
/// C's contract.
unsafe fn post(
    qp: &Qp,
    side: &mut Side<uverbs_mlx5::Sq>,
    building: &Building,
) -> Result<(), Errno> {
    // A key keeps what isn't said; here both are said with each layout.
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

/// Lengths and strides have 16 bits in the work request, where C's provider cuts them off.
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
    // A signature's state isn't there to be reset; and a layout of nothing isn't posted.
    if attr.conf_flags != 0 || attr.comp_mask != 0 || setters == 0 {
        // SAFETY: as above.
        return unsafe { not_there(ex, std::ptr::null()) };
    }
    // SAFETY: as above.
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

/// Signatures and encryption.
pub(crate) unsafe extern "C" fn not_there(ex: Ex, _: *const c_void) {
    // SAFETY: C's contract.
    if let Some((_, side, building)) = unsafe { of(ex) } {
        *building = None;
        side.build.refuse(Errno::EOPNOTSUPP);
    }
}
