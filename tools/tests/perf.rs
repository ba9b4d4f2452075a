//! `uverbs perf`: every operation on the embedded software HCA; recordings, comparisons and plots.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{command, interrupt, run, uverbs};
use serde_json::{Value, json};

/// Directory that is removed when dropped.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs on the software HCA, with a JSON report.
#[track_caller]
fn measured(args: &str) -> Value {
    let words: Vec<&str> = args.split(' ').collect();
    let run = uverbs(&[&["perf"], &words[..], &["-d", "softhca", "--json"]].concat()).ok();
    assert_eq!(run.stderr, "", "{args}");
    let document = run.json();
    assert_eq!(document["kind"], "uverbs-perf");
    assert_eq!(document["format"], 1);
    assert_eq!(document["interrupted"], false);
    document
}

/// Runs and records; returns the file.
#[track_caller]
fn recorded(args: &str, folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    let words: Vec<&str> = args.split(' ').collect();
    let more = ["-d", "softhca", "--quiet", "--out", text(&path)];
    uverbs(&[&["perf"], &words[..], &more].concat()).ok();
    path
}

#[track_caller]
fn check_latency(args: &str, samples: u64) {
    let document = measured(args);
    let latency = &document["results"][0]["latency"];
    let order = ["min", "p50", "p90", "p99", "p99_9", "p99_99", "p99_999", "max"];
    let times = order.map(|name| latency[name].as_u64().unwrap());
    assert!(times.is_sorted() && times[0] > 0, "{args}: {latency}");
    assert_eq!(latency["samples"], samples, "{args}");
    assert_eq!(document["results"][0]["messages"], samples, "{args}");
    let mean = latency["mean"].as_f64().unwrap();
    assert!(mean >= times[0] as f64 * 0.999 && mean <= times[7] as f64, "{args}: {latency}");
    assert!(latency["stdev"].as_f64().unwrap() >= 0.0);
    // All samples lie within the measured time.
    let one_sided = latency["of"] == "operation";
    let halves = if one_sided { 1.0 } else { 2.0 };
    let time = document["results"][0]["time_ns"].as_f64().unwrap();
    assert!(mean * samples as f64 * halves <= time * 1.01, "{args}: {document}");
    assert!(latency["histogram_v2_deflate_base64"].as_str().unwrap().len() > 20);
    assert_eq!(document["results"][0]["bandwidth"], Value::Null);
}

#[test]
fn latency_of_every_operation() {
    for (args, samples) in [
        ("write lat -n 300 --check", 300),
        ("write lat -n 300 -s 5000 --check", 300),
        ("write lat -n 100 -I 0 -s 1", 100),
        ("read lat -n 300 -s 5000 --check", 300),
        ("send lat -n 300 --check", 300),
        ("send lat -n 300 -s 5000 --warmup 0 --check -r 3", 300),
        ("atomic lat -n 300 --check", 300),
        ("atomic lat -n 300 --check -A CMP_AND_SWAP", 300),
        ("write lat -n 300 -s 5000 --check -c UC", 300),
        ("send lat -n 300 -s 5000 --check -c uc", 300),
        ("send lat -n 300 -s 1024 --check -c UD", 300),
        ("write lat -n 300 -s 5000 --check -c XRC", 300),
        ("read lat -n 300 -s 5000 --check -c xrc", 300),
        ("send lat -n 300 -s 5000 --check -c XRC", 300),
        ("atomic lat -n 300 --check -c XRC", 300),
        ("send lat -n 300 -s 5000 --check --use-srq", 300),
        ("send lat -n 300 -s 1024 --check -c UD --use-srq", 300),
        ("send lat -n 100 -s 1024 --check -e", 100),
        ("send lat -n 100 -s 1024 --check --events -c UD --use-srq", 100),
        ("read lat -n 100 -s 5000 --check -e -c XRC", 100),
        ("write lat -n 300 -s 5000 --check -c DC", 300),
        ("send lat -n 300 -s 5000 --check -e -c dc", 300),
        ("read lat -n 100 -s 5000 --check -c DC", 100),
        ("atomic lat -n 300 --check -c DC", 300),
        ("send lat -n 50 --doorbell non-cached --cpu 0 -m 1024 -u 10 -S 3 -T 8 -c RC -F", 50),
    ] {
        check_latency(args, samples);
    }
    assert_eq!(measured("read lat -n 5")["results"][0]["latency"]["of"], "operation");
    assert_eq!(measured("send lat -n 5")["results"][0]["latency"]["of"], "half_round_trip");
}

#[test]
fn bandwidth_of_every_operation() {
    // Over an unreliable transport: as many receives as messages, warm-up included, since a device
    // that gets no processor time reposts none.
    for (args, messages, size) in [
        ("write bw -n 500 -s 5000 --check", 500, 5000),
        ("write bw -n 500 -s 64 -I 64 --check -q 3 -t 16 -l 4 -Q 5", 1500, 64),
        // A post list that does not fit behind an unsignaled one.
        ("write bw -n 500 -s 64 -t 16 -l 10 -Q 16", 500, 64),
        ("read bw -n 500 -s 5000 --check -o 2", 500, 5000),
        ("send bw -n 500 -s 5000 --check -q 2", 1000, 5000),
        ("send bw -n 500 -s 64 -b --check -t 7 -Q 7 -l 7 -r 9", 1000, 64),
        ("atomic bw -n 500 --check -q 2", 1000, 8),
        ("atomic bw -n 500 --check -A compare-swap -b", 1000, 8),
        ("write bw -n 500 -s 5000 --check -c UC -b", 1000, 5000),
        ("send bw -n 500 -s 5000 --check -c UC -r 2048", 500, 5000),
        ("send bw -n 500 -s 1024 --check -c UD -q 2 -r 2048", 1000, 1024),
        ("send bw -n 500 -s 5000 --check -c XRC -q 4", 2000, 5000),
        ("send bw -n 500 -s 64 --check -c XRC -b -q 2 -t 7 -Q 7 -l 7 -r 9", 2000, 64),
        ("write bw -n 500 -s 5000 --check -c XRC -b", 1000, 5000),
        ("send bw -n 500 -s 64 --check -c DC -b -q 2 -t 7 -Q 7 -l 7 -r 9", 2000, 64),
        ("atomic bw -n 500 --check -c XRC -q 2", 1000, 8),
        ("send bw -n 500 -s 64 --check --use-srq -b -q 3 -r 9", 3000, 64),
        ("send bw -n 500 -s 1024 --check -c UD --use-srq -q 2 -r 2048", 1000, 1024),
        ("send bw -n 500 -s 1024 --check -c UC -e -b -r 2048", 1000, 1024),
        ("write bw -n 1 --warmup 0 -s 1 -t 1", 1, 1),
        ("write bw -n 200 -s 64 -q 64", 12_800, 64),
    ] {
        let document = measured(args);
        let result = &document["results"][0];
        assert_eq!(result["messages"], messages, "{args}");
        assert_eq!(result["size"], size, "{args}");
        let rate = |name: &str| result["bandwidth"][name].as_f64();
        assert_eq!(result["bandwidth"]["lost"], 0, "{args}: each message has its receive");
        let per_s = rate("messages_per_s").unwrap();
        let time = result["time_ns"].as_f64().unwrap();
        assert!((per_s * time / 1e9 / messages as f64 - 1.0).abs() < 1e-6, "{args}: {result}");
        let bytes = rate("bytes_per_s").unwrap();
        assert!((bytes / per_s / f64::from(size) - 1.0).abs() < 1e-9, "{args}: {result}");
        let intervals = result["bandwidth"]["intervals"].as_array().unwrap();
        let sum: u64 = intervals.iter().map(|count| count.as_u64().unwrap()).sum();
        assert!(sum <= messages, "{args}: {result}");
        if !intervals.is_empty() {
            let order = ["slowest", "median", "fastest"].map(|name| rate(name).unwrap());
            assert!(order.is_sorted(), "{args}: {result}");
        }
    }
}

#[test]
fn a_time_is_kept_and_its_intervals_add_up() {
    let document = measured("write bw -D 0.3 -s 64 -Q 1");
    let result = &document["results"][0];
    let time = result["time_ns"].as_f64().unwrap() / 1e9;
    assert!((0.29..10.0).contains(&time), "{result}");
    let bandwidth = &result["bandwidth"];
    let intervals = bandwidth["intervals"].as_array().unwrap();
    let sum: u64 = intervals.iter().map(|count| count.as_u64().unwrap()).sum();
    assert!(intervals.len() >= 8, "{result}");
    // All messages, without the last, incomplete interval.
    let messages = result["messages"].as_u64().unwrap();
    assert!(sum <= messages && sum * 10 >= messages * 5, "{sum} of {messages}");
    let whole = bandwidth["interval_ns"].as_f64().unwrap() / 1e9 * intervals.len() as f64;
    assert!(whole <= time * 1.001, "{result}");
    let document = measured("send lat -D 0.2");
    let time = document["results"][0]["time_ns"].as_f64().unwrap() / 1e9;
    assert!((0.2..10.0).contains(&time), "{document}");
}

#[test]
fn the_document_says_everything() {
    let document = measured("write lat -n 20 -s 64 -m 2048");
    assert_eq!(document["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(document["parameters"]["op"], "write");
    assert_eq!(document["parameters"]["mtu"], 2048);
    assert_eq!(document["parameters"]["doorbell"], "blueflame");
    assert_eq!(document["ends"][0]["mtu"], 2048);
    assert_eq!(document["ends"][1]["device"], "softhca1");
    assert_eq!(document["ends_in"], "one process");
    assert!(document["machine"]["processors"].as_u64().unwrap() > 0);
    assert_eq!(document["machine"]["optimized"], !cfg!(debug_assertions));
    assert!(document["clock"]["cost_ns"].as_f64().unwrap() >= 0.0);
    let source = document["clock"]["source"].as_str().unwrap();
    assert!(["tsc", "clock_gettime"].contains(&source));
    let recorded = document["recorded"].as_str().unwrap();
    assert!(recorded.len() == 20 && recorded.ends_with('Z'), "{recorded}");
    let method = document["method"].to_string();
    for part in ["coordinated omission", "half the time", "one thread drives both ends"] {
        assert!(method.contains(part), "{method}");
    }
}

#[test]
fn the_text_is_for_people() {
    let text =
        uverbs(&["perf", "write", "lat", "-d", "softhca", "-n", "2000", "--plot"]).ok().stdout;
    for part in [
        "write lat over RC, half round trips, one process",
        "2000 messages after 200 of warm-up",
        "contents not checked (--check)",
        "#bytes   samples     min     p50",
        "write lat, 2 bytes",
        "99.9%  percentile",
    ] {
        assert!(text.contains(part), "{part:?} is missing:\n{text}");
    }
    assert!(text.is_ascii() && text.lines().all(|line| line.len() <= 100), "{text}");
    // 2000 samples define no 99.99th percentile.
    let row = text.lines().find(|line| line.trim_start().starts_with("2 ")).unwrap();
    assert_eq!(row.matches(" - ").count(), 2, "{row}");
    let xrc =
        uverbs(&["perf", "send", "lat", "-d", "softhca", "-n", "50", "-c", "XRC"]).ok().stdout;
    assert!(xrc.starts_with("send lat over XRC, half round trips"), "{xrc}");
    let quiet = ["perf", "send", "bw", "-d", "softhca", "-n", "100", "-s", "64", "--quiet"];
    let quiet = uverbs(&quiet).ok().stdout;
    assert_eq!(quiet.lines().count(), 2, "{quiet}");
    assert!(quiet.contains("Mmsg/s") && quiet.lines().all(|line| line.len() <= 100), "{quiet}");
}

#[test]
fn all_sizes_are_measured() {
    let document = measured("write bw -a -n 3 --warmup 0 -t 2 -Q 1");
    let sizes: Vec<_> =
        document["results"].as_array().unwrap().iter().map(|result| &result["size"]).collect();
    let wanted: Vec<Value> = (1..=23).map(|shift| json!(1u64 << shift)).collect();
    assert_eq!(sizes, wanted.iter().collect::<Vec<_>>());
}

#[test]
fn two_recordings_are_compared() {
    let folder = folder();
    let a = recorded("write lat -n 3000 -s 64", folder.path(), "a.json");
    let b = recorded("write lat -n 500 -s 64 -I 0", folder.path(), "b.json");
    let (svg, png) = (folder.path().join("both.svg"), folder.path().join("both.png"));
    let files = ["perf", "compare", text(&a), text(&b)];
    let drawn = ["--svg", text(&svg), "--png", text(&png), "--plot"];
    let said = uverbs(&[&files[..], &drawn].concat()).ok().stdout;
    for part in [
        "parameters.inline: 220 in A, 0 in B",
        "parameters.iters: 3000 in A, 500 in B",
        "64 bytes             A             B    B / A",
        "write lat, 64 bytes",
        "* A: a.json",
        "o B: b.json",
    ] {
        assert!(said.contains(part), "{part:?} is missing:\n{said}");
    }
    let svg = fs::read_to_string(svg).unwrap();
    assert!(svg.contains("A: a.json") && svg.contains("B: b.json") && svg.contains("99.9%"));
    assert_eq!(fs::read(png).unwrap()[..8], *b"\x89PNG\r\n\x1a\n");
    let comparison = uverbs(&[&files[..], &["--json"]].concat()).ok().json();
    let rows = comparison["sizes"][0]["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["what"].as_str().unwrap()).collect();
    let wanted = ["min", "p50", "p90", "p99", "p99.9", "p99.99", "p99.999", "max", "mean", "stdev"];
    assert_eq!(names, wanted);
    let p50 = &rows[1];
    let ratio = p50["b"].as_f64().unwrap() / p50["a"].as_f64().unwrap();
    assert!((p50["ratio"].as_f64().unwrap() - ratio).abs() < 1e-9);
    assert_eq!(rows[4]["b"], Value::Null, "500 samples have no 99.9th percentile");
    // Compared with itself, a recording shows no difference.
    let same = uverbs(&["perf", "compare", text(&a), text(&a)]).ok().stdout;
    assert!(same.contains("same machine, device and parameters"), "{same}");
    assert!(same.contains("1.000"), "{same}");
    // Rates are compared as well.
    let bw = recorded("write bw -D 0.1 -s 64", folder.path(), "bw.json");
    let same = uverbs(&["perf", "compare", text(&bw), text(&bw), "--plot"]).ok().stdout;
    assert!(same.contains("slowest") && same.contains("time, s"), "{same}");
}

#[test]
fn what_is_no_recording_is_refused_and_explained() {
    let folder = folder();
    let good = recorded("write lat -n 50 -s 64", folder.path(), "good.json");
    let document: Value = serde_json::from_str(&fs::read_to_string(&good).unwrap()).unwrap();
    let changed = |pointer: &str, value: Value| {
        let mut document = document.clone();
        *document.pointer_mut(pointer).unwrap() = value;
        document.to_string()
    };
    let bw = recorded("write bw -n 50 -s 64", folder.path(), "bw.json");
    let other = recorded("write lat -n 50 -s 32", folder.path(), "other.json");
    let pingpong = uverbs(&["pingpong", "-d", "softhca", "-n", "5", "--json"]).ok().stdout;
    let histogram = "/results/0/latency/histogram_v2_deflate_base64";
    for (name, contents, says) in [
        ("text", "hello".to_owned(), "this is no recording, nor any JSON"),
        ("empty", String::new(), "this is no recording, nor any JSON"),
        ("json", "{\"a\": 1}".to_owned(), "no recording; a recording is made by `uverbs perf"),
        ("list", "[1]".to_owned(), "this is JSON, but no recording"),
        ("kind", "{\"kind\": \"fio\"}".to_owned(), "JSON of the kind \"fio\""),
        ("pingpong", pingpong, "a report of `uverbs pingpong`, which keeps no samples"),
        ("format", changed("/format", json!(2)), "a recording of format 2, and this uverbs knows"),
        ("cut", document.to_string()[..900].to_owned(), "nor any JSON"),
        (
            "field",
            changed("/parameters/op", json!("sned")),
            "something has changed: unknown variant",
        ),
        ("base64", changed(histogram, json!("!!")), "the histogram is no base64"),
        ("bytes", changed(histogram, json!("AAAA")), "the histogram can't be read"),
        ("samples", changed("/results/0/latency/samples", json!(51)), "has 50 samples, not 51"),
        ("none", changed("/results/0/latency", Value::Null), "a recording without its results"),
        ("bw", fs::read_to_string(bw).unwrap(), "is one of lat: there is nothing to compare"),
        ("size", fs::read_to_string(other).unwrap(), "no size in common"),
    ] {
        let path = folder.path().join(name);
        fs::write(&path, contents).unwrap();
        let run = uverbs(&["perf", "compare", text(&good), text(&path)]);
        let line = run.complaint(1);
        assert!(line.starts_with(text(&path)) && line.contains(says), "{name}: {line}");
    }
    let run = uverbs(&["perf", "compare", text(&good), "/no/such/file"]);
    assert!(run.complaint(1).contains("/no/such/file: No such file"));
    let run = uverbs(&["perf", "compare", text(folder.path()), text(&good)]);
    assert!(run.complaint(1).contains("it is no file"));
    let run = uverbs(&["perf", "compare", text(&good), text(&good), "--size", "7"]);
    assert!(run.complaint(1).contains("no size in common that is 7"));
}

#[test]
fn files_are_written_whole_or_not_at_all() {
    let folder = folder();
    let kept = recorded("write lat -n 50", folder.path(), "kept.json");
    let before = fs::read(&kept).unwrap();
    // Refused before the measurement, and no file is left.
    let started = Instant::now();
    for path in ["/no/such/folder/x.json", text(folder.path()), "/proc/x.json"] {
        for option in ["--out", "--svg", "--png"] {
            let run = uverbs(&["perf", "write", "lat", "-d", "softhca", "-D", "100", option, path]);
            assert!(run.complaint(1).starts_with(&format!("{path}: ")), "{run:?}");
        }
    }
    assert!(started.elapsed() < Duration::from_secs(100));
    // A failed run keeps the old recording.
    let fails = ["perf", "write", "lat", "-d", "softhca", "-s", "4M", "--timeout", "0.000001"];
    let run = uverbs(&[&fails[..], &["--out", text(&kept), "--quiet"]].concat());
    assert_eq!(run.status, Some(1), "{run:?}");
    assert_eq!(fs::read(&kept).unwrap(), before);
    let names: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["kept.json"], "no temporary file is left");
    // A new run replaces it, with the permissions of any new file.
    recorded("write lat -n 60", folder.path(), "kept.json");
    assert_ne!(fs::read(&kept).unwrap(), before);
    let plain = folder.path().join("plain");
    fs::write(&plain, "").unwrap();
    assert_eq!(
        fs::metadata(&kept).unwrap().permissions(),
        fs::metadata(&plain).unwrap().permissions()
    );
}

#[test]
fn a_plot_of_each_kind_is_drawn() {
    let folder = folder();
    for (args, texts) in [
        ("write lat -n 500", ["write lat, 2 bytes", "percentile", "99%"]),
        ("write bw -D 0.2 -s 64", ["write bw, 64 bytes", "time, s", "Gb/s"]),
    ] {
        let (svg, png) = (folder.path().join("a.svg"), folder.path().join("a.png"));
        let words: Vec<&str> = args.split(' ').collect();
        let more = ["-d", "softhca", "--svg", text(&svg), "--png", text(&png), "--quiet"];
        uverbs(&[&["perf"], &words[..], &more].concat()).ok();
        let svg = fs::read_to_string(&svg).unwrap();
        assert!(texts.iter().all(|text| svg.contains(text)), "{svg}");
        let png = fs::read(&png).unwrap();
        assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
        // Width and height are the first fields (PNG, 11.2.2).
        assert_eq!(png[16..24], [0, 0, 3, 192, 0, 0, 2, 28]);
    }
}

#[test]
fn all_sizes_are_plotted_over_size() {
    let folder = folder();
    for (args, texts) in [
        ("write lat -a -n 20 --warmup 1", ["write lat over size", "512K", "p99"]),
        ("write bw -a -n 5 --warmup 0 -t 4 -Q 1", ["write bw over size", "512K", "Gb/s"]),
    ] {
        let (svg, out) = (folder.path().join("a.svg"), folder.path().join("a.json"));
        let words: Vec<&str> = args.split(' ').collect();
        let more = ["-d", "softhca", "--svg", text(&svg), "--out", text(&out)];
        let run = command(&[&["perf"], &words[..], &more].concat()).env("COLUMNS", "60").output();
        let run = run.unwrap();
        assert!(run.status.success(), "{run:?}");
        let svg = fs::read_to_string(&svg).unwrap();
        assert!(texts.iter().all(|text| svg.contains(text)), "{svg}");
        // 60 columns hold the table; left out columns are named.
        let table = String::from_utf8(run.stdout).unwrap();
        assert!(table.lines().all(|line| line.chars().count() <= 60), "{table}");
        assert!(table.contains("left out, for want of columns: "), "{table}");
        let both = uverbs(&["perf", "compare", text(&out), text(&out), "--plot"]).ok().stdout;
        assert!(both.contains("over size") && both.contains("A: a.json"), "{both}");
    }
}

#[test]
fn a_run_that_is_killed_leaves_no_file() {
    let folder = folder();
    let out = folder.path().join("out.json");
    let args = ["perf", "write", "lat", "-d", "softhca", "-D", "600", "--out", text(&out)];
    let mut child = command(&args).spawn().unwrap();
    common::wait_for_handler(&child);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn an_interrupt_ends_a_run_with_what_there_is() {
    for (test, rest) in [("lat", &[][..]), ("bw", &["-s", "64"])] {
        let args = ["perf", "write", test, "-d", "softhca", "-D", "600", "--json"];
        let mut child = command(&[&args[..], rest].concat());
        let child = child.spawn().unwrap();
        interrupt(&child, Duration::from_millis(300));
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(document["interrupted"], true);
        assert!(document["results"][0]["messages"].as_u64().is_some(), "{document}");
    }
}

#[test]
fn two_processes_are_refused_on_a_device_of_one_process() {
    for args in [&["that.machine"][..], &["--server"]] {
        let run = uverbs(&[&["perf", "write", "lat", "-d", "softhca1"], args].concat());
        let says = "--device softhca1: it lives inside this process, and no other reaches it";
        assert!(run.complaint(2).contains(says), "{run:?}");
    }
}

#[test]
fn bad_arguments_are_one_line_and_status_2() {
    for (args, says) in [
        ("write lat -d mlx5_77", "no RDMA device `mlx5_77`"),
        ("write lat -s 0", "at least 1 byte"),
        ("write lat -s 2G", "--size 2147483648: a message of softhca0 has at most"),
        ("write lat -q 2", "--qps 2: it is for bw"),
        ("write lat -x 9999", "--gid-index 9999: "),
        ("write lat -x 200", "--gid-index 200: "),
        ("write lat -i 2", "--ib-port 2: softhca0 has ports 1 to 1"),
        ("write lat -m 1500", "an MTU is 256"),
        ("write lat -I 100K", "--inline 102400: "),
        ("write lat --cpu 5000", "--cpu 5000: this program may run on "),
        ("write", "not provided: <lat|bw>"),
        ("write bw -t 4 -l 5", "--post-list 5: no more than --tx-depth"),
        ("write bw -t 4294967295", "--tx-depth 4294967295: "),
        ("send bw -r 4294967295 -s 1", "--rx-depth 4294967295: "),
        ("read lat -o 200", "--outs 200: softhca0 has at most"),
        ("read lat -I 8", "--inline 8: the answer"),
        ("atomic lat -s 16", "--size 16: an atomic has 8 bytes"),
        ("write jitter", "[possible values: lat, bw]"),
        ("write lat -e", "--events given: nothing wakes the end that a WRITE came to"),
        ("send lat -e -X 2", "-X is perftest's, and not in uverbs perf: events come by"),
        ("write bw --run_infinitely", "--run_infinitely is perftest's"),
        ("swrite lat", "'swrite'"),
        ("write lat --json --plot", "cannot be used with"),
        ("compare a", "<B>"),
    ] {
        let words: Vec<&str> = args.split(' ').collect();
        let device: &[_] = match words[0] {
            "compare" => &[],
            _ if words.contains(&"-d") => &[],
            _ => &["-d", "softhca"],
        };
        let run = uverbs(&[&["perf"], &words[..], device].concat());
        let line = run.complaint(2);
        assert!(line.contains(says), "{args}: {line}");
    }
}

#[test]
fn a_device_that_is_too_slow_is_one_line_and_status_1() {
    let args = ["perf", "read", "lat", "-d", "softhca", "-s", "4M", "--timeout", "0.000001"];
    let run = uverbs(&[&args[..], &["--json"]].concat());
    assert!(run.complaint(1).contains("did not come within"), "{run:?}");
}

#[test]
fn help_is_a_manual() {
    for args in
        [&["perf", "--help"][..], &["perf", "send", "--help"], &["perf", "compare", "--help"]]
    {
        let help = uverbs(args).ok().stdout;
        for part in ["EXAMPLES", "EXIT STATUS"] {
            assert!(help.contains(part), "{help}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= 120), "{help}");
    }
    let help = uverbs(&["perf", "write", "--help"]).ok().stdout;
    for part in
        ["ib_write_lat", "coordinated omission", "--tx-depth", "TWO PROCESSES", "-F, --CPU-freq"]
    {
        assert!(help.contains(part), "{part:?} is missing:\n{help}");
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let mut child = command(&["perf", "write", "lat", "-d", "softhca", "-n", "10"]);
    let mut child = child.stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let utf8 = ["perf", "write", "lat", "-d", "softhca", "-n", "100", "--plot"];
    let utf8 = run(command(&utf8).env("LC_ALL", "C.UTF-8")).ok().stdout;
    assert!(utf8.chars().any(|c| ('\u{2801}'..='\u{28ff}').contains(&c)));
}
