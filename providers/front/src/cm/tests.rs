//! Two connection managers on a bad network, in virtual time. Messages are lost, duplicated, late
//! and reordered; each side gets one event for the outcome, and no state is left.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use proptest::prelude::*;
use uverbs_core::Errno;
use uverbs_core::doors::cm::CmCommand;
use uverbs_kernel_abi::qp::{IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UD};
use uverbs_kernel_abi::rdma_cm::*;
use zerocopy::{FromZeros, IntoBytes};

use super::id::State;
use super::manager::{Host, Manager, Outgoing, event};

mod asked;
mod death;
mod forged;
mod held;
mod xrc;

const GIDS: [[u8; 16]; 2] = [gid_of(1), gid_of(2)];

const fn gid_of(last: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last]
}

/// Faults of the network, in per cent of the messages.
#[derive(Clone, Copy, Debug)]
struct Network {
    lost: u64,
    twice: u64,
    late: u64,
}

/// Two hosts, and the messages between them.
struct World {
    hosts: [Manager; 2],
    doors: [u64; 2],
    network: Network,
    flying: Vec<(Duration, Outgoing)>,
    seed: u64,
    now: Duration,
    /// A dead host does nothing, and messages to it are lost.
    dead: [bool; 2],
    /// Events that each id's program has read: `(host, uid)`.
    told: BTreeMap<(usize, u64), Vec<(u32, i32)>>,
    /// Queue pair type of ids, in the port space that leaves it to the program.
    qp_type: u8,
}

impl World {
    fn new(seed: u64, network: Network) -> Self {
        let mut hosts = [0, 1].map(|n| {
            Manager::new(Host {
                guid: 77 + n as u64,
                gids: vec![(3, GIDS[n])],
                subnet: None,
                mtu: 5,
                is_routed: false,
                asks: false,
                routes: Vec::new(),
            })
        });
        let doors = [0, 1].map(|n: usize| hosts[n].open().unwrap().0);
        let (flying, now, told) = (Vec::new(), Duration::ZERO, BTreeMap::new());
        let seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let dead = [false; 2];
        Self { hosts, doors, network, flying, seed, now, dead, told, qp_type: 0 }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed % below
    }

    fn chance(&mut self, per_cent: u64) -> bool {
        self.random(100) < per_cent
    }

    fn command<A: FromZeros + IntoBytes + zerocopy::FromBytes>(
        &mut self,
        host: usize,
        number: u32,
        mut request: impl IntoBytes + zerocopy::FromBytes,
    ) -> Result<A, Errno> {
        let mut answer = A::new_zeroed();
        let command = CmCommand {
            number,
            request: request.as_mut_bytes(),
            answer: Some(answer.as_mut_bytes()),
            value: None,
        };
        self.hosts[host].command(self.doors[host], command)?;
        self.carry(host);
        Ok(answer)
    }

    fn tell(
        &mut self,
        host: usize,
        number: u32,
        request: impl IntoBytes + zerocopy::FromBytes,
    ) -> Result<(), Errno> {
        self.command::<u8>(host, number, request).map(drop)
    }

    /// Puts a host's outgoing messages onto the network.
    fn carry(&mut self, host: usize) {
        for message in self.hosts[host].take_outgoing() {
            if self.chance(self.network.lost) {
                continue;
            }
            let copies = 1 + u64::from(self.chance(self.network.twice));
            for _ in 0..copies {
                // Late messages arrive after their repetitions.
                let late = if self.chance(self.network.late) { 9_000 } else { 2 };
                let arrives = self.now + Duration::from_millis(1 + self.random(late));
                self.flying.push((arrives, message.clone()));
            }
        }
    }

    /// Advances to the next message or timer. False when both are exhausted.
    fn step(&mut self) -> bool {
        let arrival = self.flying.iter().map(|(arrives, _)| *arrives).min();
        let alive = [0, 1].into_iter().filter(|&host| !self.dead[host]);
        let timer = alive.filter_map(|host| self.hosts[host].next_deadline()).min();
        let Some(next) = arrival.into_iter().chain(timer).min() else { return false };
        self.now = self.now.max(next);
        let now = self.now;
        for host in (0..2).filter(|&host| !self.dead[host]).collect::<Vec<_>>() {
            self.hosts[host].advance(now);
            self.carry(host);
        }
        let (due, flying) = self.flying.drain(..).partition(|(arrives, _)| *arrives <= now);
        self.flying = flying;
        let due: Vec<(Duration, Outgoing)> = due;
        for (_, Outgoing { src, dst, bytes }) in due {
            let host = usize::from(dst.gid == GIDS[1]);
            if self.dead[host] {
                continue;
            }
            self.hosts[host].receive(src, dst, &bytes);
            self.carry(host);
        }
        true
    }

    fn next_event(&mut self, host: usize) -> Option<rdma_ucm_event_resp> {
        match self.command(host, RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event::default()) {
            Ok(event) => {
                let event: rdma_ucm_event_resp = event;
                let told = self.told.entry((host, event.uid)).or_default();
                told.push((event.event, event.status));
                Some(event)
            }
            Err(errno) => {
                assert_eq!(errno, Errno::EAGAIN);
                None
            }
        }
    }

    fn create(&mut self, host: usize, uid: u64, space: u16) -> u32 {
        let qp_type = self.qp_type;
        let request = rdma_ucm_create_id { uid, ps: space, qp_type, ..Default::default() };
        let answer: rdma_ucm_create_id_resp =
            self.command(host, RDMA_USER_CM_CMD_CREATE_ID, request).unwrap();
        answer.id
    }

    fn destroy(&mut self, host: usize, id: u32) {
        let request = rdma_ucm_destroy_id { id, ..Default::default() };
        let _: rdma_ucm_destroy_id_resp =
            self.command(host, RDMA_USER_CM_CMD_DESTROY_ID, request).unwrap();
    }

    fn listen(&mut self, uid: u64, space: u16) -> u32 {
        let id = self.create(1, uid, space);
        let mut request = rdma_ucm_bind { id, ..Default::default() };
        request.addr_size = address("10.0.0.2:7471", &mut request.addr);
        self.tell(1, RDMA_USER_CM_CMD_BIND, request).unwrap();
        self.tell(1, RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen { id, backlog: 4 }).unwrap();
        id
    }

    /// Creates an id of host 0 that is about to send its first message.
    fn connect(&mut self, uid: u64, space: u16, qpn: u32) -> u32 {
        let id = self.create(0, uid, space);
        let mut request = rdma_ucm_resolve_addr { id, timeout_ms: 1, ..Default::default() };
        request.dst_size = address("10.0.0.2:7471", &mut request.dst_addr);
        self.tell(0, RDMA_USER_CM_CMD_RESOLVE_ADDR, request).unwrap();
        let request = rdma_ucm_resolve_route { id, timeout_ms: 1 };
        self.tell(0, RDMA_USER_CM_CMD_RESOLVE_ROUTE, request).unwrap();
        let conn_param = param(qpn);
        let request = rdma_ucm_connect { conn_param, id, ..Default::default() };
        self.tell(0, RDMA_USER_CM_CMD_CONNECT, request).unwrap();
        for wanted in [event::ADDR_RESOLVED, event::ROUTE_RESOLVED] {
            assert_eq!(self.next_event(0).map(|event| event.event), Some(wanted));
        }
        id
    }

    fn accept(&mut self, host: usize, id: u32, uid: u64, qpn: Option<u32>) -> Result<(), Errno> {
        let conn_param = qpn.map_or_else(rdma_ucm_conn_param::default, param);
        let request = rdma_ucm_accept { uid, conn_param, id, ..Default::default() };
        self.tell(host, RDMA_USER_CM_CMD_ACCEPT, request)
    }

    fn disconnect(&mut self, host: usize, id: u32) -> Result<(), Errno> {
        self.tell(host, RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect { id })
    }

    fn count(&self, host: usize, uid: u64, what: u32) -> usize {
        let told = self.told.get(&(host, uid)).map_or(&[][..], Vec::as_slice);
        told.iter().filter(|(event, _)| *event == what).count()
    }
}

fn param(qpn: u32) -> rdma_ucm_conn_param {
    rdma_ucm_conn_param { qp_num: qpn, valid: 1, ..Default::default() }
}

fn address(text: &str, room: &mut [u8; 128]) -> u16 {
    let SocketAddr::V4(addr) = text.parse().unwrap() else { unreachable!() };
    room[..2].copy_from_slice(&2u16.to_ne_bytes());
    room[2..4].copy_from_slice(&addr.port().to_be_bytes());
    room[4..8].copy_from_slice(&addr.ip().octets());
    16
}

const ASKS: u64 = 100;
const LISTENS: u64 = 200;
const SERVES: u64 = 300;

/// Actions of the programs after the connection request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plan {
    /// The given host disconnects.
    Disconnect(usize),
    /// Both hosts disconnect.
    Both,
    /// The given host destroys its id.
    Vanish(usize),
    /// The request is rejected.
    Refuse,
    /// The request is never answered, and dropped after a while.
    Ignore,
}

/// Runs one connection from its first message to its end. Returns the number of repetitions.
fn life(seed: u64, network: Network, plan: Plan) {
    let mut world = World::new(seed, network);
    let listener = world.listen(LISTENS, RDMA_PS_TCP);
    let asks = world.connect(ASKS, RDMA_PS_TCP, 0x11);
    let (mut serves, mut vanished, mut said) = (None, [false; 2], [false; 2]);
    let mut steps = 0;
    while world.step() {
        steps += 1;
        assert!(steps < 5_000, "{plan:?} with seed {seed} doesn't end");
        for host in 0..2 {
            while let Some(event) = world.next_event(host) {
                match event.event {
                    event::CONNECT_REQUEST => {
                        assert_eq!((host, event.uid), (1, LISTENS));
                        // A duplicate that arrives after the end is a new request (as on Linux), of
                        // a peer that waits no more.
                        if serves.is_some() {
                            assert!(
                                network.lost + network.twice + network.late > 0
                                    || plan == Plan::Ignore
                            );
                            world.destroy(1, event.id);
                            continue;
                        }
                        serves = Some(event.id);
                        answer(&mut world, event.id, plan);
                    }
                    event::CONNECT_RESPONSE => {
                        assert_eq!((host, event.conn().qp_num), (0, 0x22));
                        world.accept(0, asks, 0, None).unwrap();
                        if matches!(plan, Plan::Disconnect(0) | Plan::Both) {
                            said[0] = true;
                            world.disconnect(0, asks).unwrap();
                        }
                        if plan == Plan::Vanish(0) {
                            vanished[0] = true;
                            world.destroy(0, asks);
                        }
                    }
                    event::ESTABLISHED => {
                        assert_eq!((host, event.uid), (1, SERVES));
                        let id = serves.unwrap();
                        if matches!(plan, Plan::Disconnect(1) | Plan::Both) {
                            said[1] = true;
                            world.disconnect(1, id).unwrap();
                        }
                        if plan == Plan::Vanish(1) {
                            vanished[1] = true;
                            world.destroy(1, id);
                        }
                    }
                    // The program answers the peer's disconnection.
                    event::DISCONNECTED => {
                        let id = if host == 0 { asks } else { serves.unwrap() };
                        if !said[host] {
                            let _ = world.disconnect(host, id);
                        }
                    }
                    _ => {}
                }
            }
        }
        if plan == Plan::Ignore
            && world.now > Duration::from_secs(10)
            && !vanished[1]
            && let Some(id) = serves
        {
            vanished[1] = true;
            world.destroy(1, id);
        }
    }
    check(&world, plan, seed);
    end(&mut world, plan, seed, [Some(asks), serves, Some(listener)]);
}

/// Answers a connection request.
fn answer(world: &mut World, id: u32, plan: Plan) {
    match plan {
        Plan::Refuse => {
            let request = rdma_ucm_reject { id, ..Default::default() };
            world.tell(1, RDMA_USER_CM_CMD_REJECT, request).unwrap();
        }
        Plan::Ignore => {}
        // Fails if the requester is gone meanwhile.
        _ => drop(world.accept(1, id, SERVES, Some(0x22))),
    }
}

/// Destroys all ids, and with them all state.
fn end(world: &mut World, plan: Plan, seed: u64, known: [Option<u32>; 3]) {
    for host in 0..2 {
        let of: Vec<u32> = world.hosts[host].ids.iter().map(|(number, _)| number).collect();
        for id in of {
            assert!(known.contains(&Some(id)), "{id} is unknown");
            let state = world.hosts[host].ids.get(id).unwrap().state;
            let may_stand = matches!(plan, Plan::Vanish(_)) && state == State::Established;
            let is_final = matches!(state, State::Over | State::Listening);
            assert!(is_final || may_stand, "{plan:?} with seed {seed}: {id} is {state:?}");
            world.destroy(host, id);
        }
        assert_eq!(world.hosts[host].ids.len(), 0);
        assert_eq!(world.hosts[host].next_deadline(), None);
    }
}

/// Checks that each side got exactly one event for the outcome.
fn check(world: &World, plan: Plan, seed: u64) {
    let of = |host, uid, what| world.count(host, uid, what);
    let answer = of(0, ASKS, event::CONNECT_RESPONSE);
    let no = of(0, ASKS, event::REJECTED) + of(0, ASKS, event::UNREACHABLE);
    let what = format!("{plan:?} with seed {seed}: {:?}", world.told);
    assert!(answer <= 1 && no <= 1, "{what}");
    assert!(answer + no >= 1, "the one that asks is never told: {what}");
    for (host, uid) in [(0, ASKS), (1, SERVES)] {
        assert!(of(host, uid, event::DISCONNECTED) <= 1, "{what}");
        assert!(of(host, uid, event::ESTABLISHED) <= 1, "{what}");
    }
    match plan {
        Plan::Refuse | Plan::Ignore => assert_eq!(answer, 0, "{what}"),
        Plan::Disconnect(_) | Plan::Both => {
            // Each message has sixteen tries, so a failure would need sixteen losses.
            assert_eq!(answer, 1, "{what}");
            assert_eq!(of(0, ASKS, event::DISCONNECTED), 1, "{what}");
            assert_eq!(of(1, SERVES, event::DISCONNECTED), 1, "{what}");
        }
        // A message that isn't repeated may be lost.
        Plan::Vanish(_) => assert_eq!(answer, 1, "{what}"),
    }
}

const PLANS: [Plan; 7] = [
    Plan::Disconnect(0),
    Plan::Disconnect(1),
    Plan::Both,
    Plan::Vanish(0),
    Plan::Vanish(1),
    Plan::Refuse,
    Plan::Ignore,
];

#[test]
fn a_good_network_needs_no_second_try() {
    for plan in PLANS {
        life(1, Network { lost: 0, twice: 0, late: 0 }, plan);
    }
}

#[test]
fn thousands_of_bad_networks_end_all_the_same() {
    for seed in 0..3_000 {
        let network = Network { lost: seed % 4 * 10, twice: seed % 3 * 20, late: seed % 5 * 10 };
        life(seed, network, PLANS[seed as usize % PLANS.len()]);
    }
}

#[test]
fn a_network_that_loses_all_is_noticed() {
    for plan in PLANS {
        let mut world = World::new(1, Network { lost: 100, twice: 0, late: 0 });
        world.connect(ASKS, RDMA_PS_TCP, 1);
        while world.step() {}
        let told = world.next_event(0).map(|event| (event.event, event.status));
        assert_eq!(told, Some((event::UNREACHABLE, -Errno::ETIMEDOUT.raw())), "{plan:?}");
        // Sixteen times 4.1 s.
        assert_eq!(world.now.as_secs(), 65);
    }
}

#[test]
fn a_full_backlog_drops_requests_which_come_again() {
    let mut world = World::new(1, Network { lost: 0, twice: 0, late: 0 });
    world.listen(LISTENS, RDMA_PS_TCP);
    const PEERS: u64 = 10;
    let asks: Vec<u32> =
        (0..PEERS).map(|n| world.connect(ASKS + n, RDMA_PS_TCP, 0x100 + n as u32)).collect();
    while world.now < Duration::from_secs(1) && world.step() {}
    // The listener, and four unread requests.
    assert_eq!(world.hosts[1].ids.len(), 5);
    let (mut accepted, mut steps) = (0, 0);
    while world.step() && steps < 1_000 {
        steps += 1;
        while let Some(event) = world.next_event(1) {
            if event.event == event::CONNECT_REQUEST {
                accepted += 1;
                world.accept(1, event.id, SERVES + accepted, Some(accepted as u32)).unwrap();
            }
        }
        while let Some(event) = world.next_event(0) {
            assert_eq!(event.event, event::CONNECT_RESPONSE);
            let which = usize::try_from(event.uid - ASKS).unwrap();
            world.accept(0, asks[which], 0, None).unwrap();
        }
    }
    assert_eq!(accepted, PEERS);
    for n in 0..PEERS {
        assert_eq!(world.count(0, ASKS + n, event::CONNECT_RESPONSE), 1);
        assert_eq!(world.count(1, SERVES + 1 + n, event::ESTABLISHED), 1);
    }
}

#[test]
fn who_asks_for_another_kind_of_service_is_refused_by_the_listener() {
    // `enum ib_cm_rej_reason` and `enum ib_cm_sidr_status`, as Linux sends them.
    let (none, consumer, unsupported, refused) = (8, 28, 1, 2);
    let asks = |listens: Option<u8>, asks: u8| {
        let mut world = World::new(1, Network { lost: 0, twice: 0, late: 0 });
        if let Some(kind) = listens {
            world.qp_type = kind;
            world.listen(LISTENS, RDMA_PS_IB);
        }
        world.qp_type = asks;
        world.connect(ASKS, RDMA_PS_IB, 0x11);
        while world.now < Duration::from_secs(1) && world.step() {}
        world.next_event(0).map(|event| (event.event, event.status))
    };
    let (connections, datagrams) = (IB_UVERBS_QPT_RC, IB_UVERBS_QPT_UD);
    assert_eq!(asks(None, connections), Some((event::REJECTED, none)));
    assert_eq!(asks(Some(datagrams), connections), Some((event::REJECTED, consumer)));
    assert_eq!(asks(None, datagrams), Some((event::UNREACHABLE, unsupported)));
    assert_eq!(asks(Some(connections), datagrams), Some((event::UNREACHABLE, refused)));
}

#[test]
fn datagram_peers_are_found_on_a_bad_network() {
    for seed in 0..1_000 {
        let mut world = World::new(seed, Network { lost: 30, twice: 20, late: 10 });
        world.listen(LISTENS, RDMA_PS_UDP);
        world.connect(ASKS, RDMA_PS_UDP, 0);
        while world.step() {
            while let Some(event) = world.next_event(1) {
                assert_eq!(event.event, event::CONNECT_REQUEST);
                world.accept(1, event.id, SERVES, Some(0x22)).unwrap();
            }
            while let Some(event) = world.next_event(0) {
                assert_eq!((event.event, event.ud().qp_num), (event::ESTABLISHED, 0x22));
                assert_eq!(event.ud().ah_attr.grh.dgid, GIDS[1]);
            }
        }
        assert_eq!(world.count(0, ASKS, event::ESTABLISHED), 1, "seed {seed}");
    }
}

proptest! {
    /// Arbitrary messages in any state cause no panic and no growth.
    #[test]
    fn any_messages_leave_it_whole(
        messages in prop::collection::vec((0x10u16..0x1a, any::<[u8; 32]>(), 0..3usize), 1..80),
    ) {
        let mut world = World::new(1, Network { lost: 0, twice: 0, late: 0 });
        world.listen(LISTENS, RDMA_PS_TCP);
        let asks = world.connect(ASKS, RDMA_PS_TCP, 0x11);
        let known = world.hosts[0].ids.get(asks).unwrap().connection.local_id;
        for (attribute, bytes, host) in messages {
            let host = host.min(1);
            let mut mad = [0; 256];
            mad[..4].copy_from_slice(&[1, 7, 2, 3]);
            mad[16..18].copy_from_slice(&attribute.to_be_bytes());
            mad[24..56].copy_from_slice(&bytes);
            if bytes[0] < 128 {
                // As if the sender knew the communication id.
                mad[28..32].copy_from_slice(&known.to_be_bytes());
            }
            let (src, dst) = (GIDS[1 - host], GIDS[host]);
            let at = |gid| crate::backend::address::Address { gid, lid: 0 };
            world.hosts[host].receive(at(src), at(dst), &mad);
            world.carry(host);
            prop_assert!(world.hosts[host].ids.len() <= 6, "the backlog is 4");
        }
    }
}
