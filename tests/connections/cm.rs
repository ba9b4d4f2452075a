//! The connection manager: connecting by address, with its successes and failures.
//!
//! It needs an IP address at the device under test: Linux's rdma_cm answers, or the software HCA's
//! own connection manager.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use common::{
    LIMIT, device_with_address, done, is_private_data, is_siw, not_on_siw, pattern, skip,
};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs::cm::{
    Connection, ConnectionErrorKind, Connector, EventChannel, EventKind, IbAddr, Listener, Param,
    PortSpace, Route,
};
use uverbs::softhca::{SoftHca, Udp};
use uverbs::transport::Ud;
use uverbs::{
    AccessFlags, Completed, CompletionQueue, Context, Device, Errno, Error, GRH_LEN,
    ProtectionDomain, QpState, QueuePair,
};

fn channel(device: &Device) -> EventChannel {
    EventChannel::of(device).unwrap()
}

/// Objects of one side, on the device of its connection.
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

    fn done(&mut self) -> uverbs::WorkCompletion {
        done(&mut self.cq)
    }
}

fn listener(device: &Device, ip: IpAddr) -> (Listener, SocketAddr) {
    let listener = bind(device, SocketAddr::new(ip, 0)).unwrap();
    let addr = listener.local_addr().unwrap().expect("the system chose a port");
    assert_ne!(addr.port(), 0);
    (listener, addr)
}

fn bind(device: &Device, addr: SocketAddr) -> Result<Listener, Error> {
    Listener::builder(addr).limit(LIMIT).listen_on(channel(device))
}

fn resolve(device: &Device, to: SocketAddr) -> Route {
    Connector::new(to).limit(LIMIT).resolve_on(channel(device)).unwrap()
}

/// Serves one connection in a thread, and says how it went when the peer is done.
fn serve<R: Send + 'static>(
    listener: Listener,
    param: Param,
    then: impl FnOnce(&mut End, Connection) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    thread::spawn(move || {
        let request = listener.next(LIMIT).unwrap();
        let mut end = End::on(&request.device().unwrap());
        let mut qp = end.queue_pair();
        request.init(&mut qp).unwrap();
        for id in 0..8 {
            qp.post_recv(id, end.pd.slab(4096, 1).unwrap().take().unwrap()).unwrap();
        }
        let connection = request.accept(qp, &param).unwrap();
        then(&mut end, connection)
    })
}

fn connect(device: &Device, to: SocketAddr, param: &Param) -> (End, Connection) {
    let route = resolve(device, to);
    let end = End::on(&route.device().unwrap());
    let qp = end.queue_pair();
    let connection = route.connect(qp, param).unwrap();
    (end, connection)
}

#[test]
fn two_sides_connect_talk_and_part() {
    let Some((device, ip)) = device_with_address() else { return };
    let (listener, addr) = listener(&device, ip);
    let answer = Param { private_data: b"welcome".to_vec(), ..Param::default() };
    let server = serve(listener, answer, move |end, mut connection| {
        assert!(is_private_data(connection.private_data(), b"may I?"));
        assert_eq!(connection.local_addr().unwrap(), Some(addr));
        let memory = end.pd.expose(4096, AccessFlags::REMOTE_WRITE).unwrap();
        let at = memory.remote(0);
        let place = format!("{} {}", at.addr, at.rkey);
        connection.queue_pair().post_send_inline(100, place.as_bytes()).unwrap();
        assert_eq!(end.done().id, 100);
        // The peer's SEND comes behind its WRITE.
        let received = end.done();
        assert_eq!(received.result, Ok(Completed::Recv));
        assert_eq!(&received.frame.unwrap()[..], b"written");
        let mut there = vec![0; 4096];
        memory.read(0, &mut there).unwrap();
        assert_eq!(there, pattern(4096, 3));
        assert!(connection.is_closed(LIMIT).unwrap(), "the peer disconnects");
        connection.disconnect(LIMIT).unwrap()
    });

    let asked = Param { private_data: b"may I?".to_vec(), ..Param::default() };
    let route = resolve(&device, addr);
    assert_eq!(route.id().peer_addr().unwrap(), Some(addr));
    assert!(route.port().unwrap() >= 1);
    let mut end = End::on(&route.device().unwrap());
    let mut qp = end.queue_pair();
    route.init(&mut qp).unwrap();
    qp.post_recv(1, end.pd.slab(64, 1).unwrap().take().unwrap()).unwrap();
    let mut connection = route.connect(qp, &asked).unwrap();
    assert!(is_private_data(connection.private_data(), b"welcome"));
    assert!(!connection.is_closed(Duration::ZERO).unwrap());
    let told = end.done().frame.unwrap();
    let mut words = std::str::from_utf8(&told).unwrap().split(' ');
    let addr = words.next().unwrap().parse().unwrap();
    let rkey = words.next().unwrap().parse().unwrap();
    let mut frame = end.pd.slab(4096, 1).unwrap().take().unwrap();
    frame.copy_from_slice(&pattern(4096, 3));
    let mut batch = connection.queue_pair().batch();
    batch.write(2, frame, uverbs::Remote { addr, rkey }).unwrap();
    batch.send_inline(3, b"written").unwrap();
    batch.ring();
    assert_eq!([end.done().id, end.done().id], [2, 3]);
    let qp = connection.disconnect(LIMIT).unwrap();
    assert_eq!(qp.state(), QpState::Error);
    assert_eq!(server.join().unwrap().state(), QpState::Error);
}

/// The reason and the private data of a refusal.
fn rejected(error: Error) -> (i32, Vec<u8>) {
    let Error::Connection(error) = error else { panic!("{error:?}") };
    match error.kind {
        ConnectionErrorKind::Rejected { reason, private_data } => (reason, private_data),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_port_where_nobody_listens_refuses() {
    let Some((device, ip)) = device_with_address() else { return };
    let (listener, addr) = listener(&device, ip);
    drop(listener);
    let route = resolve(&device, addr);
    let end = End::on(&route.device().unwrap());
    let refused = route.connect(end.queue_pair(), &Param::default()).unwrap_err();
    assert_eq!(refused.error.to_errno(), Errno::ECONNREFUSED);
    let text = refused.error.to_string();
    assert!(text.starts_with(&format!("{addr}: ")), "{text}");
    let (error, qp) = refused.into_parts();
    let (reason, _) = rejected(error);
    // iWARP has no reject reasons: TCP reports an errno.
    let refused_by_tcp = -Errno::ECONNREFUSED.raw();
    assert_eq!(reason, if is_siw() { refused_by_tcp } else { ConnectionErrorKind::NO_LISTENER });
    // The queue pair is there to be tried again.
    assert_eq!(qp.state(), QpState::Init);
}

#[test]
fn a_program_that_refuses_says_why() {
    let Some((device, ip)) = device_with_address() else { return };
    let (listener, addr) = listener(&device, ip);
    let server = thread::spawn(move || {
        listener.next(LIMIT).unwrap().reject(b"full").unwrap();
        // A request that is dropped is refused, too.
        drop(listener.next(LIMIT).unwrap());
        listener
    });
    let consumer = if is_siw() { -Errno::ECONNRESET.raw() } else { ConnectionErrorKind::CONSUMER };
    for wanted in [&b"full"[..], b""] {
        let route = resolve(&device, addr);
        let end = End::on(&route.device().unwrap());
        let refused = route.connect(end.queue_pair(), &Param::default()).unwrap_err();
        let (reason, private_data) = rejected(refused.error);
        assert_eq!(reason, consumer);
        assert!(is_private_data(&private_data, wanted), "{private_data:?}");
    }
    drop(server.join().unwrap());
}

#[test]
fn an_address_that_leads_nowhere_is_an_error_within_the_limit() {
    let Some((device, ip)) = device_with_address() else { return };
    let IpAddr::V4(ip) = ip else { unreachable!("it is an IPv4 address") };
    let [a, b, c, _] = ip.octets();
    let nobody = SocketAddr::new(Ipv4Addr::new(a, b, c, 199).into(), 7471);
    let start = Instant::now();
    let route = Connector::new(nobody).limit(Duration::from_millis(500));
    // The software HCA asks no neighbour: its first message is the one without an answer.
    let error = match route.resolve_on(channel(&device)) {
        Ok(route) => {
            let end = End::on(&device);
            route.connect(end.queue_pair(), &Param::default()).unwrap_err().error
        }
        Err(error) => error,
    };
    assert!(start.elapsed() < LIMIT);
    assert!(matches!(error, Error::Connection(_) | Error::TimedOut { .. }), "{error:?}");
    assert_eq!(error.to_errno(), Errno::ETIMEDOUT, "{error}");
    let text = error.to_string();
    assert!(text.contains(&nobody.to_string()) && text.contains("within 500ms"), "{text}");
    // Source address of another machine.
    let error = bind(&device, nobody).unwrap_err();
    assert_eq!(error.to_errno(), Errno::EADDRNOTAVAIL, "{error}");
    // iWARP's GIDs have no address; then there is no hint.
    let own = device.addresses().unwrap().first().map(ToString::to_string);
    let hints = |error: &Error| own.as_ref().is_some_and(|own| error.to_string().contains(own));
    assert_eq!(hints(&error), own.is_some(), "{error}");
    // The hint is not for a port that is taken.
    let (_listener, addr) = listener(&device, "0.0.0.0".parse().unwrap());
    let taken = bind(&device, addr).unwrap_err();
    assert!(!hints(&taken), "{taken}");
}

/// InfiniBand ports only: RoCE, iWARP and the software HCA's connection manager have IP addresses,
/// and Linux answers `ENODEV`.
#[test]
fn an_infiniband_address_is_of_no_ethernet_port() {
    let Some((device, _)) = device_with_address() else { return };
    let channel = channel(&device);
    let gid = device.open().unwrap().query_gid_table().unwrap()[0].gid;
    let addr = IbAddr::new(gid).port(PortSpace::Tcp, 0);
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    assert_eq!((id.local_ib_addr().unwrap(), id.peer_ib_addr().unwrap()), (None, None));
    let error = id.bind_ib(&addr).unwrap_err();
    assert_eq!((error.verb(), error.to_errno()), (Some("rdma_bind_addr"), Errno::ENODEV));
    let builder = Listener::builder_ib(addr).limit(LIMIT);
    let error = builder.listen_on(EventChannel::of(&device).unwrap()).unwrap_err();
    assert_eq!((error.verb(), error.to_errno()), (Some("rdma_bind_addr"), Errno::ENODEV));
    // Over RoCE Linux begins to connect, and reports the failure by an event.
    if std::env::var_os("UVERBS_TEST_DEVICE").is_some() && !is_siw() {
        return;
    }
    let to = addr.port(PortSpace::Tcp, 7471);
    let error = id.resolve_ib_addr(None, &to, LIMIT).unwrap_err();
    assert_eq!((error.verb(), error.to_errno()), (Some("rdma_resolve_addr"), Errno::ENODEV));
    assert_eq!(id.port().unwrap(), 0);
    let connector = Connector::to_ib(to).from_ib(addr).limit(LIMIT);
    let error = connector.resolve_on(EventChannel::of(&device).unwrap()).unwrap_err();
    assert_eq!((error.verb(), error.to_errno()), (Some("rdma_resolve_addr"), Errno::ENODEV));
}

/// Ports of both families and of all addresses (`cma.c:cma_check_port`).
#[test]
fn ports_are_taken_as_linux_takes_them() {
    let Some((device, ip)) = device_with_address() else { return };
    let channel = channel(&device);
    let bound = |ip: IpAddr, port: u16, v6_only: bool| {
        let id = channel.create_id(PortSpace::Tcp).unwrap();
        if v6_only {
            id.set_v6_only(true).unwrap();
        }
        id.bind(SocketAddr::new(ip, port)).map(|()| id).map_err(|error| error.to_errno())
    };
    let any: [IpAddr; 2] = [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()];
    let ipv4 = bound(any[0], 0, false).unwrap();
    let port = ipv4.local_addr().unwrap().unwrap().port();
    assert_eq!(bound(any[1], port, false).unwrap_err(), Errno::EADDRNOTAVAIL);
    let ipv6 = bound(any[1], port, true).unwrap();
    assert_eq!(bound(ip, port, false).unwrap_err(), Errno::EADDRNOTAVAIL);
    drop(ipv4);
    let _own = bound(ip, port, false).unwrap();
    assert_eq!(bound(ip, port, false).unwrap_err(), Errno::EADDRINUSE);
    assert_eq!(bound(any[0], port, false).unwrap_err(), Errno::EADDRNOTAVAIL);
    drop(ipv6);
    assert_eq!(bound(any[1], port, false).unwrap_err(), Errno::EADDRNOTAVAIL);
}

#[test]
fn an_address_is_one_listeners() {
    let Some((device, ip)) = device_with_address() else { return };
    let (first, addr) = listener(&device, ip);
    let error = bind(&device, addr).unwrap_err();
    assert_eq!(error.to_errno(), Errno::EADDRINUSE);
    assert!(error.to_string().contains("another listener"), "{error}");
    drop(first);
    drop(bind(&device, addr).expect("it is free again"));
}

/// A connection that came to a listener holds no port, whatever becomes of the listener.
#[test]
fn connections_leave_their_listeners_port() {
    let Some((device, ip)) = device_with_address() else { return };
    let (listener, addr) = listener(&device, ip);
    let server = thread::spawn(move || {
        let request = listener.next(LIMIT).unwrap();
        let end = End::on(&request.device().unwrap());
        let mut qp = end.queue_pair();
        request.init(&mut qp).unwrap();
        (request.accept(qp, &Param::default()).unwrap(), end, listener)
    });
    let client = connect(&device, addr, &Param::default());
    let (connection, end, listener) = server.join().unwrap();
    drop(listener);
    drop(bind(&device, addr).expect("it is free again"));
    drop((client, connection, end));
}

#[test]
fn every_wait_has_a_limit() {
    let Some((device, ip)) = device_with_address() else { return };
    let (listener, addr) = listener(&device, ip);
    let short = Duration::from_millis(50);
    assert!(matches!(listener.next(short), Err(Error::TimedOut { .. })));
    assert!(listener.try_next().unwrap().is_none());
    // A listener that doesn't answer.
    let route =
        Connector::new(addr).limit(Duration::from_secs(1)).resolve_on(channel(&device)).unwrap();
    let end = End::on(&route.device().unwrap());
    let refused = route.connect(end.queue_pair(), &Param::default()).unwrap_err();
    assert!(matches!(refused.error, Error::TimedOut { .. }), "{}", refused.error);
    // Whoever asked has given up since: accepting ends in an error, and not in a wait for ever.
    let request = Listener::next(&listener, LIMIT).unwrap();
    let there = End::on(&request.device().unwrap());
    let refused = request.accept(there.queue_pair(), &Param::default()).unwrap_err();
    assert!(
        matches!(
            refused.error,
            Error::Connection(_) | Error::Kernel { .. } | Error::TimedOut { .. }
        ),
        "{}",
        refused.error
    );
}

#[test]
fn a_peer_that_dies_is_noticed() {
    let Some((device, ip)) = device_with_address() else { return };
    let (listener, addr) = listener(&device, ip);
    let (tell, told) = mpsc::channel();
    let server = serve(listener, Param::default(), move |_, mut connection| {
        tell.send(()).unwrap();
        // The connection's file becomes readable for an event loop, too.
        let mut files = [PollFd::new(connection.as_fd(), PollFlags::POLLIN)];
        let limit = PollTimeout::try_from(LIMIT).unwrap();
        assert_eq!(poll(&mut files, limit), Ok(1), "nothing came");
        assert!(connection.is_closed(Duration::ZERO).unwrap());
    });
    let (_end, connection) = connect(&device, addr, &Param::default());
    told.recv_timeout(LIMIT).unwrap();
    // No word of farewell: the kernel says it when the id goes.
    drop(connection);
    server.join().unwrap();
}

#[test]
fn connections_come_and_go() {
    // `siw_accept` answers the peer before it looks at what the peer sends.
    if not_on_siw("its kernel may overlook the first message until there is another one") {
        return;
    }
    let Some((device, ip)) = device_with_address() else { return };
    let (listener, addr) = listener(&device, ip);
    const ROUNDS: usize = 60;
    let server = thread::spawn(move || {
        let mut end = None;
        for _ in 0..ROUNDS {
            let request = listener.next(LIMIT).unwrap();
            let end: &mut End = end.get_or_insert_with(|| End::on(&request.device().unwrap()));
            let mut qp = end.queue_pair();
            request.init(&mut qp).unwrap();
            qp.post_recv(1, end.pd.slab(16, 1).unwrap().take().unwrap()).unwrap();
            let mut connection = request.accept(qp, &Param::default()).unwrap();
            assert_eq!(&end.done().frame.unwrap()[..], b"one word");
            assert!(connection.is_closed(LIMIT).unwrap());
        }
    });
    for _ in 0..ROUNDS {
        let (mut end, mut connection) = connect(&device, addr, &Param::default());
        connection.queue_pair().post_send_inline(1, b"one word").unwrap();
        end.done();
        connection.disconnect(LIMIT).unwrap();
    }
    server.join().unwrap();
}

#[test]
fn many_connections_stand_at_once() {
    let Some((device, ip)) = device_with_address() else { return };
    let (listener, addr) = listener(&device, ip);
    const COUNT: usize = 24;
    let server = thread::spawn(move || {
        let mut held = Vec::new();
        for _ in 0..COUNT {
            let request = listener.next(LIMIT).unwrap();
            let end = End::on(&request.device().unwrap());
            let connection = request.accept(end.queue_pair(), &Param::default()).unwrap();
            held.push((end, connection));
        }
        for (_, connection) in &mut held {
            assert!(connection.is_closed(LIMIT).unwrap());
        }
    });
    let clients: Vec<_> = (0..COUNT).map(|_| connect(&device, addr, &Param::default())).collect();
    for (_, connection) in clients {
        connection.disconnect(LIMIT).unwrap();
    }
    server.join().unwrap();
}

#[test]
fn devices_on_the_network_connect_by_their_addresses() {
    if !common::only_on_softhca("the devices are the test's own") {
        return;
    }
    let Ok(there) = SoftHca::builder().udp(Udp::loopback()).build() else {
        return skip("no socket on the loopback network");
    };
    let here = SoftHca::builder().udp(Udp::loopback()).build().unwrap();
    let (here, there) = (common::soft(&here), common::soft(&there));
    let ip = there.addresses().unwrap()[0];
    let (listener, addr) = listener(&there, ip);
    let server = serve(listener, Param::default(), |end, mut connection| {
        assert_eq!(&end.done().frame.unwrap()[..], b"over the network");
        assert!(connection.is_closed(LIMIT).unwrap());
    });
    let (mut end, mut connection) = connect(&here, addr, &Param::default());
    connection.queue_pair().post_send_inline(1, b"over the network").unwrap();
    end.done();
    connection.disconnect(LIMIT).unwrap();
    server.join().unwrap();
}

/// A connection manager's message is on the wire when the call returns: the program and its device
/// may end right after.
#[test]
fn the_last_word_of_a_program_goes_before_it_ends() {
    if !common::only_on_softhca("the devices are the test's own") {
        return;
    }
    let Ok(there) = SoftHca::builder().udp(Udp::loopback()).build() else {
        return skip("no socket on the loopback network");
    };
    // This device runs only when stepped, and is never stepped.
    let here = SoftHca::builder().udp(Udp::loopback()).stepped().build().unwrap();
    let (here, there) = (common::soft(&here), common::soft(&there));
    let ip = there.addresses().unwrap()[0];
    let (listener, addr) = listener(&there, ip);
    let route = resolve(&here, addr);
    route.id().connect(0x1234, &Param::default()).unwrap();
    assert_eq!(listener.next(LIMIT).unwrap().details().qpn, 0x1234);
}

#[test]
fn datagram_peers_find_each_other_event_by_event() {
    if not_on_siw("iWARP has no datagrams") {
        return;
    }
    let Some((device, ip)) = device_with_address() else { return };
    let expect = |channel: &EventChannel, kind| channel.next(LIMIT).unwrap().expect(kind).unwrap();
    let (there, here) = (channel(&device), channel(&device));
    let waits = there.create_id(PortSpace::Udp).unwrap();
    waits.bind(SocketAddr::new(ip, 0)).unwrap();
    waits.listen(4).unwrap();
    let addr = waits.local_addr().unwrap().unwrap();

    let asks = here.create_id(PortSpace::Udp).unwrap();
    asks.resolve_addr(None, addr, LIMIT).unwrap();
    let resolved = expect(&here, EventKind::AddressResolved);
    assert_eq!(resolved.key(), asks.key());
    asks.resolve_route(LIMIT).unwrap();
    expect(&here, EventKind::RouteResolved);
    asks.connect(0, &Param { private_data: b"who is there?".to_vec(), ..Param::default() })
        .unwrap();

    let mut request = expect(&there, EventKind::ConnectRequest);
    assert_eq!(request.key(), waits.key());
    assert!(request.datagram().private_data.starts_with(b"who is there?"));
    let id = request.take_request().unwrap();
    let mut server = End::on(&id.device().unwrap());
    let mut qp: QueuePair<_, Ud> =
        server.context.queue_pair(&server.pd, &server.cq).ud().build().unwrap();
    id.bring_up_datagrams(&mut qp).unwrap();
    qp.post_recv(5, server.pd.slab(GRH_LEN + 64, 1).unwrap().take().unwrap()).unwrap();
    id.accept(qp.qpn(), &Param::default()).unwrap();

    let answer = expect(&here, EventKind::Established).datagram();
    assert_eq!(answer.qpn, qp.qpn());
    let mut client = End::on(&asks.device().unwrap());
    let mut sender: QueuePair<_, Ud> =
        client.context.queue_pair(&client.pd, &client.cq).ud().build().unwrap();
    asks.bring_up_datagrams(&mut sender).unwrap();
    let ah = client.context.create_ah(&client.pd, &answer.ah).unwrap();
    let to = ah.to(answer.qpn, answer.qkey);
    let mut batch = sender.batch();
    batch.send_inline_to(1, b"a datagram", &to).unwrap();
    batch.ring();
    client.done();
    let received = server.done();
    assert_eq!(received.sender.qpn(), sender.qpn());
    assert_eq!(&received.frame.unwrap()[GRH_LEN..], b"a datagram");
}
