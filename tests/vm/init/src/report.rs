//! The lines that the guest writes to the results port, apart from the kernel's log.

use std::fmt;

/// The results port in the guest: the second serial port. The first is the kernel's. On aarch64 it
/// is the first of its kind, since the kernel's is another.
pub const PORT: &str = if cfg!(target_arch = "aarch64") { "/dev/ttyS0" } else { "/dev/ttyS1" };

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The program exited with this status.
    Exit(i32),
    /// The program was killed by a signal, which the harness did not send.
    Signal(i32),
    /// The harness killed the program at its limit.
    Limit,
}

impl End {
    /// True if the end counts as passed.
    pub fn is_success(self) -> bool {
        self == Self::Exit(0)
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exit(status) => write!(f, "exit {status}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Limit => write!(f, "limit"),
        }
    }
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// The first process has started.
    Hello,
    /// The program still runs; sent once a second.
    Alive,
    /// A program starts.
    Start(String),
    /// The running program printed this, on either stream.
    Out(String),
    /// The running program ended, after so many milliseconds.
    End(End, u64),
    /// Why the guest gave up: a module, the plan, the set-up.
    Trouble(String),
    /// The last line: how many programs passed and failed.
    Verdict {
        /// Ended with status 0.
        passed: usize,
        /// All others.
        failed: usize,
    },
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hello => write!(f, "hello"),
            Self::Alive => write!(f, "alive"),
            Self::Start(name) => write!(f, "start {}", one_line(name)),
            Self::Out(text) => write!(f, "out {}", one_line(text)),
            Self::End(end, ms) => write!(f, "end {ms} {end}"),
            Self::Trouble(what) => write!(f, "trouble {}", one_line(what)),
            Self::Verdict { passed, failed } => {
                write!(f, "verdict {passed} passed {failed} failed")
            }
        }
    }
}

/// The text with spaces for control characters, which could end the line.
fn one_line(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\t', " ")
}

impl Line {
    /// Reads a line.
    pub fn parse(text: &str) -> Option<Self> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        Some(match word {
            "hello" if rest.is_empty() => Self::Hello,
            "alive" if rest.is_empty() => Self::Alive,
            "start" => Self::Start(rest.to_owned()),
            "out" => Self::Out(rest.to_owned()),
            "end" => {
                let (ms, end) = rest.split_once(' ')?;
                let end = match end.split_once(' ') {
                    Some(("exit", status)) => End::Exit(status.parse().ok()?),
                    Some(("signal", signal)) => End::Signal(signal.parse().ok()?),
                    None if end == "limit" => End::Limit,
                    _ => return None,
                };
                Self::End(end, ms.parse().ok()?)
            }
            "trouble" => Self::Trouble(rest.to_owned()),
            "verdict" => match rest.split(' ').collect::<Vec<_>>()[..] {
                [passed, "passed", failed, "failed"] => {
                    Self::Verdict { passed: passed.parse().ok()?, failed: failed.parse().ok()? }
                }
                _ => return None,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn line() -> impl Strategy<Value = Line> {
        let text = || "[^\\p{Cc}]{0,40}";
        let end = prop_oneof![
            any::<i32>().prop_map(End::Exit),
            any::<i32>().prop_map(End::Signal),
            Just(End::Limit)
        ];
        prop_oneof![
            Just(Line::Hello),
            Just(Line::Alive),
            text().prop_map(Line::Start),
            text().prop_map(Line::Out),
            (end, any::<u64>()).prop_map(|(end, ms)| Line::End(end, ms)),
            text().prop_map(Line::Trouble),
            (any::<usize>(), any::<usize>())
                .prop_map(|(passed, failed)| Line::Verdict { passed, failed }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn comes_back(line in line()) {
            prop_assert_eq!(Line::parse(&line.to_string()), Some(line));
        }

        #[test]
        fn what_a_program_prints_is_one_line(text in "\\PC*|[\n\r a-z]{0,30}") {
            prop_assert_eq!(Line::Out(text).to_string().lines().count(), 1);
        }
    }
}
