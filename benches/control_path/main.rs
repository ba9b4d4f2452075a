//! The control path beside the C stack's, as time: one process, one device, in alternation.
//!
//! `cargo bench --bench control_path`, with `-- --quick` for a look. `docs/performance` has the
//! ratios, `docs/CONTROL-PATH.md` says what they mean; calls and memory are counted by
//! `tests/c-stack/tests/control_path`.
//!
//! The device is the software HCA that `tests/c-stack` puts in the kernel's place, for both
//! libraries: ours uses the kernel interface, as C does. The device's share of the time is the same
//! for both; it is measured separately, and says nothing about a real kernel.
//!
//! # Safety
//!
//! The shim's function takes two numbers; the preloaded library's returns one.
#![allow(unsafe_code, reason = "calls C by address")]

mod ours;
#[path = "../side_by_side/prepare.rs"]
mod prepare;

use std::ffi::{CString, c_int, c_void};
use std::time::Instant;

use crate::ours::Ours;
use crate::prepare::{CStack, SHIM};

/// Objects of a kind in a round. Both have doorbell registers for so many.
const OBJECTS: usize = 16;
/// How often they are made and taken down while the device is open.
const INNER: usize = 5;

/// The steps of a round. The numbers are `shim.c`'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Step {
    Open,
    AllocPd,
    RegMr,
    CreateCq,
    CreateQp,
    ConnectQp,
    DestroyQp,
    DestroyCq,
    DeregMr,
    DeallocPd,
    Close,
}

const STEPS: [(Step, &str); 11] = [
    (Step::Open, "open"),
    (Step::AllocPd, "alloc_pd"),
    (Step::RegMr, "reg_mr"),
    (Step::CreateCq, "create_cq"),
    (Step::CreateQp, "create_qp"),
    (Step::ConnectQp, "connect_qp"),
    (Step::DestroyQp, "destroy_qp"),
    (Step::DestroyCq, "destroy_cq"),
    (Step::DeregMr, "dereg_mr"),
    (Step::DeallocPd, "dealloc_pd"),
    (Step::Close, "close"),
];

/// One library: a function that carries out a step.
type Side<'a> = &'a mut dyn FnMut(Step, usize);

/// Nanoseconds of one operation.
#[derive(Clone, Copy, Debug, Default)]
struct Time {
    /// From call to return.
    all: f64,
    /// Time in the library, without the device's share.
    library: f64,
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let rounds = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => 400,
        ["--quick"] => 40,
        _ => {
            eprintln!("usage: control_path [--quick]");
            std::process::exit(2);
        }
    };
    if let Some(shim) = std::env::var_os(SHIM) {
        let shim = CString::new(shim.as_encoded_bytes()).expect("a path without NUL");
        let step = symbol(load(&shim), "cp_step");
        // SAFETY: its signature in `shim.c`.
        let step = unsafe {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int, c_int) -> c_int>(step)
        };
        let mut c = |which: Step, count: usize| {
            // SAFETY: numbers only.
            let result = unsafe { step(which as c_int, count as c_int) };
            assert_eq!(result, 0, "{which:?} in C: {}", std::io::Error::last_os_error());
        };
        let mut own = Ours::new(None, OBJECTS);
        let mut ours = |step, count| own.step(step, count).expect("a step of ours");
        report(&measure(&mut [("c", &mut c), ("ours", &mut ours)], rounds));
        return;
    }
    let source = "benches/control_path/shim.c";
    let env = [("UVERBS_SOFTHCA_TIMED", "1")];
    match CStack::new(source, "libmlx5").and_then(|stack| stack.again(&args, &env)) {
        Ok(text) => print!("{text}"),
        Err(why) => {
            println!("the C half is skipped, and the device's share is not told apart: {why}");
            let hca = uverbs::softhca::SoftHca::builder().stepped().build().expect("a device");
            let mut own = Ours::new(Some(hca.into()), OBJECTS);
            let mut ours = |step, count| own.step(step, count).expect("a step of ours");
            report(&measure(&mut [("ours", &mut ours)], rounds));
        }
    }
}

fn load(path: &std::ffi::CStr) -> *mut c_void {
    // SAFETY: a C string; the C stack's library may run its constructors.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
    assert!(!library.is_null(), "{path:?} can't be loaded");
    library
}

fn symbol(library: *mut c_void, name: &str) -> *mut c_void {
    let name = CString::new(name).expect("no NUL in a name");
    // SAFETY: an open library, or all that is loaded, and a C string.
    unsafe { libc::dlsym(library, name.as_ptr()) }
}

/// Nanoseconds that the device in this process has taken so far; 0 without such a count.
fn device_time() -> impl Fn() -> u64 {
    let found = symbol(libc::RTLD_DEFAULT, "uverbs_softhca_nanoseconds");
    // SAFETY: null is `None`; else the function of that name in `tests/c-stack`, whose signature
    // this is.
    let found =
        unsafe { std::mem::transmute::<*mut c_void, Option<unsafe extern "C" fn() -> u64>>(found) };
    // SAFETY: reads a number.
    move || found.map_or(0, |function| unsafe { function() })
}

/// Sides by name, and the median of each step.
type Table = Vec<(&'static str, Vec<Time>)>;

fn measure(sides: &mut [(&'static str, Side<'_>)], rounds: usize) -> Table {
    let device = device_time();
    let mut samples = vec![vec![Vec::with_capacity(rounds); STEPS.len()]; sides.len()];
    // The first rounds warm up.
    for round in 0..rounds + rounds / 10 {
        for ((_, side), samples) in sides.iter_mut().zip(&mut samples) {
            let again = (0..INNER).flat_map(|_| 1..STEPS.len() - 1);
            for at in [0].into_iter().chain(again).chain([STEPS.len() - 1]) {
                let ((step, _), samples) = (&STEPS[at], &mut samples[at]);
                let count = if matches!(step, Step::Open | Step::Close) { 1 } else { OBJECTS };
                let (before, started) = (device(), Instant::now());
                side(*step, count);
                let (all, inside) = (started.elapsed(), device() - before);
                let all = all.as_nanos() as f64 / count as f64;
                if round >= rounds / 10 {
                    samples.push(Time { all, library: all - inside as f64 / count as f64 });
                }
            }
        }
    }
    let median = |samples: &Vec<Time>| {
        let of = |part: fn(&Time) -> f64| {
            let mut all: Vec<f64> = samples.iter().map(part).collect();
            all.sort_by(f64::total_cmp);
            all[all.len() / 2]
        };
        Time { all: of(|time| time.all), library: of(|time| time.library) }
    };
    let medians = samples.iter().map(|steps| steps.iter().map(median).collect());
    sides.iter().map(|(name, _)| *name).zip(medians).collect()
}

fn report(table: &Table) {
    println!("{:<12} {:<6} {:>10} {:>12}", "step", "side", "ns", "library ns");
    for (at, (_, step)) in STEPS.iter().enumerate() {
        for (side, times) in table {
            let Time { all, library } = times[at];
            println!("{step:<12} {side:<6} {all:>10.0} {library:>12.0}");
        }
    }
    let [(_, c), (_, ours)] = &table[..] else { return };
    for (at, (_, step)) in STEPS.iter().enumerate() {
        println!("ratio {step} {:.2}", c[at].all / ours[at].all);
        println!("ratio_library {step} {:.2}", c[at].library / ours[at].library);
    }
}
