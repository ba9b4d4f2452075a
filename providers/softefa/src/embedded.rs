//! Devices that every process can open by name.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use uverbs_core::doors::DeviceRecord;
use uverbs_core::memory::per_process::PerProcess;
use uverbs_softhca::{Carrier, Udp};

use crate::device::world::{Fabric, Shared};
use crate::softefa::SoftEfa;

/// Names of the devices on the process's fabric.
const NAMES: [&str; 2] = ["softefa0", "softefa1"];
/// Name of the device that all processes of this user on this host reach.
const NAME: &str = "softefa";
/// Prefix of the name of a device on the network; its address follows.
const PREFIX: &str = "softefa@";
/// UDP port of softefa's devices: not RoCE's, so that a software HCA can have the same address.
const PORT: u16 = 4793;

/// Devices of this process. Fabric and thread end with the last handle. A forked child inherits no
/// thread, so it begins with a new fabric.
static EMBEDDED: PerProcess<Embedded> = PerProcess::new();

#[derive(Debug, Default)]
struct Embedded {
    on_fabric: Held,
    on_network: Vec<(String, Held)>,
}

/// Devices of a fabric that may have ended.
#[derive(Debug, Default)]
struct Held {
    fabric: Weak<Shared>,
    boards: Vec<(Arc<DeviceRecord>, usize)>,
}

impl SoftEfa {
    /// Device of this process by its name: the same one while a handle exists. `None` for other
    /// names.
    ///
    /// Device `softefa` has the first free address of 127.0.0.0/8, and sends through shared memory:
    /// the user's other processes on this host reach it. Where no address can be had it is
    /// `softefa0`. `softefa@ADDRESS` and `softefa@ADDRESS:PORT` have that address, and send by UDP
    /// where shared memory does not reach; [`Udp`] parses the text.
    ///
    /// `softefa0` and `softefa1` are reached by this process alone. Both are on one fabric, so that
    /// queue pairs of either reach each other, whichever part of the program made them.
    ///
    /// # Errors
    ///
    /// As [`SoftEfaBuilder::build`](crate::SoftEfaBuilder::build); `InvalidInput` for a malformed
    /// address.
    pub fn embedded(name: &str) -> Option<io::Result<Self>> {
        if name == NAME {
            let udp = Udp::loopback().port(PORT).by(Carrier::SharedMemory);
            let made = EMBEDDED.lock().on_network(name, udp);
            // A sandbox may forbid the sockets, or have no loopback address.
            return made.map_or_else(|_| Self::embedded(NAMES[0]), |made| Some(Ok(made)));
        }
        if let Some(address) = name.strip_prefix(PREFIX) {
            let udp = udp(address);
            return Some(udp.and_then(|udp| EMBEDDED.lock().on_network(name, udp)));
        }
        let at = NAMES.iter().position(|known| *known == name)?;
        Some(EMBEDDED.lock().on_fabric(at))
    }
}

/// Address of a device, at softefa's port unless the text has one.
fn udp(text: &str) -> io::Result<Udp> {
    let has_port = text.split(',').next().is_some_and(|at| at.parse::<SocketAddr>().is_ok());
    let udp = text.parse::<Udp>()?;
    Ok(if has_port { udp } else { udp.port(PORT) })
}

impl Held {
    /// A device, unless all have ended.
    fn get(&self, at: usize) -> Option<SoftEfa> {
        let fabric = Fabric::from(self.fabric.upgrade()?);
        let (record, board) = self.boards.get(at)?;
        Some(SoftEfa { record: Arc::clone(record), fabric, board: *board })
    }

    fn of(devices: &[SoftEfa]) -> Self {
        let fabric = devices.first().map_or_else(Weak::new, |efa| efa.fabric.downgrade());
        let boards = devices.iter().map(|efa| (Arc::clone(&efa.record), efa.board)).collect();
        Self { fabric, boards }
    }
}

impl Embedded {
    fn on_fabric(&mut self, at: usize) -> io::Result<SoftEfa> {
        if let Some(device) = self.on_fabric.get(at) {
            return Ok(device);
        }
        let first = SoftEfa::builder().name(NAMES[0]).number(0).build()?;
        let second = SoftEfa::builder().name(NAMES[1]).number(1).fabric(&first.fabric).build()?;
        let both = [first, second];
        self.on_fabric = Held::of(&both);
        let [first, second] = both;
        Ok(if at == 0 { first } else { second })
    }

    fn on_network(&mut self, name: &str, udp: Udp) -> io::Result<SoftEfa> {
        if let Some(device) = self.on_network.iter().find(|(known, _)| known == name)
            && let Some(device) = device.1.get(0)
        {
            return Ok(device);
        }
        let seed = u64::from(std::process::id());
        let device = SoftEfa::builder().name(name).udp(udp).seed(seed).build()?;
        self.on_network.retain(|(_, held)| held.fabric.strong_count() != 0);
        self.on_network.push((name.to_owned(), Held::of(std::slice::from_ref(&device))));
        Ok(device)
    }
}
