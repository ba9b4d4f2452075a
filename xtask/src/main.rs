//! Project chores: `cargo xtask test` is what decides whether a change is good.

mod apt;
mod assembly;
mod counts;
mod debian;
mod fences;
mod judge;
mod layouts;
mod step;
mod test;
mod tree;
mod vm;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask CHORE

Chores:
  test      format, lints, documentation, tests, and the tools as a user runs them.
            Installs nothing and needs no privileges; a step whose tool is missing is
            skipped, and says so.
  judge     the C stack (libibverbs, libmlx5), unmodified, on the software HCA. Fetches
            Debian's packages with apt into the target folder, once; installs nothing.
            Before that, layouts.
  fences    traffic over a memory that keeps no order but what fences ask for, and the
            instructions on aarch64, if the toolchain has that machine's core library.
  fetch     Debian's packages of the C stack, as judge does, and no more. The last line is the
            folder that they are in.
  layouts   the tables of layouts and constants, made again from the C headers and compared
            with the fixtures. Needs python3, gcc and readelf. With --bless the fixtures are
            replaced by what the headers say.
  vm        real kernels in QEMU, with our tests and the C stack's programs in them. Fetches both
            with apt into the target folder, once (0.5 GB); installs nothing. vm --help tells more.
  counts    instructions of the data path: how many, under callgrind, and which, against the
            tables in benches/counts. Needs valgrind, or apt to fetch it into the target folder.
            With --bless the tables are replaced by what is found.
  help      this text
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test::run_all(),
        ["judge"] => {
            let mut steps = step::Steps::default();
            steps.step("layouts", layouts::check);
            steps.step("judge", judge::judge);
            steps.summary()
        }
        ["fences"] => {
            let mut steps = step::Steps::default();
            steps.step("fences", fences::order);
            steps.step("fences, aarch64", fences::aarch64);
            steps.summary()
        }
        ["fetch"] => match debian::root() {
            Ok(root) => {
                println!("{}", root.display());
                ExitCode::SUCCESS
            }
            Err(step::Outcome::Skipped(why) | step::Outcome::Failed(why)) => {
                eprintln!("fetch: {why}");
                ExitCode::FAILURE
            }
            Err(_) => ExitCode::FAILURE,
        },
        ["layouts"] => {
            let mut steps = step::Steps::default();
            steps.step("layouts", layouts::check);
            steps.summary()
        }
        ["layouts", "--bless"] => {
            let mut steps = step::Steps::default();
            steps.step("layouts, blessed", layouts::bless);
            steps.summary()
        }
        ["vm", ..] => vm::chore(&words[1..]),
        ["counts"] => {
            let mut steps = step::Steps::default();
            counts::steps(&mut steps, false);
            steps.summary()
        }
        ["counts", "--bless"] => {
            let mut steps = step::Steps::default();
            counts::steps(&mut steps, true);
            steps.summary()
        }
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        [_, "--help" | "-h"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        ref words => {
            eprint!("xtask: {}\n\n{USAGE}", complaint(words));
            ExitCode::from(2)
        }
    }
}

/// What is wrong with words that name no chore.
fn complaint(words: &[&str]) -> String {
    let is_chore = |word: &str| {
        USAGE.lines().any(|line| {
            let name = line.strip_prefix("  ").filter(|rest| !rest.starts_with(' '));
            name.is_some_and(|rest| rest.split_whitespace().next() == Some(word))
        })
    };
    match *words {
        [] => "which chore?".to_owned(),
        [chore, ..] if !is_chore(chore) => format!("no such chore: {chore}"),
        [chore, ref rest @ ..] => format!("{chore} doesn't take {}", rest.join(" ")),
    }
}

#[cfg(test)]
mod tests {
    use super::complaint;

    #[test]
    fn words_that_name_no_chore() {
        assert_eq!(complaint(&[]), "which chore?");
        assert_eq!(complaint(&["vn", "--world"]), "no such chore: vn");
        assert_eq!(complaint(&["skipped,"]), "no such chore: skipped,");
        assert_eq!(complaint(&["test", "--world", "b"]), "test doesn't take --world b");
    }
}
