//! A raw packet as the device reads it: control segment, Ethernet segment, data. Devices before
//! ConnectX-5 want the packet's first 18 bytes in the Ethernet segment; later ones want none there,
//! and then it has no such place (rdma-core `qp.c`, `mlx5_send_wr_send_eth`).
//!
//! # Safety
//!
//! A WQE is written to a place of as many units as [`Packets::measure`] said. The packet's first
//! bytes are read where the caller says that they are, by atomic loads: others may have them, too.
#![allow(unsafe_code, reason = "writes segments into a ring, and reads what a post names")]

use std::sync::atomic::{AtomicU8, Ordering};

use uverbs_core::queues::work::{Checksums, Data, PostError, SendOp, Sge, Wr};
use uverbs_mlx5_prm::ctrl::{DS_BYTES, DS_MAX};
use uverbs_mlx5_prm::data::inline_bytes;
use uverbs_mlx5_prm::eth::{
    CsFlags, InlineHdrSz, MLX5_ETH_L2_INLINE_HEADER_SIZE, MLX5_ETH_L2_MIN_HEADER_SIZE,
    mlx5_wqe_eth_seg, mlx5_wqe_eth_seg_min,
};
use zerocopy::{IntoBytes, transmute};

use crate::Sq;
use crate::send::doorbell::Posted;
use crate::send::inline::{write_inline, write_inline_list};
use crate::send::queue::SendCursor;
use crate::send::wqe::{self, Room, Words};

/// Bytes of a header that a device wants inline.
const HEADER: usize = MLX5_ETH_L2_INLINE_HEADER_SIZE;

/// What a device has of raw packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packets {
    /// The first [`HEADER`] bytes go into the Ethernet segment.
    pub(crate) wants_header: bool,
    /// It fills in checksums.
    pub(crate) fills: bool,
}

impl Packets {
    /// Units of 16 bytes before the data: control and Ethernet segment.
    pub(crate) const fn head(self) -> u32 {
        if self.wants_header { 3 } else { 2 }
    }

    /// Bytes of the packet that aren't in the data segments.
    fn skipped(self) -> usize {
        if self.wants_header { HEADER } else { 0 }
    }

    /// The length of a packet's WQE in units of 16 bytes, or why it can't be posted.
    fn measure(self, data: &Data<'_>, room: Room) -> Result<u32, PostError> {
        let skipped = self.skipped();
        let (total, units) = match data {
            Data::Inline(bytes) => (bytes.len(), inline_units(bytes.len(), skipped, room)?),
            Data::InlineList(pieces) => {
                let total =
                    pieces.iter().fold(0, |sum: usize, piece| sum.saturating_add(piece.len()));
                (total, inline_units(total, skipped, room)?)
            }
            Data::One(sge) => measure_list(std::slice::from_ref(sge), skipped, room)?,
            Data::List(list) => measure_list(list, skipped, room)?,
        };
        if total < skipped.max(MLX5_ETH_L2_MIN_HEADER_SIZE) {
            return Err(PostError::ShortPacket);
        }
        Ok(self.head() + units)
    }
}

/// Units of what is left of `len` inline bytes.
fn inline_units(len: usize, skipped: usize, room: Room) -> Result<u32, PostError> {
    if len > room.max_inline as usize {
        return Err(PostError::InlineTooLong);
    }
    Ok(match len.saturating_sub(skipped) {
        0 => 0,
        left => (inline_bytes(left) / DS_BYTES) as u32,
    })
}

/// Bytes of a list, and units of what is left of it.
fn measure_list(list: &[Sge], skipped: usize, room: Room) -> Result<(usize, u32), PostError> {
    let (_, total) = wqe::measure_list(list, room.max_sge.max(1))?;
    Ok((total as usize, left_of(list, skipped).count() as u32))
}

/// What is left of a list behind its first `skip` bytes; no empty pieces.
fn left_of(list: &[Sge], skip: usize) -> impl Iterator<Item = Sge> {
    let mut skip = skip as u32;
    list.iter().filter_map(move |sge| {
        let part = skip.min(sge.len);
        skip -= part;
        let rest = Sge { addr: sge.addr.wrapping_add(part.into()), len: sge.len - part, ..*sge };
        (rest.len != 0).then_some(rest)
    })
}

/// The first bytes of a packet, zeros behind its end.
///
/// # Safety
///
/// The pieces of a list are at their addresses, and can be read by atomic loads.
unsafe fn header(data: &Data<'_>) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    let mut room = header.iter_mut();
    match data {
        Data::Inline(bytes) => room.zip(bytes.iter()).for_each(|(to, from)| *to = *from),
        Data::InlineList(pieces) => {
            room.zip(pieces.iter().flat_map(|piece| piece.iter()))
                .for_each(|(to, from)| *to = *from);
        }
        Data::One(sge) => {
            // SAFETY: contract of `header`.
            unsafe { read(sge, &mut room) };
        }
        Data::List(list) => {
            for sge in *list {
                // SAFETY: contract of `header`.
                unsafe { read(sge, &mut room) };
            }
        }
    }
    header
}

/// Reads a piece, as far as there is room.
///
/// # Safety
///
/// It is at its address, and can be read by atomic loads.
unsafe fn read<'a>(sge: &Sge, room: &mut impl Iterator<Item = &'a mut u8>) {
    let start = std::ptr::with_exposed_provenance_mut::<u8>(sge.addr as usize);
    for offset in 0..sge.len as usize {
        let Some(to) = room.next() else { return };
        // SAFETY: the caller's promise: within the piece. A byte is always aligned.
        *to = unsafe { AtomicU8::from_ptr(start.wrapping_add(offset)) }.load(Ordering::Relaxed);
    }
}

/// The Ethernet segment; without header its second part isn't written.
fn segment(checksums: Checksums, header: Option<&[u8; HEADER]>) -> [Words; 2] {
    let filled = checksums == Checksums::Filled;
    let flags = CsFlags::ZERO.with_l3(filled).with_l4(filled).0;
    match header {
        Some([a, b, rest @ ..]) => transmute!(mlx5_wqe_eth_seg {
            cs_flags: flags,
            inline_hdr_sz: InlineHdrSz::ZERO.with_size(HEADER as u16).0.into(),
            inline_hdr_start: [*a, *b],
            inline_hdr: *rest,
            ..Default::default()
        }),
        None => {
            let short = mlx5_wqe_eth_seg_min { cs_flags: flags, ..Default::default() };
            [transmute!(short), [0; 2]]
        }
    }
}

impl Sq {
    /// See [`SendOps::post_packet`](uverbs_core::provider::SendOps::post_packet).
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn packet_at(
        &mut self,
        mut at: SendCursor,
        wr: Wr,
        checksums: Checksums,
        data: Data<'_>,
    ) -> Result<(SendCursor, u32), PostError> {
        let Some(packets) = self.packets() else { return Err(PostError::BadOperation) };
        if checksums == Checksums::Filled && !packets.fills {
            return Err(PostError::BadOperation);
        }
        let ds = packets.measure(&data, self.room())?;
        let units = ds.div_ceil(wqe::DS_PER_UNIT);
        self.reserve(&mut at, units)?;
        // SAFETY: contract of `packet_at`.
        let header = packets.wants_header.then(|| unsafe { header(&data) });
        let ctrl = wqe::ctrl(&SendOp::Send, at.pi, self.qpn_ds(ds), wr.flags);
        let (ring, slots) = (self.ring_memory(), self.slots());
        let wraps = ring.wraps(at.pi, units);
        let mut aside = [[0u64; 2]; DS_MAX as usize];
        let to = ring.unit(at.pi);
        let place = if wraps { aside.as_mut_ptr().cast() } else { to };
        // SAFETY: `reserve` found room for what was measured, or it is room for the longest WQE.
        unsafe { write(place, ctrl, &segment(checksums, header.as_ref()), packets, &data) };
        if wraps {
            let bytes = aside.as_bytes().get(..ds as usize * DS_BYTES).unwrap_or_default();
            // SAFETY: `reserve` found the WQEBBs free, and it is no longer than the ring.
            unsafe { ring.copy_in(at.pi, bytes) };
        }
        let last = Posted { head: ctrl[0], at: to, first: at.pi, ds, units };
        // SAFETY: as above; this is the only poster.
        let slot = unsafe { Self::note(slots, &mut at, wr.id, last) };
        Ok((at, slot))
    }
}

/// Writes a packet's WQE in one piece.
///
/// # Safety
///
/// `to` is aligned to 8 bytes and valid to write as many units as were measured; nobody else reads
/// or writes them now.
unsafe fn write(to: *mut u8, ctrl: Words, segment: &[Words; 2], packets: Packets, data: &Data<'_>) {
    let skipped = packets.skipped();
    let mut at = to;
    let mut put = |words: Words| {
        // SAFETY: each unit was measured.
        unsafe { wqe::store(at, words) };
        at = at.wrapping_add(DS_BYTES);
    };
    put(ctrl);
    put(segment[0]);
    if packets.wants_header {
        put(segment[1]);
    }
    match data {
        Data::One(sge) => {
            left_of(std::slice::from_ref(sge), skipped).for_each(|sge| put(wqe::data_segment(&sge)))
        }
        Data::List(list) => {
            left_of(list, skipped).for_each(|sge| put(wqe::data_segment(&sge)));
        }
        Data::Inline(bytes) => {
            // SAFETY: header and bytes were measured, rounded up.
            unsafe { write_inline(at, bytes.get(skipped..).unwrap_or_default()) };
        }
        Data::InlineList(pieces) => {
            // SAFETY: as above.
            unsafe { write_inline_list(at, pieces, skipped) };
        }
    }
}
