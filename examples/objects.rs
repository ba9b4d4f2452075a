//! Makes and tears down every object. The second table does what each object is there to prevent,
//! and shows if the library or the device refuses.
//!
//! `cargo run --example objects`
#![allow(unsafe_code, reason = "goes around the library, to see the device refuse")]

mod common;

use common::{Outcome, Table, connected, ending, open_to_all};
use uverbs::raw::{Data, Sge};
use uverbs::{AccessFlags, Context, Error, ExposedMemory, Local, Remote};
use uverbs_core::provider::ContextOps;

fn main() -> Outcome {
    let context = uverbs::device_or_softhca()?.open()?;
    made_and_torn_down(&context)?;

    let mut table = Table::new("tried | refused by | with");
    // Memory of another protection domain: the library looks at the frame, the device at the key.
    let [mut client, server] = connected(&context, &open_to_all())?;
    let frame = server.frame(b"of the server's domain")?;
    let refused = client.qp.post_send(1, frame).expect_err("the frame is of another domain");
    table.row(&[&"SEND another domain's frame", &"library", &refused]);
    let memory = server.pd.expose(64, AccessFlags::empty())?;
    let Remote { addr, rkey: lkey } = memory.remote(0);
    let mut batch = client.qp.batch();
    // SAFETY: the memory stays registered, and the program does not access it.
    unsafe { batch.raw().send(1, Data::One(Sge { addr, len: 8, lkey })) }?;
    batch.ring();
    table.row(&[&"SEND another domain's region", &"device", &ending(&client.done()?)]);

    // Each of these writes eight bytes to the server, and all but the first break one rule.
    type Aim = fn(&ExposedMemory, &ExposedMemory) -> Remote;
    let right: Aim = |memory, _| memory.remote(0);
    let wrong_key: Aim = |memory, _| Remote { rkey: !memory.remote(0).rkey, ..memory.remote(0) };
    let other_domain: Aim = |_, clients| clients.remote(0);
    let over_the_end: Aim = |memory, _| memory.remote(64 - 4);
    let (all, none) = (open_to_all(), Local { access: AccessFlags::empty(), ..open_to_all() });
    let (read, write) = (AccessFlags::REMOTE_READ, AccessFlags::REMOTE_WRITE);
    for (tried, local, access, aim) in [
        ("WRITE where all is right", &all, write, right),
        ("WRITE with a wrong key", &all, write, wrong_key),
        ("WRITE another domain's region", &all, write, other_domain),
        ("WRITE over the end", &all, write, over_the_end),
        ("WRITE to a region for READ", &all, read, right),
        ("WRITE, queue pair grants none", &none, write, right),
    ] {
        let [mut client, server] = connected(&context, local)?;
        let memory = server.pd.expose(64, access)?;
        let other = client.pd.expose(64, write)?;
        client.qp.post_write_inline(1, &[0xff; 8], aim(&memory, &other))?;
        let done = client.done()?;
        let written = memory.load(0)? == u64::MAX;
        assert_eq!(done.result.is_ok(), written, "what is refused writes nothing");
        table.row(&[&tried, &(if written { "nobody" } else { "peer" }), &ending(&done)]);
    }
    table.print();
    Ok(())
}

/// Makes each object, asks the kernel to destroy it while it is used, then ends them in order.
fn made_and_torn_down(context: &Context) -> Outcome {
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(256)?;
    let mut qp = context.queue_pair(&pd, &cq).ud().build()?;
    let itself = qp.bring_up(&Local::default())?;
    let way = qp.destination(&itself)?;
    let page = Box::leak(vec![0u8; 4096].into_boxed_slice()).as_mut_ptr();
    // SAFETY: the memory is never freed, and nothing refers to it.
    let region = unsafe { pd.register(page, 4096, AccessFlags::LOCAL_WRITE) }?;

    // The library keeps used objects alive, so these two ask the kernel directly.
    let kernel = context.provider().core().uverbs();
    // SAFETY: queue pair, handle and region use it, so the kernel refuses.
    let early_pd = unsafe { kernel.dealloc_pd(pd.handle()) };
    // SAFETY: the queue pair uses it, so the kernel refuses.
    let early_cq = unsafe { kernel.destroy_cq(cq.handle()) };
    let errno = |error: Option<Error>| match error.as_ref().and_then(Error::errno) {
        Some(errno) => format!("{errno:?}"),
        None => "allowed".to_owned(),
    };
    let (early_pd, early_cq) = (errno(early_pd.err()), errno(early_cq.err()));
    let mut table = Table::new("object | made from | what it is for | destroyed too early");
    for (object, from, purpose, early) in [
        ("context", "device", "the open device: all below ends with it", "-"),
        ("protection domain", "context", "which queue pairs may use which memory", &early_pd),
        ("completion queue", "context", "tells which work requests are done", &early_cq),
        ("queue pair", "both of these", "sends and receives, with what a peer may do", "-"),
        ("address handle", "domain", "the way to a peer's port, for datagrams", "-"),
        ("memory region", "domain", "memory that the device may use, by keys", "-"),
    ] {
        table.row(&[&object, &from, &purpose, &early]);
    }
    table.print();

    drop(way);
    println!("torn down: address handle,");
    region.deregister().map_err(|refused| refused.error)?;
    println!("           memory region,");
    let gone = qp.destroy().map_err(|refused| refused.error)?;
    println!("           queue pair {:#x},", gone.qpn());
    drop(cq);
    drop(pd);
    println!("           completion queue and protection domain\n");
    Ok(())
}
