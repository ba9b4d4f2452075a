//! Setup of an end, and errors of options that its device does not support.

use serde::{Deserialize, Serialize};
use uverbs::{AccessFlags, AckTimeout, Context, Local, Mtu, RnrTimer};

use crate::base::error::{BecauseOf, Error};
use crate::base::setup::{DeviceSummary, Wanted, ack_timeout};
use crate::link::doorbell::Rings;
use crate::link::operation::Operation;
use crate::link::verify::Who;
use crate::perf::shape::{Shape, Test};

/// Description of an end in a record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) end: String,
    #[serde(flatten)]
    pub(crate) place: DeviceSummary,
    /// Limit granted for the first queue pair.
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_inline_data: u32,
    /// Doorbells of all queue pairs.
    #[serde(default)]
    pub(crate) rings: Rings,
}

/// Requirements of the options on the device.
pub(crate) fn wanted(shape: &Shape, size: u32) -> Wanted {
    Wanted {
        port: shape.port,
        gid_index: shape.gid_index,
        mtu: shape.mtu.and_then(Mtu::from_bytes),
        size,
        op: shape.op,
        connection: shape.connection,
    }
}

/// Access rights of the peer: no more than this test needs.
pub(crate) fn rights(shape: &Shape, who: Who) -> AccessFlags {
    let peer_acts = match shape.test {
        Test::Lat if !shape.op.is_one_sided() => true,
        Test::Lat | Test::Bw => who == Who::Server || shape.bidirectional,
    };
    match shape.op {
        _ if !peer_acts => AccessFlags::empty(),
        Operation::Write | Operation::WriteImm => AccessFlags::REMOTE_WRITE,
        Operation::Read => AccessFlags::REMOTE_READ,
        Operation::Send | Operation::SendImm => AccessFlags::empty(),
        Operation::FetchAdd | Operation::CompareSwap => AccessFlags::REMOTE_ATOMIC,
    }
}

/// Attributes by which queue pairs are brought up.
pub(crate) fn local(
    context: &Context,
    shape: &Shape,
    gid_index: Option<u32>,
    embedded: bool,
) -> Result<Local, Error> {
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
    let timeout = shape.qp_timeout.and_then(AckTimeout::from_code);
    Ok(Local {
        port: shape.port,
        gid_index,
        mtu: shape.mtu.and_then(Mtu::from_bytes),
        rd_atomic,
        timeout: timeout.unwrap_or(ack_timeout(embedded)),
        service_level: shape.sl,
        traffic_class: shape.traffic_class,
        access: AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC,
        min_rnr_timer: RnrTimer::DEFAULT,
        rnr_retry: 7,
        ..plain
    })
}

/// Names the option that caused a refusal.
pub(crate) fn blame(error: uverbs::Error, shape: &Shape) -> Error {
    let uverbs::Error::Limit { what, .. } = error else {
        return match shape.qps {
            1 => Error::Verb(error),
            many => Err::<(), _>(error).because_of("--qps", many).unwrap_err(),
        };
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
