//! Posts and polls of rdmavt and EFA beside libhfi1verbs and libefa, as time: one process, one
//! device, in alternation.
//!
//! `cargo bench -p uverbs --bench beside_rings`, with `-- --quick` for a look. Each library has a
//! queue pair that is its own peer, on the device that `tests/c-stack` puts in the kernel's place.
//! The device works between the timed parts. A SEND of rdmavt is a command, whose time contains
//! the device's share, the same for both libraries. libhfi1verbs sends a list of 32 by eight
//! commands, our provider by one. All else is rings and doorbells in memory.
//!
//! # Safety
//!
//! The shim's functions take a side of the shim and numbers; the preloaded library's takes nothing.
#![allow(unsafe_code, reason = "calls C by address")]

#[expect(dead_code, reason = "`side_by_side` measures cold lines, too")]
mod measure;
mod own_peer;
mod prepare;

use std::ffi::{CString, OsStr, c_int, c_void};

use uverbs::{Efa, Rdmavt};

use crate::measure::{Clock, Spread, pin};
use crate::own_peer::{Rings, Side};
use crate::prepare::{CStack, SHIM};

/// Work requests of a round, and depth of the queues.
const OPS: usize = 64;

/// Timed parts of a round. The numbers are `own_peer.c`'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Step {
    Recv1,
    Recv32,
    Send1,
    Send32,
    Inline1,
    Inline32,
    Sends1,
    Sends16,
    Recvs1,
    Recvs16,
    Empty,
}

/// Steps in the order of their numbers, with the number of completions of a step.
const STEPS: [(Step, &str, usize); 11] = [
    (Step::Recv1, "recv_1", 0),
    (Step::Recv32, "recv_32", 0),
    (Step::Send1, "post_send64_1", 0),
    (Step::Send32, "post_send64_32", 0),
    (Step::Inline1, "post_inline8_1", 0),
    (Step::Inline32, "post_inline8_32", 0),
    (Step::Sends1, "poll_sends_1", OPS),
    (Step::Sends16, "poll_sends_16", OPS),
    (Step::Recvs1, "poll_recvs_1", OPS),
    (Step::Recvs16, "poll_recvs_16", OPS),
    (Step::Empty, "poll_empty", 0),
];

/// Receives, sends, and polls of a round. The device works before the polls.
type Round = ([Step; 2], [Step; 3]);

const ROUNDS: [Round; 4] = [
    ([Step::Recv1, Step::Send1], [Step::Sends1, Step::Recvs1, Step::Empty]),
    ([Step::Recv32, Step::Send32], [Step::Sends16, Step::Recvs16, Step::Empty]),
    ([Step::Recv1, Step::Inline1], [Step::Sends1, Step::Recvs1, Step::Empty]),
    ([Step::Recv32, Step::Inline32], [Step::Sends16, Step::Recvs16, Step::Empty]),
];

/// Name in cases, provider of libibverbs, setting of the preloaded library with its value, rounds.
type Device = (&'static str, &'static str, (&'static str, &'static str), &'static [Round]);

/// rdmavt has no inline data. EFA's device has no WRITEs, which libefa 44 does not know: then both
/// sides' completions have 16 bytes.
const DEVICES: [Device; 2] = [
    ("rdmavt", "libhfi1verbs", ("UVERBS_SOFTHCA_OMNI_PATH", "1"), ROUNDS.split_at(2).0),
    ("efa", "libefa", ("UVERBS_SOFTHCA_EFA", "reads"), &ROUNDS),
];

/// One library: carries out a step for a number of work requests, and returns its completions.
type Library<'a> = &'a mut dyn FnMut(Step, usize) -> usize;

/// How much is measured.
#[derive(Clone, Copy, Debug)]
struct Plan {
    blocks: usize,
    /// Rounds of each kind in a block.
    rounds: usize,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let plan = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Plan { blocks: 41, rounds: 64 },
        ["--quick"] => Plan { blocks: 15, rounds: 16 },
        _ => {
            eprintln!("usage: beside_rings [--quick]");
            std::process::exit(2);
        }
    };
    if let Some(shim) = std::env::var_os(SHIM) {
        match std::env::var_os(DEVICES[0].2.0) {
            Some(_) => run::<Rdmavt>(&shim, 0, plan),
            None => run::<Efa>(&shim, 1, plan),
        }
        return;
    }
    for (name, provider, setting, _) in DEVICES {
        let stack = CStack::new("benches/side_by_side/own_peer.c", provider);
        match stack.and_then(|stack| stack.again(&args, &[setting])) {
            Ok(text) => print!("{text}"),
            Err(why) => println!("{name} is skipped: {why}"),
        }
    }
}

/// Measures both libraries, in the process with the preloaded device.
fn run<P: Rings>(shim: &OsStr, device: usize, plan: Plan) {
    type New = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
    type Run = unsafe extern "C" fn(*mut c_void, c_int, c_int) -> c_int;

    let (name, _, _, rounds) = DEVICES[device];
    let library = load(shim);
    // SAFETY: its signature in `own_peer.c`.
    let new = unsafe { std::mem::transmute::<*mut c_void, New>(symbol(library, "br_side")) };
    // SAFETY: its signature in `own_peer.c`.
    let step_of = unsafe { std::mem::transmute::<*mut c_void, Run>(symbol(library, "br_step")) };
    // SAFETY: numbers only.
    let side = unsafe { new(device as c_int, OPS as c_int) };
    assert!(!side.is_null(), "{name}: C's objects: {}", std::io::Error::last_os_error());
    let mut c = |step: Step, count: usize| {
        // SAFETY: the shim's side.
        let seen = unsafe { step_of(side, step as c_int, count as c_int) };
        usize::try_from(seen).expect("a step in C")
    };
    let mut own = Side::<P>::new().expect("our objects");
    let mut ours = |step, count| own.step(step, count);
    report(name, &measure(&mut [("c", &mut c), ("ours", &mut ours)], rounds, plan));
}

fn load(path: &OsStr) -> *mut c_void {
    let name = CString::new(path.as_encoded_bytes()).expect("a path without NUL");
    // SAFETY: a C string; the C stack's library may run its constructors.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "{name:?} can't be loaded");
    library
}

fn symbol(library: *mut c_void, name: &str) -> *mut c_void {
    let name = CString::new(name).expect("no NUL in a name");
    // SAFETY: an open library, or all that is loaded, and a C string.
    let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!symbol.is_null(), "no {name:?}");
    symbol
}

/// Lets the preloaded device work until it is idle.
fn settle() -> impl Fn() {
    let found = symbol(libc::RTLD_DEFAULT, "uverbs_softhca_settle");
    // SAFETY: its signature in `tests/c-stack`.
    let found =
        unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(found) };
    // SAFETY: takes nothing.
    move || assert_eq!(unsafe { found() }, 0, "the device")
}

/// Each step's name, and the spread of each library.
type Table = Vec<(&'static str, Vec<(&'static str, Spread)>)>;

fn measure(libraries: &mut [(&'static str, Library<'_>)], rounds: &[Round], plan: Plan) -> Table {
    pin();
    let (clock, settle) = (Clock::new(), settle());
    let mut samples = vec![vec![Vec::new(); STEPS.len()]; libraries.len()];
    // The first block warms up.
    for block in 0..=plan.blocks {
        for ((_, library), samples) in libraries.iter_mut().zip(&mut samples) {
            let mut ticks = [0; STEPS.len()];
            let mut times = [0; STEPS.len()];
            let mut timed = |step: Step| {
                let (at, mut seen) = (step as usize, 0);
                ticks[at] += clock.time(|| seen = library(step, OPS));
                times[at] += 1;
                assert_eq!(seen, STEPS[at].2, "completions of {}", STEPS[at].1);
            };
            for _ in 0..plan.rounds {
                for (posts, polls) in rounds {
                    posts.iter().for_each(|step| timed(*step));
                    settle();
                    polls.iter().for_each(|step| timed(*step));
                }
            }
            for (samples, (ticks, times)) in samples.iter_mut().zip(ticks.iter().zip(times)) {
                if block > 0 && times > 0 {
                    samples.push(clock.ns(*ticks) / (times * OPS) as f64);
                }
            }
        }
    }
    let row = |(at, (_, step, _)): (usize, &(Step, &'static str, usize))| {
        let spreads = libraries.iter().zip(&mut samples);
        let spreads: Vec<_> = spreads
            .filter(|(_, samples)| !samples[at].is_empty())
            .map(|((name, _), samples)| (*name, Spread::of(std::mem::take(&mut samples[at]))))
            .collect();
        (*step, spreads)
    };
    STEPS.iter().enumerate().map(row).filter(|(_, spreads)| !spreads.is_empty()).collect()
}

fn report(device: &str, table: &Table) {
    println!("{:<24} {:<6} {:>8} {:>17}", "case", "side", "ns/op", "p5 .. p95");
    for (step, spreads) in table {
        let case = format!("{device}_{step}");
        for (library, Spread { p5, median, p95 }) in spreads {
            println!("{case:<24} {library:<6} {median:>8.2} {p5:>7.2} .. {p95:>6.2}");
        }
    }
    for (step, spreads) in table {
        if let [(_, c), (_, ours)] = &spreads[..] {
            println!("ratio {device}_{step} {:.2}", c.median / ours.median);
        }
    }
}
