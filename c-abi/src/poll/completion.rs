//! Converts completions to `ibv_wc`.
//!
//! # Safety
//!
//! `ibv_wc` is written by pointer; its validity is a condition of each `unsafe fn`.
#![allow(unsafe_code, reason = "writes C's struct by pointer")]

use std::mem::offset_of;

use uverbs_core::provider::{Decoded, View};
use uverbs_core::queues::completion::{Completed, Failure, Sender, Status};
use uverbs_core::queues::tag_work::TagInfo;

use crate::sys::{
    IBV_WC_ATOMIC_WRITE, IBV_WC_BIND_MW, IBV_WC_COMP_SWAP, IBV_WC_DRIVER1, IBV_WC_DRIVER3,
    IBV_WC_FETCH_ADD, IBV_WC_FLUSH, IBV_WC_GRH, IBV_WC_LOCAL_INV, IBV_WC_RDMA_READ,
    IBV_WC_RDMA_WRITE, IBV_WC_RECV, IBV_WC_RECV_RDMA_WITH_IMM, IBV_WC_SEND, IBV_WC_SUCCESS,
    IBV_WC_TM_ADD, IBV_WC_TM_DATA_VALID, IBV_WC_TM_DEL, IBV_WC_TM_MATCH, IBV_WC_TM_NO_TAG,
    IBV_WC_TM_RECV, IBV_WC_TM_SYNC, IBV_WC_TM_SYNC_REQ, IBV_WC_WITH_IMM, IBV_WC_WITH_INV, ibv_wc,
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
        Status::RemoteInvalidRdRequest => 15,
        Status::RemoteAborted => 16,
        Status::ResponseTimeout => 20,
        Status::TagNotFound => 22,
        Status::RendezvousIncomplete => 23,
        _ => 21,
    }
}

/// Opcode and `wc_flags` of mlx5's sends, by the opcode of the WQE: one table in place of two.
static SENT: [[u8; 2]; 256] = {
    const { assert!(IBV_WC_WITH_IMM < 1 << 8) };
    const { assert!(IBV_WC_DRIVER3 < 1 << 8) };
    let mut all = [[0; 2]; 256];
    let mut at = 0;
    while at < all.len() {
        let (completed, immediate) = uverbs_mlx5::sent(at as u8);
        let flags = if immediate { IBV_WC_WITH_IMM as u8 } else { 0 };
        all[at] = [opcode(completed) as u8, flags];
        at += 1;
    }
    all
};

const fn opcode(completed: Completed) -> u32 {
    match completed {
        Completed::Send => IBV_WC_SEND,
        Completed::Write => IBV_WC_RDMA_WRITE,
        Completed::Read => IBV_WC_RDMA_READ,
        Completed::CompareSwap => IBV_WC_COMP_SWAP,
        Completed::FetchAdd => IBV_WC_FETCH_ADD,
        // A ConnectX completes all key operations with one opcode; see `sent_kinds.rs`.
        Completed::Rekey => IBV_WC_BIND_MW,
        Completed::Flush => IBV_WC_FLUSH,
        Completed::AtomicWrite => IBV_WC_ATOMIC_WRITE,
        Completed::Recv => IBV_WC_RECV,
        Completed::RecvWriteImm => IBV_WC_RECV_RDMA_WITH_IMM,
        Completed::Copy => IBV_WC_DRIVER3,
        _ => IBV_WC_DRIVER1,
    }
}

/// Joins two adjacent members into the word that holds them.
#[inline(always)]
fn both(first: u32, second: u32) -> u64 {
    const { assert!(cfg!(target_endian = "little")) };
    u64::from(first) | u64::from(second) << 32
}

/// `ibv_wc` flag and `imm_data` of immediate data or an invalidated key.
#[inline(always)]
fn along(immediate: Option<u32>, invalidated: Option<u32>) -> (u32, u32) {
    match (immediate, invalidated) {
        (Some(immediate), _) => (IBV_WC_WITH_IMM, immediate.to_be()),
        (_, Some(key)) => (IBV_WC_WITH_INV, key),
        _ => (0, 0),
    }
}

#[inline(always)]
fn grh(sender: Sender) -> u32 {
    if sender.has_grh() { IBV_WC_GRH } else { 0 }
}

/// Members of a completion on the fast path.
#[derive(Clone, Copy, Default)]
pub(crate) struct Plain {
    pub(crate) opcode: u32,
    pub(crate) byte_len: u32,
    /// Immediate data or an invalidated key, as in `ibv_wc`.
    pub(crate) imm_data: u32,
    /// `IBV_WC_WITH_IMM` or `IBV_WC_WITH_INV`, by the content of `imm_data`. [`IBV_WC_GRH`] comes
    /// from `sender`.
    pub(crate) flags: u32,
    pub(crate) qpn: u32,
    /// Sender and path bits: receives only.
    pub(crate) sender: Sender,
    pub(crate) path_bits: u8,
}

/// Members of `ibv_wc` that an extended queue's functions do not read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Besides {
    /// [`IBV_WC_WITH_IMM`] of a send (rdma-core `cq.c:handle_good_req`).
    flags: u32,
    /// P_Key index: receives only.
    pkey_index: u16,
}

impl Plain {
    /// `None` for a failure and for tag-matching completions; [`rare`] converts these.
    #[inline(always)]
    pub(crate) fn of<V: View>(view: &V) -> Option<(Self, Besides)> {
        let decoded = view.decode();
        let Decoded { result, is_recv, byte_len, immediate, invalidated, .. } = decoded;
        let Decoded { qpn, sender, .. } = decoded;
        if let Some(sent) = view.sent_opcode() {
            let [opcode, flags] = SENT[usize::from(sent)].map(u32::from);
            let plain = Self { opcode, byte_len, qpn, ..Self::default() };
            return Some((plain, Besides { flags, pkey_index: 0 }));
        }
        let completed = result.ok()?;
        let opcode = match view.is_local_invalidation() {
            true => IBV_WC_LOCAL_INV,
            false if completed == Completed::Read && view.shows_reads_as_sends() => IBV_WC_SEND,
            false => opcode(completed),
        };
        if !is_recv {
            let flags = if view.sent_immediate() { IBV_WC_WITH_IMM } else { 0 };
            let plain = Self { opcode, byte_len, qpn, ..Self::default() };
            return Some((plain, Besides { flags, pkey_index: 0 }));
        }
        if !matches!(completed, Completed::Recv | Completed::RecvWriteImm) {
            return None;
        }
        let (flags, imm_data) = along(immediate, invalidated);
        let path_bits = view.path_bits();
        let besides = Besides { flags: 0, pkey_index: view.pkey_index() };
        Some((Self { opcode, byte_len, imm_data, flags, qpn, sender, path_bits }, besides))
    }

    #[inline(always)]
    pub(crate) fn wc_flags(&self) -> u32 {
        self.flags | grh(self.sender)
    }
}

/// Writes a completion by six stores. A struct built first and copied would wait for its parts.
///
/// # Safety
///
/// `to` is valid to write.
#[inline(always)]
pub(crate) unsafe fn write<V: View>(to: *mut ibv_wc, view: &V, wr_id: u64) {
    // The number comes first: it then takes no register while the rest is decoded.
    // SAFETY: by the contract of `write`; the layout is asserted in `put`.
    unsafe { to.cast::<u64>().write(wr_id) };
    let Some((plain, besides)) = Plain::of(view) else {
        // SAFETY: by the contract of `write`.
        return unsafe { to.write(rare(view, wr_id)) };
    };
    let Plain { opcode, byte_len, imm_data, qpn, sender, path_bits, .. } = plain;
    let kind = both(IBV_WC_SUCCESS, opcode);
    let level = u32::from(sender.service_level()) | u32::from(path_bits) << 8;
    let from = both(u32::from(sender.lid()) << 16 | u32::from(besides.pkey_index), level);
    let sent = both(sender.qpn(), plain.wc_flags() | besides.flags);
    // SAFETY: by the contract of `write`.
    unsafe { put(to, [kind, both(0, byte_len), both(imm_data, qpn), sent, from]) };
}

/// Stores the words of a completion behind its number.
///
/// # Safety
///
/// `to` is valid to write.
#[inline(always)]
unsafe fn put(to: *mut ibv_wc, words: [u64; 5]) {
    const {
        assert!(offset_of!(ibv_wc, wr_id) == 0);
        assert!(size_of::<ibv_wc>() == 48 && align_of::<ibv_wc>() == align_of::<u64>());
        assert!(offset_of!(ibv_wc, status) == 8 && offset_of!(ibv_wc, opcode) == 12);
        assert!(offset_of!(ibv_wc, vendor_err) == 16 && offset_of!(ibv_wc, byte_len) == 20);
        assert!(offset_of!(ibv_wc, imm_data) == 24 && offset_of!(ibv_wc, qp_num) == 28);
        assert!(offset_of!(ibv_wc, src_qp) == 32 && offset_of!(ibv_wc, wc_flags) == 36);
        assert!(offset_of!(ibv_wc, pkey_index) == 40);
        assert!(offset_of!(ibv_wc, slid) == 42 && offset_of!(ibv_wc, sl) == 44);
        assert!(offset_of!(ibv_wc, dlid_path_bits) == 45);
    }
    let to: *mut u64 = to.cast();
    for (at, word) in words.into_iter().enumerate() {
        // SAFETY: within `ibv_wc`, whose size and alignment are asserted above.
        unsafe { to.add(1 + at).write(word) };
    }
}

/// Converts a completion that is not [`Plain`].
#[cold]
#[inline(never)]
pub(crate) fn rare<V: View>(view: &V, wr_id: u64) -> ibv_wc {
    match view.result() {
        Ok(completed) => tagged(view, wr_id, completed),
        Err(failure) => failed(view, wr_id, failure),
    }
}

fn failed<V: View>(view: &V, wr_id: u64, failure: Failure) -> ibv_wc {
    let opcode = if view.is_recv() { IBV_WC_RECV } else { IBV_WC_SEND };
    let (opcode, wc_flags, byte_len) = match view.tag_info() {
        Some(info) => failed_of_tags(failure.status, info, view.byte_len()),
        None => (opcode, 0, 0),
    };
    ibv_wc {
        wr_id,
        status: status(failure.status),
        opcode,
        vendor_err: failure.vendor_syndrome.into(),
        byte_len,
        qp_num: view.qpn(),
        wc_flags,
        ..ibv_wc::default()
    }
}

/// Converts a successful tag-matching completion.
fn tagged<V: View>(view: &V, wr_id: u64, completed: Completed) -> ibv_wc {
    let (opcode, flags) = of_tags(completed, view.tag_info().unwrap_or_default());
    let (imm, imm_data) = along(view.immediate(), view.invalidated());
    ibv_wc {
        wr_id,
        opcode,
        byte_len: view.byte_len(),
        imm_data,
        qp_num: view.qpn(),
        src_qp: view.sender().qpn(),
        wc_flags: flags | grh(view.sender()) | imm,
        pkey_index: view.pkey_index(),
        slid: view.sender().lid(),
        sl: view.sender().service_level(),
        dlid_path_bits: view.path_bits(),
        ..ibv_wc::default()
    }
}

/// Opcode and flags of a successful tag-matching completion (rdma-core
/// `cq.c:mlx5_cq_read_wc_opcode`, `mlx5_cq_read_wc_flags`).
fn of_tags(completed: Completed, info: TagInfo) -> (u32, u32) {
    let (opcode, flags) = match completed {
        Completed::TagAdded => (IBV_WC_TM_ADD, 0),
        Completed::TagRemoved => (IBV_WC_TM_DEL, 0),
        Completed::TagsSynced => (IBV_WC_TM_SYNC, 0),
        Completed::TagFound => (IBV_WC_TM_RECV, IBV_WC_TM_MATCH),
        // Only the first completion of a message has the header.
        Completed::TagRecv if info.header.is_none() => (IBV_WC_TM_RECV, IBV_WC_TM_DATA_VALID),
        Completed::TagRecv => (IBV_WC_TM_RECV, IBV_WC_TM_MATCH | IBV_WC_TM_DATA_VALID),
        Completed::RecvUnexpected => (IBV_WC_TM_RECV, 0),
        _ => (IBV_WC_TM_NO_TAG, 0),
    };
    (opcode, flags | if info.wants_sync { IBV_WC_TM_SYNC_REQ } else { 0 })
}

/// Opcode, flags and bytes of a failed tag-matching completion. A canceled message has the opcode
/// of an untagged receive.
fn failed_of_tags(status: Status, info: TagInfo, byte_len: u32) -> (u32, u32, u32) {
    let sync = if info.wants_sync { IBV_WC_TM_SYNC_REQ } else { 0 };
    if status != Status::RendezvousIncomplete {
        return (IBV_WC_TM_DEL, sync, byte_len);
    }
    let opcode = if info.header.is_some() { IBV_WC_TM_RECV } else { IBV_WC_RECV };
    let is_first = info.header.is_some() && byte_len == 0;
    let there = if is_first { 0 } else { IBV_WC_TM_DATA_VALID };
    (opcode, IBV_WC_TM_MATCH | there | sync, byte_len)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Completion of a key operation.
    #[derive(Clone, Copy, Debug)]
    struct KeyOperation {
        is_local_invalidation: bool,
    }

    impl View for KeyOperation {
        fn result(&self) -> Result<Completed, Failure> {
            Ok(Completed::Rekey)
        }

        fn is_recv(&self) -> bool {
            false
        }

        fn byte_len(&self) -> u32 {
            0
        }

        fn immediate(&self) -> Option<u32> {
            None
        }

        fn timestamp(&self) -> Option<u64> {
            None
        }

        fn invalidated(&self) -> Option<u32> {
            None
        }

        fn qpn(&self) -> u32 {
            17
        }

        fn is_local_invalidation(&self) -> bool {
            self.is_local_invalidation
        }

        fn sender(&self) -> Sender {
            Sender::default()
        }
    }

    /// As librxe, for `ibv_poll_cq` and for the functions of an extended queue.
    #[test]
    fn a_local_invalidation_has_its_own_opcode() {
        for (is_local_invalidation, opcode) in [(false, 5), (true, 6)] {
            let view = KeyOperation { is_local_invalidation };
            let mut wc = ibv_wc::default();
            // SAFETY: `wc` is a local variable.
            unsafe { write(&raw mut wc, &view, 3) };
            assert_eq!((wc.wr_id, wc.status, wc.opcode, wc.qp_num), (3, 0, opcode, 17));
            let shown = Plain::of(&view).map(|(plain, _)| plain.opcode);
            assert_eq!(shown, Some(opcode));
        }
    }
}
