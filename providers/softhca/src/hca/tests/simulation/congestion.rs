//! Checks of congestion control: only devices that asked for notifications get them, and no device
//! stays slow.

use std::time::Duration;

use uverbs_mlx5_prm::opcode::Opcode;

use super::places::{far_of, near_of};
use super::work::LONGEST;
use super::world::World;
use crate::hca::HcaConfig;
use crate::hca::testing::*;
use uverbs_front::backend::context::Service;

/// Time in which a queue pair's window grows by a packet (docs/WIRE.md).
const RECOVERY: Duration = Duration::from_micros(100);

/// # Errors
/// The check that failed.
pub(super) fn judge(world: &mut World<'_>) -> Result<(), String> {
    told(world)?;
    for connection in 0..world.sides.len() {
        if heeds(world, connection) {
            recovers(world, connection)?;
        }
    }
    Ok(())
}

/// True if both ends of a connection asked for notifications.
fn heeds(world: &World<'_>, number: usize) -> bool {
    let connection = &world.plan.connections[number];
    matches!(connection.service, Service::Rc | Service::Xrc)
        && connection.hosts.iter().all(|host| world.plan.asks[*host])
}

/// Checks that only hosts that asked get notifications, and only for marked packets.
fn told(world: &World<'_>) -> Result<(), String> {
    let plan = world.plan;
    let marks = plan.faults.mark > 0.0
        || plan.connections.iter().any(|connection| connection.traffic_class & 3 == 3);
    let (mut sent, mut received) = (0, 0);
    for (number, host) in world.rig.hosts.iter().enumerate() {
        let stats = host.hca.stats();
        let all = stats.congested + stats.cnps_sent + stats.cnps_received;
        if all != 0 && !(plan.asks[number] && marks) {
            return Err(format!("host {number}, who didn't ask or met no mark: {stats:?}"));
        }
        // A flipped bit outside of the ICRC may pretend that a sender asked.
        let mut of_host = (0..plan.connections.len())
            .filter(|connection| plan.connections[*connection].hosts.contains(&number));
        let may = plan.faults.corrupt > 0.0 || of_host.any(|connection| heeds(world, connection));
        if stats.cnps_sent != 0 && !may {
            return Err(format!("host {number} told a peer that didn't ask: {stats:?}"));
        }
        sent += stats.cnps_sent;
        received += stats.cnps_received;
    }
    if received > sent && plan.faults.duplicate == 0.0 {
        return Err(format!("{received} notifications arrived of {sent}"));
    }
    Ok(())
}

/// Checks that some time after the last notification the whole window is in use again.
fn recovers(world: &mut World<'_>, number: usize) -> Result<(), String> {
    let Some(sides) = &world.sides[number] else { return Ok(()) };
    if !sides.iter().all(|side| world.is_up(side)) {
        return Ok(());
    }
    let window = HcaConfig::default().packet_window;
    let connection = &world.plan.connections[number];
    let (from, to) = (connection.hosts[0], sides[1].end.host);
    // A wire that delays may bring one more notification, which is taken first.
    world.rig.now += RECOVERY * window;
    world.rig.hosts[from].hca.step(world.rig.now);
    world.rig.now += RECOVERY * window;
    let (key, rkey) = (world.rig.hosts[from].key, world.rig.hosts[to].key);
    let write = Wr::new(Opcode::RDMA_WRITE).remote(far_of(0), rkey).seg(near_of(0), LONGEST, key);
    let write = sides[1].address(&world.rig, connection, 0, write.unsignaled());
    let before = world.rig.hosts[from].hca.stats().tx_packets;
    for _ in 0..window.div_ceil(LONGEST / connection.mtu.bytes()) {
        let Some(sides) = &mut world.sides[number] else { break };
        world.rig.post(&mut sides[0].end, &write);
    }
    for _ in 0..window {
        world.rig.hosts[from].hca.step(world.rig.now);
    }
    let left = world.rig.hosts[from].hca.stats().tx_packets - before;
    match left < u64::from(window) {
        true => Err(format!("connection {number} is slow: {left} packets left of {window}")),
        false => Ok(()),
    }
}
