//! Messages between two processes: JSON, one message a line.

use serde::{Deserialize, Serialize};
use uverbs::Remote;
use uverbs::any_transport::AnyEndpoint;

use crate::perf::side::Hand;

/// Maximum bytes of a line. A queue pair's line has 250.
pub(super) const LINE: usize = 1024;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Message {
    /// First message of both sides.
    Hello(Hello),
    /// Address of one queue pair.
    Qp(Qp),
    /// This side can receive.
    Ready,
    /// A sign of life.
    Alive,
    /// This side has sent all its messages.
    Done(Done),
    /// This side gives up, with the reason.
    Failed(String),
}

/// Description of the measurement that a side is about to make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) program: String,
    /// Version, which changes with the messages.
    pub(super) version: u32,
    /// Options and values that both sides must have in common.
    #[serde(default)]
    pub(super) terms: Vec<(String, String)>,
}

/// Address of a queue pair, and the memory that the peer may use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Qp {
    pub(super) number: usize,
    addr: u64,
    rkey: u32,
    /// The library's text format.
    endpoint: String,
}

/// Result of a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Done {
    /// Messages sent in the measured time.
    pub(in crate::perf) messages: u64,
    pub(in crate::perf) ns: u64,
    /// Messages sent in total.
    pub(in crate::perf) posted: u64,
    /// Messages received in total, if the side only serves.
    #[serde(default)]
    pub(in crate::perf) received: u64,
    /// The user pressed Ctrl-C.
    pub(in crate::perf) interrupted: bool,
}

impl Message {
    pub(super) fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }

    /// Formats the line, with its end.
    pub(super) fn line(&self) -> Vec<u8> {
        // Structs of numbers and text always have a JSON form.
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }
}

impl Qp {
    pub(super) fn new(number: usize, hand: &Hand) -> Self {
        let Hand { endpoint, memory: Remote { addr, rkey } } = *hand;
        Self { number, addr, rkey, endpoint: endpoint.to_string() }
    }

    /// Converts to the library's types.
    pub(super) fn hand(&self) -> Result<Hand, String> {
        let endpoint: AnyEndpoint = self.endpoint.parse().map_err(|error| format!("{error}"))?;
        Ok(Hand { endpoint, memory: Remote { addr: self.addr, rkey: self.rkey } })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uverbs::attr::Ece;
    use uverbs::{DatagramEndpoint, Endpoint, Gid, Mtu};

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn hands_survive_their_text(
            qpn in 0u32..1 << 24, psn in 0u32..1 << 24, addr: u64, rkey: u32,
            number in 0usize..1 << 16,
        ) {
            let gid = Some(Gid([9; 16]));
            let (mtu, ece) = (Mtu::Mtu1024, Ece::default());
            let endpoint = Endpoint { lid: 0, qpn, psn, mtu, rd_atomic: 4, gid, ece };
            let datagram = DatagramEndpoint { lid: 0, qpn, qkey: rkey, gid };
            for endpoint in [AnyEndpoint::Connected(endpoint), AnyEndpoint::Datagram(datagram)] {
                let hand = Hand { endpoint, memory: Remote { addr, rkey } };
                let line = Message::Qp(Qp::new(number, &hand)).line();
                prop_assert!(line.len() < LINE / 2 && line.ends_with(b"\n"));
                let Some(Message::Qp(qp)) = Message::parse(&line) else { panic!("{line:?}") };
                prop_assert_eq!((qp.number, qp.hand()), (number, Ok(hand)));
            }
        }

        #[test]
        fn any_line_is_something_or_nothing(line in "(\\{\"(qp|done|hello|failed)\":)?.{0,80}") {
            if let Some(Message::Qp(qp)) = Message::parse(line.as_bytes()) {
                let _ = qp.hand();
            }
        }
    }
}
