//! Commands of the pages: all that a `console` block shows is typed, in a temporary folder.
//!
//! `$ ` begins a command, and a `\` at the end of a line continues it. `1$ ` and `2$ ` are two
//! terminals: the first one's command runs beside the second one's commands, and ends before the
//! next command of the first. Other lines are output, which must appear; words with a digit may
//! differ.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::{PAGES, files, read};
use crate::debian;
use crate::step::{Outcome, cargo, output, run};

/// Pages beside the book's.
const OTHERS: [&str; 2] = ["README.md", "tools/README.md"];

/// Beginnings of commands that are not typed, with the reason.
const EXCEPTIONS: [(&str, &str); 4] = [
    ("curl ", "network: installs Rust"),
    ("cargo xtask ", "network and time: steps of `cargo xtask test`"),
    ("uverbs run -- ib_write_bw", "another package: perftest, which `cargo xtask judge` runs"),
    ("uverbs pingpong -d softhca@192.0.2.", "two hosts; tools/tests/network.rs has two networks"),
];

/// Words in commands, and what is typed for them: programs that are built already.
const BUILT: [(&str, &str); 3] = [
    ("cargo run --release -- ", "uverbs "),
    ("cargo run --example ", ""),
    ("cargo run -p uverbs-mlx5-vfio --example ", ""),
];

/// Limit of a block in seconds. Some commands poll, and other steps take processors from them.
const LIMIT: u64 = 300;

/// A command with the output that the page shows.
#[derive(Debug, Default, PartialEq, Eq)]
struct Typed {
    /// 1 or 2 of two terminals, else 0.
    terminal: u8,
    text: String,
    shown: Vec<String>,
}

/// Types the commands of all pages.
pub(crate) fn check() -> Outcome {
    try_check().unwrap_or_else(|outcome| outcome)
}

fn try_check() -> Result<Outcome, Outcome> {
    let devices = Path::new("/sys/class/infiniband").read_dir();
    if devices.is_ok_and(|mut found| found.next().is_some()) {
        return Err(Outcome::Skipped("this machine has RDMA devices".to_owned()));
    }
    output(cargo(&["build", "--workspace", "--bins", "--examples"]), Duration::from_secs(900))?;
    let mut pages = files(Path::new(PAGES), "md").map_err(Outcome::Failed)?;
    pages.extend(OTHERS.map(PathBuf::from));
    let alone = has_networks();
    let (mut typed, mut unused) = (0, EXCEPTIONS.map(|(start, _)| start).to_vec());
    for page in &pages {
        let text = read(page).map_err(Outcome::Failed)?;
        let folder = folder(page).map_err(Outcome::Failed)?;
        for (number, block) in blocks(&text).iter().enumerate() {
            let mut commands = parse(block);
            let start = |command: &Typed| {
                EXCEPTIONS.iter().find(|(start, _)| command.text.starts_with(start))
            };
            unused.retain(|kept| !commands.iter().filter_map(start).any(|(used, _)| used == kept));
            commands.retain(|command| start(command).is_none());
            let failed = |why| Outcome::Failed(format!("{}: {why}", page.display()));
            if !commands.is_empty() {
                run_block(&folder, number, &commands, alone).map_err(failed)?;
                typed += commands.len();
            }
        }
    }
    match unused.as_slice() {
        [] => Ok(Outcome::Counted(format!("{typed} commands of {} pages", pages.len()))),
        [first, ..] => Err(Outcome::Failed(format!("no page has the exception `{first}`"))),
    }
}

/// Empty folder for a page's commands.
fn folder(page: &Path) -> Result<PathBuf, String> {
    let name = page.to_string_lossy().replace('/', "-");
    let folder = debian::target().join("book-commands").join(name);
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    Ok(folder)
}

/// The `console` blocks of a page.
fn blocks(text: &str) -> Vec<String> {
    let parts = text.split("\n```console\n").skip(1);
    parts.filter_map(|part| Some(part.split_once("\n```")?.0.to_owned())).collect()
}

fn parse(block: &str) -> Vec<Typed> {
    let mut commands: Vec<Typed> = Vec::new();
    for line in block.lines() {
        let begins = [("$ ", 0), ("1$ ", 1), ("2$ ", 2)]
            .iter()
            .find_map(|(prompt, terminal)| Some((*terminal, line.strip_prefix(prompt)?)));
        match (begins, commands.last_mut()) {
            (Some((terminal, text)), _) => {
                commands.push(Typed { terminal, text: text.to_owned(), shown: Vec::new() });
            }
            (None, Some(last)) if last.text.ends_with('\\') => {
                last.text.truncate(last.text.len() - 1);
                last.text += line.trim_start();
            }
            (None, Some(last)) => last.shown.push(line.to_owned()),
            (None, None) => {}
        }
    }
    commands
}

/// Script of a block. Each command's output follows a line with its number.
fn script(commands: &[Typed]) -> String {
    let mut script = "set -e\nserver=\ntrap 'kill $server 2>/dev/null || true' EXIT\n".to_owned();
    let ends = |number: usize| {
        let shown = format!("cat terminal-{number}");
        format!(
            "echo; echo '@@ {number}'\nwait $server || {{ {shown}; exit 1; }}\nserver=\n{shown}\n"
        )
    };
    let mut first = None;
    for (number, command) in commands.iter().enumerate() {
        let mut text = command.text.clone();
        for (words, instead) in BUILT {
            text = text.replace(words, instead);
        }
        if command.terminal != 2 {
            script += &first.take().map_or(String::new(), ends);
        }
        if command.terminal == 1 {
            script += &format!("{{ {text}\n}} > terminal-{number} 2>&1 &\nserver=$!\n");
            // Its first line says that it waits.
            script += &format!(
                "for i in $(seq 100); do [ -s terminal-{number} ] && break; sleep 0.1; done\n"
            );
            first = Some(number);
        } else {
            script += &format!("echo; echo '@@ {number}'\n{text}\n");
        }
    }
    script + &first.map_or(String::new(), ends)
}

/// Words that begin a shell in a new network namespace.
const ALONE: [&str; 4] = ["--map-root-user", "--net", "sh", "-c"];
/// First command of that shell.
const LOOPBACK: &str = "ip link set lo up";

/// Returns true if the system allows network namespaces.
pub(crate) fn has_networks() -> bool {
    let mut probe = Command::new("unshare");
    probe.args(ALONE).arg(LOOPBACK).output().is_ok_and(|ended| ended.status.success())
}

/// Runs the commands of a block; `alone`: in a new network namespace.
fn run_block(folder: &Path, number: usize, commands: &[Typed], alone: bool) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", folder.display());
    let name = format!("block-{number}");
    let file = format!("{name}.sh");
    fs::write(folder.join(&file), script(commands)).map_err(failed)?;
    let begin = format!("exec timeout -k 5 {LIMIT} sh {file} > {name}.log 2>&1");
    let mut shell = match alone {
        true => {
            let mut command = Command::new("unshare");
            command.args(ALONE).arg(format!("{LOOPBACK}; {begin}"));
            command
        }
        false => {
            let mut command = Command::new("sh");
            command.args(["-c", &begin]);
            command
        }
    };
    let built = debian::target().join("debug");
    let path = std::env::var("PATH").unwrap_or_default();
    let path = format!("{}:{}:{path}", built.display(), built.join("examples").display());
    shell.current_dir(folder).env("PATH", path).env("LC_ALL", "C");
    let ended = run(shell, Duration::from_secs(LIMIT + 30));
    let log = read(&folder.join(format!("{name}.log")))?;
    if let Outcome::Failed(why) = ended {
        let last = log.rsplit("@@ ").next().unwrap_or_default();
        let number = last.lines().next().and_then(|line| line.parse::<usize>().ok());
        let command = number.and_then(|number| commands.get(number));
        let command = command.map_or("the first command", |command| &command.text);
        return Err(format!("`{command}`: {why}; it printed: {last}"));
    }
    for (number, command) in commands.iter().enumerate() {
        let printed = log.split_once(&format!("\n@@ {number}\n")).unwrap_or_default().1;
        let printed = printed.split("\n@@ ").next().unwrap_or_default();
        appears(&command.shown, printed)
            .map_err(|line| format!("`{}` doesn't print {line:?}, but: {printed}", command.text))?;
    }
    Ok(())
}

/// Checks that lines appear in this order. Returns the first that does not.
fn appears<'s>(shown: &'s [String], printed: &str) -> Result<(), &'s str> {
    let mut printed = printed.lines().map(plain);
    for line in shown.iter().filter(|line| !line.is_empty() && *line != "...") {
        let wanted = plain(line);
        if !printed.any(|line| line == wanted) {
            return Err(line);
        }
    }
    Ok(())
}

/// Words of a line, with a mark for each that has a digit.
fn plain(line: &str) -> Vec<&str> {
    let word = |word| if str::contains(word, |c: char| c.is_ascii_digit()) { "#" } else { word };
    line.split_whitespace().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_commands_and_their_output() {
        let page = "a\n```console\n$ one \\\n    more\nsaid\n1$ two\n2$ three  # why\n```\nb\n";
        let blocks = blocks(page);
        assert_eq!(blocks.len(), 1);
        let typed = |terminal, text: &str, shown: &[&str]| Typed {
            terminal,
            text: text.to_owned(),
            shown: shown.iter().map(|line| (*line).to_owned()).collect(),
        };
        let commands = parse(&blocks[0]);
        assert_eq!(
            commands,
            [typed(0, "one more", &["said"]), typed(1, "two", &[]), typed(2, "three  # why", &[])]
        );
        let script = script(&commands);
        let place = |what: &str| script.find(what).unwrap_or_else(|| panic!("{what}: {script}"));
        assert!(place("server=$!") < place("three") && place("three") < place("wait $server"));
    }

    #[test]
    fn shown_lines_must_be_printed_in_their_order() {
        let shown = |lines: &[&str]| lines.iter().map(|line| (*line).to_owned()).collect();
        let printed = "took 17 us\n  all   of it\nend";
        let all: Vec<String> = shown(&["took 3 us", "...", "all of it"]);
        assert_eq!(appears(&all, printed), Ok(()));
        let turned: Vec<String> = shown(&["end", "all of it"]);
        assert_eq!(appears(&turned, printed), Err("all of it"));
        let other: Vec<String> = shown(&["took ages"]);
        assert_eq!(appears(&other, printed), Err("took ages"));
    }

    #[test]
    fn a_command_that_fails_or_prints_something_else_is_named() {
        let folder = std::env::temp_dir().join(format!("xtask-commands-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let run = |block: &str| run_block(&folder, 0, &parse(block), has_networks());
        assert_eq!(run("$ echo one 1\none 2\n1$ echo up; sleep 0.2\nup\n2$ true"), Ok(()));
        for (block, says) in [
            ("$ true\n$ false", "`false`"),
            ("$ echo one\ntwo", "doesn't print \"two\""),
            ("1$ echo up; sleep 0.2; exit 3\n2$ true", "`echo up"),
        ] {
            assert!(run(block).is_err_and(|why| why.contains(says)), "{block}");
        }
        fs::remove_dir_all(&folder).unwrap();
    }
}
