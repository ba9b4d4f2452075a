//! Machine-readable output of benches: lines `KIND CASE VALUE`. KIND is `ratio`, `figure`, or
//! begins with `ratio_`.

use std::collections::BTreeMap;

/// Values of each figure, one a round, by kind and case in the order of the first round.
#[derive(Debug, Default)]
pub(super) struct Figures {
    order: Vec<(String, String)>,
    values: BTreeMap<(String, String), Vec<f64>>,
}

/// Figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Spread {
    pub(super) lowest: f64,
    pub(super) median: f64,
    pub(super) highest: f64,
}

impl Figures {
    /// Adds the output of a round.
    pub(super) fn read(&mut self, text: &str) {
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [kind, case, value] = words[..] else { continue };
            if kind != "ratio" && kind != "figure" && !kind.starts_with("ratio_") {
                continue;
            }
            let Ok(value) = value.parse::<f64>() else { continue };
            if !value.is_finite() {
                continue;
            }
            let name = (kind.to_owned(), case.to_owned());
            if !self.values.contains_key(&name) {
                self.order.push(name.clone());
            }
            self.values.entry(name).or_default().push(value);
        }
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

    pub(super) fn spread(&self, kind: &str, case: &str) -> Option<Spread> {
        let mut values = self.values.get(&(kind.to_owned(), case.to_owned()))?.clone();
        values.sort_by(f64::total_cmp);
        let (&lowest, &highest) = (values.first()?, values.last()?);
        let middle = values.len() / 2;
        let median = match values.len() % 2 {
            0 => (values[middle - 1] + values[middle]) / 2.0,
            _ => values[middle],
        };
        Some(Spread { lowest, median, highest })
    }
}

fn once<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
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
        let spread = Spread { lowest: 1.0, median: 2.0, highest: 3.0 };
        assert_eq!(figures.spread("ratio", "b"), Some(spread));
        assert_eq!(figures.spread("ratio_st", "a"), None);
    }
}
