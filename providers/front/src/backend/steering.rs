//! Steering of Ethernet frames: flow tables, and the queues to which they lead.

use uverbs_mlx5_prm::cmd::flow::fte_match_param;

use crate::backend::error::HcaError;
use crate::backend::number::Qpn;

/// Bytes of `fte_match_param`.
pub const MATCH_LEN: usize = fte_match_param::SIZE;

/// A frame's fields, or a mask over them.
pub type Param = [u8; MATCH_LEN];

/// Reason why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// The object does not exist.
    Missing(&'static str),
    /// A parameter is invalid.
    Param(&'static str),
    /// Other objects use the object.
    Busy(&'static str),
    /// A limit of the device is exceeded.
    Limit(&'static str),
    /// The device refused, or failed.
    Device(HcaError),
}

/// Direction of the frames that pass a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Direction {
    /// Frames that arrive.
    Receive,
    /// Frames sent by this device's send queues.
    Transmit,
}

/// Action for a frame that no entry matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Miss {
    /// Default action: a received frame is dropped, a sent frame leaves.
    #[default]
    Usual,
    /// It goes to a table.
    Table(u32),
}

/// Context of CREATE_FLOW_TABLE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableContext {
    /// Direction of its frames.
    pub direction: Direction,
    /// Level: an entry leads to tables of higher levels only.
    pub level: u8,
    /// Log2 of the number of entries.
    pub log_size: u8,
    /// Action for a frame that no entry matches.
    pub miss: Miss,
}

/// Context of CREATE_FLOW_GROUP.
#[derive(Clone, Copy, Debug)]
pub struct GroupContext<'a> {
    /// Index of the first entry.
    pub first: u32,
    /// Index of the last entry.
    pub last: u32,
    /// Parts of the criteria that are compared (`match_criteria_enable`).
    pub enable: u8,
    /// Mask over the compared fields.
    pub criteria: &'a Param,
}

/// Destination of a frame in an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowDestination {
    /// A table.
    Table(u32),
    /// A TIR.
    Tir(u32),
    /// The wire.
    Wire,
}

/// Changes that an entry makes to a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// Decapsulate: take the inner frame out of an L2 tunnel.
    pub unwrap: bool,
    /// Number of a packet reformat context: headers to add or remove.
    pub reformat: Option<u32>,
    /// Number of a modify header context: fields to change.
    pub rewrites: Option<u32>,
}

impl Edits {
    /// No change.
    pub const NONE: Self = Self { unwrap: false, reformat: None, rewrites: None };
}

/// Context of SET_FLOW_TABLE_ENTRY: actions for a matching frame. Without destination it is
/// dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntryContext {
    /// Flow tag for the CQE.
    pub tag: u32,
    /// Destinations.
    pub destinations: Vec<FlowDestination>,
    /// Numbers of the counters of matching frames.
    pub counters: Vec<u32>,
    /// Changes of the frame.
    pub edits: Edits,
}

impl EntryContext {
    /// Number of destinations and counters.
    pub fn listed(&self) -> usize {
        self.destinations.len() + self.counters.len()
    }

    /// Replaces the parts that `change` names.
    pub fn change(&mut self, change: Change, to: EntryContext) {
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
pub struct Change {
    /// The flow tag.
    pub tag: bool,
    /// The destinations.
    pub destinations: bool,
    /// The edits.
    pub edits: bool,
    /// The counters.
    pub counters: bool,
}

/// Destination of a TIR's frames (`disp_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// A receive queue.
    Queue(u32),
    /// Number of an RQ table.
    Table(u32),
}

/// Context of CREATE_TIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TirContext {
    /// Destination of its frames.
    pub spread: Spread,
    /// Hash over the frames.
    pub hash: HashContext,
    /// Transport domain.
    pub domain: u32,
    /// True if the TIR receives unicast frames from queues in its transport domain
    /// (`self_lb_block`). A set bit allows them: mlx5e sets it to test its loopback, mlx5_ib for
    /// `MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_*`. Linux modifies a TIR with zeros there to block them
    /// (`core/en_common.c`).
    pub hears_own_unicast: bool,
    /// True if it receives multicast frames from them.
    pub hears_own_multicast: bool,
}

/// Bits of `selected_fields` (Linux `include/linux/mlx5/device.h`, `MLX5_HASH_FIELD_SEL_*`).
pub mod hash_field {
    /// Source IP address.
    pub const SRC_IP: u32 = 1 << 0;
    /// Destination IP address.
    pub const DST_IP: u32 = 1 << 1;
    /// Source port.
    pub const SRC_PORT: u32 = 1 << 2;
    /// Destination port.
    pub const DST_PORT: u32 = 1 << 3;
    /// IPsec security parameter index.
    pub const IPSEC_SPI: u32 = 1 << 4;
}

/// The hash function (`rx_hash_fn`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HashFunction {
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
pub struct Selector {
    /// IPv6; else IPv4.
    pub ipv6: bool,
    /// UDP; else TCP.
    pub udp: bool,
    /// Fields to hash, by [`hash_field`].
    pub fields: u32,
}

/// Hash parameters of a TIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashContext {
    /// Hash function.
    pub function: HashFunction,
    /// Both directions of a connection have one hash.
    pub symmetric: bool,
    /// Key of the hash.
    pub key: [u8; 40],
    /// Fields to hash.
    pub selector: Selector,
}

/// Options of a receive queue beyond its ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueOptions {
    /// The outer VLAN tag goes into the CQE instead of the buffer.
    pub strips_vlan: bool,
}

/// Value of a flow counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCount {
    /// Matching frames.
    pub packets: u64,
    /// Bytes of these frames.
    pub bytes: u64,
}

/// Steering of a device, and its multicast groups. The front assigns the numbers of all objects
/// except queues.
pub trait Steering {
    /// Changes the options of a receive queue.
    fn change_queue(&mut self, rqn: u32, options: QueueOptions) -> Result<(), Wrong>;

    /// Adds an RQ table.
    fn add_spread(&mut self, number: u32, queues: Vec<u32>) -> Result<(), Wrong>;
    /// Removes an RQ table.
    fn remove_spread(&mut self, number: u32) -> Result<(), Wrong>;
    /// Adds a TIR.
    fn add_tir(&mut self, number: u32, context: TirContext) -> Result<(), Wrong>;
    /// Removes a TIR.
    fn remove_tir(&mut self, number: u32) -> Result<(), Wrong>;
    /// Adds a rule that sends copies of all packets of the port to a TIR.
    fn add_sniffer(&mut self, tir: u32) -> Result<(), Wrong>;
    /// Removes such a rule.
    fn remove_sniffer(&mut self, tir: u32);

    /// Adds a flow counter.
    fn add_counter(&mut self, number: u32) -> Result<(), Wrong>;
    /// Reads a flow counter.
    fn counter(&mut self, number: u32) -> Result<FlowCount, Wrong>;
    /// Removes a flow counter.
    fn remove_counter(&mut self, number: u32) -> Result<(), Wrong>;

    /// Adds a flow table.
    fn add_table(&mut self, number: u32, context: TableContext) -> Result<(), Wrong>;
    /// Sets the first table that a frame is looked up in.
    fn set_root(&mut self, direction: Direction, table: Option<u32>) -> Result<(), Wrong>;
    /// Adds a group of entries to a table.
    fn add_group(
        &mut self,
        table: u32,
        number: u32,
        context: GroupContext<'_>,
    ) -> Result<(), Wrong>;
    /// Removes a group.
    fn remove_group(&mut self, table: u32, number: u32) -> Result<(), Wrong>;
    /// Adds an entry at an index of a group.
    fn add_entry(
        &mut self,
        table: u32,
        place: (u32, u32),
        value: &Param,
        context: EntryContext,
    ) -> Result<(), Wrong>;
    /// Changes parts of an entry.
    fn change_entry(
        &mut self,
        table: u32,
        index: u32,
        change: Change,
        to: EntryContext,
    ) -> Result<(), Wrong>;
    /// Removes an entry.
    fn remove_entry(&mut self, table: u32, index: u32) -> Result<(), Wrong>;

    /// Joins a datagram queue pair to a multicast group (ATTACH_TO_MCG).
    fn attach_mcast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<(), HcaError>;
    /// Removes a queue pair from a multicast group (DETACH_FROM_MCG).
    fn detach_mcast(&mut self, qpn: Qpn, gid: [u8; 16]) -> Result<(), HcaError>;
}
