//! Fetches work requests from the ring, decodes and checks them.

use uverbs_mlx5_prm::address::{DqpDct, GrhGidFl};
use uverbs_mlx5_prm::ctrl::{DS_BYTES, DS_MAX, FmCeSe, MLX5_SEND_WQE_BB, mlx5_wqe_ctrl_seg};
use uverbs_mlx5_prm::opcode::{MLX5_OPC_MOD_MMO_DMA, Opcode};
use uverbs_mlx5_prm::syndrome::Syndrome;
use uverbs_mlx5_prm::wqe::{Segment as Seg, Service as PrmService, WqeView};
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use crate::hca::dma::DmaFault;
use crate::hca::dma::RegionAccess;
use crate::hca::engine::ethernet::send;
use crate::hca::engine::responder::placement;
use crate::hca::engine::wqe::segments::Parts;
use crate::hca::failure::{Failure, Vendor};
use crate::hca::state::common::Common;
use crate::hca::state::frame::EthernetSend;
use crate::hca::state::qp::Qp;
use crate::hca::state::wqe::{Destination, Op, Piece, Wqe};
use crate::hca::state::{tags, umr};
use crate::wire::{Address, Route};
use uverbs_front::backend::context::{Access, LinkLayer, Service, SqContext};
use uverbs_front::backend::number::{Key, Qpn};

/// Bytes of the longest send WQE.
const WQE_MAX: usize = DS_MAX as usize * DS_BYTES;
/// Bytes of most send WQEs: an address, and inline data or a few SGEs.
const SHORT: usize = 2 * MLX5_SEND_WQE_BB;
/// Bytes of an atomic's operand and result.
pub(crate) const ATOMIC_LEN: u32 = 8;

/// A send WQE that failed the checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BadWqe {
    pub(crate) index: u16,
    pub(crate) opcode: Opcode,
    /// DC stream; None if the ring itself is inconsistent, which stops the queue pair and no single
    /// stream.
    pub(crate) stream: Option<u16>,
    pub(crate) why: Failure,
}

/// Fetches the WQE at `qp.sq_fetched` into `wqe`, which must be cleared. The caller made sure that
/// a WQE is published. Advances the counter by the WQE's length, by one WQEBB at least: a WQE that
/// lies about its length cannot stop the ring.
pub(crate) fn fetch(qp: &mut Qp, common: &mut Common, wqe: &mut Wqe) -> Result<(), BadWqe> {
    // Most WQEs are short, and clearing room for the longest takes longer than reading them.
    let mut short = [0; SHORT];
    let (ctrl, len, have) = step(qp, common, &mut short)?;
    let mut long = None;
    let bytes = match len {
        0..=SHORT => (&mut short[..len], have),
        _ => (&mut long.insert([0; WQE_MAX])[..len], 0),
    };
    let done = decode(qp, common, &ctrl, bytes, wqe);
    if done.is_ok() && !qp.requester.placements.is_empty() {
        placement::instead(qp, wqe);
    }
    done.map_err(|why| BadWqe {
        index: ctrl.word0().wqe_index(),
        opcode: ctrl.opcode(),
        stream: Some(stream(qp, &ctrl)),
        why,
    })
}

fn stream(qp: &Qp, ctrl: &mlx5_wqe_ctrl_seg) -> u16 {
    if qp.ctx.streams.is_some() { ctrl.dci_stream_channel_id.get() } else { 0 }
}

/// Steps over the WQE and checks that its index is the ring's. Returns its control segment, its
/// length in bytes, and how many of these are in `short` already.
fn step(
    qp: &mut Qp,
    common: &mut Common,
    short: &mut [u8; SHORT],
) -> Result<(mlx5_wqe_ctrl_seg, usize, usize), BadWqe> {
    let index = qp.sq_fetched;
    let pending = qp.sq_pending();
    let bad = |opcode, vendor| {
        let why = Failure::new(Syndrome::LOCAL_QP_OP_ERR, vendor);
        BadWqe { index, opcode, stream: None, why }
    };
    let Some(sq) = &qp.ctx.sq else {
        return Err(bad(Opcode::NOP, Vendor::UNREADABLE));
    };
    // Reads as many bytes as most WQEs have, if so many are published: one access instead of two.
    let published = SHORT.min(usize::from(pending) * MLX5_SEND_WQE_BB);
    let have = match read_ring(sq, common, index, &mut short[..published]) {
        Ok(()) => published,
        Err(_) => 0,
    };
    let ctrl = match have {
        // Perhaps only the bytes behind this WQE can't be read.
        0 => read_ctrl(sq, common, index).ok(),
        _ => mlx5_wqe_ctrl_seg::read_from_prefix(short).ok().map(|(ctrl, _)| ctrl),
    };
    let Some(ctrl) = ctrl else {
        qp.sq_fetched = index.wrapping_add(1);
        return Err(bad(Opcode::NOP, Vendor::UNREADABLE));
    };
    let blocks = blocks_of(ctrl.word1().ds());
    qp.sq_fetched = index.wrapping_add(blocks.clamp(1, pending.max(1)));
    common.stats.send_wqes += 1;
    let opcode = ctrl.opcode();
    if ctrl.word0().wqe_index() != index {
        return Err(bad(opcode, Vendor::INDEX));
    }
    if ctrl.word1().qpn() != qp.qpn.0 {
        return Err(bad(opcode, Vendor::QPN));
    }
    if blocks == 0 || blocks > pending {
        return Err(bad(opcode, Vendor::SIZE));
    }
    Ok((ctrl, usize::from(ctrl.word1().ds()) * DS_BYTES, have))
}

/// Reads the rest of the WQE, decodes it, and checks that the queue pair may post it.
fn decode(
    qp: &Qp,
    common: &Common,
    ctrl: &mlx5_wqe_ctrl_seg,
    (bytes, have): (&mut [u8], usize),
    wqe: &mut Wqe,
) -> Result<(), Failure> {
    let opcode = ctrl.opcode();
    let qp_op = |vendor| Failure::new(Syndrome::LOCAL_QP_OP_ERR, vendor);
    let read = match &qp.ctx.sq {
        Some(_) if have >= bytes.len() => true,
        Some(sq) => read_ring(sq, common, ctrl.word0().wqe_index(), bytes).is_ok(),
        None => false,
    };
    if !read {
        return Err(qp_op(Vendor::UNREADABLE));
    }
    let service = layout(qp.ctx.service);
    common.tap.wqe(common.now, qp.qpn, format_args!("{service:?}"), bytes);
    let (view, parts) =
        Parts::find(bytes, service, &mut wqe.pieces).map_err(|_| qp_op(Vendor::SEGMENTS))?;
    let op = operation(&view, &parts)
        .filter(|&op| has_operation(qp.ctx.service, op) && (!matches!(op, Op::Tags) || qp.tags))
        .ok_or(qp_op(Vendor::OPCODE))?;
    (wqe.to, wqe.xrc_srqn) = (None, 0);
    if !matches!(qp.ctx.service, Service::Rc | Service::Uc) {
        (wqe.to, wqe.xrc_srqn) = address(parts.first, qp, common);
    }
    let named = matches!(qp.ctx.service, Service::Ud | Service::Dci);
    if named && !matches!(op, Op::Nop | Op::Umr) && wqe.to.is_none() {
        return Err(qp_op(Vendor::ADDRESS));
    }
    wqe.umr = match op {
        Op::Umr => Some(Box::new(umr::parse(&view).ok_or(qp_op(Vendor::SEGMENTS))?)),
        _ => None,
    };
    wqe.ethernet = parts
        .ethernet
        .map(|(segment, header)| Box::new(EthernetSend::new(segment, header, opcode)));
    wqe.tags = match op {
        Op::Tags => Some(Box::new(tags::parse(&view).ok_or(qp_op(Vendor::SEGMENTS))?)),
        _ => None,
    };
    let total = parts.payload(op).ok_or(qp_op(Vendor::SEGMENTS))?;
    wqe.len = check_length(qp, common, op, total)?;
    check_pieces(qp, common, op, wqe.pieces.list())?;
    let flags = ctrl.flags();
    wqe.index = ctrl.word0().wqe_index();
    (wqe.opcode, wqe.op) = (opcode, op);
    wqe.signaled = qp.ctx.sq_sig_all || flags.ce() >= FmCeSe::CE_CQE;
    wqe.solicited = flags.se();
    // Smaller fence modes order local operations only, which this device always executes in order.
    wqe.fence = flags.fm() >= FmCeSe::FENCE_READ_ATOMIC;
    wqe.stream = stream(qp, ctrl);
    Ok(())
}

/// WQE layout of a service.
fn layout(service: Service) -> PrmService {
    match service {
        Service::Rc => PrmService::Rc,
        Service::Uc => PrmService::Uc,
        Service::Ud => PrmService::Ud,
        Service::Xrc => PrmService::Xrc,
        Service::Dci | Service::Dct => PrmService::Dc,
        // A UMR queue sends nothing: no address segment, as in a connection.
        Service::Umr => PrmService::Rc,
        Service::Raw => PrmService::Raw,
    }
}

/// Length of the message. Fails if it is too long or too short.
#[inline]
fn check_length(qp: &Qp, common: &Common, op: Op, total: u64) -> Result<u32, Failure> {
    let atomic = matches!(op, Op::CompareSwap { .. } | Op::FetchAdd { .. });
    let is_copy = matches!(op, Op::Copy);
    let longest = match qp.ctx.service {
        _ if is_copy => common.config.max_copy,
        // A datagram is one packet (IBTA 9.8.3).
        Service::Ud => common.config.active_mtu.bytes(),
        Service::Raw => send::MAX_PAYLOAD,
        _ => common.config.max_msg_size,
    };
    // A length field of 0 stands for 2 GiB in a copy (rdma-core qp.c, `mlx5_wr_memcpy`), more than
    // this device's limit.
    if total > longest.into() || (is_copy && total == 0) || (atomic && total < ATOMIC_LEN.into()) {
        return Err(Failure::new(Syndrome::LOCAL_LENGTH_ERR, Vendor::LENGTH));
    }
    Ok(if atomic { ATOMIC_LEN } else { total as u32 })
}

/// Checks that the SGEs' keys allow the operation.
#[inline]
fn check_pieces(qp: &Qp, common: &Common, op: Op, pieces: &[Piece]) -> Result<(), Failure> {
    for (at, piece) in pieces.iter().enumerate() {
        let Piece::Memory(segment) = piece else { continue };
        let is_written = op.is_fetching() || (matches!(op, Op::Copy) && at == 1);
        let need = if is_written { Access::LOCAL_WRITE } else { Access::empty() };
        if let Err(fault) = common.keys.check(qp.who(), *segment, need) {
            return Err(Failure::new(Syndrome::LOCAL_PROT_ERR, fault.vendor()));
        }
    }
    Ok(())
}

/// Steps over the next WQE to flush and returns its index and opcode. The WQE is not executed, so
/// it is not checked.
pub(crate) fn skip(qp: &mut Qp, common: &mut Common) -> (u16, Opcode) {
    let index = qp.sq_fetched;
    let pending = qp.sq_pending();
    let ctrl = qp.ctx.sq.as_ref().and_then(|sq| read_ctrl(sq, common, index).ok());
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

fn read_ctrl(sq: &SqContext, common: &Common, index: u16) -> Result<mlx5_wqe_ctrl_seg, DmaFault> {
    let mut ctrl = mlx5_wqe_ctrl_seg::new_zeroed();
    read_ring(sq, common, index, ctrl.as_mut_bytes())?;
    Ok(ctrl)
}

/// Reads `buf` from the ring, starting at WQEBB `index` and wrapping at the end: a WQE may wrap
/// between any two of its segments, and within inline data.
#[inline]
fn read_ring(sq: &SqContext, common: &Common, index: u16, buf: &mut [u8]) -> Result<(), DmaFault> {
    let ring = (MLX5_SEND_WQE_BB as u64) << sq.log_wqebbs;
    let start = (u64::from(index) * MLX5_SEND_WQE_BB as u64) & (ring - 1);
    if start + buf.len() as u64 <= ring {
        return sq.region.read(&*common.dma, start, buf);
    }
    let mut done = 0;
    // `buf` may be longer than the ring; each round reads at least one byte.
    while done < buf.len() {
        let at = (start + done as u64) & (ring - 1);
        let run = (ring - at).min((buf.len() - done) as u64) as usize;
        sq.region.read(&*common.dma, at, &mut buf[done..done + run])?;
        done += run;
    }
    Ok(())
}

/// Operation of a WQE. None: an opcode that this device lacks, which is an error of the QP.
#[inline]
fn operation(view: &WqeView<'_>, parts: &Parts<'_, '_>) -> Option<Op> {
    let imm = view.ctrl().imm.get();
    match (view.opcode(), parts.raddr, parts.atomic) {
        (Opcode::NOP, ..) => Some(Op::Nop),
        (Opcode::UMR, ..) => Some(Op::Umr),
        (Opcode::TAG_MATCHING, ..) => Some(Op::Tags),
        (Opcode::MMO, ..) if view.ctrl().word0().opmod() == MLX5_OPC_MOD_MMO_DMA => Some(Op::Copy),
        // TSO is for raw packet queues only.
        (Opcode::SEND, ..) => Some(Op::Send),
        (Opcode::TSO, ..) if view.service() == PrmService::Raw => Some(Op::Send),
        (Opcode::SEND_IMM, ..) => Some(Op::SendImm(imm)),
        (Opcode::SEND_INVAL, ..) => Some(Op::SendInval(Key(imm))),
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

/// True if a service has an operation (IBTA vol 1, table 33 "Operations by transport service").
#[inline]
fn has_operation(service: Service, op: Op) -> bool {
    match service {
        Service::Rc => true,
        Service::Xrc | Service::Dci | Service::Dct => !matches!(op, Op::Copy),
        Service::Uc => {
            matches!(op, Op::Nop | Op::Umr | Op::Send | Op::SendImm(_) | Op::Write { .. })
        }
        Service::Umr => matches!(op, Op::Nop | Op::Umr),
        Service::Raw => matches!(op, Op::Nop | Op::Send),
        Service::Ud => matches!(op, Op::Nop | Op::Send | Op::SendImm(_)),
    }
}

/// Destination of a datagram or a dynamic connection, and number of the peer's SRQ. A connection
/// has neither in its WQE.
fn address(first: Option<Seg<'_>>, qp: &Qp, common: &Common) -> (Option<Destination>, u32) {
    match first {
        Some(Seg::Av(av)) => {
            let grh = GrhGidFl(av.grh_gid_fl.get());
            // Without a GRH the GID means nothing. Ethernet has no LID: the field holds the UDP
            // port.
            let ethernet = common.config.link == LinkLayer::Ethernet;
            let gid = if ethernet || grh.grh() { common.port.resolve(av.rgid) } else { [0; 16] };
            let dst = Address { gid, lid: if ethernet { 0 } else { av.rlid.get() } };
            let index = grh.src_addr_index();
            // On Ethernet the priority is above a zero bit (`mlx5_ib_create_ah`, `create_ib_ah`).
            let tag = common.port.tag(index, av.stat_rate_sl >> 1);
            let route = Route { tag, ..Route::new(av.tclass, grh.flow_label(), av.hop_limit) };
            let to = destination(common, index.into(), dst, av.dqp_dct.get(), av.dc_key(), qp);
            (Some(Destination { route, ..to }), 0)
        }
        Some(Seg::BaseAv(av)) => {
            let dst = Address { gid: [0; 16], lid: av.rlid.get() };
            (Some(destination(common, 0, dst, av.dqp_dct.get(), av.key.get(), qp)), 0)
        }
        Some(Seg::Xrc(xrc)) => (None, xrc.xrc_srqn.get() & 0x00ff_ffff),
        _ => (None, 0),
    }
}

fn destination(
    common: &Common,
    sgid_index: usize,
    dst: Address,
    dqp: u32,
    key: u64,
    qp: &Qp,
) -> Destination {
    let ours = &common.port.addresses;
    let src = ours.get(sgid_index).or(ours.first()).copied().unwrap_or_default();
    let (qpn, route) = (Qpn(DqpDct(dqp).qpn()), Route::default());
    if qp.ctx.service == Service::Dci {
        return Destination { src, dst, route, qpn, qkey: 0, dc_key: key };
    }
    let qkey = (key >> 32) as u32;
    // A Q_Key with the top bit set stands for the QP's own (IBTA 3.5.3, "controlled Q_Keys").
    let qkey = if qkey >> 31 != 0 { qp.attrs.qkey } else { qkey };
    Destination { src, dst, route, qpn, qkey, dc_key: 0 }
}
