//! Streams over RDMA: exchange between two ends, closing, and a peer that breaks the rules.
//!
//! It needs an IP address at the device under test, as `tests/connections/cm.rs` does.
#![allow(unsafe_code, reason = "forks")]

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use common::{LIMIT, device_with_address, is_siw, not_on_siw, pattern};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use uverbs::cm::{EventChannel, EventKind, Param, PortSpace};
use uverbs::{Device, QueuePair, Remote};
use uverbs_streams::{RdmaStream, StreamError, StreamOptions};

use crate::stream_peer::{self, Raw, hello, listen, options};

/// Two ends of a stream, whose waits all have timeouts.
fn pair(options: &StreamOptions, ip: IpAddr) -> (RdmaStream, RdmaStream) {
    let (listener, at) = listen(options, ip);
    let server = thread::spawn(move || listener.accept().unwrap().0);
    let client = options.connect(at).unwrap();
    let server = server.join().unwrap();
    for end in [&client, &server] {
        end.set_read_timeout(Some(LIMIT)).unwrap();
        end.set_write_timeout(Some(LIMIT)).unwrap();
    }
    (client, server)
}

/// Sends `bytes` in pieces of `piece`, and echoes them back at the other end.
fn echo(options: &StreamOptions, ip: IpAddr, bytes: &[u8], piece: usize) {
    let (mut client, mut server) = pair(options, ip);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = vec![0; 3000];
            loop {
                match server.read(&mut buffer).unwrap() {
                    0 => break,
                    count => server.write_all(&buffer[..count]).unwrap(),
                }
            }
            server.shutdown(Shutdown::Write).unwrap();
        });
        scope.spawn(|| {
            let mut client = &client;
            for piece in bytes.chunks(piece) {
                client.write_all(piece).unwrap();
            }
            client.shutdown(Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        (&client).read_to_end(&mut back).unwrap();
        assert_eq!(back.len(), bytes.len());
        assert!(back == bytes, "the bytes changed on the way");
    });
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn bytes_come_back_as_they_went() {
    let Some((device, ip)) = device_with_address() else { return };
    let options = options(&device);
    for (len, piece) in [(1, 1), (2000, 3), (64, 64), (65, 65), (1_500_001, 70_001)] {
        echo(&options, ip, &pattern(len, 5), piece);
    }
}

#[test]
fn the_smallest_buffers_do() {
    let Some((device, ip)) = device_with_address() else { return };
    let small = options(&device).send_buffer(2048).recv_buffer(2049).sends(1).recvs(1).inline(0);
    for piece in [1, 24, 700, 5000] {
        echo(&small, ip, &pattern(40_000.min(piece * 3000), 9), piece);
    }
}

#[test]
fn ends_know_their_addresses() {
    let Some((device, ip)) = device_with_address() else { return };
    let (client, server) = pair(&options(&device), ip);
    assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
    assert_eq!(client.local_addr().unwrap(), server.peer_addr().unwrap());
    assert_eq!(client.peer_addr().unwrap().ip(), ip);
}

#[test]
fn each_direction_ends_by_itself() {
    let Some((device, ip)) = device_with_address() else { return };
    let (mut client, mut server) = pair(&options(&device), ip);
    client.write_all(b"question").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(client.write(b"more").unwrap_err().kind(), ErrorKind::BrokenPipe);
    let mut question = String::new();
    server.read_to_string(&mut question).unwrap();
    assert_eq!(question, "question");
    server.write_all(b"answer").unwrap();
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "answer");
    assert_eq!(client.shutdown(Shutdown::Both).unwrap_err().kind(), ErrorKind::NotConnected);
}

#[test]
fn what_was_written_arrives_although_the_stream_is_dropped() {
    let Some((device, ip)) = device_with_address() else { return };
    let (mut client, mut server) = pair(&options(&device), ip);
    let sent = pattern(60_000, 2);
    client.write_all(&sent).unwrap();
    drop(client);
    let mut got = Vec::new();
    server.read_to_end(&mut got).unwrap();
    assert!(got == sent);
    assert_eq!(server.write(b"x").unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn waits_end_when_they_should() {
    let Some((device, ip)) = device_with_address() else { return };
    let (mut client, server) = pair(&options(&device), ip);
    let short = Duration::from_millis(50);
    client.set_read_timeout(Some(short)).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::TimedOut);
    client.set_write_timeout(Some(short)).unwrap();
    // The server does not read: both ends' buffers take so much and no more.
    let start = Instant::now();
    let error = client.write_all(&pattern(1_000_000, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert!(start.elapsed() < LIMIT);
    let zero = client.set_read_timeout(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(zero.kind(), ErrorKind::InvalidInput);
    client.set_nonblocking(true).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
    drop(server);
}

fn readable(file: &impl AsFd, limit: Duration) -> bool {
    let mut files = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
    poll(&mut files, PollTimeout::try_from(limit).unwrap()).unwrap() == 1
}

/// Drives both directions as an event loop does: one thread, which sleeps on the two files alone.
#[test]
fn an_event_loop_drives_both_ends() {
    let Some((device, ip)) = device_with_address() else { return };
    let options = options(&device);
    let (listener, at) = listen(&options, ip);
    listener.set_nonblocking(true).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let client = thread::spawn(move || options.connect(at).unwrap());
    let server = loop {
        assert!(readable(&listener, LIMIT), "nobody connects");
        match listener.accept() {
            Ok((stream, _)) => break stream,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
    };
    let client = client.join().unwrap();
    let sent = pattern(700_000, 3);
    let (mut out, mut back) = (0, Vec::new());
    for end in [&client, &server] {
        end.set_nonblocking(true).unwrap();
    }
    let mut buffer = vec![0; 10_000];
    let would_block = |error: &io::Error| assert_eq!(error.kind(), ErrorKind::WouldBlock);
    while back.len() < sent.len() {
        let mut moved = false;
        if out < sent.len() {
            match (&client).write(&sent[out..]) {
                Ok(count) => (out, moved) = (out + count, true),
                Err(error) => would_block(&error),
            }
        }
        match (&server).read(&mut buffer) {
            Ok(count) => {
                back.extend_from_slice(&buffer[..count]);
                moved = true;
            }
            Err(error) => would_block(&error),
        }
        if !moved {
            let mut files =
                [&client, &server].map(|end| PollFd::new(end.as_fd(), PollFlags::POLLIN));
            let limit = PollTimeout::try_from(LIMIT).unwrap();
            assert!(poll(&mut files, limit).unwrap() > 0, "a wake-up was lost at {}", back.len());
        }
    }
    assert!(back == sent);
    client.shutdown(Shutdown::Both).unwrap();
    let start = Instant::now();
    while !client.is_flushed().unwrap() {
        assert!(start.elapsed() < LIMIT);
    }
    loop {
        match (&server).read(&mut buffer) {
            Ok(count) => break assert_eq!(count, 0),
            Err(error) => would_block(&error),
        }
        assert!(readable(&server, LIMIT));
    }
}

#[test]
fn threads_share_a_stream() {
    let Some((device, ip)) = device_with_address() else { return };
    let (client, server) = pair(&options(&device), ip);
    const ROUNDS: usize = 300;
    thread::scope(|scope| {
        for end in [&client, &server] {
            // A writer and a reader at each end: one of them sleeps while the other is at work.
            scope.spawn(move || {
                let mut end = end;
                for round in 0..ROUNDS {
                    end.write_all(&pattern(1 + round * 37 % 5000, round as u8)).unwrap();
                }
            });
            scope.spawn(move || {
                let mut end = end;
                for round in 0..ROUNDS {
                    let wanted = pattern(1 + round * 37 % 5000, round as u8);
                    let mut got = vec![0; wanted.len()];
                    end.read_exact(&mut got).unwrap();
                    assert!(got == wanted, "round {round}");
                }
            });
        }
    });
}

#[test]
fn mapped_memory_is_written_from_afar() {
    let Some((device, ip)) = device_with_address() else { return };
    let (mut client, mut server) = pair(&options(&device).mappings(2), ip);
    let error = client.write_at(b"x", 0).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    let memories = [server.map(5000, 0).unwrap(), server.map(3000, 100_000).unwrap()];
    let error = server.map(1, 7).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::QuotaExceeded, "{error}");
    server.write_all(b"mapped").unwrap();
    client.read_exact(&mut [0; 6]).unwrap();
    for (memory, offset) in [(&memories[0], 0), (&memories[1], 100_000)] {
        let sent = pattern(memory.len() - 10, offset as u8 + 3);
        let mut done = 0;
        while done < sent.len() {
            done += client.write_at(&sent[done..], offset + 10 + done as u64).unwrap();
        }
        client.write_all(b"written").unwrap();
        server.read_exact(&mut [0; 7]).unwrap();
        let mut got = vec![0; sent.len()];
        memory.read(10, &mut got).unwrap();
        assert!(got == sent);
    }
    // A write past the end of a mapping transfers the bytes within it.
    assert_eq!(client.write_at(&[1; 100], 4990).unwrap(), 10);
    assert_eq!(client.write_at(&[1; 100], 5000).unwrap_err().kind(), ErrorKind::InvalidInput);
}

#[test]
fn nobody_there_is_an_error() {
    let Some((device, ip)) = device_with_address() else { return };
    let options = options(&device).limit(Duration::from_millis(500));
    let (listener, at) = listen(&options, ip);
    let error = options.listen(at).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::AddrInUse, "{error}");
    drop(listener);
    let error = options.connect(at).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    let error = options.clone().recv_buffer(100).connect(at).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("2048"), "{error}");
    assert_eq!(StreamError::Lost.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn streams_come_and_go() {
    let Some((device, ip)) = device_with_address() else { return };
    let options = options(&device);
    let (listener, at) = listen(&options, ip);
    const ROUNDS: usize = 40;
    let server = thread::spawn(move || {
        for stream in listener.incoming().take(ROUNDS) {
            let mut stream = stream.unwrap();
            stream.set_read_timeout(Some(LIMIT)).unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert_eq!(text, "one word");
        }
    });
    for _ in 0..ROUNDS {
        options.connect(at).unwrap().write_all(b"one word").unwrap();
    }
    server.join().unwrap();
}

/// A stream whose other end the test drives directly.
fn with_raw(device: &Device, ip: IpAddr) -> (RdmaStream, Raw) {
    let (listener, at) = listen(&options(device), ip);
    let server = thread::spawn(move || listener.accept().unwrap().0);
    let raw = Raw::connect(device, at, &hello()).unwrap();
    let stream = server.join().unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    (stream, raw)
}

fn why(error: &io::Error) -> &StreamError {
    error.get_ref().and_then(|inner| inner.downcast_ref()).expect("a stream's own error")
}

#[test]
fn a_peer_that_speaks_otherwise_is_refused_and_the_next_is_served() {
    let Some((device, ip)) = device_with_address() else { return };
    let options = options(&device);
    let (listener, at) = listen(&options, ip);
    let server = thread::spawn(move || listener.accept().unwrap().0);
    let version = [&[2][..], &hello()[1..]].concat();
    let no_list = [&hello()[..23], &[0; 17]].concat();
    for hello in [&b""[..], b"GET / HTTP/1.1", &version, &no_list] {
        let error = Raw::connect(&device, at, hello).err().expect("refused");
        assert_eq!(error.to_errno(), uverbs::Errno::ECONNREFUSED, "{hello:?}");
    }
    options.connect(at).unwrap().write_all(b"hello").unwrap();
    let mut text = String::new();
    server.join().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
}

#[test]
fn a_server_that_speaks_otherwise_is_an_error() {
    let Some((device, ip)) = device_with_address() else { return };
    let options = options(&device);
    let listener = uverbs::cm::Listener::builder(SocketAddr::new(ip, 0));
    let listener = listener.listen_on(EventChannel::of(&device).unwrap()).unwrap();
    let at = listener.local_addr().unwrap().unwrap();
    let server = thread::spawn(move || {
        let request = listener.next(LIMIT).unwrap();
        let context = request.device().unwrap().open().unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(256).unwrap());
        let qp = context.queue_pair(&pd, &cq).build().unwrap();
        request.accept(qp, &Param::default()).map_err(uverbs::Refused::into_error)
    });
    let error = options.connect(at).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidData);
    // On iWARP the private data is empty, elsewhere it is zeros.
    let what = if is_siw() { "length" } else { "version" };
    assert_eq!(why(&error), &StreamError::Hello { what, value: 0 });
    drop(server.join());
}

#[test]
fn messages_that_break_the_rules_end_the_stream() {
    let Some((device, ip)) = device_with_address() else { return };
    // After the first bytes the peer gets credit for the second half of the buffer, too.
    let room = (128 << 10) - 4;
    for (imm, wanted) in [
        (room + 1, StreamError::TooManyBytes { bytes: room + 1, room: room.into() }),
        (0x1fff_ffff, StreamError::TooManyBytes { bytes: 0x1fff_ffff, room: room.into() }),
        (0x2000_0001, StreamError::UnknownMessage { immediate: 0x2000_0001 }),
        (0xe000_0003, StreamError::UnknownMessage { immediate: 0xe000_0003 }),
    ] {
        let (mut stream, mut raw) = with_raw(&device, ip);
        raw.tell(4, b"good");
        let mut good = [0; 4];
        stream.read_exact(&mut good).unwrap();
        assert_eq!(&good, b"good");
        raw.tell(imm, b"");
        let error = stream.read(&mut good).unwrap_err();
        assert_eq!((error.kind(), why(&error)), (ErrorKind::InvalidData, &wanted));
        assert_eq!(why(&stream.write(b"x").unwrap_err()), &wanted);
    }
}

#[test]
fn a_message_that_is_no_streams_ends_the_stream() {
    let Some((device, ip)) = device_with_address() else { return };
    // On siw receives have room for four bytes, elsewhere for none.
    let one = if is_siw() { ErrorKind::InvalidData } else { ErrorKind::ConnectionReset };
    for (bytes, wanted) in [(&b""[..], ErrorKind::InvalidData), (b"x", one)] {
        let (mut stream, mut raw) = with_raw(&device, ip);
        raw.connection.queue_pair().post_send_inline(1, bytes).unwrap();
        let error = stream.read(&mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), wanted, "{error}");
    }
}

/// An entry is read when its message comes: at any other time the peer may be writing it.
#[test]
fn a_mapping_counts_from_its_message_on() {
    let Some((device, ip)) = device_with_address() else { return };
    let (listener, at) = listen(&options(&device).mappings(1), ip);
    let server = thread::spawn(move || listener.accept().unwrap().0);
    let mut raw = Raw::connect(&device, at, &hello()).unwrap();
    let stream = server.join().unwrap();
    let (theirs, own) = (raw.their_list(), raw.list.remote(1000));
    let entry = Remote { addr: theirs.addr + 32, ..theirs };
    let write = |raw: &mut Raw, len: u32| {
        let mut bytes = [0; 24];
        bytes[..8].copy_from_slice(&500u64.to_ne_bytes());
        bytes[8..16].copy_from_slice(&own.addr.to_ne_bytes());
        bytes[16..20].copy_from_slice(&own.rkey.to_ne_bytes());
        bytes[20..].copy_from_slice(&len.to_ne_bytes());
        let mut batch = raw.connection.queue_pair().batch();
        batch.write_inline(1, &bytes, entry).unwrap();
        batch.ring();
        while raw.cq.wait(LIMIT).unwrap().id != 1 {}
    };
    let refused = || stream.try_write_at(b"early", 550).unwrap_err().kind();
    write(&mut raw, 100);
    assert_eq!(refused(), ErrorKind::InvalidInput);
    raw.place = theirs;
    raw.tell(6 << 29, b"");
    assert_eq!(stream.try_write_at(b"bytes", 550).unwrap(), 5);
    write(&mut raw, 0);
    assert_eq!(stream.try_write_at(b"again", 555).unwrap(), 5);
    raw.tell(6 << 29, b"");
    assert_eq!(refused(), ErrorKind::InvalidInput);
    let (start, mut got) = (Instant::now(), [0; 10]);
    while &got != b"bytesagain" {
        assert!(start.elapsed() < LIMIT, "{got:?}");
        raw.list.read(1050, &mut got).unwrap();
    }
}

#[test]
fn a_peer_that_goes_without_a_word_is_noticed() {
    let Some((device, ip)) = device_with_address() else { return };
    let (mut stream, mut raw) = with_raw(&device, ip);
    raw.tell(3, b"abc");
    let goes = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        drop(raw);
    });
    let mut got = [0; 3];
    stream.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"abc");
    let error = stream.read(&mut got).unwrap_err();
    assert_eq!(why(&error), &StreamError::Lost, "{error}");
    goes.join().unwrap();
}

/// Whatever a peer sends, in messages and into the memory that it may write: reads and writes end
/// in bytes or errors, and within their limits.
#[test]
fn no_peer_can_hang_or_break_a_stream() {
    let Some((device, ip)) = device_with_address() else { return };
    let mut runner = TestRunner::new(ProptestConfig::with_cases(24));
    let run = |data: Vec<u8>| {
        stream_peer::messages(&device, ip, &data);
        Ok(())
    };
    runner.run(&prop::collection::vec(any::<u8>(), 0..600), run).unwrap();
}

#[test]
fn what_is_kept() {
    // The corpus is in the source folder, which a guest does not have.
    if !common::only_on_softhca("the corpus is not in the guest") {
        return;
    }
    let Some((device, ip)) = device_with_address() else { return };
    support::replay("streams", |data| stream_peer::messages(&device, ip, data));
}

/// A peer that connects and never confirms holds up neither the listener nor the drop of the
/// stream.
#[test]
fn a_peer_that_never_confirms_holds_up_nobody() {
    if not_on_siw("its kernel confirms by itself") {
        return;
    }
    let Some((device, ip)) = device_with_address() else { return };
    let (listener, at) = listen(&options(&device), ip);
    let channel = EventChannel::of(&device).unwrap();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    id.resolve_addr(None, at, LIMIT).unwrap();
    channel.next(LIMIT).unwrap().expect(EventKind::AddressResolved).unwrap();
    id.resolve_route(LIMIT).unwrap();
    channel.next(LIMIT).unwrap().expect(EventKind::RouteResolved).unwrap();
    let context = id.device().unwrap().open().unwrap();
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(256).unwrap());
    let qp: QueuePair = context.queue_pair(&pd, &cq).build().unwrap();
    let param = Param { private_data: hello().to_vec(), ..Param::default() };
    id.connect(qp.qpn(), &param).unwrap();
    let start = Instant::now();
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(50))).unwrap();
    assert_eq!(stream.write(b"x").unwrap_err().kind(), ErrorKind::TimedOut);
    drop(stream);
    assert!(start.elapsed() < LIMIT);
    // The next one is served meanwhile.
    let options = options(&device);
    let server = thread::spawn(move || listener.accept().unwrap().0);
    options.connect(at).unwrap().write_all(b"hello").unwrap();
    let mut text = String::new();
    server.join().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "hello");
}

#[test]
fn what_a_forked_child_drops_goes_on_in_the_parent() {
    let Some((device, ip)) = device_with_address() else { return };
    let (client, mut server) = pair(&options(&device), ip);
    let mut client = Some(client);
    client.as_mut().unwrap().write_all(b"before ").unwrap();
    // SAFETY: only this thread goes on in the child, which drops a stream and ends.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            drop(client.take());
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(0) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None).unwrap(), WaitStatus::Exited(child, 0));
        }
    }
    client.as_mut().unwrap().write_all(b"and after").unwrap();
    drop(client);
    let mut text = String::new();
    server.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before and after");
}
