//! Does what a guest must not do. The harness must notice each: `cargo xtask vm --self-test`.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use uverbs_vm_init::report::{Line, PORT};
use uverbs_vm_init::sys;

/// Longer than any limit.
const LONG: Duration = Duration::from_secs(3600);

fn main() -> ExitCode {
    let what = std::env::args().nth(1).unwrap_or_default();
    match what.as_str() {
        "behave" => ExitCode::SUCCESS,
        "panic" => panic!("as it was told to"),
        "abort" => std::process::abort(),
        "hang" => {
            thread::sleep(LONG);
            ExitCode::SUCCESS
        }
        // A child that outlives its parent and keeps the output open.
        "orphan" => {
            let child = std::process::Command::new("/vm/misbehave").arg("hang").spawn();
            ExitCode::from(u8::from(child.is_err()))
        }
        "no-verdict" => {
            eprintln!("misbehave: {}", sys::power_off());
            ExitCode::FAILURE
        }
        "two-verdicts" => say(&format!("{}\n", Line::Verdict { passed: 1, failed: 0 })),
        "skip" => {
            println!("skipped: a::test: a reason");
            ExitCode::SUCCESS
        }
        "noise" => say("what is this\n"),
        "crash" => written("/proc/sysrq-trigger", "c"),
        // The kernel's own words, into its log.
        "warn" => {
            written("/dev/kmsg", "<4>WARNING: CPU: 0 PID: 1 at kernel/none.c:1 none+0x0/0x0\n")
        }
        "silence" => silence(),
        _ => {
            eprintln!("misbehave: how?");
            ExitCode::from(2)
        }
    }
}

/// Writes to the results port, which only the first process may do.
fn say(text: &str) -> ExitCode {
    written(PORT, text)
}

fn written(path: &str, text: &str) -> ExitCode {
    let file = OpenOptions::new().write(true).open(path);
    let done = file.and_then(|mut file| file.write_all(text.as_bytes()));
    ExitCode::from(u8::from(done.is_err()))
}

/// Stops the results port, so that the first process can report nothing more.
fn silence() -> ExitCode {
    let file = OpenOptions::new().write(true).open(PORT);
    let done = file.and_then(|file| sys::stop_output(&file));
    thread::sleep(LONG);
    ExitCode::from(u8::from(done.is_err()))
}
