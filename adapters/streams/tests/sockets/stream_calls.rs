//! Streams as event loops and C's sockets need them: calls that never wait, readiness, and memory
//! that a program maps for its peer.
#![allow(unsafe_code, reason = "maps the program's own memory")]

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use common::{LIMIT, device_with_address, not_on_siw};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs::Device;
use uverbs_streams::{RdmaStream, Ready, StreamOptions};

const BOTH: Ready = Ready { read: true, write: true };
const READ: Ready = Ready { read: true, write: false };
const WRITE: Ready = Ready { read: false, write: true };
const NONE: Ready = Ready { read: false, write: false };

fn options(device: &Device) -> StreamOptions {
    StreamOptions::new().on(device).limit(LIMIT)
}

/// A client with `own` options and a server with `theirs`, which its listener did not have.
fn pair(own: &StreamOptions, theirs: &StreamOptions, ip: IpAddr) -> (RdmaStream, RdmaStream) {
    let listener = own.listen((ip, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    let theirs = theirs.clone();
    let server = thread::spawn(move || listener.accept_with(&theirs).unwrap().0);
    let client = own.connect(at).unwrap();
    (client, server.join().unwrap())
}

/// Waits by the file until one of the wanted directions is worth a try.
fn wait(stream: &RdmaStream, wanted: Ready) -> Ready {
    let start = Instant::now();
    loop {
        let ready = stream.ready(wanted).unwrap();
        if ready != NONE {
            return ready;
        }
        assert!(start.elapsed() < LIMIT);
        let mut file = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
        poll(&mut file, PollTimeout::from(1000u16)).unwrap();
    }
}

#[test]
fn what_is_worth_a_try_is_told() {
    let Some((device, ip)) = device_with_address() else { return };
    let (mut client, mut server) = pair(&options(&device), &options(&device), ip);
    assert_eq!(client.ready(READ).unwrap(), NONE);
    let error = client.try_read(&mut [0; 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WouldBlock, "although the stream waits");
    assert_eq!(wait(&client, BOTH), WRITE);

    client.write_all(b"x").unwrap();
    assert_eq!(wait(&server, READ), READ);
    assert_eq!(server.try_read(&mut [0; 8]).unwrap(), 1);
    assert_eq!(server.ready(READ).unwrap(), NONE);

    // Writes until the stream is full; then a reader makes room.
    let bytes = [7; 100_000];
    let mut sent = 0;
    let full = loop {
        match client.try_write(&bytes) {
            Ok(count) => sent += count,
            Err(error) => {
                // Messages in flight arrive; after that only the reader makes room.
                thread::sleep(Duration::from_millis(100));
                if client.ready(WRITE).unwrap() == NONE {
                    break error;
                }
            }
        }
    };
    assert_eq!(full.kind(), ErrorKind::WouldBlock);
    assert_eq!(client.ready(WRITE).unwrap(), NONE);
    let reader = thread::spawn(move || {
        let mut all = vec![0; sent];
        server.read_exact(&mut all).unwrap();
        assert!(all.iter().all(|byte| *byte == 7));
        server
    });
    assert_eq!(wait(&client, WRITE), WRITE);
    let server = reader.join().unwrap();

    // The end is worth a read, and a write that fails at once.
    assert!(!client.is_ended());
    drop(server);
    assert_eq!(wait(&client, READ), READ);
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
    assert!(client.is_ended());
    assert_eq!(client.ready(BOTH).unwrap(), BOTH);
    client.try_write(b"y").unwrap_err();
}

#[test]
fn options_of_an_accepted_stream_and_an_own_address() {
    let Some((device, ip)) = device_with_address() else { return };
    let own = options(&device).from(SocketAddr::new(ip, 0));
    // The peer may offer as many mappings as the accepted stream's options say.
    let (client, server) = pair(&own, &options(&device).mappings(1), ip);
    assert_eq!(client.local_addr().unwrap().ip(), ip);
    let error = server.map(64, 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded);
    let memory = client.map(64, 0).unwrap();
    assert_eq!(client.map(64, 64).unwrap_err().kind(), ErrorKind::QuotaExceeded);
    // A mapping that is removed frees its place for another.
    client.unmap(memory.addr(), 64).unwrap();
    assert_eq!(client.unmap(memory.addr(), 64).unwrap_err().kind(), ErrorKind::InvalidInput);
    client.map(64, 64).unwrap();

    let listener = options(&device).listen((ip, 0)).unwrap();
    let error = listener.accept_with(&options(&device).recv_buffer(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
}

#[test]
fn a_peer_writes_into_the_programs_own_memory() {
    let Some((device, ip)) = device_with_address() else { return };
    let room = options(&device).mappings(1);
    let (client, server) = pair(&room, &room, ip);
    let page = Box::leak(vec![0u8; 4096].into_boxed_slice()).as_mut_ptr();
    // SAFETY: the memory is never freed, and read by pointer alone.
    unsafe { client.map_at(page, 4096, 1000) }.unwrap();
    let start = Instant::now();
    loop {
        match server.try_write_at(b"written", 1100) {
            Ok(count) => break assert_eq!(count, 7),
            // The client's message isn't here yet.
            Err(error) if start.elapsed() < LIMIT => assert!(
                matches!(error.kind(), ErrorKind::InvalidInput | ErrorKind::WouldBlock),
                "{error}"
            ),
            Err(error) => panic!("{error}"),
        }
    }
    // SAFETY: within the page; the device may write it, so each read is its own.
    let byte = |at: usize| unsafe { page.wrapping_add(at).read_volatile() };
    while byte(106) != b'n' {
        assert!(start.elapsed() < LIMIT);
        thread::yield_now();
    }
    assert_eq!([100, 101, 102, 103, 104, 105].map(byte), *b"writte");
    client.unmap(page as u64, 4096).unwrap();
    drop((client, server));
}

#[test]
fn keep_alives_may_begin_and_end_later() {
    let Some((device, ip)) = device_with_address() else { return };
    if not_on_siw("its kernel may overlook the first message until there is another one") {
        return;
    }
    let (mut client, mut server) = pair(&options(&device), &options(&device), ip);
    client.set_keep_alive(Some(Duration::from_millis(5))).unwrap();
    let error = client.set_keep_alive(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    let before = client.activity();
    let start = Instant::now();
    while client.activity() == before {
        assert!(start.elapsed() < LIMIT, "no keep-alive went");
        thread::sleep(Duration::from_millis(5));
        let _ = client.ready(READ).unwrap();
    }
    client.set_keep_alive(None).unwrap();
    client.write_all(b"x").unwrap();
    server.read_exact(&mut [0; 1]).unwrap();
    // Messages in flight arrive after a while, and no more follow.
    let (start, mut before) = (Instant::now(), None);
    while before != Some(client.activity()) {
        assert!(start.elapsed() < LIMIT, "keep-alives go on");
        before = Some(client.activity());
        thread::sleep(Duration::from_millis(200));
        let _ = client.ready(READ).unwrap();
    }
}

/// Bytes that were looked at come again, also around the end of the buffer. Keep-alives of ages are
/// refused.
#[test]
fn what_is_looked_at_stays() {
    let Some((device, ip)) = device_with_address() else { return };
    let (client, mut server) = pair(&options(&device), &options(&device), ip);
    assert_eq!(server.try_peek(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut next = 0u8;
    let mut expected = 0u8;
    for _ in 0..40 {
        let bytes: Vec<u8> = (0..10_007)
            .map(|_| {
                next = next.wrapping_add(1);
                next
            })
            .collect();
        let sent = (&client).write(&bytes).unwrap();
        next = bytes[sent - 1];
        let mut seen = vec![0; sent];
        let looked = server.peek(&mut seen).unwrap();
        let mut read = vec![0; looked];
        server.read_exact(&mut read).unwrap();
        assert_eq!(seen[..looked], read);
        let mut rest = vec![0; sent - looked];
        server.read_exact(&mut rest).unwrap();
        for byte in read.iter().chain(&rest) {
            expected = expected.wrapping_add(1);
            assert_eq!(*byte, expected);
        }
    }
    let error = client.set_keep_alive(Some(Duration::MAX)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    drop(client);
    assert_eq!(server.peek(&mut [0; 1]).unwrap(), 0, "the end");
}
