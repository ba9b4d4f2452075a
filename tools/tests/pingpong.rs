//! `uverbs pingpong`: every operation at every edge size, on the embedded software HCA.

mod common;

use std::io::Read;
use std::process::Stdio;
use std::time::Duration;

use common::{command, interrupt, run, uverbs};
use serde_json::Value;

const OPCODES: [&str; 7] =
    ["send", "send-imm", "write", "write-imm", "read", "compare-swap", "fetch-add"];

/// Runs on the software HCA with these arguments and a JSON report.
#[track_caller]
fn json(args: &[&str]) -> Value {
    let fixed = ["pingpong", "--device", "softhca", "--json"];
    let run = uverbs(&[&fixed, args].concat()).ok();
    assert_eq!(run.stderr, "", "{args:?}");
    let report = run.json();
    assert_eq!(report["verified"], true, "{args:?}");
    report
}

#[test]
fn every_transport_is_verified() {
    for (connection, opcodes, size) in [
        ("UC", &["send", "send-imm", "write", "write-imm"][..], "5000"),
        ("ud", &["send", "send-imm"], "1024"),
    ] {
        for opcode in opcodes {
            for inline in ["0", "64"] {
                let words = ["-c", connection, "--opcode", opcode, "--iters", "100", "-I", inline];
                let report = json(&[&words[..], &["--warmup", "5", "--size", size]].concat());
                assert_eq!(report["config"]["connection"], connection.to_uppercase());
                assert_eq!(report["counts"]["verified"], 210, "{connection} {opcode}");
                let report = json(&[&words[..], &["--warmup", "5", "--size", "40"]].concat());
                assert_eq!(report["counts"]["verified"], 210, "{connection} {opcode}");
            }
        }
    }
}

/// All opcodes over XRC and DC, and receives from a shared queue with every transport.
#[test]
fn every_opcode_is_verified_over_xrc_dc_and_a_shared_queue() {
    for opcode in OPCODES {
        let xrc = [&["-c", "XRC"][..], &["-c", "xrc", "-I", "0"]];
        let dc = [&["-c", "DC"][..], &["-c", "dc", "-I", "0"]];
        for words in [xrc, dc].into_iter().flatten().chain([&["--use-srq"][..]]) {
            let args = ["--opcode", opcode, "--iters", "100", "--warmup", "5"];
            let report = json(&[&args[..], words].concat());
            assert_eq!(report["counts"]["verified"], 210, "{opcode} {words:?}");
        }
    }
    for connection in ["UC", "UD", "XRC", "DC"] {
        let args = ["-c", connection, "--use-srq", "--iters", "100", "--warmup", "5", "-s", "1024"];
        assert_eq!(json(&args)["counts"]["verified"], 210, "{connection}");
    }
    let args = ["-c", "XRC", "--size", "100000", "--iters", "20"];
    assert_eq!(json(&args)["config"]["connection"], "XRC");
}

#[test]
fn every_opcode_is_verified() {
    for opcode in OPCODES {
        let report = json(&["--opcode", opcode, "--iters", "200", "--warmup", "10"]);
        assert_eq!(report["config"]["opcode"], opcode);
        assert_eq!(report["counts"]["verified"], 420, "{opcode}");
        assert_eq!(report["counts"]["measured"], 400, "{opcode}");
        let size = report["config"]["size"].as_u64().unwrap();
        assert_eq!(size, if matches!(opcode, "compare-swap" | "fetch-add") { 8 } else { 64 });
        assert_eq!(report["counts"]["verified_bytes"], 420 * size);
        let one_sided = matches!(opcode, "read" | "compare-swap" | "fetch-add");
        let of = if one_sided { "operation" } else { "half_round_trip" };
        assert_eq!(report["latency"]["of"], of);
        assert_eq!(report["latency"]["samples"], if one_sided { 400 } else { 200 });
    }
}

#[test]
fn sizes_around_the_mtu_are_verified() {
    for opcode in ["send", "send-imm", "write", "write-imm", "read"] {
        for size in ["1", "7", "8", "4095", "4096", "4097", "12289"] {
            let report = json(&["--opcode", opcode, "--size", size, "--iters", "20"]);
            assert_eq!(report["config"]["size"].to_string(), size);
        }
    }
}

#[test]
fn a_mebibyte_is_verified() {
    for opcode in ["send", "write", "write-imm", "read"] {
        let report = json(&["--opcode", opcode, "--size", "1M", "--iters", "4", "--warmup", "1"]);
        assert_eq!(report["counts"]["verified_bytes"], 10 << 20, "{opcode}");
    }
}

#[test]
fn settings_are_verified() {
    for args in [
        &["--inline", "0"][..],
        &["--inline", "64", "--size", "64"],
        &["--inline", "64", "--size", "65"],
        &["--inline", "200", "--size", "200", "--opcode", "write-imm"],
        &["--doorbell", "non-cached"],
        &["--doorbell", "non-cached", "--inline", "0", "--opcode", "write"],
        &["--mtu", "256", "--size", "1025"],
        &["--gid-index", "0"],
        &["--rx-depth", "1"],
        &["--rx-depth", "100"],
        &["--warmup", "0"],
        &["--events"],
        &["-e", "--opcode", "write-imm", "--size", "5000"],
    ] {
        let report = json(&[args, &["--iters", "50"]].concat());
        assert_eq!(report["latency"]["samples"], 50, "{args:?}");
    }
    // Both sides read the peer's memory.
    assert_eq!(json(&["-e", "--opcode", "read", "--iters", "50"])["verified"], true);
    assert_eq!(json(&["--mtu", "256", "--iters", "1"])["client"]["mtu"], 256);
    assert_eq!(json(&["--gid-index", "0", "--iters", "1"])["client"]["gid_type"], "RoCE v1");
}

#[test]
fn two_sides_on_one_hca() {
    let run = uverbs(&["pingpong", "-d", "softhca1", "-n", "20", "--json"]).ok();
    let report = run.json();
    assert_eq!(report["client"]["device"], "softhca1");
    assert_eq!(report["server"]["device"], "softhca1");
    assert_ne!(report["client"]["qpn"], report["server"]["qpn"]);
    assert_ne!(json(&["-n", "1"])["client"]["gid"], json(&["-n", "1"])["server"]["gid"]);
}

#[test]
fn the_report_is_consistent() {
    let report = json(&["--iters", "500"]);
    let latency = &report["latency"];
    let order = ["min", "p50", "p90", "p99", "p99_9", "p99_99", "max"];
    let times = order.map(|name| latency[name].as_u64().unwrap());
    assert!(times.is_sorted() && times[0] > 0, "{latency}");
    assert_eq!(latency["unit"], "ns");
    let mean = latency["mean"].as_f64().unwrap();
    assert!(mean >= times[0] as f64 && mean <= times[6] as f64);
    let buckets = report["histogram"].as_array().unwrap();
    let count = |bucket: &Value| bucket["count"].as_u64().unwrap();
    assert_eq!(buckets.iter().map(count).sum::<u64>(), 500);
    // Rates are of the measured time: two messages per round trip, one at a time.
    let rate = report["rates"]["messages_per_s"].as_f64().unwrap();
    assert!((rate * mean / 1e9 - 1.0).abs() < 0.05, "{rate} messages/s at {mean} ns each");
    assert!((report["rates"]["bytes_per_s"].as_f64().unwrap() / rate - 64.0).abs() < 1e-6);
    let clocked = report["time"]["clocked_ns"].as_u64().unwrap();
    assert!(clocked <= report["time"]["wall_ns"].as_u64().unwrap());
    assert_eq!(report["config"]["timeout_ns"], 10_000_000_000u64);
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_text_is_for_people() {
    let args = ["pingpong", "-d", "softhca", "-n", "100"];
    let text = uverbs(&args).ok().stdout;
    for part in ["send ping-pong over RC, 64 bytes", "client ", "verified   220 messages", "p99.99"]
    {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
    // With any unit: a busy machine takes milliseconds.
    assert!(text.contains("s |#"), "{text}");
    assert!(text.is_ascii(), "{text}");
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    assert!(text.lines().filter(|line| line.contains(" |")).all(|line| line.len() <= 80), "{text}");
    let utf8 = run(command(&args).env("LC_ALL", "C.UTF-8")).ok().stdout;
    assert!(utf8.contains("s │") && utf8.contains("█"), "{utf8}");
    let quiet = uverbs(&[&args[..], &["--quiet"]].concat()).ok().stdout;
    assert!(quiet.contains("verified   220 messages") && !quiet.contains('|'), "{quiet}");
}

#[test]
fn a_note_says_which_device_but_no_bar_is_drawn_into_a_pipe() {
    // Long enough for the progress bar.
    let run = uverbs(&["pingpong", "--size", "64K", "-n", "3000"]).ok();
    if std::fs::read_dir("/sys/class/infiniband").is_ok_and(|mut devices| devices.next().is_some())
    {
        common::skip("this machine has RDMA devices, and then there is no note");
        return;
    }
    let note = "uverbs: no RDMA device here, using the embedded software HCA (softhca)\n";
    assert_eq!(run.stderr, note);
    assert_eq!(uverbs(&["pingpong", "--quiet", "-n", "1"]).ok().stderr, "");
}

#[test]
fn bad_arguments_are_one_line_and_status_2() {
    for (args, says) in [
        (&["--device", "mlx5_77"][..], "no RDMA device `mlx5_77`"),
        (&["--size", "0"], "at least 1 byte"),
        (&["--size", "2147483649"], "at most 2147483648 bytes"),
        (&["--size", "2G"], "a message of softhca0 has at most"),
        (&["--size", "many"], "'many'"),
        (&["--iters", "0"], "'0' for '--iters"),
        (&["--inline", "100K"], "--inline 102400: "),
        (&["--inline", "8", "--opcode", "read"], "--inline 8: "),
        (&["--gid-index", "9999"], "--gid-index 9999: the port's GID table has"),
        (&["--gid-index", "200"], "--gid-index 200: "),
        (&["--ib-port", "0"], "--ib-port 0: softhca0 has ports 1 to 1"),
        (&["-i", "2"], "--ib-port 2: softhca0 has ports 1 to 1"),
        (&["--port", "2"], "--port 2: only with --server or HOST"),
        (&["--mtu", "1500"], "an MTU is 256"),
        (&["--rx-depth", "4294967295"], "--rx-depth 4294967295: "),
        (&["--opcode", "fetch-add", "--size", "4"], "--size 4: an atomic has 8 bytes"),
        (&["--opcode", "sned"], "[possible values: send, "),
        (&["--timeout", "-1"], "must be over 0"),
        (&["--no-such-option"], "--no-such-option"),
        (&["-e", "--opcode", "write"], "--events : a peer that only writes raises no event"),
        (&["-l", "3"], "use -S or --sl"),
        (&["host", "extra"], "'extra'"),
        (&["--server", "--device", "softhca0"], "--device softhca0: it lives inside this process"),
        (&["192.0.2.7", "--device", "softhca1"], "--device softhca1: it lives inside this process"),
        (&["--server", "192.0.2.7"], "cannot be used with"),
    ] {
        let device: &[_] = if args.contains(&"--device") { &[] } else { &["--device", "softhca"] };
        let run = uverbs(&[&["pingpong"], device, args].concat());
        let line = run.complaint(2);
        assert!(line.contains(says), "{args:?}: {line}");
    }
}

#[test]
fn a_peer_that_is_too_slow_is_one_line_and_status_1() {
    // A quarter of a million packets: no device sends them before the time is checked.
    let args = ["--size", "64M", "--mtu", "256", "--timeout", "0.000001", "--json"];
    let run = uverbs(&[&["pingpong", "-d", "softhca"], &args[..]].concat());
    let line = run.complaint(1);
    assert!(line.contains("iteration 1: ") && line.contains("did not come within"), "{line}");
}

#[test]
fn an_interrupt_reports_what_was_measured() {
    for opcode in ["send", "write", "read", "fetch-add"] {
        let args = ["pingpong", "-d", "softhca", "-n", "1000000000", "--opcode", opcode, "--json"];
        let child = command(&args).spawn().unwrap();
        interrupt(&child, Duration::from_millis(500));
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(report["interrupted"], true);
        let verified = report["counts"]["verified"].as_u64().unwrap();
        assert!(verified < 2_000_000_000, "{report}");
        let samples = report["latency"]["samples"].as_u64().unwrap();
        assert!(samples <= verified, "{report}");
    }
    let child = command(&["pingpong", "-d", "softhca", "-n", "1000000000"]).spawn().unwrap();
    interrupt(&child, Duration::from_millis(100));
    let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
    assert!(text.contains("interrupted after ") && text.contains("  verified   "), "{text}");
}

#[test]
fn sixty_columns_are_enough() {
    let args = ["pingpong", "-d", "softhca", "-n", "200"];
    for utf8 in ["C", "C.UTF-8"] {
        let run = run(command(&args).env("COLUMNS", "60").env("LC_ALL", utf8)).ok();
        assert!(run.stdout.lines().all(|line| line.chars().count() <= 60), "{}", run.stdout);
    }
    let help = run(command(&["pingpong", "--help"]).env("COLUMNS", "60")).ok().stdout;
    let long = help.lines().filter(|line| line.chars().count() > 60).collect::<Vec<_>>();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = command(&["pingpong", "-d", "softhca", "-n", "10"]);
    let mut child = child.stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{stderr}");
    assert_eq!(stderr, "");
}
