//! The first process of the test machine: mounts file systems, loads modules, runs the plan's
//! programs, reports, powers off.
//!
//! It is linked statically, so that it runs, and can report what is missing, in any image.

mod port;
mod run;

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use std::process::Command;

use uverbs_vm_init::plan::{PATH, Plan};
use uverbs_vm_init::report::Line;
use uverbs_vm_init::sys;

use port::Port;

/// Place and kind of each file system, and whether it is optional.
const MOUNTS: [(&str, &CStr, bool); 8] = [
    ("/proc", c"proc", false),
    ("/sys", c"sysfs", false),
    ("/dev", c"devtmpfs", false),
    ("/dev/pts", c"devpts", false),
    ("/dev/shm", c"tmpfs", false),
    ("/tmp", c"tmpfs", false),
    ("/run", c"tmpfs", false),
    ("/sys/kernel/debug", c"debugfs", true),
];

fn main() {
    let mounted = mounts();
    match Port::open() {
        Ok(mut port) => {
            // Only what goes by 127.0.0.1 misses it, and says so.
            let _ = sys::loopback_up();
            if let Err(why) = mounted.and_then(|()| work(&mut port)) {
                port.say(&Line::Trouble(why));
            }
            port.drain();
        }
        // Without the port nothing can be reported. The host notices that there is no verdict.
        Err(why) => eprintln!("init: {why}"),
    }
    eprintln!("init: power off: {}", sys::power_off());
}

fn mounts() -> Result<(), String> {
    for (place, kind, optional) in MOUNTS {
        let _ = fs::create_dir_all(place);
        match sys::mount(kind, place) {
            Err(error) if !optional => return Err(format!("mount {kind:?} on {place}: {error}")),
            _ => {}
        }
    }
    Ok(())
}

fn work(port: &mut Port) -> Result<(), String> {
    port.say(&Line::Hello);
    let text = fs::read_to_string(PATH).map_err(|error| format!("{PATH}: {error}"))?;
    let plan = Plan::parse(&text)?;
    for module in &plan.modules {
        load(module)?;
    }
    if let Some(setup) = &plan.setup {
        let end = run::program(port, setup, &plan.environment)?;
        if !end.is_success() {
            return Err(format!("{}: {end}", setup.name));
        }
    }
    let mut failed = 0;
    for program in &plan.programs {
        if !run::program(port, program, &plan.environment)?.is_success() {
            failed += 1;
        }
    }
    if plan.shell {
        shell(&plan);
    }
    port.say(&Line::Verdict { passed: plan.programs.len() - failed, failed });
    Ok(())
}

fn load(path: &str) -> Result<(), String> {
    let file = File::open(path).map_err(|error| format!("{path}: {error}"))?;
    match sys::load_module(&file) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(format!("{path}: {error}")),
        _ => Ok(()),
    }
}

/// A shell on the console, until it is left.
fn shell(plan: &Plan) {
    let mut command = Command::new("/bin/busybox");
    command.args(["setsid", "cttyhack", "sh"]).envs(plan.environment.iter().cloned());
    if Path::new("/root").is_dir() {
        command.current_dir("/root");
    }
    if let Err(error) = command.status() {
        eprintln!("init: shell: {error}");
    }
}
