//! What a front hands the HCA when it creates or changes an object.
//!
//! The names follow the PRM contexts (mkc, cqc, qpc); the values are already decoded.

use std::time::Duration;

use super::dma::Region;
use super::indirect::Indirect;
use crate::hca::number::{Cqn, Key, Pdn, Qpn, Srqn, UarNumber};
use crate::wire::{Address, Feth, Psn, Route, Transport};

bitflags::bitflags! {
    /// Rights of a memory key, or of a QP as responder. Local read is always granted.
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
        /// A peer may FLUSH to where all of the host sees it (annex A19).
        const FLUSH_GLOBAL = 1 << 4;
        /// A peer may FLUSH to where it outlives a loss of power (annex A19).
        const FLUSH_PERSISTENT = 1 << 5;
    }
}

/// An operation of IBTA's memory placement extensions (vol 1, annex A19), for
/// [`Hca::place`](super::Hca::place).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Completes when all that this queue pair wrote before is placed.
    Flush {
        /// Start of the range at the peer.
        va: u64,
        /// Key of the memory.
        rkey: Key,
        /// Bytes of the range.
        len: u32,
        /// Placement types and selectivity level.
        header: Feth,
    },
    /// Stores eight bytes at the peer at once.
    AtomicWrite {
        /// Where, a multiple of 8.
        va: u64,
        /// Key of the memory.
        rkey: Key,
        /// The bytes as they lie in memory.
        data: [u8; 8],
    },
}

/// Kind of port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum LinkLayer {
    /// RoCE: peers are found by GID.
    #[default]
    Ethernet,
    /// InfiniBand: peers are found by LID, and by GID across subnets.
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

    /// From the IBTA encoding, 1 to 5.
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
    /// ring, a target none.
    Xrc,
    /// Changes of memory keys and nothing else: the driver's own queue, which may change what users
    /// may not.
    Umr,
    /// Initiator of dynamic connections: reliable, and each WQE names its target.
    Dci,
    /// Target of dynamic connections; made from a [`DctContext`], not as a queue pair.
    Dct,
    /// Whole Ethernet frames: a queue that sends them, or one that receives what the flow tables
    /// send there.
    Raw,
}

impl Service {
    /// Transport of its packets.
    pub const fn transport(self) -> Transport {
        match self {
            Service::Rc => Transport::Rc,
            Service::Uc => Transport::Uc,
            Service::Ud => Transport::Ud,
            Service::Xrc => Transport::Xrc,
            Service::Dci | Service::Dct => Transport::Dc,
            // They send and receive no InfiniBand packets.
            Service::Umr | Service::Raw => Transport::Cnp,
        }
    }

    /// Whether the peer acknowledges, so that what is lost is sent again.
    pub const fn is_reliable(self) -> bool {
        matches!(self, Service::Rc | Service::Xrc | Service::Dci | Service::Dct)
    }
}

/// mkc.qpn of a key that every queue pair may use.
pub const ANY_QPN: u32 = 0x00ff_ffff;

/// A memory key: which bytes, for whom, with which rights.
#[derive(Clone, Debug, Default)]
pub struct MkeyContext {
    /// Protection domain.
    pub pd: Pdn,
    /// Address that WQEs and packets use for the first byte (0 for zero based).
    pub iova: u64,
    /// Bytes.
    pub len: u64,
    /// Rights.
    pub access: Access,
    /// mkc.en_rinval: a peer may invalidate the key (SEND with invalidate). Not set by the
    /// kernel for plain registrations, so such a request ends in a remote access error.
    pub remote_invalidate: bool,
    /// Where the bytes are. Offset 0 of the region is `iova`; at least `len` bytes.
    pub region: Region,
    /// Parts of other keys, in place of `region`.
    pub indirect: Option<Indirect>,
    /// Free: unusable until a WQE binds it (mkc.free).
    pub free: bool,
    /// The one queue pair that may use the key, a window of type 2B; None is any (mkc.qpn).
    pub qpn: Option<Qpn>,
    /// WQEs may change it (mkc.umr_en).
    pub umr: bool,
    /// Octowords of 16 bytes that WQEs may make the translation of: two addresses of pages each, or
    /// one part (mkc.translations_octword_size).
    pub octowords: u32,
}

/// A completion queue.
#[derive(Clone, Debug)]
pub struct CqContext {
    /// The ring; starts at CQE 0.
    pub region: Region,
    /// Log2 of the number of CQEs.
    pub log_entries: u8,
    /// 64 or 128 bytes. In a 128-byte slot the CQE is the second half (mlx5dv.h, `mlx5_cqe64`).
    pub cqe_size: u32,
    /// Bus address of 8 bytes: big-endian words SET_CI and ARM.
    pub doorbell_record: u64,
    /// UAR page whose offset 0x20 arms this CQ.
    pub uar: UarNumber,
    /// cqc.oi: write over unconsumed CQEs instead of failing.
    pub overrun_ignore: bool,
    /// An entry of 128 bytes is written whole: zeros before its 64 bytes.
    pub padded: bool,
    /// CQEs of 64 bytes may be compressed (cqc.cqe_comp_en).
    pub compressed: bool,
}

/// How completions are bundled: an event after `count` completions or after `period`, whichever is
/// first. If both are 0, every completion raises an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moderation {
    /// 0 disables the period (cqc.cq_period).
    pub period: Duration,
    /// 0 disables the count (cqc.cq_max_count).
    pub count: u16,
    /// The period begins with the last completion, not with the last event (cqc.cq_period_mode).
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
pub(crate) const STRIDE_SHIFTS: std::ops::RangeInclusive<u8> = 4..=10;

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
    /// Fewer WQEs than this left: [`HcaEvent::SrqLimit`](super::HcaEvent::SrqLimit), once. 0:
    /// never.
    pub limit: u16,
    /// For XRC.
    pub xrc: Option<XrcSrq>,
    /// For tag matching.
    pub tags: Option<TagSrq>,
}

/// Additions of an SRQ that matches tags: messages of reliable connections begin with a header,
/// whose tag finds a buffer in a list (rdma-core `Documentation/tag_matching.md`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TagSrq {
    /// CQN for what lands here, and for changes of the list.
    pub cq: Cqn,
    /// Written to `srqn_uidx` of each CQE when `cqe_version` is 1.
    pub user_index: u32,
    /// 0 or 1.
    pub cqe_version: u8,
    /// Log2 of the list's places, one of which stays free
    /// (tag_matching_topology_context.log_matching_list_sz).
    pub log_tags: u8,
    /// The device fetches what a rendezvous message announces (xrqc.offload).
    pub rendezvous: bool,
}

/// Additions of an SRQ for XRC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcSrq {
    /// XRC domain: only target QPs of the same one may use the SRQ.
    pub xrcd: u32,
    /// CQN for what lands here.
    pub cq: Cqn,
    /// Written to `srqn_uidx` of each CQE when `cqe_version` is 1.
    pub user_index: u32,
    /// 0 or 1.
    pub cqe_version: u8,
}

/// Bytes up to which a payload is put into its CQE, in place of the list of its WQE: 0, 32 or 64.
/// 64 take CQEs of 128 bytes; in smaller ones none is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CqeScatter {
    /// Of READs and atomics (qpc.cs_req).
    pub requester: u8,
    /// Of messages that arrive (qpc.cs_res).
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
    /// Receive ring; a QP with neither this nor `srq` answers RNR to everything that needs a
    /// receive.
    pub rq: Option<RqContext>,
    /// SRQN to receive from, in place of `rq`.
    pub srq: Option<Srqn>,
    /// XRC domain of a target QP; 0 elsewhere.
    pub xrcd: u32,
    /// Bus address of 8 bytes: big-endian words RCV and SND.
    pub doorbell_record: u64,
    /// UAR page that rings this QP.
    pub uar: UarNumber,
    /// Written to `srqn_uidx` of each CQE when `cqe_version` is 1.
    pub user_index: u32,
    /// 0 or 1 (mlx5-abi.h, `cqe_version`).
    pub cqe_version: u8,
    /// Short payloads go into the CQE.
    pub scatter: CqeScatter,
    /// Every send makes a CQE whatever its control segment asks.
    pub sq_sig_all: bool,
    /// Receives what is addressed to this special QPN of the port, 0 or 1 (qpc.st of QP0, QP1). One
    /// QP each.
    pub special: Option<u32>,
    /// Source QPN in the datagrams that it sends, in place of its own (qpc.deth_sqpn).
    pub deth_sqpn: Option<Qpn>,
    /// A driver's queue: its WQEs may give keys pages, and change what users' WQEs may not
    /// (qpc.fre).
    pub privileged: bool,
    /// Set of counters that it is of (qpc.counter_set_id).
    pub counter_set: u8,
    /// Streams of an initiator of dynamic connections; None without.
    pub streams: Option<DciStreams>,
}

/// Streams of an initiator of dynamic connections: work requests that name the same one are done in
/// order, and an error stops the stream that it happened on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DciStreams {
    /// Log2 of the streams that go on at once (qpc.log_num_dci_stream_channels). Names of streams
    /// have 16 bits and aren't bounded by it.
    pub log_channels: u8,
    /// Log2 of the stopped streams that bring the initiator to ERR
    /// (qpc.log_num_dci_errored_streams).
    pub log_errored: u8,
}

impl QpContext {
    /// A queue pair without rings, doorbells and options, whose CQEs are of version 1.
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
        }
    }
}

/// A target of dynamic connections: any number of initiators may send to it, each on a connection
/// that comes and goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DctContext {
    /// Protection domain of what is written and read; receives are the SRQ's.
    pub pd: Pdn,
    /// CQN for what arrives.
    pub cq: Cqn,
    /// SRQN to receive from.
    pub srq: Srqn,
    /// DC access key, which each packet must carry.
    pub key: u64,
    /// Written to `srqn_uidx` of each CQE when `cqe_version` is 1.
    pub user_index: u32,
    /// 0 or 1.
    pub cqe_version: u8,
    /// Rights of the peers: dctc.rre, rwe, rae.
    pub access: Access,
    /// Index into the P_Key table.
    pub pkey_index: u16,
    /// Path MTU, also of the initiators.
    pub path_mtu: Mtu,
    /// RNR NAK timer code (0..=31) that is asked of the peers.
    pub min_rnr_timer: u8,
    /// Set of counters that its connections are of (dctc.counter_set_id).
    pub counter_set: u8,
}

/// State of a target (`MLX5_DCTC_STATE_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum DctState {
    /// It takes messages.
    #[default]
    Active = 0,
    /// It takes no more messages; answers are still to be sent.
    Draining = 1,
    /// All answers are sent; it may be destroyed.
    Drained = 2,
}

/// How packets reach the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct AddressVector {
    /// Our own address: what the GID at `sgid_index` (or our LID) says.
    pub src: Address,
    /// The peer.
    pub dst: Address,
    /// Index of `src.gid` in the port's table; kept for queries only.
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

impl AddressVector {
    /// What its packets' headers say beside the addresses.
    pub(crate) const fn route(&self) -> Route {
        Route::new(self.traffic_class, self.flow_label, self.hop_limit)
    }
}

/// Attributes that a modify changes and a query reports.
///
/// A modify takes the whole set: start from [`Hca::query_qp`](super::Hca::query_qp) and change
/// what the caller's mask names. Which of them a transition looks at is said per field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct QpAttrs {
    /// Q_Key: datagrams with another one are dropped.
    pub qkey: u32,
    /// Index into the P_Key table.
    pub pkey_index: u16,
    /// Port number, from 1 (kept only).
    pub port: u8,
    /// Rights of the peer: qpc.rre, rwe, rae.
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
    /// RNR NAK timer code (0..=31) that we ask of the peer.
    pub min_rnr_timer: u8,
    /// ACK timeout code (0..=31): 4.096 us * 2^n, 0 = never.
    pub timeout: u8,
    /// Retries after a timeout or a sequence NAK (0..=7).
    pub retry_cnt: u8,
    /// Retries after an RNR NAK (0..=6; 7 = without end).
    pub rnr_retry: u8,
    /// SQD: a query says that the send queue is still draining.
    pub sq_draining: bool,
    /// RTS2SQD: ask for the SqDrained event.
    pub en_sqd_async_notify: bool,
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
    /// RTS2SQD: stop sending at a message boundary.
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
