//! Report of a run.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::trouble::Fault;
use crate::watch::Sample;

/// Totals of the work done.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Totals {
    /// Sessions between processes.
    pub(crate) sessions: u64,
    pub(crate) messages: u64,
    /// Messages of unreliable transports that didn't arrive.
    pub(crate) lost: u64,
    /// Sessions that ended in a typed error, since a host was killed or its device taken out.
    pub(crate) excused: u64,
    /// Sessions of both kinds that ended early since their processes were kept from running.
    pub(crate) starved: u64,
    pub(crate) guests: u64,
    pub(crate) guests_killed: u64,
    pub(crate) hosts_killed: u64,
    /// Devices of living hosts that were taken out and came back.
    pub(crate) replugged: u64,
    /// Rounds, sessions and messages within one process, and devices that were taken out there.
    pub(crate) inside_rounds: u64,
    pub(crate) inside_sessions: u64,
    pub(crate) inside_messages: u64,
    pub(crate) inside_unplugged: u64,
    pub(crate) retransmits: u64,
}

/// See the [module](self).
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) kind: &'static str,
    pub(crate) seed: u64,
    pub(crate) seconds: u64,
    pub(crate) cycles: usize,
    pub(crate) totals: Totals,
    /// Why guests' sessions ended that count as [starved](Totals::starved), of the first ones.
    pub(crate) early: Vec<String>,
    /// Lines of hosts after a fault: why their last sessions broke, and their devices' counters.
    pub(crate) hosts: Vec<String>,
    /// Samples of each process that lives through the whole run, when all was quiet.
    pub(crate) samples: BTreeMap<String, Vec<Sample>>,
    /// Sockets and files when all had ended.
    pub(crate) left: u64,
    pub(crate) faults: Vec<Fault>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Totals {
            sessions,
            messages,
            lost,
            excused,
            starved,
            guests,
            guests_killed,
            hosts_killed,
            replugged,
            inside_rounds,
            inside_sessions,
            inside_messages,
            inside_unplugged,
            retransmits,
        } = &self.totals;
        writeln!(f, "{} s, {} cycles, seed {}", self.seconds, self.cycles, self.seed)?;
        writeln!(f, "between processes:")?;
        writeln!(f, "  {sessions} sessions, {messages} messages verified, {lost} datagrams lost")?;
        writeln!(
            f,
            "  {guests} guests, {guests_killed} of them killed; {hosts_killed} hosts killed"
        )?;
        writeln!(f, "  {replugged} devices taken out and back, {excused} sessions ended by that")?;
        writeln!(f, "  {retransmits} retransmissions of hosts")?;
        writeln!(f, "  {starved} sessions ended since a process was kept from running")?;
        for why in &self.early {
            writeln!(f, "    {why}")?;
        }
        writeln!(f, "in one process:")?;
        writeln!(f, "  {inside_sessions} sessions, {inside_messages} messages verified")?;
        writeln!(f, "  {inside_rounds} pairs of devices, {inside_unplugged} ended in mid-traffic")?;
        writeln!(f, "{:<10} {:>21} {:>15} {:>9}", "quiet", "memory, KiB", "open files", "threads")?;
        for (name, samples) in &self.samples {
            let range = |part: fn(&Sample) -> u64| {
                let all = || samples.iter().map(part);
                let (min, max) = (all().min().unwrap_or(0), all().max().unwrap_or(0));
                format!("{min} to {max}")
            };
            let [rss, files, threads] =
                [range(|it| it.rss), range(|it| it.files), range(|it| it.threads)];
            writeln!(f, "{name:<10} {rss:>21} {files:>15} {threads:>9}")?;
        }
        writeln!(f, "left: {}", self.left)?;
        for host in &self.hosts {
            writeln!(f, "{host}")?;
        }
        for fault in &self.faults {
            writeln!(f, "FAULT  {fault}")?;
        }
        Ok(())
    }
}
