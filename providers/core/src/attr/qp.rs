//! Queue pair attributes: types, states, capacities, timers, and the response of QUERY_QP.

use std::fmt;

use bitflags::bitflags;
use uverbs_kernel_abi::qp as abi;

use super::{AccessFlags, AlternatePath, Mtu, Path};

/// The transport service of a queue pair. IBTA vol 1, 9.6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_qp_type")]
pub enum QpType {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// XRC initiator: a reliable connection whose messages each name a shared receive queue of the
    /// peer.
    XrcIni,
    /// Initiator of dynamic connections (DCI); ConnectX only.
    Dci,
    /// Target of dynamic connections (DCT); ConnectX only.
    Dct,
    /// Raw packets, that is whole Ethernet frames; ConnectX only.
    RawPacket,
    /// Scalable reliable datagram: reliable, to any peer, in any order; EFA only.
    Srd,
}

impl QpType {
    /// The kernel's number, `IB_UVERBS_QPT_*`.
    #[must_use]
    pub const fn raw(self) -> u32 {
        match self {
            Self::Rc => abi::IB_UVERBS_QPT_RC as u32,
            Self::Uc => abi::IB_UVERBS_QPT_UC as u32,
            Self::Ud => abi::IB_UVERBS_QPT_UD as u32,
            Self::XrcIni => abi::IB_UVERBS_QPT_XRC_INI as u32,
            Self::Dci | Self::Dct | Self::Srd => abi::IB_UVERBS_QPT_DRIVER as u32,
            Self::RawPacket => abi::IB_UVERBS_QPT_RAW_PACKET as u32,
        }
    }
}

impl fmt::Display for QpType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::XrcIni => "XRC",
            Self::Dci => "DCI",
            Self::Dct => "DCT",
            Self::RawPacket => "raw packet",
            Self::Srd => "SRD",
        })
    }
}

/// State of a queue pair. IBTA vol 1, 10.3.1; numbers of `enum ib_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_qp_state")]
#[non_exhaustive]
pub enum QpState {
    /// Newly created: posting is an error.
    #[doc(alias = "IBV_QPS_RESET")]
    Reset,
    /// Initialised: receives can be posted, and no packets are processed.
    #[doc(alias = "IBV_QPS_INIT")]
    Init,
    /// Ready to receive.
    #[doc(alias = "IBV_QPS_RTR")]
    ReadyToReceive,
    /// Ready to send and receive.
    #[doc(alias = "IBV_QPS_RTS")]
    ReadyToSend,
    /// Send queue drained: new sends are held back.
    #[doc(alias = "IBV_QPS_SQD")]
    SendQueueDrained,
    /// Send queue error: the send queue failed, receives continue (UC and UD only).
    #[doc(alias = "IBV_QPS_SQE")]
    SendQueueError,
    /// Error: posted and outstanding work requests complete as flushed.
    #[doc(alias = "IBV_QPS_ERR")]
    Error,
    /// An unknown number.
    #[doc(alias = "IBV_QPS_UNKNOWN")]
    Unknown(u32),
}

impl QpState {
    /// Converts the kernel's number.
    #[must_use]
    pub const fn from_raw(raw: u32) -> Self {
        match raw {
            0 => Self::Reset,
            1 => Self::Init,
            2 => Self::ReadyToReceive,
            3 => Self::ReadyToSend,
            4 => Self::SendQueueDrained,
            5 => Self::SendQueueError,
            6 => Self::Error,
            other => Self::Unknown(other),
        }
    }

    /// The kernel's number.
    #[must_use]
    pub const fn raw(self) -> u32 {
        match self {
            Self::Reset => 0,
            Self::Init => 1,
            Self::ReadyToReceive => 2,
            Self::ReadyToSend => 3,
            Self::SendQueueDrained => 4,
            Self::SendQueueError => 5,
            Self::Error => 6,
            Self::Unknown(raw) => raw,
        }
    }
}

impl fmt::Display for QpState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reset => f.write_str("RESET"),
            Self::Init => f.write_str("INIT"),
            Self::ReadyToReceive => f.write_str("RTR"),
            Self::ReadyToSend => f.write_str("RTS"),
            Self::SendQueueDrained => f.write_str("SQD"),
            Self::SendQueueError => f.write_str("SQE"),
            Self::Error => f.write_str("ERR"),
            Self::Unknown(raw) => write!(f, "state {raw}"),
        }
    }
}

/// Capacities of a queue pair. The provider grants at least the requested ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_qp_cap")]
pub struct QpCap {
    /// Maximum outstanding send work requests, each of maximum size.
    pub max_send_wr: u32,
    /// Maximum outstanding receive work requests.
    pub max_recv_wr: u32,
    /// Maximum SGEs of a send.
    pub max_send_sge: u32,
    /// Maximum SGEs of a receive.
    pub max_recv_sge: u32,
    /// Maximum inline bytes of a send.
    pub max_inline_data: u32,
}

impl Default for QpCap {
    /// 128 sends and 128 receives with one SGE each, and 64 inline bytes. One completion queue for
    /// both needs 256 CQEs.
    fn default() -> Self {
        Self {
            max_send_wr: 128,
            max_recv_wr: 128,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        }
    }
}

bitflags! {
    /// Operations that a send queue is created for. The operation with the longest WQE decides how
    /// much of the ring is reserved per work request, so that `max_send_wr` of any of them fit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[doc(alias = "ibv_qp_create_send_ops_flags")]
    pub struct SendOpSet: u32 {
        /// SEND, with or without immediate data.
        const SEND = 1;
        /// RDMA WRITE, with or without immediate data.
        const WRITE = 1 << 1;
        /// RDMA READ.
        const READ = 1 << 2;
        /// Compare-and-swap, fetch-and-add.
        const ATOMIC = 1 << 3;
        /// Memory window binds, key invalidations and key changes, posted as work requests: three
        /// WQEBBs on mlx5.
        const REKEY = 1 << 4;
    }
}

impl SendOpSet {
    /// Operations that a transport has and that this library can post.
    #[must_use]
    pub const fn of(qp_type: QpType) -> Self {
        match qp_type {
            QpType::Rc | QpType::XrcIni | QpType::Dci => {
                Self::SEND.union(Self::WRITE).union(Self::READ).union(Self::ATOMIC)
            }
            QpType::Uc => Self::SEND.union(Self::WRITE),
            QpType::Ud | QpType::RawPacket => Self::SEND,
            QpType::Srd => Self::SEND.union(Self::WRITE).union(Self::READ),
            QpType::Dct => Self::empty(),
        }
    }
}

/// Way in which the send queue rings its doorbell. Soft-RoCE always rings by a system call and
/// ignores the mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DoorbellMode {
    /// The queue owns a write-combining register. A single small post is copied into it
    /// (BlueFlame), so the device need not read the WQE: lowest latency. An open device has few
    /// registers (mlx5: 16); a queue created when all are taken uses
    /// [`NonCached`](Self::NonCached).
    #[default]
    BlueFlame,
    /// An eight-byte store to a non-cached page shared by several queues, without a fence after it:
    /// least work per post when posts are batched.
    NonCached,
}

/// Attributes of a queue pair, as QUERY_QP reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_qp_attr")]
#[non_exhaustive]
pub struct QpAttr {
    /// State. The device itself moves a queue pair to ERR or SQE.
    pub state: QpState,
    /// Current state as the driver knows it. mlx5 reports `state`; soft-RoCE reports RESET on some
    /// kernels.
    pub cur_state: QpState,
    /// Capacities.
    pub cap: QpCap,
    /// Port, from 1; 0 before INIT.
    pub port: u8,
    /// Index into the port's P_Key table.
    pub pkey_index: u16,
    /// Access rights granted to the peer.
    pub access: AccessFlags,
    /// Largest packet payload.
    pub path_mtu: Mtu,
    /// Path to the peer.
    pub path: Path,
    /// Alternate path to the peer, if set.
    pub alternate: Option<AlternatePath>,
    /// Path migration state.
    pub migration: PathMigration,
    /// Q_Key that an incoming datagram must carry; UD only.
    pub qkey: u32,
    /// The peer's QP number.
    pub dest_qpn: u32,
    /// Next expected PSN of the receive queue.
    pub rq_psn: u32,
    /// Next PSN of the send queue.
    pub sq_psn: u32,
    /// READs and atomics outstanding at the peer.
    pub max_rd_atomic: u8,
    /// READs and atomics that the peer may have outstanding here.
    pub max_dest_rd_atomic: u8,
    /// RNR timer: time that the peer waits before a retry if no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// Acknowledgement timeout.
    pub timeout: AckTimeout,
    /// Retries after a timeout or a sequence error.
    pub retry_count: u8,
    /// RNR retries; 7 is unlimited.
    pub rnr_retry: u8,
    /// True while the send queue drains.
    pub sq_draining: bool,
    /// True if the queue pair was created with all sends signaled, as this library creates them.
    pub sq_sig_all: bool,
}

impl QpAttr {
    /// Converts QUERY_QP's response. `cap` comes from the caller: the kernel does not know the
    /// capacities of queues laid out in user space.
    #[must_use]
    pub fn from_abi(answer: &abi::ib_uverbs_query_qp_resp, cap: QpCap) -> Self {
        // Linux reports port 0 if there is no alternate path.
        let alternate = (answer.alt_port_num != 0).then(|| AlternatePath {
            port: answer.alt_port_num,
            pkey_index: answer.alt_pkey_index,
            path: Path::from_dest(&answer.alt_dest),
            timeout: AckTimeout(answer.alt_timeout & 31),
        });
        Self {
            state: QpState::from_raw(answer.qp_state.into()),
            cur_state: QpState::from_raw(answer.cur_qp_state.into()),
            cap,
            port: answer.port_num,
            pkey_index: answer.pkey_index,
            access: AccessFlags::from_bits_retain(answer.qp_access_flags),
            path_mtu: Mtu::from_raw(answer.path_mtu),
            path: Path::from_dest(&answer.dest),
            alternate,
            migration: PathMigration::from_raw(answer.path_mig_state),
            qkey: answer.qkey,
            dest_qpn: answer.dest_qp_num,
            rq_psn: answer.rq_psn,
            sq_psn: answer.sq_psn,
            max_rd_atomic: answer.max_rd_atomic,
            max_dest_rd_atomic: answer.max_dest_rd_atomic,
            min_rnr_timer: RnrTimer(answer.min_rnr_timer & 31),
            timeout: AckTimeout(answer.timeout & 31),
            retry_count: answer.retry_cnt,
            rnr_retry: answer.rnr_retry,
            sq_draining: answer.sq_draining != 0,
            sq_sig_all: answer.sq_sig_all != 0,
        }
    }
}

/// Path migration state of a connection. IBTA vol 1, 17.2.8.1; numbers of `enum ib_mig_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_mig_state")]
#[non_exhaustive]
pub enum PathMigration {
    /// Migrated, or only one path set.
    Migrated,
    /// Rearm: becomes armed once the peer rearms too.
    Rearm,
    /// Armed: may migrate to the alternate path.
    Armed,
    /// An unknown number.
    Unknown(u8),
}

impl PathMigration {
    /// Converts the kernel's number, `IB_MIG_*`.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            abi::IB_MIG_MIGRATED => Self::Migrated,
            abi::IB_MIG_REARM => Self::Rearm,
            abi::IB_MIG_ARMED => Self::Armed,
            other => Self::Unknown(other),
        }
    }

    /// The kernel's number.
    #[must_use]
    pub const fn raw(self) -> u8 {
        match self {
            Self::Migrated => abi::IB_MIG_MIGRATED,
            Self::Rearm => abi::IB_MIG_REARM,
            Self::Armed => abi::IB_MIG_ARMED,
            Self::Unknown(raw) => raw,
        }
    }
}

/// Receiver-not-ready timer: a five-bit code. IBTA vol 1, table 45.
///
/// Code 0 is the longest timer, 655.36 ms, not the shortest; the type hides this.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// Microseconds of each code. IBTA vol 1, table 45.
const RNR_MICROSECONDS: [u32; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
    5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840,
    245_760, 327_680, 491_520,
];

impl RnrTimer {
    /// 0.64 ms, as perftest and the examples of rdma-core have it: a receiver that lags costs its
    /// sender about a thread switch.
    pub const DEFAULT: Self = Self(12);

    /// Converts a code; `None` above 31.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// Shortest timer of at least `microseconds`, or the longest timer if all are shorter.
    #[must_use]
    pub fn at_least(microseconds: u32) -> Self {
        (1..32u8)
            .find(|&code| RNR_MICROSECONDS[usize::from(code)] >= microseconds)
            .map_or(Self(0), Self)
    }

    /// Five-bit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Duration in microseconds.
    #[must_use]
    pub fn microseconds(self) -> u32 {
        RNR_MICROSECONDS[usize::from(self.0 & 31)]
    }
}

impl fmt::Debug for RnrTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RnrTimer({}: {} us)", self.0, self.microseconds())
    }
}

/// Acknowledgement timeout: 4.096 µs times two to the code. IBTA vol 1, 9.7.6.1.3.
///
/// Code 0 disables the timeout: a lost packet then blocks the queue pair for ever. It is the named
/// constant [`Self::NEVER`].
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// 67 ms.
    pub const DEFAULT: Self = Self(14);
    /// No timeout: the device never retransmits, and a dead peer goes unnoticed.
    pub const NEVER: Self = Self(0);

    /// Converts a code; `None` above 31.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// Five-bit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// Duration in microseconds, rounded down; `None` for [`Self::NEVER`].
    #[must_use]
    pub const fn microseconds(self) -> Option<u64> {
        if self.0 == 0 { None } else { Some((4_096u64 << self.0) / 1_000) }
    }
}

impl fmt::Debug for AckTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.microseconds() {
            None => write!(f, "AckTimeout(never)"),
            Some(us) => write!(f, "AckTimeout({}: {us} us)", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_the_longest_rnr_timer_and_never_chosen_for_a_short_wait() {
        assert_eq!(RnrTimer::at_least(0).microseconds(), 10);
        assert_eq!(RnrTimer::at_least(11).microseconds(), 20);
        assert_eq!(RnrTimer::at_least(600_000).code(), 0);
        assert_eq!(RnrTimer::DEFAULT.microseconds(), 640);
        assert_eq!(RnrTimer::from_code(32), None);
    }

    #[test]
    fn ack_timeout_is_4096_ns_times_a_power_of_two() {
        assert_eq!(AckTimeout::from_code(1).unwrap().microseconds(), Some(8));
        assert_eq!(AckTimeout::DEFAULT.microseconds(), Some(67_108));
        assert_eq!(AckTimeout::NEVER.microseconds(), None);
        assert_eq!(AckTimeout::from_code(32), None);
    }

    #[test]
    fn states_keep_their_numbers() {
        for raw in 0..10 {
            assert_eq!(QpState::from_raw(raw).raw(), raw);
        }
    }
}
