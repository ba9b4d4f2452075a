//! `uverbs run`: environment of the program. `tests/c-stack` shows that C programs work there.

mod common;

use std::path::PathBuf;

use common::{command, run};

/// Directory in the layout of our libraries. A shell loads none of its files.
fn folder(name: &str) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("libibverbs.so.1"), "").unwrap();
    folder.canonicalize().unwrap()
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
