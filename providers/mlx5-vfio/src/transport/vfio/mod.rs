//! A PCI function that the kernel's vfio-pci gives to this process. Not tried on hardware.
//!
//! The function is opened by its own node and iommufd, or by its group and a container (Linux
//! `Documentation/driver-api/vfio.rst`). The IOMMU keeps the device's DMA within the memory that is
//! mapped for it; a machine without IOMMU is not supported. Closing the files resets the function.

mod abi;
mod bar;
mod iommu;
mod kernel;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::ops::{Range, RangeInclusive};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use self::abi::{
    BAR0_INDEX, CONFIG_INDEX, DEVICE_IS_PCI, DEVICE_RESETS, DeviceInfo, IrqInfo, MSIX_INDEX,
    REGION_MAPS, RegionInfo, request,
};
use self::bar::Bar;
use self::iommu::Iommu;
use self::kernel::{Kernel, Linux, ask, number};
use super::{BAR0, CONFIG, Purpose, Transport, check};
use crate::discovery::{PciFunction, VFIO_PCI};
use crate::error::Error;
use crate::memory::Memory;

/// Maximum MSI-X vectors of a function (PCI Local Bus 3.0, 6.8.2).
const MAX_VECTORS: u32 = 2048;

/// A function of vfio-pci.
#[derive(Debug)]
pub struct Vfio {
    bar: Bar,
    device: File,
    /// The device's file for mappings, and the offset of BAR 0 in it.
    bar_file: (Arc<OwnedFd>, u64),
    iommu: Iommu,
    kernel: Box<dyn Kernel>,
    name: String,
    config: (u64, u64),
    vectors: u32,
    resets: bool,
    ranges: Vec<RangeInclusive<u64>>,
}

impl Vfio {
    /// Opens the function at a PCI address, which must be bound to vfio-pci.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if it isn't bound; the errors of the nodes in `/dev/vfio`.
    pub fn open(sysfs: &Path, address: &str) -> Result<Self, Error> {
        Self::on(Box::new(Linux), sysfs, address)
    }

    fn on(kernel: Box<dyn Kernel>, sysfs: &Path, address: &str) -> Result<Self, Error> {
        let found = PciFunction::at(sysfs, address);
        let unbound = |why| Error::Unsupported { what: format!("{address}: {why}") };
        let function = found.ok_or_else(|| unbound("no PCI function of Mellanox"))?;
        if function.driver.as_deref() != Some(VFIO_PCI) {
            return Err(unbound("not bound to vfio-pci (uverbs vfio bind)"));
        }
        let node = function.node().ok_or_else(|| unbound("no IOMMU group"))?;
        let (iommu, device) = match function.cdev {
            Some(_) => Iommu::by_node(&*kernel, &node)?,
            None => Iommu::by_group(&*kernel, &node, address)?,
        };
        let mut info = DeviceInfo { argsz: size_of::<DeviceInfo>() as u32, ..Default::default() };
        ask(&*kernel, &device, &mut info)?;
        if info.flags & DEVICE_IS_PCI == 0 {
            return Err(unbound("no PCI device for VFIO"));
        }
        let region = |index| {
            let argsz = size_of::<RegionInfo>() as u32;
            let mut region = RegionInfo { argsz, index, ..RegionInfo::default() };
            ask(&*kernel, &device, &mut region).map(|_| region)
        };
        let (bar, config) = (region(BAR0_INDEX)?, region(CONFIG_INDEX)?);
        if bar.flags & REGION_MAPS == 0 {
            return Err(unbound("BAR 0 can't be mapped"));
        }
        let file = device.try_clone().map_err(Error::system("dup"))?;
        let bar_file = (Arc::new(file.into()), bar.offset);
        let bar = Bar::map(&device, bar.size, bar.offset)?;
        let argsz = size_of::<IrqInfo>() as u32;
        let mut irq = IrqInfo { argsz, index: MSIX_INDEX, ..IrqInfo::default() };
        ask(&*kernel, &device, &mut irq)?;
        if !(1..=MAX_VECTORS).contains(&irq.count) {
            return Err(Error::answer("the number of MSI-X vectors", irq.count));
        }
        Ok(Self {
            ranges: iommu.ranges(&*kernel)?,
            bar,
            bar_file,
            device,
            iommu,
            kernel,
            name: format!("vfio:{address}"),
            config: (config.offset, config.size),
            vectors: irq.count,
            resets: info.flags & DEVICE_RESETS != 0,
        })
    }
}

impl Transport for Vfio {
    fn name(&self) -> &str {
        &self.name
    }

    fn bar_len(&self) -> u64 {
        self.bar.len()
    }

    fn iova_ranges(&self) -> &[RangeInclusive<u64>] {
        &self.ranges
    }

    fn config_read(&self, offset: u64, bytes: &mut [u8]) -> Result<(), Error> {
        check(CONFIG, offset, bytes.len() as u64, self.config.1)?;
        let done = self.device.read_exact_at(bytes, self.config.0 + offset);
        done.map_err(Error::system("reading configuration space"))
    }

    fn config_write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        check(CONFIG, offset, bytes.len() as u64, self.config.1)?;
        let done = self.device.write_all_at(bytes, self.config.0 + offset);
        done.map_err(Error::system("writing configuration space"))
    }

    fn bar_read(&self, offset: u64) -> Result<u32, Error> {
        self.bar.read(offset)
    }

    fn bar_write(&self, offset: u64, value: u32) -> Result<(), Error> {
        self.bar.write(offset, value)
    }

    fn ring(&self, offset: u64, value: u64) -> Result<(), Error> {
        self.bar.ring(offset, value)
    }

    fn bar_file(&self, at: u64, len: u64) -> Result<(Arc<OwnedFd>, u64), Error> {
        check(BAR0, at, len, self.bar.len())?;
        let (file, start) = &self.bar_file;
        // The kernel's offsets have the region in their high bits, far from an overflow.
        Ok((Arc::clone(file), start.saturating_add(at)))
    }

    fn map(&self, iova: u64, memory: &Memory) -> Result<(), Error> {
        let (address, len) = (memory.address(), memory.len() as u64);
        // SAFETY: a whole mapping, which no reference points into.
        unsafe { self.iommu.map(&*self.kernel, iova, (address, len), true) }
    }

    unsafe fn map_process(
        &self,
        iova: u64,
        pages: Range<u64>,
        _: Range<u64>,
        purpose: Purpose,
    ) -> Result<(), Error> {
        let memory = (pages.start, pages.end - pages.start);
        // SAFETY: the caller's.
        unsafe { self.iommu.map(&*self.kernel, iova, memory, purpose.is_writable()) }
    }

    fn unmap(&self, iova: u64, len: u64) -> Result<(), Error> {
        self.iommu.unmap(&*self.kernel, iova, len)
    }

    fn interrupt(&self, event: BorrowedFd<'_>) -> Result<(), Error> {
        kernel::set_vectors(&*self.kernel, &self.device, self.vectors, event)
    }

    fn reset(&self) -> Result<(), Error> {
        if !self.resets {
            return Err(Error::Unsupported { what: format!("{}: reset", self.name) });
        }
        let reset = (request::DEVICE_RESET, "VFIO_DEVICE_RESET");
        number(&*self.kernel, &self.device, reset, 0).map(drop)
    }
}
