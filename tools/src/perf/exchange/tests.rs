//! The exchange with well-behaved and with misbehaving peers.

use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;

use clap::Parser;
use uverbs::any_transport::AnyEndpoint;
use uverbs::attr::Ece;
use uverbs::{Endpoint, Gid, Mtu, Remote};

use super::*;
use crate::link::tcp::Listener;
use crate::perf::options::Options;
use crate::perf::shape::Family;

const SECOND: Duration = Duration::from_secs(1);
static NEVER: AtomicBool = AtomicBool::new(false);

#[derive(Debug, Parser)]
struct Only {
    #[command(flatten)]
    options: Options,
}

fn shape(args: &str) -> Shape {
    let words = std::iter::once("perf").chain(args.split(' '));
    Only::parse_from(words).options.plan(Family::Write).unwrap().shape
}

fn hand(number: u32) -> Hand {
    let endpoint = Endpoint {
        lid: 0,
        qpn: number,
        psn: 7,
        mtu: Mtu::Mtu1024,
        rd_atomic: 4,
        gid: Some(Gid([9; 16])),
        ece: Ece::default(),
    };
    Hand {
        endpoint: AnyEndpoint::Connected(endpoint),
        memory: Remote { addr: 0xdead_beef_0000, rkey: number },
    }
}

/// Runs a server, and `client` with its address.
fn with<T: Send>(
    limit: Duration,
    client: impl FnOnce(TcpStream) -> T + Send,
    server: impl FnOnce(Control),
) -> T {
    let listener = Listener::bind(0).unwrap();
    let port = listener.port();
    thread::scope(|scope| {
        let client = scope.spawn(move || client(TcpStream::connect(("127.0.0.1", port)).unwrap()));
        server(Control::new(listener.accept(60 * SECOND, limit, &NEVER).unwrap()));
        client.join().unwrap()
    })
}

fn client(stream: TcpStream) -> Control {
    Control::new(Stream::new(stream, Who::Server, 60 * SECOND).unwrap())
}

/// Error of the server for a peer that sends `sends`, and then closes or falls silent.
fn told(sends: &[u8], closes: bool) -> String {
    let shape = shape("bw -s 64");
    let mut said = String::new();
    let started = Instant::now();
    let (told, is_told) = mpsc::channel();
    let stay = |mut stream: TcpStream| {
        stream.write_all(sends).unwrap();
        told.send(()).unwrap();
        if !closes {
            return Some(stream);
        }
        None
    };
    let kept = with(SECOND / 2, stay, |mut control| {
        // The client may take any time: the limit is for the server's wait.
        is_told.recv().unwrap();
        let met = control
            .agree(&shape, 64, &NEVER)
            .and_then(|()| control.swap(&[hand(1)], &NEVER))
            .and_then(|_| control.ready(1, &NEVER))
            .and_then(|()| control.wait_done(&NEVER));
        said = met.unwrap_err().to_string();
    });
    drop(kept);
    assert!(started.elapsed() < 60 * SECOND, "{said}");
    assert!(!said.contains('\n') && said.chars().all(|c| !c.is_control()), "{said:?}");
    said
}

/// Line equal to the one of `shape("bw -s 64")`.
fn hello() -> String {
    let terms = terms(&shape("bw -s 64"), 64);
    let hello = Hello { program: PROGRAM.to_owned(), version: VERSION, terms };
    String::from_utf8(Message::Hello(hello).line()).unwrap()
}

fn qp(number: usize, qpn: u32) -> String {
    String::from_utf8(Message::Qp(Qp::new(number, &hand(qpn))).line()).unwrap()
}

#[test]
fn two_that_agree_meet_and_part() {
    let shape = shape("bw -q 300");
    let of = |from: u32| (from..from + 300).map(hand).collect::<Vec<_>>();
    let both = |control: &mut Control, own: &[Hand]| {
        control.agree(&shape, 64, &NEVER).unwrap();
        let theirs = control.swap(own, &NEVER).unwrap();
        control.ready(300, &NEVER).unwrap();
        theirs
    };
    let (sent, back) =
        (Done { messages: 5, ns: 6, posted: 7, received: 8, interrupted: true }, Done::default());
    let said = with(
        60 * SECOND,
        |stream| {
            let mut control = client(stream);
            let theirs = both(&mut control, &of(1));
            control.beaten -= SECOND;
            control.beat();
            control.done(sent, &NEVER).unwrap();
            (theirs, control.wait_done(&NEVER).unwrap())
        },
        |mut control| {
            assert_eq!(both(&mut control, &of(1000)), of(1));
            assert_eq!(control.wait_done(&NEVER).unwrap(), sent);
            control.done(back, &NEVER).unwrap();
        },
    );
    assert_eq!(said, (of(1000), back));
}

/// The last line of a peer that left is read, although nothing can be sent to it any more.
#[test]
fn what_a_peer_said_before_it_went_is_heard() {
    let sent = Done { messages: 5, ns: 6, posted: 7, received: 8, interrupted: false };
    let (gone, left) = mpsc::channel();
    with(
        60 * SECOND,
        |stream| {
            // Unread bytes at a close cause a TCP reset.
            while stream.peek(&mut [0]).unwrap() == 0 {}
            client(stream).done(sent, &NEVER).unwrap();
            gone.send(()).unwrap();
        },
        |mut control| {
            control.beaten -= SECOND;
            control.beat();
            left.recv().unwrap();
            // The first write after the reset may still succeed.
            for _ in 0..2 {
                control.beaten -= SECOND;
                control.beat();
            }
            assert_eq!(control.wait_done(&NEVER).unwrap(), sent);
        },
    );
}

#[test]
fn what_differs_is_named_on_both_sides() {
    let says = with(
        60 * SECOND,
        |stream| client(stream).agree(&shape("lat --check"), 64, &NEVER).unwrap_err(),
        |mut control| {
            let error = control.agree(&shape("bw"), 4096, &NEVER).unwrap_err();
            assert_eq!(
                error.to_string(),
                "the client measures something else: test bw here and lat there, --size 4096 here \
                and 64 there, \
                 --check false here and true there"
            );
        },
    );
    assert!(says.to_string().starts_with("the server measures something else: test lat here"));
}

#[test]
fn strangers_are_one_line_within_the_limit() {
    let hello = hello();
    let far = format!("{hello}{}", qp(1, 3));
    let big = format!("{hello}{}", qp(0, 3).replace("\"rkey\":3", "\"rkey\":4294967296"));
    let no_gid = format!("{hello}{}", qp(0, 3).replace(" gid=", " gin="));
    let met = format!("{hello}{}", qp(0, 3));
    let late = format!("{met}\"ready\"\n");
    let long = vec![b'x'; 1 << 15];
    let old = hello.replace("\"version\":2", "\"version\":3");
    let other = hello.replace(PROGRAM, "fio");
    let failed = b"{\"failed\":\"no\\u001b[2J memory\"}\n";
    let cut = &hello.as_bytes()[..30];
    let nothing = b"{\"hello\":{\"program\":\"uverbs perf\",\"version\":2}}\n";
    for (sends, closes, says) in [
        (&b""[..], false, "the client said nothing for 0.5 s (--timeout)"),
        (b"", true, "the client closed the connection before it was done"),
        (b"GET / HTTP/1.1\r\n\r\n", false, "as `uverbs perf` does: \"GET / HTTP/1.1\\r\""),
        (b"\x1b[2J\xff\0\n", false, "doesn't speak as `uverbs perf` does: \"\\u{1b}[2J"),
        (b"uverbs-perf 1 operation=write\n", false, "does: \"uverbs-perf 1 operation=write\""),
        (&long, false, "doesn't speak as `uverbs perf` does: \"xxxxx"),
        (cut, false, "said nothing for 0.5 s"),
        (old.as_bytes(), false, "it speaks 3, this one 2"),
        (other.as_bytes(), false, "doesn't speak as `uverbs perf` does"),
        (nothing, false, "operation write here and nothing there"),
        (failed, false, "the client failed: no\\u{1b}[2J memory"),
        (hello.as_bytes(), false, "said nothing for 0.5 s"),
        (hello.as_bytes(), true, "closed the connection before it was done"),
        (far.as_bytes(), false, "queue pair 0: it has another number, 1"),
        (big.as_bytes(), false, "doesn't speak as `uverbs perf` does: \"{\"qp"),
        (no_gid.as_bytes(), false, "queue pair 0: endpoint text has no gid"),
        (met.as_bytes(), false, "said nothing for 0.5 s"),
        (late.as_bytes(), true, "closed the connection before it was done"),
        (late.as_bytes(), false, "the client said nothing for 2 s (--timeout)"),
    ] {
        let told = told(sends, closes);
        // If bytes were unread, the close shows as a reset.
        let closed = closes && told.contains("the connection to the client");
        assert!(told.contains(says) || closed, "{:?}: {told}", String::from_utf8_lossy(sends));
    }
}

#[test]
fn one_that_speaks_a_byte_at_a_time_has_a_limit_too() {
    let slow = |mut stream: TcpStream| {
        for byte in hello().bytes() {
            if stream.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(SECOND / 20);
        }
    };
    with(SECOND / 2, slow, |mut control| {
        let error = control.agree(&shape("bw -s 64"), 64, &NEVER).unwrap_err().to_string();
        assert!(error.contains("said nothing for 0.5 s"), "{error}");
    });
}

/// Error of `server` for a client that sends only signs of life, as fast as it can.
fn against_a_chatterer(server: impl FnOnce(Control)) {
    let over = AtomicBool::new(false);
    let chatter = |mut stream: TcpStream| {
        let text = Message::Alive.line().repeat(4096);
        let started = Instant::now();
        while stream.write_all(&text).is_ok() {
            // Ends a server that would listen for ever, so that the test fails instead of hanging.
            if started.elapsed() > 60 * SECOND {
                over.store(true, Ordering::Relaxed);
                return;
            }
        }
    };
    with(SECOND / 2, chatter, |control| {
        // From now on the server has something to read.
        thread::sleep(SECOND / 5);
        server(control);
        assert!(!over.load(Ordering::Relaxed), "it listened until the client gave up");
    });
}

#[test]
fn one_that_never_stops_talking_has_a_limit_too() {
    against_a_chatterer(|mut control| {
        let error = control.ready(1, &NEVER).unwrap_err().to_string();
        assert_eq!(error, "the client said only that it lives for 0.5 s (--timeout)");
    });
}

#[test]
fn one_that_never_stops_talking_can_be_left() {
    let stop = AtomicBool::new(true);
    against_a_chatterer(|mut control| {
        assert_eq!(control.hear().unwrap(), None);
        assert_eq!(control.wait_done(&stop).unwrap_err().to_string(), "interrupted");
        assert_eq!(control.ready(1, &stop).unwrap_err().to_string(), "interrupted");
    });
}
