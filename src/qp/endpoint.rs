//! Endpoints: the addresses that two sides exchange before they connect.

use std::fmt;
use std::str::FromStr;

use uverbs_core::attr::{Ece, Gid, Mtu};
use uverbs_core::error::EndpointError;

/// Address of a queue pair that its peer needs to connect. It travels as text over any channel that
/// the two sides share.
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
    /// GID of the port; `None` on InfiniBand within a subnet.
    pub gid: Option<Gid>,
    /// Options of its device, of which both sides use those that they share (ConnectX-6 and newer:
    /// congestion control, adaptive routing, selective repeat). Without options the text has no
    /// `ece=`.
    pub ece: Ece,
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
            Some(gid) => gid.fmt(f)?,
            None => f.write_str("none")?,
        }
        match self.ece {
            Ece { options: 0, .. } => Ok(()),
            Ece { vendor, options } => write!(f, " ece={vendor:#x}:{options:#x}"),
        }
    }
}

/// Address of a UD queue pair that peers need to send it datagrams. It travels as text, as an
/// [`Endpoint`] does.
///
/// ```
/// let text = "lid=0x0000 qpn=0x00002a qkey=0x11111111 gid=::ffff:10.0.0.1";
/// let endpoint: uverbs::DatagramEndpoint = text.parse()?;
/// assert_eq!((endpoint.qpn, endpoint.qkey), (42, 0x1111_1111));
/// assert_eq!(endpoint.to_string(), text);
/// # Ok::<(), uverbs::EndpointError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DatagramEndpoint {
    /// LID of the port; 0 on RoCE.
    pub lid: u16,
    /// Queue pair number, 24 bits.
    pub qpn: u32,
    /// The Q_Key that it asks for.
    pub qkey: u32,
    /// GID of the port; `None` on InfiniBand within a subnet.
    pub gid: Option<Gid>,
}

/// Address of a DC target that initiators need to reach it. It travels as text, as an [`Endpoint`]
/// does.
///
/// ```
/// let text = "lid=0x0000 dctn=0x00002a key=0x0123456789abcdef gid=::ffff:10.0.0.1";
/// let endpoint: uverbs::dc::DcEndpoint = text.parse()?;
/// assert_eq!((endpoint.dctn, endpoint.key), (42, 0x0123_4567_89ab_cdef));
/// assert_eq!(endpoint.to_string(), text);
/// # Ok::<(), uverbs::EndpointError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DcEndpoint {
    /// LID of the port; 0 on RoCE.
    pub lid: u16,
    /// The target's number, 24 bits.
    pub dctn: u32,
    /// DC access key.
    pub key: u64,
    /// GID of the port; `None` on InfiniBand within a subnet.
    pub gid: Option<Gid>,
}

impl fmt::Display for DcEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lid, dctn, key, gid } = self;
        write!(f, "lid={lid:#06x} dctn={dctn:#08x} key={key:#018x} gid=")?;
        match gid {
            Some(gid) => gid.fmt(f),
            None => f.write_str("none"),
        }
    }
}

impl FromStr for DcEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let found = EndpointError::part(text, "key")?;
        let digits = found.strip_prefix("0x").unwrap_or(found);
        let key = u64::from_str_radix(digits, 16);
        let wrong = |_| EndpointError { part: "key", found: found.to_owned() };
        Ok(Self {
            lid: number(text, "lid", 0xffff)? as u16,
            dctn: number(text, "dctn", 0xff_ffff)?,
            key: key.map_err(wrong)?,
            gid: gid(text)?,
        })
    }
}

impl fmt::Display for DatagramEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { lid, qpn, qkey, gid } = self;
        write!(f, "lid={lid:#06x} qpn={qpn:#08x} qkey={qkey:#010x} gid=")?;
        match gid {
            Some(gid) => gid.fmt(f),
            None => f.write_str("none"),
        }
    }
}

impl FromStr for DatagramEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        Ok(Self {
            lid: number(text, "lid", 0xffff)? as u16,
            qpn: number(text, "qpn", 0xff_ffff)?,
            qkey: number(text, "qkey", u32::MAX)?,
            gid: gid(text)?,
        })
    }
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let mtu = number(text, "mtu", 10240)?;
        Ok(Self {
            lid: number(text, "lid", 0xffff)? as u16,
            qpn: number(text, "qpn", 0xff_ffff)?,
            psn: number(text, "psn", 0xff_ffff)?,
            mtu: Mtu::from_bytes(mtu)
                .ok_or(EndpointError { part: "mtu", found: mtu.to_string() })?,
            rd_atomic: number(text, "rd_atomic", 255)? as u8,
            gid: gid(text)?,
            ece: ece(text)?,
        })
    }
}

/// Number behind `name=` in `text`, at most `max`.
pub(crate) fn number(text: &str, name: &'static str, max: u32) -> Result<u32, EndpointError> {
    EndpointError::number(text, name, max.into()).map(|value| value as u32)
}

fn gid(text: &str) -> Result<Option<Gid>, EndpointError> {
    match EndpointError::part(text, "gid")? {
        "none" => Ok(None),
        found => found
            .parse()
            .map(Some)
            .map_err(|_| EndpointError { part: "gid", found: found.to_owned() }),
    }
}

/// Vendor and options; none if the text has none.
fn ece(text: &str) -> Result<Ece, EndpointError> {
    let Ok(found) = EndpointError::part(text, "ece") else { return Ok(Ece::default()) };
    let hex = |word: &str| u32::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let parts = found
        .split_once(':')
        .and_then(|(vendor, options)| Some(Ece { vendor: hex(vendor)?, options: hex(options)? }));
    let known = parts.filter(|ece| ece.vendor < 1 << 24);
    known.ok_or_else(|| EndpointError { part: "ece", found: found.to_owned() })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn text_round_trip(
            lid: u16, qpn in 0..1u32 << 24, psn in 0..1u32 << 24, mtu in 8..13u32, rd_atomic: u8,
            gid in proptest::option::of(any::<[u8; 16]>()), vendor in 0..1u32 << 24,
            options in 1u32..,
        ) {
            let mtu = Mtu::from_bytes(1 << mtu).unwrap();
            let ece = Ece { vendor, options };
            let endpoint = Endpoint { lid, qpn, psn, mtu, rd_atomic, gid: gid.map(Gid), ece };
            prop_assert_eq!(endpoint.to_string().parse::<Endpoint>(), Ok(endpoint));
        }

        #[test]
        fn datagram_text_round_trip(
            lid: u16, qpn in 0..1u32 << 24, qkey: u32,
            gid in proptest::option::of(any::<[u8; 16]>()),
        ) {
            let endpoint = DatagramEndpoint { lid, qpn, qkey, gid: gid.map(Gid) };
            prop_assert_eq!(endpoint.to_string().parse::<DatagramEndpoint>(), Ok(endpoint));
        }

        #[test]
        fn any_text_is_an_endpoint_or_an_error(text in ".{0,120}") {
            let _ = text.parse::<Endpoint>();
            let _ = text.parse::<DatagramEndpoint>();
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
