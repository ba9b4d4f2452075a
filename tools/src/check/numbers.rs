//! Last part of a check: many queue pairs, and a short measurement.

use std::time::Instant;

use super::peer::Peer;
use super::report::Row;
use super::{Budget, connections, messages};
use crate::base::error::Error;
use crate::base::select::{PortArgs, Two};
use crate::link::operation::Operation;
use crate::pingpong::{self, Config};

const PART: &str = "numbers";

/// Round trips of the measurement.
const ITERATIONS: u64 = 2000;

/// Makes that many queue pairs at once, and destroys them.
pub(super) fn many(devices: &Two, count: u32, budget: &Budget) -> Row {
    let name = format!("{count} queue pairs");
    let begun = Instant::now();
    let make = || -> Result<Option<&'static str>, Error> {
        let context = devices.client.open()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(16)?;
        let mut all = Vec::new();
        for _ in 0..count {
            if let Some(why) = budget.over() {
                return Ok(Some(why));
            }
            let small = context.queue_pair(&pd, &cq).overcommit();
            all.push(small.max_send_wr(1).max_recv_wr(1).build()?);
        }
        Ok(None)
    };
    match make() {
        Ok(None) => Row::good(PART, &name, format!("made and ended in {:.1?}", begun.elapsed())),
        Ok(Some(why)) => Row::untried(PART, &name, why),
        Err(error) => Row::of_error(PART, &name, &error),
    }
}

/// Half a round trip of 64 bytes.
pub(super) fn latency(devices: &Two, at: &PortArgs, peer: Option<&Peer>, budget: &Budget) -> Row {
    let reliable = messages::reliable(&devices.client);
    let name = format!("{reliable} send of 64 bytes");
    let name = name.as_str();
    let config = messages::config(at, reliable, Operation::Send);
    let config = Config { iters: ITERATIONS, warmup: ITERATIONS / 10, ..config };
    let measured = match (peer, budget.bars(devices)) {
        (None, Some(why)) => return Row::untried(PART, name, why),
        _ if devices.client.is_iwarp() => return Row::untried(PART, name, connections::IWARP),
        // The peer waits for this row.
        (Some(peer), _) => peer
            .verify(devices, &[config], budget)
            .map(|ran| (ran.latency.map(|latency| latency.histogram), "between two processes")),
        (None, None) => pingpong::verify(devices, &config, &budget.stop)
            .map(|ran| (Some(ran.latency), "in loopback")),
    };
    match (measured, budget.over()) {
        (Ok((Some(latency), between)), _) => {
            let at = |quantile| latency.value_at_quantile(quantile);
            let text = format!("{} ns, 99 % within {} ns, {between}", at(0.5), at(0.99));
            Row::good(PART, name, text)
        }
        (Ok((None, _)), _) => Row::good(PART, name, "measured by the client"),
        (Err(_), Some(why)) => Row::untried(PART, name, why),
        (Err(error), None) => Row::of_error(PART, name, &error),
    }
}
