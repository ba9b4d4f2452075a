//! Work requests as the device reads them (`efa_io_defs.h`; rdma-core `verbs.c:efa_post_send`,
//! `efa_post_recv`). Written in the program's own memory: pure functions from values to bytes.

use uverbs_core::queues::work::{Data, PostError, Remote, SendFlags, SendOp, Sge};
use uverbs_kernel_abi::efa::io::{
    EFA_IO_RDMA_READ, EFA_IO_RDMA_WRITE, EFA_IO_RX_DESC_FIRST_MASK, EFA_IO_RX_DESC_LAST_MASK,
    EFA_IO_RX_DESC_LKEY_MASK, EFA_IO_SEND, EFA_IO_TX_BUF_DESC_LKEY_MASK,
    EFA_IO_TX_META_DESC_COMP_REQ_MASK, EFA_IO_TX_META_DESC_FIRST_MASK,
    EFA_IO_TX_META_DESC_HAS_IMM_MASK, EFA_IO_TX_META_DESC_INLINE_MSG_MASK,
    EFA_IO_TX_META_DESC_LAST_MASK, EFA_IO_TX_META_DESC_META_DESC_MASK, efa_io_remote_mem_addr,
    efa_io_rx_desc, efa_io_tx_buf_desc, efa_io_tx_meta_desc,
};
use uverbs_kernel_rings::elements::{ElementLimits, check_data, is_inline};
use zerocopy::IntoBytes;

/// Bytes of a work request's head.
const META: usize = size_of::<efa_io_tx_meta_desc>();
/// Bytes of an SGE, and of the peer's memory.
const SGE: usize = size_of::<efa_io_tx_buf_desc>();
/// Bytes of a short work request, and of a long one.
pub(crate) const WQE: usize = 64;
pub(crate) const LONG_WQE: usize = 128;

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
    // The order that a fence asks for, and solicited events, are unknown to the device.
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

/// Writes a send to `wqe`, of [`WQE`] or [`LONG_WQE`] bytes. `phase` is 0 or 1.
///
/// Each work request is signaled: the device's driver takes no others (rdma-core
/// `verbs.c:efa_post_send_validate_wr`).
#[inline(always)]
pub(crate) fn write_send(
    wqe: &mut [u8],
    req_id: u16,
    phase: u8,
    checked: Checked,
    to: To,
    data: &Data<'_>,
) {
    let Checked { ctrl1, imm, remote, bytes } = checked;
    // Blocks of a constant length, so that the compiler needs no call.
    if let Some((first, rest)) = wqe.split_first_chunk_mut::<WQE>() {
        *first = [0; WQE];
        if let Some((second, _)) = rest.split_first_chunk_mut::<WQE>() {
            *second = [0; WQE];
        }
    }
    let mut at = META;
    if let Some(Remote { addr, rkey }) = remote {
        let remote = efa_io_remote_mem_addr {
            length: bytes,
            rkey,
            buf_addr_lo: addr as u32,
            buf_addr_hi: (addr >> 32) as u32,
        };
        put(wqe, at, remote.as_bytes());
        at += SGE;
    }
    let length = match data {
        Data::Inline(piece) => {
            put(wqe, at, piece);
            bytes as u16
        }
        Data::InlineList(pieces) => {
            for piece in *pieces {
                put(wqe, at, piece);
                at += piece.len();
            }
            bytes as u16
        }
        Data::One(sge) => put_list(wqe, at, std::slice::from_ref(sge)),
        Data::List(list) => put_list(wqe, at, list),
    };
    let meta = efa_io_tx_meta_desc {
        req_id,
        ctrl1,
        ctrl2: phase
            | EFA_IO_TX_META_DESC_FIRST_MASK
            | EFA_IO_TX_META_DESC_LAST_MASK
            | EFA_IO_TX_META_DESC_COMP_REQ_MASK,
        dest_qp_num: to.qpn,
        length,
        immediate_data: imm,
        ah: to.ah,
        qkey: to.qkey,
        ..Default::default()
    };
    put(wqe, 0, meta.as_bytes());
}

/// Copies bytes into a work request. They fit, as `check` found.
#[inline(always)]
fn put(wqe: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(room) = wqe.get_mut(at..at + bytes.len()) {
        room.copy_from_slice(bytes);
    }
}

/// Writes SGEs. Returns their number.
#[inline(always)]
fn put_list(wqe: &mut [u8], at: usize, list: &[Sge]) -> u16 {
    for (index, sge) in list.iter().enumerate() {
        let sge = efa_io_tx_buf_desc {
            length: sge.len,
            lkey: sge.lkey & EFA_IO_TX_BUF_DESC_LKEY_MASK,
            buf_addr_lo: sge.addr as u32,
            buf_addr_hi: (sge.addr >> 32) as u32,
        };
        put(wqe, at + index * SGE, sge.as_bytes());
    }
    list.len() as u16
}

/// SGE at `index` of a receive's `list`. An empty list is a receive of no bytes.
#[inline]
pub(crate) fn recv_sge(list: &[Sge], index: usize, req_id: u16) -> efa_io_rx_desc {
    let sge = list.get(index).copied().unwrap_or(Sge { addr: 0, len: 0, lkey: 0 });
    let is_first = index == 0;
    let first = if is_first { EFA_IO_RX_DESC_FIRST_MASK } else { 0 };
    let last = if index + 1 >= list.len() { EFA_IO_RX_DESC_LAST_MASK } else { 0 };
    efa_io_rx_desc {
        buf_addr_lo: sge.addr as u32,
        buf_addr_hi: (sge.addr >> 32) as u32,
        req_id: if is_first { req_id } else { 0 },
        // A message is shorter, so a longer buffer gains nothing.
        length: u16::try_from(sge.len).unwrap_or(u16::MAX),
        lkey_ctrl: sge.lkey & EFA_IO_RX_DESC_LKEY_MASK | first | last,
    }
}

/// Number of a request: the slot, and above it as many bits of the user index as there is room for.
/// They tell apart queue pairs that had the same number one after the other.
#[inline(always)]
pub(crate) fn req_id(user_index: u32, slot: u32, mask: u32) -> u16 {
    (user_index << mask.trailing_ones() | slot & mask) as u16
}
