//! Our command line on the preloaded device, which it takes for a kernel's. So it uses discovery in
//! sysfs and the kernel's door (`open`, `ioctl`, `mmap` of a device node), which no in-process test
//! reaches.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use c_stack::both::{free_port, listens};

/// Command of our tool, built by `cargo xtask judge`; `None` with a stated skip.
fn tool(args: &[&str]) -> Option<Command> {
    let Some(path) = std::env::var_os("UVERBS_TOOL").filter(|path| !path.is_empty()) else {
        c_stack::skip("UVERBS_TOOL is not set (`cargo xtask judge` sets it)");
        return None;
    };
    let mut command = c_stack::preloaded(Path::new(&path));
    command.args(args);
    Some(command)
}

#[test]
fn it_finds_the_device() {
    let Some(mut command) = tool(&["devices"]) else { return };
    let run = c_stack::run(&mut command).ok();
    let row = run.stdout.lines().find(|line| line.contains("softhca0")).unwrap();
    let row: Vec<_> = row.split_whitespace().collect();
    assert_eq!(row, ["softhca0", "00ca05fffe000001", "mlx5", "1", "PORT_ACTIVE", "Ethernet"]);
}

#[test]
fn it_moves_data() {
    for link in ["eth", "ib"] {
        for opcode in ["send", "write-imm", "read", "fetch-add"] {
            let args = ["pingpong", "-d", "softhca0", "--iters", "200", "--opcode", opcode];
            let Some(mut command) = tool(&args) else { return };
            let run = c_stack::run(command.env("UVERBS_SOFTHCA_LINK", link)).ok();
            assert!(run.stdout.contains("verified"), "{run:?}");
            assert!(!run.stderr.contains("embedded"), "{run:?}");
        }
    }
}

/// Traces commands through the kernel's door to the preloaded device.
#[test]
fn its_commands_are_traced() {
    let path = std::env::temp_dir().join(format!("uverbs-own-trace-{}", std::process::id()));
    let json = path.to_str().expect("a path in ASCII");
    let args = ["trace", "--quiet", "--json", json, "--", "uverbs", "pingpong", "-n", "1"];
    let Some(mut command) = tool(&args) else { return };
    c_stack::run(&mut command).ok();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    for says in ["QP_CREATE: ok in ", "REG_MR: ok in ", "QP_DESTROY: ok in ", "REQ of SEND"] {
        assert!(text.contains(says), "{says}");
    }
}

/// Limit of a side of the ping-pong, since the C server waits for ever.
const LIMIT: Duration = Duration::from_secs(12);

/// `ibv_rc_pingpong` and our `pingpong` exchange addresses over TCP, in both roles. Each process
/// has a separate device, so no message arrives; `cargo xtask vm` tests that on one device.
#[test]
fn it_exchanges_addresses_with_the_c_program() {
    let Some(stack) = c_stack::unpacked() else { return };
    for ours_serves in [true, false] {
        let port = free_port();
        let options =
            ["-p", &port, "-d", "softhca0", "-i", "1", "-s", "8192", "-m", "2048", "-r", "20"];
        let options = [&options[..], &["-n", "10", "-g", "3"]].concat();
        let Some(mut ours) = tool(&["pingpong", "--timeout", "5"]) else { return };
        let mut theirs = stack.program("ibv_rc_pingpong");
        // perftest's letters with another meaning are long options of our tool.
        ours.args(&options).args(["--sl", "2", "--chk"]).env("UVERBS_SOFTHCA_NUMBER", "1");
        theirs
            .args(&options)
            .args(["-l", "2", "-c"])
            .env("UVERBS_SOFTHCA_NUMBER", "2")
            .env("UVERBS_SOFTHCA_LINES", "1");
        let (server, client) =
            if ours_serves { (&mut ours, &mut theirs) } else { (&mut theirs, &mut ours) };
        if ours_serves {
            server.arg("--server");
        }
        client.arg("127.0.0.1");
        let (server, client) = std::thread::scope(|scope| {
            let server = scope.spawn(|| c_stack::run_limited(server, LIMIT));
            // The C client does not wait for a server, and a test connection would count as a
            // client.
            let started = Instant::now();
            while !listens(&port) && started.elapsed() < LIMIT {
                std::thread::sleep(Duration::from_millis(20));
            }
            let client = c_stack::run_limited(client, LIMIT);
            (server.join().unwrap(), client)
        });
        let (ours, theirs) = if ours_serves { (server, client) } else { (client, server) };
        let line = |text: &str, whose: &str| {
            let line = text.lines().find_map(|line| line.trim().strip_prefix(whose));
            line.unwrap_or_else(|| panic!("{whose} in {ours:?}\n{theirs:?}")).trim().to_owned()
        };
        assert_eq!(line(&ours.stdout, "local "), line(&theirs.stdout, "remote address:"));
        assert_eq!(line(&ours.stdout, "remote "), line(&theirs.stdout, "local address:"));
        // The client's first message is lost; our server waits for it.
        let says = if ours_serves { "the client's message did not come" } else { "the message to" };
        assert_eq!(ours.status, Some(1), "{ours:?}\n{theirs:?}");
        assert!(ours.stderr.contains(says), "{ours:?}\n{theirs:?}");
    }
}
