//! Report of a run with another process: the C program's two lines, and JSON.

use serde::Serialize;

use super::address::Address;
use super::session::Outcome;
use crate::pingpong::config::{Config, Remote, Role};

/// The two sides of a run, and its result.
pub(super) struct Done {
    pub(super) device: String,
    pub(super) own: Address,
    pub(super) peer: Address,
    pub(super) outcome: Outcome,
}

/// Report of the run. Times are in nanoseconds.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    program: &'static str,
    version: &'static str,
    role: &'static str,
    /// Host of the server, as given to the client.
    host: Option<String>,
    tcp_port: u16,
    device: String,
    config: Config,
    local: ReportedEndpoint,
    remote: ReportedEndpoint,
    /// Page starts of each message were checked.
    checked: bool,
    /// Ctrl-C ended the run early; the results cover the time until then.
    interrupted: bool,
    iterations: u64,
    /// Bytes in both directions.
    bytes: u64,
    time_ns: u64,
    bits_per_s: f64,
    ns_per_iteration: f64,
}

#[derive(Debug, Serialize)]
struct ReportedEndpoint {
    lid: u16,
    qpn: u32,
    psn: u32,
    gid: Option<String>,
}

impl ReportedEndpoint {
    fn new(address: &Address) -> Self {
        let gid = address.gid.map(|gid| gid.to_string());
        let (lid, qpn, psn) = (address.lid, address.qpn, address.psn);
        Self { lid, qpn, psn, gid }
    }
}

impl Report {
    pub(super) fn new(config: &Config, remote: &Remote, done: &Done) -> Self {
        let (role, host) = match &remote.role {
            Role::Server => ("server", None),
            Role::Client { host } => ("client", Some(host.clone())),
        };
        let outcome = done.outcome;
        let bytes = u64::from(config.size).saturating_mul(outcome.iters).saturating_mul(2);
        let seconds = outcome.time.as_secs_f64().max(1e-9);
        Self {
            program: "uverbs pingpong",
            version: env!("CARGO_PKG_VERSION"),
            role,
            host,
            tcp_port: remote.port,
            device: done.device.clone(),
            config: config.clone(),
            local: ReportedEndpoint::new(&done.own),
            remote: ReportedEndpoint::new(&done.peer),
            checked: remote.check,
            interrupted: outcome.interrupted,
            iterations: outcome.iters,
            bytes,
            time_ns: u64::try_from(outcome.time.as_nanos()).unwrap_or(u64::MAX),
            bits_per_s: bytes as f64 * 8.0 / seconds,
            ns_per_iteration: seconds * 1e9 / outcome.iters.max(1) as f64,
        }
    }

    /// Text for people, without the addresses, which were printed before.
    pub(super) fn text(&self) -> String {
        let seconds = self.time_ns as f64 / 1e9;
        let interrupted = match self.interrupted {
            true => "interrupted: the figures are of what was measured until then\n",
            false => "",
        };
        format!(
            "{interrupted}{} bytes in {seconds:.2} seconds = {:.2} Mbit/sec\n{} iters in \
            {seconds:.2} seconds = {:.2} usec/iter\n",
            self.bytes,
            self.bits_per_s / 1e6,
            self.iterations,
            self.ns_per_iteration / 1e3
        )
    }
}
