//! The device's own memory.
//!
//! # Safety
//!
//! A region has the handle and keys that the kernel returned, and keeps its device memory
//! allocated. The caller of an import guarantees that the handle is valid.
#![allow(unsafe_code, reason = "wraps kernel objects by number")]

use std::sync::Arc;

use uverbs_core::error::{Error, OutOfRange};
use uverbs_core::objects::dm::DmCore;
use uverbs_core::objects::dm_operation::{DmOp, DmOperation};
use uverbs_core::objects::mr::MrCore;
use uverbs_core::provider::ContextOps;

use crate::memory::mr::bounded;
use crate::provider::Provider;
use crate::{AccessFlags, Context, MemoryRegion, ProtectionDomain};

/// Memory on the device. It is small, and the device accesses it without crossing the bus. A cheap
/// handle; a region over the memory keeps it allocated.
///
/// The device and the program may both access it at any time; the program copies in and out.
///
/// ```
/// # use uverbs::AccessFlags;
/// # use uverbs::raw::Data;
/// # let context = uverbs::device("softhca0")?.open()?;
/// # let pd = context.alloc_pd()?;
/// # let mut cq = context.create_cq(256)?;
/// # let mut qp = context.queue_pair(&pd, &cq).build()?;
/// # qp.prepare(&Default::default())?;
/// # qp.connect_to_self()?;
/// # qp.post_recv(1, pd.slab(64, 1)?.take().expect("free"))?;
/// let memory = context.alloc_device_memory(4096, 6)?;
/// memory.write(0, b"near the wire...")?;
/// let region = pd.register_device_memory(&memory, 0, 4096, AccessFlags::LOCAL_WRITE)?;
/// let mut batch = qp.batch();
/// // SAFETY: the region lives until the completion was polled.
/// unsafe { batch.raw().send(2, Data::One(region.sge(0, 16))) }?;
/// batch.ring();
/// # cq.wait(std::time::Duration::from_secs(20))?.result?;
/// # cq.wait(std::time::Duration::from_secs(20))?.result?;
/// # Ok::<(), uverbs::Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_dm")]
pub struct DeviceMemory {
    core: Arc<DmCore>,
}

impl DeviceMemory {
    /// Bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.core.len()
    }

    /// Copies `data` to `offset`. A work request posted afterwards finds it there.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfRange`]; [`Error::Invalid`] unless offset and length are multiples of 4 bytes.
    #[doc(alias = "ibv_memcpy_to_dm")]
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), Error> {
        self.core.write(offset, data)
    }

    /// Fills `data` from `offset` on.
    ///
    /// # Errors
    ///
    /// As [`write`](Self::write).
    #[doc(alias = "ibv_memcpy_from_dm")]
    pub fn read(&self, offset: usize, data: &mut [u8]) -> Result<(), Error> {
        self.core.read(offset, data)
    }

    /// Maps the memory for an atomic operation: a CPU access to the mapped address changes the
    /// memory in one step, also against the device and other processors. Operands have one byte.
    /// The mapping keeps the memory allocated.
    ///
    /// ```
    /// use uverbs::Error;
    /// use uverbs::memory::DmOp;
    ///
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// let memory = context.alloc_device_memory(64, 0)?;
    /// match memory.map_operation(DmOp::INCREMENT) {
    ///     Ok(increment) => increment.write(8, 5)?,
    ///     // ConnectX has it, and the software HCA as a PCI device; in a process it sees no loads.
    ///     Err(Error::Unsupported { .. }) => {}
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] of a device without this operation, or a kernel before Linux 5.14;
    /// [`Error::Kernel`]; [`Error::System`].
    #[doc(alias = "mlx5dv_dm_map_op_addr")]
    pub fn map_operation(&self, op: DmOp) -> Result<DmOperation, Error> {
        // No other driver has device memory.
        crate::unstable::mlx5::map_operation(&self.core, op)
    }

    /// The kernel's handle, for commands that the program sends.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.core.handle()
    }
}

impl<P: Provider> Context<P> {
    /// Allocates `len` bytes of the device's own memory, at a multiple of 2^`log_align` bytes.
    /// [`DeviceAttr::max_dm_size`](crate::DeviceAttr::max_dm_size) says how much there is.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device has no such memory; [`Error::Limit`] for no bytes or
    /// more than the device has; [`Error::Kernel`]: `EINVAL` for an unsupported alignment, `ENOMEM`
    /// when too little is left.
    #[doc(alias = "ibv_alloc_dm")]
    pub fn alloc_device_memory(&self, len: usize, log_align: u32) -> Result<DeviceMemory, Error> {
        let core = self.provider().alloc_dm(len, log_align)?;
        Ok(DeviceMemory { core: Arc::new(core) })
    }

    /// The device memory with this handle ([`DeviceMemory::handle`]), which another context of the
    /// same open file allocated ([`import`](crate::import())). It is mapped here, too, and domains
    /// of this context can register it. Dropping it leaves the memory allocated. Since Linux 5.14.
    ///
    /// ```
    /// let context = uverbs::device("softhca0")?.open()?;
    /// let memory = context.alloc_device_memory(64, 0)?;
    /// memory.write(0, b"from its owner..")?;
    ///
    /// let shared = uverbs::import(context.export()?)?;
    /// // SAFETY: `memory` is there until the end, and its owner sent its handle.
    /// let same = unsafe { shared.import_device_memory(memory.handle()) }?;
    /// let mut found = [0; 16];
    /// same.read(0, &mut found)?;
    /// assert_eq!(&found, b"from its owner..");
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    ///
    /// # Safety
    ///
    /// The memory's owner agrees, and keeps the memory for as long as this handle, its clones and
    /// the regions over it exist.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on a device without device memory; [`Error::Kernel`]: `ENOENT` for an
    /// unknown handle; [`Error::System`] if it can't be mapped.
    #[doc(alias = "ibv_import_dm")]
    pub unsafe fn import_device_memory(&self, handle: u32) -> Result<DeviceMemory, Error> {
        // SAFETY: the caller upholds this function's contract.
        let core = unsafe { self.provider().import_dm(handle) }?;
        Ok(DeviceMemory { core: Arc::new(core) })
    }
}

impl ProtectionDomain {
    /// Registers `len` bytes of device memory from `offset` on. The region's addresses count from
    /// 0, which is at `offset`.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for memory of another context; [`Error::OutOfRange`]; [`Error::Kernel`]
    /// with `EINVAL` for rights other than local write and the remote ones.
    #[doc(alias = "ibv_reg_dm_mr")]
    pub fn register_device_memory(
        &self,
        memory: &DeviceMemory,
        offset: usize,
        len: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, Error> {
        let (memory, context) = (&memory.core, self.core().context());
        if !Arc::ptr_eq(memory.context(), context) {
            return Err(Error::Invalid {
                verb: "reg_dm_mr",
                what: "device memory",
                value: "of another context".to_owned(),
                why: "region and device memory must belong to the same open device",
            });
        }
        if offset.checked_add(len).is_none_or(|end| end > memory.len()) {
            return Err(OutOfRange { offset, wanted: len, len: memory.len() }.into());
        }
        let (start, bytes) = (offset as u64, bounded("length", len, u64::MAX)?);
        let uverbs = context.uverbs();
        let keys = uverbs.reg_dm_mr(self.handle(), memory.handle(), start, bytes, access)?;
        // SAFETY: the kernel just created the region, so no other owner has its handle.
        let core = unsafe { MrCore::new(self.core().clone(), keys.handle, keys.lkey, keys.rkey) };
        Ok(MemoryRegion::new(core, 0, len, Some(Arc::clone(memory))))
    }
}
