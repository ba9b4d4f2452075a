//! Parameters with which a front creates or changes an object.
//!
//! The names follow the PRM contexts (mkc, cqc, qpc); the values are already decoded.

use std::time::Duration;

use crate::backend::address::Address;
use crate::backend::indirect::Indirect;
use crate::backend::number::{Cqn, Pdn, Qpn, Queue, Srqn, UarNumber};
use crate::backend::psn::Psn;
use crate::backend::region::Region;
use crate::backend::steering::QueueOptions;

bitflags::bitflags! {
    /// Access rights of a memory key, or of a QP as responder. Local read is always granted.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct Access: u32 {
        /// The device may write for its own QPs: receives, READ and atomic results.
        const LOCAL_WRITE = 1 << 0;
        /// A peer may RDMA WRITE (qpc.rwe).
        const REMOTE_WRITE = 1 << 1;
        /// A peer may RDMA READ (qpc.rre).
        const REMOTE_READ = 1 << 2;
        /// A peer may use atomics (qpc.rae).
        const REMOTE_ATOMIC = 1 << 3;
        /// A peer may FLUSH to global visibility (annex A19).
        const FLUSH_GLOBAL = 1 << 4;
        /// A peer may FLUSH to persistent memory (annex A19).
        const FLUSH_PERSISTENT = 1 << 5;
    }
}

/// Link layer of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum LinkLayer {
    /// RoCE: peers are addressed by GID.
    #[default]
    Ethernet,
    /// InfiniBand: peers are addressed by LID, and by GID across subnets.
    InfiniBand,
}

/// Path MTU: payload bytes per packet. Discriminants are the IBTA encoding (`enum ibv_mtu`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Mtu {
    /// 256 bytes.
    B256 = 1,
    /// 512 bytes.
    B512 = 2,
    /// 1024 bytes.
    #[default]
    B1024 = 3,
    /// 2048 bytes.
    B2048 = 4,
    /// 4096 bytes.
    B4096 = 5,
}

impl Mtu {
    /// Payload bytes per packet.
    pub const fn bytes(self) -> u32 {
        128 << self as u32
    }

    /// Decodes the IBTA encoding, 1 to 5.
    pub const fn from_code(code: u8) -> Option<Mtu> {
        match code {
            1 => Some(Mtu::B256),
            2 => Some(Mtu::B512),
            3 => Some(Mtu::B1024),
            4 => Some(Mtu::B2048),
            5 => Some(Mtu::B4096),
            _ => None,
        }
    }
}

/// Transport service of a QP (qpc.st).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Service {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection: SEND and WRITE without acknowledgement.
    Uc,
    /// Unreliable datagram: each WQE names its destination, a message is one packet.
    Ud,
    /// Extended reliable connection: each WQE names the SRQ at the peer. An initiator has a send
    /// ring, a target has none.
    Xrc,
    /// A driver's queue for changes of memory keys only. It may change attributes that user queues
    /// may not.
    Umr,
    /// Initiator of dynamic connections: reliable; each WQE names its target.
    Dci,
    /// Target of dynamic connections, created from a [`DctContext`] instead of a [`QpContext`].
    Dct,
    /// Whole Ethernet frames: a queue that sends them, or one to which the flow tables direct
    /// frames.
    Raw,
}

impl Service {
    /// True if the peer acknowledges, so that lost packets are sent again.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Service::Rc | Service::Xrc | Service::Dci | Service::Dct)
    }
}

/// `mkc.qpn` of a key that every queue pair may use.
pub const ANY_QPN: u32 = 0x00ff_ffff;

/// A memory key: its memory, owner and rights.
#[derive(Clone, Debug, Default)]
pub struct MkeyContext {
    /// Protection domain.
    pub pd: Pdn,
    /// Address that WQEs and packets use for the first byte (0 for zero based).
    pub iova: u64,
    /// Length in bytes.
    pub len: u64,
    /// Access rights.
    pub access: Access,
    /// A peer may invalidate the key (SEND with invalidate; mkc.en_rinval). The kernel leaves it
    /// unset for plain registrations, so such a request ends in a remote access error.
    pub remote_invalidate: bool,
    /// Memory of the key, at least `len` bytes. Its offset 0 is the address `iova`.
    pub region: Region,
    /// `region` is device memory: of the device itself, if it has some.
    pub device_memory: bool,
    /// Parts of other keys, in place of `region`.
    pub indirect: Option<Indirect>,
    /// The key is free: unusable until a WQE binds it (mkc.free).
    pub free: bool,
    /// Only this queue pair may use the key, as for a window of type 2B; None: any queue pair
    /// (mkc.qpn).
    pub qpn: Option<Qpn>,
    /// WQEs may change the key (mkc.umr_en).
    pub umr: bool,
    /// A memory window. It is bound to one region, which allows that and stays meanwhile.
    pub window: bool,
    /// No window may be bound to the key: a region without `IB_ACCESS_MW_BIND`.
    pub no_windows: bool,
    /// Size of the translation that WQEs may write, in octowords of 16 bytes: two page addresses
    /// each, or one part (mkc.translations_octword_size).
    pub octowords: u32,
}

/// A completion queue.
#[derive(Clone, Debug)]
pub struct CqContext {
    /// The ring; starts at CQE 0.
    pub region: Region,
    /// Log2 of the number of CQEs.
    pub log_entries: u8,
    /// Bytes of a CQE slot, 64 or 128. In a 128-byte slot the CQE is the second half (mlx5dv.h,
    /// `mlx5_cqe64`).
    pub cqe_size: u32,
    /// Bus address of 8 bytes: big-endian words SET_CI and ARM.
    pub doorbell_record: u64,
    /// UAR page whose offset 0x20 arms this CQ.
    pub uar: UarNumber,
    /// Overwrite unconsumed CQEs instead of failing (cqc.oi).
    pub overrun_ignore: bool,
    /// A slot of 128 bytes is written whole: 64 zeros before the CQE.
    pub padded: bool,
    /// CQEs of 64 bytes may be compressed (cqc.cqe_comp_en), with such mini CQEs of responses.
    pub compressed: Option<MiniCqe>,
}

/// Field of a packet's mini CQE beside its length (cqc.mini_cqe_res_format).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MiniCqe {
    /// RSS hash (`MLX5_CQE_FORMAT_HASH`).
    Hash,
    /// Checksum (`MLX5_CQE_FORMAT_CSUM`).
    Checksum,
}

/// Event moderation: an event after `count` completions or after `period`, whichever comes first.
/// If both are 0, every completion raises an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation {
    /// 0 disables the period (cqc.cq_period).
    pub period: Duration,
    /// 0 disables the count (cqc.cq_max_count).
    pub count: u16,
    /// The period restarts with each completion, instead of with each event (cqc.cq_period_mode).
    pub from_completion: bool,
    /// Solicited completions and errors raise an event at once (cqc.scqe_break_moderation_en).
    pub solicited_breaks: bool,
}

/// A send ring.
#[derive(Clone, Debug)]
pub struct SqContext {
    /// The ring; starts at WQEBB 0.
    pub region: Region,
    /// Log2 of the number of WQEBBs (64 bytes each).
    pub log_wqebbs: u8,
}

/// Log2 of the bytes that a receive WQE may have: one data segment to 64 of them.
pub const STRIDE_SHIFTS: std::ops::RangeInclusive<u8> = 4..=10;

/// A receive ring.
#[derive(Clone, Debug)]
pub struct RqContext {
    /// The ring; starts at WQE 0.
    pub region: Region,
    /// Log2 of the number of WQEs.
    pub log_entries: u8,
    /// Log2 of the bytes of one WQE: 4 (one data segment) to 10.
    pub stride_shift: u8,
}

/// A shared receive queue.
#[derive(Clone, Debug)]
pub struct SrqContext {
    /// Protection domain of the buffers.
    pub pd: Pdn,
    /// The ring; starts at WQE 0, which is the head of the driver's list.
    pub region: Region,
    /// Log2 of the number of WQEs.
    pub log_entries: u8,
    /// Log2 of the bytes of one WQE: 5 (link and one data segment) to 10.
    pub stride_shift: u8,
    /// Bus address of 4 bytes: big-endian counter of WQEs posted.
    pub doorbell_record: u64,
    /// Limit: [`SrqLimit`](super::error::HcaEvent::SrqLimit) is raised once when fewer WQEs are
    /// left. 0 disarms it.
    pub limit: u16,
    /// Additional attributes for XRC.
    pub xrc: Option<XrcSrq>,
    /// Additional attributes for tag matching.
    pub tags: Option<TagSrq>,
}

/// Additional attributes of a tag-matching SRQ: messages of reliable connections begin with a
/// header, whose tag finds a buffer in a list (rdma-core `Documentation/tag_matching.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagSrq {
    /// CQN for received messages, and for changes of the tag list.
    pub cq: Cqn,
    /// Written to `srqn_uidx` of each CQE when `cqe_version` is 1.
    pub user_index: u32,
    /// 0 or 1.
    pub cqe_version: u8,
    /// Log2 of the tag list's entries, one of which stays free
    /// (tag_matching_topology_context.log_matching_list_sz).
    pub log_tags: u8,
    /// The device fetches the data that a rendezvous message announces (xrqc.offload).
    pub rendezvous: bool,
}

/// Additional attributes of an SRQ for XRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcSrq {
    /// XRC domain: only target QPs of this domain may use the SRQ.
    pub xrcd: u32,
    /// CQN for received messages.
    pub cq: Cqn,
    /// Written to `srqn_uidx` of each CQE when `cqe_version` is 1.
    pub user_index: u32,
    /// 0 or 1.
    pub cqe_version: u8,
}

/// Longest payload that is put into the CQE instead of the WQE's buffers: 0, 32 or 64 bytes. 64
/// needs CQE slots of 128 bytes; in smaller slots no payload is put into the CQE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CqeScatter {
    /// Limit for READ and atomic responses (qpc.cs_req).
    pub requester: u8,
    /// Limit for received messages (qpc.cs_res).
    pub responder: u8,
}

/// A queue pair.
#[derive(Clone, Debug)]
pub struct QpContext {
    /// Transport service.
    pub service: Service,
    /// Protection domain.
    pub pd: Pdn,
    /// CQN for send completions.
    pub send_cq: Cqn,
    /// CQN for receive completions.
    pub recv_cq: Cqn,
    /// Send ring; a QP without one sends nothing.
    pub sq: Option<SqContext>,
    /// Receive ring. A QP with neither this nor `srq` answers RNR to every request that needs a
    /// receive.
    pub rq: Option<RqContext>,
    /// SRQN to receive from, in place of `rq`.
    pub srq: Option<Srqn>,
    /// XRC domain of a target QP; 0 elsewhere.
    pub xrcd: u32,
    /// Bus address of 8 bytes: big-endian words RCV and SND.
    pub doorbell_record: u64,
    /// UAR page whose doorbells serve this QP.
    pub uar: UarNumber,
    /// Written to `srqn_uidx` of each CQE when `cqe_version` is 1.
    pub user_index: u32,
    /// 0 or 1 (mlx5-abi.h, `cqe_version`).
    pub cqe_version: u8,
    /// Limits of payload in CQEs.
    pub scatter: CqeScatter,
    /// Every send makes a CQE, also an unsignaled one.
    pub sq_sig_all: bool,
    /// Special QPN of the port, 0 or 1, whose packets this QP receives (qpc.st of QP0, QP1). At
    /// most one QP for each.
    pub special: Option<u32>,
    /// Source QPN in sent datagrams, if it is not the QP's number (qpc.deth_sqpn).
    pub deth_sqpn: Option<Qpn>,
    /// A driver's queue: its WQEs may map pages to keys, and change attributes that user queues may
    /// not (qpc.fre).
    pub privileged: bool,
    /// Counter set of the queue pair (qpc.counter_set_id).
    pub counter_set: u8,
    /// Streams of a DC initiator.
    pub streams: Option<DciStreams>,
    /// Transport domain of a raw packet send queue.
    pub domain: u32,
    /// Options of a raw packet receive queue.
    pub options: QueueOptions,
    /// ECE options that the program asks for; 0: none.
    pub ece: u32,
}

/// Streams of a DC initiator: work requests of one stream are done in order, and an error stops its
/// own stream only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DciStreams {
    /// Log2 of the streams that progress at once (qpc.log_num_dci_stream_channels). Stream numbers
    /// have 16 bits, independent of it.
    pub log_channels: u8,
    /// Log2 of the number of stopped streams that moves the initiator to ERR
    /// (qpc.log_num_dci_errored_streams).
    pub log_errored: u8,
}

impl QpContext {
    /// Constructor of [`Queue`] for this queue's kind.
    pub fn kind(&self) -> fn(Qpn) -> Queue {
        match self.service {
            Service::Raw if self.sq.is_some() => Queue::Sq,
            Service::Raw => Queue::Rq,
            Service::Dct => Queue::Dct,
            _ => Queue::Qp,
        }
    }

    /// A queue pair without rings, doorbells and options, with CQEs of version 1.
    pub fn bare(service: Service, pd: Pdn, cq: Cqn) -> Self {
        Self {
            service,
            pd,
            send_cq: cq,
            recv_cq: cq,
            sq: None,
            rq: None,
            srq: None,
            xrcd: 0,
            doorbell_record: 0,
            uar: UarNumber::default(),
            user_index: 0,
            cqe_version: 1,
            scatter: CqeScatter::default(),
            sq_sig_all: false,
            special: None,
            deth_sqpn: None,
            privileged: false,
            counter_set: 0,
            streams: None,
            domain: 0,
            options: QueueOptions::default(),
            ece: 0,
        }
    }
}

/// A target of dynamic connections: any number of initiators may send to it, each on a temporary
/// connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DctContext {
    /// Protection domain for RDMA; receives use the SRQ's.
    pub pd: Pdn,
    /// CQN for received messages.
    pub cq: Cqn,
    /// SRQN to receive from.
    pub srq: Srqn,
    /// DC access key, which each packet must carry.
    pub key: u64,
    /// Written to `srqn_uidx` of each CQE when `cqe_version` is 1.
    pub user_index: u32,
    /// 0 or 1.
    pub cqe_version: u8,
    /// Access rights of the peers: dctc.rre, rwe, rae.
    pub access: Access,
    /// Index into the P_Key table.
    pub pkey_index: u16,
    /// Path MTU; initiators must have the same.
    pub path_mtu: Mtu,
    /// RNR NAK timer code (0..=31) sent to the peers.
    pub min_rnr_timer: u8,
    /// Counter set of its connections (dctc.counter_set_id).
    pub counter_set: u8,
    /// ECE options that the program asks for; 0: none.
    pub ece: u32,
}

/// State of a target (`MLX5_DCTC_STATE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum DctState {
    /// Takes messages.
    #[default]
    Active = 0,
    /// Takes no more messages; answers are still to be sent.
    Draining = 1,
    /// All answers are sent; the target may be destroyed.
    Drained = 2,
}

/// Path to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct AddressVector {
    /// Local address: the GID at `sgid_index`, or the local LID.
    pub src: Address,
    /// Address of the peer.
    pub dst: Address,
    /// GID of the peer as the program set it, which may be link-local; kept for queries only.
    pub dgid: [u8; 16],
    /// Index of the local GID in the port's table.
    pub sgid_index: u8,
    /// A GRH is present (always, for RoCE); kept for queries only.
    pub is_global: bool,
    /// Service level.
    pub sl: u8,
    /// GRH hop limit.
    pub hop_limit: u8,
    /// GRH traffic class.
    pub traffic_class: u8,
    /// GRH flow label.
    pub flow_label: u32,
    /// Static rate code.
    pub static_rate: u8,
    /// LMC bits.
    pub src_path_bits: u8,
    /// Port number, from 1.
    pub port: u8,
}

/// Attributes that a modify changes and a query reports.
///
/// A modify takes the whole set: start from what a query reports and change the attributes of the
/// caller's mask. Each field names the transitions that use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QpAttrs {
    /// Q_Key. Datagrams with another Q_Key are dropped.
    pub qkey: u32,
    /// Index into the P_Key table.
    pub pkey_index: u16,
    /// Port number, from 1 (kept only).
    pub port: u8,
    /// Access rights of the peer: qpc.rre, rwe, rae.
    pub access: Access,
    /// QPN of the peer. From INIT2RTR on.
    pub dest_qpn: Qpn,
    /// Path to the peer. From INIT2RTR on.
    pub path: AddressVector,
    /// Path MTU. INIT2RTR.
    pub path_mtu: Mtu,
    /// INIT2RTR: first PSN expected. A query reports the next one expected.
    pub rq_psn: Psn,
    /// RTR2RTS: first PSN to send. A query reports the next one.
    pub sq_psn: Psn,
    /// READs and atomics outstanding as requester. RTR2RTS.
    pub max_rd_atomic: u8,
    /// READs and atomics taken as responder. INIT2RTR.
    pub max_dest_rd_atomic: u8,
    /// RNR NAK timer code (0..=31) sent to the peer.
    pub min_rnr_timer: u8,
    /// ACK timeout code (0..=31): 4.096 us * 2^n; 0: no timeout.
    pub timeout: u8,
    /// Retries after a timeout or a sequence NAK (0..=7).
    pub retry_cnt: u8,
    /// Retries after an RNR NAK (0..=6; 7: unlimited).
    pub rnr_retry: u8,
    /// SQD: the send queue is still draining (query only).
    pub sq_draining: bool,
    /// RTS2SQD: request the SqDrained event.
    pub en_sqd_async_notify: bool,
    /// ECE options that the program asks for; 0: none. From RST2INIT to RTS2RTS.
    pub ece: u32,
}

/// State of a QP (IBTA 10.3.1; the numbers are `enum ibv_qp_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum QpState {
    /// Reset.
    #[default]
    Reset = 0,
    /// Initialised: receives may be posted.
    Init = 1,
    /// Ready to receive.
    Rtr = 2,
    /// Ready to send.
    Rts = 3,
    /// Send queue drained, or draining.
    Sqd = 4,
    /// Send queue error of an unreliable service: sends flush, receives go on.
    Sqe = 5,
    /// Error: everything flushes.
    Err = 6,
}

/// The modify commands of the PRM, one for each edge of the state machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpTransition {
    /// RST2INIT_QP.
    RstToInit,
    /// INIT2INIT_QP.
    InitToInit,
    /// INIT2RTR_QP.
    InitToRtr,
    /// RTR2RTS_QP.
    RtrToRts,
    /// RTS2RTS_QP.
    RtsToRts,
    /// RTS2SQD: stop sending at a message boundary. mlx5 has no command for it.
    RtsToSqd,
    /// SQD2SQD: change attributes while drained.
    SqdToSqd,
    /// SQD2RTS_QP.
    SqdToRts,
    /// SQERR2RTS_QP.
    SqeToRts,
    /// 2ERR_QP, from any state but RESET.
    ToErr,
    /// 2RST_QP, from any state.
    ToRst,
}
