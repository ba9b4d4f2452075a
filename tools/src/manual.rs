//! `uverbs manual` and `uverbs completions`: files that packagers install with the program.

use std::path::PathBuf;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Cli;
use crate::base::error::Error;
use crate::base::output;

/// Write the manual pages: uverbs.1, and one for each command.
///
/// They are what `--help` prints, for man(1).
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs manual --dir /usr/local/share/man/man1\n  \
    uverbs manual --dir . && man ./uverbs-perf-write.1")]
pub(crate) struct ManualArgs {
    /// Folder to write to; it is made if it does not exist
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

/// Print what completes the command line in a shell.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs completions bash > ~/.local/share/bash-completion/completions/uverbs\n  \
    uverbs completions zsh > ~/.zfunc/_uverbs")]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_enum)]
    shell: Shell,
}

pub(crate) fn manual(args: &ManualArgs) -> Result<(), Error> {
    let failed = |error| Error::File { path: args.dir.clone(), error };
    std::fs::create_dir_all(&args.dir).map_err(failed)?;
    clap_mangen::generate_to(Cli::command(), &args.dir).map_err(failed)
}

pub(crate) fn completions(args: &CompletionsArgs) -> Result<(), Error> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "uverbs", &mut script);
    output::write(&String::from_utf8_lossy(&script))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_has_a_page() {
        let dir = tempfile::tempdir().unwrap();
        manual(&ManualArgs { dir: dir.path().join("man1") }).unwrap();
        let names: Vec<_> = std::fs::read_dir(dir.path().join("man1")).unwrap().flatten().collect();
        for command in Cli::command().get_subcommands() {
            let name = format!("uverbs-{}.1", command.get_name());
            let page = std::fs::read_to_string(dir.path().join("man1").join(&name)).unwrap();
            assert!(page.contains(".SH SYNOPSIS"), "{name}");
        }
        let perf = std::fs::read_to_string(dir.path().join("man1/uverbs-perf.1")).unwrap();
        assert!(perf.contains("WHAT IS MEASURED"), "what stands behind the options, too");
        assert!(names.len() > Cli::command().get_subcommands().count(), "and of subcommands");
    }

    #[test]
    fn each_shell_has_a_script() {
        use clap::ValueEnum;
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "uverbs", &mut script);
            let script = String::from_utf8(script).unwrap();
            assert!(script.contains("pingpong") && script.contains("connection"), "{shell}");
        }
    }
}
