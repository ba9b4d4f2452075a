//! Peers of functions without a kernel driver: connections by address, and RoCE's addresses. Each
//! function is on softhca's vfio-user server in another process.

mod functions;

use std::io::{BufRead, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use common::{LIMIT, Side, done, impatient, local, pattern};
use functions::{Machine, device, role};
use uverbs::cm::{
    Connection, ConnectionErrorKind, Connector, EventChannel, Listener, Param, Route,
};
use uverbs::{
    AckTimeout, Completed, CompletionQueue, Context, Device, Errno, GidEntry, GidType, Local, Mtu,
    ProtectionDomain, QueuePair, Status,
};
use uverbs_softhca::LinkLayer;

/// Socket of a client's function, set for its process.
const CLIENT: &str = "UVERBS_TEST_VFIO_PEER";

#[test]
fn server() {
    functions::serve();
}

const LINKS: [LinkLayer; 2] = [LinkLayer::InfiniBand, LinkLayer::Ethernet];

/// Address of a device: on RoCE of its GIDs, on InfiniBand of its LID.
fn address(device: &Device) -> IpAddr {
    let known = device.addresses().unwrap().first().copied();
    known.unwrap_or_else(|| {
        let gids = device.open().unwrap().query_gid_table().unwrap();
        gids[0].gid.to_ip()
    })
}

/// Objects of one side.
struct End {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl End {
    fn on(device: &Device) -> Self {
        let context = device.open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        Self { context, pd, cq }
    }

    fn queue_pair(&self) -> QueuePair {
        self.context.queue_pair(&self.pd, &self.cq).build().unwrap()
    }

    /// Posts a receive.
    fn expect(&self, qp: &mut QueuePair) {
        qp.post_recv(7, self.pd.slab(64, 1).unwrap().take().unwrap()).unwrap();
    }

    fn send(&mut self, connection: &mut Connection) -> uverbs::WorkCompletion {
        let mut frame = self.pd.slab(64, 1).unwrap().take().unwrap();
        frame.set_len(64);
        frame.copy_from_slice(&pattern(64, 3));
        let mut batch = connection.queue_pair().batch();
        batch.send(1, frame).unwrap();
        batch.ring();
        self.cq.wait(LIMIT).unwrap()
    }
}

fn listen(device: &Device) -> Listener {
    let any = SocketAddr::new(address(device), 0);
    Listener::builder(any).listen_on(EventChannel::of(device).unwrap()).unwrap()
}

fn resolve(device: &Device, to: SocketAddr) -> Route {
    let connector = Connector::new(to).ack_timeout(AckTimeout::from_code(11).unwrap());
    connector.resolve_on(EventChannel::of(device).unwrap()).unwrap()
}

/// Accepts the next connection, takes a message, and waits for the end.
fn serve_one(device: &Device, listener: &Listener) {
    let mut end = End::on(device);
    let request = listener.next(LIMIT).unwrap();
    let mut qp = end.queue_pair();
    request.init(&mut qp).unwrap();
    end.expect(&mut qp);
    let mut connection = request.accept(qp, &Param::default()).unwrap();
    let received = done(&mut end.cq);
    assert_eq!(received.result, Ok(Completed::Recv));
    assert_eq!(received.frame.unwrap()[..], pattern(64, 3)[..]);
    assert!(connection.is_closed(LIMIT).unwrap());
}

#[test]
fn connections_by_address() {
    for link in LINKS {
        let machine = Machine::of(link);
        connection(&machine.device(0), &machine.device(1));
    }
}

#[test]
fn a_refused_connection_has_the_peers_words() {
    for link in LINKS {
        let machine = Machine::of(link);
        let (a, b) = (machine.device(0), machine.device(1));
        let listener = listen(&a);
        let to = listener.local_addr().unwrap().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| listener.next(LIMIT).unwrap().reject(b"full today").unwrap());
            let end = End::on(&b);
            let refused = resolve(&b, to).connect(end.queue_pair(), &Param::default());
            let error = uverbs::Error::from(refused.unwrap_err());
            assert!(error.to_string().ends_with("full today"), "{error}");
        });
        drop(listener);
        // Without a listener the connection manager refuses at once.
        let end = End::on(&b);
        let refused = resolve(&b, to).connect(end.queue_pair(), &Param::default());
        let error = uverbs::Error::from(refused.unwrap_err());
        let uverbs::Error::Connection(error) = error else { panic!("{error}") };
        assert!(matches!(error.kind, ConnectionErrorKind::Rejected { .. }), "{error}");
    }
}

/// The process that is killed: it accepts, and takes messages.
#[test]
fn peer() {
    let Some(socket) = std::env::var_os(CLIENT).map(PathBuf::from) else { return };
    let device = device(&socket);
    let listener = listen(&device);
    println!("said {}", listener.local_addr().unwrap().unwrap());
    let mut end = End::on(&device);
    let request = listener.next(LIMIT).unwrap();
    let mut qp = end.queue_pair();
    request.init(&mut qp).unwrap();
    end.expect(&mut qp);
    let mut connection = request.accept(qp, &Param::default()).unwrap();
    loop {
        assert_eq!(done(&mut end.cq).result, Ok(Completed::Recv));
        end.expect(connection.queue_pair());
    }
}

/// As of a host that lost power: nothing tells of the end, and requests get no answer.
#[test]
fn a_killed_peer_is_an_end_of_retries() {
    for link in LINKS {
        let machine = Machine::of(link);
        let mut command = role("peer", CLIENT, &machine.socket(1));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut said = lines.filter_map(|line| Some(line.split_once("said ")?.1.to_owned()));
        let to = said.next().unwrap().parse().unwrap();
        let device = machine.device(0);
        let mut end = End::on(&device);
        let route = resolve(&device, to);
        let mut connection = route.connect(end.queue_pair(), &Param::default()).unwrap();
        assert_eq!(end.send(&mut connection).result, Ok(Completed::Send));
        child.kill().unwrap();
        child.wait().unwrap();
        let failed = end.send(&mut connection).result.unwrap_err();
        assert_eq!(failed.status, Status::RetryExceeded, "{failed}");
        // Only the local side of the connection is left to end.
        drop(connection);
        drop(end);
    }
}

/// MAC addresses of the functions.
const MACS: [&str; 2] = ["02:ca:05:00:00:01", "02:ca:05:00:00:02"];

/// Two functions of one network, each with the other's MAC address.
fn neighbours(machine: &Machine, ip: [&str; 2], prefix: u8) -> [Device; 2] {
    [(0, 1), (1, 0)].map(|(own, peer)| {
        let (at, other, mac) = (ip[own], ip[peer], MACS[peer]);
        let options = format!(",address={at}/{prefix},neighbour={other}@{mac}");
        machine.with_options(own, &options).unwrap()
    })
}

/// Number of the first GID of an address, RoCE version 2.
fn gid_index(context: &Context, ip: &str) -> u32 {
    let gids = context.query_gid_table().unwrap();
    let ip: IpAddr = ip.parse().unwrap();
    let of = |entry: &&GidEntry| entry.gid.to_ip() == ip && entry.kind == GidType::RoceV2;
    gids.iter().find(of).unwrap().index
}

/// Connects `b` to `a` by rdma_cm and sends a message. Returns the address of `a`.
fn connection(a: &Device, b: &Device) -> SocketAddr {
    let listener = listen(a);
    let to = listener.local_addr().unwrap().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| serve_one(a, &listener));
        let mut end = End::on(b);
        let route = resolve(b, to);
        let mut connection = route.connect(end.queue_pair(), &Param::default()).unwrap();
        assert_eq!(end.send(&mut connection).result, Ok(Completed::Send));
        connection.disconnect(LIMIT).unwrap();
    });
    to
}

/// A queue pair at an address of a device.
fn side(device: &Device, ip: &str) -> Side {
    let index = gid_index(&device.open().unwrap(), ip);
    Side::new(device, &Local { gid_index: Some(index), ..local() }, |builder| builder)
}

/// Connects two queue pairs, and sends a message.
fn reach(one: &mut Side, other: &mut Side, len: usize) {
    one.qp.connect(&other.endpoint).unwrap();
    other.qp.connect(&one.endpoint).unwrap();
    other.expect(7, len);
    let frame = one.filled(len, 1);
    let mut batch = one.qp.batch();
    batch.send(1, frame).unwrap();
    batch.ring();
    assert_eq!(other.done().result, Ok(Completed::Recv));
}

/// Connects queue pairs of two addresses, and sends a message.
fn message([a, b]: [&Device; 2], ip: [&str; 2]) {
    reach(&mut side(a, ip[0]), &mut side(b, ip[1]), 5);
}

/// Error of a queue pair whose peer would have the address `to`.
fn unreached(device: &Device, own: &str, to: &str) -> Option<Errno> {
    let mut side = side(device, own);
    let mut peer = side.endpoint;
    peer.gid = Some(uverbs::Gid::from(to.parse::<IpAddr>().unwrap()));
    side.qp.connect(&peer).unwrap_err().errno()
}

#[test]
fn addresses_reach_known_neighbours() {
    for (ip, prefix) in [(["10.0.0.1", "10.0.0.2"], 24), (["2001:db8::1", "2001:db8::2"], 64)] {
        let machine = Machine::of(LinkLayer::Ethernet);
        let [a, b] = neighbours(&machine, ip, prefix);
        assert_eq!(a.addresses().unwrap(), [ip[0].parse::<IpAddr>().unwrap()]);
        let to = connection(&a, &b);
        assert_eq!(to.ip().to_string(), ip[0]);
        message([&a, &b], ip);
    }
}

/// Peers ask each other for their MAC addresses.
#[test]
fn unknown_neighbours_are_asked() {
    for ip in [["10.0.0.1", "10.0.0.2"], ["2001:db8::1", "2001:db8::2"]] {
        let machine = Machine::of(LinkLayer::Ethernet);
        let [a, b] =
            [0, 1].map(|at| machine.with_options(at, &format!(",address={}/24", ip[at])).unwrap());
        message([&a, &b], ip);
        connection(&a, &b);
    }
}

/// A port without options has a link-local address, and asks from there.
#[test]
fn a_link_local_neighbour_is_asked() {
    // Made of the MAC address, and by hand.
    let ip = ["fe80::ca:5ff:fe00:1", "fe80::77"];
    // An event tells of the frames, not the look at the health, which is due each second and may
    // come soon by chance. Other programs may delay one message by as much.
    let mut soon = (0..3).filter(|_| {
        let machine = Machine::of(LinkLayer::Ethernet);
        let a = machine.device(0);
        let b = machine.with_options(1, &format!(",address={}/64", ip[1])).unwrap();
        let start = Instant::now();
        message([&a, &b], ip);
        start.elapsed() < Duration::from_millis(900)
    });
    assert!(soon.nth(1).is_some(), "two of three come soon");
}

/// Tagged questions reach the VLAN's hosts alone.
#[test]
fn neighbours_are_asked_on_their_vlan() {
    for (ip, vlan) in [(["10.0.0.1", "10.0.0.2"], 5), (["2001:db8::1", "2001:db8::2"], 4094)] {
        let machine = Machine::of(LinkLayer::Ethernet);
        let options = |at: usize| format!(",address={}/24,vlan={vlan}", ip[at]);
        let [a, b] = [0, 1].map(|at| machine.with_options(at, &options(at)).unwrap());
        message([&a, &b], ip);
        connection(&a, &b);
    }
    let machine = Machine::of(LinkLayer::Ethernet);
    let option = |at: usize| format!(",address=10.0.0.{at}/24,vlan={}", 5 + at);
    let [a, _b] = [0, 1].map(|at| machine.with_options(at, &option(at + 1)).unwrap());
    assert_eq!(unreached(&a, "10.0.0.1", "10.0.0.2"), Some(Errno::ETIMEDOUT), "another VLAN");
}

/// The device tags packets with the VLAN of their GID, and drops packets of other VLANs.
#[test]
fn packets_stay_in_their_vlan() {
    let ip = ["10.0.0.1", "10.0.0.2"];
    for (vlans, arrives) in
        [([",vlan=5", ",vlan=5"], true), ([",vlan=5", ",vlan=6"], false), ([",vlan=5", ""], false)]
    {
        let machine = Machine::of(LinkLayer::Ethernet);
        let [mut one, mut other] = [(0, 1), (1, 0)].map(|(own, peer)| {
            let (at, vlan, to, mac) = (ip[own], vlans[own], ip[peer], MACS[peer]);
            let options = format!(",address={at}/24{vlan},neighbour={to}@{mac}");
            let device = machine.with_options(own, &options).unwrap();
            let index = Some(gid_index(&device.open().unwrap(), at));
            let local = Local { gid_index: index, ..impatient() };
            Side::new(&device, &local, |builder| builder)
        });
        if arrives {
            reach(&mut one, &mut other, 70_000);
            continue;
        }
        one.qp.connect(&other.endpoint).unwrap();
        other.qp.connect(&one.endpoint).unwrap();
        other.expect(7, 64);
        let frame = one.filled(64, 1);
        let mut batch = one.qp.batch();
        batch.send(1, frame).unwrap();
        batch.ring();
        let failed = one.wait().result.unwrap_err();
        assert_eq!(failed.status, Status::RetryExceeded, "{vlans:?}");
    }
}

/// The second function is the router, and what is behind it.
#[test]
fn a_router_leads_to_other_networks() {
    for (ip, router, prefix) in [
        (["10.0.0.1", "10.1.0.2"], "10.0.0.254", 24),
        (["2001:db8::1", "2001:db8:1::2"], "2001:db8::ff", 64),
    ] {
        let machine = Machine::of(LinkLayer::Ethernet);
        let b = format!(",address={}/{prefix},address={router}/{prefix}", ip[1]);
        let b = machine.with_options(1, &b).unwrap();
        let a = format!(",address={}/{prefix},gateway={router}", ip[0]);
        let a = machine.with_options(0, &a).unwrap();
        message([&a, &b], ip);
        connection(&b, &a);
    }
    let machine = Machine::of(LinkLayer::Ethernet);
    let device = machine.with_options(0, ",address=10.0.0.1/24").unwrap();
    let soon = (0..3).any(|_| {
        let start = Instant::now();
        assert_eq!(unreached(&device, "10.0.0.1", "10.1.0.2"), Some(Errno::ENETUNREACH));
        start.elapsed() < Duration::from_secs(1)
    });
    assert!(soon, "no peer was asked");
}

/// As Linux's `rdma_addr_find_l2_eth_by_grh`, which waits for a second.
#[test]
fn a_silent_neighbour_is_a_time_out() {
    let machine = Machine::of(LinkLayer::Ethernet);
    let device = machine.with_options(0, ",address=10.0.0.1/24").unwrap();
    let start = Instant::now();
    assert_eq!(unreached(&device, "10.0.0.1", "10.0.0.77"), Some(Errno::ETIMEDOUT));
    assert!(start.elapsed() < LIMIT);
    let to = "10.0.0.77:1".parse().unwrap();
    // By rdma_cm for as long as the program says (Linux `addr.c`, `process_one_req`).
    let (start, limit) = (Instant::now(), Duration::from_secs(2));
    let connector = Connector::new(to).limit(limit);
    let error = connector.resolve_on(EventChannel::of(&device).unwrap()).unwrap_err();
    assert!((limit..LIMIT).contains(&start.elapsed()), "{error}");
    assert!(error.to_string().contains("timed out"), "{error}");
}

#[test]
fn an_mtu_is_the_port_s() {
    for (options, mtu, len) in [("", Mtu::Mtu1024, 3000), (",mtu=4200", Mtu::Mtu4096, 9000)] {
        let machine = Machine::of(LinkLayer::Ethernet);
        let [mut one, mut other] = [0, 1].map(|at| {
            let device = machine.with_options(at, options).unwrap();
            Side::new(&device, &local(), |builder| builder)
        });
        let port = one.context.query_port(1).unwrap();
        assert_eq!((port.active_mtu, one.endpoint.mtu), (mtu, mtu), "{options}");
        reach(&mut one, &mut other, len);
    }
}

#[test]
fn an_address_that_a_port_can_not_have_is_refused_by_name() {
    let machine = Machine::of(LinkLayer::InfiniBand);
    for (options, named) in [
        (",address=10.0.0.1.1", "10.0.0.1.1"),
        (",address=10.1.0.1,vlan=5", "vlan=5"),
        (",address=10.1.0.1/24,gateway=10.1.0.2", "10.1.0.2"),
        (",ttl=9", "ttl=9"),
        (",mtu=4200", "4200"),
        (",address=10.0.0.9/24", "10.0.0.9/24"),
        (",neighbour=10.0.0.2@02:00:00:00:00:02", "10.0.0.2"),
    ] {
        let error = machine.with_options(0, options).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::EINVAL), "{options}");
        assert!(error.to_string().contains(named), "{error}");
    }
    // An InfiniBand port has the address of its LID.
    let device = machine.with_options(0, ",address=10.1.0.1").unwrap();
    assert_eq!(device.addresses().unwrap(), ["10.1.0.1".parse::<IpAddr>().unwrap()]);
    let error = machine.with_options(0, ",address=10.2.0.1").unwrap_err();
    assert!(error.to_string().contains("other addresses"), "{error}");
    // More than the GID table has room for.
    let machine = Machine::of(LinkLayer::Ethernet);
    let all = (1..=255).map(|end| format!(",address=10.0.0.{end}")).collect::<String>();
    let error = machine.with_options(0, &all).unwrap_err();
    assert!(error.to_string().contains("number of GIDs"), "{error}");
    let error = machine.with_options(0, ",mtu=9195").unwrap_err();
    assert!(error.to_string().contains("9194"), "{error}");
}
