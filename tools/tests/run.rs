//! `uverbs run`: environment of the program. `tests/c-stack` shows that C programs work there.

mod common;

use std::path::PathBuf;

use common::{command, run};

/// Directory in the layout of our libraries. libc stands for the library, which the loader loads
/// first.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let library = folder.join("libibverbs.so.1");
    // A file of another version of this test.
    if library.symlink_metadata().is_ok_and(|found| found.is_file()) {
        let _ = std::fs::remove_file(&library);
    }
    // Another test may use this folder at the same time.
    match std::os::unix::fs::symlink(libc(), library) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => panic!("{error}"),
        _ => {}
    }
    folder.canonicalize().unwrap()
}

/// File of the libc that this program has mapped.
fn libc() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    let mut libraries = paths.filter(|path| path.contains("libc.so") || path.contains("libc-2."));
    libraries.next().expect("libc among the mappings").into()
}

#[test]
fn a_program_has_our_library_and_the_device() {
    let folder = folder("run");
    let path = folder.to_str().unwrap();
    let show = "echo $LD_LIBRARY_PATH $UVERBS_DEVICE; exit 7";
    for (device, wanted) in
        [("softhca", "softhca@loopback"), ("softhca@127.0.0.9,mlx5_0", "softhca@127.0.0.9,mlx5_0")]
    {
        let words = ["run", "--libraries", path, "-d", device, "--", "sh", "-c", show];
        let mut command = command(&words);
        let run = run(command.env("LD_LIBRARY_PATH", "/nowhere").env("UVERBS_DEVICE", "other"));
        assert_eq!(run.status, Some(7), "{run:?}");
        assert_eq!(run.stdout, format!("{path}:/nowhere {wanted}\n"));
        assert_eq!(run.stderr, "");
    }
    // Variables that no option sets stay as they are.
    let mut command = command(&["run", "--libraries", path, "--", "sh", "-c", show]);
    let run = run(command.env("UVERBS_DEVICE", "softhca1").env_remove("LD_LIBRARY_PATH"));
    assert_eq!(run.stdout, format!("{path} softhca1\n"));
}

#[test]
fn what_is_missing_is_said() {
    let folder = folder("missing");
    let path = folder.to_str().unwrap();
    let nowhere = format!("{path}/nowhere");
    for (words, status, why) in [
        (&["run", "--libraries", path, "--", "no-such-program"][..], 1, "no-such-program: No such"),
        (&["run", "--libraries", &nowhere, "--", "true"], 1, "nowhere/libibverbs.so.1: No such"),
        (&["run", "--libraries", path], 2, "PROGRAM"),
        (&["run", "--libraries", path, "true"], 2, "true"),
    ] {
        let run = run(command(words).env("UVERBS_DEVICE", "softhca0"));
        assert_eq!(run.status, Some(status), "{words:?}: {run:?}");
        assert!(run.stderr.contains(why), "{words:?}: {run:?}");
        assert_eq!(run.stderr.lines().count(), 1, "{run:?}");
    }
}

/// Runs a pair of shell commands, in which `$U` is `uverbs`.
fn pair(server: &str, client: &str, limit: &str) -> common::Run {
    let folder = folder("pair");
    let path = folder.to_str().unwrap();
    let words =
        ["run", "--libraries", path, "-d", "softhca", "--limit", limit, "--pair", server, client];
    let mut command = command(&words);
    run(command.env("U", env!("CARGO_BIN_EXE_uverbs")))
}

#[test]
fn a_pair_connects_by_tcp_and_by_the_connection_manager() {
    // Addresses that no other test has.
    let [here, there] = [1, 2].map(|last| {
        let process = std::process::id();
        format!("127.{}.{}.{last}", 128 | process >> 8 & 0x3f, process & 0xff)
    });
    for (server, client) in [
        (
            "$U pingpong --server --port 18621 -n 5".to_owned(),
            "$U pingpong 127.0.0.1 --port 18621 -n 5".to_owned(),
        ),
        (
            format!("$U rping --server -d softhca@{here}"),
            format!("$U rping {here} -d softhca@{there}"),
        ),
    ] {
        let run = pair(&server, &client, "60").ok();
        let of = |side: &str| run.stdout.lines().any(|line| line.starts_with(side));
        assert!(of("server: ") && of("client: "), "{run:?}");
    }
}

#[test]
fn a_client_starts_when_its_server_listens() {
    // A listener of the group's grandchild, and a server that takes its time.
    let server = "sleep 0.3; ($U pingpong --server --port 18622 -n 5)";
    pair(server, "$U pingpong 127.0.0.1 --port 18622 -n 5", "60").ok();
}

#[test]
fn a_pair_fails_with_either_side_and_at_its_limit_and_leaves_no_process() {
    let late = "server: no end within 1.5 s (--limit)";
    // Seconds that no other program sleeps.
    let sleep = format!("sleep {}", 100_000 + std::process::id());
    for (server, client, why) in [
        ("exit 3", &*sleep, "server: exit status: 3"),
        (&sleep, "exit 4", "client: exit status: 4"),
        (&format!("({sleep})"), "true", late),
        (&format!("trap '' TERM; {sleep}; {sleep}"), "true", late),
    ] {
        let run = pair(server, client, "1.5");
        assert_eq!(run.status, Some(1), "{run:?}");
        assert!(run.stderr.ends_with(&format!("uverbs: {why}\n")), "{run:?}");
        assert_eq!(running(&sleep), 0, "{server}");
    }
}

/// Number of processes with this command line.
fn running(words: &str) -> usize {
    let line = words.replace(' ', "\0") + "\0";
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|other| other == line.as_bytes()).count()
}

#[test]
fn a_pair_ends_with_its_runner() {
    let folder = folder("ended");
    let path = folder.to_str().unwrap();
    for (at, signal) in ["-INT", "-TERM"].into_iter().enumerate() {
        let sleep = format!("sleep {}", 200_000 + at as u32 + 2 * std::process::id());
        let words = ["run", "--libraries", path, "-d", "softhca", "--pair", &sleep, &sleep];
        let child = command(&words).spawn().unwrap();
        let start = std::time::Instant::now();
        while running(&sleep) < 2 {
            assert!(start.elapsed().as_secs() < 60);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let mut kill = std::process::Command::new("kill");
        assert!(kill.args([signal, &child.id().to_string()]).status().unwrap().success());
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(1));
        assert_eq!(String::from_utf8(ended.stderr).unwrap(), "uverbs: both sides: interrupted\n");
        assert_eq!(running(&sleep), 0);
    }
}
