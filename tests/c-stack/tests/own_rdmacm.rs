//! Unmodified programs of librdmacm on our library: two processes, with a software HCA each on the
//! loopback network, connect by address. Without privileges and without the kernel's rdma_cm.

use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use c_stack::{CStack, Run, run};

/// Limit of waits for a server's device, and for its listening program.
const LIMIT: Duration = Duration::from_secs(60);
/// UDP port of RoCEv2.
const PORT: u16 = 4791;

/// Addresses of server and client in the loopback network, unique per test.
fn addresses() -> [String; 2] {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let (number, pid) = (NEXT.fetch_add(2, Ordering::Relaxed), std::process::id());
    [number, number + 1].map(|last| format!("127.{}.{}.{last}", 128 | pid >> 8 & 0x3f, pid & 0xff))
}

/// Tests for a device at this address (proc(5), `/proc/net/udp`).
fn is_there(address: &str) -> bool {
    let bytes = address.split('.').rev().map(|byte| byte.parse::<u8>().unwrap());
    let hex: String = bytes.map(|byte| format!("{byte:02X}")).collect();
    let table = std::fs::read_to_string("/proc/net/udp").unwrap();
    table.contains(&format!("{hex}:{PORT:04X}"))
}

/// Runs a server and, once it listens, its client. Only the server's answer shows that it listens,
/// so a refused client is started again.
fn meet(mut server: Command, mut client: impl FnMut() -> Command, address: &str) -> [Run; 2] {
    thread::scope(|scope| {
        let server = scope.spawn(move || run(&mut server));
        let start = Instant::now();
        while !is_there(address) && !server.is_finished() {
            assert!(start.elapsed() < LIMIT, "no device at {address}");
            thread::sleep(Duration::from_millis(5));
        }
        let client = loop {
            let client = run(&mut client());
            let over = client.status == Some(0) || server.is_finished();
            if over || start.elapsed() > LIMIT {
                break client;
            }
            thread::sleep(Duration::from_millis(50));
        };
        [client, server.join().unwrap()]
    })
}

/// Command of a librdmacm program on a ConnectX. In `words`, `SERVER` and `CLIENT` stand for the
/// addresses.
fn program(stack: &CStack, words: &str, both: &[String; 2], own: &str) -> Command {
    on_device(stack, words, both, &format!("softhca@{own}"))
}

/// [`program`] on this device.
fn on_device(stack: &CStack, words: &str, [server, client]: &[String; 2], device: &str) -> Command {
    let words = words.replace("SERVER", server).replace("CLIENT", client);
    let mut words = words.split(' ');
    let mut command = stack.program_on_ours(words.next().unwrap(), device);
    command.args(words);
    command
}

/// Runs both; both must succeed.
fn pair(server: &str, client: &str) -> Option<[Run; 2]> {
    let stack = c_stack::unpacked()?;
    let both = addresses();
    let server = program(&stack, server, &both, &both[0]);
    let client = || program(&stack, client, &both, &both[1]);
    Some(meet(server, client, &both[0]).map(Run::ok))
}

#[test]
fn rping_reads_and_writes() {
    for more in ["", " -q"] {
        let server = format!("rping -s -a SERVER -C 5 -V{more}");
        let client = format!("rping -c -a SERVER -I CLIENT -C 5 -v -V -S 1000{more}");
        let Some([client, _]) = pair(&server.replace("-V", "-V -S 1000"), &client) else { return };
        let pings = client.stdout.lines().filter(|line| line.contains("rdma-ping-")).count();
        assert_eq!(pings, 5, "{client:?}");
    }
}

/// Connections by the LIDs of InfiniBand ports. Their IP addresses stand for IP over InfiniBand.
#[test]
fn infiniband_ports_connect_by_address() {
    let Some(stack) = c_stack::unpacked() else { return };
    for (prefix, options) in [("softhfi@", ""), ("softhca@", ",ib")] {
        for (server, client, wanted) in [
            (
                "rping -s -a SERVER -C 5 -V",
                "rping -c -a SERVER -I CLIENT -C 5 -v -V",
                "rdma-ping-4",
            ),
            ("ucmatose -b SERVER", "ucmatose -s SERVER -b CLIENT", "return status 0"),
            ("udaddy -b SERVER", "udaddy -s SERVER -b CLIENT", "return status 0"),
            ("rdma_server -s SERVER", "rdma_client -s SERVER", "end 0"),
        ] {
            // The last 16 bits are a LID, at most 0xbfff.
            let id = std::process::id() as u8 % 128;
            let both = addresses().map(|address| {
                let (_, last) = address.rsplit_once('.').unwrap();
                format!("127.58.{id}.{last}")
            });
            let [at, from] = [0, 1].map(|end| format!("{prefix}{}{options}", both[end]));
            let server = on_device(&stack, server, &both, &at);
            let runs = meet(server, || on_device(&stack, client, &both, &from), &both[0]);
            let [client, _] = runs.map(Run::ok);
            assert!(client.stdout.contains(wanted), "{at}: {client:?}");
        }
    }
}

/// The namespace has the loopback network alone. Linux refuses at once, too (`addr.c`,
/// `addr_resolve`).
#[test]
fn an_address_without_a_route_is_refused() {
    let Some(stack) = c_stack::unpacked() else { return };
    let unshared = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net", "sh", "-c", script, "sh"]);
        command
    };
    let may = unshared("ip link set lo up").stderr(Stdio::null()).status();
    if !may.is_ok_and(|status| status.success()) {
        c_stack::skip("no network namespaces here, or no unshare, or no ip");
        return;
    }
    let both = addresses();
    let rping = program(&stack, "rping -c -a 192.0.2.1 -C 1", &both, &both[0]);
    let mut command = unshared("ip link set lo up && exec \"$@\"");
    command.arg(rping.get_program()).args(rping.get_args());
    command.envs(rping.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let run = run(&mut command);
    assert!(run.stderr.contains("rdma_resolve_addr: Network is unreachable"), "{run:?}");
}

/// Both run under `uverbs run`, which puts our libraries before the distribution's.
#[test]
fn rping_by_uverbs_run() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(_) = our_tool() else { return };
    let tool = std::env::var("UVERBS_TOOL").unwrap();
    let both = addresses();
    let by = |words: &str, own: &str| {
        let program = program(&stack, words, &both, own);
        let mut command = Command::new(&tool);
        command.arg("run").arg("--libraries").arg(c_stack::our_folder());
        command.args(["-d", &format!("softhca@{own}"), "--"]).arg(program.get_program());
        command.args(program.get_args());
        let theirs = std::env::join_paths(stack.library_folders()).unwrap();
        command.env("LD_LIBRARY_PATH", theirs).env("LD_BIND_NOW", "1").env_remove("UVERBS_DEVICE");
        command
    };
    let server = by("rping -s -a SERVER -C 5 -V -S 3000", &both[0]);
    let client = || by("rping -c -a SERVER -I CLIENT -C 5 -v -V -S 3000", &both[1]);
    let [client, _] = meet(server, client, &both[0]).map(Run::ok);
    let pings = client.stdout.lines().filter(|line| line.contains("rdma-ping-")).count();
    assert_eq!(pings, 5, "{client:?}");
}

#[test]
fn ucmatose_connects_and_moves_messages() {
    for (server, client) in [("", ""), (" -c 5 -t 8", " -c 5 -t 8"), (" -m", " -m")] {
        let server = format!("ucmatose -b SERVER{server}");
        let Some(runs) = pair(&server, &format!("ucmatose -s SERVER -b CLIENT{client}")) else {
            return;
        };
        for run in runs {
            assert!(run.stdout.contains("return status 0"), "{run:?}");
        }
    }
}

#[test]
fn udaddy_sends_datagrams() {
    let Some(runs) = pair("udaddy -b SERVER -c 3", "udaddy -s SERVER -b CLIENT -c 3") else {
        return;
    };
    for run in runs {
        assert!(run.stdout.contains("data transfers complete"), "{run:?}");
    }
}

/// perftest exchanges parameters by its first connection and data by its second. Its server ends
/// the first listener before it creates the second.
#[test]
fn perftest_connects_twice_by_address() {
    for words in ["ib_send_bw -n 200", "ib_write_lat -n 100", "ib_read_bw -n 100 -q 2"] {
        let Some([client, _]) = pair(&format!("{words} -F -R"), &format!("{words} -F -R SERVER"))
        else {
            return;
        };
        assert!(client.stdout.contains("#iterations"), "{client:?}");
    }
}

/// By the blocking calls.
#[test]
fn rdma_client_and_server_exchange_a_message() {
    for (server, client) in [
        ("rdma_server -s SERVER", "rdma_client -s SERVER"),
        ("rdma_xserver -c r", "rdma_xclient -s SERVER -c r"),
        ("rdma_xserver -c x", "rdma_xclient -s SERVER -c x"),
    ] {
        let Some(runs) = pair(server, client) else { return };
        for run in runs {
            assert!(run.stdout.contains("end 0"), "{run:?}");
        }
    }
}

/// The network between processes carries no multicast: the test sees the join and the send only.
#[test]
fn mckey_joins_and_sends() {
    let Some(stack) = c_stack::unpacked() else { return };
    let both = addresses();
    let words = "mckey -m 239.1.2.3 -b CLIENT -s";
    let run = run(&mut program(&stack, words, &both, &both[1])).ok();
    for part in ["joined dgid: ::ffff:239.1.2.3", "data transfers complete", "return status 0"] {
        assert!(run.stdout.contains(part), "{run:?}");
    }
}

/// Returns a function that makes commands of our tool on a device with an address. Skips if the
/// tool is not built.
fn our_tool() -> Option<impl Fn(&str, &str) -> Command> {
    let tool = std::env::var_os("UVERBS_TOOL").filter(|path| !path.is_empty());
    if tool.is_none() {
        c_stack::skip("UVERBS_TOOL is not set (`cargo xtask judge` sets it)");
    }
    tool.map(|tool| {
        move |words: &str, own: &str| {
            let mut command = Command::new(&tool);
            command.args(words.split(' ')).args(["-d", &format!("softhca@{own}")]);
            command
        }
    })
}

/// The C program and our tool, each as server and as client.
#[test]
fn rping_meets_our_own() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(ours) = our_tool() else { return };
    let both = addresses();
    let server = program(&stack, "rping -s -a SERVER -C 7 -V -S 4096", &both, &both[0]);
    let words = format!("rping {} -n 7 -s 4096", both[0]);
    let _ = meet(server, || ours(&words, &both[1]), &both[0]).map(Run::ok);

    let both = addresses();
    let server = ours("rping --server", &both[0]);
    let client = || program(&stack, "rping -c -a SERVER -C 7 -V -S 4096", &both, &both[1]);
    let _ = meet(server, client, &both[0]).map(Run::ok);
}

/// Failures have C's error numbers, and the program continues.
#[test]
fn wrong_calls_are_refused() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("cm_calls") else { return };
    run(&mut stack.on_ours(&program, "softhca0")).checks(135);
    std::fs::remove_file(program).unwrap();
}

/// Each name belongs to one device while the list of devices changes.
#[test]
fn names_stay_with_their_devices() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("devices") else { return };
    let [first, second] = addresses();
    let [third, _] = addresses();
    run(stack.on_ours(&program, "").args([first, second, third])).checks(9);
    std::fs::remove_file(program).unwrap();
}

/// Echoes bytes by non-blocking calls, by blocking calls, and after `rpoll`; each end compares.
#[test]
fn rstream_moves_bytes() {
    for way in ["", " -T b", " -T a"] {
        let words = format!("-S 20000 -C 50 -I 2 -T v{way}");
        let server = format!("rstream -b SERVER {words}");
        let client = format!("rstream -s SERVER -b CLIENT -k 5 {words}");
        let Some([client, _]) = pair(&server, &client) else { return };
        assert!(client.stdout.contains("custom    19k     50      2       3.8m"), "{client:?}");
        assert!(client.stdout.contains("Keepalive: ON"), "{client:?}");
    }
}

/// Each end maps memory of its program, into which its peer writes.
#[test]
fn riostream_writes_into_mapped_memory() {
    let words = "-S 4096 -C 50 -I 2 -T v";
    let server = format!("riostream -b SERVER {words}");
    let Some(runs) = pair(&server, &format!("riostream -s SERVER {words}")) else { return };
    for run in runs {
        assert!(run.stdout.contains("custom    4k      50      2"), "{run:?}");
    }
}

/// The C program and our tool, each as server and as client.
#[test]
fn rstream_meets_our_own() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(ours) = our_tool() else { return };
    for (theirs, also) in [("rstream", ""), ("riostream", " --mapped")] {
        let counts = "-s 4096 --count 50 -n 2 --chk";
        let theirs = |end: &str| format!("{theirs} {end} -S 4096 -C 50 -I 2 -T v");
        let both = addresses();
        let server = program(&stack, &theirs("-b SERVER"), &both, &both[0]);
        let client = format!("rstream {} {counts}{also}", both[0]);
        let _ = meet(server, || ours(&client, &both[1]), &both[0]).map(Run::ok);
        let both = addresses();
        let server = ours(&format!("rstream --server {counts}{also}"), &both[0]);
        let client = || program(&stack, &theirs("-s SERVER"), &both, &both[1]);
        let _ = meet(server, client, &both[0]).map(Run::ok);
    }
}

/// Running server, which is killed when dropped.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The server counts datagrams sent by non-blocking calls, by blocking calls, and after `rpoll`.
/// Echoed datagrams are left out: after one that took more than a millisecond, udpong's client
/// repeats a sequence number and waits for ever (`client_send_recv`).
#[test]
fn udpong_moves_datagrams() {
    let Some(stack) = c_stack::unpacked() else { return };
    for way in ["", " -T b", " -T a"] {
        let both = addresses();
        let mut server = program(&stack, &format!("udpong -b SERVER{way}"), &both, &both[0]);
        let _serving = Serving(server.stdout(Stdio::null()).spawn().unwrap());
        let start = Instant::now();
        while !is_there(&both[0]) {
            assert!(start.elapsed() < LIMIT, "no device at {}", both[0]);
            thread::sleep(Duration::from_millis(5));
        }
        // The server's socket may not exist yet: the client asks every second.
        let words = format!("udpong -s SERVER -S 1000 -C 200{way}");
        let client = run(&mut program(&stack, &words, &both, &both[1])).ok();
        let line = client.stdout.lines().find(|line| line.starts_with("custom")).unwrap();
        let moved: u32 = line.split_whitespace().nth(2).unwrap().parse().unwrap();
        // Datagrams without room are lost; the server has room for 256.
        assert!((1..=200).contains(&moved), "{client:?}");
    }
}

/// The datagram calls of `c/datagrams.c`, which also runs in the virtual machines.
#[test]
fn sockets_of_datagrams_send_back() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(compiled) = stack.compile("datagrams") else { return };
    let both = addresses();
    let end = |words: [&str; 2], own: &str| {
        let mut command = stack.on_ours(&compiled, &format!("softhca@{own}"));
        command.args(words);
        command
    };
    let server = end(["server", &both[0]], &both[0]);
    let [client, _] = meet(server, || end(["client", &both[0]], &both[1]), &both[0]).map(Run::ok);
    assert!(client.stdout.contains("200 datagrams came back"), "{client:?}");
    std::fs::remove_file(compiled).unwrap();
}

#[test]
fn calls_of_sockets_are_right_and_wrong() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("sockets") else { return };
    run(&mut stack.on_ours(&program, "softhca0")).checks(52);
    // Datagrams travel by UDP, so their device needs an address of this machine.
    let [own, _] = addresses();
    run(stack.on_ours(&program, &format!("softhca@{own}")).arg("datagrams")).checks(18);
    std::fs::remove_file(program).unwrap();
}
