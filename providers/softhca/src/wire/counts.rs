//! Counters of a wire and the switch of its link, which the HCA's owner keeps.

use std::sync::atomic::{AtomicU64, Ordering};

/// Declares a struct of counts for readers, the atomic counters behind it, and the control that
/// shares them and the link's switch.
macro_rules! counts {
    (
        $(#[$stats_doc:meta])* stats $Stats:ident;
        $(#[$control_doc:meta])* control $Control:ident;
        $($(#[$doc:meta])* $name:ident,)*
    ) => {
        $(#[$stats_doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct $Stats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $Stats {
            /// All counts with names, for printing.
            #[must_use]
            pub fn by_name(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }

        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: std::sync::atomic::AtomicU64,)*
        }

        #[derive(Debug)]
        pub(super) struct Shared {
            pub(super) plugged: std::sync::atomic::AtomicBool,
            pub(super) counters: Counters,
        }

        impl Default for Shared {
            fn default() -> Shared {
                let plugged = std::sync::atomic::AtomicBool::new(true);
                Shared { plugged, counters: Counters::default() }
            }
        }

        $(#[$control_doc])*
        #[derive(Clone, Debug)]
        pub(crate) struct $Control {
            pub(super) shared: std::sync::Arc<Shared>,
        }

        impl $Control {
            /// Unplugs the cable: sent and received frames are lost until [`replug`](Self::replug).
            pub(crate) fn unplug(&self) {
                self.shared.plugged.store(false, std::sync::atomic::Ordering::Relaxed);
            }

            /// Plugs the cable in.
            pub(crate) fn replug(&self) {
                self.shared.plugged.store(true, std::sync::atomic::Ordering::Relaxed);
            }

            /// Current counts.
            pub(crate) fn stats(&self) -> $Stats {
                let counters = &self.shared.counters;
                $Stats {
                    $($name: counters.$name.load(std::sync::atomic::Ordering::Relaxed),)*
                }
            }
        }
    };
}
pub(super) use counts;

/// Adds to a counter with a single writer, without a locked instruction.
#[inline]
pub(super) fn add_alone(counter: &AtomicU64, n: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

#[inline]
pub(super) fn add(counter: &AtomicU64, n: u64) {
    // Relaxed: statistics order no other access.
    counter.fetch_add(n, Ordering::Relaxed);
}
