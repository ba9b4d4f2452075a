//! The two sides: ends of a latency measurement that checks every message.

use serde::Serialize;
use uverbs::Mtu;

use super::config::Config;
use crate::base::setup::DeviceSummary;
use crate::link::doorbell::Rings;
use crate::perf::shape::{Shape, Test};
use crate::perf::side::Prepared;

/// Maximum outstanding sends of a side, which uses one.
const SENDS: u32 = 4;

/// Description of a side in a report.
#[derive(Clone, Debug, Serialize)]
pub(super) struct About {
    #[serde(flatten)]
    pub(super) place: DeviceSummary,
    pub(super) lid: u16,
    pub(super) qpn: u32,
    pub(super) psn: u32,
    /// Granted inline bytes.
    pub(super) max_inline_data: u32,
    pub(super) rings: Rings,
}

impl About {
    pub(super) fn of(prepared: &Prepared) -> Self {
        let (about, endpoint) = (&prepared.side.about, &prepared.hands[0].endpoint);
        Self {
            place: about.place.clone(),
            lid: endpoint.lid(),
            qpn: endpoint.qpn(),
            psn: endpoint.psn().unwrap_or(0),
            max_inline_data: about.max_inline_data,
            rings: about.rings,
        }
    }
}

/// Measurement with the parameters of a ping-pong. One-sided operations are run by both sides in
/// turn.
pub(crate) fn shape(config: &Config) -> Shape {
    let turns = if config.opcode.is_one_sided() { 2 } else { 1 };
    Shape {
        op: config.opcode,
        test: Test::Lat,
        iters: Some(config.iters * turns),
        duration_s: None,
        warmup: config.warmup * turns,
        inline: config.inline,
        qps: 1,
        tx_depth: SENDS,
        rx_depth: Some(config.rx_depth),
        cq_mod: 1,
        post_list: 1,
        outs: None,
        bidirectional: true,
        port: config.port,
        gid_index: config.gid_index,
        mtu: config.mtu.and_then(Mtu::bytes),
        qp_timeout: None,
        sl: 0,
        traffic_class: 0,
        doorbell: config.doorbell,
        connection: config.connection,
        use_srq: config.use_srq,
        cpu: None,
        events: config.events,
        check: true,
        timeout_s: config.timeout.as_secs_f64(),
    }
}
