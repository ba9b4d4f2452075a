//! Steering of Ethernet frames: flow tables, and the queues to which they lead.

use uverbs_mlx5_prm::cmd::flow::fte_match_param;

use crate::backend::error::HcaError;
use crate::backend::number::Qpn;

/// Bytes of `fte_match_param`.
pub(crate) const MATCH_LEN: usize = fte_match_param::SIZE;

/// A frame's fields, or a mask over them.
pub(crate) type Param = [u8; MATCH_LEN];

/// Reason why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// The object does not exist.
    Missing(&'static str),
    Param(&'static str),
    /// Other objects use the object.
    Busy(&'static str),
    Limit(&'static str),
}

/// Direction of the frames that pass a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Direction {
    /// Frames that arrive.
    Receive,
    /// Frames sent by this device's send queues.
    Transmit,
}

/// Action for a frame that no entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Miss {
    /// Default action: a received frame is dropped, a sent frame leaves.
    #[default]
    Usual,
    Table(u32),
}

/// Context of CREATE_FLOW_TABLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TableContext {
    pub(crate) direction: Direction,
    pub(crate) level: u8,
    pub(crate) log_size: u8,
    pub(crate) miss: Miss,
}

/// Context of CREATE_FLOW_GROUP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GroupContext<'a> {
    pub(crate) first: u32,
    pub(crate) last: u32,
    pub(crate) enable: u8,
    pub(crate) criteria: &'a Param,
}

/// Destination of a frame in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FlowDestination {
    Table(u32),
    Tir(u32),
    /// The wire.
    Wire,
}

/// Changes that an entry makes to a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Edits {
    /// Decapsulate: take the inner frame out of an L2 tunnel.
    pub(crate) unwrap: bool,
    /// Number of a packet reformat context: headers to add or remove.
    pub(crate) reformat: Option<u32>,
    /// Number of a modify header context: fields to change.
    pub(crate) rewrites: Option<u32>,
}

impl Edits {
    pub(crate) const NONE: Self = Self { unwrap: false, reformat: None, rewrites: None };
}

/// Context of SET_FLOW_TABLE_ENTRY: actions for a matching frame. Without destination it is
/// dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct EntryContext {
    pub(crate) tag: u32,
    pub(crate) destinations: Vec<FlowDestination>,
    pub(crate) counters: Vec<u32>,
    pub(crate) edits: Edits,
}

impl EntryContext {
    /// Number of destinations and counters.
    pub(crate) fn listed(&self) -> usize {
        self.destinations.len() + self.counters.len()
    }

    pub(crate) fn change(&mut self, change: Change, to: EntryContext) {
        if change.tag {
            self.tag = to.tag;
        }
        if change.destinations {
            self.destinations = to.destinations;
        }
        if change.edits {
            self.edits = to.edits;
        }
        if change.counters {
            self.counters = to.counters;
        }
    }
}

/// Parts of an entry that a change replaces (`modify_enable_mask`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) tag: bool,
    pub(crate) destinations: bool,
    pub(crate) edits: bool,
    pub(crate) counters: bool,
}

/// Destination of a TIR's frames (`disp_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    Queue(u32),
    /// Number of an RQ table.
    Table(u32),
}

/// Context of CREATE_TIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TirContext {
    pub(crate) spread: Spread,
    pub(crate) hash: HashContext,
    pub(crate) domain: u32,
    /// True if the TIR receives unicast, or multicast, frames from queues in its transport domain
    /// (`self_lb_block`). A set bit allows them: mlx5e sets it to test its loopback, mlx5_ib for
    /// `MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_*`. Linux modifies a TIR with zeros there to block them
    /// (`core/en_common.c`).
    pub(crate) hears_own_unicast: bool,
    pub(crate) hears_own_multicast: bool,
}

/// Bits of `selected_fields` (Linux `include/linux/mlx5/device.h`, `MLX5_HASH_FIELD_SEL_*`).
pub(crate) mod hash_field {
    pub(crate) const SRC_IP: u32 = 1 << 0;
    pub(crate) const DST_IP: u32 = 1 << 1;
    pub(crate) const SRC_PORT: u32 = 1 << 2;
    pub(crate) const DST_PORT: u32 = 1 << 3;
    pub(crate) const IPSEC_SPI: u32 = 1 << 4;
}

/// The hash function (`rx_hash_fn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum HashFunction {
    /// Hash 0 for every packet.
    #[default]
    None,
    /// Exclusive or of all bytes of the fields, with the bits of the result reversed: Linux looks
    /// entries up with the bits of their index reversed (`en/rqt.c`, `mlx5e_bits_invert`).
    InvertedXor8,
    /// Toeplitz, by Microsoft's "Verifying the RSS Hash Calculation".
    Toeplitz,
}

/// Fields to hash, and the kind of packets that have them (`rx_hash_field_select`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Selector {
    pub(crate) ipv6: bool,
    pub(crate) udp: bool,
    pub(crate) fields: u32,
}

/// Hash parameters of a TIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HashContext {
    pub(crate) function: HashFunction,
    pub(crate) symmetric: bool,
    pub(crate) key: [u8; 40],
    pub(crate) selector: Selector,
}

/// Options of a receive queue beyond its ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueOptions {
    /// The outer VLAN tag goes into the CQE instead of the buffer.
    pub(crate) strips_vlan: bool,
}

/// Value of a flow counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FlowCount {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}

/// Steering of a device, and its multicast groups. The front assigns the numbers of all objects
/// except queues.
pub(crate) trait Steering {
    /// Adds or changes a receive queue.
    fn set_queue(&mut self, rqn: u32, options: QueueOptions);
    fn remove_queue(&mut self, rqn: u32);
    /// Registers a send queue and its transport domain.
    fn add_sender(&mut self, sqn: u32, domain: u32);
    fn remove_sender(&mut self, sqn: u32);

    /// Adds or changes an RQ table.
    fn set_spread(&mut self, number: u32, queues: Vec<u32>) -> Result<(), Wrong>;
    fn remove_spread(&mut self, number: u32) -> Result<(), Wrong>;
    /// Adds or changes a TIR.
    fn set_tir(&mut self, number: u32, context: TirContext) -> Result<(), Wrong>;
    fn remove_tir(&mut self, number: u32) -> Result<(), Wrong>;
    /// Adds a rule that sends copies of all packets of the port to a TIR.
    fn add_sniffer(&mut self, tir: u32) -> Result<(), Wrong>;
    fn remove_sniffer(&mut self, tir: u32);

    fn add_counter(&mut self, number: u32);
    fn counter(&mut self, number: u32) -> Result<FlowCount, Wrong>;
    fn remove_counter(&mut self, number: u32) -> Result<(), Wrong>;

    fn add_table(&mut self, number: u32, context: TableContext) -> Result<(), Wrong>;
    /// Sets the first table that a frame is looked up in.
    fn set_root(&mut self, direction: Direction, table: Option<u32>) -> Result<(), Wrong>;
    fn add_group(
        &mut self,
        table: u32,
        number: u32,
        context: GroupContext<'_>,
    ) -> Result<(), Wrong>;
    fn remove_group(&mut self, table: u32, number: u32) -> Result<(), Wrong>;
    /// Adds an entry at an index of a group.
    fn add_entry(
        &mut self,
        table: u32,
        place: (u32, u32),
        value: &Param,
        context: EntryContext,
    ) -> Result<(), Wrong>;
    fn change_entry(
        &mut self,
        table: u32,
        index: u32,
        change: Change,
        to: EntryContext,
    ) -> Result<(), Wrong>;
    fn remove_entry(&mut self, table: u32, index: u32) -> Result<(), Wrong>;

    /// Joins a datagram queue pair to a multicast group (ATTACH_TO_MCG).
    fn attach_mcast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<(), HcaError>;
    /// Removes a queue pair from a multicast group (DETACH_FROM_MCG).
    fn detach_mcast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<(), HcaError>;
}
