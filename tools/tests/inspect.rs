//! `uverbs counters`, `resources`, `topology` and `top` on the software HCA.

mod common;

use std::fs;

use common::{command, run, uverbs};

#[test]
fn counters_of_a_software_hca_are_printed_in_each_format() {
    let text = uverbs(&["counters", "-d", "softhca0", "--all"]).ok();
    assert_eq!(text.stderr, "");
    for part in ["softhca0 port 1\n", "softhca0 port 1, hardware\n", "softhca0 device\n"] {
        assert!(text.stdout.contains(part), "{part:?} is missing:\n{}", text.stdout);
    }
    assert!(text.stdout.lines().all(|line| line.len() <= 80), "{}", text.stdout);
    let zeros = uverbs(&["counters", "-d", "softhca0"]).ok().stdout;
    assert!(zeros.lines().count() == 1 && zeros.contains("--all prints them"), "{zeros}");
    let json = uverbs(&["counters", "-d", "softhca0", "--json"]).ok().json();
    let device = &json["devices"][0];
    assert_eq!((&device["name"], &device["gaps"]), (&"softhca0".into(), &serde_json::json!([])));
    let counters = device["counters"].as_array().unwrap();
    let found = counters.iter().find(|one| one["name"] == "out_of_buffer").unwrap();
    assert_eq!((&found["set"], &found["port"]), (&"hardware".into(), &1.into()));
    assert_eq!(found["value"], 0);
    let metrics = uverbs(&["counters", "-d", "softhca0", "--prometheus"]).ok().stdout;
    for line in [
        "# TYPE uverbs_hw_out_of_buffer_total counter",
        "uverbs_hw_out_of_buffer_total{device=\"softhca0\",port=\"1\"} 0",
        "uverbs_port_xmit_packets_total{device=\"softhca0\",port=\"1\"} 0",
        "uverbs_unread_parts{device=\"softhca0\"} 0",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is missing:\n{metrics}");
    }
}

#[test]
fn a_watch_prints_as_often_as_asked_without_escapes_in_a_pipe() {
    let args = ["counters", "-d", "softhca0", "--watch", "--interval", "0.05", "--count", "3"];
    let text = uverbs(&args).ok().stdout;
    assert_eq!(text.matches("--all prints them").count(), 3, "{text}");
    assert!(!text.contains('\x1b'), "{text:?}");
    let lines = uverbs(&[&args[..], &["--json"]].concat()).ok().stdout;
    assert_eq!(lines.lines().count(), 3, "{lines}");
    let last: serde_json::Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["devices"][0]["counters"][0]["per_second"], 0.0, "{last}");
    for bad in [&["counters", "--count", "3"][..], &["counters", "--watch", "--prometheus"]] {
        uverbs(bad).complaint(2);
    }
}

#[test]
fn without_objects_resources_says_so() {
    let args = ["resources", "-d", "softhca0"];
    assert_eq!(uverbs(&args).ok().stdout, "no objects\n");
    let json = uverbs(&[&args[..], &["--json"]].concat()).ok().json();
    assert_eq!(json, serde_json::json!({ "holders": [], "gaps": [] }));
    let summary = uverbs(&[&args[..], &["--summary"]].concat()).ok().stdout;
    assert!(summary.starts_with("   ctx     pd "), "{summary}");
    let run = uverbs(&["resources", "-d", "mlx5_77"]);
    assert!(run.complaint(2).contains("no RDMA device `mlx5_77`"), "{run:?}");
}

/// Sysfs of a machine with two nodes, a GPU and an NVMe; the GPU's class file is readable, the
/// NVMe's node is garbage.
fn machine() -> tempfile::TempDir {
    let sysfs = tempfile::tempdir().unwrap();
    let file = |path: &str, text: &str| {
        let path = sysfs.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let gpu = "devices/pci0000:16/0000:16:02.0/0000:17:00.0";
    let nvme = "devices/pci0000:97/0000:98:00.0";
    for (path, class, node) in [(gpu, "0x030200", "0\n"), (nvme, "0x010802", "garbage\n")] {
        file(&format!("{path}/class"), class);
        file(&format!("{path}/numa_node"), node);
        let name = path.rsplit('/').next().unwrap();
        fs::create_dir_all(sysfs.path().join("bus/pci/devices")).unwrap();
        let link = sysfs.path().join("bus/pci/devices").join(name);
        std::os::unix::fs::symlink(sysfs.path().join(path), link).unwrap();
    }
    file(&format!("{nvme}/nvme/nvme3/state"), "live\n");
    file("devices/system/node/node0/cpulist", "0-7\n");
    sysfs
}

#[test]
fn a_topology_is_text_json_and_a_picture() {
    let sysfs = machine();
    let with = |args: &[&str]| run(command(args).env("SYSFS_PATH", sysfs.path())).ok();
    let text = with(&["topology"]).stdout;
    for part in
        ["NUMA node 0, processors 0-7", "GPU 0000:17:00.0", "on no known NUMA node", "nvme3"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 80), "{text}");
    let json = with(&["topology", "--json"]).json();
    let devices = json["devices"].as_array().unwrap();
    let gpu = devices.iter().find(|one| one["kind"] == "GPU").unwrap();
    assert_eq!((&gpu["pci_address"], &gpu["numa_node"]), (&"0000:17:00.0".into(), &0.into()));
    let picture = sysfs.path().join("machine.svg");
    with(&["topology", "--svg", picture.to_str().unwrap()]);
    let svg = fs::read_to_string(picture).unwrap();
    assert!(svg.starts_with("<svg") && svg.contains("0000:17:00.0"), "{svg}");
}

#[test]
fn a_place_that_is_not_there_is_one_line() {
    for (place, says) in [("near:", "near: place"), ("near:cpu:x", "near: place is cpu:x")] {
        let run = uverbs(&["pingpong", "-d", place]);
        // Without a device that comes first.
        let line = run.complaint(run.status.unwrap());
        assert!(line.contains(says) || line.contains("no RDMA device"), "{place}: {line}");
    }
}

#[test]
fn the_variable_names_the_device_and_an_option_overrides_it() {
    let with = |name: &str, args: &[&str]| run(command(args).env("UVERBS_DEVICE", name));
    let ping = ["pingpong", "-n", "1", "--json"];
    let device = |run: common::Run| run.ok().json()["client"]["device"].clone();
    assert_eq!(device(with("softhca1", &ping)), "softhca1");
    let named = [&ping[..], &["-d", "softhca0"]].concat();
    assert_eq!(device(with("softhca1", &named)), "softhca0");
    let run = with("mlx5_77", &ping);
    assert!(run.complaint(2).contains("no RDMA device `mlx5_77`"), "{run:?}");
}

#[test]
fn top_in_a_pipe_is_plain_text() {
    let args = ["top", "-d", "softhca0", "--interval", "0.05", "--count", "2"];
    let run = uverbs(&args).ok();
    assert!(!run.stdout.contains('\x1b'), "{run:?}");
    assert_eq!(run.stdout.matches("uverbs top: devices 1,").count(), 2, "{run:?}");
    let port = run.stdout.lines().rfind(|line| line.starts_with("softhca0")).unwrap();
    let words: Vec<_> = port.split_whitespace().collect();
    assert_eq!(words, ["softhca0", "1", "ACTIVE", "0.0", "0.0", "0.0", "0.0"], "{run:?}");
    assert!(run.stdout.lines().all(|line| line.len() <= 80), "{run:?}");
}

/// Screen of a terminal: what the codes that `top` sends leave on it.
struct Terminal {
    cells: Vec<Vec<char>>,
    at: (usize, usize),
    /// Lines and columns that were written outside of the screen.
    outside: usize,
}

impl Terminal {
    fn new(rows: usize, columns: usize) -> Self {
        Self { cells: vec![vec![' '; columns]; rows], at: (0, 0), outside: 0 }
    }

    fn write(&mut self, text: &str) {
        let mut chars = text.chars().peekable();
        while let Some(c) = chars.next() {
            match c {
                '\x1b' if chars.next_if_eq(&'[').is_some() => {
                    let mut code = String::new();
                    let end = loop {
                        match chars.next() {
                            Some(c) if c.is_ascii_alphabetic() => break c,
                            Some(c) => code.push(c),
                            None => return,
                        }
                    };
                    self.obey(&code, end);
                }
                '\r' => self.at.1 = 0,
                '\n' => self.at.0 += 1,
                c => {
                    let (row, column) = self.at;
                    match self.cells.get_mut(row).and_then(|line| line.get_mut(column)) {
                        Some(cell) => *cell = c,
                        None => self.outside += 1,
                    }
                    self.at.1 += 1;
                }
            }
        }
    }

    fn obey(&mut self, code: &str, end: char) {
        let (row, column) = self.at;
        match (code, end) {
            (place, 'H') => {
                let numbers: Vec<usize> = place.split(';').flat_map(str::parse).collect();
                let [row, column] = numbers[..] else { panic!("{place}H") };
                self.at = (row - 1, column - 1);
            }
            ("" | "0", 'K') => self.cells[row][column..].fill(' '),
            ("" | "0", 'J') => {
                self.cells[row][column..].fill(' ');
                self.cells[row + 1..].iter_mut().for_each(|line| line.fill(' '));
            }
            // The other screen, the cursor.
            ("?1049" | "?25", 'h' | 'l') => {}
            other => panic!("an unknown code: {other:?}"),
        }
    }

    fn lines(&self) -> Vec<String> {
        self.cells.iter().map(|line| line.iter().collect::<String>().trim_end().into()).collect()
    }
}

#[test]
fn a_terminal_of_80_by_24_shows_one_screen() {
    let program = env!("CARGO_BIN_EXE_uverbs");
    let top = format!("{program} top -d softhca0 --count 3 --interval 0.3");
    let mut script = std::process::Command::new("script");
    script.args(["-qec", &format!("stty rows 24 cols 80; exec {top}"), "/dev/null"]);
    script.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let Ok(mut child) = script.env("LC_ALL", "C").env("TERM", "xterm").spawn() else {
        common::skip("script(1) is missing");
        return;
    };
    // The end of its input would be a key.
    let input = child.stdin.take();
    let output = child.wait_with_output().unwrap();
    drop(input);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let (_, shown) = text.split_once("\x1b[?1049h").expect("the other screen");
    let (shown, _) = shown.rsplit_once("\x1b[?1049l").expect("the own screen again");
    let mut terminal = Terminal::new(24, 80);
    terminal.write(shown);
    let lines = terminal.lines();
    assert_eq!(terminal.outside, 0, "{lines:#?}");
    assert_eq!(lines[0], "uverbs top: devices 1, q quits", "{lines:#?}");
    assert!(lines[1].starts_with("device       port state"), "{lines:#?}");
    assert!(lines[2].starts_with("softhca0        1 ACTIVE"), "{lines:#?}");
    assert!(lines.iter().any(|line| line == "changed counters, fastest first"), "{lines:#?}");
}
