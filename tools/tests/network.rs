//! Two processes, each with a software HCA on the network: by shared memory, and by UDP.

mod common;

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{Run, command, run, skip, uverbs};
use support::processor_ticks;

const LIMIT: Duration = Duration::from_secs(60);

/// A free TCP port.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// Waits for a listener at the port: a client that comes too early gives up.
fn wait_for(server: &mut Child, port: &str) {
    let port = format!(":{:04X} ", port.parse::<u16>().unwrap());
    let start = Instant::now();
    let listens = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        // proc(5): local address in the second column, state 0A (listening) in the fourth.
        words.get(3) == Some(&"0A") && format!("{} ", words[1]).ends_with(&port)
    };
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let text = || tables.map(|path| std::fs::read_to_string(path).unwrap_or_default()).concat();
    while !text().lines().any(listens) {
        assert!(start.elapsed() < LIMIT, "nobody listens");
        assert_eq!(server.try_wait().unwrap(), None, "the server ended early");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a client and a server of a command. `client`: further arguments of the client.
fn two(device: &str, args: &[&str], client: &[&str]) -> [Run; 2] {
    let port = free_port();
    let (what, rest) = args.split_at(args.iter().position(|arg| arg.starts_with('-')).unwrap());
    let common = ["-d", device, "--port", &port];
    let server = [what, &["--server"], &common, rest].concat();
    let mut server = command(&server).spawn().unwrap();
    wait_for(&mut server, &port);
    let client = run(&mut command(&[what, &["127.0.0.1"], &common, rest, client].concat()));
    let server = server.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let server = Run {
        status: server.status.code(),
        stdout: text(server.stdout),
        stderr: text(server.stderr),
    };
    [client, server]
}

#[test]
fn pingpong_between_two_processes() {
    for (size, device) in [
        ("1", "softhca@loopback"),
        ("300", "softhca"),
        ("4096", "softhca@loopback,shm"),
        ("100000", "softhca@loopback,shm"),
        ("100000", "softhca@loopback,udp"),
    ] {
        let runs = two(device, &["pingpong", "-s", size, "-n", "20", "--chk", "--json"], &[]);
        for run in runs {
            let report = run.ok().json();
            assert_eq!((&report["checked"], &report["iterations"]), (&true.into(), &20.into()));
        }
    }
}

#[test]
fn srd_between_two_processes() {
    for (device, connection, size) in [
        ("softefa", "SRD", "8000"),
        ("softefa@loopback", "SRD", "1"),
        ("softefa@loopback,udp", "SRD", "5000"),
        ("softefa@loopback,udp", "UD", "1000"),
    ] {
        let words = ["pingpong", "-c", connection, "-s", size, "-n", "20"];
        for run in two(device, &[&words[..], &["--chk", "--json"]].concat(), &[]) {
            let report = run.ok().json();
            assert_eq!((&report["checked"], &report["iterations"]), (&true.into(), &20.into()));
        }
    }
    for operation in [["send", "lat"], ["send", "bw"], ["write", "bw"], ["read", "bw"]] {
        let size = if operation[0] == "send" { "4K" } else { "1M" };
        let args = [&["perf"], &operation[..], &["-s", size, "-n", "50", "-c", "SRD"]].concat();
        let [client, server] = two("softefa", &args, &["--json"]);
        assert_eq!(client.ok().json()["results"][0]["messages"], 50, "{args:?}");
        server.ok();
    }
}

#[test]
fn shared_queues_between_two_processes() {
    for words in [&["-c", "XRC"][..], &["--use-srq"], &["-c", "XRC", "--events"]] {
        let args = [&["pingpong", "-s", "10000", "-n", "20", "--chk", "--json"], words].concat();
        for run in two("softhca@loopback", &args, &[]) {
            let report = run.ok().json();
            assert_eq!((&report["checked"], &report["iterations"]), (&true.into(), &20.into()));
        }
        let words = &words[..words.len().min(2)];
        for operation in [["send", "lat"], ["send", "bw"]] {
            let args = [&["perf"], &operation[..], &["-s", "4K", "-n", "50"], words].concat();
            let [client, server] = two("softhca@loopback", &args, &["--json"]);
            assert_eq!(client.ok().json()["results"][0]["messages"], 50, "{args:?}");
            server.ok();
        }
    }
}

#[test]
fn dynamic_connections_between_two_processes() {
    for operation in [["send", "lat"], ["write", "bw"], ["read", "lat"], ["atomic", "bw"]] {
        let size = if operation[0] == "atomic" { "8" } else { "4K" };
        let args = [&["perf"], &operation[..], &["-s", size, "-n", "50", "-c", "DC"]].concat();
        let [client, server] = two("softhca@loopback", &args, &["--json"]);
        assert_eq!(client.ok().json()["results"][0]["messages"], 50, "{args:?}");
        server.ok();
    }
}

#[test]
fn perf_between_two_processes() {
    let both = ["softhca@loopback,udp", "softhca@loopback,shm"];
    let tests =
        [("write", "lat"), ("send", "bw"), ("read", "bw"), ("write", "bw"), ("atomic", "lat")];
    for ((operation, test), device) in tests.iter().flat_map(|test| both.map(|on| (*test, on))) {
        let size = if operation == "atomic" { "8" } else { "64K" };
        let args = ["perf", operation, test, "-s", size, "-n", "50"];
        let [client, server] = two(device, &args, &["--json"]);
        let report = client.ok().json();
        assert_eq!(report["results"][0]["messages"], 50, "{report}");
        server.ok();
    }
}

#[test]
fn a_peer_that_is_killed_ends_the_other() {
    for (device, connection) in [
        ("softhca@loopback,shm", "RC"),
        ("softhca@loopback,udp", "RC"),
        ("softefa", "SRD"),
        ("softefa@loopback,udp", "SRD"),
    ] {
        let port = free_port();
        let common = ["pingpong", "-d", device, "--port", &port, "-n", "100000000"];
        let common = [&common[..], &["-c", connection, "--timeout", "20"]].concat();
        let mut server = command(&[&common[..], &["--server"]].concat()).spawn().unwrap();
        wait_for(&mut server, &port);
        let mut client = command(&[&common[..], &["127.0.0.1"]].concat()).spawn().unwrap();
        // During the exchange, which polls. Before it begins, a closed TCP connection would end it.
        let start = Instant::now();
        while processor_ticks(client.id()) < 30 {
            assert_eq!(client.try_wait().unwrap(), None, "{device}: it ended early");
            assert!(start.elapsed() < LIMIT, "{device}: it does not poll");
            std::thread::sleep(Duration::from_millis(20));
        }
        server.kill().unwrap();
        server.wait().unwrap();
        let start = Instant::now();
        while client.try_wait().unwrap().is_none() {
            assert!(start.elapsed() < LIMIT, "{device}: it waits for ever");
            std::thread::sleep(Duration::from_millis(5));
        }
        let client = client.wait_with_output().unwrap();
        let says = String::from_utf8(client.stderr).unwrap();
        assert!(!client.status.success() && says.contains("iteration "), "{device}: {says}");
    }
}

#[test]
fn devinfo_shows_the_counters_of_each_wire() {
    let args = ["devinfo", "-v", "-i", "1", "--json", "-d"];
    let report = uverbs(&[&args[..], &["softhca@loopback"]].concat()).ok().json();
    let counters = &report["devices"][0]["ports"][0]["counters"];
    for (group, name) in [
        ("transport", "duplicates"),
        ("udp", "congested"),
        ("udp", "bad_icrc"),
        ("shared_memory", "sent"),
    ] {
        assert_eq!(counters[group][name], 0, "{counters}");
    }
    let report = uverbs(&[&args[..], &["softhca@loopback,udp"]].concat()).ok().json();
    let counters = &report["devices"][0]["ports"][0]["counters"];
    assert!(counters["shared_memory"].is_null() && counters["udp"]["sent"] == 0, "{counters}");
}

#[test]
fn two_unprivileged_namespaces_meet() {
    let unshared = |args: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net"]).args(args).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let may =
        unshared(&["ip", "link", "add", "near", "type", "veth", "peer", "name", "far"]).output();
    if !may.is_ok_and(|tried| tried.status.success()) {
        return skip("no network namespaces with veth here, or no unshare, or no ip");
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/namespaces.sh");
    let mut command = unshared(&["sh", script]);
    let run = run(command.env("UVERBS", env!("CARGO_BIN_EXE_uverbs")));
    assert_eq!(run.status, Some(0), "{run:?}");
}

#[test]
fn an_address_that_cannot_be_had_is_one_line() {
    for (name, says) in [
        ("softhca@192.0.2.1", "UDP port 4791 of 192.0.2.1 can't be had: this host has no such"),
        ("softhca@somewhere", "\"somewhere\" is no address: 127.0.0.2"),
        ("softefa@192.0.2.1", "UDP port 4793 of 192.0.2.1 can't be had: this host has no such"),
        ("softefa@somewhere", "\"somewhere\" is no address: 127.0.0.2"),
    ] {
        let run = uverbs(&["pingpong", "-d", name, "-n", "1"]);
        assert!(run.complaint(1).contains(says), "{run:?}");
    }
}
