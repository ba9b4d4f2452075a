//! Transitions of a queue pair (Linux `hw/mlx5/qp.c`, `__mlx5_ib_modify_qp`, `opt_mask`,
//! `mlx5_set_path`).

use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap::{ECE_SUPPORT, LOG_MAX_MSG};
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::qp::optpar::{PKEY_INDEX, PRI_PORT, Q_KEY, RAE, RNR_TIMEOUT, RRE, RWE};
use uverbs_mlx5_prm::cmd::qp::{ads, create_qp_out, qpc, rst2init_qp_in};
use uverbs_mlx5_prm::context::PmState;

use super::qp::{Qp, code, object};
use super::{Firmware, SHORT, unsupported};
use crate::interface::halves;
use uverbs_front::backend::context::{Access, AddressVector, Mtu, QpAttrs, QpTransition, Service};
use uverbs_front::backend::error::HcaError;
use uverbs_front::backend::number::Queue;

/// Log2 of the longest datagram, for every path: 4096 bytes (`mlx5_ib_modify_qp`, `IB_MTU_4096`).
const LOG_DATAGRAM_MAX: u64 = 12;
/// `log_ack_req_freq` of mlx5_ib, `MLX5_IB_ACK_REQ_FREQ`.
const LOG_ACK_REQ_FREQ: u64 = 8;
/// `atomic_mode` of the InfiniBand operations (`MLX5_ATOMIC_MODE_IB_COMP`).
const ATOMIC_IB: u64 = 1;

/// Optional attributes that a transition sets. All have their values in the context, so that
/// setting one that did not change changes nothing.
fn optional(service: Service, to: QpTransition) -> u64 {
    use QpTransition::*;
    let (own, timeout) = match service {
        Service::Rc | Service::Xrc => (RRE | RAE | RWE, RNR_TIMEOUT),
        Service::Uc => (RWE, 0),
        Service::Ud => (Q_KEY, 0),
        // `opt_mask` has no row for other services.
        _ => return 0,
    };
    match to {
        InitToInit => own | PKEY_INDEX | PRI_PORT,
        InitToRtr => own | PKEY_INDEX,
        // No row of XRC.
        SqdToRts if service == Service::Xrc => 0,
        RtrToRts | RtsToRts | SqdToRts | SqeToRts => own | timeout,
        _ => 0,
    }
}

impl Firmware {
    pub(super) fn change_qp(
        &mut self,
        queue: Queue,
        to: QpTransition,
        attrs: &QpAttrs,
    ) -> Result<(), HcaError> {
        use QpTransition::*;
        let Qp { service, .. } = *self.qp(queue)?;
        let Queue::Qp(qpn) = queue else { return self.change_raw(queue, to) };
        let opcode = match to {
            RstToInit => CmdOpcode::RST2INIT_QP,
            InitToInit => CmdOpcode::INIT2INIT_QP,
            InitToRtr => CmdOpcode::INIT2RTR_QP,
            RtrToRts => CmdOpcode::RTR2RTS_QP,
            RtsToRts => CmdOpcode::RTS2RTS_QP,
            SqdToRts => CmdOpcode::SQD_RTS_QP,
            SqeToRts => CmdOpcode::SQERR2RTS_QP,
            ToErr => CmdOpcode::TO_ERR_QP,
            ToRst => CmdOpcode::TO_RST_QP,
            _ => return Err(unsupported("draining a send queue, which mlx5 has no command for")),
        };
        let mut input = vec![0; rst2init_qp_in::SIZE];
        rst2init_qp_in::QPN.set(&mut input, qpn.0.into());
        if !matches!(to, ToErr | ToRst) {
            rst2init_qp_in::ECE.set(&mut input, self.supported(attrs.ece).into());
            rst2init_qp_in::OPT_PARAM_MASK.set(&mut input, optional(service, to));
            let mac = self.peer(service, to, attrs)?;
            let log_max_msg = self.function.caps().get(LOG_MAX_MSG);
            let context = rst2init_qp_in::QPC.of_mut(&mut input);
            qpc::ST.set(context, code(service)?.0.into());
            fill(context, (service, log_max_msg), attrs, mac);
        }
        let output = self.run(opcode, 0, &input, SHORT, object(queue))?;
        // Outputs of all these commands have the options at one place (`get_ece_from_mbox`).
        self.eces.insert(queue, create_qp_out::ECE.get32(&output));
        if let Some(qp) = self.qps.get_mut(&queue) {
            qp.attrs = if to == ToRst { QpAttrs::default() } else { *attrs };
        }
        Ok(())
    }
}

impl Firmware {
    /// ECE options for the firmware: those asked for, if it knows any.
    pub(super) fn supported(&self, asked: u32) -> u32 {
        if self.function.caps().get(ECE_SUPPORT) != 0 { asked } else { 0 }
    }

    /// MAC address of the peer on RoCE, zeros before there is a peer; `None` on InfiniBand.
    fn peer(
        &mut self,
        service: Service,
        to: QpTransition,
        attrs: &QpAttrs,
    ) -> Result<Option<[u8; 6]>, HcaError> {
        if !self.function.caps().is_ethernet() {
            return Ok(None);
        }
        let connects =
            to == QpTransition::InitToRtr && !matches!(service, Service::Ud | Service::Dci);
        // Before, and for datagrams, no peer is in the context.
        if !connects {
            return Ok(Some([0; 6]));
        }
        self.resolve_mac(&attrs.path.dgid).map(Some)
    }
}

/// Fills in the context of a transition. `log_max_msg`: the device's capability.
fn fill(
    context: &mut [u8],
    (service, log_max_msg): (Service, u64),
    attrs: &QpAttrs,
    mac: Option<[u8; 6]>,
) {
    // Rounded up (`__mlx5_ib_modify_qp`, `fls(max_rd_atomic - 1)`).
    let log2 = |count: u8| u64::from(u32::from(count.max(1)).next_power_of_two().ilog2());
    let has = |right| u64::from(attrs.access.contains(right));
    let (mtu, log_msg_max) = match service {
        Service::Ud | Service::Umr => (Mtu::B4096, LOG_DATAGRAM_MAX),
        _ => (attrs.path_mtu, log_max_msg),
    };
    for (field, value) in [
        (qpc::PM_STATE, PmState::MIGRATED.0.into()),
        (qpc::MTU, mtu as u64),
        (qpc::LOG_MSG_MAX, log_msg_max),
        (qpc::REMOTE_QPN, attrs.dest_qpn.0.into()),
        (qpc::LOG_ACK_REQ_FREQ, LOG_ACK_REQ_FREQ),
        (qpc::LOG_SRA_MAX, log2(attrs.max_rd_atomic)),
        (qpc::LOG_RRA_MAX, log2(attrs.max_dest_rd_atomic)),
        (qpc::RETRY_COUNT, attrs.retry_cnt.into()),
        (qpc::RNR_RETRY, attrs.rnr_retry.into()),
        (qpc::NEXT_SEND_PSN, attrs.sq_psn.get().into()),
        (qpc::NEXT_RCV_PSN, attrs.rq_psn.get().into()),
        (qpc::RRE, has(Access::REMOTE_READ)),
        (qpc::RWE, has(Access::REMOTE_WRITE)),
        (qpc::RAE, has(Access::REMOTE_ATOMIC)),
        (qpc::ATOMIC_MODE, has(Access::REMOTE_ATOMIC) * ATOMIC_IB),
        (qpc::MIN_RNR_NAK, attrs.min_rnr_timer.into()),
        (qpc::Q_KEY, attrs.qkey.into()),
    ] {
        field.set(context, value);
    }
    let path = qpc::PRIMARY_ADDRESS_PATH.of_mut(context);
    ads::PKEY_INDEX.set(path, attrs.pkey_index.into());
    ads::ACK_TIMEOUT.set(path, attrs.timeout.into());
    ads::VHCA_PORT_NUM.set(path, attrs.port.into());
    fill_path(path, &attrs.path, mac);
}

/// `mac`: of the peer on RoCE; `None` on InfiniBand.
fn fill_path(path: &mut [u8], to: &AddressVector, mac: Option<[u8; 6]>) {
    for (field, value) in [
        (ads::MLID, to.src_path_bits.into()),
        (ads::SRC_ADDR_INDEX, to.sgid_index.into()),
        (ads::STAT_RATE, to.static_rate.into()),
        (ads::HOP_LIMIT, to.hop_limit.into()),
        (ads::TCLASS, to.traffic_class.into()),
        (ads::FLOW_LABEL, to.flow_label.into()),
    ] {
        field.set(path, value);
    }
    ads::RGID_RIP.of_mut(path).copy_from_slice(&to.dgid);
    if let Some((high, low)) = mac.map(halves) {
        ads::RMAC_47_32.set(path, high);
        ads::RMAC_31_0.set(path, low);
        ads::ETH_PRIO.set(path, (to.sl & 7).into());
        ads::DSCP.set(path, (to.traffic_class >> 2).into());
    } else {
        ads::GRH.set(path, to.is_global.into());
        ads::RLID.set(path, to.dst.lid.into());
        ads::SL.set(path, to.sl.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(service: Service, attrs: &QpAttrs) -> Vec<u8> {
        let mut input = vec![0; rst2init_qp_in::SIZE];
        fill(rst2init_qp_in::QPC.of_mut(&mut input), (service, 30), attrs, None);
        rst2init_qp_in::QPC.of(&input).to_vec()
    }

    #[test]
    fn a_datagram_may_have_4096_bytes() {
        let attrs = QpAttrs { path_mtu: Mtu::B1024, ..QpAttrs::default() };
        let sizes = |service| {
            let context = filled(service, &attrs);
            (qpc::MTU.get(&context), qpc::LOG_MSG_MAX.get(&context))
        };
        assert_eq!(sizes(Service::Ud), (5, 12));
        assert_eq!(sizes(Service::Rc), (3, 30));
    }
    #[test]
    fn outstanding_reads_are_rounded_up() {
        for (count, log) in [(0, 0), (1, 0), (2, 1), (3, 2), (16, 4), (128, 7)] {
            let (max_rd_atomic, max_dest_rd_atomic) = (count, count);
            let attrs = QpAttrs { max_rd_atomic, max_dest_rd_atomic, ..QpAttrs::default() };
            let context = filled(Service::Rc, &attrs);
            assert_eq!(qpc::LOG_SRA_MAX.get(&context), log, "{count}");
            assert_eq!(qpc::LOG_RRA_MAX.get(&context), log, "{count}");
        }
    }
}
