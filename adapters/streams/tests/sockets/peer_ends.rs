//! A stream whose peer process is killed: its last bytes are read, and then the end comes at once.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::time::Duration;

use common::{LIMIT, only_on_softhca};
use uverbs::Device;
use uverbs::softhca::{Carrier, SoftHca, Udp};
use uverbs_streams::StreamOptions;

/// Variable with the address that a child of this program connects to.
const AT: &str = "UVERBS_TEST_AT";
/// Limit of the notice. A stream without keep-alives would wait for ever.
const SOON: Duration = Duration::from_secs(10);

fn options() -> (StreamOptions, Device) {
    let udp = Udp::loopback().by(Carrier::SharedMemory);
    let device = Device::from(SoftHca::builder().udp(udp).build().expect("on loopback"));
    (StreamOptions::new().on(&device).limit(LIMIT), device)
}

/// Body of the child.
#[test]
fn killed_process() {
    let Ok(at) = std::env::var(AT) else { return };
    let (options, _device) = options();
    let mut stream = options.connect(at.as_str()).unwrap();
    stream.write_all(b"last").unwrap();
    while !stream.is_flushed().unwrap() {
        std::thread::yield_now();
    }
    println!("said it");
    std::thread::sleep(LIMIT);
}

#[test]
fn a_killed_peer_ends_the_stream() {
    if !only_on_softhca("the processes meet by shared memory") {
        return;
    }
    let (options, device) = options();
    let listener = options.listen((device.addresses().unwrap()[0], 0)).unwrap();
    let mut child = common::this_program()
        .args(["--exact", "peer_ends::killed_process", "--nocapture"])
        .env(AT, listener.local_addr().unwrap().to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut stream, _) = listener.accept().unwrap();
    let said = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.into_iter().any(|line| line.ends_with("said it")));
    child.kill().unwrap();
    child.wait().unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    let mut text = [0; 4];
    stream.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"last");
    match stream.read(&mut text) {
        Ok(0) => {}
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {}
        other => panic!("{other:?}"),
    }
}
