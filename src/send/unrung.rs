//! Warns, in debug builds, of a batch that was dropped without being rung.

#[cfg(debug_assertions)]
use std::io::Write as _;

/// Counts the work requests of a queue's last batch, in debug builds; empty in others.
///
/// The queue holds the count, since a batch has no destructor. The warning comes when the next
/// batch begins or the queue is dropped.
#[derive(Debug, Default)]
pub(crate) struct Unrung {
    #[cfg(debug_assertions)]
    written: u32,
}

impl Unrung {
    /// A batch begins.
    #[inline(always)]
    pub(crate) fn begin(&mut self) {
        #[cfg(debug_assertions)]
        self.complain();
    }

    /// One more work request is written.
    #[inline(always)]
    pub(crate) fn note(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.written += 1;
        }
    }

    /// The batch is rung.
    #[inline(always)]
    pub(crate) fn rung(&mut self) {
        #[cfg(debug_assertions)]
        {
            self.written = 0;
        }
    }

    #[cfg(debug_assertions)]
    fn complain(&mut self) {
        static SAID: std::sync::Once = std::sync::Once::new();
        let written = std::mem::take(&mut self.written);
        // A program that unwinds leaves batches behind on purpose.
        if written > 0 && !std::thread::panicking() {
            SAID.call_once(|| {
                // Not `eprintln!`: a closed stderr must not panic a drop.
                let _ = writeln!(
                    std::io::stderr(),
                    "uverbs: a batch of {written} work requests was dropped without ring(), so the \
                     device never saw them (debug builds say this once)"
                );
            });
        }
    }
}

#[cfg(debug_assertions)]
impl Drop for Unrung {
    fn drop(&mut self) {
        self.complain();
    }
}
