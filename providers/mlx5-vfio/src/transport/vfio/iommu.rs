//! Address space of a device: a container of groups, or an address space of iommufd.
//!
//! # Safety
//!
//! Calls of the kernel that map memory pass on their caller's contract.
#![allow(unsafe_code, reason = "a program's memory is given to a device")]

use std::fs::File;
use std::ops::RangeInclusive;
use std::os::fd::AsRawFd;
use std::path::Path;

use uverbs_core::Errno;
use zerocopy::FromBytes;

use super::abi::{
    API_VERSION, AttachIoas, BindIommufd, CAP_IOVA_RANGE, Container, GroupStatus, INFO_CAPS,
    IoasAlloc, IoasUnmap, IovaRange, TYPE1V2, Type1Info, Type1Unmap, VIABLE, request,
};
use super::kernel::{self, Kernel, ask, number};
use crate::error::Error;

/// Address space, with the files that keep it.
#[derive(Debug)]
pub(super) enum Iommu {
    /// `/dev/vfio/vfio` and `/dev/vfio/GROUP`.
    Type1 { container: File, _group: File },
    /// `/dev/iommu`, and the number of an address space.
    Ioas { iommufd: File, number: u32 },
}

fn open(kernel: &dyn Kernel, path: &Path) -> Result<File, Error> {
    kernel.open(path).map_err(|error| Error::of_node(path, &error))
}

/// Gives a device to an address space. Another owner, by its node or by its group, is `EINVAL` or
/// `EBUSY` (`drivers/vfio/vfio_main.c`, `vfio_df_open`; `device_cdev.c`,
/// `vfio_df_ioctl_bind_iommufd`).
fn bind(kernel: &dyn Kernel, device: &File, iommufd: &File, path: &Path) -> Result<(), Error> {
    let (argsz, fd) = (size_of::<BindIommufd>() as u32, iommufd.as_raw_fd());
    let mut bind = BindIommufd { argsz, flags: 0, iommufd: fd, out_devid: 0 };
    ask(kernel, device, &mut bind).map(drop).map_err(|error| match error {
        Error::System { errno: Errno::EINVAL | Errno::EBUSY, .. } => {
            Error::Busy { path: path.to_owned() }
        }
        other => other,
    })
}

impl Iommu {
    /// Opens a device by its group's node (`Documentation/driver-api/vfio.rst`, "VFIO Usage
    /// Example").
    pub(super) fn by_group(
        kernel: &dyn Kernel,
        group: &Path,
        address: &str,
    ) -> Result<(Self, File), Error> {
        let container = open(kernel, Path::new("/dev/vfio/vfio"))?;
        let version = (request::GET_API_VERSION, "VFIO_GET_API_VERSION");
        let told = number(kernel, &container, version, 0)?;
        let extension = (request::CHECK_EXTENSION, "VFIO_CHECK_EXTENSION");
        if told != API_VERSION || number(kernel, &container, extension, TYPE1V2)? == 0 {
            return Err(Error::Unsupported { what: "VFIO without a type 1 IOMMU".to_owned() });
        }
        let node = open(kernel, group)?;
        let mut status = GroupStatus { argsz: size_of::<GroupStatus>() as u32, flags: 0 };
        ask(kernel, &node, &mut status)?;
        if status.flags & VIABLE == 0 {
            let number = group.file_name().unwrap_or_default().display();
            let what = format!("IOMMU group {number} while other drivers have functions in it");
            return Err(Error::Unsupported { what });
        }
        ask(kernel, &node, &mut Container { fd: container.as_raw_fd() })?;
        number(kernel, &container, (request::SET_IOMMU, "VFIO_SET_IOMMU"), TYPE1V2)?;
        let device = kernel::device(kernel, &node, address)?;
        Ok((Self::Type1 { container, _group: node }, device))
    }

    /// Opens a device by its own node (`Documentation/driver-api/vfio.rst`, "VFIO device cdev").
    pub(super) fn by_node(kernel: &dyn Kernel, path: &Path) -> Result<(Self, File), Error> {
        let device = open(kernel, path)?;
        let iommufd = open(kernel, Path::new("/dev/iommu"))?;
        bind(kernel, &device, &iommufd, path)?;
        let size = size_of::<IoasAlloc>() as u32;
        let mut made = IoasAlloc { size, ..IoasAlloc::default() };
        ask(kernel, &iommufd, &mut made)?;
        let argsz = size_of::<AttachIoas>() as u32;
        ask(kernel, &device, &mut AttachIoas { argsz, flags: 0, ioas: made.out_ioas })?;
        Ok((Self::Ioas { iommufd, number: made.out_ioas }, device))
    }

    /// Addresses that the device may use.
    pub(super) fn ranges(&self, kernel: &dyn Kernel) -> Result<Vec<RangeInclusive<u64>>, Error> {
        let mut ranges = match self {
            Self::Ioas { iommufd, number } => kernel::ioas_ranges(kernel, iommufd, *number)?,
            Self::Type1 { container, .. } => type1_ranges(&kernel::iommu_info(kernel, container)?),
        };
        ranges.sort_by_key(|range| *range.start());
        match ranges.is_empty() {
            false => Ok(ranges),
            true => Err(Error::Unsupported {
                what: "a kernel that does not tell the IOMMU's addresses (before Linux 5.4)".into(),
            }),
        }
    }

    /// Maps memory of this process, as address and length.
    ///
    /// # Safety
    ///
    /// As [`crate::transport::Transport::map_process`].
    pub(super) unsafe fn map(
        &self,
        kernel: &dyn Kernel,
        iova: u64,
        memory: (u64, u64),
        writable: bool,
    ) -> Result<(), Error> {
        match self {
            // SAFETY: the caller's.
            Self::Type1 { container, .. } => unsafe {
                kernel::map_type1(kernel, container, iova, memory, writable)
            },
            // SAFETY: the caller's.
            Self::Ioas { iommufd, number } => unsafe {
                kernel::map_ioas(kernel, iommufd, (*number, iova), memory, writable)
            },
        }
    }

    pub(super) fn unmap(&self, kernel: &dyn Kernel, iova: u64, len: u64) -> Result<(), Error> {
        let unmapped = match self {
            Self::Type1 { container, .. } => {
                let argsz = size_of::<Type1Unmap>() as u32;
                let mut unmap = Type1Unmap { argsz, flags: 0, iova, size: len };
                ask(kernel, container, &mut unmap)?;
                unmap.size
            }
            Self::Ioas { iommufd, number } => {
                let size = size_of::<IoasUnmap>() as u32;
                let mut unmap = IoasUnmap { size, ioas: *number, iova, length: len };
                ask(kernel, iommufd, &mut unmap)?;
                unmap.length
            }
        };
        match unmapped == len {
            true => Ok(()),
            false => Err(Error::answer("the bytes of an unmapped range", unmapped)),
        }
    }
}

/// Addresses in the capabilities of `VFIO_IOMMU_GET_INFO`: a chain of records, each with the offset
/// of the next.
fn type1_ranges(bytes: &[u8]) -> Vec<RangeInclusive<u64>> {
    let Ok((info, _)) = Type1Info::read_from_prefix(bytes) else { return Vec::new() };
    let mut at = if info.flags & INFO_CAPS == 0 { 0 } else { info.cap_offset as usize };
    // A chain is no longer than the bytes.
    for _ in 0..bytes.len() {
        let record = bytes.get(at..).filter(|_| at != 0);
        let Some(([id, next, count], _)) =
            record.and_then(|record| <[u32; 3]>::read_from_prefix(record).ok())
        else {
            break;
        };
        // The number is the low half of the first word, the version the high half.
        if id.to_ne_bytes()[..2] == CAP_IOVA_RANGE.to_ne_bytes() {
            let list = bytes.get(at + 16..).unwrap_or_default();
            let list = list.chunks_exact(size_of::<IovaRange>()).take(count as usize);
            let list = list.filter_map(|range| IovaRange::read_from_bytes(range).ok());
            return list.map(|range| range.start..=range.last).collect();
        }
        at = next as usize;
    }
    Vec::new()
}
