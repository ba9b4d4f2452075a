//! Text output: reports to stdout in one piece, complaints to stderr in one line.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use terminal_size::{Width, terminal_size_of};

use serde::Serialize;

use crate::base::error::Error;
use crate::base::peer_text::shown;

/// Columns of stdout, by the terminal or by `COLUMNS`. Unlimited without either.
pub(crate) fn width() -> usize {
    let stdout = io::stdout();
    let terminal = terminal_size_of(&stdout).filter(|_| stdout.is_terminal());
    let named = || std::env::var("COLUMNS").ok()?.parse().ok();
    terminal.map(|(Width(width), _)| usize::from(width)).or_else(named).unwrap_or(usize::MAX)
}

/// Breaks lines longer than `width` between words. Continuation lines are indented to the line's
/// second column, which begins after two or more spaces.
pub(crate) fn fold(text: &str, width: usize) -> String {
    let mut folded = String::new();
    for line in text.lines() {
        let lead = line.len() - line.trim_start().len();
        let column = line[lead..].find("  ").map(|gap| {
            let rest = &line[lead + gap..];
            lead + gap + rest.len() - rest.trim_start().len()
        });
        let indent = column.filter(|column| *column < width / 2).unwrap_or(lead);
        let mut used = 0;
        // A word includes the spaces before it.
        let mut rest = line;
        while !rest.is_empty() {
            let start = rest.len() - rest.trim_start().len();
            let end = rest[start..].find(' ').map_or(rest.len(), |end| start + end);
            let (word, after) = rest.split_at(end);
            if used > indent && used + word.chars().count() > width {
                folded.push('\n');
                folded.push_str(&" ".repeat(indent));
                folded.push_str(word.trim_start());
                used = indent + word.trim_start().chars().count();
            } else {
                folded.push_str(word);
                used += word.chars().count();
            }
            rest = after;
        }
        folded.push('\n');
    }
    folded
}

/// Writes a report; lines are folded to the terminal.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    write(&fold(text, width()))
}

/// Writes a text unchanged.
pub(crate) fn write(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Error::Output)
}

/// Writes a report as one JSON object.
pub(crate) fn json(report: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(report);
    let text = text.map_err(|error| Error::Output(io::Error::other(error)))?;
    write(&(text + "\n"))
}

/// Writes a line to stderr that begins with the program's name. Characters that a terminal does not
/// show are escaped. Errors of the write are ignored.
pub(crate) fn complain(what: &impl Display) {
    let line = shown(what.to_string().replace('\n', " ").as_bytes());
    let _ = writeln!(io::stderr().lock(), "uverbs: {line}");
}

/// Returns `true` for a UTF-8 locale, by the variables in the order of POSIX (XBD 8.2).
pub(crate) fn is_utf8() -> bool {
    let set = |name| std::env::var(name).ok().filter(|value: &String| !value.is_empty());
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().find_map(set);
    locale.is_some_and(|locale| names_utf8(&locale))
}

fn names_utf8(locale: &str) -> bool {
    let locale = locale.to_ascii_lowercase();
    locale.contains("utf-8") || locale.contains("utf8")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_folded_between_words() {
        let text = "  client     softhca0 port 1, Ethernet, QP 0x40\nshort\n\n  a bc def\n";
        assert_eq!(fold(text, usize::MAX), text);
        assert_eq!(
            fold(text, 34),
            "  client     softhca0 port 1,\n             Ethernet, QP 0x40\nshort\n\n  a bc def\n"
        );
        assert_eq!(fold("  a bc def\n", 6), "  a bc\n  def\n");
        // A word that is too long is not cut.
        assert_eq!(fold("0123456789 1\n", 4), "0123456789\n1\n");
        for width in 20..60 {
            let folded = fold(text, width);
            assert!(folded.lines().all(|line| line.len() <= width), "{width}: {folded}");
        }
    }

    #[test]
    fn locales() {
        for (locale, expected) in
            [("C.UTF-8", true), ("de_DE.utf8", true), ("C", false), ("de_DE.ISO-8859-1", false)]
        {
            assert_eq!(names_utf8(locale), expected, "{locale}");
        }
    }
}
