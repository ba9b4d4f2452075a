//! Serving a [`PciHca`] over vfio-user: QEMU (10.1 and newer, `-device vfio-user-pci`) plugs it
//! into a guest, whose own drivers bind to it.
//!
//! One client at a time, one thread: it answers messages, and does the device's work between them.
//! Everything is trapped: each register and doorbell that the guest touches is a message. Nothing
//! here needs privileges.
//!
//! Several functions, each with a thread, may share a wire ([`Server::on`]).

mod bell;
mod channel;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod memory;
mod message;
mod session;
mod signals;

pub use self::memory::GuestMemory;

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::bell::Bell;
use self::session::Session;
use self::signals::Signals;
use crate::closer::Closer;
use crate::pci::{PciHca, PciOptions, Sink};
use crate::wire::{Fabric, LinkControl};

/// A function and its one client.
#[derive(Debug)]
pub struct Server {
    hca: PciHca,
    memory: Arc<GuestMemory>,
    /// Plugged in while a client is there.
    cable: LinkControl,
    /// Rings when a frame comes.
    bell: Arc<Bell>,
    signals: Signals,
    /// Closes what the client sent, and those for clients that have gone, while they have to.
    closer: Closer,
    stuck: Vec<Closer>,
    /// The device's clock goes on from client to client.
    start: Instant,
}

/// How long the end of a client waits until its descriptors are closed.
const FAREWELL: Duration = Duration::from_millis(100);
/// Clients that have gone whose descriptors may still wait to be closed.
const STUCK: usize = 8;

impl Server {
    /// A function as `options` describe it, alone on its wire.
    ///
    /// # Errors
    ///
    /// The system's error when no descriptor or thread is left, or the kernel has no asynchronous
    /// I/O (`io_setup`).
    pub fn new(options: &PciOptions) -> io::Result<Self> {
        Self::on(&Fabric::default(), options)
    }

    /// A function whose port is on `fabric`. Its link is down until a client is there.
    ///
    /// # Errors
    ///
    /// As [`Server::new`].
    pub fn on(fabric: &Fabric, options: &PciOptions) -> io::Result<Self> {
        let memory = Arc::new(GuestMemory::default());
        let port = fabric.attach(&[]);
        let cable = port.link_control();
        cable.unplug();
        let bell = Arc::new(Bell::new()?);
        port.set_waker(Arc::clone(&bell).into());
        let hca = PciHca::new(options, memory.clone(), Some(Box::new(port)));
        let (signals, closer) = (Signals::new()?, Closer::new()?);
        let (stuck, start) = (Vec::new(), Instant::now());
        Ok(Self { hca, memory, cable, bell, signals, closer, stuck, start })
    }

    /// Writes a line for every command, doorbell and interrupt.
    pub fn log_to(&mut self, sink: Sink) {
        self.hca.log_to(sink);
    }

    /// Takes the next client from `listener` and serves it until it leaves. Afterwards the function
    /// is as after power-on.
    ///
    /// # Errors
    ///
    /// The error of `accept`; a malformed or truncated message. A client that leaves between
    /// messages is no error.
    pub fn serve_one(&mut self, listener: &UnixListener) -> io::Result<()> {
        let (socket, _) = listener.accept()?;
        self.cable.replug();
        let done = Session::new(self, socket).and_then(Session::run);
        self.leave();
        done
    }

    /// Forgets a client that has gone.
    fn leave(&mut self) {
        self.cable.unplug();
        self.hca.reset();
        self.memory.clear();
        self.stuck.retain(|closer| closer.waiting() != 0);
        if !self.closer.settle(FAREWELL) && self.stuck.len() < STUCK {
            // The next client's descriptors don't wait for this one's.
            if let Ok(new) = Closer::new() {
                self.stuck.push(std::mem::replace(&mut self.closer, new));
            }
        }
    }
}
