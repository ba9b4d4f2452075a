//! Machine-readable output of benches: lines `KIND CASE VALUE`. KIND is `ratio`, `figure`, or
//! begins with `ratio_`. A record has the values of all rounds in a line.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Values of each figure, one a round, by kind and case in the order of the first round.
#[derive(Debug, Default)]
pub(super) struct Figures {
    order: Vec<(String, String)>,
    values: BTreeMap<(String, String), Vec<f64>>,
}

impl Figures {
    /// Adds the output of a round, or of a record. Other lines are left out.
    pub(super) fn read(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [kind, case, ref values @ ..] = words[..] else { continue };
            if kind != "ratio" && kind != "figure" && !kind.starts_with("ratio_") {
                continue;
            }
            let finite = |word: &&str| word.parse().ok().filter(|value: &f64| value.is_finite());
            let Some(values) = values.iter().map(finite).collect::<Option<Vec<_>>>() else {
                continue;
            };
            if values.is_empty() {
                continue;
            }
            let name = (kind.to_owned(), case.to_owned());
            if !self.values.contains_key(&name) {
                self.order.push(name.clone());
            }
            self.values.entry(name).or_default().extend(values);
        }
    }

    /// A line for each figure, as [`read`](Self::read) takes it.
    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for name @ (kind, case) in &self.order {
            let _ = write!(text, "{kind} {case}");
            for value in self.values.get(name).into_iter().flatten() {
                let _ = write!(text, " {value}");
            }
            text.push('\n');
        }
        text
    }

    /// Kind and case of each figure.
    pub(super) fn names(&self) -> impl Iterator<Item = (&str, &str)> {
        self.order.iter().map(|(kind, case)| (kind.as_str(), case.as_str()))
    }

    /// Kinds, each once.
    pub(super) fn kinds(&self) -> Vec<&str> {
        once(self.names().map(|(kind, _)| kind))
    }

    pub(super) fn cases(&self) -> Vec<&str> {
        once(self.names().map(|(_, case)| case))
    }

    /// Median of all rounds.
    pub(super) fn median(&self, kind: &str, case: &str) -> Option<f64> {
        let mut values = self.values.get(&(kind.to_owned(), case.to_owned()))?.clone();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        Some(match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        })
    }
}

/// Each word once, in the order of the first.
pub(super) fn once<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for word in words {
        if !seen.contains(&word) {
            seen.push(word);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_put_together_in_the_order_of_the_first() {
        let mut figures = Figures::default();
        figures.read("ratio b 3\nsample b c 1 2 3\nratio_st b 1\nratio a 2.5\nratio c nan\n");
        figures.read("ratio a 2\nratio b 1\nrated a 7\nfigure b x\n");
        figures.read("ratio b 2\n");
        let names: Vec<_> = figures.names().collect();
        assert_eq!(names, [("ratio", "b"), ("ratio_st", "b"), ("ratio", "a")]);
        assert_eq!(figures.kinds(), ["ratio", "ratio_st"]);
        assert_eq!(figures.cases(), ["b", "a"]);
        assert_eq!(figures.median("ratio", "b"), Some(2.0));
        assert_eq!(figures.median("ratio", "a"), Some(2.25));
        assert_eq!(figures.median("ratio_st", "a"), None);
        assert_eq!(figures.text(), "ratio b 3 1 2\nratio_st b 1\nratio a 2.5 2\n");
    }
}
