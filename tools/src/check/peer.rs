//! Messages of a check between two processes, by the exchange of `uverbs perf`: a TCP connection
//! for each row, so that a row that fails does not end the rest.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use super::Budget;
use crate::base::error::Error;
use crate::base::select::Two;
use crate::link::tcp::{Listener, Stream, TcpError};
use crate::link::verify::Who;
use crate::perf::clock::Clock;
use crate::perf::ends::{Bench, Ends};
use crate::perf::exchange::Control;
use crate::perf::lat::{self, Latency};
use crate::pingpong::{self, Config};

/// Time limit of a message of the exchange.
const LIMIT: Duration = Duration::from_secs(20);

/// The other process.
pub(super) struct Peer {
    meeting: Meeting,
    clock: Clock,
    /// Connection of the first row.
    first: RefCell<Option<Control>>,
}

enum Meeting {
    /// This process is the server.
    Here(Listener),
    /// Name and TCP port of the server.
    There(String, u16),
}

/// Messages of a row.
pub(super) struct Verified {
    pub(super) messages: u64,
    /// Latency of the client's last run.
    pub(super) latency: Option<Latency>,
}

impl Peer {
    /// Waits for a client, or connects to the server; the end of `wait` is an error.
    pub(super) fn meet(
        host: Option<&str>,
        port: u16,
        wait: Duration,
        budget: &Budget,
    ) -> Result<Self, Error> {
        let meeting = match host {
            None => Meeting::Here(Listener::bind(port)?),
            Some(host) => Meeting::There(host.to_owned(), port),
        };
        let peer = Self { meeting, clock: Clock::new(), first: RefCell::new(None) };
        let first = peer.connect(wait, budget)?;
        peer.first.replace(Some(first));
        Ok(peer)
    }

    /// Role of this process.
    pub(super) fn who(&self) -> Who {
        match self.meeting {
            Meeting::Here(_) => Who::Server,
            Meeting::There(..) => Who::Client,
        }
    }

    fn connect(&self, wait: Duration, budget: &Budget) -> Result<Control, TcpError> {
        let stream = match &self.meeting {
            Meeting::Here(listener) => listener.accept(wait, LIMIT, &budget.stop),
            Meeting::There(host, port) => Stream::connect(host, *port, LIMIT),
        };
        stream.map(Control::new)
    }

    /// Runs all with the peer, which runs the same. Each side verifies each byte that it receives.
    pub(super) fn verify(
        &self,
        devices: &Two,
        runs: &[Config],
        budget: &Budget,
    ) -> Result<Verified, Error> {
        let device = if self.who() == Who::Client { &devices.client } else { &devices.server };
        let left = budget.end.saturating_duration_since(Instant::now());
        let mut control = match self.first.take() {
            Some(first) => first,
            None => self.connect(left.max(LIMIT), budget)?,
        };
        if let Some(why) = budget.over() {
            // The peer waits for this row.
            control.give_up(&Error::Peer(why.to_owned()));
            return Err(Error::Peer(why.to_owned()));
        }
        let mut verified = Verified { messages: 0, latency: None };
        for config in runs {
            let shape = pingpong::shape(config);
            let bench = Bench {
                shape: &shape,
                size: config.size,
                clock: &self.clock,
                stop: &budget.stop,
                embedded: devices.embedded,
                quiet: true,
                part: "",
            };
            let side = Two { client: device.clone(), server: device.clone(), ..*devices };
            let mut ends = Ends::one(self.who(), &side, control, &bench)?;
            verified.latency = lat::run(&mut ends, &bench)?;
            let each = if config.opcode.is_one_sided() { 1 } else { 2 };
            verified.messages += each * shape.iters.unwrap_or_default();
            let Ends::One(_, kept) = ends else { break };
            control = kept;
        }
        Ok(verified)
    }
}
