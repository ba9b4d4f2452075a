//! The guest's plan, a text file in the image: one item a line, words separated by tabs.

/// Where the plan is in the guest.
pub const PATH: &str = "/vm/plan";

/// A program with its arguments and its limit of time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    /// What it is called in reports.
    pub name: String,
    /// After so many seconds it is killed, and counts as failed.
    pub seconds: u64,
    /// The program and its arguments.
    pub words: Vec<String>,
}

/// The guest's plan, in the order of execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The programs' environment.
    pub environment: Vec<(String, String)>,
    /// Files of kernel modules, in the order of loading.
    pub modules: Vec<String>,
    /// Makes the devices. If it fails, nothing else runs.
    pub setup: Option<Program>,
    /// The programs, run one after the other.
    pub programs: Vec<Program>,
    /// Whether a shell follows, on the first serial port.
    pub shell: bool,
}

impl Plan {
    /// The plan as text.
    ///
    /// # Errors
    ///
    /// A word that has a tab or a line's end in it.
    pub fn to_text(&self) -> Result<String, String> {
        let mut text = String::new();
        let mut line = |words: &[&str]| {
            if let Some(bad) = words.iter().find(|word| word.contains(['\t', '\n', '\r'])) {
                return Err(format!("no tab and no line's end may be in {bad:?}"));
            }
            text.push_str(&words.join("\t"));
            text.push('\n');
            Ok(())
        };
        for (key, value) in &self.environment {
            line(&["env", key, value])?;
        }
        for module in &self.modules {
            line(&["module", module])?;
        }
        let setup = self.setup.iter().map(|program| ("setup", program));
        for (kind, program) in setup.chain(self.programs.iter().map(|program| ("run", program))) {
            let seconds = program.seconds.to_string();
            let words = program.words.iter().map(String::as_str);
            line(&[kind, &program.name, &seconds].into_iter().chain(words).collect::<Vec<_>>())?;
        }
        if self.shell {
            line(&["shell"])?;
        }
        Ok(text)
    }

    /// Reads a plan.
    ///
    /// # Errors
    ///
    /// The line that can't be read.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut plan = Self::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            match words[..] {
                ["env", key, value] => plan.environment.push((key.to_owned(), value.to_owned())),
                ["module", path] => plan.modules.push(path.to_owned()),
                ["shell"] => plan.shell = true,
                [kind @ ("setup" | "run"), name, seconds, ref words @ ..] if !words.is_empty() => {
                    let seconds = seconds.parse().map_err(|_| format!("{line:?}: no limit"))?;
                    let words = words.iter().map(|&word| word.to_owned()).collect();
                    let program = Program { name: name.to_owned(), seconds, words };
                    if kind == "setup" {
                        plan.setup = Some(program);
                    } else {
                        plan.programs.push(program);
                    }
                }
                _ => return Err(format!("{line:?}: no such item")),
            }
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word() -> impl Strategy<Value = String> {
        "[^\t\n\r]{0,12}"
    }

    fn program() -> impl Strategy<Value = Program> {
        (word(), any::<u64>(), prop::collection::vec(word(), 1..4))
            .prop_map(|(name, seconds, words)| Program { name, seconds, words })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn comes_back(
            environment in prop::collection::vec((word(), word()), 0..3),
            modules in prop::collection::vec(word(), 0..3),
            setup in prop::option::of(program()),
            programs in prop::collection::vec(program(), 0..4),
            shell: bool,
        ) {
            let plan = Plan { environment, modules, setup, programs, shell };
            let text = plan.to_text().expect("no tab in any word");
            prop_assert_eq!(Plan::parse(&text), Ok(plan));
        }

        #[test]
        fn any_text_is_a_plan_or_an_error(text in "\\PC{0,200}|((run|setup|env)\t?){0,8}[0-9]{0,3}") {
            let _ = Plan::parse(&text);
        }
    }

    #[test]
    fn a_tab_is_refused() {
        let modules = vec!["a\tb".to_owned()];
        assert!(Plan { modules, ..Plan::default() }.to_text().is_err());
    }
}
