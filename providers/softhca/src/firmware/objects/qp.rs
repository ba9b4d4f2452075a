//! Queue pairs (PRM "Queue Pair Context"; Linux `hw/mlx5/qp.c`, `hw/mlx5/qpc.c`).
//!
//! The driver's context is kept. Each transition changes its own fields: the required ones, and
//! those that `opt_param_mask` names. The HCA side's attributes and QUERY_QP's output are read from
//! the context.

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::qp::{
    RTS2RTS_DCI_STREAM_CHANNEL_ID, RTS2RTS_OPT_PARAM_MASK_95_32, RTS2RTS_QPC_EXT, ads,
    create_qp_in, create_qp_out, destroy_qp_in, optpar, qpc, query_qp_in, query_qp_out,
    rst2init_qp_in,
};
use uverbs_mlx5_prm::cmd::umem::QPC_DBR_UMEM_ID;
use uverbs_mlx5_prm::context::{QpState as PrmState, ServiceType};

use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::base::rings::{Pages, RingMemory};
use crate::hca::Hca;
use crate::wire::{Address, Psn};
use uverbs_front::backend::command::DCI_STREAM_95_32;
use uverbs_front::backend::config::agree;
use uverbs_front::backend::context::{
    Access, AddressVector, CqeScatter, DciStreams, Mtu, QpAttrs, QpContext, QpState, QpTransition,
    RqContext, Service, SqContext,
};
use uverbs_front::backend::number::{Cqn, Pdn, Qpn, Srqn, UarNumber};

/// Bytes of a WQEBB.
const WQEBB: u64 = 64;
/// Log2 of the unit of `log_rq_stride`, 16 bytes.
const STRIDE_SHIFT: u64 = 4;
/// `rq_type` (Linux `include/linux/mlx5/qp.h`, `MLX5_*_RQ`).
mod rq_type {
    pub(super) const REGULAR: u64 = 0;
    pub(super) const SHARED: u64 = 1;
    pub(super) const ZERO: u64 = 3;
}

/// Bit for the UDP source port, in the upper part of the mask (rdma-core `mlx5_ifc.h`,
/// `MLX5_QPC_OPT_MASK_32_UDP_SPORT`).
const UDP_SPORT_95_32: u64 = 1 << 2;

/// Fields of the context that a bit of `opt_param_mask` selects.
const OPTIONAL: [(u64, Field); 11] = [
    (optpar::COUNTER_SET_ID, qpc::COUNTER_SET_ID),
    (optpar::RRE, qpc::RRE),
    (optpar::RAE, qpc::RAE),
    (optpar::RWE, qpc::RWE),
    (optpar::Q_KEY, qpc::Q_KEY),
    (optpar::RNR_TIMEOUT, qpc::MIN_RNR_NAK),
    (optpar::SRA_MAX, qpc::LOG_SRA_MAX),
    (optpar::RRA_MAX, qpc::LOG_RRA_MAX),
    (optpar::PM_STATE, qpc::PM_STATE),
    (optpar::RETRY_COUNT, qpc::RETRY_COUNT),
    (optpar::RNR_RETRY, qpc::RNR_RETRY),
];
/// Fields of the primary path that a bit of `opt_param_mask` selects.
const OPTIONAL_PATH: [(u64, Field); 3] = [
    (optpar::PKEY_INDEX, ads::PKEY_INDEX),
    (optpar::ACK_TIMEOUT, ads::ACK_TIMEOUT),
    (optpar::PRI_PORT, ads::VHCA_PORT_NUM),
];
/// Destination fields of the path: all except P_Key index, port and timeout, which other bits
/// select.
const PATH: [Field; 15] = [
    ads::FL,
    ads::GRH,
    ads::MLID,
    ads::RLID,
    ads::SRC_ADDR_INDEX,
    ads::STAT_RATE,
    ads::HOP_LIMIT,
    ads::TCLASS,
    ads::FLOW_LABEL,
    ads::DSCP,
    ads::UDP_SPORT,
    ads::ETH_PRIO,
    ads::SL,
    ads::RMAC_47_32,
    ads::RMAC_31_0,
];

#[derive(Debug)]
pub(crate) struct Qp {
    /// Context of CREATE_QP, restored by a reset.
    created: Box<[u8; qpc::SIZE]>,
    /// Umems of the rings and of the doorbell record.
    pub(crate) umems: [Option<u32>; 2],
    context: Box<[u8; qpc::SIZE]>,
}

impl Firmware {
    pub(crate) fn create_qp(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let context = create_qp_in::QPC.of(call.input);
        let (service, special) = service(context)?;
        let uar = qpc::UAR_PAGE.get32(context);
        // Only a queue pair with a send ring needs a doorbell page: an XRC target has none.
        if !qpc::NO_SQ.is_set(context) && !self.simple.has_uar(call, uar) {
            return Err(Refusal::resource("no such doorbell page"));
        }
        let pd = qpc::PD.get32(context);
        // Linux's UMR queue has no protection domain: it changes keys of all domains.
        if service != Service::Umr && !self.simple.has_pd(call, pd) {
            return Err(Refusal::resource("no such protection domain"));
        }
        let (send_cq, recv_cq) = (qpc::CQN_SND.get32(context), qpc::CQN_RCV.get32(context));
        self.cqs.check(call, send_cq)?;
        self.cqs.check(call, recv_cq)?;
        let umem = create_qp_in::WQ_UMEM_VALID.is_set(call.input);
        let umem = umem.then(|| create_qp_in::WQ_UMEM_ID.get32(call.input));
        let record_umem = qpc::DBR_UMEM_VALID.is_set(context);
        let record_umem = record_umem.then(|| QPC_DBR_UMEM_ID.get32(context));
        let umems = [umem, record_umem];
        // In a process's command: only the driver may change keys of all domains and map pages by
        // bus address.
        if umem.is_some() && (service == Service::Umr || qpc::FRE.is_set(context)) {
            return Err(Refusal::param("fre"));
        }
        let rings = match umem {
            Some(id) => {
                RingMemory::Umem(self.umem(call, id)?, create_qp_in::WQ_UMEM_OFFSET.get(call.input))
            }
            None => RingMemory::Pages(Pages {
                pas: create_qp_in::PAS.of(call.input),
                log_page_size: qpc::LOG_PAGE_SIZE.get(context),
                page_offset: qpc::PAGE_OFFSET.get(context),
            }),
        };
        let (sq, rq, srq) = queues(context, service, &rings)?;
        srq.map_or(Ok(()), |srqn| self.srqs.check(call, srqn))?;
        let deth_sqpn = qpc::DETH_SQPN.get32(context);
        let qpn = self.hca.create_qp(QpContext {
            srq: srq.map(Srqn),
            xrcd: if service == Service::Xrc { qpc::XRCD.get32(context) } else { 0 },
            special,
            deth_sqpn: special.or((deth_sqpn != 0).then_some(deth_sqpn)).map(Qpn),
            privileged: qpc::FRE.is_set(context),
            counter_set: qpc::COUNTER_SET_ID.get(context) as u8,
            recv_cq: Cqn(recv_cq),
            sq,
            rq,
            doorbell_record: self.record(call, umems, qpc::DBR_ADDR.get(context))?,
            uar: UarNumber(uar),
            user_index: qpc::USER_INDEX.get32(context),
            scatter: scatter(context)?,
            streams: streams(context),
            ..QpContext::bare(service, Pdn(pd), Cqn(send_cq))
        })?;
        let mut created = Box::new([0; qpc::SIZE]);
        created.copy_from_slice(context);
        self.qps.insert(call, qpn.0, Qp { context: created.clone(), created, umems });
        create_qp_out::QPN.set(call.output, qpn.0.into());
        if create_qp_in::ECE.get32(call.input) != 0 {
            create_qp_out::ECE.set(call.output, self.hca.config().ece.into());
        }
        Ok(())
    }

    pub(crate) fn destroy_qp(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let qpn = destroy_qp_in::QPN.get32(call.input);
        // Raw packet queues share the numbers, and have commands of their kind.
        self.qps.remove(call, qpn)?;
        Ok(self.hca.destroy_qp(Qpn(qpn))?)
    }

    pub(crate) fn rst2init(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.modify(call, QpTransition::RstToInit)
    }

    pub(crate) fn init2init(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.modify(call, QpTransition::InitToInit)
    }

    pub(crate) fn init2rtr(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.modify(call, QpTransition::InitToRtr)
    }

    pub(crate) fn rtr2rts(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.modify(call, QpTransition::RtrToRts)
    }

    pub(crate) fn rts2rts(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.modify(call, QpTransition::RtsToRts)
    }

    pub(crate) fn sqerr2rts(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.modify(call, QpTransition::SqeToRts)
    }

    pub(crate) fn sqd_rts(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.modify(call, QpTransition::SqdToRts)
    }

    pub(crate) fn error(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.modify(call, QpTransition::ToErr)
    }

    pub(crate) fn reset_qp(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.modify(call, QpTransition::ToRst)
    }

    fn modify(&mut self, call: &mut Call<'_>, to: QpTransition) -> Result<(), Refusal> {
        use QpTransition::{InitToInit, InitToRtr, RstToInit, RtrToRts, RtsToRts};
        let qpn = rst2init_qp_in::QPN.get32(call.input);
        let qp = self.qps.get(call, qpn)?;
        let mut context = qp.context.clone();
        let mut attrs = self.hca.query_qp(Qpn(qpn))?.1;
        if !matches!(to, QpTransition::ToErr | QpTransition::ToRst) {
            let given = rst2init_qp_in::QPC.of(call.input);
            let mask = rst2init_qp_in::OPT_PARAM_MASK.get(call.input);
            merge(&mut context, given, to, mask);
            let more = RTS2RTS_OPT_PARAM_MASK_95_32.get(call.input);
            if to == RtsToRts && more & UDP_SPORT_95_32 != 0 {
                let path = qpc::PRIMARY_ADDRESS_PATH.of_mut(&mut *context);
                let port = ads::UDP_SPORT.get(qpc::PRIMARY_ADDRESS_PATH.of(given));
                ads::UDP_SPORT.set(path, port);
            }
            self.fill(&mut attrs, &*context)?;
        }
        self.hca.modify_qp(Qpn(qpn), to, &attrs)?;
        if to == RtsToRts
            && RTS2RTS_QPC_EXT.is_set(call.input)
            && RTS2RTS_OPT_PARAM_MASK_95_32.get(call.input) & DCI_STREAM_95_32 != 0
        {
            reset_stream(&mut self.hca, call.input)?;
        }
        let up = [RstToInit, InitToInit, InitToRtr, RtrToRts, RtsToRts].contains(&to);
        if up {
            let asked = rst2init_qp_in::ECE.get32(call.input);
            // The output of CREATE_QP has ECE at this offset, too.
            create_qp_out::ECE.set(call.output, agree(self.hca.config().ece, asked).into());
        }
        self.hca.count_in(Qpn(qpn), qpc::COUNTER_SET_ID.get(&*context) as u8)?;
        let qp = self.qps.get_mut(call, qpn)?;
        match to {
            QpTransition::ToRst => *qp.context = *qp.created,
            _ => qp.context = context,
        }
        Ok(())
    }

    /// Sets the HCA side's attributes from a context.
    fn fill(&self, attrs: &mut QpAttrs, context: &[u8]) -> Result<(), Refusal> {
        let path = qpc::PRIMARY_ADDRESS_PATH.of(context);
        let byte = |field: Field| field.get(context) as u8;
        attrs.qkey = qpc::Q_KEY.get32(context);
        attrs.pkey_index = ads::PKEY_INDEX.get(path) as u16;
        attrs.port = ads::VHCA_PORT_NUM.get(path) as u8;
        attrs.access = Access::empty();
        for (field, right) in [
            (qpc::RRE, Access::REMOTE_READ),
            (qpc::RWE, Access::REMOTE_WRITE),
            (qpc::RAE, Access::REMOTE_ATOMIC),
        ] {
            attrs.access.set(right, field.is_set(context));
        }
        attrs.dest_qpn = Qpn(qpc::REMOTE_QPN.get32(context));
        attrs.path_mtu = match byte(qpc::MTU) {
            // Unset before INIT2RTR.
            0 => Mtu::default(),
            code => Mtu::from_code(code).ok_or(Refusal::param("mtu"))?,
        };
        attrs.rq_psn = Psn::new(qpc::NEXT_RCV_PSN.get32(context));
        attrs.sq_psn = Psn::new(qpc::NEXT_SEND_PSN.get32(context));
        attrs.max_rd_atomic = 1 << byte(qpc::LOG_SRA_MAX);
        attrs.max_dest_rd_atomic = 1 << byte(qpc::LOG_RRA_MAX);
        attrs.min_rnr_timer = byte(qpc::MIN_RNR_NAK);
        attrs.timeout = ads::ACK_TIMEOUT.get(path) as u8;
        attrs.retry_cnt = byte(qpc::RETRY_COUNT);
        attrs.rnr_retry = byte(qpc::RNR_RETRY);
        attrs.path = self.address_vector(path);
        Ok(())
    }

    fn address_vector(&self, path: &[u8]) -> AddressVector {
        let byte = |field: Field| field.get(path) as u8;
        let sgid_index = byte(ads::SRC_ADDR_INDEX);
        let ethernet = self.profile.hca.is_ethernet();
        let is_global = ethernet || ads::GRH.is_set(path);
        let own = self.profile.gids.get(usize::from(sgid_index)).map(|gid| gid.gid);
        let peer = ads::RGID_RIP.of(path).try_into().unwrap_or_default();
        AddressVector {
            src: Address { gid: own.unwrap_or_default(), lid: self.profile.lid },
            dst: Address {
                gid: if is_global { peer } else { [0; 16] },
                lid: if ethernet { 0 } else { ads::RLID.get(path) as u16 },
            },
            dgid: peer,
            sgid_index,
            is_global,
            sl: byte(if ethernet { ads::ETH_PRIO } else { ads::SL }),
            hop_limit: byte(ads::HOP_LIMIT),
            traffic_class: byte(ads::TCLASS),
            flow_label: ads::FLOW_LABEL.get32(path),
            static_rate: byte(ads::STAT_RATE),
            src_path_bits: byte(ads::MLID),
            port: byte(ads::VHCA_PORT_NUM),
        }
    }

    pub(crate) fn query_qp(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let qpn = query_qp_in::QPN.get32(call.input);
        let qp = self.qps.get(call, qpn)?;
        let (state, attrs) = self.hca.query_qp(Qpn(qpn))?;
        let out = query_qp_out::QPC.of_mut(call.output);
        out.copy_from_slice(&*qp.context);
        qpc::STATE.set(out, code(state, attrs.sq_draining).0.into());
        qpc::NEXT_SEND_PSN.set(out, attrs.sq_psn.get().into());
        qpc::NEXT_RCV_PSN.set(out, attrs.rq_psn.get().into());
        Ok(())
    }
}

/// Resets the stream that RTS2RTS_QP names.
pub(crate) fn reset_stream(hca: &mut Hca, input: &[u8]) -> Result<(), Refusal> {
    let stream = RTS2RTS_DCI_STREAM_CHANNEL_ID.get(input) as u16;
    Ok(hca.reset_stream(Qpn(rst2init_qp_in::QPN.get32(input)), stream)?)
}

/// Streams of a DC initiator. None if both numbers are 0.
fn streams(context: &[u8]) -> Option<DciStreams> {
    let log_channels = qpc::LOG_NUM_DCI_STREAM_CHANNELS.get(context) as u8;
    let log_errored = qpc::LOG_NUM_DCI_ERRORED_STREAMS.get(context) as u8;
    let has = log_channels != 0 || log_errored != 0;
    has.then_some(DciStreams { log_channels, log_errored })
}

/// Limits of payload in CQEs (Linux `hw/mlx5/mlx5_ib.h`, `MLX5_REQ_SCAT_DATA32_CQE` and related
/// constants).
fn scatter(context: &[u8]) -> Result<CqeScatter, Refusal> {
    Ok(CqeScatter {
        requester: match qpc::CS_REQ.get(context) {
            0 => 0,
            0x11 => 32,
            0x22 => 64,
            _ => return Err(Refusal::param("cs_req")),
        },
        responder: match qpc::CS_RES.get(context) {
            0 => 0,
            1 => 32,
            2 => 64,
            _ => return Err(Refusal::param("cs_res")),
        },
    })
}

/// Transport service, and the special QPN of QP0 and QP1.
fn service(context: &[u8]) -> Result<(Service, Option<u32>), Refusal> {
    Ok(match ServiceType(qpc::ST.get(context) as u8) {
        ServiceType::RC => (Service::Rc, None),
        ServiceType::UC => (Service::Uc, None),
        ServiceType::UD => (Service::Ud, None),
        ServiceType::XRC => (Service::Xrc, None),
        ServiceType::DCI => (Service::Dci, None),
        ServiceType::QP0 => (Service::Ud, Some(0)),
        ServiceType::QP1 => (Service::Ud, Some(1)),
        ServiceType::REG_UMR => (Service::Umr, None),
        _ => return Err(Refusal::param("no such transport here")),
    })
}

/// Send ring, receive ring, and SRQ number.
type Queues = (Option<SqContext>, Option<RqContext>, Option<u32>);

/// The receive ring comes first, and the send ring follows it (`qp->sq.offset`).
fn queues(context: &[u8], service: Service, rings: &RingMemory<'_>) -> Result<Queues, Refusal> {
    let mut srq = None;
    let (rq, rq_bytes) = match qpc::RQ_TYPE.get(context) {
        rq_type::REGULAR => {
            let shift = qpc::LOG_RQ_STRIDE.get(context) + STRIDE_SHIFT;
            let log_entries = qpc::LOG_RQ_SIZE.get(context);
            let bytes = 1 << (log_entries + shift);
            let region = rings.region(0, bytes)?;
            let (log_entries, stride_shift) = (log_entries as u8, shift as u8);
            (Some(RqContext { region, log_entries, stride_shift }), bytes)
        }
        rq_type::SHARED => {
            // An XRC target receives into the SRQ that each packet names, and a DC initiator
            // receives no messages. Linux names one of its SRQs for both, which is ignored.
            let names = !matches!(service, Service::Xrc | Service::Dci);
            srq = names.then(|| qpc::SRQN_RMPN_XRQN.get32(context));
            (None, 0)
        }
        rq_type::ZERO => (None, 0),
        _ => return Err(Refusal::param("rq_type")),
    };
    let sq = if qpc::NO_SQ.is_set(context) {
        None
    } else {
        let log_wqebbs = qpc::LOG_SQ_SIZE.get(context);
        let region = rings.region(rq_bytes, WQEBB << log_wqebbs)?;
        Some(SqContext { region, log_wqebbs: log_wqebbs as u8 })
    };
    Ok((sq, rq, srq))
}

/// Copies the fields of a transition (qp.c, `opt_mask`, and the table of required attributes in
/// IBTA 11.2.5.2).
fn merge(context: &mut [u8; qpc::SIZE], given: &[u8], to: QpTransition, mask: u64) {
    let mut take = |field: Field| field.set(context, field.get(given));
    match to {
        QpTransition::RstToInit => {
            // Linux names none of these in the mask of this transition.
            let needed =
                [qpc::PM_STATE, qpc::Q_KEY, qpc::RRE, qpc::RWE, qpc::RAE, qpc::COUNTER_SET_ID];
            needed.into_iter().for_each(&mut take);
        }
        QpTransition::InitToRtr => {
            let needed = [
                qpc::MTU,
                qpc::LOG_MSG_MAX,
                qpc::REMOTE_QPN,
                qpc::LOG_RRA_MAX,
                qpc::MIN_RNR_NAK,
                qpc::NEXT_RCV_PSN,
            ];
            needed.into_iter().for_each(&mut take);
        }
        QpTransition::RtrToRts => {
            let needed = [
                qpc::LOG_ACK_REQ_FREQ,
                qpc::LOG_SRA_MAX,
                qpc::RETRY_COUNT,
                qpc::RNR_RETRY,
                qpc::NEXT_SEND_PSN,
            ];
            needed.into_iter().for_each(&mut take);
        }
        _ => {}
    }
    OPTIONAL.iter().filter(|(bit, _)| mask & bit != 0).for_each(|&(_, field)| take(field));

    let given = qpc::PRIMARY_ADDRESS_PATH.of(given);
    let path = qpc::PRIMARY_ADDRESS_PATH.of_mut(context);
    if to == QpTransition::InitToRtr || mask & optpar::PRIMARY_ADDR_PATH != 0 {
        PATH.iter().for_each(|field| field.set(path, field.get(given)));
        ads::RGID_RIP.of_mut(path).copy_from_slice(ads::RGID_RIP.of(given));
    }
    let needed: &[Field] = match to {
        QpTransition::RstToInit => &[ads::PKEY_INDEX, ads::VHCA_PORT_NUM],
        QpTransition::RtrToRts => &[ads::ACK_TIMEOUT],
        _ => &[],
    };
    let optional = OPTIONAL_PATH.iter().filter(|(bit, _)| mask & bit != 0).map(|(_, field)| field);
    needed.iter().chain(optional).for_each(|field| field.set(path, field.get(given)));
}

fn code(state: QpState, draining: bool) -> PrmState {
    match state {
        QpState::Reset => PrmState::RST,
        QpState::Init => PrmState::INIT,
        QpState::Rtr => PrmState::RTR,
        QpState::Rts => PrmState::RTS,
        QpState::Sqd if draining => PrmState::SQ_DRAINING,
        QpState::Sqd => PrmState::SQD,
        QpState::Sqe => PrmState::SQER,
        QpState::Err => PrmState::ERR,
    }
}
