//! Send work requests as the device takes them out of the queue: parsed strictly.

use uverbs_kernel_abi::efa::io::{
    EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH, EFA_IO_COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP,
    EFA_IO_RDMA_READ, EFA_IO_RDMA_WRITE, EFA_IO_SEND, EFA_IO_TX_BUF_DESC_LKEY_MASK,
    EFA_IO_TX_DESC_INLINE_MAX_SIZE, EFA_IO_TX_DESC_INLINE_MAX_SIZE_128, EFA_IO_TX_DESC_NUM_BUFS,
    EFA_IO_TX_META_DESC_COMP_REQ_MASK, EFA_IO_TX_META_DESC_FIRST_MASK,
    EFA_IO_TX_META_DESC_HAS_IMM_MASK, EFA_IO_TX_META_DESC_INLINE_MSG_MASK,
    EFA_IO_TX_META_DESC_LAST_MASK, EFA_IO_TX_META_DESC_META_DESC_MASK,
    EFA_IO_TX_META_DESC_OP_TYPE_MASK, EFA_IO_TX_META_DESC_PHASE_MASK,
    EFA_IO_TX_META_DESC_PROCESSING_HINTS_MASK, efa_io_remote_mem_addr, efa_io_tx_buf_desc,
    efa_io_tx_meta_desc,
};
use zerocopy::FromBytes;

/// Bytes of an SGE.
const SGE: usize = size_of::<efa_io_tx_buf_desc>();
/// Bytes of a long work request.
const LONG: usize = 128;

/// A piece of the program's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) key: u32,
}

/// Data of a work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    Pieces(Vec<Piece>),
    Inline(Vec<u8>),
}

/// A work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) req_id: u16,
    pub(crate) op: u8,
    pub(crate) imm: Option<u32>,
    pub(crate) ah: u16,
    pub(crate) qpn: u16,
    pub(crate) qkey: u32,
    /// The peer's memory, of READ and WRITE.
    pub(crate) remote: Option<Piece>,
    pub(crate) content: Content,
}

impl Request {
    /// Bytes of the data.
    pub(crate) fn len(&self) -> u64 {
        match &self.content {
            Content::Pieces(pieces) => pieces.iter().map(|piece| u64::from(piece.len)).sum(),
            Content::Inline(bytes) => bytes.len() as u64,
        }
    }
}

/// Phase, number and operation of an element.
pub(crate) fn head(element: &[u8]) -> (u8, u16, u8) {
    let meta = efa_io_tx_meta_desc::read_from_prefix(element).map(|(meta, _)| meta);
    let meta = meta.unwrap_or_default();
    let phase = meta.ctrl2 & EFA_IO_TX_META_DESC_PHASE_MASK;
    (phase, u16::from_le(meta.req_id), meta.ctrl1 & EFA_IO_TX_META_DESC_OP_TYPE_MASK)
}

/// Parses an element; the status of its completion if it is malformed.
pub(crate) fn parse(element: &[u8]) -> Result<Request, u8> {
    const BAD: u8 = EFA_IO_COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP;
    let (meta, data) = efa_io_tx_meta_desc::read_from_prefix(element).map_err(|_| BAD)?;
    let op = meta.ctrl1 & EFA_IO_TX_META_DESC_OP_TYPE_MASK;
    let needed = EFA_IO_TX_META_DESC_FIRST_MASK
        | EFA_IO_TX_META_DESC_LAST_MASK
        | EFA_IO_TX_META_DESC_COMP_REQ_MASK;
    let ctrl1 = EFA_IO_TX_META_DESC_OP_TYPE_MASK
        | EFA_IO_TX_META_DESC_HAS_IMM_MASK
        | EFA_IO_TX_META_DESC_INLINE_MSG_MASK;
    let is_well_formed = meta.ctrl1 & !ctrl1 == EFA_IO_TX_META_DESC_META_DESC_MASK
        && meta.ctrl2 & !EFA_IO_TX_META_DESC_PHASE_MASK == needed
        && meta.ctrl3 & !EFA_IO_TX_META_DESC_PROCESSING_HINTS_MASK == 0
        && meta.reserved == 0
        && meta.reserved2 == [0; 6]
        && meta.req_id_ex.w == [0; 3];
    let has_imm = meta.ctrl1 & EFA_IO_TX_META_DESC_HAS_IMM_MASK != 0;
    let is_inline = meta.ctrl1 & EFA_IO_TX_META_DESC_INLINE_MSG_MASK != 0;
    let is_rdma = op == EFA_IO_RDMA_READ || op == EFA_IO_RDMA_WRITE;
    let is_known = is_rdma || op == EFA_IO_SEND;
    if !is_well_formed || !is_known || (!has_imm && meta.immediate_data != 0) {
        return Err(BAD);
    }
    if op == EFA_IO_RDMA_READ && (has_imm || is_inline) {
        return Err(BAD);
    }
    let (remote, data) = if is_rdma {
        let (remote, rest) = efa_io_remote_mem_addr::read_from_prefix(data).map_err(|_| BAD)?;
        let addr = addr(remote.buf_addr_lo, remote.buf_addr_hi);
        let (len, key) = (u32::from_le(remote.length), u32::from_le(remote.rkey));
        (Some(Piece { addr, len, key }), rest)
    } else {
        (None, data)
    };
    let length = usize::from(u16::from_le(meta.length));
    let is_long = element.len() >= LONG;
    let most =
        if is_long { EFA_IO_TX_DESC_INLINE_MAX_SIZE_128 } else { EFA_IO_TX_DESC_INLINE_MAX_SIZE };
    let (content, rest) = if is_inline {
        if length > most as usize || length > data.len() || (is_rdma && !is_long) {
            return Err(EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH);
        }
        let (bytes, rest) = data.split_at(length);
        (Content::Inline(bytes.to_vec()), rest)
    } else {
        if length > if is_rdma { 1 } else { EFA_IO_TX_DESC_NUM_BUFS as usize } {
            return Err(EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH);
        }
        let (list, rest) = data.split_at(length * SGE);
        let pieces = list.chunks_exact(SGE).map(piece).collect::<Option<_>>().ok_or(BAD)?;
        (Content::Pieces(pieces), rest)
    };
    let request = Request {
        req_id: u16::from_le(meta.req_id),
        op,
        imm: has_imm.then(|| u32::from_le(meta.immediate_data)),
        ah: u16::from_le(meta.ah),
        qpn: u16::from_le(meta.dest_qp_num),
        qkey: u32::from_le(meta.qkey),
        remote,
        content,
    };
    // The peer's memory has the length of the data.
    let agrees = request.remote.is_none_or(|remote| u64::from(remote.len) == request.len());
    if !agrees || rest.iter().any(|byte| *byte != 0) {
        return Err(BAD);
    }
    Ok(request)
}

fn addr(low: u32, high: u32) -> u64 {
    u64::from(u32::from_le(high)) << 32 | u64::from(u32::from_le(low))
}

/// An SGE; `None` if its key has more than 24 bits.
fn piece(bytes: &[u8]) -> Option<Piece> {
    let sge = efa_io_tx_buf_desc::read_from_bytes(bytes).ok()?;
    let key = u32::from_le(sge.lkey);
    let piece =
        Piece { addr: addr(sge.buf_addr_lo, sge.buf_addr_hi), len: u32::from_le(sge.length), key };
    (key & !EFA_IO_TX_BUF_DESC_LKEY_MASK == 0).then_some(piece)
}
