//! Allocations of device memory, and operations on them (`hw/mlx5/dm.c`). Both live until their
//! object is freed and their last mapping is gone (`mlx5_ib_dm_mmap_free`). An operation keeps its
//! allocation.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;
use uverbs_core::memory::pages::Pages;

use crate::backend::Backend;
use crate::backend::device_memory::DeviceMemory;
use crate::backend::error::errno;
use crate::kernel::user::page_size;

/// An allocation. A device in process has a memory file for it, mapped by the device and by each
/// client.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// Address of the first byte for the device.
    pub(crate) start: u64,
    /// Bytes.
    len: u64,
    file: Arc<OwnedFd>,
    /// Offset in the file of its pages.
    offset: u64,
    /// The device's mapping; `None` if the memory is the device's own.
    map: Option<Pages>,
}

impl Allocation {
    fn of_process(len: u64) -> Result<Self, Errno> {
        let file = memfd_create("uverbs-device-memory", MFdFlags::MFD_CLOEXEC)?;
        ftruncate(&file, len.next_multiple_of(page_size()).cast_signed())?;
        let (file, offset) = (Arc::new(file), 0);
        let map = map(&file, len, offset)?;
        let start = map.as_mut_ptr().expose_provenance() as u64;
        Ok(Self { start, len, file, offset, map: Some(map) })
    }

    fn of_device(DeviceMemory { start, file, offset }: DeviceMemory, len: u64) -> Self {
        Self { start, len, file, offset, map: None }
    }

    /// Offset of the first byte in its page.
    pub(crate) fn inside(&self) -> u64 {
        self.start % page_size()
    }

    /// Bytes of its pages.
    pub(crate) fn room(&self) -> u64 {
        self.len.next_multiple_of(page_size())
    }

    /// Maps the whole allocation for a client.
    pub(crate) fn map(self: &Arc<Self>) -> Result<Pages, Errno> {
        let map = map(&self.file, self.len, self.offset)?;
        Ok(map.keeping_beyond(Arc::clone(self)))
    }
}

/// Addresses of an operation on an allocation, one for each byte.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) op: u8,
    addresses: DeviceMemory,
    allocation: Arc<Allocation>,
}

impl Operation {
    /// Offset of the first address in its page.
    pub(crate) fn inside(&self) -> u64 {
        self.addresses.start % page_size()
    }

    /// Maps all addresses for a client.
    pub(crate) fn map(self: &Arc<Self>) -> Result<Pages, Errno> {
        let map = map(&self.addresses.file, self.allocation.len, self.addresses.offset)?;
        Ok(map.keeping_beyond(Arc::clone(self)))
    }
}

fn map(file: &OwnedFd, len: u64, offset: u64) -> Result<Pages, Errno> {
    let len = len.next_multiple_of(page_size()) as usize;
    Pages::shared(file.as_fd(), len, offset).map_err(|errno| Errno::from_raw(errno.raw()))
}

/// Allocations of a device, and operations on them.
#[derive(Debug, Default)]
pub(crate) struct Allocations {
    allocations: Vec<Arc<Allocation>>,
    operations: Vec<Arc<Operation>>,
}

impl Allocations {
    /// Allocates `len` bytes, a multiple of 64 that is not 0, at a multiple of 64 << `log_align`.
    /// `most`: bytes of all allocations together of a device in process.
    pub(crate) fn alloc(
        &mut self,
        hca: &mut dyn Backend,
        most: u64,
        len: u64,
        log_align: u32,
    ) -> Result<Arc<Allocation>, Errno> {
        self.free_unused(hca);
        let allocation = match hca.alloc_device_memory(len, log_align).map_err(errno)? {
            Some(own) => Allocation::of_device(own, len),
            None => {
                let taken = self.allocations.iter().map(|allocation| allocation.room()).sum();
                let room = len.checked_next_multiple_of(page_size());
                if room.is_none_or(|room| room > most.saturating_sub(taken)) {
                    return Err(Errno::ENOMEM);
                }
                Allocation::of_process(len)?
            }
        };
        let allocation = Arc::new(allocation);
        self.allocations.push(Arc::clone(&allocation));
        Ok(allocation)
    }

    /// Adds an operation to an allocation.
    pub(crate) fn add_operation(
        &mut self,
        hca: &mut dyn Backend,
        allocation: Arc<Allocation>,
        op: u8,
    ) -> Result<Arc<Operation>, Errno> {
        let addresses = hca.add_operation(allocation.start, allocation.len, op).map_err(errno)?;
        let operation = Arc::new(Operation { op, addresses, allocation });
        self.operations.push(Arc::clone(&operation));
        Ok(operation)
    }

    /// Frees the operations, then the allocations, that no object and no mapping uses. One that the
    /// device refuses to free stays taken there.
    pub(crate) fn free_unused(&mut self, hca: &mut dyn Backend) {
        self.operations.retain(|operation| {
            let used = Arc::strong_count(operation) > 1;
            if !used {
                let Operation { op, addresses, allocation } = &**operation;
                hca.remove_operation(allocation.start, *op, addresses.start);
            }
            used
        });
        self.allocations.retain(|allocation| {
            let used = Arc::strong_count(allocation) > 1;
            if !used && allocation.map.is_none() {
                hca.free_device_memory(allocation.start, allocation.len);
            }
            used
        });
    }
}
