//! Idle strategy of the device's thread.

use std::time::Duration;

/// Idle strategy of the device's thread: it spins, then yields, then sleeps until an event wakes it
/// ([`SoftHcaBuilder::idle`](crate::SoftHcaBuilder::idle)).
///
/// Frames of other devices, commands and timers always wake it. A doorbell is a store into memory:
/// the thread write-protects the doorbell pages before it sleeps. The first store then faults,
/// wakes the thread, and is made (userfaultfd, Linux 5.19 or newer). If the system refuses
/// protection, the thread polls the pages.
///
/// The defaults are the best of `cargo bench --bench wake` on one and on two processors
/// (`docs/PERFORMANCE.md`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Idle {
    /// Time to spin without a yield. Default: 0. If thread and client share a processor, spinning
    /// adds latency: each waits for the other.
    pub spin: Duration,
    /// Time to stay awake, including the spinning, with yields between looks. Default: 200
    /// microseconds. More keeps the latency low for messages that are further apart, and costs
    /// processor time; [`Duration::MAX`] never sleeps. If doorbells wake the thread, it sleeps
    /// earlier when a yield takes 100 microseconds, since other threads want the processor.
    pub awake: Duration,
    /// Longest sleep while a source must be polled. Default: 4 milliseconds. The first sleep is 20
    /// microseconds, and each is twice the previous. Polled sources: doorbells if the system
    /// refuses protection, receives of a queue pair in the error state, wires that report no
    /// arrivals.
    pub look: Duration,
    /// Longest sleep in any case, so that every wait has a limit. Default: 100 milliseconds.
    pub longest: Duration,
    /// Protects doorbell pages during sleep. Default: true.
    pub protect: bool,
    /// Clients' empty polls do the device's work, from the fourth in a row on. Default: true.
    /// Without it a poll makes no system call, and a program that polls on the processor of the
    /// device's thread waits for the end of its time slice.
    pub client_progress: bool,
}

impl Default for Idle {
    fn default() -> Self {
        Self {
            spin: Duration::ZERO,
            awake: Duration::from_micros(200),
            look: Duration::from_millis(4),
            longest: Duration::from_millis(100),
            protect: true,
            client_progress: true,
        }
    }
}
