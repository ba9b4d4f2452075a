//! Memory regions, of three kinds: frames that move into posts, memory exposed to peers, and
//! whatever you register yourself.
#![allow(unsafe_code, reason = "registering memory hands it to the device by address")]
//!
//! # Safety
//!
//! The safe functions register only mappings that they made, which live until the kernel has
//! deregistered them.

use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::attr::{AccessFlags, DeviceCaps};
use uverbs_core::commands::Uverbs;
use uverbs_core::commands::mr::MrMemory;
use uverbs_core::error::Error;
use uverbs_core::memory::exposed::ExposedMemory;
use uverbs_core::memory::frame::Slab;
use uverbs_core::memory::mapping::{HUGE_PAGE, Mapping};
use uverbs_core::memory::registered::{LONGEST_FRAME, MOST_FRAMES};
use uverbs_core::objects::dm::DmCore;
use uverbs_core::objects::mr::MrCore;
use uverbs_core::queues::work::Sge;

use crate::{ProtectionDomain, Refused};

/// Memory that the program registered by address. Dropping it deregisters and leaves the memory to
/// the program.
#[derive(Debug)]
#[doc(alias = "ibv_mr")]
pub struct MemoryRegion {
    core: MrCore,
    addr: u64,
    len: usize,
    /// Device memory that it is over: let go of after `core`.
    _device_memory: Option<Arc<DmCore>>,
}

impl MemoryRegion {
    /// Local key.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.core.lkey()
    }

    /// Remote key.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.core.rkey()
    }

    /// First address in work requests (IOVA).
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.addr
    }

    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Always false: a region of no bytes can't be registered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// `len` bytes from `offset`, as a work request names them; the device checks the range.
    #[must_use]
    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { addr: self.addr.wrapping_add(offset), len, lkey: self.lkey() }
    }

    /// The kernel's handle, for commands that the program sends.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.core.handle()
    }

    /// Changes memory, domain or rights of the region, for less than a new registration costs if
    /// the device supports it. The keys may change.
    ///
    /// # Safety
    ///
    /// As for [`ProtectionDomain::register`], for the changed region. No work request that names
    /// the region is outstanding.
    ///
    /// # Errors
    ///
    /// The region comes back with each error. [`Error::Invalid`] for an empty change or a domain of
    /// another device, and [`Error::Limit`] for no bytes; the region is unchanged.
    /// [`Error::Kernel`]: the errnos of [`ProtectionDomain::register_at`], plus `EOPNOTSUPP` for a
    /// change that the driver can't make (soft-RoCE: memory). After `EINVAL`, `EFAULT` and
    /// `EOPNOTSUPP` the region is unchanged; after other errnos it may only be deregistered.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// use uverbs::AccessFlags;
    /// use uverbs::memory::Reregistration;
    ///
    /// let page = Box::leak(vec![0u8; 4096].into_boxed_slice()).as_mut_ptr();
    /// // SAFETY: the memory is never freed, and nothing refers to it.
    /// let region = unsafe { pd.register(page, 4096, AccessFlags::LOCAL_WRITE) }?;
    /// let change = Reregistration::default().access(AccessFlags::REMOTE_READ);
    /// // SAFETY: as above.
    /// let region = unsafe { region.reregister(&change) }?;
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_rereg_mr")]
    pub unsafe fn reregister(mut self, change: &Reregistration) -> Result<Self, Refused<Self>> {
        let Reregistration { memory, pd, access } = change;
        if let Err(error) = check(&self.core, change) {
            return Err(Refused::new(error, self));
        }
        let pd = pd.as_ref().map(|pd| pd.core().clone());
        let changed =
            ordered_or_relaxed(access.unwrap_or(AccessFlags::RELAXED_ORDERING), |rights| {
                let access = access.map(|_| rights);
                // SAFETY: the caller upholds this function's contract; the domain was just checked.
                unsafe { self.core.reregister(*memory, pd.clone(), access) }
            });
        if let Err(error) = changed {
            return Err(Refused::new(error, self));
        }
        if let Some(MrMemory { len, iova, .. }) = *memory {
            (self.addr, self.len) = (iova, len as usize);
        }
        Ok(self)
    }

    /// The region of `core`, whose first address is `addr`; it keeps the device memory under it.
    pub(crate) fn new(
        core: MrCore,
        addr: u64,
        len: usize,
        device_memory: Option<Arc<DmCore>>,
    ) -> Self {
        Self { core, addr, len, _device_memory: device_memory }
    }

    /// Deregisters the region, and returns the kernel's refusal.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`], with the region, which stays usable: `EBUSY`, or `EINVAL` from
    /// soft-RoCE and the software HCA, while a memory window is bound to it.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn deregister(mut self) -> Result<(), Refused<Self>> {
        self.core.deregister().map_err(|error| Refused::new(error, self))
    }
}

/// Changes that [`MemoryRegion::reregister`] makes; unset fields stay as they are.
///
/// ```
/// use uverbs::AccessFlags;
/// use uverbs::memory::Reregistration;
///
/// let change = Reregistration::default().access(AccessFlags::REMOTE_READ);
/// ```
#[derive(Clone, Debug, Default)]
#[doc(alias = "ibv_rereg_mr_flags")]
pub struct Reregistration {
    memory: Option<MrMemory>,
    pd: Option<ProtectionDomain>,
    access: Option<AccessFlags>,
}

impl Reregistration {
    /// Changes the memory to `len` bytes at `addr`. Work requests name it by the same address.
    #[must_use]
    #[doc(alias = "IBV_REREG_MR_CHANGE_TRANSLATION")]
    pub fn memory(self, addr: *mut u8, len: usize) -> Self {
        let iova = addr.expose_provenance() as u64;
        self.memory_at(addr, len, iova)
    }

    /// Changes the memory to `len` bytes at `addr`. Work requests name its first byte `iova`.
    #[must_use]
    pub fn memory_at(mut self, addr: *mut u8, len: usize, iova: u64) -> Self {
        let addr = addr.expose_provenance() as u64;
        self.memory = Some(MrMemory { addr, len: len as u64, iova });
        self
    }

    /// Moves the region to another protection domain of the same open device.
    #[must_use]
    #[doc(alias = "IBV_REREG_MR_CHANGE_PD")]
    pub fn domain(mut self, pd: &ProtectionDomain) -> Self {
        self.pd = Some(pd.clone());
        self
    }

    /// Changes the rights.
    #[must_use]
    #[doc(alias = "IBV_REREG_MR_CHANGE_ACCESS")]
    pub fn access(mut self, access: AccessFlags) -> Self {
        self.access = Some(access);
        self
    }
}

impl ProtectionDomain {
    /// Registers `count` frames of `frame_len` bytes each, to be moved into posts. Zeroed,
    /// page-aligned as a whole; from 2 MiB on in huge pages, where the kernel has some to give
    /// (`transparent_hugepage` on `madvise` or `always`). On a software HCA that others reach by
    /// shared memory it is a memfd from 64 KiB on, which they can map.
    ///
    /// The memory can be reached by the device for this process's own work requests only: no peer
    /// gets a right to it.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for no frames, empty frames, 2 GiB a frame or more, or more than 2^28
    /// frames; [`Error::Memlock`]; [`Error::Kernel`]: `ENOMEM` if kernel or device is out of
    /// memory, so register less.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// let slab = pd.slab(4096, 2)?;
    /// let mut frame = slab.take().expect("both are free");
    /// frame[..5].copy_from_slice(b"hello");
    /// frame.set_len(5); // what a send of it carries
    /// drop(frame); // back into the slab
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "rdma_reg_msgs")]
    pub fn slab(&self, frame_len: usize, count: usize) -> Result<Slab, Error> {
        let frame_len = bounded("frame length", frame_len, u64::from(LONGEST_FRAME))? as u32;
        let count = bounded("number of frames", count, u64::from(MOST_FRAMES))? as u32;
        let (memory, region) =
            self.allocate(u64::from(frame_len) * u64::from(count), AccessFlags::LOCAL_WRITE)?;
        // SAFETY: the mapping is new and zeroed, only the slab gets it, and the region was just
        // made to cover it, with local rights only.
        Ok(unsafe { Slab::new(memory, region, frame_len, count) })
    }

    /// Allocates and registers `len` bytes that a peer may reach with the rights in `access`.
    /// Zeroed, page-aligned; in huge pages as a [slab](Self::slab) is.
    ///
    /// A peer's WRITEs to it are seen in order. The newest firmware makes keys with relaxed
    /// ordering alone (`mkc_order_write_after_write_ro_only`): there a WRITE may be seen before an
    /// earlier one, or its end before its start. A completion still orders: all that was written
    /// before a WRITE with immediate, or a SEND, is seen once that is polled.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for no bytes; [`Error::Invalid`] for [`AccessFlags::RELAXED_ORDERING`], by
    /// which [`ExposedMemory::load`] could see a flag before what was written ahead of it;
    /// [`Error::Memlock`]; [`Error::Kernel`]: `EINVAL` for rights that the device lacks.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// use uverbs::AccessFlags;
    ///
    /// let counter = pd.expose(8, AccessFlags::REMOTE_ATOMIC)?;
    /// counter.store(0, 100)?;
    /// let place = counter.remote(0); // the peer is told address and key
    /// println!("{:#x} under key {:#x}", place.addr, place.rkey);
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    pub fn expose(&self, len: usize, access: AccessFlags) -> Result<ExposedMemory, Error> {
        if access.contains(AccessFlags::RELAXED_ORDERING) {
            return Err(Error::Invalid {
                verb: "reg_mr",
                what: "access",
                value: "RELAXED_ORDERING".to_owned(),
                why: "exposed memory is ordered; register memory directly for relaxed ordering",
            });
        }
        let len = bounded("length", len, isize::MAX as u64)?;
        let (memory, region) = self.allocate(len, access | AccessFlags::LOCAL_WRITE)?;
        // SAFETY: the region was just registered at the mapping's address, and from here on only
        // `ExposedMemory` accesses the bytes, atomically.
        Ok(unsafe { ExposedMemory::new(memory, region, len as usize) })
    }

    /// Registers `len` bytes at `addr`. A device that has relaxed memory keys alone adds
    /// [`AccessFlags::RELAXED_ORDERING`] ([order that remains](Self::expose)).
    ///
    /// # Safety
    ///
    /// The memory stays mapped until the region is deregistered: by [`MemoryRegion::deregister`],
    /// which says so, or by dropping it, which can't say that the kernel refused. While the device
    /// may write to it, for a work request in flight or for as long as a peer has its remote key,
    /// nothing holds a reference to those bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] for no bytes; [`Error::Memlock`]; [`Error::Kernel`]: `EFAULT` for memory
    /// that isn't mapped or, with local write, not writable; `EINVAL` for remote write or atomic
    /// without local write; [`Error::Unsupported`] for a right to FLUSH that the device lacks.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// let page = Box::leak(vec![0u8; 4096].into_boxed_slice()).as_mut_ptr();
    /// // SAFETY: the memory is never freed, and nothing refers to it.
    /// let region = unsafe { pd.register(page, 4096, uverbs::AccessFlags::LOCAL_WRITE) }?;
    /// let first_half = region.sge(0, 2048); // as raw posts name it
    /// region.deregister().expect("no window is bound to it");
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_reg_mr")]
    pub unsafe fn register(
        &self,
        addr: *mut u8,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        let iova = addr.expose_provenance() as u64;
        // SAFETY: the caller upholds this function's contract.
        unsafe { self.register_at(addr, len, iova, access) }
    }

    /// Registers `len` bytes at `addr`, known to work requests and peers as starting at `iova`.
    ///
    /// # Safety
    ///
    /// As for [`register`](Self::register).
    ///
    /// # Errors
    ///
    /// As for [`register`](Self::register), and `EINVAL` when `addr` and `iova` differ within a
    /// page.
    #[doc(alias = "ibv_reg_mr_iova")]
    pub unsafe fn register_at(
        &self,
        addr: *mut u8,
        len: usize,
        iova: u64,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        let length = bounded("length", len, u64::MAX)?;
        // SAFETY: the caller upholds this function's contract.
        let core = unsafe { self.pin(addr, length, iova, access) }?;
        Ok(MemoryRegion::new(core, iova, len, None))
    }

    fn allocate(&self, len: u64, access: AccessFlags) -> Result<(Mapping, MrCore), Error> {
        let len = bounded("length", len as usize, isize::MAX as u64)?;
        // Translations are the cost of large memory, in the processor's TLB and in the device's.
        // The kernel makes the region from the largest pages that it finds
        // (drivers/infiniband/core/umem.c, ib_umem_find_best_pgsz).
        let large = len >= HUGE_PAGE as u64;
        let memory = match self.core().context().uverbs().door().memory(len as usize) {
            Some(pages) => Mapping::whole(pages),
            None if large => Mapping::huge(len as usize)?,
            None => Mapping::new(len as usize)?,
        };
        let iova = memory.ptr().expose_provenance() as u64;
        // SAFETY: this function made the mapping, and its new owner (Slab, ExposedMemory) frees it
        // only after the region.
        let region = unsafe { self.pin(memory.ptr(), len, iova, access) }?;
        Ok((memory, region))
    }

    /// Registers memory.
    ///
    /// # Safety
    ///
    /// As for [`register`](Self::register).
    pub(crate) unsafe fn pin(
        &self,
        addr: *mut u8,
        len: u64,
        iova: u64,
        access: AccessFlags,
    ) -> Result<MrCore, Error> {
        let uverbs = self.core().context().uverbs();
        let start = addr.expose_provenance() as u64;
        let keys = ordered_or_relaxed(access, |access| {
            // SAFETY: the caller upholds this function's contract.
            unsafe { uverbs.reg_mr(self.handle(), start, len, iova, access) }
        });
        let keys = keys.map_err(|error| named(uverbs, access, error))?;
        // SAFETY: the kernel just created the region, so no other owner has its handle.
        Ok(unsafe { MrCore::new(self.core().clone(), keys.handle, keys.lkey, keys.rkey) })
    }
}

/// Makes a key with `access`, or with relaxed ordering in addition. The newest firmware makes
/// relaxed keys alone (capability `mkc_order_write_after_write_ro_only`); other devices refuse
/// both.
pub(super) fn ordered_or_relaxed<T>(
    access: AccessFlags,
    mut make: impl FnMut(AccessFlags) -> Result<T, Error>,
) -> Result<T, Error> {
    make(access).or_else(|refused| match refused.errno() {
        Some(Errno::EINVAL | Errno::EREMOTEIO)
            if !access.contains(AccessFlags::RELAXED_ORDERING) =>
        {
            make(access | AccessFlags::RELAXED_ORDERING)
        }
        _ => Err(refused),
    })
}

/// Names the right to FLUSH that the device lacks, if it does: kernels before 6.2 answer `EINVAL`.
#[cold]
fn named(uverbs: &Uverbs, access: AccessFlags, error: Error) -> Error {
    let rights = [
        (AccessFlags::FLUSH_GLOBAL, DeviceCaps::FLUSH_GLOBAL, "FLUSH_GLOBAL"),
        (AccessFlags::FLUSH_PERSISTENT, DeviceCaps::FLUSH_PERSISTENT, "FLUSH_PERSISTENT"),
    ];
    let asked = rights.iter().filter(|(right, ..)| access.contains(*right));
    let caps = || uverbs.query_device_ex(&mut []).map(|device| device.caps_ex);
    let lacks = |cap| caps().is_ok_and(|caps| !caps.contains(cap));
    match asked.clone().find(|(_, cap, _)| lacks(*cap)) {
        Some((.., name)) => {
            let what =
                format!("access right {name} (FLUSH rights need soft-RoCE of Linux 6.2 or later)");
            Error::Unsupported { verb: "reg_mr", what }
        }
        None => error,
    }
}

/// Refuses an empty change, and objects of another device.
fn check(region: &MrCore, change: &Reregistration) -> Result<(), Error> {
    let invalid = |what, value: &str, why| {
        Err(Error::Invalid { verb: "rereg_mr", what, value: value.to_owned(), why })
    };
    match change {
        Reregistration { memory: None, pd: None, access: None } => {
            invalid("change", "nothing", "say what the region is to be instead")
        }
        Reregistration { memory: Some(MrMemory { len: 0, .. }), .. } => {
            Err(Error::Limit { verb: "rereg_mr", what: "length", value: 0, limit: 1 })
        }
        Reregistration { pd: Some(pd), .. }
            if !Arc::ptr_eq(pd.core().context(), region.pd().context()) =>
        {
            invalid("protection domain", "of another context", "a region stays on its open device")
        }
        _ => Ok(()),
    }
}

/// Refuses 0 and values over `limit`.
pub(crate) fn bounded(what: &'static str, value: usize, limit: u64) -> Result<u64, Error> {
    let value = value as u64;
    if value == 0 {
        return Err(Error::Limit { verb: "reg_mr", what, value, limit: 1 });
    }
    if value > limit {
        return Err(Error::Limit { verb: "reg_mr", what, value, limit });
    }
    Ok(value)
}
