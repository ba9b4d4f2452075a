//! C programs on software adapters, by Debian 13's libefa and by our library: described by
//! `ibv_devinfo`, and messages between two processes.

use std::process::Command;

use c_stack::CStack;
use c_stack::both::{both, free_port};

/// Address of a process's device: softefa's own port, on a network of this test's.
fn address(last: u8, carrier: &str) -> String {
    let id = std::process::id() as u8;
    format!("127.58.{id}.{last}{carrier}")
}

/// A command on Debian 13's libraries, whose device has an address.
fn on_theirs(stack: &CStack, mut command: Command, last: u8, carrier: &str) -> Command {
    stack.on_efa(&mut command);
    command.env("UVERBS_SOFTHCA_UDP", address(last, carrier));
    command
}

#[test]
fn an_adapter_is_listed_and_described() {
    let Some(stack) = c_stack::trixie() else { return };
    let Some(programs) = c_stack::unpacked() else { return };
    let devinfo = programs.root().join("usr/bin/ibv_devinfo");
    let theirs = on_theirs(&stack, stack.command(&devinfo), 9, "");
    let ours = ["softefa0", "softefa@loopback"].map(|name| programs.on_ours(&devinfo, name));
    for mut command in [theirs].into_iter().chain(ours) {
        let text = c_stack::run(command.arg("-v")).ok().stdout;
        for wanted in [
            "transport:\t\t\tunspecified (4)",
            "0x1d0f",
            "61346",
            "max_sge_rd:\t\t\t1",
            "PORT_ACTIVE (4)",
            "max_msg_sz:\t\t0x22e0",
            "GID[  0]:",
        ] {
            assert!(text.contains(wanted), "{wanted} in {text}");
        }
    }
    let devices = programs.root().join("usr/bin/ibv_devices");
    let text = c_stack::run(&mut programs.on_ours(&devices, "softefa0,softefa1")).ok().stdout;
    assert_eq!(text.matches("softefa").count(), 2, "{text}");
}

#[test]
fn datagrams_between_two_processes() {
    let Some(stack) = c_stack::trixie() else { return };
    let Some(programs) = c_stack::unpacked() else { return };
    let program = programs.root().join("usr/bin/ibv_ud_pingpong");
    for (is_ours, carrier, events) in [
        (false, ",shm", ""),
        (false, ",udp", ""),
        (false, ",shm", "-e"),
        (false, ",udp", "-e"),
        (true, "", ""),
        (true, ",udp", ""),
        (true, "", "-e"),
        (true, ",udp", "-e"),
    ] {
        let port = free_port();
        let end = |last, host: &[&str]| {
            let mut command = match is_ours {
                false => on_theirs(&stack, stack.command(&program), last, carrier),
                true => programs.on_ours(&program, &format!("softefa@{}", address(last, carrier))),
            };
            command.args(["-g", "0", "-n", "50", "-s", "2048", "-p", &port]);
            command.args(Some(events).filter(|events| !events.is_empty())).args(host);
            command
        };
        for run in both(end(1, &[]), end(2, &["127.0.0.1"]), &port) {
            let text = run.ok().stdout;
            assert!(text.contains("50 iters in"), "{is_ours} {carrier} {events}: {text}");
        }
    }
}

#[test]
fn messages_between_two_processes() {
    let Some(stack) = c_stack::trixie() else { return };
    let Some(programs) = c_stack::unpacked() else { return };
    let libraries = ["-libverbs", "-Wl,--allow-shlib-undefined"];
    let Some(program) = stack.compile_with("srd_pair", &libraries) else { return };
    for (is_ours, kind, carrier) in [
        (false, None, ",shm"),
        (false, None, ",udp"),
        (false, Some("ud"), ""),
        (true, Some("ud"), ""),
    ] {
        let port = free_port();
        let end = |side: &str, last| {
            let mut command = match is_ours {
                false => on_theirs(&stack, stack.command(&program), last, carrier),
                true => programs.on_ours(&program, &format!("softefa@{}", address(last, carrier))),
            };
            command.args([side, &port]).args(kind);
            command
        };
        for run in both(end("server", 3), end("client", 4), &port) {
            let text = run.ok().stdout;
            assert!(text.contains(" 0 failed"), "{is_ours} {kind:?} {carrier}: {text}");
        }
    }
}

/// Completion counters, which no Debian package has: over our library alone.
#[test]
fn a_program_counts_completions() {
    let Some((stack, program)) = super::compile("counters") else { return };
    let mut command = stack.ours_on_preloaded(&program);
    stack.on_efa(&mut command);
    let text = c_stack::run(&mut command).ok().stdout;
    assert!(text.contains(" 0 failed"), "{text}");
}

/// Rings and doorbells of `efadv_query_cq` and `efadv_query_qp_wqs`, opened like a kernel's device.
#[test]
fn a_program_may_have_its_own_data_path() {
    let Some((stack, program)) = super::compile("efa_direct") else { return };
    let mut command = stack.ours_on_preloaded(&program);
    stack.on_efa(&mut command);
    let text = c_stack::run(&mut command).ok().stdout;
    assert!(text.contains(" 0 failed"), "{text}");
}
