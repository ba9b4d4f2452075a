//! Order of mlx5_core's commands in the server's log, compared with the list that the driver in
//! user space is compared with, too.

use std::fs;
use std::path::Path;

use crate::vm::fetch::sources;

/// Commands and modifiers of the first function, in the log's order.
fn logged(log: &str) -> Vec<String> {
    let commands = log.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (&[number, _, "cmd", _, opcode, modifier], _) = words.split_first_chunk()? else {
            return None;
        };
        (number == "1").then(|| format!("{opcode} {}", modifier.trim_start_matches("op_mod=")))
    });
    commands.collect()
}

/// Event queues that mlx5_core always has: of commands, of pages, and of other events. Queues of
/// completions come and go with the use of the device.
const EQS: usize = 3;

/// Commands of bring-up and teardown: to the second CREATE_EQ, and from the DESTROY_EQs of the
/// [`EQS`] on.
fn ends(mut commands: Vec<String>) -> Vec<String> {
    let is_eq = |line: &String, what: &str| line.starts_with(what);
    let up = commands.iter().enumerate().filter(|(_, line)| is_eq(line, "CREATE_EQ"));
    let up = up.map(|(at, _)| at + 1).nth(1).unwrap_or(commands.len());
    let last = commands.iter().rposition(|line| is_eq(line, "DESTROY_EQ"));
    let down = last.map_or(commands.len(), |last| (last + 1).saturating_sub(EQS)).max(up);
    let down = commands.split_off(down);
    commands.truncate(up);
    commands.extend(down);
    commands
}

/// Compares a run's log with the list.
///
/// # Errors
///
/// The first command that differs, or the file that can't be read.
pub(crate) fn compare(log: &Path) -> Result<(), String> {
    let list = sources().join("../../providers/mlx5-vfio/tests/order.txt");
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    let rows = read(&list)?;
    let rows = rows.lines().filter(|line| line.starts_with("both") || line.starts_with("linux"));
    let listed: Vec<String> = rows
        .map(|row| row.split_whitespace().skip(1).take(2).collect::<Vec<_>>().join(" "))
        .collect();
    let found = ends(logged(&read(log)?));
    // A machine that powers off ends the device by a fast teardown; `vfio-unload` ends it in order.
    let is_whole = found.iter().any(|line| line.starts_with("DESTROY_EQ"));
    let is_listed = |line: &String| is_whole || !line.starts_with("DESTROY_EQ");
    let listed: Vec<String> = listed.into_iter().take_while(is_listed).collect();
    match found == listed {
        true => Ok(()),
        false => {
            let same = found.iter().zip(&listed).take_while(|(one, other)| one == other).count();
            let at = |list: &[String]| list.get(same).cloned().unwrap_or("no more".to_owned());
            let (found, listed) = (at(&found), at(&listed));
            Err(format!("mlx5_core's command {same}: {found}; order.txt has: {listed}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_cut_to_its_ends() {
        let log = "1  0.1 cmd  0 ENABLE_HCA op_mod=0x0 in=16 out=16: OK\n\
            2  0.1 cmd  0 ENABLE_HCA op_mod=0x0 in=16 out=16: OK\n1  0.2 interrupt 0\n";
        assert_eq!(logged(log), ["ENABLE_HCA 0x0"]);
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let up = "A CREATE_EQ CREATE_EQ";
        let down = "DESTROY_EQ DESTROY_EQ DESTROY_EQ D";
        for between in ["B CREATE_EQ C", "B CREATE_EQ CREATE_EQ C DESTROY_EQ"] {
            let whole = words(&format!("{up} {between} {down}"));
            assert_eq!(ends(whole), words(&format!("{up} {down}")));
        }
        assert_eq!(ends(words("A")), ["A"]);
        assert_eq!(ends(Vec::new()), [""; 0]);
    }
}
