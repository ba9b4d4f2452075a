//! Cost of registration: memory registered once, at its first use and kept (a cache by hand), for
//! each WRITE, or never, because the bytes are copied to registered memory. Last, memory is
//! registered once for this side alone, and a work request makes a new key for each WRITE: such a
//! key can be told to a peer, and opens one buffer for as long as wanted.
//!
//! `cargo run --release --example registration`

#[path = "../common/mod.rs"]
mod common;
mod program;

use std::collections::HashMap;
use std::time::Instant;

use common::{End, Outcome, Table, connect, open_to_all};
use program::{Program, whole};
use uverbs::Context;
use uverbs::attr::{QpType, SendOpSet};

/// The program's buffers, and how many WRITEs it makes from them in turn.
const BUFFERS: usize = 8;
const COUNT: usize = 32;
const SIZES: [usize; 3] = [4 << 10, 32 << 10, 256 << 10];

/// Writes one of the buffers to the server.
type Way = fn(&mut Program, usize) -> Outcome;

const WAYS: [(&str, Way); 5] = [
    ("once", |program, number| program.write(whole(&program.once[number]), None)),
    ("cached", |program, number| {
        if !program.cache.contains_key(&number) {
            let region = program.register(number)?;
            program.cache.insert(number, region);
        }
        program.write(whole(&program.cache[&number]), None)
    }),
    ("copied", |program, number| {
        let mut frame = program.copy.take().ok_or("it came back each time")?;
        frame.copy_from_slice(&program.buffers[number]);
        program.client.qp.post_write(1, frame, program.to)?;
        let done = program.client.done()?;
        done.result?;
        program.copy = done.frame;
        Ok(())
    }),
    ("rekeyed", |program, number| {
        let key = program.key.as_ref().ok_or("the device has no indirect keys")?.rkey();
        program.write(whole(&program.once[number]), Some(key))
    }),
    ("each time", |program, number| {
        let region = program.register(number)?;
        program.write(whole(&region), None)?;
        Ok(region.deregister().map_err(|refused| refused.error)?)
    }),
];

/// A client whose work requests may change keys.
fn client(context: &Context) -> Outcome<End> {
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(256)?;
    let ops = SendOpSet::of(QpType::Rc) | SendOpSet::REKEY;
    let qp = context.queue_pair(&pd, &cq).send_ops(ops).build()?;
    Ok(End { qp, cq, pd })
}

fn main() -> Outcome {
    let context = uverbs::device_or_softhca()?.open()?;
    let mut table = Table::new("us a WRITE | once | cached | copied | rekeyed | each time");
    let mut counts = Table::new("of 32 WRITEs | registrations while the clock ran");
    for size in SIZES {
        let (mut client, mut server) = (client(&context)?, End::new(&context)?);
        connect(&mut client.qp, &mut server.qp, &open_to_all())?;
        let memory = server.pd.expose(size, open_to_all().access)?;
        let copy = client.pd.slab(size, 1)?.take();
        let buffers = (0..BUFFERS).map(|number| vec![number as u8 + 1; size]).collect();
        let (to, once, cache) = (memory.remote(0), Vec::new(), HashMap::new());
        let key = context.alloc_indirect_key(&client.pd, 1).ok();
        let mut program = Program { client, to, key, once, cache, copy, buffers, registered: 0 };
        for number in 0..BUFFERS {
            let region = program.register(number)?;
            program.once.push(region);
        }
        let mut row = vec![format!("{} KiB", size >> 10)];
        for (name, way) in WAYS {
            if name == "rekeyed" && program.key.is_none() {
                row.push("-".to_owned());
                continue;
            }
            program.registered = 0;
            let start = Instant::now();
            (0..COUNT).try_for_each(|count| way(&mut program, count % BUFFERS))?;
            row.push(format!("{:.1}", start.elapsed().as_secs_f64() * 1e6 / COUNT as f64));
            let mut there = vec![0; size];
            memory.read(0, &mut there)?;
            assert_eq!(there, program.buffers[(COUNT - 1) % BUFFERS], "{name}");
            if size == SIZES[0] {
                counts.row(&[&name, &program.registered]);
            }
        }
        table.line(row);
    }
    table.print();
    counts.print();
    Ok(())
}
