//! Exceptions: places that may break a rule for good, each with its reason.

use super::finding::{Finding, Rule};

/// Lines of the file.
#[derive(Debug)]
pub(crate) struct Exceptions(Vec<Exception>);

/// `RULE PATH REASON`, or `RULE PATH:ITEM REASON` of a function.
#[derive(Debug)]
struct Exception {
    rule: Rule,
    path: String,
    item: Option<String>,
    line: usize,
}

impl Exceptions {
    /// Parses the file. Lines that begin with `#` are comments.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
        let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        lines.map(|(at, line)| Exception::parse(at, line)).collect::<Result<_, _>>().map(Self)
    }

    /// Findings without an exception, and exceptions without a finding.
    pub(crate) fn apply(&self, found: Vec<Finding>) -> (Vec<Finding>, Vec<String>) {
        let unneeded = self.0.iter().filter(|one| !found.iter().any(|found| one.covers(found)));
        let unneeded = unneeded.map(|one| {
            let (line, rule, path) = (one.line, one.rule.name(), &one.path);
            format!(
                "{}:{line}: {rule} {path}: nothing to except, delete the line",
                super::EXCEPTIONS
            )
        });
        let unneeded = unneeded.collect();
        let left = found.into_iter().filter(|found| !self.0.iter().any(|one| one.covers(found)));
        (left.collect(), unneeded)
    }
}

impl Exception {
    fn parse(at: usize, line: &str) -> Result<Self, String> {
        let place = super::EXCEPTIONS;
        let mut words = line.split_whitespace();
        let (Some(rule), Some(path), Some(_)) = (words.next(), words.next(), words.next()) else {
            return Err(format!("{place}:{at}: expected RULE PATH REASON: {line}"));
        };
        let rule = Rule::named(rule).ok_or_else(|| format!("{place}:{at}: unknown rule {rule}"))?;
        let (path, item) = match path.split_once(':') {
            Some((path, item)) => (path, Some(item.to_owned())),
            None => (path, None),
        };
        Ok(Self { rule, path: path.to_owned(), item, line: at })
    }

    fn covers(&self, found: &Finding) -> bool {
        self.rule == found.rule
            && self.path == found.path
            && (self.item.is_none() || self.item == found.item)
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::shown;
    use super::*;

    fn long(name: &str) -> Finding {
        let item = Some(name.to_owned());
        Finding { item, ..Finding::new(Rule::FunctionLines, "a.rs", 1, name) }
    }

    #[test]
    fn exceptions_cover_their_place_alone() {
        let text = "# comment\n\nfunction-lines a.rs:b one match of all opcodes\n";
        let exceptions = Exceptions::parse(text).unwrap();
        let (left, unneeded) = exceptions.apply(vec![long("b"), long("c")]);
        assert_eq!(shown(&left), ["a.rs:1: c"]);
        assert_eq!(unneeded, [""; 0]);
        let other = Finding::new(Rule::Turn, "a.rs", 1, "b");
        assert_eq!(exceptions.apply(vec![long("b"), other]).0.len(), 1);
    }

    #[test]
    fn an_exception_that_covers_nothing_is_told() {
        let exceptions = Exceptions::parse("turn a.md a quotation\n").unwrap();
        let (left, unneeded) = exceptions.apply(vec![long("b")]);
        assert_eq!(left.len(), 1);
        assert!(unneeded[0].contains(":1: turn a.md"), "{unneeded:?}");
    }

    #[test]
    fn a_line_needs_a_known_rule_and_a_reason() {
        assert!(Exceptions::parse("turn a.md\n").unwrap_err().contains("REASON"));
        assert!(Exceptions::parse("turns a.md why\n").unwrap_err().contains("unknown rule turns"));
    }
}
