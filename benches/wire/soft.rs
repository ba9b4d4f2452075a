//! A software HCA in each process, or a device of the machine for both: SENDs for small messages,
//! RDMA WRITEs and READs for large ones.

use std::time::{Duration, Instant};

use uverbs::{
    AccessFlags, CompletionQueue, Endpoint, Frame, Local, ProtectionDomain, QueuePair, Remote,
};

use crate::{Fallible, Figures, MEMORY, Peer, Plan, SIZES, SMALL, heard, processor};

/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(20);
/// Messages under way in the rate's case, and work requests per doorbell.
const WINDOW: usize = 64;
const CHAIN: usize = 16;
/// Bytes of WRITEs, or of READs, under way.
const UNDER_WAY: usize = MEMORY;

struct Side {
    qp: QueuePair,
    sends: CompletionQueue,
    receives: CompletionQueue,
    pd: ProtectionDomain,
}

/// The device of a way. Where one of the machine's is measured, too, that may have UDP port 4791.
pub(crate) fn device(way: &str, serves: bool, beside: Option<&str>) -> String {
    match (way, beside) {
        ("shm" | "udp", None) => format!("softhca@loopback,{way}"),
        ("shm" | "udp", Some(_)) => {
            format!("softhca@127.0.0.{}:4792,{way}", if serves { 2 } else { 3 })
        }
        (name, _) => name.to_owned(),
    }
}

impl Side {
    fn new(device: &str) -> Fallible<Self> {
        let context = uverbs::device(device)?.open()?;
        let pd = context.alloc_pd()?;
        let (sends, receives) = (context.create_cq(1024)?, context.create_cq(256)?);
        let qp = context.queue_pair(&pd, &sends).recv_cq(&receives);
        let qp = qp.max_send_wr(1024).max_inline_data(SMALL as u32).build()?;
        Ok(Self { qp, sends, receives, pd })
    }

    fn frames(&self, size: usize, count: usize) -> Fallible<Vec<Frame>> {
        let slab = self.pd.slab(size, count)?;
        let mut frames = Vec::with_capacity(count);
        while let Some(mut frame) = slab.take() {
            frame.set_len(size);
            frames.push(frame);
        }
        Ok(frames)
    }

    fn expect(&mut self, count: usize) -> Fallible<()> {
        for frame in self.frames(SMALL, count)? {
            self.qp.post_recv(0, frame)?;
        }
        Ok(())
    }

    /// Takes one message, and posts its receive again.
    fn receive(&mut self) -> Fallible<()> {
        let done = self.receives.wait(LIMIT)?;
        done.result?;
        let frame = done.frame.ok_or("a receive without its frame")?;
        Ok(self.qp.post_recv(0, frame)?)
    }

    fn send(&mut self) -> Fallible<()> {
        self.qp.post_send_inline(1, &[5; SMALL])?;
        Ok(())
    }

    fn sent(&mut self) -> Fallible<Option<Frame>> {
        let done = self.sends.wait(LIMIT)?;
        done.result?;
        Ok(done.frame)
    }
}

pub(crate) fn serve(device: &str, plan: &Plan) -> Fallible<()> {
    let mut side = Side::new(device)?;
    let access = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
    let memory = side.pd.expose(MEMORY, access)?;
    let Remote { addr, rkey } = memory.remote(0);
    let here = side.qp.prepare(&Local { access, ..Local::default() })?;
    side.expect(2 * WINDOW)?;
    println!("{addr} {rkey} {here}");
    side.qp.connect(&heard()?.parse()?)?;
    println!("ready");
    for _ in 0..plan.all_trips() {
        side.receive()?;
        side.send()?;
        side.sent()?;
    }
    for _ in 0..plan.messages {
        side.receive()?;
    }
    // The last message is there; the client's clock stops now.
    side.send()?;
    side.sent()?;
    // WRITEs and READs need no action of this side.
    let before = processor()?;
    heard()?;
    println!("{}", processor()? - before);
    heard()?;
    Ok(())
}

pub(crate) fn run(device: &str, peer: &mut Peer, plan: &Plan) -> Fallible<Figures> {
    let mut side = Side::new(device)?;
    let (first, endpoint) = {
        let line = peer.hear()?;
        let mut words = line.splitn(3, ' ');
        let mut word = || words.next().ok_or("the other process said too little");
        let remote = Remote { addr: word()?.parse()?, rkey: word()?.parse()? };
        (remote, word()?.parse::<Endpoint>()?)
    };
    let here = side.qp.prepare(&Local::default())?;
    side.expect(4)?;
    peer.say(&here.to_string())?;
    peer.hear()?;
    side.qp.connect(&endpoint)?;
    let mut figures = Figures::of_trips(plan, || {
        let start = Instant::now();
        side.send()?;
        side.receive()?;
        let time = start.elapsed() / 2;
        side.sent()?;
        Ok(time)
    })?;
    figures.rate = rate(&mut side, plan.messages)?;
    let before = processor()?;
    for (bandwidth, size) in figures.bandwidth.iter_mut().zip(SIZES) {
        *bandwidth = moved(&mut side, &first, (size, plan.bytes), true)?;
    }
    let here = processor()? - before;
    peer.say("written")?;
    figures.processor(here + peer.hear()?.parse::<f64>()?, plan);
    for (bandwidth, size) in figures.reads.iter_mut().zip(SIZES) {
        *bandwidth = moved(&mut side, &first, (size, plan.bytes), false)?;
    }
    peer.say("done")?;
    Ok(figures)
}

/// Messages per second, in chains, until the other side says that it has them all.
fn rate(side: &mut Side, messages: usize) -> Fallible<f64> {
    let start = Instant::now();
    let (mut posted, mut under_way) = (0, 0);
    while posted < messages {
        let chain = CHAIN.min(WINDOW - under_way).min(messages - posted);
        let mut batch = side.qp.batch();
        for _ in 0..chain {
            batch.send_inline(1, &[5; SMALL])?;
        }
        batch.ring();
        (posted, under_way) = (posted + chain, under_way + chain);
        while under_way == WINDOW || (posted == messages && under_way > 0) {
            side.sent()?;
            under_way -= 1;
            let mut more = 0;
            side.sends.poll_with(WINDOW, |_| more += 1);
            under_way -= more;
        }
    }
    side.receive()?;
    Ok(messages as f64 / start.elapsed().as_secs_f64())
}

/// Bytes per second of WRITEs, or READs, of one size, to or from one place after the other.
fn moved(
    side: &mut Side,
    first: &Remote,
    (size, bytes): (usize, usize),
    writes: bool,
) -> Fallible<f64> {
    let depth = (UNDER_WAY / size).min(256);
    let mut free = side.frames(size, depth)?;
    for frame in &mut free {
        frame.fill(6);
    }
    let count = bytes / size;
    let start = Instant::now();
    let mut posted = 0;
    while posted < count || free.len() < depth {
        let mut batch = side.qp.batch();
        while let Some(frame) = free.pop_if(|_| posted < count) {
            let addr = first.addr + (posted * size % MEMORY) as u64;
            let remote = Remote { addr, ..*first };
            match writes {
                true => batch.write(1, frame, remote)?,
                false => batch.read(1, frame, remote)?,
            }
            posted += 1;
        }
        batch.ring();
        free.extend(side.sent()?);
        side.sends.poll_with(depth, |mut done| free.extend(done.take_frame()));
    }
    Ok((count * size) as f64 / start.elapsed().as_secs_f64())
}
