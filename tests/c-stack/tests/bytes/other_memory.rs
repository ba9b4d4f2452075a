//! Memory in addition to the area, for case files with `memory`: device memory, a dma-buf and the
//! null region.
//!
//! # Safety
//!
//! The area is read while the device is idle.
#![allow(unsafe_code, reason = "reads the area by address")]

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use uverbs::memory::{DeviceMemory, DmOp, DmOperation, NullRegion};
use uverbs::raw::Sge;
use uverbs::{AccessFlags, Context, MemoryRegion, Mlx5, ProtectionDomain};

use crate::area::Area;
use crate::words::number;

/// Device memory, dma-buf and null region; created if a case file asks for them.
pub(crate) struct Other {
    device_memory: DeviceMemory,
    _operations: [DmOperation; 2],
    over_it: MemoryRegion,
    dmabuf: MemoryRegion,
    nothing: NullRegion,
}

impl Other {
    /// Creates them in the order of `c/bytes.c`, `set_up_memory`.
    pub(crate) fn new(
        context: &Context<Mlx5>,
        pd: &ProtectionDomain,
        phase: &impl Fn(&str),
    ) -> Self {
        let access =
            AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE;
        phase("alloc_dm");
        let device_memory = context.alloc_device_memory(4096, 6).unwrap();
        // SAFETY: within the area; the device is idle.
        let filled = (0..4096).map(|at| unsafe { Area::byte(at).read_volatile() });
        let filled: Vec<u8> = filled.collect();
        device_memory.write(64, &filled[..2048]).unwrap();
        let operations = [DmOp::INCREMENT, DmOp::TEST_AND_SET].map(|op| {
            phase("map_operation");
            device_memory.map_operation(op).unwrap()
        });
        phase("reg_dm_mr");
        let over_it = pd.register_device_memory(&device_memory, 64, 2048, access).unwrap();
        let file = memfd_create("exported", MFdFlags::MFD_ALLOW_SEALING).unwrap();
        nix::unistd::ftruncate(&file, 8192).unwrap();
        fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK)).unwrap();
        let file = File::from(file);
        file.write_all_at(&filled, 4096).unwrap();
        phase("reg_dmabuf_mr");
        let dmabuf = pd.register_dmabuf(file.as_fd(), 4096, 4096, 4096, access).unwrap();
        drop(file);
        phase("alloc_null_mr");
        let nothing = context.null_region().unwrap();
        Self { device_memory, _operations: operations, over_it, dmabuf, nothing }
    }

    pub(crate) fn end(self, phase: &impl Fn(&str)) {
        phase("dereg_dmabuf_mr");
        self.dmabuf.deregister().unwrap();
        phase("dereg_dm_mr");
        self.over_it.deregister().unwrap();
        phase("free_dm");
        drop(self.device_memory);
    }

    /// SGE of `d0:16`, `f0:16` or `n0:16`.
    pub(crate) fn sge(&self, piece: &str) -> Option<Sge> {
        let (place, len) = piece.split_once(':')?;
        let len = number(len) as u32;
        let at = || number(&place[1..]);
        match place.as_bytes()[0] {
            b'd' => Some(self.over_it.sge(at(), len)),
            b'f' => Some(self.dmabuf.sge(at(), len)),
            b'n' => Some(Sge { addr: at(), ..self.nothing.sge(len) }),
            _ => None,
        }
    }
}
