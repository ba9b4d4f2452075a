//! Place of a device: PCI address, network interfaces.

use std::fmt;
use std::str::FromStr;

/// Address of a PCI function: `0000:17:00.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// Domain (segment). 32 bits behind Intel's volume management device.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device, up to 31.
    pub device: u8,
    /// Function, up to 7.
    pub function: u8,
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:04x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// Text that is no PCI address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotPci;

impl fmt::Display for NotPci {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a PCI address, such as 0000:17:00.1")
    }
}

impl std::error::Error for NotPci {}

impl FromStr for PciAddress {
    type Err = NotPci;

    fn from_str(text: &str) -> Result<Self, NotPci> {
        let (domain, rest) = text.split_once(':').ok_or(NotPci)?;
        let (bus, rest) = rest.split_once(':').ok_or(NotPci)?;
        let (device, function) = rest.split_once('.').ok_or(NotPci)?;
        let hex = |text: &str, digits: std::ops::RangeInclusive<usize>| {
            let all = text.bytes().all(|digit| digit.is_ascii_hexdigit());
            if !all || !digits.contains(&text.len()) {
                return Err(NotPci);
            }
            u32::from_str_radix(text, 16).map_err(|_| NotPci)
        };
        let address = Self {
            domain: hex(domain, 4..=8)?,
            bus: hex(bus, 2..=2)? as u8,
            device: hex(device, 2..=2)? as u8,
            function: hex(function, 1..=1)? as u8,
        };
        if address.device > 31 || address.function > 7 { Err(NotPci) } else { Ok(address) }
    }
}

/// State of a port, and the network interface over it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortPlace {
    /// Port, from 1.
    pub port: u32,
    /// State, `IB_PORT_*` (4: active). `None` if unknown.
    pub state: Option<u8>,
    /// Network interfaces. Empty if unknown, or if they are in another network namespace.
    pub interfaces: Vec<String>,
}

impl PortPlace {
    /// A port of which the rest is unknown.
    #[doc(hidden)]
    #[must_use]
    pub fn new(port: u32) -> Self {
        Self { port, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_and_garbage_is_refused() {
        for text in ["0000:17:00.1", "10000:e1:1f.7"] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), text);
        }
        for bad in [
            "",
            "17:00.1",
            "0000:17:00",
            "0000:17:20.0",
            "0000:17:00.8",
            "0000:+7:00.0",
            "virtual",
            "00:17:00.0",
            "0000:17:00.00",
        ] {
            assert_eq!(bad.parse::<PciAddress>(), Err(NotPci), "{bad}");
        }
    }
}
