//! Queue pair attributes: types, states, capacities, timers, and QUERY_QP's answer.

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
    /// Initiator of XRC: a reliable connection, each of whose messages names one of the peer's
    /// shared receive queues.
    XrcIni,
    /// Initiator of dynamic connections; ConnectX alone.
    Dci,
    /// Target of dynamic connections; ConnectX alone.
    Dct,
    /// Whole Ethernet frames; ConnectX alone.
    RawPacket,
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
            Self::Dci | Self::Dct => abi::IB_UVERBS_QPT_DRIVER as u32,
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
        })
    }
}

/// State of a queue pair. IBTA vol 1, 10.3.1; numbers of `enum ib_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_qp_state")]
#[non_exhaustive]
pub enum QpState {
    /// Just made: nothing can be posted.
    Reset,
    /// Receives can be posted, nothing moves.
    Init,
    /// Ready to receive.
    ReadyToReceive,
    /// Ready to send: the working state.
    ReadyToSend,
    /// Send queue drained: sends are held back.
    SendQueueDrained,
    /// The send queue failed; receives go on (UC and UD only).
    SendQueueError,
    /// Failed: everything outstanding or posted comes back flushed.
    Error,
    /// A number this library doesn't know.
    Unknown(u32),
}

impl QpState {
    /// The state with the kernel's number.
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

/// Sizes of a queue pair. What the provider returns is at least what was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_qp_cap")]
pub struct QpCap {
    /// Send work requests outstanding, each of the largest size.
    pub max_send_wr: u32,
    /// Receive work requests outstanding.
    pub max_recv_wr: u32,
    /// Entries in a send's gather list.
    pub max_send_sge: u32,
    /// Entries in a receive's scatter list.
    pub max_recv_sge: u32,
    /// Bytes that a send may carry in the work request itself.
    pub max_inline_data: u32,
}

impl Default for QpCap {
    /// 128 sends and 128 receives of one piece each, and 64 bytes inline. One completion queue for
    /// both then needs 256 entries.
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
    /// What a send queue is made for: the longest of these decides how much of the ring each work
    /// request may take, so that `max_send_wr` of them fit, whichever they are.
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
        /// Memory windows bound, keys invalidated or rewritten, by work requests of the program's
        /// own making: three WQEBBs on mlx5.
        const REKEY = 1 << 4;
    }
}

impl SendOpSet {
    /// What a transport has, and this library posts.
    #[must_use]
    pub const fn of(qp_type: QpType) -> Self {
        match qp_type {
            QpType::Rc | QpType::XrcIni | QpType::Dci => {
                Self::SEND.union(Self::WRITE).union(Self::READ).union(Self::ATOMIC)
            }
            QpType::Uc => Self::SEND.union(Self::WRITE),
            QpType::Ud | QpType::RawPacket => Self::SEND,
            QpType::Dct => Self::empty(),
        }
    }
}

/// How the send queue rings its doorbell. Soft-RoCE has one way only, a system call, and takes
/// either.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DoorbellMode {
    /// The queue owns a write-combining register; a lone small post is copied into it whole
    /// (BlueFlame), which spares the device a read of the WQE: least latency. An open device has a
    /// few registers (mlx5: 16); queues made while all are taken ring as with
    /// [`NonCached`](Self::NonCached).
    #[default]
    BlueFlame,
    /// An eight-byte store to a non-cached page, shared with other queues, and no fence behind it:
    /// least work per post when posts are batched.
    NonCached,
}

/// Everything that a queue pair is set to, as the device tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_qp_attr")]
#[non_exhaustive]
pub struct QpAttr {
    /// State; the device puts it into ERR by itself, and into SQE.
    pub state: QpState,
    /// The state that the driver takes it to be in: mlx5's says the same, soft-RoCE's RESET on some
    /// kernels.
    pub cur_state: QpState,
    /// Sizes.
    pub cap: QpCap,
    /// Port, from 1; 0 before INIT.
    pub port: u8,
    /// Index into the port's P_Key table.
    pub pkey_index: u16,
    /// What the peer may do.
    pub access: AccessFlags,
    /// Largest packet payload.
    pub path_mtu: Mtu,
    /// The way to the peer.
    pub path: Path,
    /// The other way to the peer, if one was set.
    pub alternate: Option<AlternatePath>,
    /// Whether the connection may move there, or has.
    pub migration: PathMigration,
    /// The Q_Key that a datagram must carry to be received; of UD alone.
    pub qkey: u32,
    /// The peer's QP number.
    pub dest_qpn: u32,
    /// PSN expected next.
    pub rq_psn: u32,
    /// PSN sent next.
    pub sq_psn: u32,
    /// READs and atomics outstanding at the peer.
    pub max_rd_atomic: u8,
    /// READs and atomics the peer may have outstanding here.
    pub max_dest_rd_atomic: u8,
    /// How long the peer shall wait when no receive is posted.
    pub min_rnr_timer: RnrTimer,
    /// How long to wait for an acknowledgement.
    pub timeout: AckTimeout,
    /// Retries after a timeout or a sequence error.
    pub retry_count: u8,
    /// Retries after receiver-not-ready; 7 is for ever.
    pub rnr_retry: u8,
    /// Whether sends are being drained.
    pub sq_draining: bool,
    /// Whether every send was asked to complete when it was made; this library asks for each.
    pub sq_sig_all: bool,
}

impl QpAttr {
    /// From QUERY_QP's answer. The kernel doesn't know the sizes of a queue that user space laid
    /// out, so `cap` is the caller's.
    #[must_use]
    pub fn from_abi(answer: &abi::ib_uverbs_query_qp_resp, cap: QpCap) -> Self {
        // Linux tells of no alternate path by port 0.
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

/// Whether a connection may move to its alternate path. IBTA vol 1, 17.2.8.1; numbers of
/// `enum ib_mig_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_mig_state")]
#[non_exhaustive]
pub enum PathMigration {
    /// It has moved, or has only one path.
    Migrated,
    /// It shall be armed as soon as the peer is ready, too.
    Rearm,
    /// It may move.
    Armed,
    /// A number this library doesn't know.
    Unknown(u8),
}

impl PathMigration {
    /// The state with the kernel's number, `IB_MIG_*`.
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
/// The code 0 means 655.36 ms, the longest of all, not the shortest: hence a type and no number.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// Microseconds for each code. IBTA vol 1, table 45.
const RNR_MICROSECONDS: [u32; 32] = [
    655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1_280, 1_920, 2_560, 3_840,
    5_120, 7_680, 10_240, 15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840,
    245_760, 327_680, 491_520,
];

impl RnrTimer {
    /// 0.64 ms, the middle of the road.
    pub const DEFAULT: Self = Self(12);
    /// 163.84 ms: six retries are a second.
    pub const PATIENT: Self = Self(28);

    /// The timer with this code; `None` over 31.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// The shortest timer that is at least `microseconds` long; the longest where none is.
    #[must_use]
    pub fn at_least(microseconds: u32) -> Self {
        (1..32u8)
            .find(|&code| RNR_MICROSECONDS[usize::from(code)] >= microseconds)
            .map_or(Self(0), Self)
    }

    /// The five-bit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// How long it is.
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
/// The code 0 means no timeout at all: a lost packet then hangs the queue pair for ever, so it has
/// a name of its own.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct AckTimeout(u8);

impl AckTimeout {
    /// 67 ms.
    pub const DEFAULT: Self = Self(14);
    /// No timeout: nothing is ever sent again, and a dead peer is never noticed.
    pub const NEVER: Self = Self(0);

    /// The timeout with this code; `None` over 31.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// The five-bit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// How long it is, rounded down; `None` for [`Self::NEVER`].
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
