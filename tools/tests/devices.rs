//! `uverbs devices`, `uverbs devinfo`, help and version.

mod common;

use common::{command, run, uverbs};

/// Tests sysfs for RDMA devices.
fn has_devices() -> bool {
    let devices = std::fs::read_dir("/sys/class/infiniband");
    devices.is_ok_and(|mut devices| devices.next().is_some())
}

#[test]
fn without_a_device_the_embedded_one_is_listed() {
    if has_devices() {
        common::skip("this machine has RDMA devices");
        return;
    }
    let run = uverbs(&["devices"]).ok();
    let notes: Vec<_> = run.stderr.lines().collect();
    assert_eq!(notes.len(), 1, "{run:?}");
    assert!(notes[0].starts_with("uverbs: no RDMA device here, using the embedded software HCA"));
    let rows: Vec<Vec<_>> =
        run.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[0], ["device", "node", "GUID", "driver", "port", "state", "link", "layer"]);
    assert_eq!(rows.len(), 7, "{run:?}");
    let heads = ["device", "PCI", "address", "NUMA", "port", "interface", "Gb/s", "firmware"];
    assert_eq!(rows[4], heads);
    assert_eq!(rows[6][..6], ["softhca0", "-", "-", "1", "-", "100"], "{run:?}");
    assert_eq!(rows[6][7..], ["usable", "*"], "{run:?}");
    assert!(run.stdout.lines().skip(4).all(|line| line.len() <= 80), "{run:?}");
    assert_eq!(rows[2][0], "softhca0");
    assert_eq!(rows[2][1].len(), 16);
    assert_eq!(rows[2][2..], ["mlx5", "1", "PORT_ACTIVE", "Ethernet", "(embedded)"]);
    let json = uverbs(&["devices", "--json"]).ok().json();
    let device = &json["devices"][0];
    assert_eq!(device["name"], "softhca0");
    assert_eq!(device["node_guid"], rows[2][1]);
    assert_eq!(device["embedded"], true);
    assert_eq!((&device["usable"], &device["default"]), (&true.into(), &true.into()));
    assert_eq!(device["firmware"], rows[6][6]);
    assert_eq!(device["pci_address"], serde_json::Value::Null, "absent");
    assert_eq!(device["ports"][0]["gbps"], 100.0);
    assert_eq!(device["ports"][0]["state"], "PORT_ACTIVE");
}

#[test]
fn devinfo_has_the_fields_of_ibv_devinfo() {
    let run = uverbs(&["devinfo", "-d", "softhca"]).ok();
    assert_eq!(run.stderr, "");
    let name = |line: &str| line.trim().split(':').next().unwrap().to_owned();
    let names: Vec<_> = run.stdout.lines().filter(|line| !line.is_empty()).map(name).collect();
    #[rustfmt::skip]
    assert_eq!(names, [
        "hca_id", "driver", "usable", "transport", "fw_ver", "node_guid", "sys_image_guid", "vendor_id", "vendor_part_id",
        "hw_ver", "phys_port_cnt", "port", "state", "max_mtu", "active_mtu", "sm_lid", "port_lid", "port_lmc",
        "link_layer", "speed",
    ]);
    for part in ["hca_id:\tsofthca0\n", "PORT_ACTIVE (4)", "0x02c9", "4096 (5)"] {
        assert!(run.stdout.contains(part), "{part:?} is missing:\n{}", run.stdout);
    }
}

#[test]
fn devinfo_with_v_says_everything() {
    let args = ["devinfo", "-d", "softhca0", "-i", "1", "-v"];
    let text = uverbs(&args).ok().stdout;
    for part in [
        "max_mr_size:",
        "max_qp:",
        "atomic_cap:",
        "device_cap_flags:",
        "max_msg_sz:",
        "gid_tbl_len:",
        "GID[  0]:",
        "RoCE v1",
        "RoCE v2",
        "P_Key[  0]:\t\t0xffff",
        "counters, transport:",
        "rnr_naks_sent:",
    ] {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
    let json = uverbs(&[&args[..], &["--json"]].concat()).ok().json();
    let device = &json["devices"][0];
    assert_eq!(device["hca_id"], "softhca0");
    assert_eq!(device["phys_port_cnt"], 1);
    assert!(device["max_qp"].as_u64().unwrap() > 0);
    let port = &device["ports"][0];
    assert_eq!(port["active_mtu"], 4096);
    assert_eq!(port["state"], "PORT_ACTIVE");
    assert_eq!(port["pkeys"][0]["pkey"], 0xffff);
    assert_eq!(port["counters"]["transport"]["retransmits"], 0);
    let gids = port["gids"].as_array().unwrap();
    assert!(gids.iter().any(|entry| entry["type"] == "RoCE v2"), "{port}");
    assert!(gids.iter().all(|entry| entry["gid"] != "::"), "{port}");
}

#[test]
fn bad_arguments_are_one_line_and_status_2() {
    for (args, says) in [
        (&["devinfo", "-d", "mlx5_77"][..], "no RDMA device `mlx5_77`"),
        (&["devinfo", "-d", "softhca", "-i", "2"], "--port 2: softhca0 has ports 1 to 1"),
        (&["devinfo", "-d", "softhca", "-i", "0"], "--port 0: "),
        (&["devinfo", "-d", "softhca", "-i", "256"], "256"),
        (&["devices", "-v"], "'-v'"),
        (&["nonsense"], "'nonsense'"),
    ] {
        let run = uverbs(args);
        let line = run.complaint(2);
        assert!(line.contains(says), "{args:?}: {line}");
    }
}

#[test]
fn help_and_version() {
    let version = uverbs(&["--version"]).ok().stdout;
    assert_eq!(version, concat!("uverbs ", env!("CARGO_PKG_VERSION"), "\n"));
    for args in
        [&["--help"][..], &["pingpong", "--help"], &["devices", "--help"], &["devinfo", "--help"]]
    {
        let help = uverbs(args).ok().stdout;
        assert!(help.contains("EXIT STATUS"), "{help}");
        assert!(help.lines().all(|line| line.chars().count() <= 120), "{help}");
    }
    let help = uverbs(&["pingpong", "--help"]).ok().stdout;
    for part in [
        "UNITS",
        "EXAMPLES",
        "[default: 10000;",
        "half the round trip",
        "--gid-index",
        "ibv_rc_pingpong",
    ] {
        assert!(help.contains(part), "{part:?} is missing:\n{help}");
    }
    // Without a command, help is printed, with the exit status of wrong arguments.
    let none = uverbs(&[]);
    assert_eq!(none.status, Some(2));
    assert!(none.stderr.contains("Usage: uverbs"), "{none:?}");
}

#[test]
fn a_full_disk_is_an_error() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut child = command(&["devinfo", "-d", "softhca"]);
    let child = child.stdout(full).spawn().unwrap();
    let done = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(done.stderr).unwrap();
    assert_eq!(done.status.code(), Some(1), "{stderr}");
    assert!(stderr.starts_with("uverbs: writing the report: ") && stderr.lines().count() == 1);
}

#[test]
fn a_wrong_sysfs_is_no_device() {
    if has_devices() {
        common::skip("RDMA netlink tells of this machine's devices without sysfs");
        return;
    }
    let done = run(command(&["devices", "--json"]).env("SYSFS_PATH", "/nonexistent")).ok();
    assert_eq!(done.json()["devices"][0]["embedded"], true);
}
