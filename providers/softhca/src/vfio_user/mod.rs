//! Serving a [`PciHca`] over vfio-user: QEMU (10.1 and newer, `-device vfio-user-pci`) plugs it into a guest, whose own
//! drivers bind to it.
//!
//! One client at a time, one thread: it answers messages, and works as the device between them. Everything is trapped: each
//! register and doorbell that the guest touches is a message. Nothing here needs privileges.

mod channel;
mod memory;
mod message;
mod session;

pub use self::memory::GuestMemory;

use std::io;
use std::os::unix::net::UnixListener;
use std::sync::Arc;

use self::session::Session;
use crate::pci::{PciHca, PciOptions, Sink};

/// A function and who may use it.
#[derive(Debug)]
pub struct Server {
    hca: PciHca,
    memory: Arc<GuestMemory>,
}

impl Server {
    /// A function as `options` describe it.
    #[must_use]
    pub fn new(options: &PciOptions) -> Self {
        let memory = Arc::new(GuestMemory::default());
        Self { hca: PciHca::new(options, memory.clone(), None), memory }
    }

    /// Writes a line for every command, doorbell and interrupt.
    pub fn log_to(&mut self, sink: Sink) {
        self.hca.log_to(sink);
    }

    /// Takes the next client from `listener` and serves it until it leaves. Afterwards the function is as after power-on.
    ///
    /// # Errors
    ///
    /// What `accept` says, and what ends a session other than the client's leaving: a message that is none, a message that
    /// stops in the middle.
    pub fn serve_one(&mut self, listener: &UnixListener) -> io::Result<()> {
        let (socket, _) = listener.accept()?;
        let done = Session::new(&mut self.hca, &self.memory, socket).and_then(Session::run);
        self.hca.reset();
        self.memory.clear();
        done
    }
}
