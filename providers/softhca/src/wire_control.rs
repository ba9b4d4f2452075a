//! Control of a port's wire, kept by the device's handle: link state and counters.

use std::io;

use crate::udp::Carrier;
use crate::wire::{
    HostWire, LinkControl, SharedControl, SharedStats, UdpControl, UdpStats, UdpWire, Wire,
};

/// Control of a port's wire.
#[derive(Debug)]
pub(crate) enum WireControl {
    Fabric(LinkControl),
    Network { udp: UdpControl, shared: Option<SharedControl> },
}

impl WireControl {
    /// Creates a wire on the network. A stepped device uses UDP only, since virtual time excludes
    /// shared memory with other processes.
    pub(crate) fn network(
        udp: UdpWire,
        carrier: Carrier,
        stepped: bool,
    ) -> io::Result<(Box<dyn Wire>, Self)> {
        if stepped || carrier == Carrier::Udp {
            let link = Self::Network { udp: udp.control(), shared: None };
            return Ok((Box::new(udp), link));
        }
        let wire = HostWire::new(udp, carrier == Carrier::SharedMemory)?;
        let (udp, shared) = wire.controls();
        Ok((Box::new(wire), Self::Network { udp, shared: Some(shared) }))
    }

    pub(crate) fn unplug(&self) {
        match self {
            Self::Fabric(link) => link.unplug(),
            Self::Network { udp, shared } => {
                udp.unplug();
                shared.iter().for_each(SharedControl::unplug);
            }
        }
    }

    pub(crate) fn replug(&self) {
        match self {
            Self::Fabric(link) => link.replug(),
            Self::Network { udp, shared } => {
                udp.replug();
                shared.iter().for_each(SharedControl::replug);
            }
        }
    }

    /// Returns `true` if other processes reach it through shared memory.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self, Self::Network { shared: Some(_), .. })
    }

    pub(crate) fn udp_stats(&self) -> Option<UdpStats> {
        match self {
            Self::Fabric(_) => None,
            Self::Network { udp, .. } => Some(udp.stats()),
        }
    }

    pub(crate) fn shared_stats(&self) -> Option<SharedStats> {
        match self {
            Self::Fabric(_) | Self::Network { shared: None, .. } => None,
            Self::Network { shared: Some(shared), .. } => Some(shared.stats()),
        }
    }
}
