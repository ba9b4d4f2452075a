//! RDMA WRITE and READ: the client works on the server's memory, and the server's program takes no
//! part.
//!
//! `cargo run --example rdma_write_read`

use std::error::Error;
use std::time::Duration;

use uverbs::{AccessFlags, Completed, Local};

/// Limit of every wait.
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
    // Upper bound of the peer's rights; the memory below has separate rights.
    let access = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    let server_at = server.prepare(&Local { access, ..Local::default() })?;
    server.connect(&client_at)?;
    client.connect(&server_at)?;

    // The server exposes memory with the rights that it grants. The client needs its address and
    // key; here `remote` gives both.
    let memory = pd.expose(4096, AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ)?;
    let there = memory.remote(128);

    // WRITE: from a frame of the client into the server's memory.
    let slab = pd.slab(1024, 1)?;
    let mut frame = slab.take().ok_or("no free frame")?;
    frame.iter_mut().enumerate().for_each(|(index, byte)| *byte = index as u8);
    let mut batch = client.batch();
    batch.write(1, frame, there)?;
    batch.ring();
    let written = client_cq.wait(PATIENCE)?;
    assert_eq!(written.result?, Completed::Write);
    let mut frame = written.frame.ok_or("a write gives its frame back")?;

    // The server copies out: memory that a peer can reach is never lent as a slice.
    let mut copy = [0; 1024];
    memory.read(128, &mut copy)?;
    assert!(copy.iter().enumerate().all(|(index, byte)| *byte == index as u8));
    println!("wrote {} bytes to address {:#x}", copy.len(), there.addr);

    // READ: back into the frame, after the server has changed something.
    memory.write(128, b"changed by the server")?;
    frame.fill(0);
    let mut batch = client.batch();
    batch.read(2, frame, there)?;
    batch.ring();
    let read = client_cq.wait(PATIENCE)?;
    assert_eq!(read.result?, Completed::Read);
    let frame = read.frame.ok_or("a read gives its frame back")?;
    assert!(frame.starts_with(b"changed by the server"));
    assert_eq!(frame[21..], copy[21..]);
    println!(
        "read  {} bytes back, which begin {:?}",
        frame.len(),
        String::from_utf8_lossy(&frame[..21])
    );
    Ok(())
}
