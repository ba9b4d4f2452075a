//! What a UDP wire counts, and its link.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

macro_rules! stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counts of a UDP wire since it was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct UdpStats {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl UdpStats {
            /// All of them by name, for printing.
            #[must_use]
            pub fn by_name(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)*]
            }
        }

        #[derive(Debug, Default)]
        pub(super) struct Counters {
            $(pub(super) $name: AtomicU64,)*
        }

        impl Counters {
            fn read(&self) -> UdpStats {
                UdpStats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

stats! {
    /// Packets given to the system.
    sent,
    /// Packets that arrived whole and were handed to the device.
    received,
    /// System calls that sent: a call takes several packets where the system divides them.
    send_calls,
    /// System calls that received packets.
    receive_calls,
    /// Dropped on arrival: the ICRC doesn't match.
    bad_icrc,
    /// Dropped on arrival: no packet can be as short, as long, or of such a length.
    malformed,
    /// Lost on arrival: the socket's buffer was full.
    overrun,
    /// Arrived with ECN's mark of congestion.
    congested,
    /// Congestion notifications (CNP) that arrived; nothing is done about them.
    congestion_notices,
    /// Not sent: no socket has the source's address, or none of its kind leads to the destination.
    unroutable,
    /// Not sent: the system refused (no route, a packet filter, an interface that is down).
    refused,
    /// Not sent: longer than the interface takes.
    too_long,
    /// Not sent: a packet of a dynamic connection, which only this device's like understands.
    foreign,
    /// Dropped on either way while the link was down.
    link_down,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) plugged: AtomicBool,
    pub(super) counters: Counters,
}

impl Default for Shared {
    fn default() -> Shared {
        Shared { plugged: AtomicBool::new(true), counters: Counters::default() }
    }
}

pub(super) fn add(counter: &AtomicU64, n: u64) {
    // Relaxed: statistics order nothing.
    counter.fetch_add(n, Ordering::Relaxed);
}

/// The link and the counters of a [`UdpWire`](super::UdpWire) that its HCA owns by now. Clones are
/// the same control.
#[derive(Clone, Debug)]
pub struct UdpControl {
    pub(super) shared: Arc<Shared>,
}

impl UdpControl {
    /// Pulls the cable: what arrives and what is sent is lost until [`replug`](Self::replug).
    pub fn unplug(&self) {
        self.shared.plugged.store(false, Ordering::Relaxed);
    }

    /// Puts the cable back.
    pub fn replug(&self) {
        self.shared.plugged.store(true, Ordering::Relaxed);
    }

    /// The counts so far.
    #[must_use]
    pub fn stats(&self) -> UdpStats {
        self.shared.counters.read()
    }
}
