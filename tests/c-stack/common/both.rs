//! Runs two processes: a server that listens at a TCP port, and its client.

use std::process::Command;
use std::time::{Duration, Instant};

use super::{Run, run};

/// Limit of the wait until the server listens.
const LIMIT: Duration = Duration::from_secs(60);

/// A free TCP port.
pub fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// Tests for a listener at a TCP port (proc(5): state 0A in the fourth column).
pub fn listens(port: &str) -> bool {
    let port = format!(":{:04X}", port.parse::<u16>().unwrap());
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let text = tables.map(|path| std::fs::read_to_string(path).unwrap_or_default()).concat();
    text.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.get(3) == Some(&"0A") && words[1].ends_with(&port)
    })
}

/// Runs a server and, once it listens, a client.
pub fn both(mut server: Command, mut client: Command, port: &str) -> [Run; 2] {
    std::thread::scope(|scope| {
        let server = scope.spawn(move || run(&mut server));
        let start = Instant::now();
        while !listens(port) && !server.is_finished() {
            assert!(start.elapsed() < LIMIT, "nobody listens at {port}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let client = run(&mut client);
        // The client's output explains why a server still waits.
        let server = server.join().unwrap_or_else(|_| panic!("no server for {client:?}"));
        [client, server]
    })
}
