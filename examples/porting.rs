//! Ports of four C programs, `tests/c-stack/c/porting.c`, which print the same lines: connection
//! manager, events, datagrams, shared receives.
//!
//! `cargo run --example porting`

mod common;

use std::net::SocketAddr;

use common::{Outcome, PATIENCE, shown};
use uverbs::cm::{Connector, EventChannel, Listener, Param};
use uverbs::{Completed, CompletionQueue, Context, Device, Frame, GRH_LEN, Local, Notify};

/// Bytes of a receive.
const ROOM: usize = 64;

/// Waits for a receive to complete.
fn received(cq: &mut CompletionQueue) -> Outcome<Frame> {
    loop {
        let done = cq.wait(PATIENCE)?;
        if done.result? == Completed::Recv {
            return Ok(done.frame.ok_or("a receive gives its frame back")?);
        }
    }
}

// ANCHOR: events
fn events(context: &Context) -> Outcome {
    let pd = context.alloc_pd()?;
    let channel = context.create_comp_channel()?;
    let mut cq = context.completion_queue(256).channel(&channel).build()?;
    let mut qp = context.queue_pair(&pd, &cq).build()?;
    qp.prepare(&Local::default())?;
    qp.connect_to_self()?;
    qp.post_recv(0, pd.slab(ROOM, 1)?.take().ok_or("the slab is new")?)?;
    cq.arm(Notify::Any)?;
    qp.post_send_inline(100, b"woken by an event")?;
    // An event is acknowledged when it is taken.
    let event = channel.next_within(PATIENCE)?;
    assert!(event.is_of(&cq));
    println!("events  {}", shown(&received(&mut cq)?));
    Ok(())
}
// ANCHOR_END: events

// ANCHOR: ud
fn datagram(context: &Context) -> Outcome {
    let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(256)?);
    let mut qp = context.queue_pair(&pd, &cq).ud().build()?;
    let own = qp.bring_up(&Local::default())?;
    qp.post_recv(0, pd.slab(GRH_LEN + ROOM, 1)?.take().ok_or("the slab is new")?)?;
    let to = qp.destination(&own)?;
    qp.send_queue().post_send_inline_to(100, b"behind 40 bytes of header", &to)?;
    println!("ud      {}", shown(&received(&mut cq)?[GRH_LEN..]));
    Ok(())
}
// ANCHOR_END: ud

// ANCHOR: srq
fn shared_receives(context: &Context) -> Outcome {
    let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(256)?);
    let mut srq = context.shared_receive_queue(&pd).max_wr(4).build()?;
    let slab = pd.slab(ROOM, 2)?;
    while let Some(frame) = slab.take() {
        srq.post(0, frame)?;
    }
    let mut connected = Vec::new();
    for text in ["by the first queue pair", "by the second queue pair"] {
        let mut qp = context.queue_pair(&pd, &cq).shared_receives(&srq).build()?;
        qp.prepare(&Local::default())?;
        qp.connect_to_self()?;
        qp.post_send_inline(100, text.as_bytes())?;
        println!("srq     {}", shown(&received(&mut cq)?));
        connected.push(qp);
    }
    Ok(())
}
// ANCHOR_END: srq

// ANCHOR: cm
fn by_address(device: &Device) -> Outcome {
    let ip = *device.addresses()?.first().ok_or("the device has no address")?;
    let listener =
        Listener::builder(SocketAddr::new(ip, 0)).listen_on(EventChannel::of(device)?)?;
    let at = listener.local_addr()?.ok_or("a listener has an address")?;
    let server = std::thread::spawn(move || -> Outcome {
        let request = listener.next(PATIENCE)?;
        let context = request.device()?.open()?;
        let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(256)?);
        let mut qp = context.queue_pair(&pd, &cq).build()?;
        request.init(&mut qp)?;
        qp.post_recv(0, pd.slab(ROOM, 1)?.take().ok_or("the slab is new")?)?;
        let mut connection = request.accept(qp, &Param::default())?;
        println!("cm      {}", shown(&received(&mut cq)?));
        connection.is_closed(PATIENCE)?;
        Ok(())
    });

    let route = Connector::new(at).limit(PATIENCE).resolve_on(EventChannel::of(device)?)?;
    let context = route.device()?.open()?;
    let (pd, mut cq) = (context.alloc_pd()?, context.create_cq(256)?);
    let qp = context.queue_pair(&pd, &cq).build()?;
    let mut connection = route.connect(qp, &Param::default())?;
    connection.queue_pair().post_send_inline(100, b"connected by address")?;
    cq.wait(PATIENCE)?.result?;
    connection.disconnect(PATIENCE)?;
    server.join().map_err(|_| "the server panicked")?
}
// ANCHOR_END: cm

fn main() -> Outcome {
    let device = uverbs::device_or_softhca()?;
    let context = device.open()?;
    events(&context)?;
    datagram(&context)?;
    shared_receives(&context)?;
    by_address(&device)
}
