//! Raw access, for research: addresses of rings, records and registers, WQEs by hand,
//! and a printer.
//!
//! # Safety
//!
//! Addresses are returned as raw pointers, and the caller vouches for their use. Printing copies a
//! WQE first, and reads only bytes of the ring.
#![allow(unsafe_code, reason = "hands out raw addresses, and writes WQEs that the caller composed")]

use std::fmt::Write;

use uverbs_core::queues::work::{PostError, Wr};
use uverbs_mlx5_prm::ctrl::{DS_BYTES, DS_MAX, MLX5_SEND_WQE_BB, OpmodIdxOpcode, QpnDs};
use uverbs_mlx5_prm::print::CqeView;
use uverbs_mlx5_prm::wqe::{RecvKind, RecvView, WqeView};

use zerocopy::FromBytes;
use zerocopy::byteorder::big_endian::U32;

use crate::send::queue::SendCursor;
use crate::send::wqe;
use crate::{Ah, Cq, Rq, Sq, Srq};

/// Addresses of a send queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_qp")]
#[non_exhaustive]
pub struct SqRaw {
    /// First byte of the ring.
    pub buf: *mut u8,
    /// Size of the ring in bytes.
    pub bytes: usize,
    /// Size of a WQEBB in bytes.
    pub stride: usize,
    /// The doorbell record; the send counter is its second word.
    pub dbrec: *mut u32,
    /// Address of the next doorbell. The halves of a BlueFlame register alternate.
    pub uar: *mut u64,
    /// First byte of the register.
    pub register: *mut u8,
    /// Size of a BlueFlame register's half in bytes; 0 for a plain doorbell register.
    pub register_bytes: usize,
    /// Offset at which the device's file maps the register's page.
    pub page_offset: u64,
    /// QP number.
    pub qpn: u32,
    /// User index that completions carry.
    pub user_index: u32,
    /// Published producer index in WQEBBs, free running.
    pub producer: u32,
}

/// Addresses of a receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_qp")]
#[non_exhaustive]
pub struct RqRaw {
    /// First byte of the ring.
    pub buf: *mut u8,
    /// Size of the ring in bytes.
    pub bytes: usize,
    /// Size of a WQE in bytes.
    pub stride: usize,
    /// The doorbell record; the receive counter is its first word.
    pub dbrec: *mut u32,
    /// QP number.
    pub qpn: u32,
    /// Published producer index in WQEs, free running.
    pub producer: u32,
}

/// Addresses of a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_srq")]
#[non_exhaustive]
pub struct SrqRaw {
    /// First byte of the ring.
    pub buf: *mut u8,
    /// Size of the ring in bytes.
    pub bytes: usize,
    /// Size of a WQE in bytes.
    pub stride: usize,
    /// The doorbell record; the counter is its first word.
    pub dbrec: *mut u32,
    /// Number of the queue.
    pub srqn: u32,
    /// Index of the next WQE to post.
    pub head: u32,
    /// Number of published WQEs, free running.
    pub counter: u32,
}

/// Addresses of a completion queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_cq")]
#[non_exhaustive]
pub struct CqRaw {
    /// First byte of the ring.
    pub buf: *mut u8,
    /// Size of the ring in bytes.
    pub bytes: usize,
    /// Size of a CQE in bytes.
    pub stride: usize,
    /// The doorbell record; the consumer index is its first word.
    pub dbrec: *mut u32,
    /// Register that arms it: 32 bytes into its doorbell page.
    pub arm: *mut u64,
    /// Number of the queue.
    pub cqn: u32,
    /// Consumer index, free running, possibly unpublished.
    pub consumer: u32,
}

/// Length of the WQE that begins with `head`, by its control segment.
#[must_use]
pub fn wqe_len(head: [u8; 8]) -> usize {
    let [.., ds] = head;
    usize::from(QpnDs(ds.into()).ds()) * DS_BYTES
}

/// Prints bytes in rows of sixteen, with offsets.
fn hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for (row, bytes) in bytes.chunks(16).enumerate() {
        let _ = write!(text, "\n  {:#05x}", row * 16);
        for byte in bytes {
            let _ = write!(text, " {byte:02x}");
        }
    }
    text
}

impl Sq {
    /// Notes that the program writes WQEs into the ring itself. Their completions then have the
    /// work request number 0, where they would count as strays.
    pub fn expect_own_wqes(&self) {
        self.shared().send.expect_unrecorded();
    }

    /// Returns addresses and indexes. The pointers are valid while the queue lives.
    #[must_use]
    pub fn raw_parts(&self) -> SqRaw {
        let (register, register_bytes) = self.blue_flame();
        SqRaw {
            buf: self.ring_memory().start,
            bytes: self.units() as usize * MLX5_SEND_WQE_BB,
            stride: MLX5_SEND_WQE_BB,
            dbrec: self.record(),
            uar: self.register(),
            register,
            register_bytes,
            page_offset: self.page_offset(),
            qpn: self.qpn(),
            user_index: self.shared().user_index.value(),
            producer: self.producer(),
        }
    }

    /// Writes a WQE that consists of a control segment and the caller's segments, and advances the
    /// cursor. Returns the slot. [`ring`](uverbs_core::provider::SendOps::ring) publishes it.
    ///
    /// # Errors
    ///
    /// [`PostError::Full`], [`PostError::State`]; [`PostError::MessageTooLong`] for more than 62
    /// segments, or more than the ring.
    ///
    /// # Safety
    ///
    /// As for [`post`](uverbs_core::provider::SendOps::post), and the caller vouches for everything
    /// that the segments make the device do: accesses to the memory that they name, and changes of
    /// keys, also later accesses through those keys.
    pub unsafe fn post_segments(
        &mut self,
        at: &mut SendCursor,
        wr: Wr,
        (opcode, opmod): (u8, u8),
        imm: u32,
        segments: &[[u8; DS_BYTES]],
    ) -> Result<u32, PostError> {
        if segments.len() >= usize::from(DS_MAX) {
            return Err(PostError::MessageTooLong);
        }
        let ds = segments.len() as u32 + 1;
        let units = ds.div_ceil(wqe::DS_PER_UNIT);
        self.reserve(at, units)?;
        let ctrl = wqe::raw_ctrl(opcode, opmod, at.pi(), self.qpn_ds(ds), wr.flags, imm);
        let mut bytes = [[0; DS_BYTES]; DS_MAX as usize];
        for (to, from) in
            bytes.iter_mut().zip([zerocopy::transmute_ref!(&ctrl)].into_iter().chain(segments))
        {
            *to = *from;
        }
        let bytes = bytes.as_flattened().get(..ds as usize * DS_BYTES).unwrap_or_default();
        // SAFETY: `reserve` found room for `ds` units that the device does not own, so they fit the
        // ring.
        unsafe { self.ring_memory().copy_in(at.pi(), 0, bytes) };
        // SAFETY: `reserve` found the WQEBBs free; this is the only poster.
        Ok(unsafe { self.note(at, wr.id, (ds, units)) })
    }

    /// Writes the caller's WQE, including its control segment, and advances the cursor. Returns its
    /// index modulo 65536, by which its completion names it ([`View::send_index`]). Only the index
    /// in the WQE is filled in; the caller decides whether it is signaled.
    /// [`ring`](uverbs_core::provider::SendOps::ring) publishes it.
    ///
    /// [`View::send_index`]: uverbs_core::provider::View::send_index
    ///
    /// # Errors
    ///
    /// [`PostError::BadData`] for a WQE that is shorter than its control segment says, or whose
    /// length is 0; [`PostError::Full`], [`PostError::State`].
    ///
    /// # Safety
    ///
    /// As for [`post_segments`](Self::post_segments), and its control segment names this queue
    /// pair.
    #[doc(alias = "mlx5dv_wr_raw_wqe")]
    pub unsafe fn post_wqe(
        &mut self,
        at: &mut SendCursor,
        wr_id: u64,
        wqe: &[u8],
    ) -> Result<u16, PostError> {
        let Ok(([word0, word1], _)) = <[U32; 2]>::read_from_prefix(wqe) else {
            return Err(PostError::BadData);
        };
        let ds = u32::from(QpnDs(word1.get()).ds());
        let len = ds as usize * DS_BYTES;
        let mut bytes = [0; DS_MAX as usize * DS_BYTES];
        let (1.., Some(wqe), Some(bytes)) = (ds, wqe.get(..len), bytes.get_mut(..len)) else {
            return Err(PostError::BadData);
        };
        let units = ds.div_ceil(wqe::DS_PER_UNIT);
        self.reserve(at, units)?;
        let index = at.pi() as u16;
        let head = wqe::pair(OpmodIdxOpcode(word0.get()).with_wqe_index(index).0, word1.get());
        bytes.copy_from_slice(wqe);
        bytes[..size_of::<u64>()].copy_from_slice(&head.to_ne_bytes());
        // SAFETY: `reserve` found room for `ds` units that the device does not own.
        unsafe { self.ring_memory().copy_in(at.pi(), 0, bytes) };
        // SAFETY: `reserve` found the WQEBBs free; this is the only poster.
        unsafe { self.note(at, wr_id, (ds, units)) };
        Ok(index)
    }

    /// Prints the fields of the WQE that begins at a WQEBB. `index` is taken modulo the ring. A
    /// WQEBB without a valid WQE prints as bytes.
    #[must_use]
    pub fn dump(&self, index: u32) -> String {
        if self.units() == 0 {
            return "no send queue".to_owned();
        }
        let mut bytes = [0; DS_MAX as usize * DS_BYTES];
        // SAFETY: this queue keeps the ring, and its poster, the only writer, is borrowed.
        let bytes = unsafe { self.ring_memory().copy_out(index, &mut bytes) };
        match WqeView::parse(bytes, self.service()) {
            Ok(wqe) => wqe.to_string(),
            Err(error) => {
                let first = bytes.get(..MLX5_SEND_WQE_BB).unwrap_or_default();
                format!("not a WQE: {error}{}", hex(first))
            }
        }
    }
}

impl Rq {
    /// Returns addresses and indexes. The pointers are valid while the queue lives.
    #[must_use]
    pub fn raw_parts(&self) -> RqRaw {
        RqRaw {
            buf: self.start(),
            bytes: self.entries() as usize * self.stride(),
            stride: self.stride(),
            dbrec: self.record(),
            qpn: self.qpn(),
            producer: self.producer(),
        }
    }

    /// Prints the fields of a receive WQE. `index` is taken modulo the ring.
    #[must_use]
    pub fn dump(&self, index: u32) -> String {
        if self.entries() == 0 {
            return "no receive queue".to_owned();
        }
        let mut bytes = vec![0; self.stride()];
        // SAFETY: a whole WQE of the ring, which this queue keeps and whose only writer is
        // borrowed.
        unsafe {
            std::ptr::copy_nonoverlapping(self.entry(index), bytes.as_mut_ptr(), bytes.len());
        }
        receive(&bytes, RecvKind::Rq)
    }
}

/// Prints a receive WQE.
fn receive(bytes: &[u8], kind: RecvKind) -> String {
    match RecvView::parse(bytes, kind) {
        Ok(wqe) => wqe.to_string(),
        Err(error) => format!("not a receive: {error}{}", hex(bytes)),
    }
}

impl Srq {
    /// Returns addresses and indexes. The pointers are valid while the queue lives.
    #[must_use]
    pub fn raw_parts(&self) -> SrqRaw {
        SrqRaw {
            buf: self.entry(0),
            bytes: self.entries() as usize * self.stride(),
            stride: self.stride(),
            dbrec: self.record(),
            srqn: self.srqn(),
            head: self.head(),
            counter: self.counter(),
        }
    }

    /// Prints the fields of a WQE. `index` is taken modulo the ring.
    #[must_use]
    pub fn dump(&self, index: u32) -> String {
        let mut bytes = vec![0; self.stride()];
        let from = self.entry(index & (self.entries() - 1));
        // SAFETY: a whole WQE of the ring, which this queue keeps and whose only writer is
        // borrowed.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len()) };
        receive(&bytes, RecvKind::Srq)
    }
}

impl Ah {
    /// Address of the 48 bytes of the address vector, as in a WQE but without queue pair and Q_Key.
    /// Valid while the handle is not moved.
    #[must_use]
    #[doc(alias = "mlx5dv_ah")]
    pub fn raw_vector(&self) -> *const u8 {
        self.template().as_ptr().cast()
    }
}

impl Cq {
    /// Returns addresses and indexes. The pointers are valid while the queue's core lives.
    #[must_use]
    pub fn raw_parts(&self) -> CqRaw {
        CqRaw {
            buf: self.ring_start(),
            bytes: self.entries() as usize * self.stride(),
            stride: self.stride(),
            dbrec: self.record(),
            arm: self.arm_register(),
            cqn: self.core().cqn(),
            consumer: self.consumer(),
        }
    }

    /// Prints the fields of a CQE, whether software or the device owns it. `index` is taken modulo
    /// the ring. If the device writes it meanwhile, the result mixes old and new bytes.
    #[must_use]
    pub fn dump(&self, index: u32) -> String {
        CqeView::new(&self.entry(index).copy()).to_string()
    }
}
