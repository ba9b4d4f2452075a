//! WQEs of raw packets: control segment, Ethernet segment, data. Devices before ConnectX-5 need the
//! packet's first 18 bytes in the Ethernet segment. Later devices don't, and the segment is then
//! shorter (rdma-core `qp.c`, `mlx5_send_wr_send_eth`).
//!
//! # Safety
//!
//! A WQE is written to a place with the units that [`Packets::measure`] returned. The packet's
//! first bytes are read at the addresses of its SGEs, by atomic loads, because other threads may
//! write them.
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
use crate::send::inline::{write_inline, write_inline_list};
use crate::send::queue::SendCursor;
use crate::send::wqe::{self, Words, WqeLimits};

/// Bytes of the packet header that some devices need inline.
const HEADER: usize = MLX5_ETH_L2_INLINE_HEADER_SIZE;

/// Raw packet properties of a device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Packets {
    /// The device needs the first [`HEADER`] bytes in the Ethernet segment.
    pub(crate) wants_header: bool,
    /// The device can compute checksums.
    pub(crate) fills: bool,
}

impl Packets {
    /// Units of 16 bytes before the data: control and Ethernet segment.
    pub(crate) const fn head(self) -> u32 {
        if self.wants_header { 3 } else { 2 }
    }

    /// Bytes of the packet that are not in the data segments.
    fn skipped(self) -> usize {
        if self.wants_header { HEADER } else { 0 }
    }

    /// Length of a packet's WQE in units of 16 bytes, or the reason why it can't be posted.
    fn measure(self, data: &Data<'_>, room: WqeLimits) -> Result<u32, PostError> {
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

/// Units of `len` inline bytes without the skipped ones.
fn inline_units(len: usize, skipped: usize, room: WqeLimits) -> Result<u32, PostError> {
    if len > room.max_inline as usize {
        return Err(PostError::InlineTooLong);
    }
    Ok(match len.saturating_sub(skipped) {
        0 => 0,
        left => (inline_bytes(left) / DS_BYTES) as u32,
    })
}

/// Bytes of a list, and its units without the skipped bytes.
fn measure_list(list: &[Sge], skipped: usize, room: WqeLimits) -> Result<(usize, u32), PostError> {
    let (_, total) = wqe::measure_list(list, room.max_sge.max(1))?;
    Ok((total as usize, left_of(list, skipped).count() as u32))
}

/// The SGEs of a list without its first `skip` bytes; omits empty ones.
fn left_of(list: &[Sge], skip: usize) -> impl Iterator<Item = Sge> {
    let mut skip = skip as u32;
    list.iter().filter_map(move |sge| {
        let part = skip.min(sge.len);
        skip -= part;
        let rest = Sge { addr: sge.addr.wrapping_add(part.into()), len: sge.len - part, ..*sge };
        (rest.len != 0).then_some(rest)
    })
}

/// First bytes of a packet, padded with zeros.
///
/// # Safety
///
/// SGEs of a list are mapped at their addresses, and may be read by atomic loads.
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

/// Reads an SGE, as far as there is room.
///
/// # Safety
///
/// The SGE is mapped at its address, and may be read by atomic loads.
unsafe fn read<'a>(sge: &Sge, room: &mut impl Iterator<Item = &'a mut u8>) {
    let start = std::ptr::with_exposed_provenance_mut::<u8>(sge.addr as usize);
    for offset in 0..sge.len as usize {
        let Some(to) = room.next() else { return };
        // SAFETY: within the SGE, mapped by the contract of `read`. A byte is always aligned.
        *to = unsafe { AtomicU8::from_ptr(start.wrapping_add(offset)) }.load(Ordering::Relaxed);
    }
}

/// The Ethernet segment. Its second part is written only with a header.
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
    /// The contract of the method above.
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
        let ctrl = wqe::ctrl(&SendOp::Send, at.pi(), self.qpn_ds(ds), wr.flags);
        let ring = self.ring_memory();
        let wraps = ring.wraps(at.pi(), units);
        let mut aside = [[0u64; 2]; DS_MAX as usize];
        let place = if wraps { aside.as_mut_ptr().cast() } else { ring.unit(at.pi()) };
        // SAFETY: `reserve` found room for the measured units, or `aside` has room for the longest
        // WQE.
        unsafe { write(place, ctrl, &segment(checksums, header.as_ref()), packets, &data) };
        if wraps {
            let bytes = aside.as_bytes().get(..ds as usize * DS_BYTES).unwrap_or_default();
            // SAFETY: `reserve` found the WQEBBs free, and the WQE is no longer than the ring.
            unsafe { ring.copy_in(at.pi(), 0, bytes) };
        }
        // SAFETY: `reserve` found the WQEBBs free; this is the only poster.
        let slot = unsafe { self.note(&mut at, wr.id, (ds, units)) };
        Ok((at, slot))
    }
}

/// Writes a packet's WQE to contiguous memory.
///
/// # Safety
///
/// `to` is aligned to 8 bytes and valid for writes of the measured units; no other thread reads or
/// writes them now.
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
            // SAFETY: header and bytes were measured, rounded up.
            unsafe { write_inline_list(at, pieces, skipped) };
        }
    }
}
