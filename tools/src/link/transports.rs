//! Values of `--connection`: the library's names of transports, which are perftest's.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use uverbs::any_transport::TransportName;

use crate::link::operation::Operation;

/// Descriptions, in the order of [`TransportName::ALL`].
const HELP: [&str; TransportName::ALL.len()] = [
    "Reliable connection: everything",
    "Unreliable connection: SEND and WRITE, nothing acknowledged",
    "Unreliable datagrams: SEND, of one packet",
    "Extended reliable connection: everything, to a shared receive queue of the peer's",
    "Dynamic connections, of ConnectX: everything, to a target of the peer's",
    "Scalable reliable datagrams, of EFA: SEND of one packet, WRITE and READ, in any order",
];

/// Parser of the option.
pub(crate) fn parser() -> impl TypedValueParser<Value = TransportName> {
    let values = TransportName::ALL.into_iter().zip(HELP);
    let values = values.map(|(name, help)| PossibleValue::new(name.as_str()).help(help));
    PossibleValuesParser::new(values).try_map(|text| text.parse::<TransportName>())
}

/// Reason for refusing a ping-pong of WRITEs over SRD.
pub(crate) const NO_LAST_BYTE: &str =
    "the bytes of a WRITE come in any order over SRD, so the last tells nothing: use send";

/// Operation that a datagram transport lacks, as a reason. One with an answer is refused before.
pub(crate) fn lacks(connection: TransportName, operation: Operation) -> Option<String> {
    match connection {
        TransportName::Ud if operation.needs_memory() => {
            Some(format!("a datagram can't {operation}, only be sent"))
        }
        TransportName::Srd if operation.is_atomic() => Some("SRD has no atomics".to_owned()),
        _ => None,
    }
}

/// Form in JSON: the name.
pub(crate) mod json {
    use serde::{Deserialize, Deserializer, Serializer, de};
    use uverbs::any_transport::TransportName;

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
    pub(crate) fn serialize<S: Serializer>(name: &TransportName, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(name)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<TransportName, D::Error> {
        String::deserialize(from)?.parse().map_err(de::Error::custom)
    }
}
