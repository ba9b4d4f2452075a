//! Cost of a WRITE by size and by way: one after the other, copied into the work request (inline),
//! signaled now and then, or chained behind one doorbell.
//!
//! `cargo run --release --example write_sizes`

mod common;

use std::time::Instant;

use common::{End, Outcome, Table, connected, open_to_all};
use uverbs::memory::SharedFrame;
use uverbs::{PostError, Remote, Wr};

/// WRITEs of each measurement.
const COUNT: u64 = 256;
/// Maximum of outstanding WRITEs.
const WINDOW: u64 = 64;
const SIZES: [usize; 4] = [8, 64, 512, 4096];

/// How WRITEs are posted.
struct Way {
    name: &'static str,
    inline: bool,
    /// One WRITE in `signal` is signaled; its completion stands for those before it, too.
    signal: u64,
    /// Number of WRITEs behind one doorbell.
    chain: u64,
}

const WAYS: [Way; 4] = [
    Way { name: "each signaled", inline: false, signal: 1, chain: 1 },
    Way { name: "inline", inline: true, signal: 1, chain: 1 },
    Way { name: "1 of 16 signaled", inline: false, signal: 16, chain: 1 },
    Way { name: "chained by 16", inline: false, signal: 16, chain: 16 },
];

struct Found {
    microseconds: f64,
    doorbells: u64,
    completions: u64,
}

fn main() -> Outcome {
    let context = uverbs::device_or_softhca()?.open()?;
    let [mut client, server] = connected(&context, &open_to_all())?;
    let memory = server.pd.expose(4096, open_to_all().access)?;

    let mut table = Table::new(&format!("us a WRITE | {}", WAYS.map(|way| way.name).join(" | ")));
    let mut counts = Table::new("of 256 WRITEs | doorbells | completions");
    for (round, size) in SIZES.into_iter().enumerate() {
        let mut row = vec![format!("{size} bytes")];
        for way in &WAYS {
            let bytes: Vec<u8> = (0..size).map(|index| (index + round) as u8).collect();
            memory.write(0, &vec![0; size])?;
            let frame = client.frame(&bytes)?.share();
            let mut fastest: Option<Found> = None;
            for _ in 0..3 {
                let found = measure(&mut client, way, &frame, &bytes, memory.remote(0))?;
                let faster = found.filter(|found| {
                    fastest.as_ref().is_none_or(|best| found.microseconds < best.microseconds)
                });
                fastest = faster.or(fastest);
            }
            let Some(found) = fastest else {
                row.push("too long".to_owned());
                continue;
            };
            row.push(format!("{:.2}", found.microseconds));
            let mut there = vec![0; size];
            memory.read(0, &mut there)?;
            assert_eq!(there, bytes, "{size} bytes, {}", way.name);
            if round == 0 {
                counts.row(&[&way.name, &found.doorbells, &found.completions]);
            }
        }
        table.line(row);
    }
    table.print();
    counts.print();
    println!("inline data: {} bytes at most", client.qp.cap().max_inline_data);
    Ok(())
}

/// Posts [`COUNT`] WRITEs, and waits for the last. Returns `None` if they are too long to be
/// inline.
fn measure(
    client: &mut End,
    way: &Way,
    frame: &SharedFrame,
    bytes: &[u8],
    to: Remote,
) -> Outcome<Option<Found>> {
    let [mut posted, mut done, mut doorbells, mut completions] = [0; 4];
    let start = Instant::now();
    while done < COUNT {
        while posted < COUNT && posted - done + way.chain <= WINDOW {
            let mut batch = client.qp.batch();
            for _ in 0..way.chain {
                posted += 1;
                let wr = Wr::new(posted);
                let wr = if posted % way.signal == 0 { wr } else { wr.unsignaled() };
                let result = match way.inline {
                    true => batch.write_inline(wr, bytes, to),
                    false => batch.write(wr, frame.clone(), to).map_err(PostError::from),
                };
                if result == Err(PostError::InlineTooLong) {
                    return Ok(None);
                }
                result?;
            }
            batch.ring();
            doorbells += 1;
        }
        let completion = client.done()?;
        completion.result?;
        done = completion.id;
        completions += 1;
    }
    let microseconds = start.elapsed().as_secs_f64() * 1e6 / COUNT as f64;
    Ok(Some(Found { microseconds, doorbells, completions }))
}
