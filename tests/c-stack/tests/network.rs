//! C programs of the distribution on the network: each process has a software HCA of its own, and
//! RoCEv2 over UDP goes between them.

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(60);

/// A TCP port that is free now.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// Whether somebody listens there (proc(5): state 0A in the fourth column).
fn listens(port: &str) -> bool {
    let port = format!(":{:04X}", port.parse::<u16>().unwrap());
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let text = tables.map(|path| std::fs::read_to_string(path).unwrap_or_default()).concat();
    text.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(3) == Some(&"0A") && words[1].ends_with(&port)
    })
}

/// Runs a server and, once it listens, a client.
fn both(mut server: Command, mut client: Command, port: &str) -> [common::Run; 2] {
    std::thread::scope(|scope| {
        let server = scope.spawn(move || common::run(&mut server));
        let start = Instant::now();
        while !listens(port) && !server.is_finished() {
            assert!(start.elapsed() < LIMIT, "nobody listens at {port}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let client = common::run(&mut client);
        [client, server.join().unwrap()]
    })
}

#[test]
fn ping_pong_between_two_processes() {
    let Some(stack) = common::c_stack() else { return };
    // Sizes below, at and above the MTU; datagrams are one packet.
    for (name, sizes) in [
        ("ibv_rc_pingpong", &["1", "4096", "100000"][..]),
        ("ibv_uc_pingpong", &["1", "4096"]),
        ("ibv_ud_pingpong", &["1", "2048"]),
    ] {
        for (size, carrier) in sizes.iter().flat_map(|size| [(size, ",shm"), (size, ",udp")]) {
            let port = free_port();
            let end = |address: &str, host: &[&str]| {
                let mut command = stack.program(name);
                command.env("UVERBS_SOFTHCA_UDP", address);
                command.args(["-g", "0", "-n", "50", "-s", size, "-p", &port]).args(host);
                command
            };
            let id = std::process::id() as u8;
            let addresses = [1, 2].map(|last| format!("127.55.{id}.{last}{carrier}"));
            let server = end(&addresses[0], &[]);
            let client = end(&addresses[1], &["127.0.0.1"]);
            for run in both(server, client, &port) {
                let text = run.ok().stdout;
                assert!(text.contains("50 iters in"), "{name} {size}{carrier}: {text}");
            }
        }
    }
}

#[test]
fn an_address_that_is_none_is_said() {
    let Some(stack) = common::c_stack() else { return };
    let run = common::run(stack.program("ibv_devices").env("UVERBS_SOFTHCA_UDP", "here"));
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stderr.contains("UVERBS_SOFTHCA_UDP=here: no address"), "{run:?}");
}
