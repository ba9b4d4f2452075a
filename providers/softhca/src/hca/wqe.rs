//! Work requests: fetched from the ring, decoded, and checked.

use super::complete::Failure;
use super::context::{Access, LinkLayer, Service, SqContext};
use super::dma::DmaFault;
use super::ethernet::{EthernetSend, send};
use super::mkey::{KeyFault, Segment, Who};
use super::qp::Qp;
use super::shared::Shared;
use super::umr::{self, Umr};
use crate::wire::Address;
use uverbs_mlx5_prm::address::{DqpDct, GrhGidFl};
use uverbs_mlx5_prm::ctrl::{DS_BYTES, DS_MAX, FmCeSe, MLX5_SEND_WQE_BB, mlx5_wqe_ctrl_seg};
use uverbs_mlx5_prm::data::mlx5_wqe_data_seg;
use uverbs_mlx5_prm::opcode::{MLX5_OPC_MOD_MMO_DMA, Opcode};
use uverbs_mlx5_prm::syndrome::Syndrome;
use uverbs_mlx5_prm::wqe::{Segment as Seg, Service as PrmService, WqeView};
use zerocopy::FromBytes;

/// Bytes of the longest send WQE.
const WQE_MAX: usize = DS_MAX as usize * DS_BYTES;
/// Bytes of an atomic's operand and result.
pub(super) const ATOMIC_LEN: u32 = 8;

/// Vendor syndromes of WQEs refused: which check it was.
mod vendor {
    pub(super) const UNREADABLE: u8 = 0x60;
    pub(super) const INDEX: u8 = 0x61;
    pub(super) const QPN: u8 = 0x62;
    pub(super) const SIZE: u8 = 0x63;
    pub(super) const SEGMENTS: u8 = 0x64;
    pub(super) const OPCODE: u8 = 0x65;
    pub(super) const LENGTH: u8 = 0x66;
    pub(super) const ADDRESS: u8 = 0x67;
}

/// What a send WQE asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    Nop,
    /// Memory of this host to memory of this host: the first piece to the second.
    Copy,
    /// A change of a memory key; what it is stands in [`Wqe::umr`].
    Umr,
    Send,
    SendImm(u32),
    SendInval(u32),
    Write {
        va: u64,
        rkey: u32,
        imm: Option<u32>,
    },
    Read {
        va: u64,
        rkey: u32,
    },
    CompareSwap {
        va: u64,
        rkey: u32,
        swap: u64,
        compare: u64,
    },
    FetchAdd {
        va: u64,
        rkey: u32,
        add: u64,
    },
}

impl Op {
    /// READ and atomics: limited in number, waited for by a fence, answered with data.
    pub(super) fn is_fetching(self) -> bool {
        matches!(self, Op::Read { .. } | Op::CompareSwap { .. } | Op::FetchAdd { .. })
    }
}

/// Part of a payload: elsewhere in memory, or in the WQE itself.
#[derive(Debug)]
enum Piece {
    Memory(Segment),
    Inline(Vec<u8>),
}

/// A send WQE that passed its checks. Bounded: a WQE has at most 63 segments and 1008 bytes.
#[derive(Debug)]
pub(super) struct Wqe {
    /// Counter of its first WQEBB.
    pub(super) index: u16,
    pub(super) opcode: Opcode,
    pub(super) op: Op,
    /// A CQE on success.
    pub(super) signaled: bool,
    pub(super) solicited: bool,
    pub(super) fence: bool,
    /// Bytes of payload, or of the answer.
    pub(super) len: u32,
    pub(super) umr: Option<Box<Umr>>,
    pub(super) ethernet: Option<Box<EthernetSend>>,
    /// UD and DC: where it goes.
    pub(super) to: Option<Destination>,
    /// XRC: the SRQ at the peer.
    pub(super) xrc_srqn: u32,
    pieces: Vec<Piece>,
}

/// What an address vector says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    pub(super) src: Address,
    pub(super) dst: Address,
    /// Queue pair, or target of dynamic connections.
    pub(super) qpn: u32,
    pub(super) qkey: u32,
    pub(super) dc_key: u64,
}

impl Wqe {
    /// Reads payload, `offset` bytes into it.
    pub(super) fn gather(
        &self,
        shared: &Shared,
        who: Who,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), KeyFault> {
        let (mut skip, mut done) = (offset, 0);
        for piece in &self.pieces {
            let len = piece.len();
            if skip >= len {
                skip -= len;
                continue;
            }
            let run = (len - skip).min((buf.len() - done) as u64) as usize;
            let into = &mut buf[done..done + run];
            match piece {
                Piece::Memory(segment) => {
                    shared.keys.gather(&*shared.dma, who, &[*segment], skip, into)?;
                }
                // In range: `run` ends at or before the piece's end.
                Piece::Inline(data) => into.copy_from_slice(&data[skip as usize..][..run]),
            }
            skip = 0;
            done += run;
            if done == buf.len() {
                break;
            }
        }
        if done == buf.len() { Ok(()) } else { Err(KeyFault::Range) }
    }

    /// Writes a part of the answer, `offset` bytes into it.
    pub(super) fn scatter(
        &self,
        shared: &Shared,
        who: Who,
        mut offset: u64,
        mut data: &[u8],
    ) -> Result<(), KeyFault> {
        for piece in &self.pieces {
            let Piece::Memory(segment) = piece else {
                return Err(KeyFault::Range);
            };
            if offset >= segment.len {
                offset -= segment.len;
                continue;
            }
            let run = (segment.len - offset).min(data.len() as u64) as usize;
            let (now, later) = data.split_at(run);
            shared.keys.scatter(&*shared.dma, who, &[*segment], offset, now)?;
            offset = 0;
            data = later;
            if data.is_empty() {
                break;
            }
        }
        if data.is_empty() { Ok(()) } else { Err(KeyFault::Range) }
    }
}

/// Bytes that are copied at once.
const COPY_STEP: usize = 1 << 16;

impl Wqe {
    /// Copies the first piece to the second.
    pub(super) fn copy(&self, shared: &Shared, who: Who) -> Result<(), KeyFault> {
        let [Piece::Memory(from), Piece::Memory(to)] = &self.pieces[..] else {
            return Err(KeyFault::Range);
        };
        let mut buf = vec![0; COPY_STEP.min(self.len as usize)];
        let mut done = 0;
        while done < from.len {
            let run = (from.len - done).min(COPY_STEP as u64) as usize;
            shared.keys.gather(&*shared.dma, who, &[*from], done, &mut buf[..run])?;
            shared.keys.scatter(&*shared.dma, who, &[*to], done, &buf[..run])?;
            done += run as u64;
        }
        Ok(())
    }
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Piece::Memory(segment) => segment.len,
            Piece::Inline(data) => data.len() as u64,
        }
    }
}

/// A send WQE that did not pass.
#[derive(Clone, Copy, Debug)]
pub(super) struct BadWqe {
    pub(super) index: u16,
    pub(super) opcode: Opcode,
    pub(super) why: Failure,
}

/// Fetches the WQE at `qp.sq_fetched`; the caller made sure that one is published. Advances the
/// counter by what the WQE occupies, by one WQEBB at least: a WQE that lies about its length
/// cannot stop the ring.
pub(super) fn fetch(qp: &mut Qp, shared: &mut Shared) -> Result<Wqe, BadWqe> {
    let index = qp.sq_fetched;
    let pending = qp.sq_pending();
    let bad =
        |opcode, syndrome, vendor| BadWqe { index, opcode, why: Failure::new(syndrome, vendor) };
    let unreadable = bad(Opcode::NOP, Syndrome::LOCAL_QP_OP_ERR, vendor::UNREADABLE);
    let Some(sq) = &qp.ctx.sq else {
        return Err(unreadable);
    };
    let mut bytes = [0; WQE_MAX];
    let blocks = match read_ctrl(sq, shared, index, &mut bytes) {
        Ok(ctrl) => blocks_of(ctrl.word1().ds()),
        Err(_) => {
            qp.sq_fetched = index.wrapping_add(1);
            return Err(unreadable);
        }
    };
    qp.sq_fetched = index.wrapping_add(blocks.clamp(1, pending.max(1)));
    shared.stats.send_wqes += 1;
    // A copy: `bytes` is read on below.
    let Ok((ctrl, _)) = mlx5_wqe_ctrl_seg::read_from_prefix(&bytes) else {
        return Err(unreadable);
    };
    let opcode = ctrl.opcode();
    let qp_op = |vendor| bad(opcode, Syndrome::LOCAL_QP_OP_ERR, vendor);
    if ctrl.word0().wqe_index() != index {
        return Err(qp_op(vendor::INDEX));
    }
    if ctrl.word1().qpn() != qp.qpn {
        return Err(qp_op(vendor::QPN));
    }
    if blocks == 0 || blocks > pending {
        return Err(qp_op(vendor::SIZE));
    }
    let len = usize::from(ctrl.word1().ds()) * DS_BYTES;
    if read_ring(sq, shared, index, &mut bytes[..len]).is_err() {
        return Err(qp_op(vendor::UNREADABLE));
    }
    let service = match qp.ctx.service {
        Service::Rc => PrmService::Rc,
        Service::Uc => PrmService::Uc,
        Service::Ud => PrmService::Ud,
        Service::Xrc => PrmService::Xrc,
        Service::Dci | Service::Dct => PrmService::Dc,
        // Nothing leaves the host: no address, as with a connection.
        Service::Umr => PrmService::Rc,
        Service::Raw => PrmService::Raw,
    };
    let view = WqeView::parse(&bytes[..len], service).map_err(|_| qp_op(vendor::SEGMENTS))?;
    let op = operation(&view)
        .filter(|&op| has_operation(qp.ctx.service, op))
        .ok_or(qp_op(vendor::OPCODE))?;
    let (to, xrc_srqn) = address(&view, qp, shared);
    let named = matches!(qp.ctx.service, Service::Ud | Service::Dci);
    if named && !matches!(op, Op::Nop | Op::Umr) && to.is_none() {
        return Err(qp_op(vendor::ADDRESS));
    }
    let umr = if op == Op::Umr {
        Some(Box::new(umr::parse(&view).ok_or(qp_op(vendor::SEGMENTS))?))
    } else {
        None
    };
    let ethernet = view.segments().find_map(|segment| match segment {
        Seg::Eth(segment, header) => Some(Box::new(EthernetSend::new(segment, header, opcode))),
        _ => None,
    });
    let (pieces, total) = payload(&view, op).ok_or(qp_op(vendor::SEGMENTS))?;
    let length = bad(opcode, Syndrome::LOCAL_LENGTH_ERR, vendor::LENGTH);
    let atomic = matches!(op, Op::CompareSwap { .. } | Op::FetchAdd { .. });
    // A datagram is one packet (IBTA 9.8.3).
    let longest = match qp.ctx.service {
        _ if op == Op::Copy => shared.config.max_copy,
        Service::Ud => shared.config.active_mtu.bytes(),
        Service::Raw => send::MAX_PAYLOAD,
        _ => shared.config.max_msg_size,
    };
    // No length stands for 2 GiB there (rdma-core qp.c, `mlx5_wr_memcpy`), which is too long here.
    if total > longest.into()
        || (op == Op::Copy && total == 0)
        || (atomic && total < ATOMIC_LEN.into())
    {
        return Err(length);
    }
    for (at, piece) in pieces.iter().enumerate() {
        let is_written = op.is_fetching() || (op == Op::Copy && at == 1);
        let need = if is_written { Access::LOCAL_WRITE } else { Access::empty() };
        if let Piece::Memory(segment) = piece
            && let Err(fault) = shared.keys.check(qp.who(), *segment, need)
        {
            return Err(bad(opcode, Syndrome::LOCAL_PROT_ERR, fault.vendor()));
        }
    }
    let flags = ctrl.flags();
    Ok(Wqe {
        index,
        opcode,
        op,
        signaled: qp.ctx.sq_sig_all || flags.ce() >= FmCeSe::CE_CQE,
        solicited: flags.se(),
        // Smaller modes order local operations only, of which there are none.
        fence: flags.fm() >= FmCeSe::FENCE_READ_ATOMIC,
        len: if atomic { ATOMIC_LEN } else { total as u32 },
        umr,
        ethernet,
        to,
        xrc_srqn,
        pieces,
    })
}

/// Index and opcode of the next WQE to flush, and steps over it. None of the fetch's checks: the
/// WQE is not executed, only named.
pub(super) fn skip(qp: &mut Qp, shared: &mut Shared) -> (u16, Opcode) {
    let index = qp.sq_fetched;
    let pending = qp.sq_pending();
    let mut bytes = [0; WQE_MAX];
    let ctrl = qp.ctx.sq.as_ref().and_then(|sq| read_ctrl(sq, shared, index, &mut bytes).ok());
    let (blocks, opcode) = match ctrl {
        Some(ctrl) => (blocks_of(ctrl.word1().ds()), ctrl.opcode()),
        None => (1, Opcode::NOP),
    };
    qp.sq_fetched = index.wrapping_add(blocks.clamp(1, pending.max(1)));
    (index, opcode)
}

fn blocks_of(ds: u8) -> u16 {
    (usize::from(ds) * DS_BYTES).div_ceil(MLX5_SEND_WQE_BB) as u16
}

fn read_ctrl(
    sq: &SqContext,
    shared: &Shared,
    index: u16,
    bytes: &mut [u8; WQE_MAX],
) -> Result<mlx5_wqe_ctrl_seg, DmaFault> {
    read_ring(sq, shared, index, &mut bytes[..DS_BYTES])?;
    let fault = DmaFault { addr: 0, len: 0 };
    mlx5_wqe_ctrl_seg::read_from_prefix(&bytes[..]).map(|(ctrl, _)| ctrl).map_err(|_| fault)
}

/// Reads `buf` from the ring, starting at WQEBB `index` and going on at the start where the ring
/// ends: a WQE may wrap between any two of its segments, and within inline data.
fn read_ring(sq: &SqContext, shared: &Shared, index: u16, buf: &mut [u8]) -> Result<(), DmaFault> {
    let ring = (MLX5_SEND_WQE_BB as u64) << sq.log_wqebbs;
    let start = (u64::from(index) * MLX5_SEND_WQE_BB as u64) & (ring - 1);
    let mut done = 0;
    // A small ring may be passed more than once; each turn reads at least one byte.
    while done < buf.len() {
        let at = (start + done as u64) & (ring - 1);
        let run = (ring - at).min((buf.len() - done) as u64) as usize;
        sq.region.read(&*shared.dma, at, &mut buf[done..done + run])?;
        done += run;
    }
    Ok(())
}

/// The operations this device has. Others, known or not to the PRM, are errors of the QP.
fn operation(view: &WqeView<'_>) -> Option<Op> {
    let imm = view.ctrl().imm.get();
    let raddr = view.raddr().map(|raddr| (raddr.raddr.get(), raddr.rkey.get()));
    let atomic = view.segments().find_map(|segment| match segment {
        Seg::Atomic(atomic) => Some((atomic.swap_add.get(), atomic.compare.get())),
        _ => None,
    });
    match (view.opcode(), raddr, atomic) {
        (Opcode::NOP, ..) => Some(Op::Nop),
        (Opcode::UMR, ..) => Some(Op::Umr),
        (Opcode::MMO, ..) if view.ctrl().word0().opmod() == MLX5_OPC_MOD_MMO_DMA => Some(Op::Copy),
        // A large frame in segments is a frame for raw queues, and nothing for the others.
        (Opcode::SEND, ..) => Some(Op::Send),
        (Opcode::TSO, ..) if view.service() == PrmService::Raw => Some(Op::Send),
        (Opcode::SEND_IMM, ..) => Some(Op::SendImm(imm)),
        (Opcode::SEND_INVAL, ..) => Some(Op::SendInval(imm)),
        (Opcode::RDMA_WRITE, Some((va, rkey)), _) => Some(Op::Write { va, rkey, imm: None }),
        (Opcode::RDMA_WRITE_IMM, Some((va, rkey)), _) => {
            Some(Op::Write { va, rkey, imm: Some(imm) })
        }
        (Opcode::RDMA_READ, Some((va, rkey)), _) => Some(Op::Read { va, rkey }),
        (Opcode::ATOMIC_CS, Some((va, rkey)), Some((swap, compare))) => {
            Some(Op::CompareSwap { va, rkey, swap, compare })
        }
        (Opcode::ATOMIC_FA, Some((va, rkey)), Some((add, _))) => {
            Some(Op::FetchAdd { va, rkey, add })
        }
        _ => None,
    }
}

/// What each service carries (IBTA vol 1, table 33 "Operations by transport service").
fn has_operation(service: Service, op: Op) -> bool {
    match service {
        Service::Rc => true,
        Service::Xrc | Service::Dci | Service::Dct => op != Op::Copy,
        Service::Uc => {
            matches!(op, Op::Nop | Op::Umr | Op::Send | Op::SendImm(_) | Op::Write { .. })
        }
        Service::Umr => matches!(op, Op::Nop | Op::Umr),
        Service::Raw => matches!(op, Op::Nop | Op::Send),
        Service::Ud => matches!(op, Op::Nop | Op::Send | Op::SendImm(_)),
    }
}

/// Destination of a datagram or a dynamic connection, and number of the peer's SRQ; nothing for a connection.
fn address(view: &WqeView<'_>, qp: &Qp, shared: &Shared) -> (Option<Destination>, u32) {
    match view.segments().next() {
        Some(Seg::Av(av)) => {
            let grh = GrhGidFl(av.grh_gid_fl.get());
            // Without a GRH the GID says nothing; Ethernet has no LID, and there is the UDP port there.
            let ethernet = shared.config.link == LinkLayer::Ethernet;
            let gid = if ethernet || grh.grh() { av.rgid } else { [0; 16] };
            let dst = Address { gid, lid: if ethernet { 0 } else { av.rlid.get() } };
            let index = usize::from(grh.src_addr_index());
            let to = destination(shared, index, dst, av.dqp_dct.get(), av.dc_key(), qp);
            (Some(to), 0)
        }
        Some(Seg::BaseAv(av)) => {
            let dst = Address { gid: [0; 16], lid: av.rlid.get() };
            (Some(destination(shared, 0, dst, av.dqp_dct.get(), av.key.get(), qp)), 0)
        }
        Some(Seg::Xrc(xrc)) => (None, xrc.xrc_srqn.get() & 0x00ff_ffff),
        _ => (None, 0),
    }
}

fn destination(
    shared: &Shared,
    sgid_index: usize,
    dst: Address,
    dqp: u32,
    key: u64,
    qp: &Qp,
) -> Destination {
    let ours = &shared.port.addresses;
    let src = ours.get(sgid_index).or(ours.first()).copied().unwrap_or_default();
    let qpn = DqpDct(dqp).qpn();
    if qp.ctx.service == Service::Dci {
        return Destination { src, dst, qpn, qkey: 0, dc_key: key };
    }
    let qkey = (key >> 32) as u32;
    // A Q_Key with the top bit set stands for the QP's own (IBTA 3.5.3, "controlled Q_Keys").
    let qkey = if qkey >> 31 != 0 { qp.attrs.qkey } else { qkey };
    Destination { src, dst, qpn, qkey, dc_key: 0 }
}

/// The payload's pieces and bytes; None if a segment does not belong there.
fn payload(view: &WqeView<'_>, op: Op) -> Option<(Vec<Piece>, u64)> {
    let mut pieces = Vec::new();
    let mut total = 0;
    if matches!(op, Op::Nop | Op::Umr) {
        return Some((pieces, 0));
    }
    for segment in view.segments() {
        let piece = match segment {
            Seg::Av(_) | Seg::BaseAv(_) | Seg::Xrc(_) => continue,
            Seg::Raddr(_) | Seg::Atomic(_) => continue,
            // The start of a frame, not of the payload.
            Seg::Eth(..) => continue,
            // Where an engine that computes tells its result; a copy has none.
            Seg::MmoMetadata(_) => continue,
            Seg::Inline(_) if op == Op::Copy => return None,
            Seg::Data(data) => Piece::Memory(segment_of(data)),
            // An answer cannot go into the WQE.
            Seg::Inline(_) if op.is_fetching() => return None,
            Seg::Inline(data) => Piece::Inline(data.to_vec()),
            _ => return None,
        };
        total += piece.len();
        pieces.push(piece);
    }
    if op == Op::Copy {
        let [from, to] = &pieces[..] else { return None };
        total = from.len();
        if total != to.len() {
            return None;
        }
    }
    Some((pieces, total))
}

fn segment_of(data: &mlx5_wqe_data_seg) -> Segment {
    Segment { key: data.lkey.get(), addr: data.addr.get(), len: data.length().into() }
}
