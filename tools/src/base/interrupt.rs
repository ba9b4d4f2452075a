//! Ctrl-C: the first ends a run with a report of the results so far; the second ends the program. A
//! file that is not complete is removed.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{fs, io, thread};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};
use signal_hook::{flag, low_level};

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
        Err(error) => Err(refused(&error)),
    }
}

/// A flag that Ctrl-C and SIGTERM set, for a program that ends its children first.
pub(crate) fn watch_ends() -> Result<Arc<AtomicBool>, Error> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        flag::register(signal, Arc::clone(&stop)).map_err(|error| refused(&error))?;
    }
    Ok(stop)
}

/// A file that is removed if SIGINT or SIGTERM ends the program before this is dropped.
pub(crate) struct Incomplete(Handle);

impl Incomplete {
    pub(crate) fn new(path: PathBuf) -> Result<Self, Error> {
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(|error| refused(&error))?;
        let handle = signals.handle();
        let remove = move || {
            if let Some(signal) = signals.forever().next() {
                let _ = fs::remove_file(&path);
                let _ = low_level::emulate_default_handler(signal);
            }
        };
        let started = thread::Builder::new().name("uverbs-signals".to_owned()).spawn(remove);
        started.map_err(|error| refused(&error))?;
        Ok(Self(handle))
    }
}

impl Drop for Incomplete {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn refused(error: &io::Error) -> Error {
    Error::System { what: "signal handling", errno: uverbs::Errno::of(error) }
}
