//! Address handles.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use uverbs::provider::AnyAh;
use uverbs_core::Errno;
use uverbs_core::attr::{AhAttr, Gid, GidType, GlobalRoute, Grh, GrhKind, Path};
use uverbs_core::provider::{AhOps, ContextOps};
use uverbs_mlx5::devx;

use crate::base::answer::{code, kept, minus_one, refuse};
use crate::base::live::Kind;
use crate::device::context::Context;
use crate::memory::pd::Pd;
use crate::sys::{
    IBV_WC_GRH, ibv_ah, ibv_ah_attr, ibv_context, ibv_gid, ibv_global_route, ibv_grh, ibv_pd,
    ibv_wc,
};

#[repr(C)]
pub(crate) struct Ah {
    c: ibv_ah,
    ah: AnyAh,
    /// DEVX object that maps the address handle to a queue pair.
    mapped: Mutex<Option<u32>>,
}

impl Ah {
    /// # Safety
    ///
    /// C's contract.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(ah: *const ibv_ah) -> &'a Self {
        // SAFETY: by C's contract; C's struct is the first member of this object.
        unsafe { &*ah.cast() }
    }

    #[inline(always)]
    pub(crate) fn any(&self) -> &AnyAh {
        &self.ah
    }
}

/// Converts C's path attributes.
pub(crate) fn attr_of(c: &ibv_ah_attr) -> AhAttr {
    let grh = (c.is_global != 0).then_some(GlobalRoute {
        dgid: Gid(c.grh.dgid.raw),
        sgid_index: c.grh.sgid_index,
        hop_limit: c.grh.hop_limit,
        traffic_class: c.grh.traffic_class,
        // UCX sets all 32 bits; C's provider takes 20 (rdma-core `verbs.c:mlx5_create_ah`).
        flow_label: c.grh.flow_label & 0xf_ffff,
    });
    let path = Path {
        dlid: c.dlid,
        grh,
        service_level: c.sl,
        src_path_bits: c.src_path_bits,
        static_rate: c.static_rate,
    };
    AhAttr { port: c.port_num, path }
}

pub(crate) unsafe extern "C" fn create_ah(
    pd: *mut ibv_pd,
    attr: *const ibv_ah_attr,
) -> *mut ibv_ah {
    // SAFETY: by C's contract.
    let (of, attr) = unsafe { (Pd::of(pd), &*attr) };
    let made = of.context().ops().create_ah(of.core(), &attr_of(attr)).map(|ah| {
        let handle = ah.core().handle().unwrap_or(0);
        let c = ibv_ah { context: of.context_ptr(), pd, handle };
        Box::new(Ah { c, ah, mapped: Mutex::default() })
    });
    kept(of.context().left(), Kind::Ah, made).cast()
}

pub(crate) unsafe extern "C" fn destroy_ah(ah: *mut ibv_ah) -> c_int {
    // SAFETY: the object was kept as a box of this type; C's contract: it is the last use.
    let whole = unsafe { Context::of((*ah).context).left().take::<Ah>(Kind::Ah, ah.cast()) };
    // SAFETY: the object was kept as a box of this type; C's contract: it is the last use.
    let of = unsafe { Context::of(whole.c.context) };
    let mapped = whole.mapped.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some(object) = mapped {
        // SAFETY: the object was created for this handle, and this is its last use. The handle is
        // freed even on an error, as in C's provider.
        let _ = unsafe { devx::destroy(of.core().uverbs(), object) };
    }
    0
}

/// Maps an address handle to a queue pair. Later calls change nothing, as in C's provider.
pub(crate) unsafe extern "C" fn map_ah_to_qp(ah: *const ibv_ah, qpn: u32) -> c_int {
    // SAFETY: by C's contract.
    let (of, context) = unsafe { (Ah::of(ah), Context::of((*ah).context)) };
    let (AnyAh::Mlx5(vector), Some(mlx5)) = (of.any(), context.mlx5()) else {
        return refuse(Errno::EOPNOTSUPP);
    };
    let mut mapped = of.mapped.lock().unwrap_or_else(PoisonError::into_inner);
    if mapped.is_some() {
        return 0;
    }
    code(mlx5.map_ah_to_qp(vector, qpn).map(|object| *mapped = Some(object)))
}

/// GID index of `gid` for packets of this kind.
fn index_of(context: &Context, port: u8, gid: Gid, kind: GrhKind) -> Result<u8, Errno> {
    let table = context.core().uverbs().query_gid_table(usize::MAX);
    let table = table.map_err(|error| error.to_errno())?;
    let found = table.iter().find(|entry| {
        entry.port == u32::from(port)
            && entry.gid == gid
            && (kind.is_of(entry.kind) || entry.kind == GidType::Ib)
    });
    found.and_then(|entry| entry.index.try_into().ok()).ok_or(Errno::EINVAL)
}

/// Path back to the sender of a datagram. IBTA vol 1, 11.2.2.1; annex A17.4.5.
fn way_back(
    context: &Context,
    port: u8,
    wc: &ibv_wc,
    grh: *const ibv_grh,
) -> Result<ibv_ah_attr, Errno> {
    let mut attr = ibv_ah_attr {
        dlid: wc.slid,
        sl: wc.sl,
        src_path_bits: wc.dlid_path_bits,
        port_num: port,
        ..ibv_ah_attr::default()
    };
    if wc.wc_flags & IBV_WC_GRH == 0 {
        return Ok(attr);
    }
    // SAFETY: C's contract: with `IBV_WC_GRH` the 40 bytes of the GRH exist.
    let bytes = unsafe { &*grh.cast::<[u8; 40]>() };
    let grh = Grh::parse(bytes).ok_or(Errno::EPROTONOSUPPORT)?;
    if grh.destination.is_multicast() {
        return Err(Errno::EINVAL);
    }
    attr.is_global = 1;
    attr.grh = ibv_global_route {
        dgid: ibv_gid { raw: grh.source.0 },
        flow_label: grh.flow_label,
        sgid_index: index_of(context, port, grh.destination, grh.kind)?,
        hop_limit: grh.hop_limit,
        traffic_class: grh.traffic_class,
    };
    Ok(attr)
}

pub(crate) unsafe extern "C" fn init_ah_from_wc(
    context: *mut ibv_context,
    port: u8,
    wc: *const ibv_wc,
    grh: *const ibv_grh,
    attr: *mut MaybeUninit<ibv_ah_attr>,
) -> c_int {
    // SAFETY: by C's contract.
    let (context, wc) = unsafe { (Context::of(context), &*wc) };
    match way_back(context, port, wc, grh) {
        Ok(found) => {
            // SAFETY: by C's contract.
            unsafe { (*attr).write(found) };
            0
        }
        Err(errno) => minus_one(errno),
    }
}

pub(crate) unsafe extern "C" fn create_ah_from_wc(
    pd: *mut ibv_pd,
    wc: *const ibv_wc,
    grh: *const ibv_grh,
    port: u8,
) -> *mut ibv_ah {
    let mut attr = MaybeUninit::uninit();
    // SAFETY: by C's contract.
    let context = unsafe { Pd::of(pd) }.context_ptr();
    // SAFETY: by C's contract.
    if unsafe { init_ah_from_wc(context, port, wc, grh, &raw mut attr) } != 0 {
        return null_mut();
    }
    // SAFETY: by C's contract; the attributes are filled in.
    unsafe { create_ah(pd, attr.as_ptr()) }
}
