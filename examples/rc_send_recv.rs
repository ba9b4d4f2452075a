//! One message over a reliable connection: the hello world of RDMA. `cargo run --example
//! rc_send_recv`

use std::time::Duration;
use uverbs::{Completed, Local};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A device of this machine with a link, or the software HCA that comes with the library.
    let context = uverbs::device_or_softhca()?.open()?;
    let pd = context.alloc_pd()?;
    // Room for all completions: two queue pairs, each with 128 sends and 128 receives outstanding.
    let mut cq = context.create_cq(512)?;
    let mut client = context.queue_pair(&pd, &cq).build()?;
    let mut server = context.queue_pair(&pd, &cq).build()?;

    // Each side tells the other its address. Two processes would send it as text, over any
    // connection that they have.
    let client_at = client.prepare(&Local::default())?;
    let server_at = server.prepare(&Local::default())?;
    server.connect(&client_at)?;
    client.connect(&server_at)?;

    // Registered memory, cut into frames. The device owns a posted frame until its completion.
    let slab = pd.slab(4096, 2)?;
    server.post_recv(1, slab.take().ok_or("no free frame")?)?;
    let mut message = slab.take().ok_or("no free frame")?;
    message[..5].copy_from_slice(b"hello");
    message.set_len(5);
    client.post_send(2, message)?;

    for _ in 0..2 {
        let done = cq.wait(Duration::from_secs(5))?;
        if done.result? == Completed::Recv {
            let frame = done.frame.ok_or("a receive gives its frame back")?;
            println!("QP {:#x} received {:?}", done.qpn, String::from_utf8_lossy(&frame));
            assert_eq!(&frame[..], b"hello");
        }
    }
    Ok(())
}
