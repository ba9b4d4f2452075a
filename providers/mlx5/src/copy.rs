//! Memory copies by the device (DMA MMO in rdma-core, `qp.c:mlx5_wr_memcpy`): capabilities, setup
//! of a queue pair, and the WQE.
//!
//! # Safety
//!
//! The scratch memory is freed after its region was deregistered. A WQE is written where `reserve`
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

/// Maximum copy of a device that reports no limit. A WQE encodes this length as 0.
const LONGEST: u64 = 1 << 31;
/// Size of the scratch memory, and its alignment.
const SCRATCH: usize = 64;
/// Bit of `opt_param_mask_95_32` for the extension's copy field (rdma-core `mlx5_ifc.h`,
/// `MLX5_QPC_OPT_MASK_32_INIT2INIT_MMO`).
const INIT2INIT_MMO: u64 = 1 << 3;

/// Copy capabilities of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyCaps {
    /// Maximum length of a copy in bytes.
    pub max_len: u64,
    /// True if copies must be enabled on a queue pair in INIT ([`allow_copies`]).
    pub must_allow: bool,
}

impl Context {
    /// Queries the copy capabilities; `None` if the device can't copy.
    ///
    /// # Errors
    ///
    /// The errors of [`devx::general`](crate::devx::general): the query needs a device that was
    /// opened with DEVX.
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

    /// Allocates scratch memory in a protection domain, for copies by its queue pairs.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for a protection domain of another open device; the kernel's refusal of
    /// the memory or of its registration.
    pub fn copy_scratch(&self, pd: &Arc<PdCore>) -> Result<CopyScratch, Error> {
        // The region would be registered on this device and deregistered by its handle on the other
        // one.
        if !Arc::ptr_eq(pd.context(), &self.core) {
            return Err(Error::Invalid {
                verb: "reg_mr",
                what: "protection domain",
                value: "of another context".to_owned(),
                why: "queue pair and scratch memory must belong to the same open device",
            });
        }
        let memory = self.memory.alloc(SCRATCH)?;
        let (addr, uverbs) = (memory.addr(), self.core.uverbs());
        let (len, access) = (SCRATCH as u64, AccessFlags::LOCAL_WRITE);
        // SAFETY: the memory outlives the region, and only the device accesses it.
        let keys = unsafe { uverbs.reg_mr(pd.handle(), addr, len, addr, access) }?;
        // SAFETY: just created in this protection domain, and this is its only owner.
        let region = unsafe { MrCore::new(Arc::clone(pd), keys.handle, keys.lkey, keys.rkey) };
        Ok(CopyScratch { addr, lkey: keys.lkey, parts: Some((region, memory)) })
    }
}

/// Scratch memory, which each copy names as its third range. The device may write anything to it.
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

/// Enables copies on a queue pair in INIT.
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

/// An address in registered memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyEnd {
    /// Address of the first byte.
    pub addr: u64,
    /// Local key of the region.
    pub lkey: u32,
}

impl Sq {
    /// Posts a copy of `len` bytes. The next work request may begin before it completes, unless
    /// that one is fenced.
    ///
    /// # Errors
    ///
    /// [`PostError::BadData`] for 0 bytes, [`PostError::MessageTooLong`] for more than 2 GiB,
    /// [`PostError::Full`], [`PostError::State`]. The caller must not exceed [`CopyCaps::max_len`].
    ///
    /// # Safety
    ///
    /// As for [`post`](uverbs_core::provider::SendOps::post), for source and destination; `scratch`
    /// belongs to the queue pair's protection domain, and outlives the queue pair.
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
            // The maximum length wraps to 0.
            let bytes = (len % LONGEST) as u32;
            transmute!(mlx5_wqe_data_seg::new(bytes, end.lkey, end.addr))
        };
        let segments = [transmute!(metadata), piece(from), piece(to)];
        let kind = (Opcode::MMO.0, MLX5_OPC_MOD_MMO_DMA);
        // SAFETY: the contract of `post_copy` covers the memory that the device reads and writes.
        unsafe { self.post_segments(at, wr, kind, 0, &segments) }
    }
}
