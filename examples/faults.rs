//! Faults on demand: how an application's tests check what it does when packets are lost, its peer
//! dies, a queue is full, or its device goes. `cargo run --example faults`, `cargo test --example
//! faults`
//!
//! Each test has a fabric with two software HCAs: no other process can disturb it, and it needs
//! neither hardware nor rights.

use std::error::Error;
use std::time::Duration;

use uverbs::softhca::SoftHca;
use uverbs::softhca::wire::{Fabric, FaultControl, Faults, Faulty};
use uverbs::{
    AckTimeout, CompletionQueue, Context, Device, Errno, Failure, Local, PostError, QueuePair,
    Slab, Status,
};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// No wait of a test is longer.
const LIMIT: Duration = Duration::from_secs(10);

/// Side of a connection.
struct Side {
    hca: SoftHca,
    context: Context,
    slab: Slab,
    cq: CompletionQueue,
    qp: QueuePair,
}

impl Side {
    fn on(hca: SoftHca) -> Result<Self> {
        let context = Device::from(hca.clone()).open()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(256)?;
        let qp = context.queue_pair(&pd, &cq).max_send_wr(16).build()?;
        let slab = pd.slab(64, 64)?;
        Ok(Self { hca, context, slab, cq, qp })
    }

    fn send(&mut self, id: u64) -> Result<()> {
        let mut frame = self.slab.take().ok_or("no free frame")?;
        frame[..8].copy_from_slice(&id.to_le_bytes());
        frame.set_len(8);
        self.qp.post_send(id, frame)?;
        Ok(())
    }

    fn expect(&mut self, id: u64) -> Result<()> {
        Ok(self.qp.post_recv(id, self.slab.take().ok_or("no free frame")?)?)
    }

    /// Failure of the next completion.
    fn failure(&mut self) -> Result<Failure> {
        self.cq.wait(LIMIT)?.result.err().ok_or_else(|| "it succeeded".into())
    }
}

// ANCHOR: pair
/// Connects two devices. The control sets the faults of what the client sends.
fn connected() -> Result<(Side, Side, FaultControl)> {
    let fabric = Fabric::new();
    let wire = Faulty::new(fabric.attach(&[]), 1, Faults::default());
    let control = wire.control();
    let client = SoftHca::builder().number(0).wire(Box::new(wire)).build()?;
    let server = SoftHca::builder().number(1).fabric(&fabric).build()?;
    let (mut client, mut server) = (Side::on(client)?, Side::on(server)?);
    // A peer that is silent for 4 times 16.8 ms is dead. The default is 8 times 67 ms.
    let local = Local {
        timeout: AckTimeout::from_code(12).ok_or("a code up to 31")?,
        retry_count: 3,
        ..Local::default()
    };
    let client_at = client.qp.prepare(&local)?;
    let server_at = server.qp.prepare(&local)?;
    client.qp.connect(&server_at)?;
    server.qp.connect(&client_at)?;
    Ok((client, server, control))
}
// ANCHOR_END: pair

/// Messages arrive in order, though a fifth of the packets are lost.
fn loss() -> Result<String> {
    let (mut client, mut server, control) = connected()?;
    control.set_faults(Faults { loss: 0.2, ..Faults::default() });
    for id in 0..50 {
        server.expect(id)?;
        client.send(id)?;
        let frame = server.cq.wait(LIMIT)?.frame.ok_or("a receive gives its frame back")?;
        assert_eq!(frame[..], id.to_le_bytes());
        client.cq.wait(LIMIT)?.result?;
    }
    assert!(control.stats().lost > 0);
    Ok("50 messages arrived in order".to_owned())
}

// ANCHOR: dead
/// The sender learns that its peer is gone, and its queue pair is in the error state.
fn dead_peer() -> Result<String> {
    let (mut client, server, _control) = connected()?;
    drop(server);
    client.send(1)?;
    let failure = client.failure()?;
    assert_eq!(failure.status, Status::RetryExceeded);
    client.send(2)?;
    assert_eq!(client.failure()?.status, Status::Flushed);
    Ok(failure.to_string())
}
// ANCHOR_END: dead

/// A full queue refuses a work request, and gives its frame back.
fn full_queue() -> Result<String> {
    let (mut client, mut server, control) = connected()?;
    // Without acknowledgements nothing completes.
    control.set_faults(Faults { loss: 1.0, ..Faults::default() });
    let mut posted = 0;
    let refused = loop {
        let frame = client.slab.take().ok_or("no free frame")?;
        match client.qp.post_send(posted, frame) {
            Ok(()) => posted += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.error, PostError::Full);
    for id in 0..posted {
        server.expect(id)?;
    }
    control.set_faults(Faults::default());
    for _ in 0..posted {
        client.cq.wait(LIMIT)?.result?;
    }
    client.send(posted)?;
    Ok(refused.error.to_string())
}

/// A device that is removed ends every wait, and calls fail with a typed error.
fn removal() -> Result<String> {
    let (mut client, mut server, _control) = connected()?;
    server.expect(1)?;
    client.hca.unplug();
    let error = client.cq.wait(LIMIT).err().ok_or("a device that is gone completes nothing")?;
    assert!(matches!(error, uverbs::Error::DeviceGone { .. }) && client.context.is_gone());
    let refused = client.context.alloc_pd().err().ok_or("a device that is gone has no objects")?;
    assert_eq!(refused.errno(), Some(Errno::EIO));
    // The peer is alive, and learns of it as of a dead one.
    server.send(2)?;
    assert_eq!(server.failure()?.status, Status::RetryExceeded);
    Ok(format!("{error}; {refused}"))
}

/// A scenario, which says how it ended.
type Scenario = fn() -> Result<String>;

/// Fault, and the scenario that meets it.
const SCENARIOS: [(&str, Scenario); 4] =
    [("loss", loss), ("dead peer", dead_peer), ("full queue", full_queue), ("removal", removal)];

fn main() -> Result<()> {
    for (fault, scenario) in SCENARIOS {
        println!("{fault}: {}", scenario()?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_packets_are_sent_again() {
        loss().unwrap();
    }

    #[test]
    fn a_dead_peer_is_noticed() {
        dead_peer().unwrap();
    }

    #[test]
    fn a_full_queue_refuses() {
        full_queue().unwrap();
    }

    #[test]
    fn a_removed_device_ends_waits() {
        removal().unwrap();
    }
}
