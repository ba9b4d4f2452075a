//! Raw access, for research: addresses of rings, records and registers, WQEs by hand,
//! and a printer.
//!
//! # Safety
//!
//! Addresses are handed out as raw pointers; what is done with them is the caller's to answer for.
//! Printing copies a slot first, and reads only what lies in the ring.
#![allow(unsafe_code, reason = "hands out raw addresses, and writes WQEs that the caller composed")]

use std::fmt::Write;

use uverbs_core::queues::work::{PostError, Wr};
use uverbs_mlx5_prm::ctrl::{DS_BYTES, DS_MAX, MLX5_SEND_WQE_BB, OpmodIdxOpcode, QpnDs};
use uverbs_mlx5_prm::print::CqeView;
use uverbs_mlx5_prm::wqe::{RecvKind, RecvView, WqeView};

use zerocopy::FromBytes;
use zerocopy::byteorder::big_endian::U32;

use crate::Ah;
use crate::Cq;
use crate::Rq;
use crate::Sq;
use crate::Srq;
use crate::send::doorbell::Posted;
use crate::send::queue::SendCursor;
use crate::send::wqe;

/// Where a send queue lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_qp")]
#[non_exhaustive]
pub struct SqRaw {
    /// First byte of the ring.
    pub buf: *mut u8,
    /// Bytes of the ring.
    pub bytes: usize,
    /// Bytes of a WQEBB.
    pub stride: usize,
    /// The doorbell record; the send counter is its second word.
    pub dbrec: *mut u32,
    /// Where the next doorbell goes. A BlueFlame register's halves take turns.
    pub uar: *mut u64,
    /// First byte of the register.
    pub register: *mut u8,
    /// Bytes of a BlueFlame register's half; 0 of a register for plain doorbells.
    pub register_bytes: usize,
    /// The queue pair's number.
    pub qpn: u32,
    /// What completions name the queue pair by.
    pub user_index: u32,
    /// Published producer index in WQEBBs, free running.
    pub producer: u32,
}

/// Where a receive queue lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_qp")]
#[non_exhaustive]
pub struct RqRaw {
    /// First byte of the ring.
    pub buf: *mut u8,
    /// Bytes of the ring.
    pub bytes: usize,
    /// Bytes of a WQE.
    pub stride: usize,
    /// The doorbell record; the receive counter is its first word.
    pub dbrec: *mut u32,
    /// The queue pair's number.
    pub qpn: u32,
    /// Published producer index in WQEs, free running.
    pub producer: u32,
}

/// Where a shared receive queue lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_srq")]
#[non_exhaustive]
pub struct SrqRaw {
    /// First byte of the ring.
    pub buf: *mut u8,
    /// Bytes of the ring.
    pub bytes: usize,
    /// Bytes of a WQE.
    pub stride: usize,
    /// The doorbell record; the counter is its first word.
    pub dbrec: *mut u32,
    /// The queue's number.
    pub srqn: u32,
    /// The WQE to be posted next.
    pub head: u32,
    /// WQEs published, free running.
    pub counter: u32,
}

/// Where a completion queue lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(alias = "mlx5dv_cq")]
#[non_exhaustive]
pub struct CqRaw {
    /// First byte of the ring.
    pub buf: *mut u8,
    /// Bytes of the ring.
    pub bytes: usize,
    /// Bytes of an entry.
    pub stride: usize,
    /// The doorbell record; the consumer index is its first word.
    pub dbrec: *mut u32,
    /// Where it is armed: 32 bytes into its doorbell page.
    pub arm: *mut u64,
    /// The queue's number.
    pub cqn: u32,
    /// Consumer index, free running; it may not be published yet.
    pub consumer: u32,
}

/// Bytes of the WQE that begins with these, as its control segment says.
#[must_use]
pub fn wqe_len(head: [u8; 8]) -> usize {
    let [.., ds] = head;
    usize::from(QpnDs(ds.into()).ds()) * DS_BYTES
}

/// Bytes sixteen in a row, with their offset.
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
    /// Addresses and indexes. The pointers are valid while the queue lives.
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
            qpn: self.qpn(),
            user_index: self.shared().user_index.value(),
            producer: self.producer(),
        }
    }

    /// Writes a WQE of the caller's segments behind a control segment that this makes, and moves
    /// the cursor. Returns the slot. It is published by
    /// [`ring`](uverbs_core::provider::SendOps::ring), as others are.
    ///
    /// # Errors
    ///
    /// [`PostError::Full`], [`PostError::State`]; [`PostError::MessageTooLong`] for more than 62
    /// segments, or more than the ring.
    ///
    /// # Safety
    ///
    /// As for [`post`](uverbs_core::provider::SendOps::post), and the device will do what the
    /// segments say: with memory that they name, with keys that they change, and for ever with
    /// those.
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
        let ctrl = wqe::raw_ctrl(opcode, opmod, at.pi, self.qpn_ds(ds), wr.flags, imm);
        let mut bytes = [[0; DS_BYTES]; DS_MAX as usize];
        for (to, from) in
            bytes.iter_mut().zip([zerocopy::transmute_ref!(&ctrl)].into_iter().chain(segments))
        {
            *to = *from;
        }
        let bytes = bytes.as_flattened().get(..ds as usize * DS_BYTES).unwrap_or_default();
        // SAFETY: `reserve` found room for `ds` units, none of them the device's, so they are no
        // more than the ring.
        unsafe { self.ring_memory().copy_in(at.pi, bytes) };
        let to = self.ring_memory().unit(at.pi);
        let last = Posted { head: ctrl[0], at: to, first: at.pi, ds, units };
        // SAFETY: `reserve` found the WQEBBs free; this is the only poster.
        Ok(unsafe { Self::note(self.slots(), at, wr.id, last) })
    }

    /// Writes a WQE of the caller's, control segment and all, and moves the cursor. Returns its
    /// index modulo 65536, by which its completion names it ([`View::send_index`]). The index in
    /// the WQE is filled in; all else stays, also whether it completes. It is published by
    /// [`ring`](uverbs_core::provider::SendOps::ring), as others are.
    ///
    /// [`View::send_index`]: uverbs_core::provider::View::send_index
    ///
    /// # Errors
    ///
    /// [`PostError::BadData`] of one that is shorter than its control segment says, or says nothing
    /// of its length; [`PostError::Full`], [`PostError::State`].
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
        let index = at.pi as u16;
        let head = wqe::pair(OpmodIdxOpcode(word0.get()).with_wqe_index(index).0, word1.get());
        bytes.copy_from_slice(wqe);
        bytes[..size_of::<u64>()].copy_from_slice(&head.to_ne_bytes());
        // SAFETY: `reserve` found room for `ds` units, none of them the device's.
        unsafe { self.ring_memory().copy_in(at.pi, bytes) };
        let last = Posted { head, at: self.ring_memory().unit(at.pi), first: at.pi, ds, units };
        // SAFETY: `reserve` found the WQEBBs free; this is the only poster.
        unsafe { Self::note(self.slots(), at, wr_id, last) };
        Ok(index)
    }

    /// The WQE that begins at a WQEBB, field by field. `index` is taken modulo the ring. What was
    /// never a WQE's beginning prints as bytes.
    #[must_use]
    pub fn dump(&self, index: u32) -> String {
        if self.units() == 0 {
            return "no send queue".to_owned();
        }
        let mut bytes = [0; DS_MAX as usize * DS_BYTES];
        // SAFETY: the ring is kept by this queue, whose poster is the only one to write it and is
        // borrowed.
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
    /// Addresses and indexes. The pointers are valid while the queue lives.
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

    /// A receive WQE, field by field. `index` is taken modulo the ring.
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

/// A receive WQE in words.
fn receive(bytes: &[u8], kind: RecvKind) -> String {
    match RecvView::parse(bytes, kind) {
        Ok(wqe) => wqe.to_string(),
        Err(error) => format!("not a receive: {error}{}", hex(bytes)),
    }
}

impl Srq {
    /// Addresses and indexes. The pointers are valid while the queue lives.
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

    /// A WQE, field by field. `index` is taken modulo the ring.
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
    /// The vector's first byte: 48 bytes as they stand in a WQE, but for queue pair and key. Valid
    /// while the handle stays where it is.
    #[must_use]
    #[doc(alias = "mlx5dv_ah")]
    pub fn raw_vector(&self) -> *const u8 {
        self.template().as_ptr().cast()
    }
}

impl Cq {
    /// Addresses and indexes. The pointers are valid while the queue's core lives.
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

    /// An entry, field by field, whoever owns it. `index` is taken modulo the ring. The device may
    /// write it meanwhile: then some bytes are new and some are old.
    #[must_use]
    pub fn dump(&self, index: u32) -> String {
        CqeView::new(&self.entry(index).copy()).to_string()
    }
}
