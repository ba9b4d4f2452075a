//! Log of commands, doorbells and interrupts.

use std::fmt;
use std::time::Duration;

/// Receiver of the log's lines.
pub type Sink = Box<dyn FnMut(fmt::Arguments<'_>) + Send>;

/// Writes lines with a timestamp, if there is a sink.
#[derive(Default)]
pub(crate) struct Trace {
    sink: Option<Sink>,
    pub(crate) now: Duration,
}

impl Trace {
    pub(crate) fn set(&mut self, sink: Sink) {
        self.sink = Some(sink);
    }

    pub(crate) fn line(&mut self, line: fmt::Arguments<'_>) {
        if let Some(sink) = &mut self.sink {
            sink(format_args!("{:>12.6} {line}", self.now.as_secs_f64()));
        }
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("on", &self.sink.is_some()).finish_non_exhaustive()
    }
}
