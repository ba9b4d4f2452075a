//! Wires between processes, and the addresses of a run.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use clap::ValueEnum;
use uverbs::Device;
use uverbs::softhca::{Carrier, SoftHca, Udp};

/// Carrier of packets between processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Wire {
    Shm,
    Udp,
    Either,
}

/// Port of the hosts' listeners.
pub(crate) const PORT: u16 = 7471;

impl Wire {
    /// A device at this address.
    pub(crate) fn device(self, ip: Ipv4Addr) -> std::io::Result<SoftHca> {
        let carrier = match self {
            Self::Shm => Carrier::SharedMemory,
            Self::Udp => Carrier::Udp,
            Self::Either => Carrier::Either,
        };
        SoftHca::builder().udp(Udp::at(IpAddr::V4(ip)).by(carrier)).build()
    }
}

/// Listening address of a device's host.
pub(crate) fn listening(device: &SoftHca) -> SocketAddr {
    let gid = device.gids().last().expect("an address").gid;
    SocketAddr::new(std::net::Ipv6Addr::from(gid).to_canonical(), PORT)
}

/// Counters of a device: transport and wire, without zeros.
pub(crate) fn counters(hca: &SoftHca) -> String {
    let udp = hca.udp_stats().map(|stats| stats.by_name()).unwrap_or_default();
    let shared = hca.shared_stats().map(|stats| stats.by_name()).unwrap_or_default();
    let stats = hca.stats();
    let queues = [("cq_overruns", stats.cq_overruns), ("complaints", stats.complaints.total())];
    let all = stats.transport().into_iter().chain(queues).chain(udp).chain(shared);
    let counted = all.filter(|(_, count)| *count > 0);
    counted.map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
}

/// The software HCA as a device of the library.
pub(crate) fn opened(hca: &SoftHca) -> Device {
    Device::from(hca.clone())
}

/// Addresses of one run: 127.A.B.*, by the run's process number, so that runs don't meet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Net([u8; 2]);

impl Net {
    pub(crate) fn of(process: u32) -> Self {
        Self([64 + ((process >> 8) & 63) as u8, process as u8])
    }

    /// The device of this number, from 1.
    pub(crate) fn address(self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.0[0], self.0[1], number)
    }

    /// Text prefix of this run's addresses.
    pub(crate) fn prefix(self) -> String {
        format!("127.{}.{}.", self.0[0], self.0[1])
    }

    /// The prefix in `/proc/net/udp`: hex in memory order, so that it is the end of each address.
    pub(crate) fn in_hex(self) -> String {
        let [high, low] = self.0;
        match cfg!(target_endian = "little") {
            true => format!("{low:02X}{high:02X}7F"),
            false => format!("7F{high:02X}{low:02X}"),
        }
    }
}
