//! Endpoints: what two sides tell each other before they connect.

use std::fmt;
use std::str::FromStr;

use uverbs_core::attr::{Gid, Mtu};
use uverbs_core::error::EndpointError;

/// What the peer must know to connect to a queue pair. Travels as text, by whatever way the two sides have.
///
/// ```
/// let text = "lid=0x0001 qpn=0x00002a psn=0x1b2c3d mtu=4096 rd_atomic=16 gid=fe80::1";
/// let endpoint: uverbs::Endpoint = text.parse()?;
/// assert_eq!(endpoint.qpn, 42);
/// assert_eq!(endpoint.to_string(), text);
/// # Ok::<(), uverbs::EndpointError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// LID of the port; 0 on RoCE.
    pub lid: u16,
    /// Queue pair number, 24 bits.
    pub qpn: u32,
    /// First PSN that it sends, 24 bits.
    pub psn: u32,
    /// Largest MTU that its port can do now.
    pub mtu: Mtu,
    /// READs and atomics that it serves at a time.
    pub rd_atomic: u8,
    /// Its GID; `None` on InfiniBand within a subnet.
    pub gid: Option<Gid>,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "lid={:#06x} qpn={:#08x} psn={:#08x} mtu={} rd_atomic={} gid=",
            self.lid,
            self.qpn,
            self.psn,
            self.mtu.bytes().unwrap_or(0),
            self.rd_atomic
        )?;
        match self.gid {
            Some(gid) => gid.fmt(f),
            None => f.write_str("none"),
        }
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let part = |name: &'static str| {
            text.split_whitespace()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
                .ok_or(EndpointError { part: name, found: String::new() })
        };
        let number = |name: &'static str, max: u32| {
            let found = part(name)?;
            let value = match found.strip_prefix("0x") {
                Some(hex) => u32::from_str_radix(hex, 16),
                None => found.parse(),
            };
            value
                .ok()
                .filter(|value| *value <= max)
                .ok_or_else(|| EndpointError { part: name, found: found.to_owned() })
        };
        let mtu = number("mtu", 4096)?;
        let gid = match part("gid")? {
            "none" => None,
            found => Some(
                found
                    .parse::<Gid>()
                    .map_err(|_| EndpointError { part: "gid", found: found.to_owned() })?,
            ),
        };
        Ok(Self {
            lid: number("lid", 0xffff)? as u16,
            qpn: number("qpn", 0xff_ffff)?,
            psn: number("psn", 0xff_ffff)?,
            mtu: Mtu::from_bytes(mtu)
                .ok_or(EndpointError { part: "mtu", found: mtu.to_string() })?,
            rd_atomic: number("rd_atomic", 255)? as u8,
            gid,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_round_trip(
            lid: u16, qpn in 0..1u32 << 24, psn in 0..1u32 << 24, mtu in 8..13u32, rd_atomic: u8,
            gid in proptest::option::of(any::<[u8; 16]>()),
        ) {
            let mtu = Mtu::from_bytes(1 << mtu).unwrap();
            let endpoint = Endpoint { lid, qpn, psn, mtu, rd_atomic, gid: gid.map(Gid) };
            prop_assert_eq!(endpoint.to_string().parse::<Endpoint>(), Ok(endpoint));
        }

        #[test]
        fn any_text_is_an_endpoint_or_an_error(text in ".{0,120}") {
            let _ = text.parse::<Endpoint>();
        }
    }

    #[test]
    fn errors_name_the_part() {
        let good = "lid=0 qpn=1 psn=2 mtu=1024 rd_atomic=1 gid=none";
        assert!(good.parse::<Endpoint>().is_ok());
        for (bad, part) in [
            (good.replace("qpn=1", ""), "qpn"),
            (good.replace("qpn=1", "qpn=0x1000000"), "qpn"),
            (good.replace("mtu=1024", "mtu=1000"), "mtu"),
            (good.replace("gid=none", "gid=fe80"), "gid"),
            (good.replace("psn=2", "psn=-2"), "psn"),
        ] {
            assert_eq!(bad.parse::<Endpoint>().unwrap_err().part, part, "{bad}");
        }
    }
}
