//! One connection manager that a program runs on: Linux's, or a software HCA's.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs_core::Errno;
use uverbs_core::doors::DeviceSource as _;
use uverbs_core::doors::cm::{CmCommand, CmDoor};
use uverbs_kernel_abi::qp::ib_uverbs_qp_attr;
use uverbs_kernel_abi::rdma_cm::*;
use uverbs_softhca::{Mtu, SoftHca};
use zerocopy::{FromBytes, IntoBytes};

use super::program::SLOTS;
use super::step::Step;
use crate::target::Target;

/// Time to wait for an event that softhca told, and for one that it did not, in milliseconds. What
/// comes later belongs to the next step.
const PATIENCE: [u16; 2] = [2000, 4];
/// Rights to FLUSH, which rxe has and no ConnectX (`cm.c:cm_init_qp_init_attr`).
const FLUSH: u32 = 0x300;
/// The address of the guests' rxe0 (`tests/vm/setup-c.sh`), and its link-local one.
const OWN: [IpAddr; 2] = [
    IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0xff, 0xfe00, 1)),
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)),
];
/// Events, `enum rdma_cm_event_type`.
const EVENTS: [&str; 16] = [
    "ADDR_RESOLVED",
    "ADDR_ERROR",
    "ROUTE_RESOLVED",
    "ROUTE_ERROR",
    "CONNECT_REQUEST",
    "CONNECT_RESPONSE",
    "CONNECT_ERROR",
    "UNREACHABLE",
    "REJECTED",
    "ESTABLISHED",
    "DISCONNECTED",
    "DEVICE_REMOVAL",
    "MULTICAST_JOIN",
    "MULTICAST_ERROR",
    "ADDR_CHANGE",
    "TIMEWAIT_EXIT",
];
const CONNECT_REQUEST: u32 = 4;
const TIMEWAIT_EXIT: u32 = 15;
/// Number of the first ephemeral port (`ip_local_port_range`).
const EPHEMERAL: u16 = 32_768;
/// Paths that a query has room for.
const PATHS: usize = 6;

/// An id of a program.
#[derive(Clone, Copy, Debug)]
struct Id {
    number: u32,
    datagrams: bool,
}

/// A connection manager, and the ids of a program.
#[derive(Debug)]
pub(crate) struct Side {
    door: Arc<dyn CmDoor>,
    soft: Option<SoftHca>,
    ids: [Option<Id>; SLOTS],
}

impl Side {
    /// Linux's connection manager, of a target.
    pub(crate) fn of(target: &Target) -> Result<Self, String> {
        let door = target.open_cm().map_err(|errno| format!("rdma_cm: {errno}"))?;
        Ok(Self { door, soft: None, ids: [None; SLOTS] })
    }

    /// A software HCA with the addresses of the guests' rxe0.
    pub(crate) fn soft() -> Result<Self, String> {
        let built = SoftHca::builder().stepped().active_mtu(Mtu::B1024).gids(&OWN).build();
        let soft = built.map_err(|error| error.to_string())?;
        let door = soft.open_cm().map_err(|errno| errno.to_string())?;
        Ok(Self { door, soft: Some(soft), ids: [None; SLOTS] })
    }

    /// Runs a step; gives its outcome and the events that followed, by id. Of Linux, `expected`
    /// events are waited for.
    pub(crate) fn run(&mut self, step: Step, expected: usize) -> String {
        let mut text = match self.act(step) {
            Ok(more) if more.is_empty() => "ok".to_owned(),
            Ok(more) => format!("ok {more}"),
            Err(errno) => errno.to_string(),
        };
        let mut events = self.events(expected);
        // Events of different ids come in any order.
        events.sort_by_key(|(slot, _)| *slot);
        events.iter().for_each(|(slot, event)| write!(text, "; {slot} {event}").unwrap_or(()));
        text
    }

    /// Number of a slot's id; of an empty slot one that no id has.
    fn number(&self, slot: usize) -> u32 {
        self.ids[slot].map_or(u32::MAX, |id| id.number)
    }

    fn ask<A: FromBytes + IntoBytes>(
        &self,
        number: u32,
        mut request: impl IntoBytes + FromBytes,
    ) -> Result<A, Errno> {
        let mut answer = A::new_zeroed();
        let (request, room) = (request.as_mut_bytes(), Some(answer.as_mut_bytes()));
        self.door.command(CmCommand { number, request, answer: room, value: None })?;
        Ok(answer)
    }

    fn tell(&self, number: u32, mut request: impl IntoBytes + FromBytes) -> Result<String, Errno> {
        let request = request.as_mut_bytes();
        self.door.command(CmCommand { number, request, answer: None, value: None })?;
        Ok(String::new())
    }

    fn act(&mut self, step: Step) -> Result<String, Errno> {
        let slot = step.slot();
        let id = self.number(slot);
        match step {
            Step::Create { space, .. } => {
                let uid = slot as u64 + 1;
                let request =
                    rdma_ucm_create_id { uid, ps: space, qp_type: 2, ..Default::default() };
                let made: rdma_ucm_create_id_resp =
                    self.ask(RDMA_USER_CM_CMD_CREATE_ID, request)?;
                let datagrams = space == RDMA_PS_UDP;
                self.ids[slot] = Some(Id { number: made.id, datagrams });
                Ok(String::new())
            }
            Step::Bind { to, .. } => {
                let (addr, addr_size) = to.bytes();
                let request = rdma_ucm_bind { id, addr_size, addr, ..Default::default() };
                self.tell(RDMA_USER_CM_CMD_BIND, request)
            }
            Step::Set { option, value, len, .. } => {
                let value = &value.to_ne_bytes()[..len.min(4)];
                let mut request = rdma_ucm_set_option {
                    id,
                    level: RDMA_OPTION_ID,
                    optname: option,
                    optlen: value.len() as u32,
                    ..Default::default()
                };
                let (number, request) = (RDMA_USER_CM_CMD_SET_OPTION, request.as_mut_bytes());
                let value = Some(value);
                self.door.command(CmCommand { number, request, answer: None, value })?;
                Ok(String::new())
            }
            Step::Listen { backlog, .. } => {
                self.tell(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen { id, backlog })
            }
            Step::ResolveAddr { from, to, .. } => {
                let (src_addr, src_size) = from.map_or(([0; 128], 0), |from| from.bytes());
                let (dst_addr, dst_size) = to.bytes();
                let sizes = rdma_ucm_resolve_addr { src_size, dst_size, ..Default::default() };
                let request =
                    rdma_ucm_resolve_addr { id, timeout_ms: 2000, src_addr, dst_addr, ..sizes };
                self.tell(RDMA_USER_CM_CMD_RESOLVE_ADDR, request)
            }
            Step::ResolveRoute { timeout_ms, .. } => {
                let request = rdma_ucm_resolve_route { id, timeout_ms };
                self.tell(RDMA_USER_CM_CMD_RESOLVE_ROUTE, request)
            }
            Step::Connect { qpn, data, depth, valid, .. } => {
                let conn_param = param(qpn, data, depth, valid);
                let request = rdma_ucm_connect { conn_param, id, ..Default::default() };
                self.tell(RDMA_USER_CM_CMD_CONNECT, request)
            }
            Step::Accept { qpn, data, depth, valid, .. } => {
                let (uid, conn_param) = (slot as u64 + 1, param(qpn, data, depth, valid));
                let request = rdma_ucm_accept { uid, conn_param, id, ..Default::default() };
                self.tell(RDMA_USER_CM_CMD_ACCEPT, request)
            }
            Step::Reject { reason, data, .. } => {
                let request = rdma_ucm_reject {
                    id,
                    private_data_len: data,
                    reason,
                    private_data: [3; 256],
                    ..Default::default()
                };
                self.tell(RDMA_USER_CM_CMD_REJECT, request)
            }
            Step::Disconnect { .. } => {
                self.tell(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect { id })
            }
            Step::Notify { event, .. } => {
                self.tell(RDMA_USER_CM_CMD_NOTIFY, rdma_ucm_notify { id, event })
            }
            Step::Attributes { state, .. } => {
                let request = rdma_ucm_init_qp_attr { id, qp_state: state, ..Default::default() };
                self.ask(RDMA_USER_CM_CMD_INIT_QP_ATTR, request).map(|attr| attributes(&attr))
            }
            Step::Query { option, .. } => self.query(rdma_ucm_query { id, option, response: 0 }),
            Step::Destroy { .. } => {
                let request = rdma_ucm_destroy_id { id, ..Default::default() };
                let done: rdma_ucm_destroy_id_resp =
                    self.ask(RDMA_USER_CM_CMD_DESTROY_ID, request)?;
                self.ids[slot] = None;
                Ok(format!("events {}", done.events_reported))
            }
        }
    }

    fn query(&self, request: rdma_ucm_query) -> Result<String, Errno> {
        if request.option == RDMA_USER_CM_QUERY_PATH {
            let answer: [u8; 8 + PATHS * 72] = self.ask(RDMA_USER_CM_CMD_QUERY, request)?;
            return Ok(paths(&answer));
        }
        let answer: rdma_ucm_query_addr_resp = self.ask(RDMA_USER_CM_CMD_QUERY, request)?;
        let rdma_ucm_query_addr_resp { port_num, pkey, src_size, dst_size, .. } = answer;
        let device = if answer.node_guid == 0 { "no device" } else { "device" };
        let from = address(&answer.src_addr[..src_size.into()]);
        let to = address(&answer.dst_addr[..dst_size.into()]);
        Ok(format!("{device}, port {port_num}, pkey {pkey:#x}, {from} to {to}"))
    }

    /// Events that a step leads to.
    fn events(&mut self, expected: usize) -> Vec<(usize, String)> {
        let mut events = Vec::new();
        while self.is_told(PATIENCE[usize::from(events.len() >= expected)]) {
            let got = self.ask(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event::default());
            let Ok(event): Result<rdma_ucm_event_resp, _> = got else { break };
            // Comes by the clock, and says no more than that time has passed.
            if event.event != TIMEWAIT_EXIT {
                events.push(self.event(&event));
            }
        }
        events
    }

    fn is_told(&self, patience: u16) -> bool {
        let wait = if let Some(soft) = &self.soft {
            soft.step_until_idle(10_000);
            PollTimeout::ZERO
        } else {
            PollTimeout::from(patience)
        };
        let mut files = [PollFd::new(self.door.file(), PollFlags::POLLIN)];
        poll(&mut files, wait) == Ok(1)
    }

    fn event(&mut self, event: &rdma_ucm_event_resp) -> (usize, String) {
        let slot = (event.uid as usize).wrapping_sub(1);
        let datagrams = self.ids.get(slot).copied().flatten().is_some_and(|id| id.datagrams);
        let name = EVENTS.get(event.event as usize).copied().unwrap_or("unknown");
        let mut text = format!("{name} {}", event.status);
        if event.event == CONNECT_REQUEST {
            match (0..SLOTS).rev().find(|&slot| self.ids[slot].is_none()) {
                Some(new) => {
                    self.ids[new] = Some(Id { number: event.id, datagrams });
                    write!(text, " {new}").unwrap_or(());
                }
                None => {
                    let request = rdma_ucm_destroy_id { id: event.id, ..Default::default() };
                    let done: Result<rdma_ucm_destroy_id_resp, _> =
                        self.ask(RDMA_USER_CM_CMD_DESTROY_ID, request);
                    write!(text, " destroyed {}", done.is_ok()).unwrap_or(());
                }
            }
        } else if self.ids.get(slot).copied().flatten().map(|id| id.number) != Some(event.id) {
            text += " of another id";
        }
        text += &if datagrams { datagram(&event.ud()) } else { connection(&event.conn()) };
        (slot, text)
    }
}

fn param(qp_num: u32, data: u8, depth: u8, valid: bool) -> rdma_ucm_conn_param {
    rdma_ucm_conn_param {
        qp_num,
        private_data: [7; 256],
        private_data_len: data,
        responder_resources: depth,
        initiator_depth: depth,
        flow_control: 1,
        retry_count: 7,
        rnr_retry_count: 9,
        valid: valid.into(),
        ..Default::default()
    }
}

/// Parameters of an event, if there are any.
fn connection(param: &rdma_ucm_conn_param) -> String {
    if param.as_bytes().iter().all(|&byte| byte == 0) {
        return String::new();
    }
    let rdma_ucm_conn_param { qp_num, responder_resources, initiator_depth, .. } = param;
    let rdma_ucm_conn_param { flow_control, retry_count, rnr_retry_count, srq, .. } = param;
    format!(
        ", qpn {qp_num}, {responder_resources}/{initiator_depth}, flow {flow_control}, \
         retries {retry_count}/{rnr_retry_count}, srq {srq}, {}",
        data(&param.private_data, param.private_data_len)
    )
}

fn datagram(param: &rdma_ucm_ud_param) -> String {
    if param.as_bytes().iter().all(|&byte| byte == 0) {
        return String::new();
    }
    let rdma_ucm_ud_param { qp_num, qkey, private_data, private_data_len, .. } = param;
    let path = path(&param.ah_attr);
    format!(", qpn {qp_num}, qkey {qkey:#x}, {path}, {}", data(private_data, *private_data_len))
}

/// Length of private data, and how much of it is not zero.
fn data(bytes: &[u8], len: u8) -> String {
    let used = bytes[..len.into()].iter().filter(|&&byte| byte != 0).count();
    format!("data {used} of {len}")
}

fn path(ah: &uverbs_kernel_abi::ah::ib_uverbs_ah_attr) -> String {
    let grh = ah.grh;
    format!(
        "{} gid {} hops {} tc {} sl {} rate {} port {}",
        ah.is_global,
        gid(grh.dgid),
        grh.hop_limit,
        grh.traffic_class,
        ah.sl,
        ah.static_rate,
        ah.port_num
    )
}

fn gid(bytes: [u8; 16]) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}

fn port(port: u16) -> String {
    if port < EPHEMERAL { port.to_string() } else { "any".to_owned() }
}

/// A `struct sockaddr`, also of InfiniBand.
fn address(bytes: &[u8]) -> String {
    let at = |at: usize| -> [u8; 2] { [bytes[at], bytes[at + 1]] };
    if bytes.len() < 16 {
        return format!("{} bytes", bytes.len());
    }
    let number = port(u16::from_be_bytes(at(2)));
    match (i32::from(u16::from_ne_bytes(at(0))), bytes.len()) {
        (libc::AF_INET, 16) => {
            let ip: [u8; 4] = [bytes[4], bytes[5], bytes[6], bytes[7]];
            format!("{}:{number}", Ipv4Addr::from(ip))
        }
        (libc::AF_INET6, 28) => {
            let ip: [u8; 16] = bytes[8..24].try_into().unwrap_or_default();
            format!("[{}]:{number}", Ipv6Addr::from(ip))
        }
        (27, 48) => {
            let ip: [u8; 16] = bytes[8..24].try_into().unwrap_or_default();
            let (space, bound) = (u16::from_be_bytes(at(28)), u16::from_be_bytes(at(30)));
            let pkey = u16::from_be_bytes(at(2));
            format!("{} pkey {pkey:#x} service {space:#x}:{}", gid(ip), port(bound))
        }
        (family, len) => format!("family {family}, {len} bytes"),
    }
}

/// Paths of a query, in the format of the subnet administrator; rate and flow label are the
/// device's.
fn paths(answer: &[u8]) -> String {
    let count = u32::from_ne_bytes(answer[..4].try_into().unwrap_or_default());
    let mut text = format!("{count} paths");
    for entry in answer[8..].chunks(72).take(count as usize) {
        let flags = u32::from_ne_bytes(entry[..4].try_into().unwrap_or_default());
        let record = &entry[8..];
        let ip = |at: usize| gid(record[at..at + 16].try_into().unwrap_or_default());
        let (to, from, hops) = (ip(8), ip(24), record[47]);
        let (class, numb, pkey) = (record[48], record[49], &record[50..52]);
        let (mtu, life) = (record[54], record[56]);
        write!(
            text,
            ", flags {flags:#x} {from} to {to} hops {hops} tc {class} numb {numb:#x} \
             pkey {pkey:x?} mtu {mtu:#x} life {life:#x}"
        )
        .unwrap_or(());
    }
    text
}

/// Attributes of a queue pair; first PSNs are random, and the index of a GID is the table's.
fn attributes(attr: &ib_uverbs_qp_attr) -> String {
    format!(
        "mask {:#x} state {} mtu {} qkey {:#x} qpn {} access {:#x} path {} depths {}/{} rnr {} \
         port {} timeout {} retries {}/{}",
        attr.qp_attr_mask,
        attr.qp_state,
        attr.path_mtu,
        attr.qkey,
        attr.dest_qp_num,
        attr.qp_access_flags & !FLUSH,
        path(&attr.ah_attr),
        attr.max_rd_atomic,
        attr.max_dest_rd_atomic,
        attr.min_rnr_timer,
        attr.port_num,
        attr.timeout,
        attr.retry_cnt,
        attr.rnr_retry
    )
}
