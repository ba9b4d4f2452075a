//! Completions as C shows them.

use uverbs_core::provider::View;
use uverbs_core::queues::completion::{Completed, Failure, Status};

use crate::sys::{
    IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_DRIVER1, IBV_WC_FETCH_ADD, IBV_WC_GRH,
    IBV_WC_RDMA_READ, IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SEND,
    IBV_WC_WITH_IMM, IBV_WC_WITH_INV, ibv_wc,
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
        Completed::Recv => IBV_WC_RECV,
        Completed::RecvWriteImm => IBV_WC_RECV_RDMA_WITH_IMM,
        _ => IBV_WC_DRIVER1,
    }
}

/// A completion with all its members.
#[inline(always)]
pub(crate) fn of<V: View>(view: &V, wr_id: u64) -> ibv_wc {
    match view.result() {
        Ok(completed) if !view.is_recv() => ibv_wc {
            wr_id,
            opcode: opcode(completed),
            byte_len: view.byte_len(),
            qp_num: view.qpn(),
            ..ibv_wc::default()
        },
        Ok(completed) => received(view, wr_id, completed),
        Err(failure) => failed(view, wr_id, failure),
    }
}

#[inline(always)]
fn received<V: View>(view: &V, wr_id: u64, completed: Completed) -> ibv_wc {
    let sender = view.sender();
    let mut wc_flags = if sender.has_grh() { IBV_WC_GRH } else { 0 };
    let mut imm_data = 0;
    if let Some(immediate) = view.immediate() {
        wc_flags |= IBV_WC_WITH_IMM;
        imm_data = immediate.to_be();
    } else if let Some(key) = view.invalidated() {
        wc_flags |= IBV_WC_WITH_INV;
        imm_data = key;
    }
    ibv_wc {
        wr_id,
        opcode: opcode(completed),
        byte_len: view.byte_len(),
        imm_data,
        qp_num: view.qpn(),
        src_qp: sender.qpn(),
        wc_flags,
        slid: sender.lid(),
        sl: sender.service_level(),
        ..ibv_wc::default()
    }
}

#[cold]
fn failed<V: View>(view: &V, wr_id: u64, failure: Failure) -> ibv_wc {
    ibv_wc {
        wr_id,
        status: status(failure.status),
        opcode: if view.is_recv() { IBV_WC_RECV } else { IBV_WC_SEND },
        vendor_err: failure.vendor_syndrome.into(),
        qp_num: view.qpn(),
        ..ibv_wc::default()
    }
}
