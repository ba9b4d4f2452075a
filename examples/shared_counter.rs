//! A counter in the server's memory that four clients add to, in four ways: by fetch-and-add, by
//! compare-and-swap, behind a lock, and by READ and WRITE, which lose additions.
//!
//! `cargo run --example shared_counter`

mod common;

use std::thread;

use common::{End, Outcome, Table, connect, open_to_all};
use uverbs::{Frame, QueuePair, Remote};

const CLIENTS: u64 = 4;
/// Number of increments by each client, one by one.
const EACH: u64 = 250;

/// The lock is the second word of the server's memory: 0 is free, else the number of its holder.
struct Client {
    end: End,
    counter: Remote,
    lock: Remote,
    number: u64,
    frame: Option<Frame>,
    operations: u64,
}

/// Adds one.
type Way = fn(&mut Client) -> Outcome;

const WAYS: [(&str, bool, Way); 4] = [
    ("fetch and add", true, |client| {
        let counter = client.counter;
        client.ask(|qp, frame| Ok(qp.post_fetch_add(1, frame, counter, 1)?)).map(drop)
    }),
    ("compare and swap", true, |client| {
        let mut old = 0;
        // The swap succeeds if the counter is `old`; otherwise it returns the counter's value.
        while let Some(now) = client.swap(client.counter, old, old + 1)? {
            old = now;
        }
        Ok(())
    }),
    ("under a lock", true, |client| {
        while client.swap(client.lock, 0, client.number)?.is_some() {
            thread::yield_now();
        }
        client.read_then_write()?;
        client.write(client.lock, 0)
    }),
    ("READ, then WRITE", false, Client::read_then_write),
];

impl Client {
    /// Posts an operation that returns a word, and waits for it.
    fn ask(&mut self, post: impl Fn(&mut QueuePair, Frame) -> uverbs::Result<()>) -> Outcome<u64> {
        self.operations += 1;
        post(&mut self.end.qp, self.frame.take().ok_or("it came back each time")?)?;
        let done = self.end.done()?;
        done.result?;
        self.frame = done.frame;
        let word = self.frame.as_ref().and_then(|frame| frame.first_chunk());
        Ok(u64::from_ne_bytes(*word.ok_or("an answer has eight bytes")?))
    }

    /// Compares and swaps. Returns the value found if it differs from `compare`.
    fn swap(&mut self, at: Remote, compare: u64, swap: u64) -> Outcome<Option<u64>> {
        let found = self.ask(|qp, frame| Ok(qp.post_compare_swap(1, frame, at, compare, swap)?))?;
        Ok(Some(found).filter(|found| *found != compare))
    }

    fn read_then_write(&mut self) -> Outcome {
        let counter = self.counter;
        let old = self.ask(|qp, frame| Ok(qp.post_read(1, frame, counter)?))?;
        self.write(counter, old + 1)
    }

    fn write(&mut self, to: Remote, value: u64) -> Outcome {
        self.operations += 1;
        self.end.qp.post_write_inline(1, &value.to_ne_bytes(), to)?;
        Ok(self.end.done()?.result.map(drop)?)
    }
}

fn main() -> Outcome {
    let context = uverbs::device_or_softhca()?.open()?;
    let mut table = Table::new("way | additions | lost | operations an addition");
    for (name, exact, way) in WAYS {
        // One domain for all queue pairs of the server, so that each reaches the one memory.
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(256)?);
        let memory = pd.expose(16, open_to_all().access)?;
        let (mut servers, mut clients) = (Vec::new(), Vec::new());
        for number in 1..=CLIENTS {
            let mut server = context.queue_pair(&pd, &cq).build()?;
            let mut end = End::new(&context)?;
            connect(&mut end.qp, &mut server, &open_to_all())?;
            servers.push(server);
            let (counter, lock) = (memory.remote(0), memory.remote(8));
            let frame = end.pd.slab(8, 1)?.take();
            let mut client = Client { end, counter, lock, number, frame, operations: 0 };
            clients.push(thread::spawn(move || -> Outcome<u64> {
                (0..EACH).try_for_each(|_| way(&mut client))?;
                Ok(client.operations)
            }));
        }
        let mut operations = 0;
        for client in clients {
            operations += client.join().map_err(|_| "a client panicked")??;
        }
        let (added, counted) = (CLIENTS * EACH, memory.load(0)?);
        assert!(counted == added || !exact, "{name}: {counted}");
        let share = |part| part as f64 / added as f64;
        let lost = if exact { "none" } else { &format!("{:.1} %", 100.0 * share(added - counted)) };
        table.row(&[&name, &added, &lost, &format!("{:.2}", share(operations))]);
    }
    table.print();
    Ok(())
}
