//! `uverbs softhca serve`, where it can't.

use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Every wait ends here.
const LIMIT: Duration = Duration::from_secs(60);

/// A client waits, and the server may not open one descriptor more: it says so now and then, and takes no processor for it.
#[test]
fn a_server_without_descriptors_is_quiet() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("hca.sock");
    // Standard ones and the listener.
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -n 4 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_uverbs")]);
    limited
        .args(["softhca", "serve", "--socket"])
        .arg(&socket)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let mut server = limited.stderr(Stdio::piped()).spawn().unwrap();
    let start = Instant::now();
    let client = loop {
        match UnixStream::connect(&socket) {
            Ok(client) => break client,
            Err(_) if start.elapsed() < LIMIT => std::thread::sleep(Duration::from_millis(5)),
            Err(error) => panic!("no server: {error}"),
        }
    };
    std::thread::sleep(Duration::from_secs(1));
    server.kill().unwrap();
    let output = server.wait_with_output().unwrap();
    drop(client);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!((1..=15).contains(&said.lines().count()), "{}", said.lines().count());
}
