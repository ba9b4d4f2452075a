//! Idle strategy of the device's thread.

use std::time::Duration;

/// Idle strategy of the device's thread: it spins, then yields, then sleeps until
/// something wakes it ([`SoftHcaBuilder::idle`](crate::SoftHcaBuilder::idle)).
///
/// A frame from another device, a command and a timer wake it in any case. A doorbell is a store
/// into memory: the thread write-protects the doorbell pages before it sleeps, so that the first
/// store faults, wakes it, and is then made (userfaultfd, Linux 5.19 or newer). Where the system
/// refuses that, the thread looks at the pages now and then.
///
/// The defaults are what `cargo bench --bench wake` found best on one and on two processors
/// (`docs/PERFORMANCE.md`).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Idle {
    /// How long it spins without giving up the processor. Default: 0. On a processor that it shares
    /// with its client this is latency: the client waits for it, and it for the client.
    pub spin: Duration,
    /// How long, the spinning included, it stays awake and yields between looks. Default: 200
    /// microseconds. More keeps latency low for messages that are further apart, and takes
    /// processor time; [`Duration::MAX`] never sleeps. A thread that doorbells wake sleeps sooner
    /// where others want the processor: when a yield takes 100 microseconds.
    pub awake: Duration,
    /// Longest sleep while something must be polled that wakes no thread. Default: 4
    /// milliseconds. The first sleep is of 20 microseconds, and each is twice as long as the one
    /// before. That is so for doorbells where the system refuses to protect pages, for receives of
    /// a queue pair in the error state, and for wires that tell of no arrival.
    pub look: Duration,
    /// Longest sleep at all, as a limit to every wait. Default: 100 milliseconds.
    pub longest: Duration,
    /// Protect doorbell pages during sleep. Default: true.
    pub protect: bool,
}

impl Default for Idle {
    fn default() -> Self {
        Self {
            spin: Duration::ZERO,
            awake: Duration::from_micros(200),
            look: Duration::from_millis(4),
            longest: Duration::from_millis(100),
            protect: true,
        }
    }
}
