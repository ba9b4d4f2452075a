//! Completions as C shows them.
//!
//! # Safety
//!
//! They are written where the program points.
#![allow(unsafe_code, reason = "writes C's struct by pointer")]

use uverbs_core::provider::{Decoded, View};
use uverbs_core::queues::completion::{Completed, Failure, Sender, Status};

use crate::sys::{
    IBV_WC_ATOMIC_WRITE, IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_DRIVER1, IBV_WC_FETCH_ADD,
    IBV_WC_FLUSH, IBV_WC_GRH, IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV,
    IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SEND, IBV_WC_WITH_IMM, IBV_WC_WITH_INV, ibv_wc,
};

/// `IBV_WC_*` of a status.
fn status(status: Status) -> u32 {
    match status {
        Status::LocalLength => 1,
        Status::LocalQpOperation => 2,
        Status::LocalProtection => 4,
        Status::Flushed => 5,
        Status::MemoryWindowBind => 6,
        Status::BadResponse => 7,
        Status::LocalAccess => 8,
        Status::RemoteInvalidRequest => 9,
        Status::RemoteAccess => 10,
        Status::RemoteOperation => 11,
        Status::RetryExceeded => 12,
        Status::RnrRetryExceeded => 13,
        Status::RemoteAborted => 16,
        _ => 21,
    }
}

fn opcode(completed: Completed) -> u32 {
    match completed {
        Completed::Send => IBV_WC_SEND,
        Completed::Write => IBV_WC_RDMA_WRITE,
        Completed::Read => IBV_WC_RDMA_READ,
        Completed::CompareSwap => IBV_WC_COMP_SWAP,
        Completed::FetchAdd => IBV_WC_FETCH_ADD,
        Completed::Rekey => IBV_WC_BIND_MW,
        Completed::Flush => IBV_WC_FLUSH,
        Completed::AtomicWrite => IBV_WC_ATOMIC_WRITE,
        Completed::Recv => IBV_WC_RECV,
        Completed::RecvWriteImm => IBV_WC_RECV_RDMA_WITH_IMM,
        _ => IBV_WC_DRIVER1,
    }
}

/// Writes a completion with all its members, each by a store of its own: a struct that is made
/// first and then copied waits for its parts.
///
/// # Safety
///
/// `to` is valid to write.
#[inline(always)]
pub(crate) unsafe fn write<V: View>(to: *mut ibv_wc, view: &V, wr_id: u64) {
    let Decoded { result, is_recv, byte_len, immediate, qpn, sender } = view.decode();
    let completed = match result {
        Ok(completed) => completed,
        // SAFETY: the caller's promise.
        Err(failure) => return unsafe { to.write(failed(is_recv, qpn, wr_id, failure)) },
    };
    let (mut wc_flags, mut imm_data) = (0, 0);
    if is_recv {
        wc_flags = if sender.has_grh() { IBV_WC_GRH } else { 0 };
        if let Some(immediate) = immediate {
            wc_flags |= IBV_WC_WITH_IMM;
            imm_data = immediate.to_be();
        } else if let Some(key) = view.invalidated() {
            wc_flags |= IBV_WC_WITH_INV;
            imm_data = key;
        }
    }
    let received = if is_recv { sender } else { Sender::default() };
    // SAFETY: the caller's promise.
    unsafe {
        (*to).wr_id = wr_id;
        (*to).status = 0;
        (*to).opcode = opcode(completed);
        (*to).vendor_err = 0;
        (*to).byte_len = byte_len;
        (*to).imm_data = imm_data;
        (*to).qp_num = qpn;
        (*to).src_qp = received.qpn();
        (*to).wc_flags = wc_flags;
        (*to).pkey_index = 0;
        (*to).slid = received.lid();
        (*to).sl = received.service_level();
        (*to).dlid_path_bits = 0;
    }
}

#[cold]
#[inline(never)]
fn failed(is_recv: bool, qp_num: u32, wr_id: u64, failure: Failure) -> ibv_wc {
    ibv_wc {
        wr_id,
        status: status(failure.status),
        opcode: if is_recv { IBV_WC_RECV } else { IBV_WC_SEND },
        vendor_err: failure.vendor_syndrome.into(),
        qp_num,
        ..ibv_wc::default()
    }
}
