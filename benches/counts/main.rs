//! Instructions per operation of the data path, and their machine code.
//!
//! `cargo xtask counts` runs this program under callgrind and compares what it counts with
//! `instructions.tsv`; and it takes the functions of `hot.rs` out of it and compares them with
//! `x86_64/`. Without valgrind it does everything once and counts nothing; with `--path` it prints
//! where it is.
//!
//! Objects and device are the same as in `side_by_side`: the device is null, and the harness writes
//! completions.
//!
//! # Safety
//!
//! Raw posts name memory that outlives the queue pair, and that the device never accesses.
#![allow(unsafe_code, reason = "posts by key, to ring alone")]

mod callgrind;
mod commands;
mod datagrams;
#[path = "../side_by_side/device.rs"]
#[expect(dead_code, reason = "what makes lines cold is for the clock")]
mod device;
mod fabric;
mod floor;
mod hot;
#[path = "../side_by_side/ops.rs"]
#[expect(dead_code, reason = "`side_by_side` measures more of it")]
mod ops;
#[path = "../side_by_side/ours.rs"]
#[expect(dead_code, reason = "`side_by_side` measures more of it")]
mod ours;
mod own_peer;
mod quiet;
mod shared;

use uverbs::raw::Data;
use uverbs::softhca::SoftHca;
use uverbs::unstable::mlx5::Mlx5;
use uverbs::{Any, Context, Device, DoorbellMode};

use crate::hot::Seen;
use crate::ops::{Atomic, Gather4, Op, PAYLOAD, Read, Send64, WriteInline8};
use crate::ours::{Bench, Shape, Side};

/// Work requests or completions in a round.
const OPS: u32 = 64;
/// Rounds before the counted ones, and counted rounds. Together they go around the rings, so that
/// the counts include the rings' ends.
const WARM: u32 = 4;
const ROUNDS: u32 = 16;

const SHAPE: Shape = Shape {
    qps: 1,
    units: 256,
    recvs: 128,
    sges: 4,
    cqes: 128,
    doorbell: DoorbellMode::BlueFlame,
    channel: false,
};

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("--path") => {
            println!("{}", std::env::current_exe().expect("the program's own path").display());
            return;
        }
        // Argument of `cargo bench`.
        None | Some("--bench") => {}
        Some(other) => {
            eprintln!("{other}: the only argument is --path");
            std::process::exit(2);
        }
    }
    let hca = SoftHca::builder().stepped().build().expect("a software HCA");
    let device = Device::from(hca);
    let mono: Context<Mlx5> = device.open_as().expect("open");
    let any: Context<Any> = device.open().expect("open");
    provider(&mono, "");
    provider(&any, "any_");
    functions(&mono);
    datagrams::all();
    floor::all();
    shared::all();
    commands::all();
    fabric::all();
    if !callgrind::is_counting() {
        println!("all cases ran; `cargo xtask counts` counts them");
    }
}

/// Counts rounds of `ops` operations each: prepares, runs the counted part, cleans up. The count's
/// name holds the divisor.
fn count<S>(
    name: &str,
    ops: u32,
    side: &mut S,
    before: impl Fn(&mut S),
    work: impl Fn(&mut S),
    after: impl Fn(&mut S),
) {
    for round in 0..WARM + ROUNDS {
        if round == WARM {
            callgrind::forget();
        }
        before(side);
        if round < WARM {
            work(side);
        } else {
            callgrind::count(|| work(side));
        }
        after(side);
    }
    callgrind::write(&format!("{name} {}", ROUNDS * ops));
}

/// All cases with one provider.
fn provider<P: Bench>(context: &Context<P>, prefix: &str) {
    posts::<P, WriteInline8, 1>(context, prefix, "post_write_inline8_1");
    posts::<P, WriteInline8, 32>(context, prefix, "post_write_inline8_32");
    posts::<P, Send64, 1>(context, prefix, "post_send64_1");
    posts::<P, Send64, 32>(context, prefix, "post_send64_32");
    posts::<P, Read, 1>(context, prefix, "post_read_1");
    posts::<P, Read, 32>(context, prefix, "post_read_32");
    posts::<P, Atomic, 1>(context, prefix, "post_atomic_1");
    posts::<P, Atomic, 32>(context, prefix, "post_atomic_32");
    posts::<P, Gather4, 1>(context, prefix, "post_gather4_1");
    posts::<P, Gather4, 32>(context, prefix, "post_gather4_32");
    recvs::<P, 1>(context, prefix, "recv_1");
    recvs::<P, 32>(context, prefix, "recv_32");
    for (what, kind) in [("req", Kind::Send), ("resp", Kind::Recv)] {
        polls::<P, 1>(context, prefix, &format!("poll_{what}_1"), kind);
        polls::<P, 16>(context, prefix, &format!("poll_{what}_16"), kind);
        polls::<P, 64>(context, prefix, &format!("poll_{what}_64"), kind);
    }
    polls::<P, 16>(context, prefix, "poll_empty", Kind::Nothing);
}

fn side<P: Bench>(context: &Context<P>) -> Side<P> {
    Side::new(context, SHAPE).expect("the objects")
}

fn posts<P: Bench, O: Op, const N: usize>(context: &Context<P>, prefix: &str, case: &str) {
    let batches = OPS as usize / N;
    let retire = |side: &mut Side<P>| side.retire_sends(OPS, O::UNITS);
    let name = format!("{case} {prefix}raw");
    let raw = |side: &mut Side<P>| side.post_raw::<O, N>(batches);
    count(&name, OPS, &mut side(context), |_| (), raw, retire);
    let mut other = Side::new(context, Shape { doorbell: DoorbellMode::NonCached, ..SHAPE })
        .expect("the objects");
    count(&format!("{name}_nc"), OPS, &mut other, |_| (), raw, retire);
    if O::SAFE {
        count(
            &format!("{case} {prefix}owned"),
            OPS,
            &mut side(context),
            |side| side.stock(OPS as usize),
            |side| side.post_safe::<O, N>(batches),
            retire,
        );
    }
}

fn recvs<P: Bench, const N: usize>(context: &Context<P>, prefix: &str, case: &str) {
    let batches = OPS as usize / N;
    let retire = |side: &mut Side<P>| side.retire_recvs(OPS);
    count(
        &format!("{case} {prefix}raw"),
        OPS,
        &mut side(context),
        |_| (),
        |side| side.recv_raw::<N>(batches),
        retire,
    );
    count(
        &format!("{case} {prefix}owned"),
        OPS,
        &mut side(context),
        |side| side.stock(OPS as usize),
        |side| side.recv_safe::<N>(batches),
        retire,
    );
}

/// Kind of completions to poll.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Send,
    Recv,
    Nothing,
}

/// A way to poll: polls so many times, and returns the number of completions.
type Poll<P> = fn(&mut Side<P>, usize) -> usize;

fn polls<P: Bench, const N: usize>(context: &Context<P>, prefix: &str, case: &str, kind: Kind) {
    let ways: [(&str, Poll<P>); 4] = [
        ("closure", Side::poll_with::<N>),
        ("burst", Side::poll_burst::<N>),
        ("into", Side::poll_into::<N>),
        ("owned", Side::poll_owned::<N>),
    ];
    // `OPS / N` polls take all completions; on an empty CQ each poll is an operation.
    let (polls, wanted) = match kind {
        Kind::Nothing => (OPS as usize, 0),
        _ => (OPS as usize / N, OPS as usize),
    };
    for (way, poll) in ways {
        let owned = way == "owned";
        let fill = |side: &mut Side<P>| {
            if owned {
                side.stock(OPS as usize);
            }
            match kind {
                Kind::Send => side.fill_sends(OPS, owned),
                Kind::Recv => side.fill_recvs(OPS, owned),
                Kind::Nothing => {}
            }
        };
        count(
            &format!("{case} {prefix}{way}"),
            OPS,
            &mut side(context),
            fill,
            |side| assert_eq!(poll(side, polls), wanted, "completions"),
            |side| side.finish(),
        );
    }
}

/// The functions whose machine code is compared, called under the same rules.
fn functions(context: &Context<Mlx5>) {
    let mut one = side(context);
    let sge = one.area.sge(0, PAYLOAD);
    let retire = |side: &mut Side<Mlx5>| side.retire_sends(OPS, 1);
    let post_one = |side: &mut Side<Mlx5>| {
        for id in 0..OPS.into() {
            hot::post_one(side.qps[0].send_queue(), id, sge).expect("room");
        }
    };
    count("post_one function", OPS, &mut one, |_| (), post_one, retire);
    let pieces = [sge; 32];
    let post_chain = |side: &mut Side<Mlx5>| {
        for id in 0..u64::from(OPS) / 32 {
            hot::post_chain(side.qps[0].send_queue(), id, &pieces).expect("room");
        }
    };
    count("post_chain function", OPS, &mut side(context), |_| (), post_chain, retire);
    count(
        "send_frame function",
        OPS,
        &mut side(context),
        |side| side.stock(OPS as usize),
        |side| {
            for id in 0..OPS.into() {
                let frame = side.frames.pop().expect("a frame");
                let queue = side.qps[0].send_queue();
                assert!(hot::send_frame(queue, id, frame).is_ok());
            }
        },
        retire,
    );
    count(
        "recv_one function",
        OPS,
        &mut side(context),
        |_| (),
        |side| {
            for id in 0..OPS.into() {
                hot::recv_one(side.qps[0].recv_queue(), id, sge).expect("room");
            }
        },
        |side| side.retire_recvs(OPS),
    );
    count(
        "recv_frame function",
        OPS,
        &mut side(context),
        |side| side.stock(OPS as usize),
        |side| {
            for id in 0..OPS.into() {
                let frame = side.frames.pop().expect("a frame");
                assert!(hot::recv_frame(side.qps[0].recv_queue(), id, frame).is_ok());
            }
        },
        |side| side.retire_recvs(OPS),
    );
    for (what, kind) in [("sends", Kind::Send), ("receives", Kind::Recv)] {
        count(
            &format!("poll_burst_{what} function"),
            OPS,
            &mut side(context),
            |side| match kind {
                Kind::Send => side.fill_sends(OPS, false),
                _ => side.fill_recvs(OPS, false),
            },
            |side| {
                let mut seen = Seen::default();
                while hot::poll_burst(&mut side.cq, &mut seen) != 0 {}
                assert!(seen.ids != 0 && seen.failed == 0);
                assert_eq!(seen.bytes != 0, kind == Kind::Recv);
            },
            |_| (),
        );
    }
    // Behind one work request the BlueFlame register gets it whole, behind two its first eight
    // bytes.
    ring("ring_of_1 function", &mut side(context), 1);
    ring("ring_of_2 function", &mut side(context), 2);
}

/// The doorbell alone.
fn ring(name: &str, side: &mut Side<Mlx5>, posts: u32) {
    for round in 0..WARM + ROUNDS {
        if round == WARM {
            callgrind::forget();
        }
        let sge = side.area.sge(0, PAYLOAD);
        let mut batch = side.qps[0].batch();
        for id in 0..posts.into() {
            // SAFETY: the memory lives as long as the side, and the device is null.
            unsafe { batch.raw().send(id, Data::One(sge)) }.expect("room");
        }
        if round < WARM {
            hot::ring(batch);
        } else {
            callgrind::count(|| hot::ring(batch));
        }
        side.retire_sends(posts, 1);
    }
    callgrind::write(&format!("{name} {ROUNDS}"));
}
