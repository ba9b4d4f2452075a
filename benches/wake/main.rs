//! Cost of the software HCA's thread to its client: latency, rate, idle time and waking, beside TCP
//! on loopback. `cargo bench --bench wake`, half a minute
//!
//! Each case runs on one processor and on two, each in a fresh process. `--quick` takes fewer
//! rounds; `--spin`, `--awake` and `--look` (all in microseconds) and `--blind` (no page
//! protection) change the device's pace. Lines for machines: `ratio NAME_<processors> VALUE`, TCP's
//! figure over softhca's for times and softhca's over TCP's for rates, so that more than 1 is
//! better than TCP.

mod soft;
mod system;
mod tcp;

use std::time::Duration;

use system::Spread;

/// Bytes of a message.
const SIZE: usize = 64;

/// Options of the command line.
#[derive(Clone, Copy, Debug)]
struct Plan {
    /// Round trips of a ping-pong; a tenth of them warms up.
    trips: usize,
    /// Messages of the rate's case.
    messages: usize,
    /// Idle times of 100 ms.
    wakes: usize,
    pace: Pace,
}

/// The device's pace, where it differs from the default.
#[derive(Clone, Copy, Debug, Default)]
struct Pace {
    spin: Option<Duration>,
    awake: Option<Duration>,
    look: Option<Duration>,
    blind: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let args = std::env::args().skip(1).collect::<Vec<_>>();
    let quick = args.iter().any(|arg| arg == "--quick");
    let number = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)?.parse::<u64>().ok()
    };
    let micros = |name: &str| number(name).map(Duration::from_micros);
    let pace = Pace {
        spin: micros("--spin"),
        awake: micros("--awake"),
        look: micros("--look"),
        blind: args.iter().any(|arg| arg == "--blind"),
    };
    let plan = match quick {
        true => Plan { trips: 5_000, messages: 50_000, wakes: 10, pace },
        false => Plan { trips: 40_000, messages: 400_000, wakes: 50, pace },
    };
    match number("--processors") {
        Some(count) => run(count as usize, plan),
        None => {
            // A new process for each case, so that no thread of the other case is left.
            for count in [1, 2] {
                let mut child = std::process::Command::new(std::env::current_exe()?);
                child.args(&args).args(["--processors", &count.to_string()]);
                if !child.status()?.success() {
                    return Err(format!("the case of {count} processors failed").into());
                }
            }
            Ok(())
        }
    }
}

fn run(processors: usize, plan: Plan) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    if system::pin_to(processors).is_none() {
        println!("skipped: {processors} processors are not to be had here");
        return Ok(());
    }
    let on = format!("{processors} processor{}", if processors == 1 { "" } else { "s" });
    let one = soft::half_trips(&soft::one_device(&plan.pace)?, plan.trips)?;
    let two = soft::half_trips(&soft::two_devices(&plan.pace)?, plan.trips)?;
    let tcp = tcp::half_trips(plan.trips)?;
    print(&on, "half round trip, softhca, one device", &one);
    print(&on, "half round trip, softhca, two devices", &two);
    print(&on, "half round trip, TCP", &tcp);

    let rate = soft::rate(&soft::two_devices(&plan.pace)?, plan.messages)?;
    let tcp_rate = tcp::rate(plan.messages)?;
    println!("{on:<13} {:<42} {rate:>9.0} per second", "messages of 64 bytes, softhca");
    println!("{on:<13} {:<42} {tcp_rate:>9.0} per second", "messages of 64 bytes, TCP");

    let idle = soft::idle(&soft::one_device(&plan.pace)?, Duration::from_secs(1))?;
    println!(
        "{on:<13} {:<42} {:>9.2} % of a core, {:.0} wake-ups per second",
        "idle, softhca", idle.percent, idle.wakes
    );
    let woken = soft::wakes(&soft::one_device(&plan.pace)?, plan.wakes)?;
    let tcp_woken = tcp::wakes(plan.wakes)?;
    print(&on, "first message after 100 ms, softhca", &woken);
    print(&on, "first message after 100 ms, TCP", &tcp_woken);

    println!("ratio half_trip_p50_{processors} {:.2}", tcp.p50 / one.p50);
    println!("ratio half_trip_p99_{processors} {:.2}", tcp.p99 / one.p99);
    println!("ratio half_trip_two_devices_p50_{processors} {:.2}", tcp.p50 / two.p50);
    println!("ratio rate_{processors} {:.2}", rate / tcp_rate);
    println!("ratio woken_p50_{processors} {:.2}", tcp_woken.p50 / woken.p50);
    println!("idle_percent_{processors} {:.3}", idle.percent);
    Ok(())
}

fn print(on: &str, what: &str, times: &Spread) {
    println!("{on:<13} {what:<42} {:>9.1} us  (p99 {:.1})", times.p50, times.p99);
}
