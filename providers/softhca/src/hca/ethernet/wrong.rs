//! Errors of commands that change the flow tables.

/// Reason why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The object does not exist.
    Missing(&'static str),
    Param(&'static str),
    /// Other objects use the object.
    Busy(&'static str),
    Limit(&'static str),
}
