//! The guest's plan, a JSON file in the image.

use serde::{Deserialize, Serialize};

/// Path of the plan in the guest.
pub const PATH: &str = "/vm/plan";

/// A program with its arguments and its limit of time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Name of the program in reports.
    pub name: String,
    /// After so many seconds it is killed, and counts as failed.
    pub seconds: u64,
    /// The program and its arguments.
    pub words: Vec<String>,
}

/// The guest's plan, in the order of execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The programs' environment.
    pub environment: Vec<(String, String)>,
    /// Files of kernel modules, in the order of loading.
    pub modules: Vec<String>,
    /// Makes the devices. If it fails, nothing else runs.
    pub setup: Option<Program>,
    /// The programs, run one after the other.
    pub programs: Vec<Program>,
    /// True to start a shell on the first serial port afterwards.
    pub shell: bool,
}

impl Plan {
    /// The plan as JSON.
    ///
    /// # Errors
    ///
    /// A value that JSON can't hold.
    pub fn to_text(&self) -> Result<String, String> {
        serde_json::to_string_pretty(self).map_err(|error| error.to_string())
    }

    /// Reads a plan.
    ///
    /// # Errors
    ///
    /// The fault, and its line.
    pub fn parse(text: &str) -> Result<Self, String> {
        serde_json::from_str(text).map_err(|error| format!("{PATH}: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word() -> impl Strategy<Value = String> {
        "\\PC{0,12}|[\t\n\r\"\\\\]{0,3}"
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
            let text = plan.to_text().expect("JSON");
            prop_assert_eq!(Plan::parse(&text), Ok(plan));
        }

        #[test]
        fn any_text_is_a_plan_or_an_error(text in "\\PC{0,200}|[\\[{\"a-z:,0-9}\\]]{0,40}") {
            let _ = Plan::parse(&text);
        }
    }
}
