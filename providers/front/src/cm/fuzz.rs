//! Fuzz target: two connection managers, programs on both, and a network that changes messages.

use std::time::Duration;

use uverbs_core::Errno;
use uverbs_core::doors::cm::CmCommand;
use uverbs_kernel_abi::rdma_cm::*;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::id::State;
use super::manager::{Host, Manager, Outgoing};
use crate::backend::address::Address;
use crate::feed::Feed;

/// Actions of one run.
const STEPS: usize = 200;
/// Maximum messages in flight; more are lost.
const FLYING: usize = 32;
/// Limit of timers and answers until everything is finished.
const REST: usize = 10_000;

/// A host without programs.
const STRANGER: Address = Address { gid: gid(9), lid: 0 };

const fn gid(last: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]
}

struct Hosts {
    managers: [Manager; 2],
    doors: [u64; 2],
    flying: Vec<Outgoing>,
    now: Duration,
    /// Ids that commands or events returned.
    ids: [Vec<u32>; 2],
}

/// Runs arbitrary messages between two connection managers whose programs connect and disconnect.
/// Afterwards the programs destroy everything, and no state may be left.
pub(crate) fn mads(data: &[u8]) {
    let mut feed = Feed::new(data);
    let mut hosts = Hosts::new();
    for _ in 0..STEPS {
        if feed.is_empty() {
            break;
        }
        let host = feed.below(2);
        match feed.below(10) {
            0 => hosts.create(&mut feed, host),
            1 => hosts.go_on(&mut feed, host),
            2 | 3 => hosts.event(host),
            4 => hosts.anything(&mut feed, host),
            5 => hosts.wait(Duration::from_millis(feed.u16().into())),
            _ => hosts.deliver(&mut feed),
        }
    }
    hosts.end();
}

impl Hosts {
    fn new() -> Hosts {
        let mut managers = [0, 1].map(|n: u8| {
            Manager::new(Host {
                guid: 77 + u64::from(n),
                gids: vec![(3, gid(n + 1))],
                subnet: None,
                mtu: 5,
                is_routed: false,
                asks: false,
                routes: Vec::new(),
            })
        });
        let doors = [0, 1].map(|n: usize| managers[n].open().unwrap().0);
        let (flying, now) = (Vec::new(), Duration::ZERO);
        Hosts { managers, doors, flying, now, ids: [Vec::new(), Vec::new()] }
    }

    fn command<A: FromZeros + FromBytes + IntoBytes>(
        &mut self,
        host: usize,
        number: u32,
        mut request: impl IntoBytes + FromBytes,
    ) -> Result<A, Errno> {
        let mut answer = A::new_zeroed();
        let request = request.as_mut_bytes();
        let room = Some(answer.as_mut_bytes());
        let command = CmCommand { number, request, answer: room, value: None };
        let done = self.managers[host].command(self.doors[host], command);
        self.carry(host);
        done.map(|()| answer)
    }

    fn carry(&mut self, host: usize) {
        for message in self.managers[host].take_outgoing() {
            if self.flying.len() < FLYING {
                self.flying.push(message);
            }
        }
    }

    fn some_id(&self, feed: &mut Feed<'_>, host: usize) -> u32 {
        let at = feed.below(self.ids[host].len());
        self.ids[host].get(at).copied().unwrap_or_default()
    }

    /// Creates an id that listens or connects.
    fn create(&mut self, feed: &mut Feed<'_>, host: usize) {
        let space = if feed.u8() & 1 == 0 { RDMA_PS_TCP } else { RDMA_PS_UDP };
        let uid = u64::from(feed.u8());
        let request = rdma_ucm_create_id { uid, ps: space, ..Default::default() };
        let Ok(answer) =
            self.command::<rdma_ucm_create_id_resp>(host, RDMA_USER_CM_CMD_CREATE_ID, request)
        else {
            return;
        };
        let id = answer.id;
        self.ids[host].push(id);
        let port = 7471 + u16::from(feed.u8() & 1);
        if feed.u8() & 1 == 0 {
            let mut bind = rdma_ucm_bind { id, ..Default::default() };
            bind.addr_size = address(host, port, &mut bind.addr);
            let _ = self.command::<u8>(host, RDMA_USER_CM_CMD_BIND, bind);
            let listen = rdma_ucm_listen { id, backlog: 4 };
            let _ = self.command::<u8>(host, RDMA_USER_CM_CMD_LISTEN, listen);
            return;
        }
        let mut resolve = rdma_ucm_resolve_addr { id, timeout_ms: 1, ..Default::default() };
        resolve.dst_size = address(1 - host, port, &mut resolve.dst_addr);
        let _ = self.command::<u8>(host, RDMA_USER_CM_CMD_RESOLVE_ADDR, resolve);
        let route = rdma_ucm_resolve_route { id, timeout_ms: 1 };
        let _ = self.command::<u8>(host, RDMA_USER_CM_CMD_RESOLVE_ROUTE, route);
        let connect = rdma_ucm_connect { conn_param: param(feed), id, ..Default::default() };
        let _ = self.command::<u8>(host, RDMA_USER_CM_CMD_CONNECT, connect);
    }

    /// Continues with an existing id.
    fn go_on(&mut self, feed: &mut Feed<'_>, host: usize) {
        let id = self.some_id(feed, host);
        let _ = match feed.below(5) {
            0 | 1 => {
                let conn_param = param(feed);
                let request = rdma_ucm_accept { conn_param, id, ..Default::default() };
                self.command::<u8>(host, RDMA_USER_CM_CMD_ACCEPT, request)
            }
            2 => {
                let request = rdma_ucm_reject { id, ..Default::default() };
                self.command::<u8>(host, RDMA_USER_CM_CMD_REJECT, request)
            }
            3 => {
                let request = rdma_ucm_disconnect { id };
                self.command::<u8>(host, RDMA_USER_CM_CMD_DISCONNECT, request)
            }
            _ => {
                let request = rdma_ucm_destroy_id { id, ..Default::default() };
                let answer = self.command::<rdma_ucm_destroy_id_resp>(
                    host,
                    RDMA_USER_CM_CMD_DESTROY_ID,
                    request,
                );
                answer.map(|_| 0)
            }
        };
    }

    fn event(&mut self, host: usize) {
        let request = rdma_ucm_get_event::default();
        let event = self.command::<rdma_ucm_event_resp>(host, RDMA_USER_CM_CMD_GET_EVENT, request);
        if let Ok(event) = event
            && !self.ids[host].contains(&event.id)
        {
            self.ids[host].push(event.id);
        }
    }

    /// Sends a command of arbitrary bytes, with an existing id in its first words.
    fn anything(&mut self, feed: &mut Feed<'_>, host: usize) {
        let number = u32::from(feed.u8() % 24);
        let mut request = [0; 320];
        let id = self.some_id(feed, host).to_ne_bytes();
        let at = [0, 8, 12, 16, 24, 284][feed.below(6)];
        request[at..at + 4].copy_from_slice(&id);
        feed.edit(&mut request);
        let len = usize::from(feed.u16()) % (request.len() + 1);
        let mut answer = [0; 512];
        let room = Some(&mut answer[..]);
        let command = CmCommand { number, request: &mut request[..len], answer: room, value: None };
        let _ = self.managers[host].command(self.doors[host], command);
        self.carry(host);
    }

    /// Delivers one message: late, duplicated, changed, or as if from another host.
    fn deliver(&mut self, feed: &mut Feed<'_>) {
        if self.flying.is_empty() {
            return;
        }
        let at = feed.below(self.flying.len());
        let bits = feed.u8();
        let mut message =
            if bits & 1 == 0 { self.flying.remove(at) } else { self.flying[at].clone() };
        if bits & 2 != 0 {
            feed.edit(&mut message.bytes);
        }
        let forged = bits & 12 == 12;
        if forged {
            message.src = STRANGER;
        }
        let to = usize::from(message.dst.gid == gid(2));
        let len = if bits & 48 == 48 { usize::from(feed.u8()) } else { message.bytes.len() };
        let before = self.states(to);
        self.managers[to].receive(message.src, message.dst, &message.bytes[..len]);
        if forged {
            let after = self.states(to);
            let is_same = |one: &(u32, State)| after.contains(one);
            assert!(before.iter().all(is_same), "changed by a stranger: {before:?}, {after:?}");
        }
        self.carry(to);
    }

    /// States of ids that have no connection to the stranger.
    fn states(&self, host: usize) -> Vec<(u32, State)> {
        let ids = self.managers[host].ids.iter();
        let ids = ids.filter(|(_, id)| id.connection.there != STRANGER);
        ids.map(|(number, id)| (number, id.state)).collect()
    }

    fn wait(&mut self, by: Duration) {
        self.now += by;
        for host in 0..2 {
            self.managers[host].advance(self.now);
            self.carry(host);
        }
    }

    /// Checks that every timer ends, and that no state is left when all ids are destroyed.
    fn end(&mut self) {
        for _ in 0..REST {
            self.flying.clear();
            let Some(next) = self.managers.iter().filter_map(Manager::next_deadline).min() else {
                break;
            };
            self.wait(next.saturating_sub(self.now));
        }
        for host in 0..2 {
            assert_eq!(self.managers[host].next_deadline(), None, "a timer without an end");
            self.managers[host].close(self.doors[host]);
            assert_eq!(self.managers[host].ids.len(), 0, "{:?}", self.managers[host].ids);
        }
    }
}

fn param(feed: &mut Feed<'_>) -> rdma_ucm_conn_param {
    let mut param =
        rdma_ucm_conn_param { qp_num: feed.u8().into(), valid: 1, ..Default::default() };
    feed.edit(param.as_mut_bytes());
    param
}

fn address(host: usize, port: u16, room: &mut [u8; 128]) -> u16 {
    room[..2].copy_from_slice(&2u16.to_ne_bytes());
    room[2..4].copy_from_slice(&port.to_be_bytes());
    room[4..8].copy_from_slice(&[10, 0, 0, host as u8 + 1]);
    16
}
