//! Atomics: a ticket counter and a lock in the server's memory, which a client takes without the
//! server's doing.
//!
//! `cargo run --example atomics`

use std::error::Error;
use std::time::Duration;

use uverbs::{AccessFlags, CompletionQueue, Frame, Local};

/// No wait is longer.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn Error>> {
    let device = uverbs::device_or_softhca()?;
    let context = device.open()?;
    let pd = context.alloc_pd()?;
    let mut client_cq = context.create_cq(256)?;
    let server_cq = context.create_cq(256)?;
    let mut client = context.queue_pair(&pd, &client_cq).build()?;
    let mut server = context.queue_pair(&pd, &server_cq).build()?;
    let client_at = client.prepare(&Local::default())?;
    let access = AccessFlags::REMOTE_ATOMIC;
    let server_at = server.prepare(&Local { access, ..Local::default() })?;
    server.connect(&client_at)?;
    client.connect(&server_at)?;

    // Two words of the server: tickets at offset 0, a lock at offset 8. An atomic's word is aligned
    // to eight bytes.
    let memory = pd.expose(16, AccessFlags::REMOTE_ATOMIC)?;
    memory.store(0, 100)?;
    let (tickets, lock) = (memory.remote(0), memory.remote(8));

    // The old value comes back in a frame of eight bytes.
    let mut frame = pd.slab(8, 1)?.take().ok_or("no free frame")?;

    // Fetch-and-add: each draw gives another number.
    for expected in 100..110 {
        let mut batch = client.batch();
        batch.fetch_add(1, frame, tickets, 1)?;
        batch.ring();
        let ticket;
        (ticket, frame) = old_value(&mut client_cq)?;
        assert_eq!(ticket, expected);
    }
    assert_eq!(memory.load(0)?, 110);
    println!("drew ten tickets, the next is {}", memory.load(0)?);

    // Compare-and-swap: 0 is free, 7 is us. The first takes the lock, the second finds it taken.
    for holder in [0, 7] {
        let mut batch = client.batch();
        batch.compare_swap(2, frame, lock, 0, 7)?;
        batch.ring();
        let old;
        (old, frame) = old_value(&mut client_cq)?;
        assert_eq!(old, holder);
        println!("the lock was {}", if old == 0 { "free, and is ours" } else { "taken" });
    }
    assert_eq!(memory.load(8)?, 7);
    Ok(())
}

/// Waits for the atomic's completion. Gives the word as it was before, and the frame for the next
/// one.
fn old_value(cq: &mut CompletionQueue) -> Result<(u64, Frame), Box<dyn Error>> {
    let completion = cq.wait(PATIENCE)?;
    completion.result?;
    let frame = completion.frame.ok_or("an atomic gives its frame back")?;
    Ok((u64::from_ne_bytes(*frame.first_chunk().ok_or("a short frame")?), frame))
}
