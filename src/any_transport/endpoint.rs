//! Endpoints of any transport.

use std::fmt;
use std::str::FromStr;

use uverbs_core::attr::{Gid, Mtu};
use uverbs_core::error::EndpointError;

use crate::dc::DcEndpoint;
use crate::qp::endpoint::number;
use crate::xrc::RemoteSrq;
use crate::{DatagramEndpoint, Endpoint};

/// Address that a peer needs to connect. It travels as text, as an [`Endpoint`] does. In the text a
/// Q_Key marks datagrams, a target number DC, the number of a shared receive queue XRC.
///
/// ```
/// use uverbs::any_transport::AnyEndpoint;
///
/// let text = "lid=0x0000 qpn=0x00002a qkey=0x11111111 gid=::ffff:10.0.0.1";
/// let endpoint: AnyEndpoint = text.parse()?;
/// assert!(matches!(endpoint, AnyEndpoint::Datagram(_)));
/// assert_eq!((endpoint.qpn(), endpoint.to_string().as_str()), (42, text));
/// # Ok::<(), uverbs::EndpointError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AnyEndpoint {
    /// RC and UC.
    Connected(Endpoint),
    /// UD and SRD.
    Datagram(DatagramEndpoint),
    /// XRC.
    Xrc {
        /// The initiator.
        initiator: Endpoint,
        /// Number of the target; the rest of its endpoint is the initiator's.
        target: u32,
        /// Queue that receives the target's messages.
        srq: RemoteSrq,
    },
    /// DC: the target.
    Dc(DcEndpoint),
}

impl AnyEndpoint {
    /// LID of the port; 0 on RoCE.
    #[must_use]
    pub fn lid(&self) -> u16 {
        match self {
            Self::Connected(endpoint) | Self::Xrc { initiator: endpoint, .. } => endpoint.lid,
            Self::Datagram(endpoint) => endpoint.lid,
            Self::Dc(endpoint) => endpoint.lid,
        }
    }

    /// Number of the queue pair, of XRC the initiator's, of DC the target's.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        match self {
            Self::Connected(endpoint) | Self::Xrc { initiator: endpoint, .. } => endpoint.qpn,
            Self::Datagram(endpoint) => endpoint.qpn,
            Self::Dc(endpoint) => endpoint.dctn,
        }
    }

    /// GID of the port; `None` on InfiniBand within a subnet.
    #[must_use]
    pub fn gid(&self) -> Option<Gid> {
        match self {
            Self::Connected(endpoint) | Self::Xrc { initiator: endpoint, .. } => endpoint.gid,
            Self::Datagram(endpoint) => endpoint.gid,
            Self::Dc(endpoint) => endpoint.gid,
        }
    }

    /// First PSN of its sends; `None` of datagrams and DC, whose receivers need none.
    #[must_use]
    pub fn psn(&self) -> Option<u32> {
        match self {
            Self::Connected(endpoint) | Self::Xrc { initiator: endpoint, .. } => Some(endpoint.psn),
            Self::Datagram(_) | Self::Dc(_) => None,
        }
    }

    /// MTU of a connection; `None` of datagrams and DC.
    #[must_use]
    pub fn mtu(&self) -> Option<Mtu> {
        match self {
            Self::Connected(endpoint) | Self::Xrc { initiator: endpoint, .. } => Some(endpoint.mtu),
            Self::Datagram(_) | Self::Dc(_) => None,
        }
    }
}

impl fmt::Display for AnyEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connected(endpoint) => endpoint.fmt(f),
            Self::Datagram(endpoint) => endpoint.fmt(f),
            Self::Dc(endpoint) => endpoint.fmt(f),
            Self::Xrc { initiator, target, srq } => {
                write!(f, "{initiator} target={target:#08x} {srq}")
            }
        }
    }
}

impl FromStr for AnyEndpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        let has = |name| EndpointError::part(text, name).is_ok();
        if has("qkey") {
            return text.parse().map(Self::Datagram);
        }
        if has("dctn") {
            return text.parse().map(Self::Dc);
        }
        if !has("srqn") {
            return text.parse().map(Self::Connected);
        }
        let (initiator, srq) = (text.parse()?, text.parse()?);
        Ok(Self::Xrc { initiator, target: number(text, "target", 0xff_ffff)?, srq })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_text_tell_the_transport() {
        let rc = "lid=0x0001 qpn=0x00002a psn=0x000007 mtu=1024 rd_atomic=16 gid=none";
        let endpoint: Endpoint = rc.parse().unwrap();
        let srq = RemoteSrq::new(9).unwrap();
        let xrc = format!("{rc} target=0x00002b srqn=0x000009");
        let dc = "lid=0x0000 dctn=0x00002a key=0x0123456789abcdef gid=::1";
        let ud = "lid=0x0000 qpn=0x00002a qkey=0x00000001 gid=::1";
        for (text, wanted) in [
            (rc, AnyEndpoint::Connected(endpoint)),
            (&xrc, AnyEndpoint::Xrc { initiator: endpoint, target: 43, srq }),
            (dc, AnyEndpoint::Dc(dc.parse().unwrap())),
            (ud, AnyEndpoint::Datagram(ud.parse().unwrap())),
        ] {
            assert_eq!(text.parse(), Ok(wanted), "{text}");
            assert_eq!((wanted.to_string().as_str(), wanted.qpn()), (text, 42));
            assert_eq!(wanted.psn(), wanted.mtu().map(|_| 7), "{text}");
        }
        for bad in [xrc.replace("target=0x00002b", ""), xrc.replace("0x00002b", "0x1000000")] {
            assert_eq!(bad.parse::<AnyEndpoint>().unwrap_err().part, "target", "{bad}");
        }
    }
}
