//! Our own command line on the preloaded device: it takes it for the kernel's, so discovery in sysfs and the real door
//! (`open`, `ioctl` and `mmap` of a device node) are at work, which no test in process reaches.

mod common;

use std::path::Path;
use std::process::Command;

/// The command line, built by `cargo xtask judge`, or a stated skip.
fn tool(args: &[&str]) -> Option<Command> {
    let Some(path) = std::env::var_os("UVERBS_TOOL").filter(|path| !path.is_empty()) else {
        eprintln!("skipped: UVERBS_TOOL is not set (`cargo xtask judge` sets it)");
        return None;
    };
    let mut command = common::preloaded(Path::new(&path));
    command.args(args);
    Some(command)
}

#[test]
fn it_finds_the_device() {
    let Some(mut command) = tool(&["devices"]) else { return };
    let run = common::run(&mut command).ok();
    let last: Vec<_> = run.stdout.lines().last().unwrap().split_whitespace().collect();
    assert_eq!(last, ["softhca0", "00ca05fffe000001", "mlx5", "1", "PORT_ACTIVE", "Ethernet"]);
}

#[test]
fn it_moves_data() {
    for link in ["eth", "ib"] {
        for opcode in ["send", "write-imm", "read", "fetch-add"] {
            let args = ["pingpong", "-d", "softhca0", "--iters", "200", "--opcode", opcode];
            let Some(mut command) = tool(&args) else { return };
            let run = common::run(command.env("UVERBS_SOFTHCA_LINK", link)).ok();
            assert!(run.stdout.contains("verified"), "{run:?}");
            assert!(!run.stderr.contains("embedded"), "{run:?}");
        }
    }
}
