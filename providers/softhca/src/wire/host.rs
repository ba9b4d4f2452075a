//! A device on the network and on its host. Packets go through shared memory to devices of this
//! user and host, by UDP to all others.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};

use super::shared::{Offer, SharedControl, SharedWire};
use super::udp::{UdpControl, UdpWire};
use super::{Address, Frame, Lending, Wire, WireFull};
use uverbs_front::raw_socket;

/// Time between two looks at the sockets while rings are busy. Sockets wake a sleeping device in
/// any case.
const LOOK: Duration = Duration::from_micros(10);
/// Limit of the wait for the name of an address that this device has bound, and whose last owner is
/// about to end.
const LEAVING: Duration = Duration::from_millis(200);
/// Steps between two looks where time stands still.
const STEPS: u32 = 64;

/// A RoCEv2 wire, and a shared-memory wire at its addresses. Packets to multicast groups go by UDP,
/// and through shared memory if that is the only carrier.
///
/// The sender chooses the wire to an address when it sends the first packet there. It tries again a
/// second after a device was not found.
#[derive(Debug)]
pub(crate) struct HostWire {
    /// Dropped before the UDP socket: whoever binds the address next finds the name free.
    shared: SharedWire,
    udp: UdpWire,
    /// Frames for ends that shared memory does not reach are lost.
    shared_only: bool,
    /// Readable while one of the two wires is.
    epoll: Epoll,
    /// This step looks at the UDP sockets.
    look: bool,
    /// This step looks at the sockets of the shared-memory wire, and has yet to do so.
    tend: bool,
    /// The last frame came by UDP: shared memory is next.
    after_udp: bool,
    looked: Duration,
    steps: u32,
}

impl HostWire {
    /// Puts a shared-memory wire beside one on UDP. With `shared_only` packets to whoever isn't
    /// reached through shared memory are lost and counted, and the UDP socket only claims the
    /// addresses: its packets are never read.
    ///
    /// # Errors
    ///
    /// The system's error if it has no more descriptors.
    pub(crate) fn new(mut udp: UdpWire, shared_only: bool) -> io::Result<HostWire> {
        if shared_only {
            udp.keep_groups();
        }
        let shared = SharedWire::bind(&udp.addresses(), LEAVING)?;
        let epoll = raw_socket::epoll()?;
        let network = udp.descriptor().filter(|_| !shared_only);
        for fd in [network, Some(shared.descriptor())].into_iter().flatten() {
            epoll.add(fd, EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        }
        let looked = Duration::ZERO;
        Ok(HostWire {
            shared,
            udp,
            shared_only,
            epoll,
            look: true,
            tend: true,
            after_udp: false,
            looked,
            steps: 0,
        })
    }

    /// Handles to links and counters of both wires.
    pub(crate) fn controls(&self) -> (UdpControl, SharedControl) {
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
            Offer::Elsewhere(frame) if frame.dst.is_group() => {
                self.look = true;
                if self.shared_only {
                    self.shared.spread(&frame);
                }
                // The network, and members on this device.
                self.udp.transmit(frame)
            }
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
            // Alternates, so that a flood at the socket does not delay devices of this host.
            if std::mem::take(&mut self.after_udp)
                && let Some(frame) = self.shared.receive(&mut self.udp.spare)
            {
                return Some(frame);
            }
            let frame = if self.shared_only { self.udp.looped() } else { self.udp.receive() };
            if let Some(frame) = frame {
                self.after_udp = true;
                return Some(frame);
            }
            self.look = false;
        }
        self.shared.receive(&mut self.udp.spare)
    }

    fn is_paused(&self) -> bool {
        self.udp.is_paused()
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

    fn set_addresses(&mut self, addresses: &[Address]) {
        self.udp.set_addresses(addresses);
        // Otherwise the network carries them, also to devices of this host.
        if self.shared_only {
            self.shared.set_groups(addresses.iter().copied().filter(Address::is_group).collect());
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

    fn lend(&mut self, frame: Frame, payload: &mut Lending<'_>) -> Result<(), Frame> {
        payload.once(frame, |frame, spans, packets| self.shared.lend(frame, spans, packets))
    }

    fn mark(&self, to: Address) -> Option<u64> {
        self.shared.mark(to)
    }

    fn is_past(&self, to: Address, mark: u64) -> bool {
        self.shared.is_past(to, mark)
    }

    fn next_left(&mut self) -> Option<Address> {
        self.shared.next_left()
    }
}
