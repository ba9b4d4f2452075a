//! Serves a PCI function over vfio-user. QEMU (10.1 and newer, `-device vfio-user-pci`) plugs it
//! into a guest, whose drivers bind to it.
//!
//! One thread serves one client at a time: it answers messages, and does the device's work between
//! them. Each access to a register is a message. Accesses to doorbells and device memory are, too,
//! unless the client maps these: it asks for both, or is QEMU, which maps doorbells if
//! [`Server::map_to_guests`] was called. No privileges are needed.
//!
//! Several functions, each with a thread, may share a wire ([`Server::on`]).

mod bell;
mod channel;
mod doorbells;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod memory;
mod message;
mod session;
mod signals;

use self::memory::GuestMemory;

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
    /// Plugged in while a client is connected.
    cable: LinkControl,
    /// Rings when a frame arrives.
    bell: Arc<Bell>,
    signals: Signals,
    /// Closes descriptors of this client; `stuck`: of earlier clients, while some wait.
    closer: Closer,
    stuck: Vec<Closer>,
    /// The device's clock continues from client to client.
    start: Instant,
    maps_to_guests: bool,
}

/// Time for which the end of a session waits for its descriptors to be closed.
const FAREWELL: Duration = Duration::from_millis(100);
/// Maximum number of earlier clients whose descriptors still wait to be closed.
const STUCK: usize = 8;

impl Server {
    /// Creates a function with these options, alone on its wire.
    ///
    /// # Errors
    ///
    /// The system's error if no descriptor or thread is left, or if the kernel lacks asynchronous
    /// I/O (`io_setup`).
    pub fn new(options: &PciOptions) -> io::Result<Self> {
        Self::on(&Fabric::default(), options)
    }

    /// Creates a function whose port is on `fabric`. Its link is down until a client connects.
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
        let maps_to_guests = false;
        Ok(Self { hca, memory, cable, bell, signals, closer, stuck, start, maps_to_guests })
    }

    /// Lets QEMU's guests map the doorbell pages but the first, which has the event queues. Without
    /// it each doorbell of theirs is a message.
    pub fn map_to_guests(&mut self) {
        self.maps_to_guests = true;
    }

    /// Logs a line for every command, doorbell and interrupt.
    pub fn log_to(&mut self, sink: Sink) {
        self.hca.log_to(sink);
    }

    /// Accepts the next client from `listener` and serves it until it leaves. Afterwards the
    /// function is as after power-on.
    ///
    /// # Errors
    ///
    /// The error of `accept`; an invalid or truncated message. A client that leaves between
    /// messages is no error.
    pub fn serve_one(&mut self, listener: &UnixListener) -> io::Result<()> {
        let (socket, _) = listener.accept()?;
        self.cable.replug();
        let done = Session::new(self, socket).and_then(Session::run);
        self.leave();
        done
    }

    /// Resets the function after a client has left.
    fn leave(&mut self) {
        self.cable.unplug();
        self.hca.unshare_memory();
        self.hca.reset();
        self.memory.leave();
        self.stuck.retain(|closer| closer.waiting() != 0);
        if !self.closer.settle(FAREWELL) && self.stuck.len() < STUCK {
            // The next client's descriptors do not wait for this client's.
            if let Ok(new) = Closer::new() {
                self.stuck.push(std::mem::replace(&mut self.closer, new));
            }
        }
    }
}
