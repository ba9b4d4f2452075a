//! State that the driver's thread shares with its users: transport, memory, command queue, first
//! failure.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::ThreadId;
use std::time::Duration;

use nix::sys::eventfd::EventFd;

use crate::bar::BarPages;
use crate::command::CommandQueue;
use crate::dma::{Buffer, Dma};
use crate::error::Error;
use crate::event::Events;
use crate::pages::PageSupply;
use crate::tick::Tick;
use crate::transport::Transport;

/// Time limits, and the limit of memory.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Limits {
    /// Firmware that starts (`FW_PRE_INIT_TIMEOUT_MILI` of Linux's `core/main.c`).
    pub initializing: Duration,
    /// A command (`MLX5_CMD_TIMEOUT_MSEC` of `include/linux/mlx5/driver.h`).
    pub command: Duration,
    /// Return of all pages at the end (`MAX_RECLAIM_TIME_MSECS` of `core/pagealloc.c`).
    pub reclaim: Duration,
    /// Two looks at the device's health. Three without progress are a failure.
    pub health: Duration,
    /// Bytes of DMA memory.
    pub memory: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            initializing: Duration::from_secs(120),
            command: Duration::from_secs(60),
            reclaim: Duration::from_secs(5),
            health: Duration::from_secs(1),
            memory: 4 << 30,
        }
    }
}

/// Events of the driver's thread.
pub(crate) trait Pump: Send + Sync + std::fmt::Debug {
    /// Handles the events that came; none while one is being handled.
    fn pump(&self, device: &Device) -> Result<(), Error>;
}

/// A function with its memory.
#[derive(Debug)]
pub(crate) struct Device {
    transport: Arc<dyn Transport>,
    dma: Arc<Dma>,
    queue: OnceLock<CommandQueue>,
    limits: Limits,
    failure: OnceLock<String>,
    ended: AtomicBool,
    /// Limit of further commands, if it is shorter than usual.
    short: OnceLock<Duration>,
    process: u32,
    /// More work for the driver's thread.
    tick: OnceLock<Weak<dyn Tick>>,
    /// Wakes the driver's thread.
    waker: OnceLock<Arc<EventFd>>,
    /// The driver's thread, and its events.
    driver: OnceLock<(ThreadId, Weak<dyn Pump>)>,
    pub(crate) pages: PageSupply,
    pub(crate) bar: BarPages,
    pub(crate) events: Events,
}

impl Device {
    pub(crate) fn new(transport: Arc<dyn Transport>, limits: Limits) -> Self {
        Self {
            dma: Dma::new(Arc::clone(&transport), limits.memory),
            transport,
            queue: OnceLock::new(),
            limits,
            failure: OnceLock::new(),
            ended: AtomicBool::new(false),
            short: OnceLock::new(),
            process: std::process::id(),
            tick: OnceLock::new(),
            waker: OnceLock::new(),
            driver: OnceLock::new(),
            pages: PageSupply::default(),
            bar: BarPages::new(),
            events: Events::default(),
        }
    }

    pub(crate) fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    pub(crate) fn dma(&self) -> &Arc<Dma> {
        &self.dma
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Shortens the limit of further commands. Called once.
    pub(crate) fn shorten(&self, limit: Duration) {
        let _ = self.short.set(limit);
    }

    /// Limit of a command.
    pub(crate) fn command_limit(&self) -> Duration {
        self.short.get().map_or(self.limits.command, |short| self.limits.command.min(*short))
    }

    /// Allocates DMA memory.
    pub(crate) fn buffer(&self, len: usize) -> Result<Buffer, Error> {
        self.check()?;
        self.dma.buffer(len)
    }

    pub(crate) fn set_queue(&self, queue: CommandQueue) {
        // Called once.
        let _ = self.queue.set(queue);
    }

    pub(crate) fn queue(&self) -> Result<&CommandQueue, Error> {
        let missing = || Error::Unsupported { what: "commands before the command queue".into() };
        self.queue.get().ok_or_else(missing)
    }

    /// Gives the driver's thread more to do. Called once.
    pub(crate) fn set_tick(&self, tick: Weak<dyn Tick>) {
        let _ = self.tick.set(tick);
    }

    pub(crate) fn tick(&self) -> Option<Arc<dyn Tick>> {
        self.tick.get()?.upgrade()
    }

    /// Notes what wakes the driver's thread. Called once.
    pub(crate) fn set_waker(&self, waker: Arc<EventFd>) {
        let _ = self.waker.set(waker);
    }

    /// Makes the caller the driver's thread, which pumps `pump` while it waits. Called once.
    pub(crate) fn set_driver(&self, pump: Weak<dyn Pump>) {
        let _ = self.driver.set((std::thread::current().id(), pump));
    }

    /// Reads events if the driver's thread waits for a command, which may need pages first.
    pub(crate) fn pump_waiting(&self) -> Result<(), Error> {
        match self.driver.get() {
            Some((id, pump)) if *id == std::thread::current().id() => {
                pump.upgrade().map_or(Ok(()), |pump| pump.pump(self))
            }
            _ => Ok(()),
        }
    }

    /// Wakes the driver's thread, so that it asks for its work.
    pub(crate) fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            // Fails if the counter is full, which wakes, too.
            let _ = waker.write(1);
        }
    }

    /// Fails in a forked child, and after the first failure.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if std::process::id() != self.process {
            return Err(Error::Forked);
        }
        match self.failure.get() {
            Some(why) => Err(Error::Fatal { why: why.clone() }),
            None => Ok(()),
        }
    }

    /// Marks the device as failed, and returns the error.
    pub(crate) fn fail(&self, error: Error) -> Error {
        self.failure.get_or_init(|| error.to_string());
        self.dma.freeze();
        error
    }

    /// First failure.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.get().map(String::as_str)
    }

    /// Ends all DMA: by a reset, or without one by the bus master bit.
    pub(crate) fn silence(&self) -> Result<(), Error> {
        match self.transport.reset() {
            Err(Error::Unsupported { .. }) => {
                crate::config::set_bus_master(&*self.transport, false)
            }
            done => done,
        }
    }

    /// Ends all DMA of a failed device; false if it may go on.
    pub(crate) fn is_silent(&self) -> bool {
        self.silence().is_ok() || self.transport.is_gone()
    }

    /// Ends all DMA, then the mappings, then frees the memory. Later calls do nothing.
    pub(crate) fn end(&self) -> Result<(), Error> {
        if self.ended.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        // A device that can't be silenced may still use the memory, which so stays allocated.
        self.silence().inspect_err(|_| self.dma.abandon())?;
        self.dma.release()
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        if std::process::id() == self.process {
            let _ = self.end();
        }
    }
}
