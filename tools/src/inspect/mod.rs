//! Reports on devices in use: counters, objects and their holders.

pub(crate) mod counters;
mod frame;
pub(crate) mod holders;
mod prometheus;
pub(crate) mod resources;
pub(crate) mod snapshot;
pub(crate) mod top;

use uverbs::report::Gap;

use crate::base::output;

/// Prints a line on stderr for each part that could not be read.
pub(crate) fn complain(device: &str, gaps: &[Gap]) {
    for gap in gaps {
        output::complain(&format!("{device}: {gap}"));
    }
}
