//! The book's commands: its samples of `uverbs explain` equal the program's output, and the
//! commands of its first hour succeed.

mod common;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{run, skip, uverbs};

/// Text of a page of the book.
fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/book/src").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Code blocks of a page that begin with this line.
fn blocks<'a>(page: &'a str, head: &'a str) -> impl Iterator<Item = &'a str> {
    let starts = page.split(head).skip(1);
    starts.map(|block| block.split_once("```").expect("the block has an end").0)
}

#[test]
fn what_is_explained_is_what_is_printed() {
    let mut count = 0;
    for name in ["doorbell.md", "ioctl.md"] {
        let text = page(name);
        for block in blocks(&text, "```console\n") {
            let block = block.replace("\\\n", " ");
            let (command, printed) = block.split_once('\n').unwrap();
            let words: Vec<&str> = command.split_whitespace().collect();
            assert_eq!(words[..3], ["$", "uverbs", "explain"], "{name}");
            assert_eq!(uverbs(&words[2..]).ok().stdout, printed, "{name}: {command}");
            count += 1;
        }
    }
    assert!(count >= 5, "{count}");
}

/// Returns true if any user may create network namespaces and virtual Ethernet pairs.
fn has_networks() -> bool {
    let mut probe = Command::new("unshare");
    probe.args(["--map-root-user", "--net", "sh", "-c"]);
    probe.arg("ip link add near type veth peer name far && command -v nsenter");
    probe.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    probe.status().is_ok_and(|status| status.success())
}

/// Directory that is removed when dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_first_hour_ends_with_the_same_bytes() {
    if !has_networks() {
        skip("no network namespaces (unshare, ip, veth)");
        return;
    }
    let text = page("hour.md");
    let commands: String = blocks(&text, "```sh replay\n").collect();
    assert!(commands.lines().count() > 15, "{commands}");
    let path = std::env::temp_dir().join(format!("uverbs-hour-{}", std::process::id()));
    let folder = Folder(path.clone());
    std::fs::create_dir(&path).unwrap();
    // A page starts shells; the commands after that line are their input. Each ends at the first
    // command that fails. Background programs read no input, and get time on a busy machine.
    let file = path.join("commands");
    let (before, within) = commands.split_once("bash\n").expect("the first container's shell");
    let within = within.replace(" &\n", " < /dev/null &\n").replace("sleep 1\n", "sleep 3\n");
    let end = "kill %1\necho all of it\n";
    let whole = format!("set -e\n{before}bash -e <<'WITHIN'\n{within}{end}WITHIN\n");
    std::fs::File::create(&file).unwrap().write_all(whole.as_bytes()).unwrap();
    let tools = Path::new(env!("CARGO_BIN_EXE_uverbs")).parent().unwrap();
    let old = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("bash");
    shell.arg(&file).current_dir(&path).env("PATH", format!("{}:{old}", tools.display()));
    shell.env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let run = run(&mut shell).ok();
    for says in ["verified", "the same\n", "RDMA_WRITE", "all of it\n"] {
        assert!(run.stdout.contains(says), "{says}: {run:?}");
    }
    let [sent, received] =
        ["message", "received/message"].map(|name| std::fs::read(path.join(name)).unwrap());
    assert!(sent.len() == 1_000_000 && sent == received);
    let picture = std::fs::read_to_string(path.join("trace.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("doorbell"), "{picture}");
    drop(folder);
}
