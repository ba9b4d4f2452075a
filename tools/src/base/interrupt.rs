//! Ctrl-C: the first ends the run with a report of the results so far; the second ends the program.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::base::error::Error;

/// Exit status of a program ended by SIGINT, as in shells.
const INTERRUPTED: i32 = 130;

/// A flag that the first Ctrl-C sets.
pub(crate) fn watch() -> Result<Arc<AtomicBool>, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    let done = flag::register_conditional_shutdown(SIGINT, INTERRUPTED, Arc::clone(&stop))
        .and_then(|_| flag::register(SIGINT, Arc::clone(&stop)));
    match done {
        Ok(_) => Ok(stop),
        Err(error) => Err(Error::System { what: "sigaction", errno: uverbs::Errno::of(&error) }),
    }
}
