//! The first process of the test machine: mounts, loads modules, runs what the plan names, reports, powers off.
//!
//! It is linked statically, so that it runs whatever the image lacks, and says so.

mod port;
mod run;

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use nix::kmod::{ModuleInitFlags, finit_module};
use nix::mount::{MsFlags, mount};
use nix::sys::reboot::{RebootMode, reboot};
use uverbs_vm_init::plan::{PATH, Plan};
use uverbs_vm_init::report::Line;

use port::Port;

/// Where, which kind, and whether the machine can do without.
const MOUNTS: [(&str, &str, bool); 8] = [
    ("/proc", "proc", false),
    ("/sys", "sysfs", false),
    ("/dev", "devtmpfs", false),
    ("/dev/pts", "devpts", false),
    ("/dev/shm", "tmpfs", false),
    ("/tmp", "tmpfs", false),
    ("/run", "tmpfs", false),
    ("/sys/kernel/debug", "debugfs", true),
];

fn main() {
    let mounted = mounts();
    match Port::open() {
        Ok(mut port) => {
            if let Err(why) = mounted.and_then(|()| work(&mut port)) {
                port.say(&Line::Trouble(why));
            }
            port.drain();
        }
        // Without the port there is nobody to tell: the host notices that there is no verdict.
        Err(why) => eprintln!("init: {why}"),
    }
    let Err(error) = reboot(RebootMode::RB_POWER_OFF);
    eprintln!("init: power off: {error}");
}

fn mounts() -> Result<(), String> {
    for (place, kind, optional) in MOUNTS {
        let _ = fs::create_dir_all(place);
        let mounted = mount(Some(kind), place, Some(kind), MsFlags::empty(), None::<&str>);
        match mounted {
            Err(error) if !optional => return Err(format!("mount {kind} on {place}: {error}")),
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
        let end = run::program(port, setup, &plan.environment);
        if !end.is_success() {
            return Err(format!("{}: {end}", setup.name));
        }
    }
    let mut failed = 0;
    for program in &plan.programs {
        if !run::program(port, program, &plan.environment).is_success() {
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
    match finit_module(&file, c"", ModuleInitFlags::empty()) {
        Ok(()) | Err(nix::errno::Errno::EEXIST) => Ok(()),
        Err(error) => Err(format!("{path}: {error}")),
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
