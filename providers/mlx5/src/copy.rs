//! Copies of memory that the device makes (rdma-core `qp.c:mlx5_wr_memcpy`, where it is called DMA
//! MMO): which a device can, what a queue pair needs for them, and their WQE.
//!
//! # Safety
//!
//! The scratch memory stays until the kernel let go of its region. A WQE is written where `reserve`
//! found room.
#![allow(unsafe_code, reason = "registers memory, and writes WQEs into a ring")]

use std::sync::Arc;

use uverbs_core::attr::{AccessFlags, QpState};
use uverbs_core::error::Error;
use uverbs_core::memory::mapping::Mapping;
use uverbs_core::objects::mr::MrCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::queues::work::{PostError, Wr};
use uverbs_mlx5_prm::cmd::caps::{DMA_MMO_QP, DMA_MMO_SQ, LOG_DMA_MMO_MAX_SIZE};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::qp::{QPC_EXT_MMO, RTS2RTS_OPT_PARAM_MASK_95_32, RTS2RTS_QPC_EXT};
use uverbs_mlx5_prm::ctrl::DS_BYTES;
use uverbs_mlx5_prm::data::mlx5_wqe_data_seg;
use uverbs_mlx5_prm::offload::mlx5_mmo_metadata_seg;
use uverbs_mlx5_prm::opcode::{MLX5_OPC_MOD_MMO_DMA, Opcode};
use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::transmute;

use crate::create::rts::change;
use crate::send::queue::SendCursor;
use crate::{Context, Sq};

/// The longest copy of a device that names no limit. A WQE has 0 in its place.
const LONGEST: u64 = 1 << 31;
/// Bytes of scratch memory, and their alignment.
const SCRATCH: usize = 64;
/// That the extension tells of copies, in `opt_param_mask_95_32` (rdma-core `mlx5_ifc.h`,
/// `MLX5_QPC_OPT_MASK_32_INIT2INIT_MMO`).
const INIT2INIT_MMO: u64 = 1 << 3;

/// What a device can copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyCaps {
    /// Bytes of the longest copy.
    pub max_len: u64,
    /// Whether a queue pair in INIT must be told to ([`allow_copies`]).
    pub must_allow: bool,
}

impl Context {
    /// What the device can copy; `None` if it can't.
    ///
    /// # Errors
    ///
    /// As [`devx::general`](crate::devx::general): a device that was opened without commands of its
    /// own tells nothing.
    pub fn copy_caps(&self) -> Result<Option<CopyCaps>, Error> {
        let general = self.general_caps()?;
        let must_allow = DMA_MMO_QP.is_set(&general);
        if !must_allow && !DMA_MMO_SQ.is_set(&general) {
            return Ok(None);
        }
        let max_len = match LOG_DMA_MMO_MAX_SIZE.get(&general) {
            0 => LONGEST,
            log => 1 << log,
        };
        Ok(Some(CopyCaps { max_len, must_allow }))
    }

    /// Scratch memory in a domain, which copies of its queue pairs name.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a domain of another open device; the kernel's refusal of its memory,
    /// or to register it.
    pub fn copy_scratch(&self, pd: &Arc<PdCore>) -> Result<CopyScratch, Error> {
        // Its region would be registered on this one, and be deregistered by its number there.
        if !Arc::ptr_eq(pd.context(), &self.core) {
            return Err(Error::Invalid {
                verb: "reg_mr",
                what: "protection domain",
                value: "of another context".to_owned(),
                why: "a queue pair and its scratch memory are of one open device",
            });
        }
        let memory = self.memory.alloc(SCRATCH)?;
        let (addr, uverbs) = (memory.addr(), self.core.uverbs());
        let (len, access) = (SCRATCH as u64, AccessFlags::LOCAL_WRITE);
        // SAFETY: the memory stays until the region is gone, and nobody else reads or writes it.
        let keys = unsafe { uverbs.reg_mr(pd.handle(), addr, len, addr, access) }?;
        // SAFETY: just made in this domain, and this is its only owner.
        let region = unsafe { MrCore::new(Arc::clone(pd), keys.handle, keys.lkey, keys.rkey) };
        Ok(CopyScratch { addr, lkey: keys.lkey, parts: Some((region, memory)) })
    }
}

/// Memory that each copy names besides: the device may leave there what it likes.
#[derive(Debug)]
pub struct CopyScratch {
    addr: u64,
    lkey: u32,
    parts: Option<(MrCore, Mapping)>,
}

impl Drop for CopyScratch {
    fn drop(&mut self) {
        if let Some((region, memory)) = self.parts.take() {
            region.retire(memory);
        }
    }
}

/// Has the device take copies from a queue pair in INIT.
///
/// # Errors
///
/// [`Error::State`] unless in INIT; the kernel's refusal, and the device's as `EINVAL`.
pub fn allow_copies(qp: &QpCore) -> Result<(), Error> {
    let command = (CmdOpcode::INIT2INIT_QP, QpState::Init);
    change("modify_qp", qp, command, |request| {
        for (field, value) in
            [(RTS2RTS_QPC_EXT, 1), (RTS2RTS_OPT_PARAM_MASK_95_32, INIT2INIT_MMO), (QPC_EXT_MMO, 1)]
        {
            field.set(request, value);
        }
    })
}

/// A place in memory, by local key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEnd {
    /// Its first byte.
    pub addr: u64,
    /// A region's local key.
    pub lkey: u32,
}

impl Sq {
    /// Copies `len` bytes. The next work request may begin before, unless it has a fence.
    ///
    /// # Errors
    ///
    /// [`PostError::BadData`] for nothing, [`PostError::MessageTooLong`] for more than 2 GiB,
    /// [`PostError::Full`], [`PostError::State`]. That the device can copy as much is the caller's
    /// to know.
    ///
    /// # Safety
    ///
    /// As for [`post`](uverbs_core::provider::SendOps::post), of both places; `scratch` is of the
    /// queue pair's domain, and outlives the queue pair.
    #[doc(alias = "mlx5dv_wr_memcpy")]
    pub unsafe fn post_copy(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        (from, to, len): (CopyEnd, CopyEnd, u64),
        scratch: &CopyScratch,
    ) -> Result<u32, PostError> {
        if len == 0 {
            return Err(PostError::BadData);
        }
        if len > LONGEST {
            return Err(PostError::MessageTooLong);
        }
        let metadata = mlx5_mmo_metadata_seg {
            mmo_control_31_0: U32::ZERO,
            local_key: U32::new(scratch.lkey),
            local_address: U64::new(scratch.addr),
        };
        let piece = |end: CopyEnd| -> [u8; DS_BYTES] {
            // The longest one wraps to 0.
            let bytes = (len % LONGEST) as u32;
            transmute!(mlx5_wqe_data_seg::new(bytes, end.lkey, end.addr))
        };
        let segments = [transmute!(metadata), piece(from), piece(to)];
        let kind = (Opcode::MMO.0, MLX5_OPC_MOD_MMO_DMA);
        // SAFETY: the caller's promise; the device reads and writes what the two places are.
        unsafe { self.post_segments(at, wr, kind, 0, &segments) }
    }
}
