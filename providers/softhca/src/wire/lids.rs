//! An InfiniBand port on the network: packets by LID, between devices whose IP addresses differ in
//! the last 16 bits.

use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::BorrowedFd;
use std::task::Waker;
use std::time::Duration;

use super::{Address, Frame, Lending, Wire, WireFull};
use uverbs_front::backend::mgid;
use uverbs_front::backend::network::Network;

/// Wire whose ends have LIDs, over a wire whose ends have IP addresses. The network carries no GRH.
#[derive(Debug)]
pub(crate) struct LidWire {
    inner: Box<dyn Wire>,
    network: Network,
}

impl LidWire {
    pub(crate) fn new(inner: Box<dyn Wire>, network: Network) -> Self {
        Self { inner, network }
    }

    /// Address below. A group is its GID, rdma_cm's group of IPv4 that group.
    fn below(&self, address: Address) -> Address {
        let group =
            || mgid::ipv4(&address.gid).map_or(address.gid, |ip| ip.to_ipv6_mapped().octets());
        let gid = if address.is_group() { group() } else { self.network.at(address.lid) };
        Address { gid, lid: 0 }
    }

    /// Address above; `None` outside of the network.
    fn above(&self, address: Address) -> Option<Address> {
        if address.is_group() {
            let group = IpAddr::V6(Ipv6Addr::from(address.gid)).to_canonical();
            let gid = if group.is_ipv4() { mgid::of(group) } else { address.gid };
            return Some(Address { gid, lid: 0 });
        }
        Some(Address { gid: [0; 16], lid: self.network.lid(&address.gid)? })
    }

    fn down(&self, frame: Frame) -> Frame {
        Frame { src: self.below(frame.src), dst: self.below(frame.dst), ..frame }
    }
}

impl Wire for LidWire {
    fn transmit(&mut self, frame: Frame) -> Result<(), WireFull> {
        let (src, dst) = (frame.src, frame.dst);
        let sent = self.inner.transmit(self.down(frame));
        sent.map_err(|WireFull(frame)| WireFull(Frame { src, dst, ..frame }))
    }
    fn receive(&mut self) -> Option<Frame> {
        loop {
            let frame = self.inner.receive()?;
            match (self.above(frame.src), self.above(frame.dst)) {
                (Some(src), Some(dst)) => return Some(Frame { src, dst, ..frame }),
                _ => self.inner.recycle(frame),
            }
        }
    }
    fn is_paused(&self) -> bool {
        self.inner.is_paused()
    }
    fn take_loans(&mut self) {
        self.inner.take_loans();
    }
    fn lends(&self, to: Address) -> bool {
        self.inner.lends(self.below(to))
    }
    fn is_patient(&self, from: Address) -> bool {
        self.inner.is_patient(self.below(from))
    }
    fn lend(&mut self, frame: Frame, payload: &mut Lending<'_>) -> Result<(), Frame> {
        let (src, dst) = (frame.src, frame.dst);
        let lent = self.inner.lend(self.down(frame), payload);
        lent.map_err(|frame| Frame { src, dst, ..frame })
    }
    fn spare(&mut self) -> Vec<u8> {
        self.inner.spare()
    }
    fn recycle(&mut self, frame: Frame) {
        self.inner.recycle(frame);
    }
    fn next_event(&self) -> Option<Duration> {
        self.inner.next_event()
    }
    fn advance(&mut self, now: Duration) {
        self.inner.advance(now);
    }
    fn flush(&mut self) {
        self.inner.flush();
    }
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
    fn arm(&mut self) {
        self.inner.arm();
    }
    fn set_addresses(&mut self, addresses: &[Address]) {
        let below: Vec<_> = addresses.iter().map(|&address| self.below(address)).collect();
        self.inner.set_addresses(&below);
    }
    fn set_waker(&mut self, waker: Waker) -> bool {
        self.inner.set_waker(waker)
    }
    fn mark(&self, to: Address) -> Option<u64> {
        self.inner.mark(self.below(to))
    }
    fn is_past(&self, to: Address, mark: u64) -> bool {
        self.inner.is_past(self.below(to), mark)
    }
    fn next_left(&mut self) -> Option<Address> {
        loop {
            let left = self.inner.next_left()?;
            if let Some(above) = self.above(left) {
                return Some(above);
            }
        }
    }
    fn needs_icrc(&self) -> bool {
        self.inner.needs_icrc()
    }
}
