//! What an end is set up with, and how it is refused what its device can't do.

use serde::{Deserialize, Serialize};
use uverbs::{AccessFlags, AckTimeout, Context, Local, Mtu, PortState, RnrTimer};

use crate::error::{BecauseOf, Error};
use crate::perf::options::{Operation, Shape, Test};
use crate::pingpong::verify::Who;

/// What a record says of an end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::perf) struct About {
    pub(in crate::perf) end: String,
    pub(in crate::perf) device: String,
    pub(in crate::perf) driver: String,
    pub(in crate::perf) firmware: String,
    pub(in crate::perf) embedded: bool,
    pub(in crate::perf) port: u8,
    pub(in crate::perf) link_layer: String,
    pub(in crate::perf) gid: Option<String>,
    pub(in crate::perf) gid_type: Option<String>,
    /// Bytes.
    pub(in crate::perf) mtu: Option<u32>,
    /// Of the first queue pair, as the device granted it.
    pub(in crate::perf) max_send_wr: u32,
    pub(in crate::perf) max_recv_wr: u32,
    pub(in crate::perf) max_inline_data: u32,
}

pub(super) fn shown(index: Option<u32>) -> String {
    index.map_or("by default".to_owned(), |index| index.to_string())
}

/// Refuses what this device or port can't do, by the option's name.
pub(super) fn about(
    context: &Context,
    who: Who,
    embedded: bool,
    shape: &Shape,
    size: u32,
) -> Result<About, Error> {
    let refuse = |option, value: String, why: String| Err(Error::Argument { option, value, why });
    let device = context.query_device()?;
    let name = context.device().name();
    if shape.port == 0 || shape.port > device.phys_port_count {
        let why = format!("{name} has ports 1 to {}", device.phys_port_count);
        return refuse("--port", shape.port.to_string(), why);
    }
    if shape.op.is_atomic() && device.atomic_cap.raw() == 0 {
        return refuse("atomic", String::new(), format!("{name} has no atomics"));
    }
    let port = context.query_port(shape.port)?;
    if port.state != PortState::Active {
        return Err(Error::Verb(uverbs::Error::Invalid {
            verb: "query_port",
            what: "the port's state",
            value: port.state.to_string(),
            why: "nothing can be sent until its link is up",
        }));
    }
    if size > port.max_message_size {
        let why = format!("a message of {name} has at most {} bytes", port.max_message_size);
        return refuse("--size", size.to_string(), why);
    }
    if let Some(mtu) = shape.mtu.filter(|mtu| Some(*mtu) > port.active_mtu.bytes()) {
        let why = format!("the port's MTU is {}", port.active_mtu);
        return refuse("--mtu", mtu.to_string(), why);
    }
    let gid = match shape.gid_index {
        Some(index) => {
            let gid = context.query_gid(shape.port, index).because_of("--gid-index", index)?;
            if gid.gid.is_zero() {
                let why = "this entry of the port's GID table is empty".to_owned();
                return refuse("--gid-index", index.to_string(), why);
            }
            Some(gid)
        }
        None => context.best_gid(shape.port)?,
    };
    Ok(About {
        end: who.to_string(),
        device: name.to_owned(),
        driver: crate::select::driver(context.device()),
        firmware: device.firmware(),
        embedded,
        port: shape.port,
        link_layer: port.link_layer.to_string(),
        gid: gid.map(|entry| entry.gid.to_string()),
        gid_type: gid.map(|entry| entry.kind.to_string()),
        mtu: None,
        max_send_wr: 0,
        max_recv_wr: 0,
        max_inline_data: 0,
    })
}

/// What the peer does to this end's memory in this test, and nothing else.
pub(super) fn rights(shape: &Shape, who: Who) -> AccessFlags {
    let peer_acts = match shape.test {
        Test::Lat => who == Who::Server || !shape.op.is_one_sided(),
        Test::Bw => who == Who::Server || shape.bidirectional,
    };
    match shape.op {
        _ if !peer_acts => AccessFlags::empty(),
        Operation::Write => AccessFlags::REMOTE_WRITE,
        Operation::Read => AccessFlags::REMOTE_READ,
        Operation::Send => AccessFlags::empty(),
        Operation::FetchAdd | Operation::CompareSwap => AccessFlags::REMOTE_ATOMIC,
    }
}

/// How the queue pairs are brought up.
pub(super) fn local(context: &Context, shape: &Shape) -> Result<Local, Error> {
    let plain = Local::default();
    let mut rd_atomic = plain.rd_atomic;
    if let Some(outs) = shape.outs {
        let device = context.query_device()?;
        let most = device.max_qp_rd_atom.min(device.max_qp_init_rd_atom);
        if u32::from(outs) > most {
            let why = format!("{} has at most {most}", context.device().name());
            return Err(Error::Argument { option: "--outs", value: outs.to_string(), why });
        }
        rd_atomic = outs;
    }
    Ok(Local {
        port: shape.port,
        gid_index: shape.gid_index,
        mtu: shape.mtu.and_then(Mtu::from_bytes),
        rd_atomic,
        timeout: AckTimeout::from_code(shape.qp_timeout).unwrap_or(plain.timeout),
        service_level: shape.sl,
        traffic_class: shape.traffic_class,
        access: AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC,
        min_rnr_timer: RnrTimer::DEFAULT,
        rnr_retry: 7,
        ..plain
    })
}

/// Names the option that a queue pair was refused for.
pub(super) fn blame(error: uverbs::Error, shape: &Shape) -> Error {
    let uverbs::Error::Limit { what, .. } = error else {
        return Err::<(), _>(error).because_of("--qps", shape.qps).unwrap_err();
    };
    let (option, value) = if what.contains("inline") {
        ("--inline", shape.inline)
    } else if what.contains("recv") {
        ("--rx-depth", shape.rx_depth.unwrap_or(0))
    } else if what.contains("send") {
        ("--tx-depth", shape.tx_depth)
    } else {
        ("--qps", shape.qps)
    };
    Error::Refused { option, value: value.to_string(), error }
}
