//! The kernel's part in the test: nodes are memfds, and ioctls are noted.

use std::fs;
use std::io;
use std::os::fd::{AsFd, IntoRawFd};
use std::sync::{Arc, Mutex};

use nix::sys::memfd::{MFdFlags, memfd_create};
use uverbs_core::Errno;
use uverbs_core::memory::memlock;
use uverbs_core::memory::pages::Pages;
use uverbs_core::order::mmio;
use zerocopy::IntoBytes;

use super::abi::{IoasMap, IoasRanges, IrqSet, Type1Map};
use super::kernel::Argument;
use super::*;

const ADDRESS: &str = "0000:65:00.2";
const BAR_LEN: u64 = 0x2000;
/// Offset of configuration space in the device's file.
const CONFIG_AT: u64 = 0x10_0000;

/// A kernel without devices.
#[derive(Clone, Debug, Default)]
struct Fake(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Opened nodes, and numbers of requests.
    opened: Vec<String>,
    requests: Vec<u32>,
    /// Addresses and lengths of mappings.
    maps: Vec<(u64, u64)>,
    /// The last mapping allows stores.
    writable: bool,
    vectors: Vec<i32>,
    viable: bool,
    device: Option<File>,
    /// A node that can't be opened, and a request that fails, with their errors.
    closed: Option<(&'static str, i32)>,
    refused: Option<(u32, i32)>,
}

fn node(len: u64) -> File {
    let file = File::from(memfd_create("node", MFdFlags::MFD_CLOEXEC).unwrap());
    file.set_len(len).unwrap();
    file
}

fn put(bytes: &mut [u8], at: usize, value: impl IntoBytes + zerocopy::Immutable) {
    let value = value.as_bytes();
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

impl Kernel for Fake {
    fn open(&self, path: &Path) -> io::Result<File> {
        let mut state = self.0.lock().unwrap();
        let path = path.display().to_string();
        if let Some((_, errno)) = state.closed.filter(|(closed, _)| path == *closed) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let is_device = path.starts_with("/dev/vfio/devices");
        state.opened.push(path);
        let file = node(CONFIG_AT + 256);
        if is_device {
            state.device = Some(file.try_clone()?);
        }
        Ok(file)
    }

    #[allow(unsafe_code, reason = "an unsafe method of the trait; it follows one address")]
    unsafe fn ioctl(
        &self,
        _: BorrowedFd<'_>,
        request: u32,
        argument: Argument<'_>,
    ) -> io::Result<i32> {
        let mut state = self.0.lock().unwrap();
        state.requests.push(request);
        if let Some((_, errno)) = state.refused.filter(|(refused, _)| request == *refused) {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let bytes = match argument {
            Argument::Number(number) => return Ok(i32::from(number == 3 && request == 0x3b65)),
            Argument::Bytes(bytes) => bytes,
        };
        match request {
            0x3b67 => put(bytes, 4, u32::from(state.viable)),
            0x3b6a => {
                assert_eq!(&bytes[..ADDRESS.len() + 1], b"0000:65:00.2\0");
                let device = node(CONFIG_AT + 256);
                state.device = Some(device.try_clone()?);
                return Ok(device.into_raw_fd());
            }
            0x3b6b => put(bytes, 4, 0b11u32),
            // BAR 0 at 0, configuration space behind it.
            0x3b6c => match bytes[8] {
                0 => {
                    put(bytes, 4, 0b111u32);
                    put(bytes, 16, BAR_LEN);
                }
                _ => {
                    put(bytes, 16, 256u64);
                    put(bytes, 24, CONFIG_AT);
                }
            },
            0x3b6d => put(bytes, 12, 5u32),
            0x3b6e => {
                let fds = bytes[size_of::<IrqSet>()..].chunks_exact(4);
                state.vectors = fds.map(|fd| i32::from_ne_bytes(fd.try_into().unwrap())).collect();
            }
            0x3b70 => {
                // Another capability, then two ranges.
                let caps = [2u32, 32, 0, 0].map(u32::to_ne_bytes).concat();
                put(bytes, 0, 24u32 + 8 + 8 + 48);
                if bytes.len() > 24 {
                    put(bytes, 4, 0b11u32);
                    put(bytes, 16, 24u32);
                    bytes[24..32].copy_from_slice(&caps[..8]);
                    put(bytes, 24 + 4, 40u32);
                    for (at, word) in [(40, 1u32), (44, 0), (48, 2)] {
                        put(bytes, at, word);
                    }
                    for (at, word) in [(56, 0x1000u64), (64, 0xfedf_ffff), (72, 1 << 32)] {
                        put(bytes, at, word);
                    }
                    put(bytes, 80, (1u64 << 39) - 1);
                }
            }
            0x3b71 => {
                assert_eq!((bytes.len(), bytes[4] | 2), (size_of::<Type1Map>(), 3));
                state.writable = bytes[4] & 2 != 0;
                state.maps.push((word(bytes, 16), word(bytes, 24)));
            }
            0x3b72 => state.maps.retain(|map| *map != (word(bytes, 8), word(bytes, 16))),
            0x3b81 => put(bytes, 8, 7u32),
            0x3b84 => {
                assert_eq!(bytes.len(), size_of::<IoasRanges>());
                let list = std::ptr::with_exposed_provenance_mut::<u64>(word(bytes, 16) as usize);
                // SAFETY: the caller's list has room.
                unsafe { list.write(0x1000) };
                // SAFETY: as above.
                unsafe { list.wrapping_add(1).write(0xffff_ffff) };
                put(bytes, 8, 1u32);
            }
            0x3b85 => {
                assert_eq!((bytes.len(), bytes[4] | 2, bytes[8]), (size_of::<IoasMap>(), 7, 7));
                state.writable = bytes[4] & 2 != 0;
                state.maps.push((word(bytes, 32), word(bytes, 24)));
            }
            0x3b86 => state.maps.retain(|map| *map != (word(bytes, 8), word(bytes, 16))),
            _ => {}
        }
        Ok(0)
    }
}

/// sysfs with one function.
fn sysfs(driver: &str, cdev: bool) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let device = root.path().join("bus/pci/devices").join(ADDRESS);
    fs::create_dir_all(&device).unwrap();
    fs::create_dir_all(root.path().join("groups/17/devices").join(ADDRESS)).unwrap();
    fs::write(device.join("vendor"), "0x15b3\n").unwrap();
    fs::write(device.join("device"), "0x101e\n").unwrap();
    let link = |to: &str, name: &str| {
        std::os::unix::fs::symlink(root.path().join(to), device.join(name)).unwrap();
    };
    fs::create_dir_all(root.path().join("bus/pci/drivers").join(driver)).unwrap();
    link(&format!("bus/pci/drivers/{driver}"), "driver");
    link("groups/17", "iommu_group");
    fs::create_dir_all(device.join("vfio-dev/vfio3")).unwrap();
    if cdev {
        fs::write(device.join("vfio-dev/vfio3/dev"), "511:3\n").unwrap();
    }
    root
}

/// Uses an opened function, and checks that each access reaches its place.
fn accesses(kernel: &Fake, device: &Vfio) {
    let file = kernel.0.lock().unwrap().device.take().unwrap();
    device.bar_write(0x10, 0x0102_0304).unwrap();
    device.ring(0x1008, 0x0102_0304_0506_0708).unwrap();
    let mut bytes = [0; 8];
    file.read_exact_at(&mut bytes, 0x1008).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
    file.read_exact_at(&mut bytes[..4], 0x10).unwrap();
    assert_eq!(bytes[..4], [1, 2, 3, 4]);
    assert_eq!(device.bar_read(0x10), Ok(0x0102_0304));
    device.config_write(4, &[6, 0]).unwrap();
    file.read_exact_at(&mut bytes[..2], CONFIG_AT + 4).unwrap();
    assert_eq!(bytes[..2], [6, 0]);
    // Beyond the ends, and across words.
    assert!(device.bar_read(BAR_LEN - 2).is_err() && device.bar_read(u64::MAX).is_err());
    assert!(device.bar_write(BAR_LEN, 0).is_err() && device.ring(BAR_LEN - 4, 0).is_err());
    assert!(device.bar_read(2).is_err() && device.ring(4, 0).is_err());
    assert!(device.config_read(254, &mut bytes).is_err());
    // A page for programs is a part of the device's file.
    let (bar, start) = device.bar_file(0x1000, 0x1000).unwrap();
    let page = Pages::shared(bar.as_fd(), 0x1000, start).unwrap();
    // SAFETY: the first word of a mapped page.
    unsafe { mmio::write64_be(page.as_mut_ptr().cast(), 9) };
    file.read_exact_at(&mut bytes, 0x1000).unwrap();
    assert_eq!(bytes, 9u64.to_be_bytes());
    assert!(device.bar_file(0x1000, 0x2000).is_err() && device.bar_file(u64::MAX, 1).is_err());
    let memory = Memory::new(1 << 16).unwrap();
    device.map(0x20_0000, &memory).unwrap();
    assert_eq!(kernel.0.lock().unwrap().maps, [(0x20_0000, 1 << 16)]);
    assert!(kernel.0.lock().unwrap().writable);
    device.unmap(0x20_0000, 1 << 16).unwrap();
    assert_eq!(kernel.0.lock().unwrap().maps, []);
    // The kernel pins memory that may not be written for a device that does not write.
    for purpose in [Purpose::Read, Purpose::Write] {
        // SAFETY: the kernel of the test reaches no memory.
        unsafe { device.map_process(0x20_0000, 0x1000..0x4000, 0x1007..0x3001, purpose) }.unwrap();
        let state = kernel.0.lock().unwrap();
        assert_eq!(state.maps, [(0x20_0000, 0x3000)]);
        assert_eq!(state.writable, purpose.is_writable());
        drop(state);
        device.unmap(0x20_0000, 0x3000).unwrap();
    }
    device.interrupt(file.as_fd()).unwrap();
    let vectors = kernel.0.lock().unwrap().vectors.clone();
    assert!(vectors[0] >= 0 && vectors[1..] == [-1; 4]);
    device.reset().unwrap();
    assert_eq!(kernel.0.lock().unwrap().requests.last(), Some(&0x3b6f));
}

#[test]
fn a_group_is_opened_in_the_order_of_the_kernels_example() {
    let kernel = Fake::default();
    kernel.0.lock().unwrap().viable = true;
    let root = sysfs(VFIO_PCI, false);
    let device = Vfio::on(Box::new(kernel.clone()), root.path(), ADDRESS).unwrap();
    assert_eq!(kernel.0.lock().unwrap().opened, ["/dev/vfio/vfio", "/dev/vfio/17"]);
    let first = kernel.0.lock().unwrap().requests[..6].to_vec();
    assert_eq!(first, [0x3b64, 0x3b65, 0x3b67, 0x3b68, 0x3b66, 0x3b6a]);
    assert_eq!(device.iova_ranges(), [0x1000..=0xfedf_ffff, 1 << 32..=(1 << 39) - 1]);
    assert_eq!((device.bar_len(), device.name()), (BAR_LEN, "vfio:0000:65:00.2"));
    accesses(&kernel, &device);
}

#[test]
fn a_device_node_is_opened_with_iommufd() {
    let kernel = Fake::default();
    let root = sysfs(VFIO_PCI, true);
    let device = Vfio::on(Box::new(kernel.clone()), root.path(), ADDRESS).unwrap();
    assert_eq!(kernel.0.lock().unwrap().opened, ["/dev/vfio/devices/vfio3", "/dev/iommu"]);
    assert_eq!(kernel.0.lock().unwrap().requests[..3], [0x3b76, 0x3b81, 0x3b77]);
    assert_eq!(device.iova_ranges(), [0x1000..=0xffff_ffff]);
    accesses(&kernel, &device);
}

#[test]
fn what_can_not_be_opened_is_refused_by_name() {
    let open = |root: &Path, address| {
        let opened = Vfio::on(Box::new(Fake::default()), root, address);
        opened.map(drop).unwrap_err().to_string()
    };
    let bound = sysfs("mlx5_core", false);
    assert!(open(bound.path(), ADDRESS).contains("uverbs vfio bind"));
    assert!(open(bound.path(), "../devices/0000:65:00.2").contains("no PCI function"));
    let group = sysfs(VFIO_PCI, false);
    let error = open(group.path(), ADDRESS);
    assert!(error.contains("IOMMU group 17 while other drivers"), "{error}");
}

/// A node of another process's function, and one that belongs to root.
#[test]
fn other_owners_and_missing_rights_are_named() {
    let open = |closed, refused, cdev| {
        let kernel = Fake::default();
        *kernel.0.lock().unwrap() = State { viable: true, closed, refused, ..State::default() };
        let root = sysfs(VFIO_PCI, cdev);
        Vfio::on(Box::new(kernel), root.path(), ADDRESS).map(drop).unwrap_err()
    };
    let path = |path: &str| Path::new(path).to_owned();
    let (group, node) = ("/dev/vfio/17", "/dev/vfio/devices/vfio3");
    let busy = open(Some((group, libc::EBUSY)), None, false);
    assert_eq!(busy, Error::Busy { path: path(group) });
    for errno in [libc::EINVAL, libc::EBUSY] {
        assert_eq!(open(None, Some((0x3b76, errno)), true), Error::Busy { path: path(node) });
    }
    for (closed, cdev) in [(group, false), ("/dev/vfio/vfio", false), (node, true)] {
        let denied = open(Some((closed, libc::EACCES)), None, cdev);
        assert!(denied.to_string().contains(&format!("chown USER {closed}")), "{denied}");
        assert_eq!(denied, Error::Denied { path: path(closed) });
    }
    let missing = open(Some((group, libc::ENOENT)), None, false);
    assert!(matches!(missing, Error::System { errno: Errno::ENOENT, .. }), "{missing:?}");
}

/// All limits of mappings are ENOMEM, with the limit.
#[test]
fn exhausted_mappings_name_their_limit() {
    const LARGE: u64 = 1 << 46;
    for (request, cdev) in [(0x3b71, false), (0x3b85, true)] {
        let kernel = Fake::default();
        kernel.0.lock().unwrap().viable = true;
        let root = sysfs(VFIO_PCI, cdev);
        let device = Vfio::on(Box::new(kernel.clone()), root.path(), ADDRESS).unwrap();
        let map = |errno| {
            kernel.0.lock().unwrap().refused = Some((request, errno));
            // SAFETY: the kernel of the test reaches no memory.
            unsafe { device.map_process(0x20_0000, 0..LARGE, 0..LARGE, Purpose::Write) }
                .unwrap_err()
        };
        let locked = map(libc::ENOMEM);
        assert_eq!(locked.errno(), Errno::ENOMEM);
        if memlock::exceeded(LARGE).is_some() {
            assert!(locked.to_string().contains("ulimit -l"), "{locked}");
        }
        if !cdev {
            let many = map(libc::ENOSPC);
            assert!(many.to_string().contains("dma_entry_limit"), "{many}");
            assert_eq!(many.errno(), Errno::ENOMEM);
        }
        // A refused mapping is not noted.
        assert_eq!(kernel.0.lock().unwrap().maps, []);
    }
}
