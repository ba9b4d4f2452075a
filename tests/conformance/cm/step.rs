//! One step of a program, and the addresses that it names.

use std::fmt;

use uverbs_kernel_abi::rdma_cm::{RDMA_PS_TCP, RDMA_PS_UDP};

/// An IP address, or a malformed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ip {
    /// 0.0.0.0 and `::`.
    Any4,
    Any6,
    /// The device's own.
    Own,
    /// 127.0.0.1 and `::1`.
    Loopback4,
    Loopback6,
    /// Addresses that no interface has.
    Foreign4,
    Foreign6,
    /// IPv4 with the length of IPv6.
    Long,
    /// An unknown family.
    Unknown,
}

/// An address and port, as `struct sockaddr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Addr {
    pub(crate) ip: Ip,
    pub(crate) port: u16,
}

impl Addr {
    /// Its bytes and their number.
    pub(crate) fn bytes(self) -> ([u8; 128], u16) {
        let mut bytes = [0; 128];
        let (family, len) = match self.ip {
            Ip::Any4 | Ip::Own | Ip::Loopback4 | Ip::Foreign4 => (libc::AF_INET, 16),
            Ip::Any6 | Ip::Loopback6 | Ip::Foreign6 => (libc::AF_INET6, 28),
            Ip::Long => (libc::AF_INET, 28),
            Ip::Unknown => (99, 16),
        };
        bytes[..2].copy_from_slice(&(family as u16).to_ne_bytes());
        bytes[2..4].copy_from_slice(&self.port.to_be_bytes());
        let v4 = match self.ip {
            Ip::Own | Ip::Long => [10, 0, 0, 1],
            Ip::Loopback4 => [127, 0, 0, 1],
            Ip::Foreign4 => [10, 9, 9, 9],
            _ => [0; 4],
        };
        bytes[4..8].copy_from_slice(&v4);
        match self.ip {
            Ip::Loopback6 => bytes[23] = 1,
            Ip::Foreign6 => {
                bytes[8..24].copy_from_slice(&0x2001_0db8_u128.rotate_left(96).to_be_bytes())
            }
            _ => {}
        }
        (bytes, len)
    }
}

/// One step. Ids are named by their slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Create {
        slot: usize,
        space: u16,
    },
    Bind {
        slot: usize,
        to: Addr,
    },
    /// An option of level `RDMA_OPTION_ID`.
    Set {
        slot: usize,
        option: u32,
        value: u32,
        len: usize,
    },
    Listen {
        slot: usize,
        backlog: i32,
    },
    ResolveAddr {
        slot: usize,
        from: Option<Addr>,
        to: Addr,
    },
    ResolveRoute {
        slot: usize,
        timeout_ms: u32,
    },
    Connect {
        slot: usize,
        qpn: u32,
        data: u8,
        depth: u8,
        valid: bool,
    },
    Accept {
        slot: usize,
        qpn: u32,
        data: u8,
        depth: u8,
        valid: bool,
    },
    Reject {
        slot: usize,
        reason: u8,
        data: u8,
    },
    Disconnect {
        slot: usize,
    },
    /// Event number of the queue pair.
    Notify {
        slot: usize,
        event: u32,
    },
    /// Attributes for a state of the queue pair.
    Attributes {
        slot: usize,
        state: u32,
    },
    /// `RDMA_USER_CM_QUERY_*`.
    Query {
        slot: usize,
        option: u32,
    },
    Destroy {
        slot: usize,
    },
}

impl Step {
    /// Id that it is about.
    pub(crate) fn slot(self) -> usize {
        match self {
            Self::Create { slot, .. }
            | Self::Bind { slot, .. }
            | Self::Set { slot, .. }
            | Self::Listen { slot, .. }
            | Self::ResolveAddr { slot, .. }
            | Self::ResolveRoute { slot, .. }
            | Self::Connect { slot, .. }
            | Self::Accept { slot, .. }
            | Self::Reject { slot, .. }
            | Self::Disconnect { slot }
            | Self::Notify { slot, .. }
            | Self::Attributes { slot, .. }
            | Self::Query { slot, .. }
            | Self::Destroy { slot } => slot,
        }
    }
}

impl fmt::Display for Addr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}:{}", self.ip, self.port)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot = self.slot();
        match *self {
            Self::Create { space: RDMA_PS_TCP, .. } => write!(f, "{slot} create tcp"),
            Self::Create { space: RDMA_PS_UDP, .. } => write!(f, "{slot} create udp"),
            Self::Create { space, .. } => write!(f, "{slot} create {space:#x}"),
            Self::Bind { to, .. } => write!(f, "{slot} bind {to}"),
            Self::Set { option, value, len, .. } => {
                let name = ["tos", "reuseaddr", "afonly", "ack-timeout"].get(option as usize);
                write!(f, "{slot} set {} {value} ({len})", name.unwrap_or(&"unknown"))
            }
            Self::Listen { backlog, .. } => write!(f, "{slot} listen {backlog}"),
            Self::ResolveAddr { from: None, to, .. } => write!(f, "{slot} resolve {to}"),
            Self::ResolveAddr { from: Some(from), to, .. } => {
                write!(f, "{slot} resolve {to} from {from}")
            }
            Self::ResolveRoute { timeout_ms, .. } => write!(f, "{slot} route {timeout_ms}"),
            Self::Connect { qpn, data, depth, valid, .. } => {
                write!(f, "{slot} connect {qpn} data {data} depth {depth} valid {valid}")
            }
            Self::Accept { qpn, data, depth, valid, .. } => {
                write!(f, "{slot} accept {qpn} data {data} depth {depth} valid {valid}")
            }
            Self::Reject { reason, data, .. } => write!(f, "{slot} reject {reason} data {data}"),
            Self::Disconnect { .. } => write!(f, "{slot} disconnect"),
            Self::Notify { event, .. } => write!(f, "{slot} notify {event}"),
            Self::Attributes { state, .. } => write!(f, "{slot} attributes {state}"),
            Self::Query { option, .. } => {
                let name = ["addresses", "path", "gids"].get(option as usize);
                write!(f, "{slot} query {}", name.unwrap_or(&"unknown"))
            }
            Self::Destroy { .. } => write!(f, "{slot} destroy"),
        }
    }
}
