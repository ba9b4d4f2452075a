//! Why a change of the flow tables is refused.

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// There is no such thing.
    Missing(&'static str),
    Param(&'static str),
    /// Something else hangs on it.
    Busy(&'static str),
    Limit(&'static str),
}
