//! Calls of the kernel: nodes and ioctls. A test can take the kernel's part.
//!
//! # Safety
//!
//! An ioctl's argument may contain addresses. [`ask`] takes structures that have none ([`Plain`]);
//! the functions below it pass addresses of memory that they hold, of the length that they tell.
#![allow(unsafe_code, reason = "ioctls")]

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::Path;

use uverbs_core::Errno;
use uverbs_core::memory::memlock;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::abi::{
    DeviceName, EVENTFD_TRIGGER, FIXED_READ_WRITE, IoasMap, IoasRanges, IovaRange, IrqSet,
    MSIX_INDEX, Plain, READ_WRITE, Type1Info, Type1Map, WRITE, request,
};
use crate::error::Error;

/// Maximum bytes of the kernel's list of addresses.
const INFO_BYTES: usize = 1 << 16;
/// Mappings of a container, unless the module has another limit (`vfio_iommu_type1.c`,
/// `dma_entry_limit`).
const DMA_ENTRY_LIMIT: u64 = u16::MAX as u64;

/// Argument of an ioctl.
pub(super) enum Argument<'a> {
    Number(u64),
    Bytes(&'a mut [u8]),
}

/// The kernel, or a test in its place.
pub(super) trait Kernel: Send + Sync + std::fmt::Debug {
    /// Opens a node for reading and writing.
    fn open(&self, path: &Path) -> io::Result<File>;

    /// Calls ioctl.
    ///
    /// # Safety
    ///
    /// Addresses in the argument are valid for the request.
    unsafe fn ioctl(
        &self,
        fd: BorrowedFd<'_>,
        request: u32,
        argument: Argument<'_>,
    ) -> io::Result<i32>;
}

/// Linux.
#[derive(Debug)]
pub(super) struct Linux;

impl Kernel for Linux {
    fn open(&self, path: &Path) -> io::Result<File> {
        File::options().read(true).write(true).open(path)
    }

    unsafe fn ioctl(
        &self,
        fd: BorrowedFd<'_>,
        request: u32,
        argument: Argument<'_>,
    ) -> io::Result<i32> {
        let fd = fd.as_raw_fd();
        let done = match argument {
            // SAFETY: contract of `ioctl`.
            Argument::Number(number) => unsafe { libc::ioctl(fd, request as _, number) },
            Argument::Bytes(bytes) => {
                // SAFETY: contract of `ioctl`; the bytes are exclusive, as long as they say.
                unsafe { libc::ioctl(fd, request as _, bytes.as_mut_ptr()) }
            }
        };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
    }
}

/// Makes a request with a structure that has no address.
pub(super) fn ask<T: Plain>(
    kernel: &dyn Kernel,
    fd: impl AsFd,
    argument: &mut T,
) -> Result<i32, Error> {
    let bytes = Argument::Bytes(argument.as_mut_bytes());
    // SAFETY: without an address.
    let done = unsafe { kernel.ioctl(fd.as_fd(), T::NUMBER, bytes) };
    done.map_err(Error::system(T::NAME))
}

/// Makes a request with a number.
pub(super) fn number(
    kernel: &dyn Kernel,
    fd: impl AsFd,
    (request, name): (u32, &'static str),
    number: u64,
) -> Result<i32, Error> {
    // SAFETY: without an address.
    let done = unsafe { kernel.ioctl(fd.as_fd(), request, Argument::Number(number)) };
    done.map_err(Error::system(name))
}

/// Opens the device of this name in a group.
pub(super) fn device(kernel: &dyn Kernel, group: &File, name: &str) -> Result<File, Error> {
    let mut argument = DeviceName::new_zeroed();
    match argument.as_mut_bytes().get_mut(..name.len() + 1) {
        Some(bytes) => bytes[..name.len()].copy_from_slice(name.as_bytes()),
        None => return Err(Error::Unsupported { what: format!("a PCI address as {name:?}") }),
    }
    let fd = ask(kernel, group, &mut argument)?;
    // SAFETY: the kernel has just made the descriptor for this call.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Signals `event` at MSI-X vector 0 of `vectors`. All are set at once: not every kernel can add
/// vectors later.
pub(super) fn set_vectors(
    kernel: &dyn Kernel,
    device: &File,
    vectors: u32,
    event: BorrowedFd<'_>,
) -> Result<(), Error> {
    let mut fds = vec![-1; vectors as usize];
    if let Some(first) = fds.first_mut() {
        *first = event.as_raw_fd();
    }
    let argsz = (size_of::<IrqSet>() + size_of_val(&fds[..])) as u32;
    let (flags, count) = (EVENTFD_TRIGGER, vectors);
    let set = IrqSet { argsz, flags, index: MSIX_INDEX, start: 0, count };
    let mut bytes = [set.as_bytes(), fds.as_bytes()].concat();
    let argument = Argument::Bytes(&mut bytes);
    // SAFETY: without an address.
    let done = unsafe { kernel.ioctl(device.as_fd(), request::DEVICE_SET_IRQS, argument) };
    done.map(drop).map_err(Error::system("VFIO_DEVICE_SET_IRQS"))
}

/// Reads what the kernel tells of a container's IOMMU, capabilities included.
pub(super) fn iommu_info(kernel: &dyn Kernel, container: &File) -> Result<Vec<u8>, Error> {
    let mut len = size_of::<Type1Info>();
    loop {
        let mut bytes = vec![0; len];
        let argsz = (len as u32).to_ne_bytes();
        bytes[..4].copy_from_slice(&argsz);
        let argument = Argument::Bytes(&mut bytes);
        // SAFETY: without an address.
        let done = unsafe { kernel.ioctl(container.as_fd(), request::IOMMU_GET_INFO, argument) };
        done.map_err(Error::system("VFIO_IOMMU_GET_INFO"))?;
        // The kernel tells the length that it would need.
        let needs = Type1Info::read_from_prefix(&bytes).map_or(0, |(info, _)| info.argsz as usize);
        if needs <= len {
            return Ok(bytes);
        }
        if needs > INFO_BYTES {
            return Err(Error::answer("the length of VFIO_IOMMU_GET_INFO", needs as u64));
        }
        len = needs;
    }
}

/// Maps memory, as address and length, in a container.
///
/// # Safety
///
/// As [`crate::transport::Transport::map_process`].
pub(super) unsafe fn map_type1(
    kernel: &dyn Kernel,
    container: &File,
    iova: u64,
    (vaddr, size): (u64, u64),
    writable: bool,
) -> Result<(), Error> {
    let argsz = size_of::<Type1Map>() as u32;
    let flags = if writable { READ_WRITE } else { READ_WRITE & !WRITE };
    let mut map = Type1Map { argsz, flags, vaddr, iova, size };
    let argument = Argument::Bytes(map.as_mut_bytes());
    // SAFETY: the caller's. The kernel pins the pages until they are unmapped.
    let done = unsafe { kernel.ioctl(container.as_fd(), request::IOMMU_MAP_DMA, argument) };
    done.map(drop).map_err(|error| match Errno::of(&error) {
        Errno::ENOSPC => too_many_mappings(),
        // The kernel counts the pages as locked (`drivers/vfio/vfio_iommu_type1.c`,
        // `vfio_lock_acct`).
        _ => explain("VFIO_IOMMU_MAP_DMA", &error, size.saturating_add(locked_bytes())),
    })
}

/// Maps memory, as address and length, in an address space of iommufd.
///
/// # Safety
///
/// As [`map_type1`].
pub(super) unsafe fn map_ioas(
    kernel: &dyn Kernel,
    iommufd: &File,
    (ioas, iova): (u32, u64),
    (vaddr, length): (u64, u64),
    writable: bool,
) -> Result<(), Error> {
    let size = size_of::<IoasMap>() as u32;
    let flags = if writable { FIXED_READ_WRITE } else { FIXED_READ_WRITE & !WRITE };
    let mut map = IoasMap { size, flags, ioas, reserved: 0, vaddr, length, iova };
    let argument = Argument::Bytes(map.as_mut_bytes());
    // SAFETY: as in `map_type1`.
    let done = unsafe { kernel.ioctl(iommufd.as_fd(), request::IOAS_MAP, argument) };
    done.map(drop).map_err(|error| explain("IOMMU_IOAS_MAP", &error, length))
}

/// Reads the addresses of an address space of iommufd.
pub(super) fn ioas_ranges(
    kernel: &dyn Kernel,
    iommufd: &File,
    ioas: u32,
) -> Result<Vec<RangeInclusive<u64>>, Error> {
    let mut ranges = vec![IovaRange::new_zeroed(); INFO_BYTES / size_of::<IovaRange>()];
    let (size, count) = (size_of::<IoasRanges>() as u32, ranges.len() as u32);
    let at = ranges.as_mut_ptr().expose_provenance() as u64;
    let mut asked = IoasRanges { size, ioas, count, ranges: at, ..IoasRanges::default() };
    let argument = Argument::Bytes(asked.as_mut_bytes());
    // SAFETY: the list is exclusive here, and has `count` elements.
    let done = unsafe { kernel.ioctl(iommufd.as_fd(), request::IOAS_IOVA_RANGES, argument) };
    done.map_err(Error::system("IOMMU_IOAS_IOVA_RANGES"))?;
    let told = ranges.iter().take(asked.count as usize);
    Ok(told.map(|range| range.start..=range.last).collect())
}

/// Error of a container that has its maximum of mappings.
fn too_many_mappings() -> Error {
    let told = std::fs::read_to_string("/sys/module/vfio_iommu_type1/parameters/dma_entry_limit");
    let limit = told.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(DMA_ENTRY_LIMIT);
    let what = "mappings of the device (dma_entry_limit of vfio_iommu_type1)";
    Error::Limit { what, value: limit.saturating_add(1), limit }
}

/// Locked memory of this process, `VmLck` of `/proc/self/status`; proc(5).
fn locked_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmLck:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}

/// Error of a mapping, with the limit of locked memory if that is the cause.
fn explain(what: &'static str, error: &io::Error, bytes: u64) -> Error {
    match (Errno::of(error), memlock::exceeded(bytes)) {
        (Errno::ENOMEM, Some(limit)) => {
            Error::Limit { what: "bytes of locked memory (ulimit -l)", value: bytes, limit }
        }
        (errno, _) => Error::System { what, errno },
    }
}
