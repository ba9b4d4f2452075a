//! Both roles in one process: two software HCAs on a fabric, and TCP on the loopback interface.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser;
use uverbs::softhca::wire::Fabric;
use uverbs::softhca::{LinkLayer, SoftHca};
use uverbs::{Device, Endpoint, Local};

use super::*;
use crate::pingpong::args::Args;

static NEVER: AtomicBool = AtomicBool::new(false);

/// Limit of each run, for a busy machine and unoptimised code.
const LIMIT: Duration = Duration::from_secs(100);

#[derive(Debug, Parser)]
struct Only {
    #[command(flatten)]
    args: Args,
}

/// Parses a command line, with a time limit that a busy machine keeps.
fn parse(args: &[&str]) -> (Config, Remote) {
    let mut all = vec!["pingpong"];
    if !args.contains(&"--timeout") {
        all.extend(["--timeout", "30"]);
    }
    if args.contains(&"--server") {
        all.extend(["--wait", "30"]);
    }
    all.extend(args);
    let args = Only::try_parse_from(all).unwrap().args;
    (args.config().unwrap(), args.remote().unwrap().unwrap())
}

fn two(link: LinkLayer) -> [Device; 2] {
    let fabric = Fabric::default();
    ["softhca0", "softhca1"].map(|name| {
        let hca = SoftHca::builder().name(name).fabric(&fabric).link(link).build().unwrap();
        Device::from_source(Arc::new(hca))
    })
}

/// Results of both sides, each with its options.
fn both(link: LinkLayer, client: &[&str], server: &[&str]) -> [Result<Done, Error>; 2] {
    let [one, other] = two(link);
    let (client_config, client) = parse(&[&["localhost"], client].concat());
    let (server_config, server) = parse(&[&["--server"], server].concat());
    let listener = Listener::bind(0).unwrap();
    let port = listener.port();
    let quiet = |_: &str, _: &Address| Ok(());
    std::thread::scope(|scope| {
        let (config, remote) = (&server_config, &server);
        let server = scope
            .spawn(move || serve(Session::new(&other, config, remote, &NEVER)?, listener, quiet));
        let limit = client_config.timeout;
        let connect = || Stream::connect("localhost", port, limit);
        let session = Session::new(&one, &client_config, &client, &NEVER);
        [session.and_then(|session| call(session, connect, quiet)), server.join().unwrap()]
    })
}

#[test]
fn both_roles_meet() {
    for link in [LinkLayer::Ethernet, LinkLayer::InfiniBand] {
        for args in [
            &[][..],
            &["-s", "1", "-n", "100"],
            &["-s", "64", "-n", "100", "-I", "64"],
            &["-s", "65", "-n", "100", "-I", "64"],
            &["-s", "100K", "-n", "20", "-m", "4096", "--chk"],
            &["-r", "1", "-n", "50"],
            &["-e", "-r", "5", "-n", "50"],
            &["-r", "2", "-n", "50", "-S", "3"],
            &["-r", "3", "-n", "1"],
            &["-g", "0", "-n", "10", "--chk"],
            &["--doorbell", "non-cached", "-n", "10", "-m", "256"],
            &["-c", "UC", "-s", "100K", "-n", "20", "--chk"],
            &["-c", "UC", "-s", "64", "-n", "100", "-I", "64", "-r", "2"],
            &["-c", "UD", "-n", "50", "--chk"],
            &["-c", "UD", "-s", "4K", "-n", "50", "-r", "3", "--chk"],
            &["-c", "UD", "-s", "64", "-n", "100", "-I", "64", "-r", "1"],
        ] {
            let [client, server] = both(link, args, args).map(|side| side.unwrap());
            assert_eq!((client.own, client.peer), (server.peer, server.own), "{args:?}");
            let (config, remote) = parse(&[&["localhost"], args].concat());
            assert_eq!([client.outcome.iters, server.outcome.iters], [config.iters; 2]);
            let is_ethernet = link == LinkLayer::Ethernet;
            assert_eq!(client.own.gid.is_some(), is_ethernet || args.contains(&"-g"));
            assert_eq!(client.own.lid == 0, is_ethernet);
            let report = Report::new(&config, &remote, &client);
            let bytes = 2 * config.iters * u64::from(config.size);
            assert!(report.text().starts_with(&format!("{bytes} bytes in ")), "{args:?}");
            let json = serde_json::to_value(&report).unwrap();
            assert_eq!((&json["role"], &json["host"]), (&"client".into(), &"localhost".into()));
            assert_eq!(json["iterations"], config.iters);
        }
    }
}

#[test]
fn defaults_are_the_c_programs() {
    let (config, remote) = parse(&["--server"]);
    assert_eq!((config.size, config.iters, config.rx_depth), (4096, 1000, 500));
    assert_eq!(config.mtu.and_then(uverbs::Mtu::bytes), Some(1024));
    assert_eq!((remote.port, remote.service_level, remote.check), (18515, 0, false));
    let (config, _) = parse(&["--server", "-c", "UD"]);
    assert_eq!((config.size, config.mtu), (1024, None));
    let words = "-p 7000 -d mlx5_0 -i 2 -s 8192 -m 2048 -r 100 -n 5 -S 3 -g 1 192.0.2.7 --chk";
    let (config, remote) = parse(&words.split(' ').collect::<Vec<_>>());
    assert_eq!((config.port, config.size, config.rx_depth, config.iters), (2, 8192, 100, 5));
    assert_eq!((config.device.as_deref(), config.gid_index), (Some("mlx5_0"), Some(1)));
    assert_eq!((remote.port, remote.service_level, remote.check), (7000, 3, true));
    assert_eq!(remote.role, Role::Client { host: "192.0.2.7".to_owned() });
}

#[test]
fn options_of_the_other_form_are_refused() {
    for (args, says) in [
        (&["--port", "7000"][..], "--port 7000: only with --server"),
        (&["--sl", "1"], "--sl 1: only with"),
        (&["--wait", "1"], "--wait 1: only with"),
        (&["--chk"], "all bytes are checked"),
        (&["--server", "--opcode", "read"], "--opcode read: with another process"),
        (&["--server", "--warmup", "5"], "--warmup 5: "),
        (&["host", "--wait", "5"], "--wait 5: only a server waits"),
    ] {
        let args = Only::try_parse_from(["pingpong"].iter().chain(args)).unwrap().args;
        let error = args.remote().unwrap_err().to_string();
        assert!(error.contains(says), "{args:?}: {error}");
    }
    assert!(Only::try_parse_from(["pingpong", "--server", "host"]).is_err());
    assert!(Only::try_parse_from(["pingpong", "--server", "--sl", "16"]).is_err());
}

#[test]
fn what_does_not_match_is_an_error_that_says_so() {
    // The receiver detects a message that is too short. A message that is too long does not fit its
    // receive, so its queue pair fails.
    let [_, server] = both(LinkLayer::Ethernet, &["-s", "100", "--timeout", "3"], &["-s", "200"]);
    let error = server.err().unwrap().to_string();
    assert!(error.contains("100 bytes, not a message of 200 (--size"), "{error}");
    let [client, server] = both(LinkLayer::Ethernet, &["-s", "200"], &["-s", "100"]);
    let (client, server) = (client.err().unwrap().to_string(), server.err().unwrap().to_string());
    assert!(client.contains("the message to the server failed"), "{client}");
    assert!(server.contains("the receive of the client's message failed"), "{server}");
    // A side that verifies page starts needs a peer that writes them.
    let [_, server] =
        both(LinkLayer::Ethernet, &["-n", "2", "--timeout", "3"], &["-n", "2", "--chk"]);
    let error = server.err().unwrap().to_string();
    assert!(
        error.contains("data of the client is wrong at offset 0: wanted 0x00, got 0x7b"),
        "{error}"
    );
    // IPv4 on one side only.
    let [_, server] = both(LinkLayer::Ethernet, &["-g", "1", "--timeout", "3"], &["-g", "3"]);
    assert!(server.err().unwrap().to_string().contains("IPv6 GID"));
}

/// Error of a server whose client is `client` on raw TCP.
fn server_against(args: &[&str], client: impl FnOnce(TcpStream)) -> String {
    let [device, _] = two(LinkLayer::Ethernet);
    let (config, remote) = parse(&[&["--server"], args].concat());
    let listener = Listener::bind(0).unwrap();
    let port = listener.port();
    let done = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            serve(Session::new(&device, &config, &remote, &NEVER)?, listener, |_, _| Ok(()))
        });
        client(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap());
        server.join().unwrap()
    });
    done.err().unwrap().to_string()
}

#[test]
fn a_client_that_makes_no_sense_ends_the_server() {
    let fine = b"0000:000123:abcdef:00000000000000000000ffff0a010203\0";
    let answered = |mut stream: TcpStream, last: &[u8]| {
        stream.write_all(fine).unwrap();
        let mut answer = [0; address::LEN];
        stream.read_exact(&mut answer).unwrap();
        assert!(Address::decode(&answer).unwrap().gid.is_some());
        stream.write_all(last).unwrap();
    };
    let short = &["--timeout", "2"];
    let error = server_against(&[], |mut stream| stream.write_all(&[b'!'; 80]).unwrap());
    assert!(error.contains("doesn't speak as ibv_rc_pingpong does: its LID"), "{error}");
    let error = server_against(&[], drop);
    assert!(
        error.contains("the peer's address did not come (0 bytes of 52): the client closed"),
        "{error}"
    );
    let error = server_against(&[], |stream| answered(stream, b"dune\0"));
    assert!(error.contains("`dune\\0` in place of `done`"), "{error}");
    let error = server_against(short, |stream| {
        answered(stream, b"");
        std::thread::sleep(Duration::from_secs(4));
    });
    assert!(error.contains("closed the connection") || error.contains("--timeout"), "{error}");
    // Valid lines over TCP, and then silence.
    let started = Instant::now();
    let error = server_against(short, |stream| answered(stream, b"done\0"));
    assert!(error.contains("iteration 1: the client's message did not come within"), "{error}");
    assert!(started.elapsed() < LIMIT);
    // A zero GID: an InfiniBand program without --gid-idx sends it.
    let none = b"0001:000123:abcdef:00000000000000000000000000000000\0";
    let error = server_against(&[], |mut stream| stream.write_all(none).unwrap());
    assert!(error.contains("start it with --gid-idx"), "{error}");
}

#[test]
fn a_client_that_only_sends_ends_the_server() {
    let [device, other] = two(LinkLayer::Ethernet);
    let (config, remote) = parse(&["--server", "-s", "16", "--timeout", "1"]);
    let listener = Listener::bind(0).unwrap();
    let port = listener.port();
    // This client has no receive for the response, which its HCA puts off for ever, and sends a
    // message that the server does not expect.
    let context = other.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(65).unwrap();
    let qp = context.queue_pair(&pd, &cq).max_send_wr(64).max_recv_wr(1).max_inline_data(16);
    let mut qp = qp.build().unwrap();
    let own = qp.prepare(&Local { rd_atomic: 1, rnr_retry: 7, ..Local::default() }).unwrap();
    let Endpoint { lid, qpn, psn, gid, .. } = own;
    std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            serve(Session::new(&device, &config, &remote, &NEVER)?, listener, |_, _| Ok(()))
        });
        let stream = Stream::connect("localhost", port, Duration::from_secs(30)).unwrap();
        let mut peer = Peer::new(stream, &NEVER);
        peer.write_address(&Address { lid, qpn, psn, gid }).unwrap();
        let Address { lid, qpn, psn, gid } = peer.read_address().unwrap();
        qp.connect(&Endpoint { lid, qpn, psn, gid, ..own }).unwrap();
        peer.write_done().unwrap();
        let started = Instant::now();
        while !server.is_finished() {
            assert!(started.elapsed() < LIMIT, "it serves for ever");
            let mut batch = qp.batch();
            // The queue is full once the peer does not acknowledge any more.
            let _ = batch.send_inline(1, &[0; 16]);
            batch.ring();
            let mut completions: [uverbs::WorkCompletion; 8] = Default::default();
            cq.poll_into(&mut completions);
            std::thread::sleep(Duration::from_millis(50));
        }
        let error = server.join().unwrap().err().unwrap().to_string();
        assert!(error.contains("an acknowledgement did not come within"), "{error}");
    });
}

#[test]
fn a_run_that_is_interrupted_tells_what_it_measured() {
    let [device, other] = two(LinkLayer::Ethernet);
    let (config, remote) = parse(&["localhost", "-n", "1000000000"]);
    let (server_config, server_remote) = parse(&["--server", "-n", "1000000000"]);
    let listener = Listener::bind(0).unwrap();
    let port = listener.port();
    let stop = AtomicBool::new(false);
    let done = std::thread::scope(|scope| {
        let server = scope.spawn(|| {
            let session = Session::new(&other, &server_config, &server_remote, &stop)?;
            serve(session, listener, |_, _| Ok(()))
        });
        let connect = || Stream::connect("localhost", port, config.timeout);
        let session = Session::new(&device, &config, &remote, &stop).unwrap();
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(500));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        // The stop may come before the sides have met; then both report it.
        let client = call(session, connect, |_, _| Ok(()));
        [client, server.join().unwrap()]
    });
    for done in done {
        match done {
            Ok(done) => {
                assert!(done.outcome.interrupted && done.outcome.iters < 1_000_000_000);
                let text = Report::new(&config, &remote, &done).text();
                assert!(text.starts_with("interrupted: "), "{text}");
            }
            Err(error) => assert!(error.to_string().contains("interrupted"), "{error}"),
        }
    }
}

#[test]
fn a_server_that_vanishes_ends_the_client() {
    let [device, other] = two(LinkLayer::Ethernet);
    let (config, remote) = parse(&["localhost", "-n", "1000000", "--timeout", "3"]);
    let (server_config, server_remote) = parse(&["--server", "-n", "50"]);
    let listener = Listener::bind(0).unwrap();
    let port = listener.port();
    let error = std::thread::scope(|scope| {
        // Sends fifty messages, and destroys its queue pair.
        let server = scope.spawn(|| {
            let session = Session::new(&other, &server_config, &server_remote, &NEVER)?;
            serve(session, listener, |_, _| Ok(()))
        });
        let connect = || Stream::connect("localhost", port, config.timeout);
        let session = Session::new(&device, &config, &remote, &NEVER).unwrap();
        let client = call(session, connect, |_, _| Ok(()));
        assert!(server.join().unwrap().is_ok());
        client.err().unwrap().to_string()
    });
    // The next message may still find a receive; then the answer is missing.
    let says = ["the message to the server failed", "the server's message did not come within"];
    assert!(says.iter().any(|says| error.contains(says)), "{error}");
    assert!(error.starts_with("iteration 5"), "{error}");
}
