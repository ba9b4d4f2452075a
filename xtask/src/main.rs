//! Project chores: `cargo xtask test` is what decides whether a change is good.

mod step;
mod test;
mod tree;

use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask CHORE

Chores:
  test      format, lints, documentation, tests, and the tools as a user runs them.
            Installs nothing and needs no privileges; a step whose tool is missing is
            skipped, and says so.
  help      this text
";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["test"] => test::run_all(),
        ["help" | "--help" | "-h"] => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprint!("xtask: no such chore: {}\n\n{USAGE}", words.join(" "));
            ExitCode::from(2)
        }
    }
}
