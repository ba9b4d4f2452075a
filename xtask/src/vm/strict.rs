//! Refusals of strict mode in the server's log.

use std::fs;
use std::path::Path;

/// Word of a refusal (`providers/softhca/src/pci/mod.rs`, `command`).
const WORD: &str = " strict: ";

/// Checks that strict mode refused no command of a run.
///
/// # Errors
///
/// The first refusal, or the file that can't be read.
pub(crate) fn check(log: &Path) -> Result<(), String> {
    let log = fs::read_to_string(log).map_err(|error| format!("{}: {error}", log.display()))?;
    first(&log).map_or(Ok(()), |line| Err(format!("a driver's command was refused: {line}")))
}

/// First refusal, and the command that it is about, which is in the next line of the function.
fn first(log: &str) -> Option<String> {
    let mut lines = log.lines();
    let refusal = lines.find(|line| line.contains(WORD))?;
    let number = refusal.split_whitespace().next();
    let is_command =
        |line: &&str| line.split_whitespace().next() == number && line.contains(" cmd ");
    let command = lines.find(is_command).unwrap_or_default();
    Some([refusal, command].map(str::trim).join(" | "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_found_with_its_command() {
        let good = "1  0.1 cmd  0 ENABLE_HCA op_mod=0x0 in=16 out=16: OK\n";
        assert_eq!(first(good), None);
        let refusal = "1  0.2 cmd  0 strict: a reserved bit of qpc is set, byte 0x4";
        let other = "2  0.2 cmd  0 NOP op_mod=0x0 in=16 out=16: OK";
        let command = "1  0.2 cmd  0 CREATE_QP op_mod=0x0 in=336 out=16: BAD_PARAM_ERR";
        let log = format!("{good}{refusal}\n{other}\n{command}\n{good}");
        assert_eq!(first(&log), Some(format!("{refusal} | {command}")));
        assert_eq!(first(refusal), Some(format!("{refusal} | ")));
    }
}
