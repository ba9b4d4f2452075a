//! The cases: operation, variants, and rounds.

use std::path::Path;

use uverbs::softhca::SoftHca;
use uverbs::unstable::mlx5::Mlx5;
use uverbs::{Context, Device, DoorbellMode};

use crate::c::{self, Shim, Special};
use crate::datagrams;
use crate::measure::{self, CAN_FLUSH, Clock, Spread, make_cold};
use crate::ops::{Atomic, Gather4, Op, Read, Send64, WriteInline8};
use crate::ours::{Shape, Side};
use crate::shared::{self, Shares};

/// In the order they are printed.
pub(crate) const CASES: [&str; 26] = [
    "post_write_inline8_1",
    "post_write_inline8_32",
    "post_send64_1",
    "post_send64_32",
    "post_read_1",
    "post_atomic_1",
    "post_gather4_1",
    "post_ud_send64_1",
    "post_ud_send64_32",
    "recv_1",
    "recv_32",
    "srq_recv_1",
    "srq_recv_32",
    "poll_req_1",
    "poll_req_16",
    "poll_req_64",
    "poll_resp_1",
    "poll_resp_16",
    "poll_resp_64",
    "poll_empty",
    "poll_qps_1",
    "poll_qps_64",
    "poll_qps_4096",
    "poll_cold_16",
    "arm_poll_1",
    "arm_poll_16",
];

/// Work requests between two looks at the clock, in the cases that post.
pub(crate) const POSTS: u32 = 32;
/// Depth requested of libibverbs. Its ring, 16 KiB, then tells how large ours is made; it fits a
/// first-level cache.
pub(crate) const DEPTH: u32 = 32;
/// Size of the ring if there is no C stack to compare with: C's size.
const UNITS: u32 = 256;
pub(crate) const CQES: u32 = 128;
/// Work requests that fit a queue in the cases that poll: more than a round has.
const POLL_DEPTH: u32 = 128;
/// Completions in a round of the cases with many queue pairs.
const MANY: u32 = 2048;
const MANY_CQES: u32 = 4096;

/// How much is measured.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    blocks: usize,
    ops: usize,
    only: Option<String>,
    variant: Option<String>,
}

impl Plan {
    pub(crate) fn parse(args: &[String]) -> Result<Self, String> {
        let mut plan = Self { blocks: 41, ops: 8192, only: None, variant: None };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--quick" => (plan.blocks, plan.ops) = (15, 2048),
                "--only" => plan.only = args.next().cloned(),
                "--variant" => plan.variant = args.next().cloned(),
                // Arguments that cargo passes to every benchmark.
                "--exact" | "--nocapture" => {}
                other => {
                    return Err(format!(
                        "{other}: the arguments are --quick, --only <part of a case's name>, \
                        --variant <name>"
                    ));
                }
            }
        }
        Ok(plan)
    }
}

/// One variant of one case, measured.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    pub(crate) case: &'static str,
    pub(crate) variant: &'static str,
    pub(crate) spread: Spread,
}

/// A round: prepares, times, and clears up. Gives ticks and operations.
type Round = Box<dyn FnMut(&Clock) -> (u64, usize)>;

pub(crate) struct Variant {
    name: &'static str,
    round: Round,
}

impl Variant {
    pub(crate) fn new(
        name: &'static str,
        round: impl FnMut(&Clock) -> (u64, usize) + 'static,
    ) -> Self {
        Self { name, round: Box::new(round) }
    }
}

/// Names of our variants, by provider and by API.
pub(crate) struct Names {
    pub(crate) raw: &'static str,
    /// With the queue kept on its thread.
    pub(crate) stays: &'static str,
    pub(crate) non_cached: &'static str,
    /// Raw, of frames that the program keeps meanwhile.
    kept: &'static str,
    pub(crate) owned: &'static str,
    burst: &'static str,
    into: &'static str,
}

const MONO: Names = Names {
    raw: "raw",
    stays: "raw_stays",
    non_cached: "raw_nc",
    kept: "raw_kept",
    owned: "owned",
    burst: "burst",
    into: "into",
};
const ANY: Names = Names {
    raw: "any",
    stays: "any_stays",
    non_cached: "any_nc",
    kept: "any_kept",
    owned: "any_owned",
    burst: "any_burst",
    into: "any_into",
};

/// Runs all cases of the plan.
pub(crate) fn run(plan: &Plan, shim: Option<&Path>, each: &mut dyn FnMut(&Sample)) {
    if measure::pin().is_none() {
        println!("not pinned to a processor");
    }
    let clock = Clock::new();
    let shim = shim.map(|shim| Shim::load(shim).expect("the shim"));
    // The run without libmlx5's locks is needed for its C half alone.
    let unlocked = std::env::var_os("MLX5_SINGLE_THREADED").is_some();
    for case in CASES {
        if plan.only.as_ref().is_some_and(|only| !case.contains(only.as_str())) {
            continue;
        }
        if case.contains("cold") && !CAN_FLUSH {
            println!("{case} is skipped: no way to flush a cache line here");
            continue;
        }
        // Made anew for each case, and gone after it: no case runs among the leftovers of another.
        let mut variants = Vec::new();
        let units = shim.and_then(|shim| c_variants(&mut variants, shim, case, unlocked));
        if !unlocked {
            let hca = SoftHca::builder().stepped().build().expect("a software HCA");
            let device = Device::from(hca);
            let units = units.unwrap_or(UNITS);
            our_variants(
                &mut variants,
                &device.open_as::<Mlx5>().expect("open"),
                case,
                units,
                &MONO,
            );
            our_variants(&mut variants, &device.open().expect("open"), case, units, &ANY);
        }
        variants.retain(|variant| plan.variant.as_ref().is_none_or(|only| variant.name == only));
        for (variant, blocks) in measure_all(&mut variants, plan, &clock) {
            each(&Sample { case, variant, spread: Spread::of(blocks) });
        }
    }
}

/// Measures block by block, alternating variants, so that a slow phase of the machine slows all of
/// them.
fn measure_all(
    variants: &mut [Variant],
    plan: &Plan,
    clock: &Clock,
) -> Vec<(&'static str, Vec<f64>)> {
    let mut all: Vec<_> = variants.iter().map(|variant| (variant.name, Vec::new())).collect();
    for block in 0..=plan.blocks {
        for (variant, (_, blocks)) in variants.iter_mut().zip(&mut all) {
            // The first round brings code and memory back into the caches.
            (variant.round)(clock);
            let (mut ticks, mut ops) = (0, 0);
            while ops < plan.ops {
                let (more, count) = (variant.round)(clock);
                ticks += more;
                ops += count;
            }
            // The first block warms up.
            if block > 0 {
                blocks.push(clock.ns(ticks) / ops as f64);
            }
        }
    }
    all
}

/// The number at the end of a case's name.
fn per_batch(case: &str) -> usize {
    case.rsplit('_').next().and_then(|number| number.parse().ok()).unwrap_or(1)
}

/// WQEBBs of a case's WQEs: control, remote address and four pieces are 96 bytes.
fn units_of(case: &str) -> u32 {
    if case.contains("gather4") {
        2
    } else if case.contains("_ud_") {
        datagrams::UNITS
    } else {
        1
    }
}

/// Object that a case needs in addition to connections.
fn special(case: &str) -> Special {
    if case.contains("_ud_") {
        Special::Datagrams
    } else if case.starts_with("srq") {
        Special::Shared
    } else if case.starts_with("arm") {
        Special::Channel
    } else {
        Special::Plain
    }
}

/// Queue pairs of a case, and send work requests that each holds at a time.
fn queue_pairs(case: &str) -> Option<(u32, u32)> {
    let qps = case.strip_prefix("poll_qps_")?.parse().ok()?;
    Some((qps, MANY.div_ceil(qps)))
}

/// The C stack's variants. Returns the size of its send queue in WQEBBs.
fn c_variants(
    variants: &mut Vec<Variant>,
    shim: Shim,
    case: &'static str,
    unlocked: bool,
) -> Option<u32> {
    let many = queue_pairs(case);
    let (qps, depth) = many.unwrap_or((1, if case.contains("poll") { POLL_DEPTH } else { DEPTH }));
    let cqes = if many.is_some() { MANY_CQES } else { CQES };
    let n = per_batch(case);
    let mut units = None;
    for extended in [false, true] {
        let side = c::Side::new(shim, extended, special(case), qps, depth, cqes);
        if side.is_err() && special(case) == Special::Shared && c::is_ours() {
            println!("{case}: our library for C doesn't tell where a shared queue lies");
            continue;
        }
        let mut side = side.expect("the C stack's objects");
        units = many.is_none().then_some(side.units);
        let name = match (extended, unlocked, case.starts_with("po")) {
            (false, false, _) => "c",
            (false, true, _) => "c_st",
            // Receives have one call only.
            (true, ..) if case.contains("recv") => continue,
            (true, false, _) if case.starts_with("post") => "c_wr",
            (true, true, _) if case.starts_with("post") => "c_wr_st",
            (true, false, _) => "c_ex",
            (true, true, _) => "c_ex_st",
        };
        let round: Round = if let Some(what) = case.strip_prefix("post_") {
            let function =
                side.prepare(&format!("sbs_{}_{what}", if extended { "wr" } else { "post" }));
            Box::new(move |clock| {
                let mut result = 0;
                let ticks = clock.time(|| result = side.run(function, POSTS as usize / n));
                assert_eq!(result, 0, "post_send");
                side.retire_sends(POSTS, units_of(case));
                (ticks, POSTS as usize)
            })
        } else if case.contains("recv") {
            let function = side.prepare(&format!("sbs_{case}"));
            Box::new(move |clock| {
                let mut result = 0;
                let ticks = clock.time(|| result = side.run(function, POSTS as usize / n));
                assert_eq!(result, 0, "post_recv");
                match special(case) {
                    Special::Shared => side.retire_shared_recvs(POSTS),
                    _ => side.retire_recvs(POSTS),
                }
                (ticks, POSTS as usize)
            })
        } else {
            let count = completions(case);
            let batch = poll_batch(case);
            let arm = if special(case) == Special::Channel { "arm_" } else { "" };
            let ex = if extended { "_ex" } else { "" };
            let function = side.prepare(&format!("sbs_{arm}poll{ex}_{batch}"));
            Box::new(move |clock| {
                match kind(case) {
                    Kind::Empty => {}
                    Kind::Recv => side.fill_recvs(count as u32),
                    Kind::Send => side.fill_sends(count as u32),
                }
                if case.contains("cold") {
                    make_cold(side.ring().last(count as u32));
                }
                let polls = if matches!(kind(case), Kind::Empty) { POLLS } else { count / batch };
                let mut seen = 0;
                let ticks = clock.time(|| seen = side.run(function, polls));
                assert_eq!(seen as usize, count, "completions of the C stack ({name}, {case})");
                (ticks, count.max(polls))
            })
        };
        variants.push(Variant { name, round });
    }
    units
}

/// Kind of completions in a poll case.
#[derive(Clone, Copy)]
enum Kind {
    Send,
    Recv,
    Empty,
}

fn kind(case: &str) -> Kind {
    if case.contains("resp") {
        Kind::Recv
    } else if case.contains("empty") {
        Kind::Empty
    } else {
        Kind::Send
    }
}

/// Polls of an empty queue in a round.
const POLLS: usize = 64;

/// Completions in a round.
fn completions(case: &str) -> usize {
    match (kind(case), queue_pairs(case)) {
        (Kind::Empty, _) => 0,
        (_, Some((qps, per_qp))) => (qps * per_qp) as usize,
        _ if case.contains("cold") => 16,
        _ => 64,
    }
}

/// Completions that a poll may give.
fn poll_batch(case: &str) -> usize {
    if queue_pairs(case).is_some() { 16 } else { per_batch(case) }
}

/// Our variants with one provider.
fn our_variants<P: Shares>(
    variants: &mut Vec<Variant>,
    context: &Context<P>,
    case: &'static str,
    units: u32,
    names: &Names,
) {
    match case {
        "post_write_inline8_1" => posts::<P, WriteInline8, 1>(variants, context, units, names),
        "post_write_inline8_32" => posts::<P, WriteInline8, 32>(variants, context, units, names),
        "post_send64_1" => posts::<P, Send64, 1>(variants, context, units, names),
        "post_send64_32" => posts::<P, Send64, 32>(variants, context, units, names),
        "post_read_1" => posts::<P, Read, 1>(variants, context, units, names),
        "post_atomic_1" => posts::<P, Atomic, 1>(variants, context, units, names),
        "post_gather4_1" => posts::<P, Gather4, 1>(variants, context, units, names),
        "recv_1" => recvs::<P, 1>(variants, context, units, names),
        "recv_32" => recvs::<P, 32>(variants, context, units, names),
        "post_ud_send64_1" => datagrams::variants::<P, 1>(variants, context, units, names),
        "post_ud_send64_32" => datagrams::variants::<P, 32>(variants, context, units, names),
        "srq_recv_1" => shared::variants::<P, 1>(variants, context, names),
        "srq_recv_32" => shared::variants::<P, 32>(variants, context, names),
        "arm_poll_1" => arms::<P, 1>(variants, context, case, names),
        "arm_poll_16" => arms::<P, 16>(variants, context, case, names),
        _ => match poll_batch(case) {
            1 => polls::<P, 1>(variants, context, case, names),
            16 => polls::<P, 16>(variants, context, case, names),
            _ => polls::<P, 64>(variants, context, case, names),
        },
    }
}

fn side<P: Shares>(context: &Context<P>, shape: Shape) -> Side<P> {
    Side::new(context, shape).expect("our objects")
}

/// One queue pair as the C stack's: lists of four, 64 bytes inline, the same ring.
fn shape(units: u32) -> Shape {
    let doorbell = DoorbellMode::BlueFlame;
    Shape { qps: 1, units, recvs: DEPTH, sges: 4, cqes: CQES, doorbell, channel: false }
}

/// Owner of the frames of outstanding work requests.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Frames {
    /// The case has no frames.
    None,
    /// The queue.
    Moved,
    /// The program, in a table.
    Kept,
}

/// Times `post`, a block of work requests. `retire` is not timed.
fn add_posts<P: Shares>(
    variants: &mut Vec<Variant>,
    name: &'static str,
    mut side: Side<P>,
    frames: Frames,
    post: impl Fn(&mut Side<P>) + 'static,
    retire: impl Fn(&mut Side<P>) + 'static,
) {
    let round: Round = Box::new(move |clock| {
        if frames != Frames::None {
            side.stock(POSTS as usize);
        }
        let ticks = clock.time(|| post(&mut side));
        retire(&mut side);
        if frames == Frames::Kept {
            side.take_back(POSTS);
        }
        (ticks, POSTS as usize)
    });
    variants.push(Variant { name, round });
}

fn posts<P: Shares, O: Op + 'static, const N: usize>(
    variants: &mut Vec<Variant>,
    context: &Context<P>,
    units: u32,
    names: &Names,
) {
    let batches = POSTS as usize / N;
    let raw = move |side: &mut Side<P>| side.post_raw::<O, N>(batches);
    let retire = |side: &mut Side<P>| side.retire_sends(POSTS, O::UNITS);
    let new = || side(context, shape(units));
    add_posts(variants, names.raw, new(), Frames::None, raw, retire);
    let mut stays = new();
    stays.stay();
    add_posts(variants, names.stays, stays, Frames::None, raw, retire);
    let doorbell = DoorbellMode::NonCached;
    let non_cached = side(context, Shape { doorbell, ..shape(units) });
    add_posts(variants, names.non_cached, non_cached, Frames::None, raw, retire);
    if O::SAFE && O::FRAME {
        let kept = move |side: &mut Side<P>| side.post_kept::<O, N>(batches);
        add_posts(variants, names.kept, new(), Frames::Kept, kept, retire);
    }
    if O::SAFE {
        let safe = move |side: &mut Side<P>| side.post_safe::<O, N>(batches);
        add_posts(variants, names.owned, new(), Frames::Moved, safe, retire);
    }
}

fn recvs<P: Shares, const N: usize>(
    variants: &mut Vec<Variant>,
    context: &Context<P>,
    units: u32,
    names: &Names,
) {
    let batches = POSTS as usize / N;
    let retire = |side: &mut Side<P>| side.retire_recvs(POSTS);
    let new = || side(context, shape(units));
    let raw = move |side: &mut Side<P>| side.recv_raw::<N>(batches);
    add_posts(variants, names.raw, new(), Frames::None, raw, retire);
    let kept = move |side: &mut Side<P>| side.recv_kept::<N>(batches);
    add_posts(variants, names.kept, new(), Frames::Kept, kept, retire);
    let safe = move |side: &mut Side<P>| side.recv_safe::<N>(batches);
    add_posts(variants, names.owned, new(), Frames::Moved, safe, retire);
}

/// A way to poll: polls so many times, and returns the number of completions.
type Poll<P> = fn(&mut Side<P>, usize) -> usize;

fn polls<P: Shares, const N: usize>(
    variants: &mut Vec<Variant>,
    context: &Context<P>,
    case: &'static str,
    names: &Names,
) {
    let mut add = |name: &'static str, poll: Poll<P>, frames: Frames| {
        let shape = match queue_pairs(case) {
            None => Shape { recvs: POLL_DEPTH, ..shape(2 * POLL_DEPTH) },
            // Separate registers for each queue pair would need thousands of doorbell pages.
            Some((qps, per_qp)) => Shape {
                qps,
                units: (2 * per_qp).max(16),
                recvs: 16,
                sges: 1,
                cqes: MANY_CQES,
                doorbell: DoorbellMode::NonCached,
                channel: false,
            },
        };
        let mut side = side(context, shape);
        let count = completions(case);
        let round: Round = Box::new(move |clock| {
            if frames != Frames::None {
                side.stock(count);
            }
            let owned = frames == Frames::Moved;
            match kind(case) {
                Kind::Empty => {}
                Kind::Recv => side.fill_recvs(count as u32, owned),
                Kind::Send => side.fill_sends(count as u32, owned),
            }
            if frames == Frames::Kept {
                side.keep(count as u32);
            }
            if case.contains("cold") {
                make_cold(side.ring.last(count as u32));
            }
            let polls = if matches!(kind(case), Kind::Empty) { POLLS } else { count / N };
            let mut seen = 0;
            let ticks = clock.time(|| seen = poll(&mut side, polls));
            assert_eq!(seen, count, "our completions");
            side.finish();
            (ticks, count.max(polls))
        });
        variants.push(Variant { name, round });
    };
    add(names.raw, Side::poll_with::<N>, Frames::None);
    if queue_pairs(case).is_none() {
        add(names.burst, Side::poll_burst::<N>, Frames::None);
        add(names.into, Side::poll_into::<N>, Frames::None);
        add(names.kept, Side::poll_kept::<N>, Frames::Kept);
        add(names.owned, Side::poll_owned::<N>, Frames::Moved);
    }
}

/// Polls after arming, as a program does before it sleeps on an empty queue.
fn arms<P: Shares, const N: usize>(
    variants: &mut Vec<Variant>,
    context: &Context<P>,
    case: &'static str,
    names: &Names,
) {
    let shape = Shape { recvs: POLL_DEPTH, channel: true, ..shape(2 * POLL_DEPTH) };
    let (mut side, count) = (side(context, shape), completions(case));
    variants.push(Variant::new(names.raw, move |clock| {
        side.fill_sends(count as u32, false);
        let mut seen = 0;
        let ticks = clock.time(|| seen = side.arm_poll_with::<N>(count / N));
        assert_eq!(seen, count, "our completions");
        side.finish();
        (ticks, count)
    }));
}
