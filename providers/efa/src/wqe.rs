//! Checks and encoding of work requests (`efa_io_defs.h`; rdma-core `verbs.c:efa_post_send`,
//! `efa_post_recv`). The functions never access the device's memory.

use std::mem::offset_of;

use uverbs_core::queues::work::{Data, PostError, Remote, SendFlags, SendOp, Sge};
use uverbs_kernel_abi::efa::io::{
    EFA_IO_RDMA_READ, EFA_IO_RDMA_WRITE, EFA_IO_RX_DESC_FIRST_MASK, EFA_IO_RX_DESC_LAST_MASK,
    EFA_IO_RX_DESC_LKEY_MASK, EFA_IO_SEND, EFA_IO_TX_BUF_DESC_LKEY_MASK,
    EFA_IO_TX_META_DESC_COMP_REQ_MASK, EFA_IO_TX_META_DESC_FIRST_MASK,
    EFA_IO_TX_META_DESC_HAS_IMM_MASK, EFA_IO_TX_META_DESC_INLINE_MSG_MASK,
    EFA_IO_TX_META_DESC_LAST_MASK, EFA_IO_TX_META_DESC_META_DESC_MASK, efa_io_rx_desc,
    efa_io_tx_buf_desc, efa_io_tx_meta_desc,
};
use uverbs_kernel_rings::elements::{ElementLimits, check_data, is_inline};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Size of a work request's head.
const META: usize = size_of::<efa_io_tx_meta_desc>();
/// Size of an SGE, or of the peer's address and key (`efa_io_remote_mem_addr`).
const SGE: usize = size_of::<efa_io_tx_buf_desc>();
/// Size of a short work request, which is a block.
pub(crate) const WQE: usize = 64;
/// Size of a long work request.
pub(crate) const LONG_WQE: usize = 128;
/// Words of eight bytes in a block.
const BLOCK_WORDS: usize = WQE / size_of::<u64>();

/// Block of a work request, aligned as in the device's memory.
#[derive(Clone, Copy, Debug, FromBytes, Immutable, IntoBytes)]
#[repr(C, align(64))]
pub(crate) struct Block(pub(crate) [u64; BLOCK_WORDS]);

/// Rules for the sends of a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// SGEs and inline bytes of a SEND.
    pub(crate) room: ElementLimits,
    /// SGEs of an RDMA work request.
    pub(crate) rdma_sge: u32,
    /// Bytes of an RDMA work request's inline data; 0 in a short work request.
    pub(crate) rdma_inline: u32,
    /// Bytes of the longest SEND.
    pub(crate) message: u32,
    /// Bytes of the longest READ or WRITE.
    pub(crate) rdma: u32,
    /// RDMA operations; `None` on UD.
    pub(crate) has: Option<Rdma>,
}

/// RDMA operations of a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rdma {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// A send that passed the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Operation, immediate data, inline data.
    ctrl1: u8,
    imm: u32,
    /// The peer's memory; `None` for a SEND.
    remote: Option<Remote>,
    bytes: u32,
}

/// Checks a send.
#[inline(always)]
pub(crate) fn check(
    op: &SendOp,
    flags: SendFlags,
    data: &Data<'_>,
    rules: &Rules,
) -> Result<Checked, PostError> {
    const IMM: u8 = EFA_IO_TX_META_DESC_HAS_IMM_MASK;
    let (ctrl1, imm, remote) = match *op {
        SendOp::Send => (EFA_IO_SEND, 0, None),
        SendOp::SendImm(imm) => (EFA_IO_SEND | IMM, imm, None),
        SendOp::Read(from) => (EFA_IO_RDMA_READ, 0, Some(from)),
        SendOp::Write(to) => (EFA_IO_RDMA_WRITE, 0, Some(to)),
        SendOp::WriteImm(to, imm) => (EFA_IO_RDMA_WRITE | IMM, imm, Some(to)),
        _ => return Err(PostError::BadOperation),
    };
    // The device has neither fences nor solicited events.
    if flags.intersects(SendFlags::FENCE | SendFlags::SOLICITED) {
        return Err(PostError::BadOperation);
    }
    let is_read = ctrl1 == EFA_IO_RDMA_READ;
    let (room, longest) = match (remote, rules.has) {
        (None, _) => (rules.room, rules.message),
        (Some(_), None) => return Err(PostError::BadOperation),
        (Some(_), Some(has)) => {
            if !(if is_read { has.read } else { has.write }) {
                return Err(PostError::NotOnDevice);
            }
            let (max_sge, max_inline) = (rules.rdma_sge, rules.rdma_inline);
            (ElementLimits { max_sge, max_inline }, rules.rdma)
        }
    };
    if is_read && is_inline(data) {
        return Err(PostError::BadData);
    }
    let bytes = check_data(data, room)?.bytes;
    if bytes > longest {
        return Err(PostError::MessageTooLong);
    }
    let inline = if is_inline(data) { EFA_IO_TX_META_DESC_INLINE_MSG_MASK } else { 0 };
    let ctrl1 = ctrl1 | inline | EFA_IO_TX_META_DESC_META_DESC_MASK;
    Ok(Checked { ctrl1, imm, remote, bytes })
}

/// Destination of a send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To {
    pub(crate) ah: u16,
    pub(crate) qpn: u16,
    pub(crate) qkey: u32,
}

/// A field in its word of eight bytes.
const fn field(offset: usize, value: u64) -> u64 {
    value << (offset % size_of::<u64>() * 8)
}

/// First three words of the head (`efa_io_tx_meta_desc`); the fourth is zero. The first has the
/// fields up to `length`, the second immediate data and address handle, the third the Q_Key.
#[inline(always)]
fn head(
    req_id: u16,
    phase: u8,
    Checked { ctrl1, imm, .. }: Checked,
    to: To,
    length: u16,
) -> [u64; 3] {
    let ctrl2 = phase
        | EFA_IO_TX_META_DESC_FIRST_MASK
        | EFA_IO_TX_META_DESC_LAST_MASK
        | EFA_IO_TX_META_DESC_COMP_REQ_MASK;
    [
        field(offset_of!(efa_io_tx_meta_desc, req_id), req_id.into())
            | field(offset_of!(efa_io_tx_meta_desc, ctrl1), ctrl1.into())
            | field(offset_of!(efa_io_tx_meta_desc, ctrl2), ctrl2.into())
            | field(offset_of!(efa_io_tx_meta_desc, dest_qp_num), to.qpn.into())
            | field(offset_of!(efa_io_tx_meta_desc, length), length.into()),
        field(offset_of!(efa_io_tx_meta_desc, immediate_data), imm.into())
            | field(offset_of!(efa_io_tx_meta_desc, ah), to.ah.into()),
        field(offset_of!(efa_io_tx_meta_desc, qkey), to.qkey.into()),
    ]
}

/// Words of an SGE (`efa_io_tx_buf_desc`), or of the peer's memory (`efa_io_remote_mem_addr`).
#[inline(always)]
fn range(length: u32, key: u32, addr: u64) -> [u64; 2] {
    [u64::from(length) | u64::from(key) << 32, addr]
}

#[inline(always)]
fn sge_words(sge: &Sge) -> [u64; 2] {
    range(sge.len, sge.lkey & EFA_IO_TX_BUF_DESC_LKEY_MASK, sge.addr)
}

/// Writes a send to `wqe`, one block or two. `phase` is 0 or 1.
///
/// Each work request is signaled: the device's driver takes no others (rdma-core
/// `verbs.c:efa_post_send_validate_wr`).
#[inline(always)]
pub(crate) fn write_send(
    wqe: &mut [Block],
    req_id: u16,
    phase: u8,
    checked: Checked,
    to: To,
    data: &Data<'_>,
) {
    let (one, length) = match data {
        Data::Inline(_) | Data::InlineList(_) => ([0; 2], checked.bytes as u16),
        Data::One(sge) => (sge_words(sge), 1),
        Data::List(list) => ([0; 2], list.len() as u16),
    };
    let ([a, b], [c, d], at) = match checked.remote {
        Some(Remote { addr, rkey }) => (range(checked.bytes, rkey, addr), one, META + SGE),
        None => (one, [0; 2], META),
    };
    let [first, second, third] = head(req_id, phase, checked, to, length);
    // Stores of whole words, so that the loads of the copy to the device forward from them. Blocks
    // of a constant length, so that the compiler calls no `memcpy`.
    if let Some((block, rest)) = wqe.split_first_mut() {
        block.0 = [first, second, third, 0, a, b, c, d].map(u64::to_le);
        if let Some(block) = rest.first_mut() {
            block.0 = [0; BLOCK_WORDS];
        }
    }
    match data {
        Data::One(_) => {}
        Data::Inline(bytes) => put(wqe, at, bytes),
        Data::InlineList(list) => {
            let mut at = at;
            for bytes in *list {
                put(wqe, at, bytes);
                at += bytes.len();
            }
        }
        Data::List(list) => {
            for (index, sge) in list.iter().enumerate() {
                put(wqe, at + index * SGE, sge_words(sge).map(u64::to_le).as_bytes());
            }
        }
    }
}

/// Copies bytes into a work request. They fit, as `check` found.
#[inline(always)]
fn put(wqe: &mut [Block], at: usize, bytes: &[u8]) {
    if let Some(room) = wqe.as_mut_bytes().get_mut(at..at + bytes.len()) {
        room.copy_from_slice(bytes);
    }
}

/// Words of the SGE at `index` of a receive's `list` (`efa_io_rx_desc`). An empty list is a receive
/// of no bytes.
#[inline]
pub(crate) fn recv_sge(list: &[Sge], index: usize, req_id: u16) -> [u64; 2] {
    let sge = list.get(index).copied().unwrap_or(Sge { addr: 0, len: 0, lkey: 0 });
    let is_first = index == 0;
    let first = if is_first { EFA_IO_RX_DESC_FIRST_MASK } else { 0 };
    let last = if index + 1 >= list.len() { EFA_IO_RX_DESC_LAST_MASK } else { 0 };
    let req_id = if is_first { req_id } else { 0 };
    // A message is shorter, so a longer buffer gains nothing.
    let length = u16::try_from(sge.len).unwrap_or(u16::MAX);
    let lkey_ctrl = sge.lkey & EFA_IO_RX_DESC_LKEY_MASK | first | last;
    let second = field(offset_of!(efa_io_rx_desc, req_id), req_id.into())
        | field(offset_of!(efa_io_rx_desc, length), length.into())
        | field(offset_of!(efa_io_rx_desc, lkey_ctrl), lkey_ctrl.into());
    [sge.addr, second].map(u64::to_le)
}

/// Number of a request: the slot in the low `bits`, and low bits of the user index above. The user
/// index tells apart queue pairs that had the same number one after the other.
#[inline(always)]
pub(crate) fn req_id(user_index: u32, slot: u32, bits: u32) -> u16 {
    (user_index << bits | slot & ((1 << bits) - 1)) as u16
}
