//! Unmodified TCP programs on `librspreload.so`: two processes, with a software HCA each on the
//! loopback network. The client's address at the server tells the transport: the address of the
//! client's device for RDMA, the system's for TCP.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};

use c_stack::{CStack, Run, run};

/// Addresses of server and client in the loopback network, unique per test.
fn addresses() -> [String; 2] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let (number, pid) = (NEXT.fetch_add(2, Ordering::Relaxed), std::process::id());
    [number, number + 1].map(|last| format!("127.{}.{}.{last}", 64 | pid >> 8 & 0x3f, pid & 0xff))
}

/// Command of a program on the preloaded library, with the device at this address.
fn preloaded(program: impl AsRef<Path>, device: &str) -> Command {
    let mut command = Command::new(program.as_ref());
    command.env("LD_PRELOAD", c_stack::built("librspreload.so"));
    command.env("LD_LIBRARY_PATH", c_stack::our_folder()).env("LC_ALL", "C");
    command.env("UVERBS_DEVICE", format!("softhca@{device}"));
    // The machine's configuration must not change the test.
    command.env("RS_PRELOAD_CONFIG", "/dev/null");
    command
}

/// The machine's Python binary, not a wrapper script; `None` with a stated skip.
fn python() -> Option<PathBuf> {
    let words = ["-c", "import sys; print(sys.executable, end='')"];
    let asked = Command::new("python3").args(words).stderr(Stdio::null()).output();
    let found = asked.ok().filter(|asked| asked.status.success());
    if found.is_none() {
        c_stack::skip("no python3 here");
    }
    found.map(|asked| PathBuf::from(String::from_utf8(asked.stdout).unwrap()))
}

/// Runs both ends of Python's sockets; `with` may change each command.
fn sockets(way: &str, with: impl Fn(&mut Command)) -> Option<([Run; 2], [String; 2])> {
    let python = python()?;
    let both = addresses();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("python/sockets.py");
    let [server, client] = [("server", &both[0]), ("client", &both[1])].map(|(end, device)| {
        let mut command = preloaded(&python, device);
        command.arg(&script).args([way, end, &both[0]]);
        with(&mut command);
        command
    });
    Some((together(server, client), both))
}

fn together(mut server: Command, mut client: Command) -> [Run; 2] {
    thread::scope(|scope| {
        let server = scope.spawn(move || run(&mut server));
        let client = run(&mut client);
        [server.join().unwrap(), client]
    })
}

/// Checks that all bytes came back, and that the server saw its client at `peer`.
#[track_caller]
fn check([server, client]: [Run; 2], peer: &str) {
    let (server, client) = (server.ok(), client.ok());
    assert!(client.stdout.contains("the same"), "{client:?}");
    let total = client.stdout.split_whitespace().last().unwrap();
    assert_eq!(server.stdout.trim(), format!("echoed {total} for {peer}"), "{client:?}");
}

/// By blocking calls, by a duplicated descriptor, and from a file.
#[test]
fn pythons_sockets_move_bytes() {
    let Some((runs, [_, client])) = sockets("plain", |_| {}) else { return };
    check(runs, &client);
}

#[test]
fn pythons_sockets_wait_by_select_poll_and_epoll() {
    for way in ["select", "poll", "epoll"] {
        let Some((runs, [_, client])) = sockets(way, |_| {}) else { return };
        check(runs, &client);
    }
}

/// Calls librdmacm's epoll directly; the preloaded library's epoll uses it.
#[test]
fn calls_of_repoll_are_right_and_wrong() {
    let Some(python) = python() else { return };
    let mut command = preloaded(python, &addresses()[0]);
    command.env_remove("LD_PRELOAD");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("python/repoll.py"));
    assert_eq!(run(&mut command).ok().stdout, "all as it should be\n");
}

/// The child of the server switches the connection to RDMA.
#[test]
fn a_forking_server_changes_at_the_first_byte() {
    let with = |command: &mut Command| {
        command.env("RDMAV_FORK_SAFE", "1");
    };
    let Some((runs, [_, client])) = sockets("forked", with) else { return };
    check(runs, &client);
}

/// Workers wait at a listener that is older than they are: one of them has the device's address,
/// and at its end the other one.
#[test]
fn a_worker_accepts_from_its_parents_listener() {
    let Some((runs, [_, client])) = sockets("workers", |_| {}) else { return };
    let halves = runs.map(|run| {
        let run = run.ok();
        let (first, second) = run.stdout.trim().split_once('\n').unwrap_or_default();
        assert_eq!(first, second);
        Run { stdout: first.to_owned(), ..run }
    });
    check(halves, &client);
}

#[test]
fn a_worker_without_descriptors_is_told() {
    let Some(([server, _], _)) = sockets("full", |_| {}) else { return };
    assert_eq!(server.ok().stdout, "Too many open files\n");
}

#[test]
fn a_child_can_only_close_a_connection_of_its_parent() {
    let Some((runs, _)) = sockets("children", |_| {}) else { return };
    let [server, client] = runs.map(Run::ok);
    let [refused, done] = ["Transport endpoint is not connected", "Success"];
    assert_eq!(server.stdout.lines().collect::<Vec<_>>(), [refused, refused, done, done]);
    assert_eq!(client.stdout, "");
}

/// C's library has three descriptors for each connection.
#[test]
fn connections_take_few_descriptors() {
    let Some((runs, _)) = sockets("many", |_| {}) else { return };
    for run in runs.map(Run::ok) {
        let each: f64 = run.stdout.trim().parse().unwrap();
        assert!(each <= 6.0, "{each} descriptors a connection");
    }
}

/// If the server does not listen by RDMA, the client connects by TCP.
#[test]
fn a_server_without_rdma_is_reached_by_tcp() {
    let with = |command: &mut Command| {
        if command.get_args().any(|word| word == "server") {
            command.env_remove("LD_PRELOAD");
        }
    };
    let Some((runs, _)) = sockets("plain", with) else { return };
    check(runs, "127.0.0.1");
}

/// The configuration excludes sockets of other programs and of other address families.
#[test]
fn the_configuration_says_whose_sockets_are_taken() {
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("rs-{}", std::process::id()));
    for (lines, is_taken) in [
        ("# others\niperf3 * * *\n", false),
        ("python INET6 STREAM TCP\n", false),
        ("python * DGRAM *\n", false),
        ("Python AF_INET sock_stream *\n", true),
        ("too few words\n", true),
    ] {
        std::fs::write(&file, lines).unwrap();
        let with = |command: &mut Command| {
            command.env("RS_PRELOAD_CONFIG", &file);
        };
        let Some((runs, [_, client])) = sockets("plain", with) else { return };
        check(runs, if is_taken { &client } else { "127.0.0.1" });
    }
    std::fs::remove_file(file).unwrap();
}

/// Command of a distribution's program that knows no RDMA.
fn program(stack: &CStack, path: &str, device: &str) -> Command {
    let mut command = preloaded(stack.root().join(path), device);
    // `our_folder` is searched first.
    let folders = std::iter::once(c_stack::our_folder()).chain(stack.library_folders());
    command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap());
    command
}

/// Waits for the server's device (proc(5), `/proc/net/udp`), which is opened to listen.
fn wait_for(device: &str) {
    let bytes = device.split('.').rev().map(|byte| byte.parse::<u8>().unwrap());
    let hex: String = bytes.map(|byte| format!("{byte:02X}")).collect();
    let start = Instant::now();
    while !std::fs::read_to_string("/proc/net/udp").unwrap().contains(&format!("{hex}:12B7")) {
        assert!(start.elapsed() < Duration::from_secs(60), "no device at {device}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Runs a client once the server's device is there. The server listens a moment later, and the
/// client tries once: a refused client is started again.
fn ask<T>(client: &mut Command, server: &ScopedJoinHandle<'_, T>, device: &str) -> Run {
    wait_for(device);
    let start = Instant::now();
    loop {
        let asked = run(client);
        let is_early = asked.stderr.contains("refused") && !server.is_finished();
        if !is_early || start.elapsed() > Duration::from_secs(60) {
            return asked.ok();
        }
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn netcat_and_iperf3_run_as_they_are() {
    let Some(stack) = c_stack::unpacked() else { return };
    let [server, client] = addresses();
    let mut listens = program(&stack, "bin/nc.openbsd", &server);
    listens.args(["-l", "-v", &server, "7001"]);
    let mut asks = program(&stack, "bin/nc.openbsd", &client);
    asks.args(["-N", &server, "7001"]);
    let [listened, _] = thread::scope(|scope| {
        let listens = scope.spawn(move || run(&mut listens));
        let asked = ask(&mut asks, &listens, &server);
        [listens.join().unwrap().ok(), asked]
    });
    assert!(listened.stderr.contains(&client), "{listened:?}");

    let [server, client] = addresses();
    let mut serves = program(&stack, "usr/bin/iperf3", &server);
    serves.args(["-s", "-1", "-B", &server]);
    let mut asks = program(&stack, "usr/bin/iperf3", &client);
    asks.args(["-c", &server, "-n", "2M"]);
    let [_, asked] = thread::scope(|scope| {
        let serves = scope.spawn(move || run(&mut serves));
        let asked = ask(&mut asks, &serves, &server);
        [serves.join().unwrap().ok(), asked]
    });
    assert!(asked.stdout.contains(&format!("local {client} port")), "{asked:?}");
    assert!(asked.stdout.contains("2.00 MBytes"), "{asked:?}");
}

/// First on the system's sockets, which say what is right.
#[test]
fn waits_and_flags_are_as_of_the_systems_sockets() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("waits") else { return };
    let [address, _] = addresses();
    run(Command::new(&program).arg(&address)).ok();
    run(preloaded(&program, &address).arg(&address)).ok();
}
