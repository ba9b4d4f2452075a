//! `cargo bench --bench entries`: time to poll a completion, and bytes that the device writes for
//! it to the completion queue: whole entries, compressed ones, and inline ones, which carry the
//! message.
//!
//! The device is a software HCA that works between two measurements, on the same thread: its writes
//! are in the processor's cache. The bus, which shorter entries relieve, is not measured.

use std::time::Instant;

use uverbs::softhca::SoftHca;
use uverbs::{CompletionQueue, Context, Device, Frame, ProtectionDomain, QueuePair, Slab};

/// Completions at once.
const COUNT: u64 = 64;
const ROUNDS: usize = 3000;
/// Bytes of a message.
const LEN: usize = 16;

#[derive(Clone, Copy)]
enum Kind {
    Whole,
    Compressed,
    Scattered,
}

struct Bench {
    hca: SoftHca,
    qp: QueuePair,
    sends: CompletionQueue,
    receives: CompletionQueue,
    slab: Slab,
    _pd: ProtectionDomain,
    _context: Context,
}

impl Bench {
    fn new(kind: Kind) -> Result<Self, Box<dyn std::error::Error>> {
        let hca = SoftHca::builder().stepped().build()?;
        let context = Device::from(hca.clone()).open()?;
        let pd = context.alloc_pd()?;
        let sends = context.create_cq(256)?;
        let receives = context.completion_queue(256);
        let receives = match kind {
            Kind::Compressed => receives.compressed().build()?,
            Kind::Whole | Kind::Scattered => receives.build()?,
        };
        let qp = context.queue_pair(&pd, &sends).recv_cq(&receives);
        let mut qp = match kind {
            Kind::Scattered => qp.scatter_to_cqe().build()?,
            Kind::Whole | Kind::Compressed => qp.build()?,
        };
        qp.prepare(&uverbs::Local::default())?;
        qp.connect_to_self()?;
        let slab = pd.slab(64, COUNT as usize)?;
        Ok(Self { hca, qp, sends, receives, slab, _pd: pd, _context: context })
    }

    /// Nanoseconds that polling took.
    fn round(&mut self, frames: &mut Vec<Frame>) -> Result<f64, Box<dyn std::error::Error>> {
        let mut batch = self.qp.recv_batch();
        for id in 0..COUNT {
            let frame = frames.pop().or_else(|| self.slab.take()).ok_or("no frame")?;
            batch.post(id, frame)?;
        }
        batch.ring();
        let mut batch = self.qp.batch();
        for id in 0..COUNT {
            batch.send_inline(id, &[7; LEN])?;
        }
        batch.ring();
        self.hca.step_until_idle(1000);
        self.sends.poll_with(COUNT as usize, |_| ());
        let began = Instant::now();
        let count = self.receives.poll_with(COUNT as usize, |mut done| {
            frames.extend(done.take_frame());
        });
        let nanoseconds = began.elapsed().as_nanos() as f64;
        if count as u64 == COUNT { Ok(nanoseconds) } else { Err("completions are missing".into()) }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:12} {:>14} {:>14}", "entries", "ns, the least", "bytes written");
    for (name, kind) in
        [("whole", Kind::Whole), ("compressed", Kind::Compressed), ("scattered", Kind::Scattered)]
    {
        let mut bench = Bench::new(kind)?;
        let mut frames = Vec::new();
        let mut least = f64::MAX;
        for _ in 0..ROUNDS {
            least = least.min(bench.round(&mut frames)?);
        }
        let all = COUNT as f64 * ROUNDS as f64;
        // The sends' are whole, of 64 bytes each.
        let bytes = bench.hca.stats().cqe_bytes as f64 / all - 64.0;
        println!("{name:12} {:14.1} {bytes:14.1}", least / COUNT as f64);
    }
    Ok(())
}
