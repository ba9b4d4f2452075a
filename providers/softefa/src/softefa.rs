//! A device and its builder.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use uverbs_core::Errno;
use uverbs_core::doors::{DeviceRecord, DeviceSource, UverbsDoor};
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_EFA;
use uverbs_kernel_abi::efa::{
    EFA_QUERY_DEVICE_CAPS_COMP_CNTR, EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS,
    EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID, EFA_QUERY_DEVICE_CAPS_RDMA_READ,
    EFA_QUERY_DEVICE_CAPS_RDMA_WRITE, EFA_QUERY_DEVICE_CAPS_RNR_RETRY,
    EFA_QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV, EFA_UVERBS_ABI_VERSION,
};
use uverbs_softhca::Udp;
use uverbs_softhca::wire::Wire;

use crate::device::port::Port;
use crate::device::world::{Board, Fabric};
use crate::door::Door;

/// `RDMA_NODE_UNSPECIFIED`.
const NODE_TYPE: u8 = 7;
/// Bytes of a segment on a wire of the program's.
const SEGMENT: usize = 4096;
/// Pause of the device's thread while there is no work.
const NAP: Duration = Duration::from_micros(200);

/// Longest silence of a device, during which READs may wait for others there.
const PATIENCE: Duration = Duration::from_secs(60);

/// Number of the next device of this process, from which its GID is derived.
static NUMBER: AtomicU16 = AtomicU16::new(0);

/// A software Elastic Fabric Adapter. Clones are the same device.
#[derive(Clone, Debug)]
pub struct SoftEfa {
    pub(crate) record: Arc<DeviceRecord>,
    pub(crate) fabric: Fabric,
    pub(crate) board: usize,
}

/// Builds a [`SoftEfa`]. Defaults: all capabilities, a private fabric with a thread, seed 1.
#[derive(Debug)]
#[must_use]
pub struct SoftEfaBuilder {
    name: Option<String>,
    number: Option<u16>,
    fabric: Option<Fabric>,
    network: Network,
    seed: u64,
    stepped: bool,
    repeats: bool,
    board: Board,
}

/// Carrier of messages to devices that are not on the fabric.
#[derive(Debug, Default)]
enum Network {
    #[default]
    None,
    Addresses(Udp),
    Wire(IpAddr, Box<dyn Wire>),
}

/// Address, bytes of a segment, and wire.
type Opened = (IpAddr, usize, Box<dyn Wire>);

impl Network {
    /// Opens the wire.
    fn open(self) -> io::Result<Option<Opened>> {
        match self {
            Self::None => Ok(None),
            Self::Addresses(udp) => {
                let (address, mtu, wire) = udp.wire()?;
                Ok(Some((address, mtu as usize, wire)))
            }
            Self::Wire(address, wire) => Ok(Some((address, SEGMENT, wire))),
        }
    }
}

impl SoftEfaBuilder {
    /// Sets the device's name. Default: `softefa` and a number.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the number, below 65535, that the GID is derived from. Default: the process's next.
    pub fn number(mut self, number: u16) -> Self {
        self.number = Some(number);
        self
    }

    /// Puts the device on a fabric with others. The fabric's seed and thread remain.
    pub fn fabric(mut self, fabric: &Fabric) -> Self {
        self.fabric = Some(fabric.clone());
        self
    }

    /// Puts the device on the network: it reaches devices of other processes, too, through shared
    /// memory or by UDP. Its GID is the address.
    pub fn udp(mut self, udp: Udp) -> Self {
        self.network = Network::Addresses(udp);
        self
    }

    /// Puts the device on a wire at an address, which becomes its GID.
    pub fn wire(mut self, address: IpAddr, wire: impl Wire + 'static) -> Self {
        self.network = Network::Wire(address, Box::new(wire));
        self
    }

    /// Seeds the order of delivery.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Starts no thread: the device works while a thread polls a completion queue, and in
    /// [`SoftEfa::step`].
    pub fn stepped(mut self) -> Self {
        self.stepped = true;
        self
    }

    /// Leaves out RDMA WRITE, as devices before the third generation do.
    pub fn without_write(mut self) -> Self {
        self.board.caps &=
            !(EFA_QUERY_DEVICE_CAPS_RDMA_WRITE | EFA_QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV);
        self
    }

    /// Leaves out completion counters, which devices have since 2026.
    pub fn without_counters(mut self) -> Self {
        self.board.caps &= !EFA_QUERY_DEVICE_CAPS_COMP_CNTR;
        self
    }

    /// Makes the device lie: it repeats each completion, and forges completions of queue pairs that
    /// had a number before. The completion queue needs three times the room.
    pub fn repeating(mut self) -> Self {
        self.repeats = true;
        self
    }

    /// Takes each store to a completion queue's register for one after an arm, which it may hide.
    /// For programs that poll between arming and sleeping and do not call
    /// [`will_sleep`](UverbsDoor::will_sleep): they get an event too many at times.
    pub fn assume_arms(mut self) -> Self {
        self.board.assumes_arms = true;
        self
    }

    /// Sets the rings of a completion queue. Default 1.
    pub fn sub_cqs(mut self, count: u16) -> Self {
        self.board.sub_cqs = count;
        self
    }

    /// Sets the units of 64 bytes that a doorbell may announce, and the least size of a send
    /// queue; 0 is unlimited. Default 0.
    pub fn tx_batch(mut self, units: u16, min_sq_wr: u16) -> Self {
        (self.board.max_tx_batch, self.board.min_sq_wr) = (units, min_sq_wr);
        self
    }

    /// Creates the device.
    ///
    /// # Errors
    ///
    /// The system's error if the thread can't be created or an address can't be bound.
    pub fn build(self) -> io::Result<SoftEfa> {
        let Self { name, number, fabric, network, seed, stepped, repeats, mut board } = self;
        let number = number.unwrap_or_else(|| NUMBER.fetch_add(1, Ordering::Relaxed));
        let name = name.unwrap_or_else(|| format!("softefa{number}"));
        board.gid[..8].copy_from_slice(&[0xfe, 0x80, 0, 0, 0, 0, 0, 0]);
        board.gid[14..].copy_from_slice(&number.wrapping_add(1).to_be_bytes());
        if let Some((address, segment, wire)) = network.open()? {
            board.gid = match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            board.port = Some(Port::new(board.gid, wire, segment, seed));
        }
        let (fabric, is_new) = match fabric {
            Some(fabric) => (fabric, false),
            None => (Fabric::new(seed), true),
        };
        if is_new && !stepped {
            let weak = fabric.downgrade();
            uverbs_core::thread::start("softefa", move || run(&weak))?;
        }
        let guid = u64::from_be_bytes(board.gid[8..].try_into().unwrap_or_default());
        let mut record = DeviceRecord::new(name, RDMA_DRIVER_EFA);
        record.node_guid = guid;
        record.node_type = NODE_TYPE;
        record.abi_version = EFA_UVERBS_ABI_VERSION;
        record.port_count = 1;
        fabric.lock().repeats |= repeats;
        let board = fabric.lock().add(board);
        Ok(SoftEfa { record: Arc::new(record), fabric, board })
    }
}

/// Work of the fabric's thread, until the last device is gone.
fn run(fabric: &Weak<crate::device::world::Shared>) {
    while let Some(fabric) = fabric.upgrade() {
        let worked = Fabric::from(fabric).lock().step();
        if !worked {
            std::thread::sleep(NAP);
        }
    }
}

impl SoftEfa {
    /// A builder.
    pub fn builder() -> SoftEfaBuilder {
        let board = Board {
            gid: [0; 16],
            port: None,
            caps: EFA_QUERY_DEVICE_CAPS_RDMA_READ
                | EFA_QUERY_DEVICE_CAPS_RDMA_WRITE
                | EFA_QUERY_DEVICE_CAPS_RNR_RETRY
                | EFA_QUERY_DEVICE_CAPS_CQ_NOTIFICATIONS
                | EFA_QUERY_DEVICE_CAPS_CQ_WITH_SGID
                | EFA_QUERY_DEVICE_CAPS_COMP_CNTR
                | EFA_QUERY_DEVICE_CAPS_UNSOLICITED_WRITE_RECV,
            sub_cqs: 1,
            max_tx_batch: 0,
            min_sq_wr: 0,
            assumes_arms: false,
            patience: PATIENCE,
            heard: BTreeMap::new(),
        };
        SoftEfaBuilder {
            name: None,
            number: None,
            fabric: None,
            network: Network::None,
            seed: 1,
            stepped: false,
            repeats: false,
            board,
        }
    }

    /// The fabric, for further devices.
    #[must_use]
    pub fn fabric(&self) -> &Fabric {
        &self.fabric
    }

    /// GID of the device's port.
    #[must_use]
    pub fn gid(&self) -> [u8; 16] {
        self.fabric.lock().boards.get(self.board).map_or([0; 16], |board| board.gid)
    }

    /// Number of the device's address handles.
    #[must_use]
    pub fn address_handles(&self) -> usize {
        self.fabric.lock().address_handles(self.board)
    }

    /// Lets the devices of the fabric do one step: take what was rung, and deliver one message.
    /// False if there was nothing to do.
    pub fn step(&self) -> bool {
        self.fabric.lock().step()
    }
}

impl DeviceSource for SoftEfa {
    fn record(&self) -> &DeviceRecord {
        &self.record
    }

    fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        Ok(Arc::new(Door::new(self.fabric.clone(), self.board)))
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        if port == 1 && index == 0 { Ok(0xffff) } else { Err(Errno::EINVAL) }
    }
}
