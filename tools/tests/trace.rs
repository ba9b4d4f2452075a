//! `uverbs trace`: a message from post to completion, on both devices, in all formats.

mod common;

use std::path::PathBuf;

use common::{command, run, uverbs};

/// Arguments for one WRITE each way between two devices, one after the other.
const ONE: [&str; 12] = [
    "--", "uverbs", "pingpong", "--quiet", "--opcode", "write", "-s", "8", "--inline", "0", "-n",
    "1",
];

fn trace(options: &[&str], program: &[&str]) -> common::Run {
    uverbs(&[&["trace"], options, program].concat())
}

/// Path of a file, unique per test.
fn file(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("uverbs-trace-{}-{name}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    path
}

#[test]
fn a_write_is_seen_from_its_doorbell_to_its_completion() {
    let (json, svg) = (file("one.json"), file("one.svg"));
    let options = ["--json", json.to_str().unwrap(), "--svg", svg.to_str().unwrap(), "--quiet"];
    trace(&options, &[&ONE[..], &["--warmup", "0"]].concat()).ok();
    let text = std::fs::read_to_string(&json).unwrap();
    let picture = std::fs::read_to_string(&svg).unwrap();
    [json, svg].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = whole["events"].as_array().unwrap();
    let of = |device: &str, kind: &str| -> Vec<&serde_json::Value> {
        let is = |event: &&serde_json::Value| event["device"] == device && event["kind"] == kind;
        events.iter().filter(is).collect()
    };
    // The client's WRITE: events in order, with equal packet bytes on both devices.
    let first = |device, kind| of(device, kind)[0];
    let way = [
        first("softhca0", "doorbell"),
        first("softhca0", "wqe"),
        first("softhca0", "sent"),
        first("softhca1", "received"),
        first("softhca1", "sent"),
        first("softhca0", "received"),
        first("softhca0", "cqe"),
    ];
    let times: Vec<u64> = way.iter().map(|event| event["at"].as_u64().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert_eq!(way[2]["fields"]["bytes"], way[3]["fields"]["bytes"]);
    assert_eq!(way[4]["fields"]["bytes"], way[5]["fields"]["bytes"]);
    assert!(way[1]["explained"]["what"] == "RDMA_WRITE on Rc", "{}", way[1]);
    assert!(way[2]["line"].as_str().unwrap().starts_with("RC_WRITE_ONLY PSN "), "{}", way[2]);
    assert!(way[6]["line"].as_str().unwrap().contains("REQ: QP 0x40"), "{}", way[6]);
    // The data path has no further event, except of the server's WRITE.
    for (kind, count) in [("doorbell", 1), ("wqe", 1), ("sent", 2), ("received", 2), ("cqe", 1)] {
        for device in ["softhca0", "softhca1"] {
            assert_eq!(of(device, kind).len(), count, "{kind} of {device}");
        }
    }
    // Control path, with the attributes of commands.
    let lines = of("softhca0", "ioctl");
    let register = lines.iter().find(|event| event["line"].as_str().unwrap().starts_with("REG_MR"));
    assert_eq!(register.unwrap()["fields"]["got.0x1"].as_str().unwrap().len(), 24);
    for says in [">softhca0<", ">softhca1<", "doorbell: QP 0x40", "RC_ACKNOWLEDGE", "RDMA_WRITE"] {
        assert!(picture.contains(says), "{says}:\n{picture}");
    }
}

#[test]
fn lines_are_for_people() {
    let program = [&ONE[..], &["--warmup", "0"]].concat();
    let all = trace(&[], &program).ok().stdout;
    assert!(all.contains(" ioctl     QP_CREATE: ok in "), "{all}");
    let data = trace(&["--data", "--explain"], &program).ok().stdout;
    assert!(!data.contains(" ioctl "), "{data}");
    assert!(data.contains("\n    mlx5_wqe_raddr_seg\n"), "{data}");
}

#[test]
fn a_program_that_asks_for_no_device_is_told_and_its_status_is_ours() {
    let said = trace(&["--quiet"], &["--", "true"]);
    assert!(said.complaint(1).contains("did nothing with an RDMA device"));
    assert_eq!(trace(&["--quiet"], &["--", "false"]).status, Some(1));
    assert!(trace(&[], &["--", "/nonexistent"]).complaint(1).contains("/nonexistent"));
}

/// Processes of a program write to one trace: a packet sent by one is received by the other.
#[test]
fn two_processes_are_one_picture() {
    let (json, svg, log) = (file("two.json"), file("two.svg"), file("two.log"));
    let program = env!("CARGO_BIN_EXE_uverbs");
    let pid = std::process::id();
    let [server, client] =
        [1, 2].map(|last| format!("127.{}.{}.{last}", 0x80 | pid >> 8 & 0x7f, pid & 0xff));
    let log = log.display().to_string();
    let both = format!(
        "{program} rping --server -d softhca@{server} --json 2> {log} > /dev/null & \
         until grep -q listening {log}; do sleep 0.1; done; \
         {program} rping {server} -d softhca@{client} -n 1 --json > /dev/null && wait $!"
    );
    let options = ["--json", json.to_str().unwrap(), "--svg", svg.to_str().unwrap(), "--quiet"];
    trace(&options, &["--", "sh", "-c", &both]).ok();
    let text = std::fs::read_to_string(&json).unwrap();
    let picture = std::fs::read_to_string(&svg).unwrap();
    [json, svg, log.into()].iter().for_each(|path| std::fs::remove_file(path).unwrap());
    let whole: serde_json::Value = serde_json::from_str(&text).unwrap();
    let events = whole["events"].as_array().unwrap();
    let find = |kind: &str, device: &str| {
        let device = format!("softhca@{device}");
        let is = |event: &&serde_json::Value| {
            let connected = event["line"].as_str().unwrap().starts_with("RC_");
            event["kind"] == kind && event["device"] == *device && connected
        };
        events.iter().find(is).unwrap_or_else(|| panic!("{kind} of {device}"))
    };
    let (sent, received) = (find("sent", &client), find("received", &server));
    assert_ne!(sent["pid"], received["pid"]);
    assert!(sent["at"].as_u64() <= received["at"].as_u64());
    let bytes =
        |event: &serde_json::Value| event["fields"]["bytes"].as_str().unwrap()[..24].to_owned();
    assert_eq!(bytes(sent), bytes(received), "its base transport header");
    assert_eq!(picture.matches(">program ").count(), 2, "{picture}");
}

/// The trace is written to the file that the variable names; without a name none is written.
#[test]
fn without_the_variable_nothing_is_written() {
    let path = file("none");
    let mut plain = command(&["pingpong", "-n", "1", "--quiet"]);
    run(plain.env("UVERBS_TRACE", "")).ok();
    assert!(!path.exists());
    let mut traced = command(&["pingpong", "-n", "1", "--quiet"]);
    run(traced.env("UVERBS_TRACE", &path)).ok();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert!(text.lines().count() > 50 && text.lines().all(|line| line.split('\t').count() > 4));
}

#[test]
fn ctrl_c_ends_the_program_and_its_events_are_printed() {
    let folder = tempfile::tempdir().unwrap();
    // Both get the signal, as from a terminal.
    let uverbs = env!("CARGO_BIN_EXE_uverbs");
    let script = format!("{uverbs} pingpong --quiet -n 1; kill -INT $PPID $$");
    let mut traced = command(&["trace", "--", "sh", "-c", &script]);
    let run = run(traced.env("TMPDIR", folder.path()));
    assert_eq!(run.status, Some(128 + 2), "{run:?}");
    assert!(run.stdout.contains("RC_SEND_ONLY"), "{run:?}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
