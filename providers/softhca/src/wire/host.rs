//! A device's place in the network and on its host: packets go through shared memory where the
//! other device is of this user and host, by UDP otherwise.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags};

use super::shared::{Offer, SharedControl, SharedWire};
use super::udp::{UdpControl, UdpWire};
use super::{Address, Frame, Lent, Span, Wire, WireFull};

/// How long sockets are not looked at while rings are. They wake a device that sleeps in any case.
const LOOK: Duration = Duration::from_micros(10);
/// Steps between two looks where time stands still.
const STEPS: u32 = 64;

/// One end of a RoCEv2 wire, and of a shared-memory wire at the same addresses.
///
/// Which way packets take to an address is decided by whoever sends, when it sends the first one,
/// and again a second after a device wasn't found.
#[derive(Debug)]
pub struct HostWire {
    udp: UdpWire,
    shared: SharedWire,
    /// Frames for ends that shared memory does not reach are lost.
    shared_only: bool,
    /// Readable while one of the two is.
    epoll: Epoll,
    /// Sockets are to be looked at in this step.
    look: bool,
    /// And those of the shared-memory wire haven't been.
    tend: bool,
    /// The last frame came by UDP: shared memory has its turn.
    after_udp: bool,
    looked: Duration,
    steps: u32,
}

impl HostWire {
    /// Puts a shared-memory wire beside one on UDP. `shared_only` loses packets to whoever isn't
    /// reached through shared memory, and counts them.
    ///
    /// # Errors
    ///
    /// What the system says when there are no more descriptors.
    pub fn new(udp: UdpWire, shared_only: bool) -> io::Result<HostWire> {
        let shared = SharedWire::bind(&udp.addresses())?;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        for fd in [udp.descriptor(), Some(shared.descriptor())].into_iter().flatten() {
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        }
        let looked = Duration::ZERO;
        Ok(HostWire {
            udp,
            shared,
            shared_only,
            epoll,
            look: true,
            tend: true,
            after_udp: false,
            looked,
            steps: 0,
        })
    }

    /// Handles on the links and counters of the two.
    #[must_use]
    pub fn controls(&self) -> (UdpControl, SharedControl) {
        (self.udp.control(), self.shared.control())
    }
}

impl Wire for HostWire {
    fn transmit(&mut self, frame: Frame) -> Result<(), WireFull> {
        match self.shared.offer(frame) {
            Offer::Taken(bytes) => {
                self.udp.spare.put(bytes);
                Ok(())
            }
            Offer::Full(frame) => Err(WireFull(frame)),
            Offer::Elsewhere(_) if self.shared_only => {
                self.shared.lose();
                Ok(())
            }
            Offer::Elsewhere(frame) => self.udp.transmit(frame),
        }
    }

    fn receive(&mut self) -> Option<Frame> {
        if self.look {
            if std::mem::take(&mut self.tend) {
                self.shared.tend();
            }
            // In turn: a flood at the socket must not delay the devices on this host.
            if std::mem::take(&mut self.after_udp)
                && let Some(frame) = self.shared.receive(&mut self.udp.spare)
            {
                return Some(frame);
            }
            if let Some(frame) = self.udp.receive() {
                self.after_udp = true;
                return Some(frame);
            }
            self.look = false;
        }
        self.shared.receive(&mut self.udp.spare)
    }

    fn spare(&mut self) -> Vec<u8> {
        self.udp.spare()
    }

    fn recycle(&mut self, frame: Frame) {
        self.udp.recycle(frame);
    }

    fn flush(&mut self) {
        self.udp.flush();
        self.shared.flush();
    }

    fn next_event(&self) -> Option<Duration> {
        self.udp.next_event().into_iter().chain(self.shared.next_event()).min()
    }

    fn advance(&mut self, now: Duration) {
        self.udp.advance(now);
        self.shared.advance(now);
        self.steps += 1;
        let due = now.saturating_sub(self.looked) >= LOOK || self.steps >= STEPS;
        if due || !self.shared.is_used() {
            (self.look, self.tend, self.looked, self.steps) = (true, true, now, 0);
        }
    }

    fn arm(&mut self) {
        self.shared.arm();
        (self.look, self.tend) = (true, true);
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.epoll.0.as_fd())
    }

    fn take_loans(&mut self) {
        self.shared.take_loans();
    }

    fn lends(&self, to: Address) -> bool {
        self.shared.lends(to)
    }

    fn is_patient(&self, from: Address) -> bool {
        self.shared.is_patient(from)
    }

    fn lend(&mut self, frame: Frame, spans: &[Span], packets: u16) -> Result<Lent, Frame> {
        self.shared.lend(frame, spans, packets)
    }

    fn mark(&self, to: Address) -> Option<u64> {
        self.shared.mark(to)
    }

    fn is_past(&self, to: Address, mark: u64) -> bool {
        self.shared.is_past(to, mark)
    }
}
