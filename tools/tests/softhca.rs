//! `uverbs softhca serve` in failures and with two devices.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(60);

/// A client waits while the server may open no more descriptors. The server reports that now and
/// then, and uses no processor time.
#[test]
fn a_server_without_descriptors_is_quiet() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("hca.sock");
    // Standard ones, the bell, the pipe of its signals and the listener.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 6 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_uverbs")]);
    limited
        .args(["softhca", "serve", "--socket"])
        .arg(&socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut server = limited.stderr(Stdio::piped()).spawn().unwrap();
    let (says, said) = std::sync::mpsc::channel();
    let lines = BufReader::new(server.stderr.take().unwrap()).lines();
    let reader = std::thread::spawn(move || {
        lines.map_while(Result::ok).try_for_each(|line| says.send(line))
    });
    let client = connect(&socket);
    let first = said.recv_timeout(LIMIT);
    std::thread::sleep(Duration::from_secs(1));
    server.kill().unwrap();
    server.wait().unwrap();
    reader.join().unwrap().unwrap();
    drop(client);
    let more = said.into_iter().count();
    assert!(first.is_ok() && more < 15, "{first:?} and {more} more lines");
}

/// Two devices: each serves its client, each line of the log names its device, and with `--once`
/// the program ends after both.
#[test]
fn a_server_of_two_devices_serves_both() {
    let dir = tempfile::tempdir().unwrap();
    let [one, two, log] = ["one.sock", "two.sock", "log"].map(|name| dir.path().join(name));
    let mut command = Command::new(env!("CARGO_BIN_EXE_uverbs"));
    command.args(["softhca", "serve", "--once", "--number", "8", "--socket"]).arg(&one);
    command.arg("--socket").arg(&two).arg("--log").arg(&log).stdin(Stdio::null());
    let mut server = command.spawn().unwrap();
    for path in [&two, &one] {
        assert_eq!(server.try_wait().unwrap(), None, "one of its devices has no client yet");
        drop(connect(path));
    }
    let start = Instant::now();
    while server.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < LIMIT);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(server.wait().unwrap().success());
    let log = std::fs::read_to_string(log).unwrap();
    assert!(log.lines().all(|line| line.starts_with("8 ") || line.starts_with("9 ")), "{log}");
    assert!(log.lines().any(|line| line.starts_with("9 ") && line.contains("reset")), "{log}");
}

/// Connects to the server, once it listens.
fn connect(path: &Path) -> UnixStream {
    let start = Instant::now();
    loop {
        match UnixStream::connect(path) {
            Ok(client) => return client,
            Err(_) if start.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => panic!("no server: {error}"),
        }
    }
}
