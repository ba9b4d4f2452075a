//! Send WQEs: control segment, remote address, operands, address vector (its words come from
//! `device/ah.rs`), data.
//!
//! Each segment is stored as two words of eight bytes, into memory that software owns until the
//! doorbell record covers it. The words are built in registers, so that the processor can forward
//! each store to the BlueFlame copy, which loads words. A segment stored as a struct would become a
//! store for each field.
//!
//! # Safety
//!
//! Writers get a destination with the bytes that [`measure`] returned, and write no further.
//! Padding of inline data is zeroed in the first sixteen bytes, and otherwise keeps its old
//! content.
#![allow(unsafe_code, reason = "writes segments into a ring by raw address")]

use uverbs_core::order::device_memory;
use uverbs_core::queues::work::{Data, PostError, Remote, SendFlags, SendOp, Sge};
use uverbs_mlx5_prm::address::{DqpDct, mlx5_wqe_av, mlx5_wqe_xrc_seg};
use uverbs_mlx5_prm::ctrl::{
    DS_BYTES, DS_MAX, FmCeSe, MLX5_SEND_WQE_BB, MLX5_WQE_CTRL_CQ_UPDATE, MLX5_WQE_CTRL_FENCE,
    MLX5_WQE_CTRL_SOLICITED, OpmodIdxOpcode, QpnDs, mlx5_wqe_ctrl_seg,
};
use uverbs_mlx5_prm::data::{DATA_SEG_MAX, mlx5_wqe_data_seg};
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::remote::{mlx5_wqe_atomic_seg, mlx5_wqe_raddr_seg};
use zerocopy::{IntoBytes, transmute};

use crate::send::inline::{inline_units, total_inline, write_inline, write_inline_list};
use crate::send::ring::Ring;

/// Units of 16 bytes in a WQEBB, which holds control, remote address, operands and one SGE.
pub(crate) const DS_PER_UNIT: u32 = (MLX5_SEND_WQE_BB / DS_BYTES) as u32;

/// A segment in memory order.
pub(crate) type Words = [u64; 2];

/// Limits of a queue pair's WQEs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WqeLimits {
    pub(crate) max_sge: u32,
    pub(crate) max_inline: u32,
}

/// Units of 16 bytes of an address vector.
pub(crate) const VECTOR_UNITS: u32 = (size_of::<mlx5_wqe_av>() / DS_BYTES) as u32;
/// Units of 16 bytes of the segment that names a shared receive queue.
pub(crate) const XRC_UNITS: u32 = (size_of::<mlx5_wqe_xrc_seg>() / DS_BYTES) as u32;
/// Units of 16 bytes of a control segment and an address vector.
pub(crate) const DATAGRAM_HEAD: u32 = 1 + VECTOR_UNITS;

/// Maximum units before a list in `post`, except for atomics.
pub(crate) const LISTED_HEAD: u32 = 2;

/// Length of a datagram's WQE in units of 16 bytes, or the reason why it can't be posted.
#[inline(always)]
pub(crate) fn measure_datagram(
    op: &SendOp,
    data: &Data<'_>,
    room: WqeLimits,
) -> Result<u32, PostError> {
    match op {
        SendOp::Send | SendOp::SendImm(_) => measure_data(DATAGRAM_HEAD, data, room),
        _ => Err(PostError::BadOperation),
    }
}

/// Length of a WQE with `head` units before its data.
#[inline(always)]
fn measure_data(head: u32, data: &Data<'_>, room: WqeLimits) -> Result<u32, PostError> {
    match data {
        Data::Inline(bytes) => Ok(head + inline_segments(bytes.len(), room)?),
        Data::InlineList(pieces) => Ok(head + inline_segments(total_inline(pieces), room)?),
        Data::One(sge) if sge.len > DATA_SEG_MAX => Err(PostError::MessageTooLong),
        Data::One(sge) => Ok(head + u32::from(sge.len != 0)),
        Data::List(list) => Ok(head + measure_list(list, room.max_sge)?.0),
    }
}

/// Head of a WQE, before its data, and the kind of data that may follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    /// Units of 16 bytes, at most a WQEBB.
    pub(crate) units: u32,
    pub(crate) answered: bool,
    pub(crate) atomic: bool,
}

/// Head of a datagram, which fills the first WQEBB.
pub(crate) const DATAGRAM: Head = Head { units: DATAGRAM_HEAD, answered: false, atomic: false };
const _: () = assert!(DATAGRAM_HEAD == DS_PER_UNIT);

#[inline(always)]
pub(crate) fn head(op: &SendOp) -> Head {
    let (units, answered, atomic) = match op {
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) => (1, false, false),
        SendOp::Write(_) | SendOp::WriteImm(..) => (2, false, false),
        SendOp::Read(_) => (2, true, false),
        SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. } => (3, true, true),
    };
    Head { units, answered, atomic }
}

/// [`head`], or with `TO` the head of a datagram.
#[inline(always)]
pub(crate) fn head_to<const TO: bool>(op: &SendOp) -> Head {
    if TO { DATAGRAM } else { head(op) }
}

/// WQEBBs of a work request with one SGE; `TO`: a datagram.
pub(crate) const fn units_of_one<const TO: bool>() -> u32 {
    if TO { 2 } else { 1 }
}

/// Length of a connected work request's WQE in units of 16 bytes, or the reason why it can't be
/// posted.
#[inline(always)]
pub(crate) fn measure(op: &SendOp, data: &Data<'_>, room: WqeLimits) -> Result<u32, PostError> {
    measure_behind(head(op), data, room)
}

/// [`measure`] of a WQE with this head. As libmlx5 (qp.c, `_mlx5_post_send`), it accepts a list of
/// more than eight bytes for an atomic, of which the device writes the first eight, and inline data
/// for a READ, which the device fails.
#[inline(always)]
pub(crate) fn measure_behind(
    head: Head,
    data: &Data<'_>,
    room: WqeLimits,
) -> Result<u32, PostError> {
    let Head { units, atomic, .. } = head;
    match data {
        Data::Inline(_) | Data::InlineList(_) if atomic => Err(PostError::BadData),
        Data::One(sge) if atomic && sge.len < 8 => Err(PostError::BadData),
        Data::List(list) if atomic => match measure_list(list, room.max_sge)? {
            (count, 8..) => Ok(units + count),
            _ => Err(PostError::BadData),
        },
        _ => measure_data(units, data, room),
    }
}

/// WQEBBs of `ds` units of 16 bytes. `div_ceil` takes two more instructions.
#[inline(always)]
pub(crate) fn blocks(ds: u32) -> u32 {
    (ds + (DS_PER_UNIT - 1)) >> DS_PER_UNIT.ilog2()
}

/// WQEBBs of a connected WQE of `ds` units, by [`measure`]. One SGE behind at most three segments
/// never needs more than one WQEBB; telling the compiler saves instructions.
#[inline(always)]
pub(crate) fn units(ds: u32, data: &Data<'_>) -> u32 {
    match data {
        Data::One(_) => 1,
        _ => ds.div_ceil(DS_PER_UNIT),
    }
}

#[inline(always)]
fn inline_segments(len: usize, room: WqeLimits) -> Result<u32, PostError> {
    if len > room.max_inline as usize {
        return Err(PostError::InlineTooLong);
    }
    Ok(inline_units(len))
}

/// Number of non-empty SGEs in a list, and their total bytes. Empty SGEs are not written, as in
/// rdma-core.
#[inline]
pub(crate) fn measure_list(list: &[Sge], max_sge: u32) -> Result<(u32, u64), PostError> {
    if list.len() > max_sge as usize {
        return Err(PostError::TooManySges);
    }
    let mut count = 0;
    let mut total = 0u64;
    for sge in list {
        count += u32::from(sge.len != 0);
        total += u64::from(sge.len);
    }
    if total > u64::from(DATA_SEG_MAX) {
        return Err(PostError::MessageTooLong);
    }
    Ok((count, total))
}

/// Factor that moves each flag to its bit in the word of the flag byte. No two bits of the product
/// collide, so there is no carry. It needs no load and no shift by a variable.
const SPREAD: u32 = {
    const fn shift(flag: SendFlags, bit: u8) -> u32 {
        1 << (FLAG_SHIFT + bit.ilog2() - flag.bits().ilog2())
    }
    shift(SendFlags::FENCE, MLX5_WQE_CTRL_FENCE)
        | shift(SendFlags::SIGNALED, MLX5_WQE_CTRL_CQ_UPDATE)
        | shift(SendFlags::SOLICITED, MLX5_WQE_CTRL_SOLICITED)
};
/// Mask of the product.
const FLAG_BITS: u8 = MLX5_WQE_CTRL_FENCE | MLX5_WQE_CTRL_CQ_UPDATE | MLX5_WQE_CTRL_SOLICITED;
const FLAG_SHIFT: u32 = 24;
const _: () = {
    const fn bit(flags: u8, flag: SendFlags, bit: u8) -> u8 {
        if flags & flag.bits() == 0 { 0 } else { bit }
    }
    let mut flags = 0;
    while flags <= SendFlags::all().bits() {
        let byte = bit(flags, SendFlags::FENCE, MLX5_WQE_CTRL_FENCE)
            | bit(flags, SendFlags::SIGNALED, MLX5_WQE_CTRL_CQ_UPDATE)
            | bit(flags, SendFlags::SOLICITED, MLX5_WQE_CTRL_SOLICITED);
        assert!(spread(flags) == byte);
        flags += 1;
    }
};

/// Flag byte of a control segment.
#[inline(always)]
fn flag_byte(flags: SendFlags) -> FmCeSe {
    FmCeSe(spread(flags.bits()))
}

#[inline(always)]
const fn spread(flags: u8) -> u8 {
    let flags = (flags & SendFlags::all().bits()) as u32;
    (flags.wrapping_mul(SPREAD) >> FLAG_SHIFT) as u8 & FLAG_BITS
}

/// Opcode, and immediate data or the key to invalidate.
#[inline(always)]
fn opcode(op: &SendOp) -> (Opcode, u32) {
    match *op {
        SendOp::Send => (Opcode::SEND, 0),
        SendOp::SendImm(imm) => (Opcode::SEND_IMM, imm),
        SendOp::SendInvalidate(key) => (Opcode::SEND_INVAL, key),
        SendOp::Write(_) => (Opcode::RDMA_WRITE, 0),
        SendOp::WriteImm(_, imm) => (Opcode::RDMA_WRITE_IMM, imm),
        SendOp::Read(_) => (Opcode::RDMA_READ, 0),
        SendOp::CompareSwap { .. } => (Opcode::ATOMIC_CS, 0),
        SendOp::FetchAdd { .. } => (Opcode::ATOMIC_FA, 0),
    }
}

/// Control segment. `qpn_ds` is its second word.
#[inline(always)]
pub(crate) fn ctrl(op: &SendOp, index: u32, qpn_ds: u32, flags: SendFlags) -> Words {
    let (opcode, imm) = opcode(op);
    raw_ctrl(opcode.0, 0, index, qpn_ds, flags, imm)
}

/// [`ctrl`] for lists. The index is byte-swapped separately, so that a loop keeps the rest of the
/// first eight bytes in a register. If all bytes were swapped at once, the compiler would keep a
/// second loop counter, the shifted index.
#[inline(always)]
pub(crate) fn ctrl_in_row(op: &SendOp, index: u32, qpn_ds: u32, flags: SendFlags) -> Words {
    let [rest, flags] = ctrl(op, 0, qpn_ds, flags);
    let index = u64::from((index as u16).swap_bytes()) << 8;
    [rest | index.to_le(), flags]
}

/// First word of the control segment of an alike WQE, `units` WQEBBs further on. The indexes differ
/// only in their lowest byte, so there is no carry.
#[inline(always)]
pub(crate) fn next_ctrl(first: u64, units: u32) -> u64 {
    first.wrapping_add((u64::from(units) << 40).to_be())
}

/// Control segment of any WQE.
#[inline(always)]
pub(crate) fn raw_ctrl(
    opcode: u8,
    opmod: u8,
    index: u32,
    qpn_ds: u32,
    flags: SendFlags,
    imm: u32,
) -> Words {
    let word0 = OpmodIdxOpcode::ZERO.with_opmod(opmod).with_opcode(opcode);
    let seg = mlx5_wqe_ctrl_seg::new(word0, QpnDs(qpn_ds), flag_byte(flags), imm);
    let (word0, word1) = (seg.opmod_idx_opcode.get(), seg.qpn_ds.get());
    // Signature and stream, the bytes before the flags, are zero: DC adds its stream.
    let first = u64::from(word0) << 32 | u64::from(word1) | u64::from(index as u16) << 40;
    [first.to_be(), pair(seg.fm_ce_se.into(), seg.imm.get())]
}

/// A DCI stream, shifted as in the second half of a control segment.
#[inline(always)]
pub(crate) fn stream(number: u16) -> u64 {
    pair(u32::from(number) << 8, 0)
}

/// Two 32-bit fields in memory order.
#[inline(always)]
pub(crate) fn pair(first: u32, second: u32) -> u64 {
    (u64::from(first) << 32 | u64::from(second)).to_be()
}

#[inline(always)]
fn remote_segment(remote: Remote) -> Words {
    let seg = mlx5_wqe_raddr_seg::new(remote.addr, remote.rkey);
    [seg.raddr.get().to_be(), pair(seg.rkey.get(), seg.reserved.get())]
}

/// First segment of a datagram's address vector: Q_Key and peer, and the handle's [`second_word`].
#[inline(always)]
pub(crate) fn datagram(second_word: u64, qpn: u32, qkey: u32) -> Words {
    [pair(qkey, 0), second_word | peer(qpn)]
}

/// First segment of the address vector to a DC target, with the access key in place of the Q_Key
/// and the reserved word of a datagram (PRM "Datagram Segment").
#[inline(always)]
pub(crate) fn dynamic(second_word: u64, dctn: u32, key: u64) -> Words {
    [key.to_be(), second_word | peer(dctn)]
}

/// Second eight bytes of an address vector, without the peer: rate, loopback, LID, and the bit of a
/// long vector (`MLX5_EXTENDED_UD_AV`).
pub(crate) fn second_word(vector: &[Words; 3]) -> u64 {
    vector[0][1] | pair(DqpDct::ZERO.with_ext(true).0, 0)
}

/// Address vector (`mlx5_wqe_av`): the template of the handle, and the fields of a work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Vector<'a> {
    /// Template: rate, loopback and LID in the second half of the first segment; MAC address and
    /// route in the other segments.
    pub(crate) template: &'a [Words; 3],
    /// First segment: the peer's number and key, and the second half from the template.
    pub(crate) first: Words,
}

impl Vector<'_> {
    /// Writes the vector, each segment by [`store_as`].
    ///
    /// # Safety
    ///
    /// As [`store`], for three segments.
    #[inline(always)]
    pub(crate) unsafe fn store<const WHOLE: bool>(self, to: *mut u8) {
        // Destructured, because a copy of the whole template would keep its address in a register.
        let [_, [a, b], [c, d]] = *self.template;
        // SAFETY: contract of `store`.
        unsafe { store_as::<WHOLE>(to, self.first) };
        // SAFETY: contract of `store`.
        unsafe { store_as::<WHOLE>(to.wrapping_add(DS_BYTES), [a, b]) };
        // SAFETY: contract of `store`.
        unsafe { store_as::<WHOLE>(to.wrapping_add(2 * DS_BYTES), [c, d]) };
    }
}

/// Segments between control segment and operation that name the destination.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Address<'a> {
    /// No segment: the queue pair is connected.
    None,
    /// Address vector of a datagram or a DC target.
    Vector(Vector<'a>),
    /// XRC: number of a shared receive queue of the peer.
    Srq(u32),
}

impl Address<'_> {
    /// Length in units of 16 bytes.
    #[inline(always)]
    pub(crate) fn units(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::Vector(_) => VECTOR_UNITS,
            Self::Srq(_) => XRC_UNITS,
        }
    }
}

/// Number of a queue pair or a DC target, shifted as in an address vector. Bits above 24 are not
/// masked, as in rdma-core (`qp.c:set_datagram_seg`).
#[inline(always)]
fn peer(number: u32) -> u64 {
    pair(number, 0)
}

/// Stores one segment.
///
/// # Safety
///
/// `to` is aligned to 8 bytes and valid for writes of 16 bytes; no other thread reads or writes
/// them now.
#[inline(always)]
pub(crate) unsafe fn store(to: *mut u8, words: Words) {
    // SAFETY: contract of `store`.
    unsafe { device_memory::write(to.cast::<Words>(), words) };
}

/// Stores one segment as [`store`], or with `WHOLE` by one store of sixteen bytes.
///
/// # Safety
///
/// The contract of the method above.
#[inline(always)]
pub(crate) unsafe fn store_as<const WHOLE: bool>(to: *mut u8, words: Words) {
    if WHOLE {
        // SAFETY: contract of `store_as`.
        unsafe { device_memory::write_whole(to.cast::<Words>(), words) };
    } else {
        // SAFETY: contract of `store_as`.
        unsafe { store(to, words) };
    }
}

/// Writes control segment, address and operation of a WQE; the first two by [`store_as`]. Returns
/// the address of its data.
///
/// # Safety
///
/// `at` is a WQEBB, and `next` the WQEBB after it in the ring, which is used only with an address
/// vector. As [`store`], for the units that [`head`] and [`Address::units`] count.
#[inline(always)]
pub(crate) unsafe fn write_head<const WHOLE: bool>(
    (at, next): (*mut u8, *mut u8),
    ctrl: Words,
    address: Address<'_>,
    op: &SendOp,
) -> *mut u8 {
    let behind = at.wrapping_add(DS_BYTES);
    // SAFETY: contract of `write_head`; the control segment comes first.
    unsafe { store_as::<WHOLE>(at, ctrl) };
    let behind = match address {
        Address::None => behind,
        Address::Vector(vector) => {
            // SAFETY: contract of `write_head`; the vector fills the WQEBB.
            unsafe { vector.store::<WHOLE>(behind) };
            next
        }
        Address::Srq(number) => {
            // SAFETY: contract of `write_head`.
            unsafe { store(behind, transmute!(mlx5_wqe_xrc_seg::new(number))) };
            behind.wrapping_add(DS_BYTES)
        }
    };
    // SAFETY: contract of `write_head`.
    unsafe { write_operation(behind, op) }
}

/// Writes remote address and operands, and returns the address behind them.
///
/// # Safety
///
/// As [`write`], for the units that [`head`] counted after the control segment.
#[inline(always)]
pub(crate) unsafe fn write_operation(mut at: *mut u8, op: &SendOp) -> *mut u8 {
    let (remote, operands) = match *op {
        SendOp::Write(remote) | SendOp::WriteImm(remote, _) | SendOp::Read(remote) => {
            (Some(remote), None)
        }
        SendOp::CompareSwap { remote, compare, swap } => {
            (Some(remote), Some(mlx5_wqe_atomic_seg::new(swap, compare)))
        }
        SendOp::FetchAdd { remote, add } => (Some(remote), Some(mlx5_wqe_atomic_seg::new(add, 0))),
        SendOp::Send | SendOp::SendImm(_) | SendOp::SendInvalidate(_) => (None, None),
    };
    if let Some(remote) = remote {
        // SAFETY: `head` counted a second segment for these operations.
        unsafe { store(at, remote_segment(remote)) };
        at = at.wrapping_add(DS_BYTES);
    }
    if let Some(operands) = operands {
        // SAFETY: `head` counted a third segment for these operations.
        unsafe { store(at, transmute!(operands)) };
        at = at.wrapping_add(DS_BYTES);
    }
    at
}

/// Writes the data of a work request.
///
/// # Safety
///
/// As [`write`], for the units that [`measure_behind`] counted after the head.
#[inline(always)]
pub(crate) unsafe fn write_data(at: *mut u8, data: &Data<'_>) {
    match data {
        Data::One(sge) => {
            if sge.len != 0 {
                // SAFETY: `measure` counted it, because it is not empty.
                unsafe { store(at, data_segment(sge)) };
            }
        }
        // SAFETY: `measure` counted the non-empty SGEs, and only these are written.
        Data::List(list) => unsafe { write_list(at, list) },
        // SAFETY: `measure` counted header and bytes, rounded up.
        Data::Inline(bytes) => unsafe { write_inline(at, bytes) },
        // SAFETY: `measure` counted header and bytes, rounded up.
        Data::InlineList(pieces) => unsafe { write_inline_list(at, pieces, 0) },
    }
}

#[inline(always)]
pub(crate) fn data_segment(sge: &Sge) -> Words {
    let seg = mlx5_wqe_data_seg::new(sge.len, sge.lkey, sge.addr);
    [pair(seg.byte_count.get(), seg.lkey.get()), seg.addr.get().to_be()]
}

/// [`data_segment`] of an SGE shorter than [`DATA_SEG_MAX`], whose length needs no encoding.
///
/// Length and key are loaded separately: one load of both would stall if the program stored them
/// separately just before.
#[inline(always)]
pub(crate) fn short_segment(sge: &Sge) -> Words {
    [pair(sge.len, sge.lkey), sge.addr.to_be()]
}

/// Stores the [`short_segment`] of an SGE, with separate stores for length and key: a list is not
/// copied to the register, and two swaps of four bytes are cheaper than one of eight.
///
/// # Safety
///
/// As [`store`].
#[inline(always)]
pub(crate) unsafe fn store_short(to: *mut u8, len: u32, lkey: u32, addr: u64) {
    let [first, second] = [len.to_be(), lkey.to_be()];
    // SAFETY: contract of `store_short`.
    unsafe { device_memory::write(to.cast(), first) };
    // SAFETY: contract of `store_short`.
    unsafe { device_memory::write(to.wrapping_add(4).cast(), second) };
    // SAFETY: contract of `store_short`.
    unsafe { device_memory::write(to.wrapping_add(8).cast(), addr.to_be()) };
}

/// Writes the non-empty SGEs of a list.
///
/// # Safety
///
/// As [`store`], for each segment.
#[inline]
unsafe fn write_list(mut at: *mut u8, list: &[Sge]) {
    for sge in list {
        if sge.len != 0 {
            // SAFETY: contract of `write_list`.
            unsafe { store(at, data_segment(sge)) };
            at = at.wrapping_add(DS_BYTES);
        }
    }
}

/// Writes the data of a WQE that wraps around the ring's end. Its head does not wrap.
///
/// # Safety
///
/// The `ds` units of 16 bytes from the WQEBB `index` on, around the end, are free, and the first
/// `head` of them are the head. `ds` is at most [`DS_MAX`], and was measured with this data.
#[cold]
#[inline(never)]
pub(crate) unsafe fn write_wrapped(ring: Ring, index: u32, (head, ds): (u32, u32), data: Data<'_>) {
    let mut aside = [[0u64; 2]; DS_MAX as usize];
    // SAFETY: `aside` has room for the longest WQE.
    unsafe { write_data(aside.as_mut_ptr().cast(), &data) };
    let bytes = aside.as_bytes().get(..(ds - head) as usize * DS_BYTES).unwrap_or_default();
    let (index, offset) = (index.wrapping_add(head / DS_PER_UNIT), head % DS_PER_UNIT);
    // SAFETY: contract of `write_wrapped`.
    unsafe { ring.copy_in(index, offset as usize * DS_BYTES, bytes) };
}
