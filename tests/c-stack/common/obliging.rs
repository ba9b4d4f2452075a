//! Door that accepts commands which Linux's driver of this device refuses, so that programs
//! continue and their later commands can be compared. Changes of queue pairs into and within SQD,
//! and to an alternate path, succeed without effect. Operations on device memory are missing in
//! process; they are answered with the memory's addresses.
//!
//! # Safety
//!
//! Accepted changes concern attributes only: no memory depends on them. For an operation on device
//! memory the device is asked for the memory's addresses, which have the same length. All other
//! commands are passed on by the contract of `ioctl`.
#![allow(unsafe_code, reason = "forwards an unsafe method of the door, and reads a request")]

use std::os::fd::{OwnedFd, RawFd};
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::doors::{UverbsDoor, words};
use uverbs_core::memory::pages::Pages;
use uverbs_kernel_abi::ioctl::{ib_uverbs_attr, ib_uverbs_ioctl_hdr};
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP, MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX,
    MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET, MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH,
    MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX, MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET,
    MLX5_IB_METHOD_DM_MAP_OP_ADDR, MLX5_IB_METHOD_DM_QUERY,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CORE_IN, UVERBS_ATTR_WRITE_CMD, UVERBS_METHOD_INVOKE_WRITE, UVERBS_OBJECT_DEVICE,
    UVERBS_OBJECT_DM,
};
use uverbs_kernel_abi::qp::{IB_QP_ALT_PATH, IB_QPS_SQD, ib_uverbs_modify_qp};
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_MODIFY_QP;

/// Words of a command's header.
const HEADER: usize = 3;

/// Door over another door; see the [module](self).
#[derive(Debug)]
pub struct Obliging(pub Arc<dyn UverbsDoor>);

impl Obliging {
    /// Request of a MODIFY_QP; `None` for other commands.
    ///
    /// # Safety
    ///
    /// As [`UverbsDoor::ioctl`].
    unsafe fn modify(command: &[u64]) -> Option<ib_uverbs_modify_qp> {
        let (header, attrs) = words::parse(command)?;
        let attrs: Vec<_> = attrs.collect();
        let find = |id| attrs.iter().find(move |attr| attr.attr_id == id);
        let is_write = (header.object_id, header.method_id)
            == (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE);
        if !is_write || find(UVERBS_ATTR_WRITE_CMD)?.data != IB_USER_VERBS_CMD_MODIFY_QP.into() {
            return None;
        }
        let request = find(UVERBS_ATTR_CORE_IN)?;
        if usize::from(request.len) < size_of::<ib_uverbs_modify_qp>() {
            return None;
        }
        let at = std::ptr::with_exposed_provenance::<ib_uverbs_modify_qp>(request.data as usize);
        // SAFETY: an attribute longer than eight bytes is the address of an input, readable by the
        // contract of `ioctl`.
        Some(unsafe { at.read_unaligned() })
    }
}

impl Obliging {
    /// Answers a request for an operation's addresses with the addresses of the device memory.
    ///
    /// # Safety
    ///
    /// As [`UverbsDoor::ioctl`]; the command is `MLX5_IB_METHOD_DM_MAP_OP_ADDR`.
    unsafe fn map_operation(&self, command: &mut [u64]) -> Result<(), Errno> {
        let (mut header, attrs) = words::parse(command).ok_or(Errno::EINVAL)?;
        let mut attrs: Vec<_> = attrs.collect();
        let mut len = 0u64;
        header.method_id = MLX5_IB_METHOD_DM_QUERY;
        for attr in &mut attrs {
            attr.attr_id = match attr.attr_id {
                MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_START_OFFSET => {
                    MLX5_IB_ATTR_QUERY_DM_RESP_START_OFFSET
                }
                MLX5_IB_ATTR_DM_MAP_OP_ADDR_RESP_PAGE_INDEX => {
                    MLX5_IB_ATTR_QUERY_DM_RESP_PAGE_INDEX
                }
                MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP => {
                    attr.len = size_of_val(&len) as u16;
                    attr.data = (&raw mut len).expose_provenance() as u64;
                    MLX5_IB_ATTR_QUERY_DM_RESP_LENGTH
                }
                other => other,
            };
        }
        let words = |header: ib_uverbs_ioctl_hdr| -> [u64; HEADER] { zerocopy::transmute!(header) };
        let pair = |attr: ib_uverbs_attr| -> [u64; 2] { zerocopy::transmute!(attr) };
        let mut asked: Vec<u64> = words(header).into();
        asked.extend(attrs.into_iter().flat_map(pair));
        // SAFETY: the caller's outputs, with their lengths, and a local one.
        unsafe { self.0.ioctl(&mut asked) }?;
        // The log reads in the flags which outputs were written.
        let (told, _) = asked[HEADER..].as_chunks::<2>();
        let (attrs, _) = command[HEADER..].as_chunks_mut::<2>();
        for (attr, told) in attrs.iter_mut().zip(told) {
            let mut of: ib_uverbs_attr = zerocopy::transmute!(*attr);
            let told: ib_uverbs_attr = zerocopy::transmute!(*told);
            if of.attr_id != MLX5_IB_ATTR_DM_MAP_OP_ADDR_REQ_OP {
                of.flags = told.flags;
                *attr = zerocopy::transmute!(of);
            }
        }
        Ok(())
    }
}

// SAFETY: passes everything on, except changes that promise nothing about memory.
unsafe impl UverbsDoor for Obliging {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        // SAFETY: by the contract of `ioctl`.
        let change = unsafe { Self::modify(command) };
        let refused = |change: ib_uverbs_modify_qp| {
            change.qp_state == IB_QPS_SQD || change.attr_mask & IB_QP_ALT_PATH != 0
        };
        if change.is_some_and(refused) {
            return Ok(());
        }
        let method = words::parse(command).map(|(header, _)| (header.object_id, header.method_id));
        if method == Some((UVERBS_OBJECT_DM, MLX5_IB_METHOD_DM_MAP_OP_ADDR)) {
            // SAFETY: by the contract of `ioctl`.
            return unsafe { self.map_operation(command) };
        }
        // SAFETY: by the contract of `ioctl`.
        unsafe { self.0.ioctl(command) }
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.0.mmap(len, offset)
    }

    fn mmap_read_only(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.0.mmap_read_only(len, offset)
    }

    fn raw_fd(&self) -> Option<RawFd> {
        self.0.raw_fd()
    }

    fn export(&self) -> Result<OwnedFd, Errno> {
        self.0.export()
    }

    fn progress(&self) {
        self.0.progress();
    }

    fn wants_progress(&self) -> bool {
        self.0.wants_progress()
    }

    fn will_sleep(&self) {
        self.0.will_sleep();
    }
}
