//! Commands of EFA, and where the kernel's answers say that rings and registers are.
//!
//! # Safety
//!
//! A ring is mapped as long as its elements ask for, and a register's offset is checked against its
//! page.
#![allow(unsafe_code, reason = "makes rings of memory that the kernel maps")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use uverbs_core::attr::{AhAttr, QpCap, QpType};
use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use uverbs_core::memory::pages::{Pages, page_size};
use uverbs_core::objects::comp_cntr::CompCntrCore;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::{CqInit, QpInit};
use uverbs_core::queues::user_index::{UserIndex, UserIndexes};
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_EFA;
use uverbs_kernel_abi::efa::io::{
    EFA_IO_TX_DESC_INLINE_MAX_SIZE, EFA_IO_TX_DESC_INLINE_MAX_SIZE_128, EFA_IO_TX_DESC_NUM_BUFS,
    EFA_IO_TX_DESC_NUM_RDMA_BUFS, efa_io_rx_cdesc, efa_io_rx_cdesc_ex, efa_io_rx_desc,
};
use uverbs_kernel_abi::efa::{
    EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR, EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH,
    EFA_CREATE_CQ_RESP_DB_OFF, EFA_CREATE_CQ_WITH_COMPLETION_CHANNEL, EFA_CREATE_CQ_WITH_SGID,
    EFA_CREATE_QP_WITH_UNSOLICITED_WRITE_RECV, EFA_QP_DRIVER_TYPE_SRD,
    EFA_QUERY_DEVICE_CAPS_COMP_CNTR, EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS,
    EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID, EFA_QUERY_DEVICE_CAPS_DATA_POLLING_128,
    EFA_QUERY_DEVICE_CAPS_RDMA_READ, EFA_QUERY_DEVICE_CAPS_RDMA_WRITE,
    EFA_QUERY_DEVICE_CAPS_RNR_RETRY, EFA_QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV,
    EFA_USER_CMDS_SUPP_UDATA_CREATE_AH, EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE,
    efa_ibv_alloc_ucontext_cmd, efa_ibv_alloc_ucontext_resp, efa_ibv_create_cq,
    efa_ibv_create_cq_resp, efa_ibv_create_qp, efa_ibv_create_qp_resp,
    efa_ibv_ex_query_device_resp,
};
use uverbs_kernel_rings::elements::ElementLimits;
use uverbs_kernel_rings::{
    self as rings, Ask, CqMade, Driver, LateWork, Mapped, Opened, QpMade, QpRings, SrqMade,
    SrqRing, map,
};
use zerocopy::IntoBytes;

use crate::ah;
use crate::comp_cntr;
use crate::cq_ring::CqRing;
use crate::limits::{Limits, MOST_WR};
use crate::recv_ring::RecvRing;
use crate::ring::Register;
use crate::send_ring::{SendParts, SendRing};
use crate::wqe::{LONG_WQE, Rdma, Rules, WQE};
use crate::{Ah, Efa};

/// Successive owners of a queue pair number that these bits tell apart.
const OWNERS: u32 = (1 << 16) / MOST_WR;
/// Most rings of a completion queue.
const MOST_SUB_CQS: u16 = 64;

/// Answers of the driver when the device was opened.
#[derive(Debug)]
pub struct State {
    context: efa_ibv_alloc_ucontext_resp,
    device: efa_ibv_ex_query_device_resp,
    /// SGEs of an RDMA work request.
    rdma_sge: u32,
    /// Bytes of the longest SEND.
    message: u32,
    /// User index modulo [`OWNERS`] of the last queue pair with each number.
    owners: Mutex<BTreeMap<u32, u32>>,
}

impl State {
    /// User index of a queue pair. Also the longest queues have its low bits in the numbers of
    /// their requests: they tell apart the last [`OWNERS`] owners of a queue pair number.
    pub(crate) fn user_index(&self, indexes: &UserIndexes, qpn: u32) -> Result<UserIndex, Error> {
        const VERB: &str = "create_qp";
        let mut owners = self.owners.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match owners.get(&qpn) {
            Some(last) => indexes.take_where(VERB, (last + 1) % OWNERS, OWNERS)?,
            None => indexes.take(VERB)?,
        };
        owners.insert(qpn, index.value() % OWNERS);
        Ok(index)
    }

    pub(crate) fn limits(&self) -> Limits {
        let (context, device) = (&self.context, &self.device);
        Limits {
            max_sq_wr: device.max_sq_wr,
            max_rq_wr: device.max_rq_wr,
            max_sq_sge: device.max_sq_sge,
            max_rq_sge: device.max_rq_sge,
            inline: context.inline_buf_size,
            inline_long: context.inline_buf_size_ex,
            max_rdma_size: device.max_rdma_size,
            max_message_size: self.message,
            max_llq_size: context.max_llq_size,
            max_tx_batch: context.max_tx_batch,
            min_sq_wr: context.min_sq_wr,
            sub_cqs: context.sub_cqs_per_cq,
            read: self.has(EFA_QUERY_DEVICE_CAPS_RDMA_READ),
            write: self.has(EFA_QUERY_DEVICE_CAPS_RDMA_WRITE),
            rnr_retry: self.has(EFA_QUERY_DEVICE_CAPS_RNR_RETRY),
            notifications: self.has(EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS),
            sender_gids: self.has(EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID),
            unsolicited_writes: self.has(EFA_QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV),
            counters: self.has(EFA_QUERY_DEVICE_CAPS_COMP_CNTR),
            in_order_128: self.has(EFA_QUERY_DEVICE_CAPS_DATA_POLLING_128),
        }
    }

    fn has(&self, cap: u32) -> bool {
        self.device.device_caps & cap != 0
    }

    /// Bytes of a completion. Long entries have the whole length of a WRITE, and GIDs of senders;
    /// other completions fit short ones (rdma-core 44, `verbs.c:create_cq`).
    fn entry_size(&self, init: &CqInit) -> u32 {
        let is_long = init.sender_gids || self.has(EFA_QUERY_DEVICE_CAPS_RDMA_WRITE);
        let long = size_of::<efa_io_rx_cdesc_ex>();
        (if is_long { long } else { size_of::<efa_io_rx_cdesc>() }) as u32
    }

    /// Most bytes of inline data.
    fn inline(&self) -> u32 {
        match (self.context.inline_buf_size_ex, self.context.inline_buf_size) {
            (0, short) => u32::from(short).min(EFA_IO_TX_DESC_INLINE_MAX_SIZE),
            (long, _) => u32::from(long).min(EFA_IO_TX_DESC_INLINE_MAX_SIZE_128),
        }
    }

    fn rules(&self, init: &QpInit, cap: QpCap, wqe: usize) -> Rules {
        Rules {
            room: ElementLimits { max_sge: cap.max_send_sge, max_inline: cap.max_inline_data },
            rdma_sge: self.rdma_sge.min(cap.max_send_sge),
            rdma_inline: if wqe == LONG_WQE { cap.max_inline_data } else { 0 },
            message: self.message,
            rdma: self.device.max_rdma_size,
            has: (init.qp_type == QpType::Srd).then_some(Rdma {
                read: self.has(EFA_QUERY_DEVICE_CAPS_RDMA_READ),
                write: self.has(EFA_QUERY_DEVICE_CAPS_RDMA_WRITE),
            }),
        }
    }
}

/// Bytes of a queue pair's send work requests.
fn wqe_size(init: &QpInit, cap: &QpCap) -> usize {
    let is_long = init.inline_writes || cap.max_inline_data > EFA_IO_TX_DESC_INLINE_MAX_SIZE;
    if is_long { LONG_WQE } else { WQE }
}

fn unsupported<T>(verb: &'static str, what: String) -> Result<T, Error> {
    Err(Error::Unsupported { verb, what })
}

/// Maps the page behind `key`, and returns the register at `offset` in it.
fn register(
    uverbs: &Uverbs,
    verb: &'static str,
    key: u64,
    offset: u32,
) -> Result<(Register, Pages), Error> {
    let len = page_size();
    let is_inside = offset as usize <= len - size_of::<u32>();
    if !is_inside || !offset.is_multiple_of(size_of::<u32>() as u32) {
        return unsupported(verb, format!("a doorbell at {offset:#x} of its page"));
    }
    let memory = map(uverbs, len, key)?;
    let at = memory.as_mut_ptr().wrapping_add(offset as usize).cast();
    // SAFETY: aligned and in the page, which the owner of the register keeps mapped.
    Ok((unsafe { Register::new(at) }, memory))
}

// SAFETY: rings are mapped as long as their elements ask for; each answer belongs to one object.
// The requests have numbers alone. All completions are taken out of order.
unsafe impl Driver for Efa {
    const IDS: &'static [u32] = &[RDMA_DRIVER_EFA];
    const MODULE: &'static str = "efa";
    const TRANSPORTS: &'static [QpType] = &[QpType::Ud, QpType::Srd];
    const HAS_TRANSPORTS: &'static str = "EFA has UD and SRD";
    const MIN_SENDS: u32 = 1;
    const IGNORES_OVERRUN: bool = false;
    const RESIZES: bool = false;
    const SENDS_COMPLETE_IN_ORDER: bool = false;
    const RECVS_COMPLETE_IN_ORDER: bool = false;
    const SLOTS_IN_TURNS: bool = true;
    const SIGNALS_ALL: bool = true;
    const DOORBELL_IS_COMMAND: bool = false;
    const LATE_WORK: LateWork = LateWork::Refused;

    type SendRing = SendRing;
    type RecvRing = RecvRing;
    type CqRing = CqRing;

    type State = State;
    type CqAnswer = efa_ibv_create_cq_resp;
    type QpAnswer = efa_ibv_create_qp_resp;
    type SrqAnswer = ();

    /// Announces all capabilities: the kernel refuses a program that does not know of the device's
    /// limits (rdma-core `efa.c:efa_alloc_context`, `verbs.c:efa_query_device_ctx`).
    fn get_context(uverbs: &Uverbs) -> Result<Opened<State>, Error> {
        const VERB: &str = "open_device";
        let request = efa_ibv_alloc_ucontext_cmd {
            supported_caps: EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_TX_BATCH
                | EFA_ALLOC_UCONTEXT_CMD_SUPP_CAPS_MIN_SQ_WR,
            ..Default::default()
        };
        let mut context = efa_ibv_alloc_ucontext_resp::default();
        let info = uverbs.get_context(request.as_bytes(), context.as_mut_bytes())?;
        let needed = EFA_USER_CMDS_SUPP_UDATA_QUERY_DEVICE | EFA_USER_CMDS_SUPP_UDATA_CREATE_AH;
        if context.cmds_supp_udata_mask & needed != needed {
            let what = "a kernel whose efa driver tells neither limits nor address handles";
            return unsupported(VERB, what.to_owned());
        }
        if context.sub_cqs_per_cq == 0 || context.sub_cqs_per_cq > MOST_SUB_CQS {
            let rings = context.sub_cqs_per_cq;
            return unsupported(VERB, format!("completion queues of {rings} rings"));
        }
        let mut part = efa_ibv_ex_query_device_resp::default();
        let device = uverbs.query_device_ex(part.as_mut_bytes())?;
        let message = uverbs.query_port(1)?.max_message_size;
        let rdma_sge = device.max_sge_rd.min(EFA_IO_TX_DESC_NUM_RDMA_BUFS);
        let owners = Mutex::default();
        let state = State { context, device: part, rdma_sge, message, owners };
        let limits = rings::Limits {
            send_wr: state.limits().most_sends(WQE as u32),
            recv_wr: part.max_rq_wr.min(MOST_WR),
            send_sge: u32::from(part.max_sq_sge).min(EFA_IO_TX_DESC_NUM_BUFS),
            recv_sge: part.max_rq_sge.into(),
            inline: state.inline(),
            srq_wr: 0,
            srq_sge: 0,
            cqe: device.max_cqe,
            vectors: info.num_comp_vectors,
        };
        Ok(Opened { limits, device, state })
    }

    fn ask_cq(opened: &Opened<State>, init: &CqInit, entries: u32) -> Result<Ask<u32>, Error> {
        let state = &opened.state;
        let mut flags = 0;
        if init.channel.is_some() {
            if !state.has(EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS) {
                let what = "a completion channel (the device lacks CQ notifications)";
                return unsupported("create_cq", what.to_owned());
            }
            flags |= EFA_CREATE_CQ_WITH_COMPLETION_CHANNEL;
        }
        if init.sender_gids {
            if !state.has(EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID) {
                return unsupported("create_cq", "GIDs of senders on this device".to_owned());
            }
            flags |= EFA_CREATE_CQ_WITH_SGID;
        }
        let part = efa_ibv_create_cq {
            cq_entry_size: state.entry_size(init),
            num_sub_cqs: state.context.sub_cqs_per_cq,
            flags,
            ..Default::default()
        };
        let sizes = entries.checked_next_power_of_two().unwrap_or(u32::MAX);
        let what = "entries, as a power of two";
        Error::limit("create_cq", what, sizes, opened.limits.cqe.min(1 << 31))?;
        Ok(Ask { sizes, part: part.as_bytes().to_vec() })
    }

    /// Rounds the sizes as rdma-core does (`verbs.c:efa_setup_qp`, `efa_check_qp_limits`). A queue
    /// pair without receives has room for one.
    fn ask_qp(opened: &Opened<State>, init: &QpInit, mut cap: QpCap) -> Result<Ask<QpCap>, Error> {
        const VERB: &str = "create_qp";
        let state = &opened.state;
        let wqe = wqe_size(init, &cap);
        Error::limit(VERB, "max_send_wr", cap.max_send_wr, state.limits().most_sends(wqe as u32))?;
        cap.max_recv_sge = cap.max_recv_sge.max(1);
        cap.max_send_sge = cap.max_send_sge.max(1);
        let most_receives = opened.limits.recv_wr / cap.max_recv_sge;
        Error::limit(VERB, "max_recv_wr", cap.max_recv_wr, most_receives)?;
        let least = state.context.min_sq_wr.into();
        cap.max_send_wr = cap.max_send_wr.max(least).next_power_of_two();
        let descriptors = (cap.max_recv_wr.max(1) * cap.max_recv_sge).next_power_of_two();
        cap.max_recv_wr = descriptors / cap.max_recv_sge;
        let is_srd = init.qp_type == QpType::Srd;
        let can_inline = is_srd && state.limits().write && state.context.inline_buf_size_ex != 0;
        if init.inline_writes && !can_inline {
            return unsupported(VERB, "inline WRITEs on this device or transport".to_owned());
        }
        let mut flags = 0;
        if init.unsolicited_writes {
            if !state.has(EFA_QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV) {
                return unsupported(VERB, "unsolicited WRITEs on this device".to_owned());
            }
            flags |= EFA_CREATE_QP_WITH_UNSOLICITED_WRITE_RECV;
        }
        let part = efa_ibv_create_qp {
            rq_ring_size: descriptors * size_of::<efa_io_rx_desc>() as u32,
            sq_ring_size: cap.max_send_wr * wqe as u32,
            driver_qp_type: if is_srd { EFA_QP_DRIVER_TYPE_SRD } else { 0 },
            flags,
            sl: init.service_level,
            ..Default::default()
        };
        // Older kernels know the first 16 bytes, and check that the rest is 0.
        Ok(Ask { sizes: cap, part: part.as_bytes().to_vec() })
    }

    fn user_index(
        opened: &Opened<State>,
        indexes: &UserIndexes,
        qpn: u32,
    ) -> Result<UserIndex, Error> {
        opened.state.user_index(indexes, qpn)
    }

    fn cq_ring(made: &CqMade<'_, Self>) -> Result<(Mapped<CqRing>, u32), Error> {
        const VERB: &str = "create_cq";
        let (uverbs, answer) = (made.uverbs, made.answer);
        let (count, entries) =
            (u32::from(made.opened.state.context.sub_cqs_per_cq), made.created.entries);
        let size = made.opened.state.entry_size(made.init);
        let needed = u64::from(count) * u64::from(entries) * u64::from(size);
        if !entries.is_power_of_two() || entries < made.entries || answer.q_mmap_size < needed {
            let bytes = answer.q_mmap_size;
            return unsupported(VERB, format!("{count} rings of {entries} entries in {bytes} B"));
        }
        let memory = map(uverbs, answer.q_mmap_size as usize, answer.q_mmap_key)?;
        let has_register = answer.comp_mask & EFA_CREATE_CQ_RESP_DB_OFF != 0;
        let (register, page) = has_register
            .then(|| register(uverbs, VERB, answer.db_mmap_key, answer.db_off))
            .transpose()?
            .unzip();
        // SAFETY: the mapping is that long and starts at a page; the owner of the ring keeps it.
        let ring = unsafe { CqRing::new(memory.as_mut_ptr(), (count, entries, size), register) };
        let memory = match page {
            Some(page) => memory.keeping(page),
            None => memory,
        };
        Ok((Mapped { ring, memory }, answer.cq_idx.into()))
    }

    fn qp_rings(made: &QpMade<'_, Self>) -> Result<QpRings<Self>, Error> {
        const VERB: &str = "create_qp";
        let (uverbs, answer, cap) = (made.uverbs, made.answer, made.asked);
        let state = &made.opened.state;
        let wqe = wqe_size(made.init, &cap);
        let (doorbell, sq_page) =
            register(uverbs, VERB, answer.sq_db_mmap_key, answer.sq_db_offset)?;
        let (rq_doorbell, rq_page) =
            register(uverbs, VERB, answer.rq_db_mmap_key, answer.rq_db_offset)?;
        let offset = answer.llq_desc_offset as usize;
        if offset >= page_size() || !offset.is_multiple_of(WQE) {
            return unsupported(VERB, format!("a send queue at {offset:#x} of its page"));
        }
        let bytes = cap.max_send_wr as usize * wqe + offset;
        let llq = map(uverbs, bytes.next_multiple_of(page_size()), answer.llq_desc_mmap_key)?;
        let unlimited = cap.max_send_wr;
        let most = match u32::from(state.context.max_tx_batch) {
            0 => unlimited,
            blocks => (blocks * WQE as u32 / wqe as u32).max(1),
        };
        // With a least size the device does not take a whole queue at once (rdma-core
        // `verbs.c:efa_sq_initialize`).
        let whole = u32::from(state.context.min_sq_wr != 0);
        let parts = SendParts {
            device: llq.as_mut_ptr().wrapping_add(offset).cast(),
            doorbell,
            elements: cap.max_send_wr,
            blocks: wqe / WQE,
            batch: most.min(unlimited - whole.min(unlimited - 1)),
            rules: state.rules(made.init, cap, wqe),
        };
        // SAFETY: the mapping has as many bytes behind `offset`; `memory` keeps it.
        let send = unsafe { SendRing::new(parts) };
        let descriptors = (cap.max_recv_wr * cap.max_recv_sge).next_power_of_two();
        let needed = u64::from(descriptors) * size_of::<efa_io_rx_desc>() as u64;
        if answer.rq_mmap_size < needed {
            let bytes = answer.rq_mmap_size;
            return unsupported(VERB, format!("{descriptors} receive descriptors in {bytes} B"));
        }
        let rq = map(uverbs, answer.rq_mmap_size as usize, answer.rq_mmap_key)?;
        let start = rq.as_mut_ptr().cast();
        // SAFETY: the mapping has as many elements and starts at a page; `memory` keeps it.
        let recv = unsafe { RecvRing::new(start, rq_doorbell, descriptors, cap.max_recv_wr) };
        let memory = Arc::new((llq, rq, sq_page, rq_page));
        // The rings may be larger than the program asked for, and its completion queues not: these
        // sizes are what may be outstanding.
        let cap = QpCap {
            max_send_wr: made.init.cap.max_send_wr.max(Self::MIN_SENDS),
            max_recv_wr: made.init.cap.max_recv_wr,
            ..cap
        };
        Ok(QpRings { send, recv, cap, memory })
    }

    fn srq_ring(_: &SrqMade<'_, Self>) -> Result<(SrqRing<Self>, u32), Error> {
        unsupported("create_srq", "a shared receive queue (efa)".to_owned())
    }

    fn create_comp_cntr(
        core: &Arc<ContextCore>,
        opened: &Opened<State>,
    ) -> Result<CompCntrCore, Error> {
        if !opened.state.limits().counters {
            return unsupported(
                "create_comp_cntr",
                "completion counters on this device".to_owned(),
            );
        }
        // SAFETY: no memory is replaced.
        unsafe { comp_cntr::create(core, [None; 2]) }
    }

    fn create_ah(core: &Arc<ContextCore>, pd: &Arc<PdCore>, attr: &AhAttr) -> Result<Ah, Error> {
        ah::create(core, pd, attr)
    }
}
