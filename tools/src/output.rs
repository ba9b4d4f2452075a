//! Where text goes: reports to stdout in one piece, complaints to stderr in one line.

use std::fmt::Display;
use std::io::{self, Write};

use serde::Serialize;

use crate::error::Error;

/// Writes a report.
pub(crate) fn print(text: &str) -> Result<(), Error> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(Error::Output)
}

/// Writes a report as one JSON object.
pub(crate) fn json(report: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_string_pretty(report);
    let text = text.map_err(|error| Error::Output(io::Error::other(error)))?;
    print(&(text + "\n"))
}

/// Writes one line to stderr, headed by the program's name. If stderr is closed, nobody wants to know.
pub(crate) fn complain(what: &impl Display) {
    let line = what.to_string().replace('\n', " ");
    let _ = writeln!(io::stderr().lock(), "uverbs: {line}");
}

/// Whether the terminal's locale is an UTF-8 one, by the variables in the order of POSIX (XBD 8.2).
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
    fn locales() {
        for (locale, expected) in
            [("C.UTF-8", true), ("de_DE.utf8", true), ("C", false), ("de_DE.ISO-8859-1", false)]
        {
            assert_eq!(names_utf8(locale), expected, "{locale}");
        }
    }
}
