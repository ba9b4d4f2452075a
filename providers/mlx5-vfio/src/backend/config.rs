//! Limits and identity that the front tells programs, from capabilities and port.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap as cap;

use super::memic::Memic;
use crate::error::Error;
use crate::function::Function;
use crate::interface::Interface;
use crate::port::{LinkState, Port};
use crate::services::neighbours::{Neighbours, mac_of};
use uverbs_front::backend::config::{Config, Gid, GidType, Paging, PortState};
use uverbs_front::backend::context::{LinkLayer, Mtu};
use uverbs_front::backend::network::{Network, Route};
use uverbs_front::cm::{Host, Manager};

/// IEEE OUI of Mellanox.
const VENDOR_ID: u32 = 0x02c9;
/// LinkWidth 4X and LinkSpeed EDR (IBTA 14.2.5.6): the real ones are in registers of the physical
/// function.
const WIDTH_4X: u8 = 2;
const SPEED_EDR: u8 = 32;
/// Maximum doorbell pages, which the device numbers.
const MAX_UARS: u32 = 1 << 12;
/// Bytes of control, address and data segments.
const SEGMENTS: u32 = 32;
const DATA_SEGMENT: u32 = 16;
/// Bytes of a send WQE whose SGEs mlx5_ib counts (`mlx5_ib_query_device`).
const COUNTED: u32 = 512;
/// Largest log2 of a queue's entries: numbers in queues have 24 bits.
const MAX_LOG: u64 = 24;
/// Maximum address handles: the front only counts them.
const MAX_AH: u32 = 1 << 20;
/// Maximum bytes of a BlueFlame register.
const BF_REG_SIZE: u32 = 512;

/// Bit offset of the version in ECE options; version 1 is the only one.
const ECE_VERSION_SHIFT: u32 = 28;

/// Bytes of a frame that RoCE's headers take (`iboe_get_mtu`), and payload of a frame of 1500
/// bytes, which each Ethernet port carries.
const HEADERS: u32 = 80;
const ETHERNET_MTU: u32 = 1024;
/// PortState of an InfiniBand port that carries data (IBTA vol 1, 14.2.5.6).
const ACTIVE: u8 = 4;
/// The only P_Key of RoCE.
const DEFAULT_PKEY: u16 = 0xffff;

/// Largest MTU within a frame of this many bytes; 4096 if the function does not tell.
fn mtu(bytes: u32) -> Mtu {
    match bytes {
        1..512 => Mtu::B256,
        512..1024 => Mtu::B512,
        1024..2048 => Mtu::B1024,
        2048..4096 => Mtu::B2048,
        _ => Mtu::B4096,
    }
}

/// Attributes of the port. On Ethernet the driver itself set the GIDs.
pub(super) fn port_state(port: &Port, set: &[Gid]) -> PortState {
    match &port.link {
        LinkState::InfiniBand { state, lid, sm_lid, pkeys } => {
            let contiguous = (0u16..).zip(&port.gids).take_while(|(at, (index, _))| at == index);
            let gids =
                contiguous.map(|(_, (_, gid))| Gid { gid: *gid, kind: GidType::Ib, ifindex: 0 });
            let (gids, pkeys, active_mtu) = (gids.collect(), pkeys.clone(), mtu(port.mtu));
            PortState { up: *state == ACTIVE, lid: *lid, sm_lid: *sm_lid, gids, pkeys, active_mtu }
        }
        LinkState::Ethernet { up, .. } => {
            let active_mtu = mtu(match port.mtu.saturating_sub(HEADERS) {
                0 => ETHERNET_MTU,
                bytes => bytes,
            });
            let (gids, pkeys) = (set.to_vec(), vec![DEFAULT_PKEY]);
            PortState { up: *up, lid: 0, sm_lid: 0, gids, pkeys, active_mtu }
        }
    }
}

/// Limits and port; true if the port is active.
fn config(function: &Function, port: &Port, set: &[Gid]) -> Result<(Config, bool), Error> {
    let (caps, identity) = (function.caps(), function.identity());
    let value = |field| caps.get(field) as u32;
    let byte = |field| caps.get(field) as u8;
    let log = |field| caps.get(field).min(MAX_LOG) as u8;
    // Queue pairs have log2 in three bits.
    let few = |field| caps.power(field).min(1 << 7) as u8;
    let is_memory = function.device().transport().is_software();
    let max_sge = ((value(cap::MAX_WQE_SZ_SQ).min(COUNTED)).saturating_sub(SEGMENTS))
        .min(value(cap::MAX_WQE_SZ_RQ))
        / DATA_SEGMENT;
    let link = match port.link {
        LinkState::InfiniBand { .. } => LinkLayer::InfiniBand,
        LinkState::Ethernet { .. } => LinkLayer::Ethernet,
    };
    let PortState { up, lid, sm_lid, gids, pkeys, active_mtu } = port_state(port, set);
    let config = Config {
        guid: port.node_guid,
        vendor_id: VENDOR_ID,
        part: identity.part,
        fw_ver: u64::from(identity.firmware.major) << 32
            | u64::from(identity.firmware.minor) << 16
            | u64::from(identity.firmware.sub),
        gid_table_len: caps.gid_table_len().into(),
        pkey_table_len: caps.pkey_table_len(),
        link,
        gids,
        pkeys,
        lid,
        sm_lid,
        active_mtu,
        active_width: WIDTH_4X,
        active_speed: SPEED_EDR,
        max_msg_size: caps.power(cap::LOG_MAX_MSG),
        max_pd: caps.power(cap::LOG_MAX_PD),
        max_ah: MAX_AH,
        max_qp: caps.power(cap::LOG_MAX_QP),
        max_cq: caps.power(cap::LOG_MAX_CQ),
        max_srq: caps.power(cap::LOG_MAX_SRQ),
        max_mkey: caps.power(cap::LOG_MAX_MKEY),
        max_mcast_qp: value(cap::MAX_QP_MCG),
        max_steering: caps.power(cap::LOG_MAX_RQT),
        max_spread: caps.power(cap::LOG_MAX_RQT_SIZE),
        log_max_rq: (caps.get(cap::ETH_NET_OFFLOADS) != 0).then(|| value(cap::LOG_MAX_RQ)),
        min_inline_header: function.device().inline_header(caps)?,
        log_max_tags: log(cap::LOG_TAG_MATCHING_LIST_SZ),
        log_max_wqebbs: log(cap::LOG_MAX_QP_SZ),
        log_max_rq_entries: log(cap::LOG_MAX_SRQ_SZ),
        log_max_cqes: log(cap::LOG_MAX_CQ_SZ),
        max_sq_desc: caps.get(cap::MAX_WQE_SZ_SQ) as u16,
        max_rq_desc: caps.get(cap::MAX_WQE_SZ_RQ) as u16,
        max_sge,
        max_mini_cqes: value(cap::CQE_COMPRESSION_MAX_NUM),
        // The names are by the requester's side in Linux (`mlx5_ib_query_device`).
        max_rd_atomic: few(cap::LOG_MAX_RA_RES_QP),
        max_dest_rd_atomic: few(cap::LOG_MAX_RA_REQ_QP),
        max_dc_rd_atomic: few(cap::LOG_MAX_RA_RES_DC),
        log_max_dci_streams: log(cap::LOG_MAX_DCI_STREAM_CHANNELS),
        local_ca_ack_delay: byte(cap::LOCAL_CA_ACK_DELAY),
        comp_vectors: 1,
        max_uars: MAX_UARS,
        max_blue_flame: MAX_UARS,
        // VFIO maps a BAR without write combining.
        bf_reg_size: if is_memory { BF_REG_SIZE } else { 0 },
        clock_khz: caps.get(cap::DEVICE_FREQUENCY_KHZ),
        // Version only; the firmware returns the options with each queue pair.
        ece: value(cap::ECE_SUPPORT) << ECE_VERSION_SHIFT,
        // The transport has the limit.
        memlock: u64::MAX,
        paging: Paging::default(),
        ..Config::default()
    };
    Ok((config, up))
}

/// Address of an InfiniBand port for the connection manager, derived from the LID: without a kernel
/// driver there is no IPoIB interface.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ByLid(IpAddr);

impl ByLid {
    /// Network of an address that the user gave; without one 10.86.x.y, where x.y is the LID.
    fn new(interface: &Interface, lid: u16) -> Result<Self, Error> {
        let invalid = |what| Err(Error::Invalid { what });
        if let Some(mtu) = interface.mtu {
            return invalid(format!("the MTU of an InfiniBand port: {mtu}"));
        }
        if let Some((ip, _)) = interface.neighbours.first() {
            return invalid(format!("a neighbour of an InfiniBand port: {ip}"));
        }
        if let Some(ip) = interface.gateways.first() {
            return invalid(format!("a gateway of an InfiniBand port: {ip}"));
        }
        if let Some(at) = interface.addresses.iter().find(|at| at.vlan.is_some()) {
            return invalid(format!("a VLAN of an InfiniBand port: {at}"));
        }
        match interface.addresses[..] {
            [] => Ok(Self(Ipv4Addr::new(10, 86, 0, 0).into())),
            [only] if lid == 0 || Network::of(only.ip).number() == lid => Ok(Self(only.ip)),
            [other, ..] => {
                let what = "an address of an InfiniBand port that does not end with its LID";
                invalid(format!("{what}, {lid}: {other}"))
            }
        }
    }

    /// Network of the port; `None` without a LID.
    pub(crate) fn network(self, lid: u16) -> Option<Network> {
        let own = Ipv6Addr::from(Network::of(self.0).at(lid)).to_canonical();
        (lid != 0).then(|| Network::of(own))
    }
}

/// Identity for the connection manager, which uses RoCE version 2 only. Link-local addresses are
/// last: a program that names none gets another if there is one.
fn host(config: &Config, routes: Vec<Route>) -> Host {
    let gids = (0u8..).zip(&config.gids).filter(|(_, gid)| gid.kind == GidType::RoceV2);
    let mut gids = gids.map(|(index, gid)| (index, gid.gid)).collect::<Vec<_>>();
    gids.sort_by_key(|(_, gid)| mac_of(gid).is_some());
    Host {
        guid: config.guid,
        gids,
        subnet: None,
        mtu: config.active_mtu as u8,
        is_routed: false,
        asks: config.is_ethernet(),
        routes,
    }
}

/// A function's port as the front and the connection manager begin with it.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) config: Config,
    /// The port is active.
    pub(crate) up: bool,
    pub(crate) manager: Manager,
    /// `None` on InfiniBand.
    pub(crate) neighbours: Option<Neighbours>,
    /// `None` on Ethernet.
    pub(crate) by_lid: Option<ByLid>,
    pub(crate) memory: Memic,
}

/// Reads limits and port, and sets the addresses of an Ethernet port.
pub(crate) fn start(function: &Function, interface: &Interface) -> Result<Start, Error> {
    let mut port = function.port()?;
    let (set, neighbours, by_lid) = match port.link {
        LinkState::InfiniBand { lid, .. } => (Vec::new(), None, Some(ByLid::new(interface, lid)?)),
        LinkState::Ethernet { mac, .. } => {
            if let Some(bytes) = interface.mtu {
                port.mtu = function.set_mtu(bytes)?;
            }
            let gids = function.enable_roce(mac, interface)?;
            (gids, Some(Neighbours::new(mac, interface)), None)
        }
    };
    let memory = Memic::of(function)?;
    let (mut config, up) = config(function, &port, &set)?;
    config.device_memory = memory.max_len;
    config.log_max_memic_alignment = memory.max_alignment;
    config.memic_operations = memory.operations;
    let network = by_lid.and_then(|by_lid| by_lid.network(config.lid));
    let routes = neighbours.as_ref().map(Neighbours::routes).unwrap_or_default();
    let mut manager = Manager::new(host(&config, routes));
    if let Some(network) = network {
        manager.set_subnet(network);
    }
    Ok(Start { config, up, manager, neighbours, by_lid, memory })
}
