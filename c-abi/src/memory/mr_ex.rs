//! Memory regions from a struct of attributes (`ibv_reg_mr_ex`). It registers the same memory as
//! the single verbs.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use uverbs_core::Errno;

use crate::base::answer;
use crate::memory::buf::Buf;
use crate::memory::mr::{reg_dmabuf_mr, reg_mr_iova};
use crate::sys::{ibv_mr, ibv_pd};

/// `IBV_REG_MR_MASK_*`.
const IOVA: u64 = 1;
const ADDR: u64 = 1 << 1;
const FD: u64 = 1 << 2;
const FD_OFFSET: u64 = 1 << 3;
const DMA_HANDLE: u64 = 1 << 4;
const BUF: u64 = 1 << 5;

/// `struct ibv_mr_init_attr`.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct MrInit {
    length: usize,
    access: c_int,
    comp_mask: u64,
    iova: u64,
    addr: *mut c_void,
    fd: c_int,
    fd_offset: u64,
    dmah: *mut c_void,
    buf: *const Buf,
}

const _: () = assert!(size_of::<MrInit>() == 72);

impl MrInit {
    /// Attributes for bytes of a buffer.
    pub(crate) fn of_buf(buf: *const Buf, addr: *mut c_void, length: usize, access: c_int) -> Self {
        let comp_mask = BUF | ADDR;
        let (iova, fd, fd_offset, dmah) = (0, -1, 0, null_mut());
        Self { length, access, comp_mask, iova, addr, fd, fd_offset, dmah, buf }
    }

    fn has(&self, bit: u64) -> bool {
        self.comp_mask & bit != 0
    }

    /// Returns true if the attributes are consistent (rdma-core
    /// `verbs.c:fill_mr_init_attr_from_buf`, `cmd_mr.c:ibv_cmd_reg_mr_ex`): memory of the program,
    /// or a file with an offset and an IOVA.
    fn is_whole(&self) -> bool {
        let of_file = self.has(FD);
        of_file == self.has(FD_OFFSET)
            && of_file != self.has(ADDR)
            && (!of_file || self.has(IOVA) && !self.has(BUF))
    }
}

/// Registers memory. TPH handles (`ibv_alloc_dmah`) are unsupported.
pub(crate) unsafe extern "C" fn reg_mr_ex(pd: *mut ibv_pd, init: *const MrInit) -> *mut ibv_mr {
    // SAFETY: by C's contract.
    let init = unsafe { &*init };
    let &MrInit { length, access, addr, .. } = init;
    let buf = if init.has(BUF) { init.buf } else { null() };
    // SAFETY: C's contract: null, or a buffer.
    let fits = unsafe { buf.as_ref() }.is_none_or(|buf| buf.has(pd, addr, length));
    if !init.is_whole() || init.has(BUF) && buf.is_null() || !fits {
        return answer::null(Errno::EINVAL);
    }
    if init.has(DMA_HANDLE) {
        return answer::null(Errno::EOPNOTSUPP);
    }
    // SAFETY: by C's contract.
    unsafe {
        if init.has(FD) {
            return reg_dmabuf_mr(pd, init.fd_offset, length, init.iova, init.fd, access);
        }
        let iova = if init.has(IOVA) { init.iova } else { addr.expose_provenance() as u64 };
        reg_mr_iova(pd, addr, length, iova, access as u32)
    }
}
