//! `uverbs check`: a machine and a device.

mod common;

use std::process::Command;
use std::thread;

use common::{Run, command, run, uverbs};
use serde_json::Value;

#[test]
fn a_software_hca_passes_with_every_operation_verified() {
    let json = uverbs(&["check", "-d", "softhca0", "--queue-pairs", "40", "--json"]).ok().json();
    assert_eq!(json["kind"], "uverbs-check");
    assert_eq!((&json["failed"], &json["untried"]), (&0.into(), &0.into()), "{json:#}");
    let rows = json["rows"].as_array().unwrap();
    let of = |part: &str| rows.iter().filter(|row| row["part"] == part).count();
    // 7 operations each of RC, XRC and DC, 4 of UC, 2 of UD, and events.
    assert_eq!((of("messages"), of("errors"), of("numbers")), (28, 4, 2), "{json:#}");
    assert_eq!(of("connections"), 3, "{json:#}");
    assert!(rows.iter().any(|row| row["name"] == "kernel"), "{json:#}");
    let fences = rows.iter().find(|row| row["name"] == "fences").unwrap()["text"].as_str().unwrap();
    let conservative = cfg!(feature = "conservative-fences");
    assert_eq!(fences.starts_with("conservative-fences"), conservative, "{fences}");
}

#[test]
fn what_a_card_lacks_and_what_time_forbids_is_not_tried() {
    let mut check = command(&["check", "-d", "softhca0", "--queue-pairs", "3000", "--limit", "1"]);
    let run = run(check.env("UVERBS_SOFTHCA_PROFILE", "connectx-4"));
    // A second may do on a fast machine; it never fails.
    assert!(matches!(run.status, Some(0 | 3)), "{run:?}");
    assert!(run.stdout.contains(" 0 failed,"), "{run:?}");
    assert!(run.stdout.lines().all(|line| line.len() <= 100), "{run:?}");
}

/// A TCP port that is free now.
fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

/// Runs client and server; the client tries again until the server listens.
fn two(client: &[&str], server: &[&str]) -> [Run; 2] {
    let port = free_port();
    let words = ["check", "-d", "softhca@loopback", "--queue-pairs", "10", "--port", &port];
    let mut there = command(&[&words[..], &["--server", "--wait", "60"], server].concat());
    let there = thread::spawn(move || run(&mut there));
    let here = loop {
        let here = uverbs(&[&words[..], &["127.0.0.1"], client].concat());
        if !here.stderr.contains("nobody listens") {
            break here;
        }
    };
    [here, there.join().unwrap()]
}

fn rows<'v>(json: &'v Value, part: &str) -> Vec<&'v Value> {
    json["rows"].as_array().unwrap().iter().filter(|row| row["part"] == part).collect()
}

#[test]
fn two_processes_verify_each_others_bytes() {
    let [client, server] = two(&["--json"], &["--json"]);
    let (client, server) = (client.ok().json(), server.ok().json());
    for json in [&client, &server] {
        let messages = rows(json, "messages");
        assert_eq!(messages.len(), 28, "{json:#}");
        assert!(messages.iter().all(|row| row["verdict"] == "good"), "{json:#}");
    }
    let between = |row: &&Value| row["text"].as_str().unwrap().contains("between two processes");
    assert!(rows(&client, "numbers").iter().any(between), "{client:#}");
    assert_eq!((rows(&client, "errors").len(), rows(&server, "errors").len()), (4, 0));
}

#[test]
fn a_side_that_runs_out_of_time_does_not_hold_the_other() {
    let [client, server] = two(&["--limit", "1"], &["--json"]);
    assert!(matches!(client.status, Some(0 | 3)), "{client:?}");
    assert!(matches!(server.status, Some(0 | 1)), "{server:?}");
    let told = server.json();
    // A second may do on a fast machine.
    let late = client.status == Some(3);
    assert_eq!(server.stdout.contains("the limit of time"), late, "{told:#}");
}

#[test]
fn a_bundle_has_everything_and_no_address() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bundle.json");
    let words = ["check", "-d", "softhca0", "--queue-pairs", "5", "--limit", "5", "--bundle"];
    let run = uverbs(&[&words[..], &[path.to_str().unwrap()]].concat());
    // Five seconds may do on a fast machine.
    assert!(matches!(run.status, Some(0 | 3)), "{run:?}");
    let text = std::fs::read_to_string(&path).unwrap();
    let bundle: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(bundle["kind"], "uverbs-bundle");
    assert_eq!(bundle["report"]["kind"], "uverbs-check");
    assert_eq!(bundle["capabilities"]["hca_id"], "softhca0");
    assert!(bundle["capabilities"]["max_qp"].as_u64().unwrap() > 0);
    assert!(bundle["versions"]["kernel"].is_string());
    let trace = bundle["trace"].as_array().unwrap();
    assert!(trace.iter().any(|event| event["kind"] == "cqe"), "{:#}", bundle["trace"]);
    // Addresses that devinfo prints, and the host's name.
    let info = uverbs(&["devinfo", "-d", "softhca0", "-v", "--json"]).ok().json();
    let device = &info["devices"][0];
    let guid = device["node_guid"].as_str().unwrap();
    let gids = device["ports"][0]["gids"].as_array().unwrap();
    let gids = gids.iter().map(|gid| gid["gid"].as_str().unwrap());
    let host = Command::new("uname").arg("-n").output().unwrap().stdout;
    let host = String::from_utf8(host).unwrap();
    for secret in gids.chain([guid, host.trim()]) {
        assert!(info.to_string().contains(secret) || secret == host.trim());
        assert!(!text.contains(secret), "{secret}");
    }
    // The number in other forms.
    let number = u64::from_str_radix(&guid.replace(':', ""), 16).unwrap();
    for form in [number.to_string(), format!("{number:x}"), format!("{number:016x}")] {
        assert!(!text.contains(&form), "{form}");
    }
    let run = uverbs(&[&words[..], &["/no/such/folder/bundle.json"]].concat());
    assert!(run.complaint(1).contains("/no/such/folder"), "{run:?}");
}

#[test]
fn a_removed_device_ends_every_wait() {
    // Messages on a port that is not there fail at once; the removal is on the first port.
    let words = ["check", "-d", "softhca0", "--queue-pairs", "0", "-i", "7", "--removal", "--json"];
    let json = uverbs(&words).json();
    let removal = rows(&json, "removal");
    assert_eq!(removal.len(), 1, "{json:#}");
    assert_eq!(removal[0]["verdict"], "good", "{json:#}");
    assert!(removal[0]["text"].as_str().unwrap().contains("all frames came back"), "{json:#}");
    let json = uverbs(&words[..7]).stdout;
    assert!(!json.contains("removal"), "{json}");
}

#[test]
fn wrong_words_are_refused() {
    let run = uverbs(&["check", "-d", "mlx5_77"]);
    assert_eq!(run.status, Some(2), "{run:?}");
    assert!(run.stderr.contains("mlx5_77"), "{run:?}");
    assert_eq!(uverbs(&["check", "--limit", "0"]).status, Some(2));
    assert_eq!(uverbs(&["check", "--wait", "3"]).status, Some(2));
    let run = uverbs(&["check", "127.0.0.1", "-d", "softhca@loopback", "--port", &free_port()]);
    assert!(run.complaint(1).contains("nobody listens"), "{run:?}");
}

/// A question or a try that fails is one row, and the rest goes on.
#[test]
fn a_port_that_is_not_there_fails_row_by_row() {
    let words = ["check", "-d", "softhca0", "--ib-port", "7", "--queue-pairs", "5", "--json"];
    let run = uverbs(&words);
    assert_eq!(run.status, Some(1), "{run:?}");
    let json = run.json();
    let of = |name: &str| json["rows"].as_array().unwrap().iter().find(|row| row["name"] == name);
    assert_eq!(of("port 7").unwrap()["verdict"], "failed");
    assert_eq!(of("firmware").unwrap()["verdict"], "good");
    assert_eq!(of("5 queue pairs").unwrap()["verdict"], "good");
    assert_eq!(rows(&json, "messages").len(), 28);
    assert!(rows(&json, "messages").iter().all(|row| row["verdict"] != "good"), "{json:#}");
}
