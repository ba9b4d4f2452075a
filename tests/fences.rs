//! Every fence is needed and none is missing: traffic over a memory that keeps only the requested
//! orders (docs/FENCES.md), with all fences, and with each one removed.
#![allow(
    unsafe_code,
    reason = "posts by address, so that no reference to what the device writes exists"
)]

use std::collections::BTreeMap;
use std::time::Duration;

use uverbs::provider::{CqOps as _, SendOps as _};
use uverbs::raw::{Data, SendOp, Sge};
use uverbs::softhca::SoftHca;
use uverbs::unstable::DoorbellMemory;
use uverbs::unstable::adversary::{Adversary, Order};
use uverbs::{
    AccessFlags, Completed, CompletionQueue, Context, Device, DoorbellMode, ExposedMemory, Local,
    Mlx5, QueuePair, Remote, RnrTimer, Wr,
};

/// Seeds for the whole, for each type of doorbell page.
const SEEDS: u64 = 200;
/// Seeds without one order, for each type of doorbell page.
const SEEDS_WITHOUT: u64 = 30;
/// Phases of a run: enough to go around each ring a few times.
const PHASES: usize = 16;
/// Entries of the completion queues, and receives posted at most.
const ENTRIES: usize = 7;
/// Bytes of a message at most, and of inline data.
const LONGEST: usize = 120;
const INLINE: usize = 64;
/// Empty polls after which work counts as lost.
const PATIENCE: usize = 300;

/// Offsets in each side's memory of places of [`PLACE`] bytes, one for each work request of a
/// phase.
const PLACE: usize = 128;
const SOURCE: usize = 0;
const TARGET: usize = 0x400;
const RESULT: usize = 0x800;
const RECEIVED: usize = 0xc00;
const MEMORY: usize = 0x1000;

/// How it showed that an order was missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    /// The device found a doorbell ahead of its record.
    Complaint,
    /// Work was never done.
    Lost,
    /// A completion that failed, came out of turn, or told something wrong.
    Completion,
    /// Bytes that are not those sent.
    Contents,
    /// A load of a completion could have come after its place was given back.
    LateLoad,
    /// A post found the queue full, though it must have room.
    Refused,
}

/// Choices of the program's, as the adversary has its own.
struct Choices(u64);

impl Choices {
    fn below(&mut self, limit: usize) -> usize {
        // Xorshift (Marsaglia 2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

struct Side {
    qp: QueuePair<Mlx5>,
    sends: CompletionQueue<Mlx5>,
    receives: CompletionQueue<Mlx5>,
    memory: ExposedMemory,
    posted: u64,
}

impl Side {
    fn new(context: &Context<Mlx5>, way: Way) -> Self {
        let pd = context.alloc_pd().expect("alloc_pd");
        let sends = context.create_cq(ENTRIES as u32).expect("create_cq");
        let receives = context.create_cq(ENTRIES as u32).expect("create_cq");
        let builder = context.queue_pair(&pd, &sends).recv_cq(&receives);
        let builder = builder.max_send_wr(ENTRIES as u32).max_recv_wr(ENTRIES as u32);
        let builder = builder.max_send_sge(2).max_recv_sge(2).max_inline_data(INLINE as u32);
        let mut qp = builder.doorbell(way.doorbell()).build().expect("create_qp");
        if way == Way::Staying {
            // SAFETY: the queue is left as it is otherwise.
            let sq = unsafe { qp.send_queue().provider_mut() };
            // SAFETY: the test's one thread rings.
            unsafe { sq.stay() };
        }
        let access =
            AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let memory = pd.expose(MEMORY, access).expect("expose");
        Self { qp, sends, receives, memory, posted: 0 }
    }

    /// Puts this side's memory that the device shares under the adversary's control.
    fn hand_over(&mut self, adversary: &Adversary, memory: DoorbellMemory) {
        let sq = self.qp.send_queue().provider().raw_parts();
        let rq = self.qp.recv_queue().provider().raw_parts();
        adversary.doorbell_page(sq.uar, memory);
        let cqs = [&self.sends, &self.receives].map(|cq| cq.provider().raw_parts());
        let exposed = std::ptr::with_exposed_provenance_mut(self.memory.addr() as usize);
        let [one, other] = cqs.map(|cq| (cq.buf, cq.bytes));
        for (at, len) in [(sq.buf, sq.bytes), (rq.buf, rq.bytes), one, other, (exposed, MEMORY)] {
            // SAFETY: the queues and the memory outlive the adversary (`Run` drops it first), and
            // are reached by raw pointers and atomics only.
            unsafe { adversary.watch(at, len) };
        }
    }

    /// How often its rings went around.
    fn turns(&mut self) -> [usize; 3] {
        let sq = self.qp.send_queue().provider().raw_parts();
        let rq = self.qp.recv_queue().provider().raw_parts();
        let cq = self.sends.provider().raw_parts();
        [
            sq.producer as usize * sq.stride / sq.bytes,
            rq.producer as usize * rq.stride / rq.bytes,
            cq.consumer as usize * cq.stride / cq.bytes,
        ]
    }

    fn sge(&self, at: usize, len: usize) -> Sge {
        self.memory.sge(at, len as u32)
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        self.memory.write(at, bytes).expect("in range");
    }

    /// True if exactly these bytes were written at `at`.
    fn holds(&self, at: usize, bytes: &[u8]) -> bool {
        let mut found = [0; LONGEST + 1];
        let found = &mut found[..bytes.len() + 1];
        self.memory.read(at, found).expect("in range");
        found.split_last() == Some((&UNTOUCHED, bytes))
    }
}

/// Byte that fills memory before the device writes.
const UNTOUCHED: u8 = 0xee;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
    FetchAdd,
    CompareSwap,
}

/// A work request and its expected completion.
struct Request {
    id: u64,
    kind: Kind,
    signaled: bool,
    place: usize,
    bytes: Vec<u8>,
    imm: u32,
    /// An atomic's word: before, and after.
    words: (u64, u64),
}

impl Request {
    fn takes_receive(&self) -> bool {
        matches!(self.kind, Kind::Send | Kind::SendImm | Kind::WriteImm)
    }

    fn completed(&self) -> (Completed, u32) {
        match self.kind {
            Kind::Send | Kind::SendImm => (Completed::Send, 0),
            Kind::Write | Kind::WriteImm => (Completed::Write, 0),
            Kind::Read => (Completed::Read, self.bytes.len() as u32),
            Kind::FetchAdd => (Completed::FetchAdd, 8),
            Kind::CompareSwap => (Completed::CompareSwap, 8),
        }
    }
}

/// One run over one seed.
struct Run {
    // First: it is dropped before the memory that it watches.
    adversary: Adversary,
    hca: SoftHca,
    sides: [Side; 2],
    choices: Choices,
}

impl Run {
    fn new(way: Way, without: Option<Order>, seed: u64) -> Self {
        let hca = SoftHca::builder().stepped().strict().build().expect("a software HCA");
        // One context, so that both queue pairs ring the same non-cached page.
        let context = Device::from(hca.clone()).open_as::<Mlx5>().expect("open");
        let mut sides = [Side::new(&context, way), Side::new(&context, way)];
        // The seed decides everything, so the initial values are fixed. The short RNR timer repeats
        // a SEND soon.
        let min_rnr_timer = RnrTimer::at_least(10);
        let access =
            AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let local = Local { psn: Some(0), min_rnr_timer, access, rnr_retry: 7, ..Local::default() };
        let ends = sides.each_mut().map(|side| side.qp.prepare(&local).expect("prepare"));
        let [one, other] = &mut sides;
        one.qp.connect(&ends[1]).expect("connect");
        other.qp.connect(&ends[0]).expect("connect");
        let device = hca.clone();
        let work = move || {
            device.step();
            device.advance(Duration::from_micros(2));
        };
        let adversary = match without {
            // SAFETY: all queues are this thread's, and work requests name memory by address that
            // only atomics reach.
            Some(order) => unsafe { Adversary::without(order, seed, work) },
            // SAFETY: as above.
            None => unsafe { Adversary::new(seed, work) },
        };
        let memory = match way.doorbell() {
            DoorbellMode::BlueFlame => DoorbellMemory::WriteCombining,
            _ => DoorbellMemory::NonCached,
        };
        sides.iter_mut().for_each(|side| side.hand_over(&adversary, memory));
        Self { adversary, hca, sides, choices: Choices(seed.wrapping_mul(2).wrapping_add(1)) }
    }

    /// How often the ring that went around least did so.
    fn all(mut self) -> Result<usize, Found> {
        for phase in 0..PHASES {
            self.phase(phase % 2)?;
        }
        Ok(self.sides.each_mut().map(Side::turns).as_flattened().iter().copied().min().unwrap_or(0))
    }

    /// Posts some batches of one side, with the other side's receives, without waiting; then takes
    /// all their completions.
    fn phase(&mut self, from: usize) -> Result<(), Found> {
        let mut requests: Vec<Request> = Vec::new();
        for _ in 0..1 + self.choices.below(4) {
            let room = ENTRIES - requests.len();
            let count = (1 + self.choices.below(3)).min(room);
            let batch: Vec<_> = (0..count)
                .map(|at| self.request(from, requests.len() + at, at + 1 == count))
                .collect();
            if count != 0 {
                let receives = requests.iter().filter(|it| it.takes_receive()).count();
                // The receives may be late: then the peer asks to be tried again, and takes one the
                // moment it is there.
                let late = self.choices.below(2) == 0;
                if late {
                    self.post(from, &batch)?;
                }
                self.receive(1 - from, receives, &batch)?;
                if !late {
                    self.post(from, &batch)?;
                }
            }
            requests.extend(batch);
        }
        let receives: Vec<_> = requests.iter().filter(|it| it.takes_receive()).collect();
        for (place, request) in receives.iter().enumerate() {
            self.check_received(1 - from, place, request)?;
        }
        for request in requests.iter().filter(|it| it.signaled) {
            let (completed, byte_len) = request.completed();
            let want = (request.id, completed, byte_len, None);
            self.wait(from, false, want)?;
        }
        for request in &requests {
            self.check_done(from, request)?;
        }
        match self.adversary.late_loads() {
            0 => Ok(()),
            _ => Err(Found::LateLoad),
        }
    }

    /// Thinks up a work request, and fills the places that it needs.
    fn request(&mut self, from: usize, number: usize, last: bool) -> Request {
        use Kind::{CompareSwap, FetchAdd, Read, Send, SendImm, Write, WriteImm};
        let kinds = [Send, SendImm, Write, WriteImm, Read, FetchAdd, CompareSwap];
        let kind = kinds[self.choices.below(kinds.len())];
        let [len, first, word] = [LONGEST, 256, 1 << 30].map(|limit| self.choices.below(limit));
        let bytes: Vec<u8> = (0..1 + len).map(|at| (first + at * 7) as u8).collect();
        let (ours, theirs) = (&self.sides[from], &self.sides[1 - from]);
        let place = number * PLACE;
        let before = word as u64;
        match kind {
            Read => {
                theirs.put(TARGET + place, &bytes);
                ours.put(RESULT + place, &[UNTOUCHED; LONGEST + 1]);
            }
            FetchAdd | CompareSwap => {
                theirs.put(TARGET + place, &before.to_ne_bytes());
                ours.put(RESULT + place, &[UNTOUCHED; 9]);
            }
            _ => {
                ours.put(SOURCE + place, &bytes);
                theirs.put(TARGET + place, &[UNTOUCHED; LONGEST + 1]);
            }
        }
        let after = if kind == FetchAdd { before + 3 } else { before ^ 0xffff };
        let id = self.sides[from].posted;
        self.sides[from].posted += 1;
        let signaled = last || self.choices.below(2) == 0;
        let words = (before, after);
        Request { id, kind, signaled, place, bytes, imm: word as u32, words }
    }

    /// Posts the receives that these work requests will take, behind `before` others.
    fn receive(&mut self, side: usize, before: usize, batch: &[Request]) -> Result<(), Found> {
        let side = &mut self.sides[side];
        let wanted = batch.iter().filter(|it| it.takes_receive()).count();
        let places = || (before..before + wanted).map(|number| RECEIVED + number * PLACE);
        let mut lists = Vec::new();
        for place in places() {
            side.put(place, &[UNTOUCHED; LONGEST + 1]);
            // In two pieces, as often as not.
            let cut = 16 * (place / PLACE % 2);
            lists.push([side.sge(place, cut), side.sge(place + cut, LONGEST + 1 - cut)]);
        }
        let mut receives = side.qp.recv_batch();
        for (place, list) in places().zip(&lists) {
            // SAFETY: the memory is registered while the side lives, and only atomic accesses reach
            // it.
            unsafe { receives.post_raw(place as u64, list) }.map_err(|_| Found::Refused)?;
        }
        receives.ring();
        Ok(())
    }

    fn post(&mut self, from: usize, requests: &[Request]) -> Result<(), Found> {
        let inline = self.choices.below(3) == 0;
        let cut = self.choices.below(LONGEST);
        let [one, other] = &mut self.sides;
        let (ours, theirs) = if from == 0 { (one, other) } else { (other, one) };
        let mut lists = Vec::new();
        for request in requests {
            let (area, len) = match request.kind {
                Kind::FetchAdd | Kind::CompareSwap => (RESULT, 8),
                Kind::Read => (RESULT, request.bytes.len()),
                _ => (SOURCE, request.bytes.len()),
            };
            let at = area + request.place;
            // An atomic has one piece.
            let cut = if len == 8 { len } else { cut.min(len) };
            lists.push([ours.sge(at, cut), ours.sge(at + cut, len - cut)]);
        }
        let mut batch = ours.qp.batch();
        for (request, list) in requests.iter().zip(&lists) {
            let to: Remote = theirs.memory.remote(TARGET + request.place);
            let (before, after) = request.words;
            let op = match request.kind {
                Kind::Send => SendOp::Send,
                Kind::SendImm => SendOp::SendImm(request.imm),
                Kind::Write => SendOp::Write(to),
                Kind::WriteImm => SendOp::WriteImm(to, request.imm),
                Kind::Read => SendOp::Read(to),
                Kind::FetchAdd => SendOp::FetchAdd { remote: to, add: after - before },
                Kind::CompareSwap => {
                    SendOp::CompareSwap { remote: to, compare: before, swap: after }
                }
            };
            let answered = matches!(request.kind, Kind::Read | Kind::FetchAdd | Kind::CompareSwap);
            let data = if inline && !answered && request.bytes.len() <= INLINE {
                Data::Inline(&request.bytes)
            } else {
                Data::List(list)
            };
            let wr = Wr::new(request.id);
            let wr = if request.signaled { wr } else { wr.unsignaled() };
            // SAFETY: as in `receive`.
            unsafe { batch.raw().post(wr, op, data) }.map_err(|_| Found::Refused)?;
        }
        batch.ring();
        Ok(())
    }

    fn check_received(
        &mut self,
        side: usize,
        place: usize,
        request: &Request,
    ) -> Result<(), Found> {
        let at = RECEIVED + place * PLACE;
        let into = request.kind != Kind::WriteImm;
        let completed = if into { Completed::Recv } else { Completed::RecvWriteImm };
        let imm = (request.kind != Kind::Send).then_some(request.imm);
        self.wait(side, true, (at as u64, completed, request.bytes.len() as u32, imm))?;
        let bytes = if into { &request.bytes[..] } else { &[] };
        // Received bytes are visible as soon as the completion is.
        if self.sides[side].holds(at, bytes) { Ok(()) } else { Err(Found::Contents) }
    }

    fn check_done(&mut self, from: usize, request: &Request) -> Result<(), Found> {
        let (ours, theirs) = (&self.sides[from], &self.sides[1 - from]);
        let Request { place, bytes, words, .. } = request;
        let holds = match request.kind {
            Kind::Send | Kind::SendImm => true,
            Kind::Write | Kind::WriteImm => theirs.holds(TARGET + place, bytes),
            Kind::Read => ours.holds(RESULT + place, bytes),
            Kind::FetchAdd | Kind::CompareSwap => {
                ours.holds(RESULT + place, &words.0.to_ne_bytes())
                    && theirs.memory.load(TARGET + place) == Ok(words.1)
            }
        };
        if holds { Ok(()) } else { Err(Found::Contents) }
    }

    /// Takes the next completion, which must match: number, operation, bytes, immediate data.
    fn wait(
        &mut self,
        side: usize,
        receives: bool,
        want: (u64, Completed, u32, Option<u32>),
    ) -> Result<(), Found> {
        for turn in 0..PATIENCE {
            let side = &mut self.sides[side];
            let cq = if receives { &mut side.receives } else { &mut side.sends };
            let qpn = side.qp.qpn();
            let mut seen = None;
            cq.poll_with(1, |completion| {
                let told = (completion.byte_len(), completion.immediate());
                let mine = completion.qpn() == qpn && completion.is_recv() == receives;
                seen = Some((mine, completion.id(), completion.result(), told));
            });
            if let Some((mine, id, result, (byte_len, imm))) = seen {
                let good = mine && Ok(want) == result.map(|done| (id, done, byte_len, imm));
                return if good { Ok(()) } else { Err(Found::Completion) };
            }
            if self.hca.stats().complaints.total() != 0 {
                return Err(Found::Complaint);
            }
            if cq_strays(&self.sides) != 0 {
                return Err(Found::Completion);
            }
            // At first the adversary has its way, then it has to come to an end.
            if turn > PATIENCE / 2 || self.choices.below(8) == 0 {
                self.adversary.settle();
                self.hca.step_until_idle(100);
            }
            self.hca.advance(Duration::from_micros(50));
        }
        Err(Found::Lost)
    }
}

/// Completions that belong to no queue pair.
fn cq_strays(sides: &[Side; 2]) -> u64 {
    let of = |side: &Side| side.sends.provider().strays() + side.receives.provider().strays();
    sides.iter().map(of).sum()
}

/// How a send queue rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    NonCached,
    /// A copied WQE is drained at once: the queue may go to another thread.
    BlueFlame,
    /// The queue stays on its thread, and leaves the drain to the next doorbell.
    Staying,
}

impl Way {
    const ALL: [Self; 3] = [Self::NonCached, Self::BlueFlame, Self::Staying];

    fn doorbell(self) -> DoorbellMode {
        match self {
            Self::NonCached => DoorbellMode::NonCached,
            Self::BlueFlame | Self::Staying => DoorbellMode::BlueFlame,
        }
    }
}

#[test]
fn with_every_order_kept_every_seed_passes() {
    for way in Way::ALL {
        let mut around = 0;
        for seed in 0..SEEDS {
            match Run::new(way, None, seed).all() {
                Ok(turns) => around += u64::from(turns > 0),
                Err(found) => panic!("{way:?}, seed {seed}: {found:?}"),
            }
        }
        assert!(around > SEEDS / 2, "all rings went around in {around} of {SEEDS} runs only");
    }
}

#[test]
fn without_any_one_order_something_breaks() {
    for order in Order::ALL {
        for way in Way::ALL {
            let mut ways = BTreeMap::new();
            for seed in 0..SEEDS_WITHOUT {
                if let Err(found) = Run::new(way, Some(order), seed).all() {
                    *ways.entry(found).or_insert(0) += 1;
                }
            }
            let broken: u64 = ways.values().sum();
            eprintln!("without {order:?}, {way:?}: {broken} of {SEEDS_WITHOUT} seeds: {ways:?}");
            let used = match order {
                Order::RecordBeforeDoorbell(DoorbellMemory::NonCached) => way == Way::NonCached,
                Order::RecordBeforeDoorbell(DoorbellMemory::WriteCombining)
                | Order::DoorbellFlush => way != Way::NonCached,
                Order::CopyFlush => way == Way::Staying,
                // This program writes over each buffer itself before it posts it again;
                // `adversary/tests.rs` has one that doesn't.
                Order::ProducerRelease => false,
                _ => true,
            };
            assert_eq!(broken > 0, used, "without {order:?}, {way:?}");
        }
    }
}
