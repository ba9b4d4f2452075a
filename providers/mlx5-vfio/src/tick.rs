//! Work that the driver's thread does after its event queue: delivers events to the front, and runs
//! the front's timers.

use std::fmt;
use std::time::Duration;

/// More work for the driver's thread.
pub(crate) trait Tick: Send + Sync + fmt::Debug {
    /// Does a turn of work. Returns the longest pause until the next; `None`: until the next event.
    fn tick(&self) -> Option<Duration>;
    /// Called once, after the device's first failure. It may still make DMA.
    fn failed(&self);
    /// Called once, after [`Tick::failed`], when a failed device makes no more DMA.
    fn ended(&self);
}
