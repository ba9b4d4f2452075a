//! Names of transports.

use std::fmt;
use std::str::FromStr;

use uverbs_core::error::Error;

use crate::GRH_LEN;

/// Name of a transport, as text: `RC`. Parsing ignores case.
///
/// ```
/// use uverbs::any_transport::TransportName;
///
/// assert_eq!("xrc".parse::<TransportName>()?, TransportName::Xrc);
/// assert_eq!(TransportName::Srd.to_string(), "SRD");
/// # Ok::<(), uverbs::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TransportName {
    /// Reliable connection ([`Rc`](crate::Rc)).
    #[default]
    Rc,
    /// Unreliable connection ([`Uc`](crate::Uc)).
    Uc,
    /// Unreliable datagrams ([`Ud`](crate::Ud)).
    Ud,
    /// Extended reliable connection: an [initiator](crate::transport::XrcIni) and a
    /// [target](crate::xrc::XrcTarget).
    Xrc,
    /// Dynamic connections: an [initiator](crate::transport::Dci) and a
    /// [target](crate::dc::DcTarget).
    Dc,
    /// Scalable reliable datagrams ([`Srd`](crate::transport::Srd)).
    Srd,
}

impl TransportName {
    /// All transports.
    pub const ALL: [Self; 6] = [Self::Rc, Self::Uc, Self::Ud, Self::Xrc, Self::Dc, Self::Srd];

    /// True if the peer acknowledges messages: a completion then means that the message arrived.
    #[must_use]
    pub const fn is_reliable(self) -> bool {
        matches!(self, Self::Rc | Self::Xrc | Self::Dc | Self::Srd)
    }

    /// True if each post names a destination by an address handle of a queue pair: UD and SRD, of
    /// which a SEND is one packet.
    #[must_use]
    pub const fn is_datagram(self) -> bool {
        matches!(self, Self::Ud | Self::Srd)
    }

    /// True if messages arrive in shared receive queues alone: XRC and DC.
    #[must_use]
    pub const fn needs_shared_receives(self) -> bool {
        matches!(self, Self::Xrc | Self::Dc)
    }

    /// Offset of the message in a receive: UD puts the GRH before it.
    #[must_use]
    pub const fn recv_offset(self) -> usize {
        match self {
            Self::Ud => GRH_LEN,
            Self::Rc | Self::Uc | Self::Xrc | Self::Dc | Self::Srd => 0,
        }
    }

    /// Name in capitals.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rc => "RC",
            Self::Uc => "UC",
            Self::Ud => "UD",
            Self::Xrc => "XRC",
            Self::Dc => "DC",
            Self::Srd => "SRD",
        }
    }
}

impl fmt::Display for TransportName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for TransportName {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let named = |name: &Self| name.as_str().eq_ignore_ascii_case(text);
        Self::ALL.into_iter().find(named).ok_or_else(|| Error::Invalid {
            verb: "create_qp",
            what: "transport",
            value: text.to_owned(),
            why: "RC, UC, UD, XRC, DC or SRD",
        })
    }
}
