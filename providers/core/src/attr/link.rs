//! Link properties: MTU, link layer, state, width, speed. Each is a number of the specification;
//! unknown numbers are preserved.

use std::fmt;

/// Largest packet payload of a path. IBTA vol 1, 9.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_mtu")]
#[non_exhaustive]
pub enum Mtu {
    /// 256 bytes.
    Mtu256,
    /// 512 bytes.
    Mtu512,
    /// 1,024 bytes: the largest that fits an Ethernet MTU of 1,500.
    Mtu1024,
    /// 2,048 bytes.
    Mtu2048,
    /// 4,096 bytes.
    Mtu4096,
    /// 8,192 bytes: paths of Omni-Path alone.
    Mtu8192,
    /// 10,240 bytes: paths of Omni-Path alone.
    Mtu10240,
    /// An unknown code.
    Unknown(u8),
}

impl Mtu {
    /// Converts the code (`IB_MTU_*`: 1 is 256 bytes, each next code doubles; `OPA_MTU_8192` and
    /// `OPA_MTU_10240`).
    #[must_use]
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            1 => Self::Mtu256,
            2 => Self::Mtu512,
            3 => Self::Mtu1024,
            4 => Self::Mtu2048,
            5 => Self::Mtu4096,
            6 => Self::Mtu8192,
            7 => Self::Mtu10240,
            other => Self::Unknown(other),
        }
    }

    /// Code of the MTU.
    #[must_use]
    pub const fn raw(self) -> u8 {
        match self {
            Self::Mtu256 => 1,
            Self::Mtu512 => 2,
            Self::Mtu1024 => 3,
            Self::Mtu2048 => 4,
            Self::Mtu4096 => 5,
            Self::Mtu8192 => 6,
            Self::Mtu10240 => 7,
            Self::Unknown(raw) => raw,
        }
    }

    /// MTU of exactly `bytes` bytes.
    #[must_use]
    pub const fn from_bytes(bytes: u32) -> Option<Self> {
        match bytes {
            256 => Some(Self::Mtu256),
            512 => Some(Self::Mtu512),
            1024 => Some(Self::Mtu1024),
            2048 => Some(Self::Mtu2048),
            4096 => Some(Self::Mtu4096),
            8192 => Some(Self::Mtu8192),
            10240 => Some(Self::Mtu10240),
            _ => None,
        }
    }

    /// Number of bytes; `None` for an unknown code.
    #[must_use]
    pub const fn bytes(self) -> Option<u32> {
        match self {
            Self::Unknown(_) => None,
            Self::Mtu10240 => Some(10240),
            known => Some(128 << known.raw()),
        }
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes() {
            Some(bytes) => write!(f, "{bytes}"),
            None => write!(f, "MTU code {}", self.raw()),
        }
    }
}

/// Link layer of a port. Numbers of `link_layer` in the kernel's uverbs headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LinkLayer {
    /// Unspecified: old drivers report InfiniBand so.
    Unspecified,
    /// InfiniBand.
    InfiniBand,
    /// Ethernet: RoCE, or iWARP.
    Ethernet,
    /// An unknown number.
    Unknown(u8),
}

impl LinkLayer {
    /// Converts the kernel's number.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            0 => Self::Unspecified,
            1 => Self::InfiniBand,
            2 => Self::Ethernet,
            other => Self::Unknown(other),
        }
    }

    /// The kernel's number.
    #[must_use]
    pub const fn raw(self) -> u8 {
        match self {
            Self::Unspecified => 0,
            Self::InfiniBand => 1,
            Self::Ethernet => 2,
            Self::Unknown(raw) => raw,
        }
    }
}

impl fmt::Display for LinkLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unspecified => f.write_str("Unspecified"),
            Self::InfiniBand => f.write_str("InfiniBand"),
            Self::Ethernet => f.write_str("Ethernet"),
            Self::Unknown(raw) => write!(f, "link layer {raw}"),
        }
    }
}

/// State of a port's link. IBTA vol 1, 14.2.5.6, PortState.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "ibv_port_state")]
#[non_exhaustive]
pub enum PortState {
    /// No change; devices never report it.
    Nop,
    /// Down: no physical link.
    Down,
    /// Init: a physical link, not yet configured by the subnet manager.
    Init,
    /// Armed: configured, not yet active.
    Armed,
    /// Active.
    Active,
    /// Active deferred: active, with a momentary link failure.
    ActiveDefer,
    /// An unknown number.
    Unknown(u8),
}

impl PortState {
    /// Converts the number.
    #[must_use]
    pub const fn from_raw(raw: u8) -> Self {
        match raw {
            0 => Self::Nop,
            1 => Self::Down,
            2 => Self::Init,
            3 => Self::Armed,
            4 => Self::Active,
            5 => Self::ActiveDefer,
            other => Self::Unknown(other),
        }
    }

    /// Number of the state.
    #[must_use]
    pub const fn raw(self) -> u8 {
        match self {
            Self::Nop => 0,
            Self::Down => 1,
            Self::Init => 2,
            Self::Armed => 3,
            Self::Active => 4,
            Self::ActiveDefer => 5,
            Self::Unknown(raw) => raw,
        }
    }
}

impl fmt::Display for PortState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nop => f.write_str("PORT_NOP"),
            Self::Down => f.write_str("PORT_DOWN"),
            Self::Init => f.write_str("PORT_INIT"),
            Self::Armed => f.write_str("PORT_ARMED"),
            Self::Active => f.write_str("PORT_ACTIVE"),
            Self::ActiveDefer => f.write_str("PORT_ACTIVE_DEFER"),
            Self::Unknown(raw) => write!(f, "port state {raw}"),
        }
    }
}

/// Link width (lanes). IBTA vol 1, 14.2.5.6, LinkWidthActive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Width(pub u8);

impl Width {
    /// Number of lanes; `None` for an unknown code.
    #[must_use]
    pub const fn lanes(self) -> Option<u8> {
        match self.0 {
            1 => Some(1),
            2 => Some(4),
            4 => Some(8),
            8 => Some(12),
            16 => Some(2),
            _ => None,
        }
    }
}

impl fmt::Display for Width {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lanes() {
            Some(lanes) => write!(f, "{lanes}x"),
            None => write!(f, "width code {}", self.0),
        }
    }
}

/// Speed of one lane. IBTA vol 1, 14.2.5.6, LinkSpeedActive and its extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Speed(pub u32);

impl Speed {
    /// Name, and speed in tenths of a gigabit per second.
    const fn name_and_tenths(self) -> Option<(&'static str, u32)> {
        Some(match self.0 {
            1 => ("SDR", 25),
            2 => ("DDR", 50),
            4 => ("QDR", 100),
            8 => ("FDR10", 100),
            16 => ("FDR", 140),
            32 => ("EDR", 250),
            64 => ("HDR", 500),
            128 => ("NDR", 1000),
            256 => ("XDR", 2000),
            _ => return None,
        })
    }

    /// Nominal gigabits per second of one lane (FDR: 14); `None` for an unknown code.
    #[must_use]
    pub fn gbps(self) -> Option<f64> {
        self.name_and_tenths().map(|(_, tenths)| f64::from(tenths) / 10.0)
    }

    /// Nominal gigabits per second of a link with `width` lanes.
    #[must_use]
    pub fn link_gbps(self, width: Width) -> Option<f64> {
        Some(self.gbps()? * f64::from(width.lanes()?))
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name_and_tenths() {
            Some((name, tenths)) => write!(f, "{}.{} Gb/s ({name})", tenths / 10, tenths % 10),
            None => write!(f, "speed code {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_survives() {
        for raw in 0..=u8::MAX {
            assert_eq!(Mtu::from_raw(raw).raw(), raw);
            assert_eq!(LinkLayer::from_raw(raw).raw(), raw);
            assert_eq!(PortState::from_raw(raw).raw(), raw);
        }
    }

    #[test]
    fn mtu_in_bytes() {
        let bytes: Vec<_> = (1..=7).filter_map(|raw| Mtu::from_raw(raw).bytes()).collect();
        // Omni-Path's are of the kernel's `rdma/opa_port_info.h`.
        assert_eq!(bytes, [256, 512, 1024, 2048, 4096, 8192, 10240]);
        assert_eq!([0, 8].map(|raw| Mtu::from_raw(raw).bytes()), [None; 2]);
        for raw in 1..=7 {
            let mtu = Mtu::from_raw(raw);
            assert_eq!(Mtu::from_bytes(mtu.bytes().unwrap()), Some(mtu));
        }
        assert_eq!(Mtu::from_bytes(1500), None);
    }

    #[test]
    fn link_speed_is_lanes_times_lane() {
        assert_eq!(Speed(32).link_gbps(Width(2)), Some(100.0));
        assert_eq!(Speed(64).link_gbps(Width(16)), Some(100.0));
        assert_eq!(Speed(1).link_gbps(Width(1)), Some(2.5));
        assert_eq!(Speed(3).link_gbps(Width(1)), None);
        assert_eq!(Speed(1).link_gbps(Width(3)), None);
        assert_eq!(Speed(16).to_string(), "14.0 Gb/s (FDR)");
        assert_eq!(Width(2).to_string(), "4x");
    }
}
