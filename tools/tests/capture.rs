//! `uverbs capture`, and tshark's reading of its files.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{command, run, skip};

/// Directory that is removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("uverbs-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Captures `uverbs` with these arguments, and returns the file.
fn capture(folder: &Folder, name: &str, args: &[&str]) -> PathBuf {
    let file = folder.0.join(name);
    let mut words = vec!["capture", "-w", file.to_str().unwrap(), "--"];
    words.push(env!("CARGO_BIN_EXE_uverbs"));
    words.extend(args);
    let run = run(&mut command(&words)).ok();
    assert!(run.stderr.contains(" packets in "), "{run:?}");
    file
}

/// Command of tshark, from the directory of Debian packages that the variable names.
fn tshark() -> Option<Command> {
    let Some(root) = std::env::var_os("UVERBS_TSHARK_ROOT").filter(|root| !root.is_empty()) else {
        skip("UVERBS_TSHARK_ROOT is not set (`cargo xtask captures` sets it)");
        return None;
    };
    let root = Path::new(&root);
    let mut command = Command::new(root.join("usr/bin/tshark"));
    let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
    let libraries = libraries.map(|path| root.join(path).display().to_string()).join(":");
    command.env("LD_LIBRARY_PATH", libraries).env("HOME", "/nonexistent").env("LC_ALL", "C");
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    Some(command)
}

/// Opcodes of all packets, and number of packets with a Q_Key. Checks that tshark reads each packet
/// as InfiniBand, and reports neither a malformed packet nor a warning.
fn well_formed(file: &Path) -> Option<(Vec<String>, usize)> {
    let mut command = tshark()?;
    command.arg("-r").arg(file).args(["-o", "ip.check_checksum:TRUE", "-T", "fields"]);
    for name in [
        "frame.protocols",
        "_ws.malformed",
        "_ws.expert.message",
        "infiniband.deth.q_key",
        "infiniband.bth.opcode",
    ] {
        command.args(["-e", name]);
    }
    let run = run(&mut command);
    assert_eq!(run.status, Some(0), "{run:?}");
    let (mut opcodes, mut datagrams) = (Vec::new(), 0);
    for line in run.stdout.lines() {
        let [protocols, malformed, warning, qkey, opcode] =
            line.split('\t').collect::<Vec<_>>()[..]
        else {
            panic!("{line}");
        };
        assert!(protocols.contains("udp:infiniband"), "{line}");
        assert_eq!((malformed, warning), ("", ""), "{line}");
        datagrams += usize::from(!qkey.is_empty());
        opcodes.push(opcode.to_owned());
    }
    Some((opcodes, datagrams))
}

const DEVICES: [&str; 3] = ["softhca0", "softhca@loopback,udp", "softhca@loopback,shm"];

#[test]
fn every_wire_and_operation_is_well_formed() {
    let folder = Folder::new("captures");
    for (count, device) in DEVICES.into_iter().enumerate() {
        for operation in ["write", "read", "send", "atomic"] {
            let size = if operation == "atomic" { "8" } else { "5000" };
            let name = format!("{count}-{operation}.pcapng");
            let args = ["perf", operation, "lat", "-d", device, "-n", "20", "-s", size];
            let file = capture(&folder, &name, &args);
            let Some((opcodes, _)) = well_formed(&file) else { return };
            assert!(opcodes.len() >= 80, "{device} {operation}: {opcodes:?}");
            // WRITE ONLY or FIRST, READ request, SEND ONLY or FIRST, FETCH AND ADD or COMPARE SWAP.
            let own: &[&str] = match operation {
                "write" => &["6", "10"],
                "read" => &["12"],
                "send" => &["0", "4"],
                _ => &["19", "20"],
            };
            let has = |opcode: &String| own.contains(&opcode.as_str());
            assert!(opcodes.iter().any(has), "{device} {operation}: {opcodes:?}");
        }
    }
}

#[test]
fn datagrams_say_where_from() {
    let folder = Folder::new("datagrams");
    for device in DEVICES {
        let file = folder.0.join("datagrams.pcapng");
        let _ = std::fs::remove_file(&file);
        let args = ["pingpong", "-d", device, "--connection", "UD", "-n", "20", "-s", "1000"];
        let file = capture(&folder, "datagrams.pcapng", &args);
        let Some((opcodes, datagrams)) = well_formed(&file) else { return };
        assert!(opcodes.len() >= 40, "{device}: {opcodes:?}");
        assert_eq!(opcodes.len(), datagrams, "{device}");
    }
}

#[test]
fn what_is_there_is_not_overwritten_and_nothing_is_a_failure() {
    let folder = Folder::new("refusals");
    let file = capture(&folder, "once.pcapng", &["pingpong", "-n", "1"]);
    let path = file.to_str().unwrap();
    let again = ["capture", "-w", path, "--", "true"];
    assert!(run(&mut command(&again)).complaint(1).contains("once.pcapng"));
    let nothing = folder.0.join("nothing.pcapng");
    let path = nothing.to_str().unwrap();
    let run_of = |program: &str| run(&mut command(&["capture", "-w", path, "--", program]));
    assert!(run_of("true").complaint(1).contains("sent nothing through a software HCA"));
    assert_eq!(run_of("false").status, Some(1));
    assert!(run_of("/nonexistent").complaint(1).contains("/nonexistent"));
}
