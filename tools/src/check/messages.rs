//! Second part of a check: every operation of every transport, each byte verified.

use std::time::Duration;

use uverbs::Device;
use uverbs::any_transport::TransportName;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_EFA;

use super::Budget;
use super::peer::Peer;
use super::report::Row;
use crate::base::select::{PortArgs, Two};
use crate::link::doorbell::Doorbell;
use crate::link::operation::Operation;
use crate::pingpong::{self, Config};

const PART: &str = "messages";

const CONNECTIONS: &[TransportName] = &[
    TransportName::Rc,
    TransportName::Uc,
    TransportName::Ud,
    TransportName::Xrc,
    TransportName::Dc,
];
/// Transports of Elastic Fabric Adapters.
const OF_EFA: &[TransportName] = &[TransportName::Ud, TransportName::Srd];

/// True for an Elastic Fabric Adapter, which has no connections.
pub(super) fn is_efa(device: &Device) -> bool {
    device.record().driver_id == RDMA_DRIVER_EFA
}

/// The transport that acknowledges messages on every device of the kind.
pub(super) fn reliable(device: &Device) -> TransportName {
    if is_efa(device) { TransportName::Srd } else { TransportName::Rc }
}
const OPERATIONS: [Operation; 7] = [
    Operation::Send,
    Operation::SendImm,
    Operation::Write,
    Operation::WriteImm,
    Operation::Read,
    Operation::CompareSwap,
    Operation::FetchAdd,
];

/// Sizes: a byte, the last inline ones, a WQEBB, a packet and what passes it, many packets.
pub(super) const SIZES: [u32; 7] = [1, 60, 64, 4095, 4097, 65_536, 1_000_003];
/// Sizes of datagrams, within the smallest MTU of RoCE ports.
const DATAGRAMS: [u32; 4] = [1, 60, 64, 1000];

/// Round trips of each size; of each size from [`LONG`] on.
const ITERATIONS: [u64; 2] = [20, 4];
/// Bytes of a long message, at least.
const LONG: u32 = 1 << 17;

fn sizes(connection: TransportName, operation: Operation) -> &'static [u32] {
    match (connection, operation.is_atomic()) {
        (_, true) => &[8],
        (TransportName::Ud, _) => &DATAGRAMS,
        // A SEND of SRD is one packet.
        (TransportName::Srd, _) if !operation.needs_memory() => &DATAGRAMS,
        _ => &SIZES,
    }
}

fn has(connection: TransportName, operation: Operation) -> bool {
    match connection {
        TransportName::Ud => !operation.needs_memory(),
        // The last byte of a WRITE may come before others: no ping-pong.
        TransportName::Srd => !operation.is_atomic() && operation != Operation::Write,
        _ => connection.is_reliable() || !operation.is_one_sided(),
    }
}

/// Parameters of a run.
pub(super) fn config(at: &PortArgs, connection: TransportName, opcode: Operation) -> Config {
    Config {
        connection,
        use_srq: false,
        opcode,
        size: 64,
        iters: ITERATIONS[0],
        warmup: 0,
        events: false,
        inline: if opcode.is_one_sided() { 0 } else { 60 },
        port: at.ib_port,
        gid_index: at.gid_index,
        mtu: None,
        rx_depth: 4,
        doorbell: Doorbell::Blueflame,
        timeout: Duration::from_secs(10),
        device: None,
        json: false,
        quiet: true,
    }
}

/// A row for each operation of each transport, and one for events; with a peer between two
/// processes.
pub(super) fn rows(
    devices: &Two,
    (at, longest): (&PortArgs, u32),
    peer: Option<&Peer>,
    budget: &Budget,
) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut add = |name: &str, runs: &[Config]| {
        rows.push(match peer {
            Some(peer) if !devices.client.is_iwarp() => row_with(peer, name, devices, runs, budget),
            _ => row(name, devices, runs, budget),
        });
    };
    let of_device = if is_efa(&devices.client) { OF_EFA } else { CONNECTIONS };
    for &connection in of_device {
        for operation in OPERATIONS.into_iter().filter(|op| has(connection, *op)) {
            let config = config(at, connection, operation);
            let mut runs = Vec::new();
            for doorbell in [Doorbell::Blueflame, Doorbell::NonCached] {
                let sizes = sizes(connection, operation).iter();
                for &size in sizes.filter(|size| **size <= longest) {
                    let iters = ITERATIONS[usize::from(size >= LONG)];
                    runs.push(Config { size, doorbell, iters, ..config.clone() });
                }
            }
            add(&format!("{connection} {operation}"), &runs);
        }
    }
    let reliable = reliable(&devices.client);
    let sleeping = Config { events: true, ..config(at, reliable, Operation::Send) };
    add(&format!("{reliable} send, events"), &[sleeping]);
    rows
}

/// Runs all, and counts what was verified.
fn row(name: &str, devices: &Two, runs: &[Config], budget: &Budget) -> Row {
    let mut verified = 0;
    for config in runs {
        if let Some(why) = budget.bars(devices) {
            return Row::untried(PART, name, why);
        }
        match pingpong::verify(devices, config, &budget.stop) {
            Ok(ran) => verified += ran.verified,
            Err(error) => return Row::of_error(PART, name, &error),
        }
    }
    good(name, verified, runs)
}

/// Runs all with the peer.
fn row_with(peer: &Peer, name: &str, devices: &Two, runs: &[Config], budget: &Budget) -> Row {
    match peer.verify(devices, runs, budget) {
        Ok(verified) => good(name, verified.messages, runs),
        Err(error) => match budget.over() {
            Some(why) => Row::untried(PART, name, why),
            None => Row::of_error(PART, name, &error),
        },
    }
}

fn good(name: &str, verified: u64, runs: &[Config]) -> Row {
    Row::good(PART, name, format!("{verified} verified, {} kinds of them", runs.len()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;
    use std::thread;
    use std::time::Instant;

    use uverbs::Device;
    use uverbs::softhca::SoftHca;

    use super::*;

    #[test]
    fn a_device_that_vanishes_fails_its_rows_and_the_rest_goes_on() {
        let hca = SoftHca::builder().build().unwrap();
        let device = Device::from(hca.clone());
        let devices = Two { client: device.clone(), server: device, embedded: true };
        let at = PortArgs { device: None, ib_port: 1, gid_index: None };
        let stop = Arc::new(AtomicBool::new(false));
        let budget = Budget { end: Instant::now() + Duration::from_secs(300), stop };
        let rows = thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(200));
                hca.unplug();
            });
            rows(&devices, (&at, u32::MAX), None, &budget)
        });
        let rows = serde_json::to_value(rows).unwrap();
        let rows = rows.as_array().unwrap();
        assert_eq!(rows.len(), 28);
        let last = rows.last().unwrap();
        assert_eq!(last["verdict"], "failed", "{last}");
        let text = last["text"].as_str().unwrap();
        assert!(text.contains("open_device") && !text.contains('\n'), "{text}");
    }
}
