//! Commands that connect by IP address: `send-file` and `recv-file`, `rping`, `rstream`, `cm
//! watch`, `multicast`. Two processes, each with a software HCA on the network.

mod common;

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use common::{Run, command, interrupt, run, skip, uverbs};

/// Two addresses of the loopback network, unique per test.
fn addresses() -> [String; 2] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let (number, pid) = (NEXT.fetch_add(2, Ordering::Relaxed), std::process::id());
    [number, number + 1].map(|last| format!("127.{}.{}.{last}", pid >> 8 & 0x7f, pid & 0xff))
}

/// Starts a server, and returns when it listens.
fn serve(command: Command) -> Child {
    serve_at(command).0
}

/// Starts a server, and returns it with the IP address that it prints.
fn serve_at(mut command: Command) -> (Child, String) {
    let mut child = command.spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let at = line.trim().strip_prefix("uverbs: listening at ").expect(&line);
    // Its later messages are read at the end.
    child.stderr = Some(errors.into_inner());
    (child, at.rsplit_once(':').expect(&line).0.to_owned())
}

fn ended(child: Child) -> Run {
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Run { status: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs a client and a server of a command.
fn two(what: &str, client: &[&str], server: &[&str]) -> [Run; 2] {
    let [there, here] = addresses();
    let at = format!("softhca@{there}");
    let served = serve(command(&[&[what, "--server", "-d", &at], server].concat()));
    let device = format!("softhca@{here}");
    let client = uverbs(&[&[what, &there, "-d", &device], client].concat());
    [client, ended(served)]
}

#[test]
fn pings_come_back() {
    let [client, server] = two("rping", &["-n", "30", "-s", "5000", "--json"], &["--json"]);
    assert_eq!(client.ok().json()["pings"], 30);
    assert_eq!(server.ok().json()["pings"], 30);
    // More bytes than the server accepts.
    let [client, server] = two("rping", &["-s", "5000"], &["-s", "4999"]);
    assert_eq!((client.status, server.status), (Some(1), Some(1)));
    assert!(server.stderr.contains("5000 bytes, more than --size 4999"), "{}", server.stderr);
}

/// Without an option, as in two terminals of a machine without RDMA devices.
#[test]
fn two_processes_meet_by_default() {
    if !uverbs::devices().unwrap().is_empty() {
        skip("this machine has RDMA devices");
        return;
    }
    for what in ["rping", "rstream"] {
        let (server, at) = serve_at(command(&[what, "--server", "-n", "3", "--json"]));
        assert_ne!(at, "0.0.0.0");
        uverbs(&[what, &at, "-n", "3", "--json"]).ok();
        ended(server).ok();
    }
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("file"), dir.path().join("received"));
    std::fs::write(&file, "from one terminal to another").unwrap();
    std::fs::create_dir(&out).unwrap();
    let (receiver, at) = serve_at(receiver(&out, &[]));
    uverbs(&["send-file", file.to_str().unwrap(), &at]).ok();
    ended(receiver).ok();
    assert_eq!(std::fs::read(&file).unwrap(), std::fs::read(out.join("file")).unwrap());
}

#[test]
fn ctrl_c_leaves_no_part_of_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("file"), folder.path().join("out"));
    // 65,536 pieces take some seconds.
    std::fs::File::create(&file).unwrap().set_len(16 << 20).unwrap();
    std::fs::create_dir(&out).unwrap();
    let (receiver, at) = serve_at(receiver(&out, &["--piece", "256"]));
    let sender = command(&["send-file", file.to_str().unwrap(), &at]).spawn().unwrap();
    let started = Instant::now();
    while names(&out).is_empty() {
        assert!(started.elapsed() < Duration::from_secs(60), "no part of the file came");
        std::thread::sleep(Duration::from_millis(10));
    }
    interrupt(&receiver, Duration::ZERO);
    assert_eq!(receiver.wait_with_output().unwrap().status.signal(), Some(2));
    assert_eq!(names(&out), [""; 0]);
    assert!(!sender.wait_with_output().unwrap().status.success());
}

#[test]
fn streams_carry_every_byte() {
    for args in [&["-s", "700", "--count", "300"][..], &["-s", "100000", "--count", "7", "-n", "3"]]
    {
        for mode in [&["--chk", "--json"][..], &["--chk", "--json", "--mapped"]] {
            let args = [args, mode].concat();
            for run in two("rstream", &args, &args) {
                assert_eq!(run.ok().json()["checked"], true);
            }
        }
    }
}

#[test]
fn whoever_asks_is_watched_and_refused() {
    let [there, here] = addresses();
    let at = format!("softhca@{there}");
    let watch = serve(command(&["cm", "watch", "-d", &at, "-n", "1", "--json"]));
    let device = format!("softhca@{here}");
    let client = uverbs(&["rping", &there, "-p", "7471", "-d", &device]);
    assert_eq!(client.status, Some(1));
    assert!(client.stderr.contains("rejected by the peer's program"), "{}", client.stderr);
    let event = ended(watch).ok().json();
    assert_eq!((&event["event"], &event["space"]), (&"ConnectRequest".into(), &"tcp".into()));
    assert!(event["peer"].as_str().unwrap().starts_with(&here), "{event}");
    // Resolves a route.
    let way = uverbs(&["cm", "watch", &there, "-d", &device]).ok();
    let kinds = ["AddressResolved", "RouteResolved"];
    assert!(kinds.iter().all(|kind| way.stdout.contains(kind)), "{}", way.stdout);
}

/// Starts a member of a group, and returns when it has joined.
fn member(group: &str, device: &str, count: &str) -> Child {
    let words = ["multicast", group, "-n", count, "-d", device, "--timeout", "20", "--json"];
    let mut child = command(&words).spawn().unwrap();
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    assert!(line.contains("joined"), "{line}");
    child.stderr = Some(errors.into_inner());
    child
}

/// Two members and a sender are three processes. Each member receives what the sender sends, by
/// each carrier.
#[test]
fn a_group_reaches_every_process_that_joined() {
    let group = format!("239.78.{}.{}", std::process::id() >> 8 & 0xff, std::process::id() & 0xff);
    for carrier in ["", ",udp", ",shm"] {
        let ([one, two], [from, _]) = (addresses(), addresses());
        let [one, two, from] = [one, two, from].map(|at| format!("softhca@{at}{carrier}"));
        let (early, late) = (member(&group, &one, "14"), member(&group, &two, "14"));
        for _ in 0..2 {
            let words = ["multicast", &group, "--send", "-n", "7", "-d", &from, "--json"];
            assert_eq!(uverbs(&words).ok().json()["datagrams"], 7);
        }
        for heard in [ended(early), ended(late)] {
            let heard = heard.ok().json();
            assert_eq!((&heard["datagrams"], &heard["bytes"]), (&14.into(), &1400.into()));
        }
        let words = ["multicast", &group, "-d", &one, "--timeout", "0.2"];
        let heard = uverbs(&words);
        assert_eq!(heard.status, Some(1));
        assert!(heard.stderr.contains("a datagram did not come"), "{}", heard.stderr);
    }
}

#[test]
fn an_address_that_is_no_group_is_refused() {
    let device = format!("softhca@{}", addresses()[0]);
    let wrong = uverbs(&["multicast", "10.0.0.1", "-d", &device]);
    assert_eq!(wrong.status, Some(2));
}

/// Sends `file` to the receiver `receiver` with these options.
fn sent(file: &Path, name: &[&str], receiver: Command) -> [Run; 2] {
    let [there, here] = addresses();
    let mut receiver = receiver;
    receiver.args(["-d", &format!("softhca@{there}")]);
    let receiver = serve(receiver);
    let device = format!("softhca@{here}");
    let words = ["send-file", file.to_str().unwrap(), &there, "-d", &device, "--timeout", "20"];
    let sender = uverbs(&[&words, name].concat());
    [sender, ended(receiver)]
}

fn receiver(out: &Path, options: &[&str]) -> Command {
    let out = out.to_str().unwrap();
    command(&[&["recv-file", "--out", out, "--timeout", "20"], options].concat())
}

/// File names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn a_file_arrives_whole_and_under_its_name() {
    let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let file = from.path().join("data.bin");
    for (len, options) in [
        (0, &[][..]),
        (1, &[]),
        (3_000_001, &["--piece", "64K", "--force"]),
        (300, &["--piece", "1", "--pieces", "32", "--force"]),
    ] {
        let bytes: Vec<u8> =
            (0..len).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        std::fs::write(&file, &bytes).unwrap();
        let name = format!("as-{len}");
        let [sender, receiver] = sent(&file, &["--name", &name], receiver(to.path(), options));
        sender.ok();
        receiver.ok();
        assert!(std::fs::read(to.path().join(&name)).unwrap() == bytes, "{len}");
    }
    assert_eq!(names(to.path()).len(), 4, "nothing else is left");
}

#[test]
fn a_file_that_is_there_is_left_as_it_is() {
    let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let file = from.path().join("data.bin");
    std::fs::write(&file, b"new").unwrap();
    std::fs::write(to.path().join("data.bin"), b"old").unwrap();
    let [sender, got] = sent(&file, &[], receiver(to.path(), &[]));
    assert_eq!((sender.status, got.status), (Some(1), Some(1)));
    assert!(sender.stderr.contains("the receiver refuses the file"), "{}", sender.stderr);
    assert_eq!(std::fs::read(to.path().join("data.bin")).unwrap(), b"old");
    let [sender, _] = sent(&file, &[], receiver(to.path(), &["--force"]));
    sender.ok();
    assert_eq!(std::fs::read(to.path().join("data.bin")).unwrap(), b"new");
}

/// A failed transfer leaves no file under the name.
#[test]
fn a_file_that_changes_meanwhile_is_not_kept() {
    let to = tempfile::tempdir().unwrap();
    // This file has other contents at each read.
    let [sender, got] =
        sent(Path::new("/proc/sys/kernel/random/uuid"), &[], receiver(to.path(), &[]));
    assert_eq!((sender.status, got.status), (Some(1), Some(1)));
    assert!(sender.stderr.contains("changed while it was sent"), "{}", sender.stderr);
    assert!(names(to.path()).is_empty(), "{:?}", names(to.path()));
}

#[test]
fn a_full_disk_is_told_to_both() {
    let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let file = from.path().join("data.bin");
    std::fs::write(&file, vec![7; 3_000_000]).unwrap();
    // The limit of 512 KiB makes a write fail, as on a full disk.
    let mut limited = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_uverbs");
    let script = format!("trap '' XFSZ; ulimit -f 1024; exec {program} recv-file \"$@\"");
    limited.args(["-c", &script, "sh", "--out", to.path().to_str().unwrap()]);
    limited.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let [sender, got] = sent(&file, &[], limited);
    assert_eq!((sender.status, got.status), (Some(1), Some(1)));
    for run in [&sender, &got] {
        assert!(run.stderr.contains("File too large"), "{}", run.stderr);
    }
    assert!(names(to.path()).is_empty());
}

#[test]
fn a_receiver_that_dies_ends_the_sender() {
    let [from, to] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let path = from.path().join("data.bin");
    let mut file = std::fs::File::create(&path).unwrap();
    file.write_all(b"long").unwrap();
    file.set_len(400 << 20).unwrap();
    let [there, here] = addresses();
    let mut receiver = receiver(to.path(), &["--piece", "4K"]);
    receiver.args(["-d", &format!("softhca@{there}")]);
    let mut receiver = serve(receiver);
    let device = format!("softhca@{here}");
    let words = ["send-file", path.to_str().unwrap(), &there, "-d", &device, "--timeout", "5"];
    let mut sender = command(&words);
    let killer = std::thread::spawn({
        let to = to.path().to_owned();
        move || {
            let start = Instant::now();
            // As soon as the transfer has begun.
            while names(&to).is_empty() && start.elapsed().as_secs() < 60 {
                std::thread::sleep(Duration::from_millis(5));
            }
            receiver.kill().unwrap();
            receiver.wait().unwrap();
        }
    });
    let sender = run(&mut sender);
    killer.join().unwrap();
    assert_eq!(sender.status, Some(1), "{sender:?}");
    assert!(!to.path().join("data.bin").exists());
}

#[test]
fn bad_arguments_are_told_by_name() {
    let to = tempfile::tempdir().unwrap();
    let path = to.path().join("x");
    std::fs::write(&path, b"x").unwrap();
    let file = path.to_str().unwrap();
    for (args, says) in [
        (&["send-file", file, "127.0.0.1", "--name", "../x"][..], "--name ../x"),
        (&["send-file", file, "127.0.0.1", "--name", ".x"], "--name .x"),
        (&["send-file", file, "127.0.0.1", "--name", "\u{202e}x"], "--name \\u{202e}x"),
        (&["send-file", "/nonexistent", "127.0.0.1"], "/nonexistent"),
        (&["recv-file", "--out", "/nonexistent"], "--out /nonexistent"),
        (&["recv-file", "--piece", "1G"], "--piece"),
        (&["rping", "--server", "-s", "20"], "--size 20"),
        (&["rstream", "127.0.0.1", "-s", "2G"], "--size"),
        (&["rping"], "<HOST>"),
    ] {
        let run = uverbs(args);
        assert!(matches!(run.status, Some(1 | 2)), "{args:?}: {run:?}");
        assert!(run.stderr.contains(says), "{args:?}: {}", run.stderr);
    }
}
