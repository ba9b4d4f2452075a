//! Reserved QP numbers, for connections whose queue pair is not created by verbs (rdma-core
//! `mlx5.c`, `_mlx5dv_reserved_qpn_alloc`). The device reserves blocks of numbers; each number is
//! handed out once.
//!
//! # Safety
//!
//! Only this file has the handles of blocks.
#![allow(unsafe_code, reason = "sends commands of the device's")]

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use uverbs_core::errno::Errno;
use uverbs_core::error::Error;
use uverbs_mlx5_prm::cmd::caps::{LOG_RESERVED_QPN_GRANULARITY, cmd_hca_cap};
use uverbs_mlx5_prm::cmd::general::{
    CREATE_LOG_OBJ_RANGE, RESERVED_QPN, RESERVED_QPN_IN, general_obj_in_cmd_hdr,
    general_obj_out_cmd_hdr,
};
use uverbs_mlx5_prm::cmd::header;
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use crate::{Context, devx};

const VERB: &str = "reserved_qpn_alloc";
/// Size of the response in bytes.
const ANSWER: usize = 16;

/// Reserved numbers of an open device.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    blocks: Mutex<Vec<Block>>,
}

#[derive(Debug)]
struct Block {
    handle: u32,
    first: u32,
    count: u32,
    /// Count of numbers handed out.
    next: u32,
    used: BTreeSet<u32>,
}

impl Context {
    /// Reserves a number.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] if the device can't reserve numbers; [`Error::Kernel`] if there are
    /// no more.
    #[doc(alias = "mlx5dv_reserved_qpn_alloc")]
    pub fn reserve_qpn(&self) -> Result<u32, Error> {
        let mut blocks = self.reserved.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        if blocks.last().is_none_or(|block| block.next == block.count) {
            blocks.push(self.reserve_block()?);
        }
        let Some(block) = blocks.last_mut() else { return Err(Error::kernel(VERB, Errno::ENOSPC)) };
        let qpn = block.first + block.next;
        block.next += 1;
        block.used.insert(qpn);
        Ok(qpn)
    }

    /// Releases a number.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for a number that is not reserved.
    #[doc(alias = "mlx5dv_reserved_qpn_dealloc")]
    pub fn release_qpn(&self, qpn: u32) -> Result<(), Error> {
        let unknown = || Error::kernel("reserved_qpn_dealloc", Errno::EINVAL);
        let mut blocks = self.reserved.blocks.lock().unwrap_or_else(PoisonError::into_inner);
        let at = blocks.iter_mut().position(|block| block.used.remove(&qpn)).ok_or_else(unknown)?;
        if blocks[at].next == blocks[at].count && blocks[at].used.is_empty() {
            // `remove` keeps the order, because the last block may have numbers left.
            let block = blocks.remove(at);
            // SAFETY: the block's handle, destroyed once.
            unsafe { devx::destroy(self.core.uverbs(), block.handle) }?;
        }
        Ok(())
    }

    fn reserve_block(&self) -> Result<Block, Error> {
        let none = || {
            let what = "reserved QP numbers".to_owned();
            Error::Unsupported { verb: VERB, what }
        };
        let general = self.general_caps().map_err(|_| none())?;
        if cmd_hca_cap::GENERAL_OBJ_TYPES.get(&general) >> RESERVED_QPN & 1 == 0 {
            return Err(none());
        }
        let log = LOG_RESERVED_QPN_GRANULARITY.get(&self.more_caps()?);
        let (mut request, mut answer) = ([0; RESERVED_QPN_IN], [0; ANSWER]);
        header::cmd_in::OPCODE.set(&mut request, CmdOpcode::CREATE_GENERAL_OBJECT.0.into());
        general_obj_in_cmd_hdr::OBJ_TYPE.set(&mut request, RESERVED_QPN.into());
        CREATE_LOG_OBJ_RANGE.set(&mut request, log);
        // SAFETY: the command contains numbers only.
        let made = unsafe { devx::create(self.core.uverbs(), &request, &mut answer) };
        let handle =
            made.map_err(|error| Error::kernel(VERB, devx::told(error.to_errno(), &answer)))?;
        let first = general_obj_out_cmd_hdr::OBJ_ID.get32(&answer);
        Ok(Block { handle, first, count: 1 << log, next: 0, used: BTreeSet::new() })
    }
}
