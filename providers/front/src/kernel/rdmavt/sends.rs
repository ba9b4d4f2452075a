//! POST_SEND (`ib_uverbs_post_send` in `core/uverbs_cmd.c`; `rvt_post_send` in `sw/rdmavt/qp.c`):
//! its work requests become WQEs of the device.

use std::collections::VecDeque;

use nix::errno::Errno;
use uverbs_kernel_abi::qp::ib_uverbs_qp_dest;
use uverbs_kernel_abi::wc::{
    IB_SEND_FENCE, IB_SEND_SIGNALED, IB_SEND_SOLICITED, IB_UVERBS_WC_COMP_SWAP,
    IB_UVERBS_WC_FETCH_ADD, IB_UVERBS_WC_RDMA_READ, IB_UVERBS_WC_RDMA_WRITE, IB_UVERBS_WC_SEND,
    IB_UVERBS_WR_ATOMIC_CMP_AND_SWP, IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD, IB_UVERBS_WR_RDMA_READ,
    IB_UVERBS_WR_RDMA_WRITE, IB_UVERBS_WR_RDMA_WRITE_WITH_IMM, IB_UVERBS_WR_SEND,
    IB_UVERBS_WR_SEND_WITH_IMM, IB_UVERBS_WR_SEND_WITH_INV, ib_uverbs_send_wr, ib_uverbs_sge,
};
use uverbs_mlx5_prm::address::{DqpDct, GrhGidFl, StatRateSl, mlx5_wqe_av, mlx5_wqe_av_key};
use uverbs_mlx5_prm::ctrl::{FmCeSe, MLX5_SEND_WQE_BB, OpmodIdxOpcode, QpnDs, mlx5_wqe_ctrl_seg};
use uverbs_mlx5_prm::data::mlx5_wqe_data_seg;
use uverbs_mlx5_prm::doorbell::MLX5_BF_OFFSET;
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::remote::{mlx5_wqe_atomic_seg, mlx5_wqe_raddr_seg};
use zerocopy::IntoBytes;

use super::memory::Memory;
use crate::backend::Backend;
use crate::backend::config::Config;
use crate::backend::context::{QpAttrs, Service, SqContext};
use crate::backend::number::{Key, Qpn, UarNumber};

const WQEBB: u64 = MLX5_SEND_WQE_BB as u64;

/// A send in progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    pub(super) wr_id: u64,
    /// `IB_UVERBS_WC_*`.
    pub(super) opcode: u32,
    pub(super) bytes: u32,
    pub(super) signaled: bool,
}

/// A send queue: the device's ring, and sends in progress.
#[derive(Debug)]
pub(super) struct Sends {
    service: Service,
    max_wr: u32,
    max_sge: u32,
    signals_all: bool,
    wqes: Memory,
    log_wqebbs: u8,
    /// WQEBBs written.
    position: u16,
    pub(super) uar: UarNumber,
    pub(super) flying: VecDeque<Sent>,
}

/// WQEBBs of the longest WQE: control segment, address and SGEs.
fn blocks(max_sge: u32) -> u64 {
    let bytes = size_of::<mlx5_wqe_ctrl_seg>() + size_of::<mlx5_wqe_av>();
    (bytes as u64 + u64::from(max_sge) * size_of::<mlx5_wqe_data_seg>() as u64).div_ceil(WQEBB)
}

/// Opcode of the device, and of the completion; `None` if the transport lacks it
/// (`hfi1_post_parms`).
fn opcodes(service: Service, opcode: u32) -> Option<(Opcode, u32)> {
    let (device, completion, unreliable, datagram) = match opcode {
        IB_UVERBS_WR_SEND => (Opcode::SEND, IB_UVERBS_WC_SEND, true, true),
        IB_UVERBS_WR_SEND_WITH_IMM => (Opcode::SEND_IMM, IB_UVERBS_WC_SEND, true, true),
        IB_UVERBS_WR_SEND_WITH_INV => (Opcode::SEND_INVAL, IB_UVERBS_WC_SEND, false, false),
        IB_UVERBS_WR_RDMA_WRITE => (Opcode::RDMA_WRITE, IB_UVERBS_WC_RDMA_WRITE, true, false),
        IB_UVERBS_WR_RDMA_WRITE_WITH_IMM => {
            (Opcode::RDMA_WRITE_IMM, IB_UVERBS_WC_RDMA_WRITE, true, false)
        }
        IB_UVERBS_WR_RDMA_READ => (Opcode::RDMA_READ, IB_UVERBS_WC_RDMA_READ, false, false),
        IB_UVERBS_WR_ATOMIC_CMP_AND_SWP => {
            (Opcode::ATOMIC_CS, IB_UVERBS_WC_COMP_SWAP, false, false)
        }
        IB_UVERBS_WR_ATOMIC_FETCH_AND_ADD => {
            (Opcode::ATOMIC_FA, IB_UVERBS_WC_FETCH_ADD, false, false)
        }
        _ => return None,
    };
    let has = match service {
        Service::Rc => true,
        Service::Uc => unreliable,
        _ => datagram,
    };
    has.then_some((device, completion))
}

/// Address segment of a datagram.
fn vector(to: &ib_uverbs_qp_dest, qpn: u32, qkey: u32) -> mlx5_wqe_av {
    let grh = GrhGidFl::ZERO
        .with_grh(to.is_global != 0)
        .with_src_addr_index(to.sgid_index)
        .with_flow_label(to.flow_label & 0xf_ffff);
    mlx5_wqe_av {
        key: mlx5_wqe_av_key { qkey: qkey.into(), ..Default::default() },
        dqp_dct: DqpDct::ZERO.with_ext(true).with_qpn(qpn & 0xff_ffff).0.into(),
        stat_rate_sl: StatRateSl::ZERO.with_sl(to.sl & 15).0,
        rlid: to.dlid.into(),
        tclass: to.traffic_class,
        hop_limit: to.hop_limit,
        grh_gid_fl: grh.0.into(),
        rgid: to.dgid,
        ..Default::default()
    }
}

impl Sends {
    pub(super) fn new(
        service: Service,
        (max_wr, max_sge): (u32, u32),
        signals_all: bool,
        uar: UarNumber,
    ) -> Result<Self, Errno> {
        let wqebbs = (u64::from(max_wr.max(1)) * blocks(max_sge)).next_power_of_two();
        Ok(Self {
            service,
            max_wr,
            max_sge,
            signals_all,
            wqes: Memory::own(wqebbs * WQEBB)?,
            log_wqebbs: wqebbs.trailing_zeros() as u8,
            position: 0,
            uar,
            flying: VecDeque::new(),
        })
    }

    pub(super) fn context(&self) -> SqContext {
        let region = self.wqes.region(0, WQEBB << self.log_wqebbs);
        SqContext { region, log_wqebbs: self.log_wqebbs }
    }

    /// Each work request names its destination.
    pub(super) fn is_datagram(&self) -> bool {
        self.service == Service::Ud
    }

    pub(super) fn reset(&mut self) {
        self.position = 0;
        self.flying.clear();
    }

    /// Checks a work request and writes its WQE (`rvt_post_one_wr`). `to` is the address of a
    /// datagram.
    pub(super) fn post(
        &mut self,
        (hca, config): (&dyn Backend, &Config),
        (qpn, attrs): (Qpn, &QpAttrs),
        (wr, sges): (&ib_uverbs_send_wr, &[ib_uverbs_sge]),
        to: Option<&ib_uverbs_qp_dest>,
    ) -> Result<(), Errno> {
        if wr.num_sge > self.max_sge {
            return Err(Errno::EINVAL);
        }
        let (opcode, completion) = opcodes(self.service, wr.opcode).ok_or(Errno::EINVAL)?;
        let is_atomic = matches!(opcode, Opcode::ATOMIC_CS | Opcode::ATOMIC_FA);
        let answered = is_atomic || opcode == Opcode::RDMA_READ;
        let fits = sges.first().is_some_and(|sge| sge.length >= 8 && sge.addr % 8 == 0);
        if (is_atomic && !fits) || (answered && attrs.max_rd_atomic == 0) {
            return Err(Errno::EINVAL);
        }
        if self.flying.len() >= self.max_wr as usize {
            return Err(Errno::ENOMEM);
        }
        let mut body = Vec::new();
        if let Some(to) = to {
            let ud = wr.ud();
            body.extend_from_slice(vector(to, ud.remote_qpn, ud.remote_qkey).as_bytes());
        }
        if is_atomic {
            let atomic = wr.atomic();
            let (swap_add, compare) = match opcode {
                Opcode::ATOMIC_CS => (atomic.swap, atomic.compare_add),
                _ => (atomic.compare_add, 0),
            };
            let remote = mlx5_wqe_raddr_seg::new(atomic.remote_addr, atomic.rkey);
            body.extend_from_slice(remote.as_bytes());
            body.extend_from_slice(mlx5_wqe_atomic_seg::new(swap_add, compare).as_bytes());
        } else if completion != IB_UVERBS_WC_SEND {
            let rdma = wr.rdma();
            let remote = mlx5_wqe_raddr_seg::new(rdma.remote_addr, rdma.rkey);
            body.extend_from_slice(remote.as_bytes());
        }
        let mut bytes = 0u32;
        for sge in sges.iter().filter(|sge| sge.length != 0) {
            let (key, len) = (Key(sge.lkey), u64::from(sge.length));
            if !hca.may_send(qpn, key, (sge.addr, len), answered) {
                return Err(Errno::EINVAL);
            }
            bytes = bytes.wrapping_add(sge.length);
            body.extend_from_slice(
                mlx5_wqe_data_seg::new(sge.length, sge.lkey, sge.addr).as_bytes(),
            );
        }
        // A datagram is one packet (`hfi1/qp.c:hfi1_setup_wqe`).
        if to.is_some() && bytes > config.active_mtu.bytes() {
            return Err(Errno::EINVAL);
        }
        self.write(qpn, opcode, wr, &body);
        let signaled = self.signals_all || wr.send_flags & IB_SEND_SIGNALED != 0;
        let bytes = if is_atomic { 8 } else { bytes };
        self.flying.push_back(Sent { wr_id: wr.wr_id, opcode: completion, bytes, signaled });
        Ok(())
    }

    /// Writes a WQE. Each makes a CQE, so that the queue learns of its end.
    fn write(&mut self, qpn: Qpn, opcode: Opcode, wr: &ib_uverbs_send_wr, body: &[u8]) {
        let len = size_of::<mlx5_wqe_ctrl_seg>() + body.len();
        let word0 = OpmodIdxOpcode::ZERO.with_wqe_index(self.position).with_opcode(opcode.0);
        let word1 = QpnDs::ZERO.with_qpn(qpn.0).with_ds((len / 16) as u8);
        let mut flags =
            FmCeSe::ZERO.with_ce(FmCeSe::CE_CQE).with_se(wr.send_flags & IB_SEND_SOLICITED != 0);
        if wr.send_flags & IB_SEND_FENCE != 0 {
            flags = flags.with_fm(FmCeSe::FENCE_READ_ATOMIC);
        }
        let imm = match opcode {
            Opcode::SEND_INVAL => wr.invalidate_rkey(),
            _ => wr.imm_data().get(),
        };
        let ctrl = mlx5_wqe_ctrl_seg::new(word0, word1, flags, imm);
        let wqe = [ctrl.as_bytes(), body].concat();
        let ring = WQEBB << self.log_wqebbs;
        for (block, bytes) in (0u16..).zip(wqe.chunks(MLX5_SEND_WQE_BB)) {
            let at = u64::from(self.position.wrapping_add(block)) * WQEBB % ring;
            self.wqes.write(at, bytes);
        }
        self.position = self.position.wrapping_add(wqe.len().div_ceil(MLX5_SEND_WQE_BB) as u16);
    }

    /// Rings for all written WQEs. `record` is the doorbell record; its second word counts sends.
    pub(super) fn ring(&self, hca: &mut dyn Backend, record: &Memory, qpn: Qpn) {
        record.store(4, u32::from(self.position).to_be());
        let word0 = OpmodIdxOpcode::ZERO.with_wqe_index(self.position.wrapping_sub(1));
        let word1 = QpnDs::ZERO.with_qpn(qpn.0).with_ds(1);
        hca.doorbell(
            self.uar,
            MLX5_BF_OFFSET as u32,
            u64::from(word0.0) << 32 | u64::from(word1.0),
        );
    }
}
