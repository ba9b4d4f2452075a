//! Keep-alives of streams: they do not disturb the traffic, and detect that the peer's host is
//! gone.

use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::thread;
use std::time::{Duration, Instant};

use common::{LIMIT, device_with_address, skip};
use uverbs::softhca::{SoftHca, Udp};
use uverbs::{Device, Status};
use uverbs_streams::{RdmaStream, StreamError, StreamOptions};

const OFTEN: Duration = Duration::from_millis(20);

fn options(device: &Device) -> StreamOptions {
    StreamOptions::new().on(device).limit(LIMIT).keep_alive(OFTEN)
}

/// Two ends, which both send keep-alives.
fn pair(here: &Device, there: &Device, ip: IpAddr) -> [RdmaStream; 2] {
    let listener = options(there).listen((ip, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    let accepting = thread::spawn(move || listener.accept().unwrap().0);
    let stream = options(here).connect(addr).unwrap();
    [stream, accepting.join().unwrap()]
}

fn talk(from: &RdmaStream, to: &RdmaStream) {
    (&mut &*from).write_all(b"still here").unwrap();
    to.set_read_timeout(Some(LIMIT)).unwrap();
    let mut text = [0; 10];
    (&mut &*to).read_exact(&mut text).unwrap();
    assert_eq!(&text, b"still here");
}

#[test]
fn keep_alives_disturb_nobody() {
    let Some((device, ip)) = device_with_address() else { return };
    let [one, other] = pair(&device, &device, ip);
    for _ in 0..3 {
        // The streams are idle: the keep-alive thread alone polls the completions.
        thread::sleep(10 * OFTEN);
        talk(&one, &other);
        talk(&other, &one);
    }
    drop(one);
    assert_eq!((&mut &other).read(&mut [0; 1]).unwrap(), 0, "the end, and no failure");
}

/// Only a keep-alive tells a reader that the host is gone: a reader sends no message of which the
/// acknowledgement could be missing.
#[test]
fn a_peer_whose_host_vanishes_is_noticed() {
    if !common::only_on_softhca("the devices are the test's own, and the test unplugs a cable") {
        return;
    }
    let Ok(there) = SoftHca::builder().udp(Udp::loopback()).build() else {
        return skip("no socket on the loopback network");
    };
    let here = SoftHca::builder().udp(Udp::loopback()).build().unwrap();
    let ip = common::soft(&there).addresses().unwrap()[0];
    let [stream, peer] = pair(&common::soft(&here), &common::soft(&there), ip);
    talk(&stream, &peer);
    talk(&peer, &stream);
    // Until all that the streams said to each other has arrived.
    thread::sleep(Duration::from_millis(500));
    there.link_down();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    let error = (&mut &stream).read(&mut [0; 1]).unwrap_err();
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    let Some(StreamError::Failed(failure)) = inner else { panic!("{error:?}") };
    assert_eq!(failure.status, Status::RetryExceeded);
}

/// The thread ends with the last stream, though the next keep-alive is an hour away.
#[test]
fn no_thread_is_left() {
    let Some((device, ip)) = device_with_address() else { return };
    // No other test has this interval; its seconds are in the thread's name.
    let name = "keep-alive 3600\n";
    let threads = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|it| it == name).count()
    };
    let hourly = options(&device).keep_alive(Duration::from_secs(3600));
    let listener = hourly.listen((ip, 0)).unwrap();
    let addr = listener.local_addr().unwrap();
    let accepting = thread::spawn(move || listener.accept().unwrap().0);
    let mut streams = vec![hourly.connect(addr).unwrap(), accepting.join().unwrap()];
    // A thread gives itself its name, when it first runs.
    let start = Instant::now();
    while threads() == 0 {
        assert!(start.elapsed() < LIMIT, "no thread");
        thread::sleep(Duration::from_millis(5));
    }
    // One for both, since the options are the same.
    assert_eq!(threads(), 1);
    streams.pop();
    thread::sleep(OFTEN);
    assert_eq!(threads(), 1, "a stream is left");
    streams.pop();
    let start = Instant::now();
    while threads() > 0 {
        assert!(start.elapsed() < LIMIT, "the thread is left");
        thread::sleep(OFTEN);
    }
}

#[test]
fn keep_alives_without_a_pause_are_refused() {
    let Some((device, ip)) = device_with_address() else { return };
    let error = options(&device).keep_alive(Duration::ZERO).listen((ip, 0)).map(drop).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    assert!(error.to_string().contains("keep_alive"), "{error}");
}
