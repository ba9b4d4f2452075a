//! Time from a SEND until a sleeping receiver has its completion, with uverbs and with libibverbs:
//! the same calls on the same preloaded software HCA. First `cargo xtask judge` unpacks the C
//! stack, then: `UVERBS_DEBIAN_ROOT=target/debian/root cargo bench -p uverbs-c-stack --bench wake`.
//!
//! Both run in turns, a process for each round. Output for scripts: `ratio woken_PAUSE VALUE`, the
//! median of libibverbs divided by ours; above 1, ours is better.

use std::process::Command;
use std::time::{Duration, Instant};

use uverbs::{Error, Local, Mlx5, Notify};

/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(20);
/// Number of rounds. Next constant: pause before each message in microseconds, and number of
/// messages.
const TURNS: usize = 5;
const CASES: [(u32, u32); 2] = [(0, 4000), (2000, 300)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<_> = std::env::args().skip(1).collect();
    if let [mode, count, pause] = &args[..]
        && mode == "--ours"
    {
        return Ok(ours(count.parse()?, Duration::from_micros(pause.parse()?))?);
    }
    let Some(stack) = c_stack::unpacked() else { return Ok(()) };
    let Some(program) = stack.compile("wake") else { return Ok(()) };
    for (pause, count) in CASES {
        let (mut here, mut there) = (Vec::new(), Vec::new());
        for _ in 0..TURNS {
            let mut ours = c_stack::preloaded(&std::env::current_exe()?);
            times(ours.arg("--ours"), count, pause, &mut here);
            times(&mut stack.command(&program), count, pause, &mut there);
        }
        let (here, there) = (spread(here), spread(there));
        for (who, [p50, p99]) in [("uverbs", here), ("libibverbs", there)] {
            println!("after {pause:>4} us alone, {who:<10} {p50:>7.1} us  (p99 {p99:.1})");
        }
        println!("ratio woken_{pause} {:.2}", there[0] / here[0]);
    }
    std::fs::remove_file(program)?;
    Ok(())
}

/// Adds the nanoseconds of one process; the first tenth is warm-up.
fn times(command: &mut Command, count: u32, pause: u32, all: &mut Vec<u64>) {
    let run = c_stack::run(command.arg(count.to_string()).arg(pause.to_string())).ok();
    let times = run.stdout.lines().map(|line| line.parse::<u64>().expect("nanoseconds"));
    all.extend(times.skip(count as usize / 10));
}

/// Median and 99th percentile in microseconds.
fn spread(mut times: Vec<u64>) -> [f64; 2] {
    times.sort_unstable();
    [times.len() / 2, times.len() * 99 / 100].map(|at| times[at] as f64 / 1000.0)
}

/// Receiver with uverbs, call for call like `c/wake.c`.
fn ours(count: u32, pause: Duration) -> Result<(), Error> {
    let device = uverbs::default_device()?;
    let context = device.open_as::<Mlx5>()?;
    let pd = context.alloc_pd()?;
    let channel = context.create_comp_channel()?;
    let mut sent = context.create_cq(63)?;
    let mut received = context.completion_queue(63).channel(&channel).build()?;
    let builder = context.queue_pair(&pd, &sent).recv_cq(&received);
    let mut qp = builder.max_send_wr(16).max_recv_wr(16).max_inline_data(16).build()?;
    qp.prepare(&Local::default())?;
    qp.connect_to_self()?;
    let mut frame = pd.slab(8, 1)?.take().expect("it is new");
    for _ in 0..count {
        qp.post_recv(0, frame)?;
        received.arm(Notify::Any)?;
        assert_eq!(received.poll_with(1, |_| ()), 0, "nothing was sent");
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
        let started = Instant::now();
        qp.post_send_inline(0, &[0; 8])?;
        assert!(channel.next_within(LIMIT)?.is_of(&received));
        let mut back = None;
        assert_eq!(received.poll_with(1, |mut done| back = done.take_frame()), 1);
        println!("{}", started.elapsed().as_nanos());
        frame = back.expect("the receive's");
        sent.wait(LIMIT)?.result?;
    }
    Ok(())
}
