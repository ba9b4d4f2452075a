//! The command line on software Elastic Fabric Adapters: SRD and UD, within a process. Two
//! processes: `network.rs`.

mod common;

use common::uverbs;

#[test]
fn messages_go_there_and_back() {
    for (connection, opcodes) in
        [("SRD", &["send", "send-imm", "write-imm", "read"][..]), ("UD", &["send", "send-imm"])]
    {
        for opcode in opcodes {
            for device in ["softefa", "softefa1"] {
                let words = ["-c", connection, "--opcode", opcode, "--iters", "100", "-s", "1000"];
                let words = [&["pingpong", "-d", device, "--json"][..], &words].concat();
                let report = uverbs(&words).ok().json();
                assert_eq!(report["verified"], true, "{connection} {opcode} {device}");
                assert_eq!(report["config"]["connection"], connection);
            }
        }
    }
    let refused = uverbs(&["pingpong", "-d", "softefa"]);
    assert_eq!(refused.complaint(1), "create_qp: unsupported: RC (EFA has UD and SRD)");
}

#[test]
fn bandwidth_and_latency_are_measured() {
    for operation in ["send", "write", "read"] {
        for test in ["lat", "bw"] {
            // The last byte of a WRITE tells nothing.
            if (operation, test) == ("write", "lat") {
                continue;
            }
            let words = ["perf", operation, test, "-d", "softefa", "-c", "SRD", "-n", "200"];
            uverbs(&words).ok();
        }
    }
}

#[test]
fn a_software_adapter_passes_the_check() {
    let json = uverbs(&["check", "-d", "softefa0", "--json"]).ok().json();
    assert_eq!((&json["failed"], &json["untried"]), (&0.into(), &0.into()), "{json:#}");
    let rows = json["rows"].as_array().unwrap();
    let of = |part: &str| rows.iter().filter(|row| row["part"] == part).count();
    // 2 operations of UD, 4 of SRD, and events.
    assert_eq!((of("messages"), of("numbers")), (7, 1), "{json:#}");
}

#[test]
fn the_adapter_is_described() {
    let text = uverbs(&["devinfo", "-v", "-d", "softefa0"]).ok().stdout;
    for row in [
        "driver:                         efa",
        "vendor_id:                      0x1d0f",
        "max_msg_sz:                     0x22e0",
        "max_srq:                        0",
        "efa_max_rdma_size:              1073741824",
        "efa_rdma_write:                 true",
        "GID[  0]:\t\tfe80::1, IB",
    ] {
        assert!(text.contains(row), "{row}: {text}");
    }
}

#[test]
fn a_device_of_the_process_serves_no_other() {
    let refused = uverbs(&["pingpong", "-d", "softefa0", "-c", "SRD", "--server"]);
    let why = "--device softefa0: it lives inside this process, and no other reaches it: use";
    assert!(refused.complaint(2).starts_with(why), "{refused:?}");
}
