//! Unmodified C programs on our libibverbs (`c-abi/`) and the software HCA, without privileges.

use std::path::PathBuf;

use c_stack::CStack;
use c_stack::both::{both, free_port};

#[test]
fn devices_are_listed_and_described() {
    let Some(stack) = c_stack::unpacked() else { return };
    let device = "softhca@loopback,softhca0";
    let text = c_stack::run(&mut stack.program_on_ours("ibv_devices", device)).ok().stdout;
    let names: Vec<_> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    // UCX stores 15 bytes of a name.
    assert_eq!(names, ["device", "------", "softhca_0", "softhca0"], "{text}");
    let text = c_stack::run(stack.program_on_ours("ibv_devinfo", device).arg("-v")).ok().stdout;
    let count = |part: &str| text.lines().filter(|line| line.contains(part)).count();
    for part in ["hca_id:\tsofthca", "PORT_ACTIVE (4)", "max_qp:", "RoCE v2", "fw_ver:\t\t\t\t99."]
    {
        assert_eq!(count(part), if part == "RoCE v2" { count(part).max(2) } else { 2 }, "{text}");
    }
}

#[test]
fn what_is_asked_for_and_cant_be_had_is_said() {
    let Some(stack) = c_stack::unpacked() else { return };
    for (device, why) in [
        ("mlx5_17", "No such device"),
        ("softhca@here", "Invalid argument"),
        ("softhca@192.0.2.1", "Cannot assign requested address"),
    ] {
        let run = c_stack::run(&mut stack.program_on_ours("ibv_devices", device));
        assert_ne!(run.status, Some(0), "{device}: {run:?}");
        assert!(run.stderr.contains(why), "{device}: {run:?}");
    }
}

#[test]
fn ping_pong_between_two_processes() {
    let Some(stack) = c_stack::unpacked() else { return };
    let id = std::process::id() as u8;
    for (name, size) in [
        ("ibv_rc_pingpong", "100000"),
        ("ibv_uc_pingpong", "4096"),
        ("ibv_ud_pingpong", "2048"),
        ("ibv_srq_pingpong", "4096"),
    ] {
        for events in [&[][..], &["-e"]] {
            let port = free_port();
            let end = |last: u8, host: &[&str]| {
                let device = format!("softhca@127.56.{id}.{last}");
                let mut command = stack.program_on_ours(name, &device);
                command.args(["-g", "0", "-n", "100", "-s", size, "-p", &port]);
                command.args(events).args(host);
                command
            };
            for run in both(end(1, &[]), end(2, &["127.0.0.1"]), &port) {
                let text = run.ok().stdout;
                assert!(text.contains("100 iters in"), "{name} {events:?}: {text}");
            }
        }
    }
}

/// A library that takes over the program's sockets (libvma) does not get the device's.
#[test]
fn sockets_of_the_device_are_the_systems() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(taker) = stack.compile_library("taker") else { return };
    let id = std::process::id() as u8;
    let mut command = stack.program_on_ours("ibv_devinfo", &format!("softhca@127.57.{id}.1"));
    let text = c_stack::run(command.env("LD_PRELOAD", &taker)).ok().stdout;
    assert!(text.contains("PORT_ACTIVE"), "{text}");
    std::fs::remove_file(taker).unwrap();
}

/// perftest's tools post by `ibv_wr_*`; they run under `uverbs run`.
#[test]
fn perftest_between_two_processes() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(tool) = std::env::var_os("UVERBS_TOOL").filter(|path| !path.is_empty()) else {
        c_stack::skip("UVERBS_TOOL is not set (`cargo xtask judge` sets it)");
        return;
    };
    let usual = [
        "ib_write_bw",
        "ib_write_bw -b -q 4",
        "ib_write_bw --use_old_post_send",
        "ib_write_lat",
        "ib_send_bw -e",
        "ib_send_bw -c UC",
        "ib_send_bw -c UD -s 1024",
        "ib_send_bw -r 64 --use-srq",
        "ib_send_lat -c UD",
        "ib_send_lat",
        "ib_read_bw",
        "ib_read_lat",
        "ib_atomic_bw",
        "ib_atomic_lat -A CMP_AND_SWAP",
    ];
    let by_lid = ["ib_send_lat", "ib_send_lat -c UD", "ib_write_bw", "ib_read_bw"];
    // Index 0 is the link-local GID, index 3 the IPv4 address; an InfiniBand port needs neither.
    let rows = usual.map(|words| ("softhca", "-x 0", words)).into_iter();
    let rows = rows.chain([("softhca", "-x 3", "ib_send_lat")]);
    let rows = rows.chain(by_lid.map(|words| ("softhca@loopback,ib", "", words)));
    for (device, gid, words) in rows {
        let port = free_port();
        let (name, options) = words.split_once(' ').unwrap_or((words, ""));
        let end = |host: &[&str]| {
            let program = stack.program_on_ours(name, "");
            let mut command = stack.program_on_ours(tool.to_str().unwrap(), "");
            command.arg("run").arg("--libraries").arg(c_stack::our_folder());
            command.args(["-d", device, "--"]).arg(program.get_program());
            command.args(["-F", "-n", "20", "-p", &port]).args(gid.split_whitespace());
            // Seven tries of a second each, instead of half a second in all: on a busy machine the
            // peer's device, which is a thread, may wait that long.
            command.args(["-u", "18"]);
            command.args(options.split_whitespace()).args(host);
            command
        };
        let [client, server] = both(end(&[]), end(&["127.0.0.1"]), &port);
        server.ok();
        let text = client.ok().stdout;
        assert!(text.contains("#iterations"), "{device} {gid} {words}: {text}");
    }
}

#[test]
fn operations_and_threads() {
    let Some(stack) = c_stack::unpacked() else { return };
    for (name, least) in [("rc_loop", 300), ("threads", 10), ("pieces", 5000)] {
        let Some(program) = stack.compile(name) else { return };
        c_stack::run(&mut stack.on_ours(&program, "softhca0")).checks(least);
        std::fs::remove_file(program).unwrap();
    }
}

/// The book's C programs print what their ports in Rust print. The preloaded device has no
/// connection manager.
#[test]
fn programs_beside_their_ports() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("porting") else { return };
    let ports = include_str!("../../../examples/output/porting.txt");
    assert_eq!(c_stack::run(&mut stack.on_ours(&program, "softhca0")).ok().stdout, ports);
    let theirs = c_stack::run(stack.command(&program).arg("verbs")).ok().stdout;
    assert_eq!(Some(theirs.as_str()), ports.strip_suffix("cm      connected by address\n"));
    std::fs::remove_file(program).unwrap();
}

/// Our library passes the same checks as C's: queues whose lock the program holds, objects
/// left undestroyed, a queue shared by threads.
#[test]
fn held_queues_and_objects_left() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("held") else { return };
    c_stack::run(&mut stack.command(&program)).checks(40);
    c_stack::run(&mut stack.on_ours(&program, "softhca0")).checks(40);
    std::fs::remove_file(program).unwrap();
}

/// Our library passes the same checks as C's: raw packets, flow rules, work queues, imports.
#[test]
fn packets_and_imports() {
    let Some(stack) = c_stack::unpacked() else { return };
    for (name, least) in [("packets", 300), ("import", 40)] {
        let Some(program) = stack.compile(name) else { return };
        let mut theirs = stack.command(&program);
        c_stack::run(theirs.env("UVERBS_SOFTHCA_LINK", "eth")).checks(least);
        c_stack::run(&mut stack.on_ours(&program, "softhca0")).checks(least);
        std::fs::remove_file(program).unwrap();
    }
}

/// Our library and C's pass the same checks: the device's limits, windows, receives, arms.
#[test]
fn corners_of_the_device() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("corners") else { return };
    c_stack::run(&mut stack.command(&program)).checks(500);
    c_stack::run(&mut stack.on_ours(&program, "softhca0")).checks(500);
    std::fs::remove_file(program).unwrap();
}

/// Indirect mkeys, which C's library creates by a DEVX command.
#[test]
fn keys_of_parts() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("mkeys") else { return };
    c_stack::run(&mut stack.on_ours(&program, "softhca0")).checks(60);
    std::fs::remove_file(program).unwrap();
}

/// Valid and invalid calls have the same results in the distribution's library and in ours, on
/// devices of one kind.
#[test]
fn every_call_ends_as_with_the_c_library() {
    let Some(stack) = c_stack::unpacked() else { return };
    for (name, least) in [("calls", 120), ("direct", 35)] {
        let Some(program) = stack.compile(name) else { return };
        let theirs = c_stack::run(stack.command(&program).env("UVERBS_SOFTHCA_LINK", "eth")).ok();
        let ours = c_stack::run(&mut stack.on_ours(&program, "softhca0")).ok();
        assert!(theirs.stdout.lines().count() > least, "{}", theirs.stdout);
        let differ: Vec<_> =
            theirs.stdout.lines().zip(ours.stdout.lines()).filter(|(c, rust)| c != rust).collect();
        assert!(differ.is_empty(), "(C, ours): {differ:#?}");
        assert_eq!(theirs.stdout.lines().count(), ours.stdout.lines().count());
        std::fs::remove_file(program).unwrap();
    }
}

/// Commands of a forked child fail: the device refuses them, since it is the parent's; for an
/// embedded device our library does. The parent's objects keep working.
#[test]
fn a_forked_child_sends_as_with_the_c_library() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("forked") else { return };
    let theirs = c_stack::run(&mut stack.command(&program)).ok().stdout;
    assert_eq!(theirs.lines().filter(|line| line.starts_with("child")).count(), 4, "{theirs}");
    assert_eq!(theirs, c_stack::run(&mut stack.ours_on_preloaded(&program)).ok().stdout);
    let embedded = c_stack::run(&mut stack.on_ours(&program, "softhca0")).ok().stdout;
    let (eio, eperm) = (libc::EIO.to_string(), libc::EPERM.to_string());
    assert_eq!(theirs.replace(&format!("null {eio}"), &format!("null {eperm}")), embedded);
    std::fs::remove_file(program).unwrap();
}

/// Copies by the device (`mlx5dv_wr_memcpy`): WQE bytes, completions and refusals are the same in
/// the distribution's library and in ours, on devices of one kind.
#[test]
fn copies_as_with_the_c_library() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some((program, lines)) = lines_as_with_the_c_library(&stack, "copies", 900) else { return };
    for mut more in [stack.ours_on_preloaded(&program), stack.on_ours(&program, "softhca0")] {
        let said = c_stack::run(more.arg("ours")).ok().stdout;
        assert!(said.lines().count() > lines, "{said}");
    }
    std::fs::remove_file(program).unwrap();
}

/// Receives of a shared queue that page faults end are posted again by both libraries, on the card
/// that ends them so.
#[test]
fn page_faults_of_shared_receives_as_with_the_c_library() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("page_faults") else { return };
    for mut run in [stack.command(&program), stack.ours_on_preloaded(&program)] {
        c_stack::run(run.env("UVERBS_SOFTHCA_FAULTS", "1")).checks(300);
    }
    // Debian's library can't have the doorbell pages of this card.
    let mut ours = stack.on_ours(&program, "softhca0");
    c_stack::run(ours.env("UVERBS_SOFTHCA_PROFILE", "future")).checks(300);
    std::fs::remove_file(program).unwrap();
}

/// Ports of queue pairs on bonded ports, and refusals without them.
#[test]
fn bonded_ports_as_with_the_c_library() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("lag") else { return };
    for mut run in [stack.command(&program), stack.ours_on_preloaded(&program)] {
        c_stack::run(run.arg("bonded").env("UVERBS_SOFTHCA_BONDED", "1")).checks(30);
    }
    for mut run in [stack.command(&program), stack.ours_on_preloaded(&program)] {
        c_stack::run(&mut run).checks(10);
    }
    std::fs::remove_file(program).unwrap();
}

/// Functions that Debian 12's library lacks, on Debian 13's as far as it has them, and on ours.
#[test]
fn newer_functions_as_with_the_c_library() {
    let path = "/devices/virtual/softhca/data_direct";
    let (Some(stack), Some(newer)) = (c_stack::unpacked(), c_stack::trixie()) else { return };
    let Some(program) = stack.compile("newer") else { return };
    for (stack, is_ours, least) in [(&newer, false, 11), (&stack, true, 17)] {
        let command = || match is_ours {
            true => stack.ours_on_preloaded(&program),
            false => stack.command(&program),
        };
        c_stack::run(&mut command()).checks(least);
        c_stack::run(command().arg(path).env("UVERBS_SOFTHCA_DATA_DIRECT", "1")).checks(least + 1);
    }
    c_stack::run(&mut stack.on_ours(&program, "softhca0")).checks(17);
    std::fs::remove_file(program).unwrap();
}

/// Raw WQEs: bytes, completions and refusals are the same in both libraries.
#[test]
fn raw_wqes_as_with_the_c_library() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some((program, lines)) = lines_as_with_the_c_library(&stack, "raw_wqes", 900) else {
        return;
    };
    let embedded = c_stack::run(&mut stack.on_ours(&program, "softhca0")).ok().stdout;
    assert_eq!(embedded.lines().count(), lines);
    std::fs::remove_file(program).unwrap();
}

/// Runs a C program on the distribution's library and on ours, on devices of one kind, and compares
/// the lines. Returns the program and the number of lines, which is more than `least`.
fn lines_as_with_the_c_library(
    stack: &CStack,
    name: &str,
    least: usize,
) -> Option<(PathBuf, usize)> {
    let program = stack.compile(name)?;
    let theirs = c_stack::run(&mut stack.command(&program)).ok().stdout;
    let ours = c_stack::run(&mut stack.ours_on_preloaded(&program)).ok().stdout;
    let lines = theirs.lines().count();
    assert!(lines > least, "{theirs}");
    let differ: Vec<_> = theirs.lines().zip(ours.lines()).filter(|(c, rust)| c != rust).collect();
    assert!(differ.is_empty(), "(C, ours): {differ:#?}");
    assert_eq!(lines, ours.lines().count());
    Some((program, lines))
}

/// Tag lists: requests, completions and refusals are the same in the distribution's library and in
/// ours, on devices of one kind.
#[test]
fn tags_as_with_the_c_library() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("tags") else { return };
    for (link, least) in [("ib", 230), ("eth", 18)] {
        let theirs = c_stack::run(stack.command(&program).env("UVERBS_SOFTHCA_LINK", link)).ok();
        let run = |args: &[&str]| {
            let mut ours = stack.ours_on_preloaded(&program);
            c_stack::run(ours.env("UVERBS_SOFTHCA_LINK", link).args(args)).ok()
        };
        let (ours, polled) = (run(&[]), run(&["poll"]));
        let lines = theirs.stdout.lines().zip(ours.stdout.lines());
        let differ: Vec<_> = lines.filter(|(c, rust)| c != rust).collect();
        assert!(differ.is_empty(), "{link}: (C, ours): {differ:#?}");
        // Only extended completions have a message's header, and only ours checks handles.
        let told = |line: &str| line.split(" tag ").next().unwrap().to_owned();
        let is_both = |line: &&str| line.starts_with("ok ") && !line.ends_with(" (ours)");
        let told = |run: &c_stack::Run| run.stdout.lines().filter(is_both).map(told).collect();
        let both: [Vec<String>; 2] = [told(&ours), told(&polled)];
        assert_eq!(both[0], both[1], "{link}");
        for run in [theirs, ours, polled] {
            run.checks(least);
        }
    }
    std::fs::remove_file(program).unwrap();
}
