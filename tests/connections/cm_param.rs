//! Parameters that two sides exchange when they connect: shared receive queues, vendors' options,
//! port spaces.

use std::net::{IpAddr, SocketAddr};
use std::thread;

use common::{LIMIT, device, device_with_address, done, not_on_siw, skip};
use uverbs::cm::{
    ConnectionErrorKind, Connector, Ece, EventChannel, EventKind, IbAddr, Listener, Param,
    PathRecord, PortSpace,
};
use uverbs::softhca::SoftHca;
use uverbs::{Device, Errno, Error, Gid, LinkLayer, Mtu, Refused};

fn listen(device: &Device, ip: IpAddr, space: PortSpace) -> (Listener, SocketAddr) {
    let builder = Listener::builder((ip, 0).into()).port_space(space).limit(LIMIT);
    let listener = builder.listen_on(EventChannel::of(device).unwrap()).unwrap();
    let addr = listener.local_addr().unwrap().unwrap();
    (listener, addr)
}

fn connector(to: SocketAddr) -> Connector {
    Connector::new(to).limit(LIMIT)
}

/// Two connections of a server share its receives, and the clients are told so.
#[test]
fn ids_with_a_shared_receive_queue() {
    let Some((device, ip)) = device_with_address() else { return };
    let (listener, addr) = listen(&device, ip, PortSpace::Tcp);
    let there = device.clone();
    let server = thread::spawn(move || {
        let context = there.open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let mut cq = context.create_cq(512).unwrap();
        let mut srq = context.shared_receive_queue(&pd).max_wr(16).build().unwrap();
        let slab = pd.slab(64, 2).unwrap();
        for id in [1, 2] {
            srq.post(id, slab.take().unwrap()).unwrap();
        }
        let mut connections = Vec::new();
        for _ in 0..2 {
            let request = listener.next(LIMIT).unwrap();
            assert!(!request.details().srq, "the clients have none");
            let qp = context.queue_pair(&pd, &cq).shared_receives(&srq).build().unwrap();
            connections.push(request.accept(qp, &Param::default()).unwrap());
        }
        let mut said: Vec<_> = (0..2).map(|_| done(&mut cq).frame.unwrap().to_vec()).collect();
        said.sort();
        assert_eq!(said, [b"from 0", b"from 1"]);
        for mut connection in connections {
            assert!(connection.is_closed(LIMIT).unwrap());
        }
    });
    let mut clients = Vec::new();
    for _ in 0..2 {
        // Call by call, since there the answer is seen.
        let channel = EventChannel::of(&device).unwrap();
        let route = connector(addr).resolve_on(channel).unwrap();
        let context = route.device().unwrap().open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        let mut qp = context.queue_pair(&pd, &cq).build().unwrap();
        route.init(&mut qp).unwrap();
        let id = route.id();
        id.connect(qp.qpn(), &Param::default()).unwrap();
        let answer = id.channel().next(LIMIT).unwrap().expect(EventKind::ConnectResponse).unwrap();
        assert!(answer.connection().srq, "the server has one");
        id.ready(&mut qp, 1, 1).unwrap();
        id.establish().unwrap();
        clients.push((route, qp, cq));
    }
    for (number, (_, qp, cq)) in clients.iter_mut().enumerate() {
        qp.post_send_inline(9, format!("from {number}").as_bytes()).unwrap();
        assert_eq!(done(cq).id, 9);
    }
    drop(clients);
    server.join().unwrap();
}

/// Event by event: a depth that the program gives goes out as it is, an open one is the device's,
/// as far as the peer wants it (librdmacm `cma.c`, `rdma_connect` and `rdma_accept`).
#[test]
fn open_depths_are_the_devices() {
    let Some((device, ip)) = device_with_address() else { return };
    let (listener, addr) = listen(&device, ip, PortSpace::Tcp);
    let context = device.open().unwrap();
    let attr = context.query_device().unwrap();
    let byte = |depth: u32| u8::try_from(depth).unwrap_or(u8::MAX);
    let able = (byte(attr.max_qp_rd_atom), byte(attr.max_qp_init_rd_atom));
    assert!(able.0 > 2 && able.1 > 2, "{able:?}");
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(256).unwrap());
    let open = Param::default();
    let given =
        Param { responder_resources: Some(1), initiator_depth: Some(2), ..Param::default() };
    for (asks, serves, wanted, granted) in
        [(&open, &open, able, able), (&given, &open, (1, 2), (1, 2)), (&open, &given, able, (2, 1))]
    {
        let mut ends = [0, 1].map(|_| context.queue_pair(&pd, &cq).build().unwrap());
        let [client, server] = &mut ends;
        let route = connector(addr).resolve_on(EventChannel::of(&device).unwrap()).unwrap();
        route.init(client).unwrap();
        route.id().connect(client.qpn(), asks).unwrap();

        // The listener sees the initiator depth as its own limit of outstanding READs, and vice
        // versa.
        let request = listener.next(LIMIT).unwrap();
        let heard = request.details();
        assert_eq!((heard.initiator_depth, heard.responder_resources), wanted);
        request.init(server).unwrap();
        request.id().ready(server, 1, 1).unwrap();
        request.id().accept(server.qpn(), serves).unwrap();
        let answer = route.id().channel().next(LIMIT).unwrap();
        let answer = answer.expect(EventKind::ConnectResponse).unwrap();
        let heard = answer.connection();
        assert_eq!((heard.responder_resources, heard.initiator_depth), granted);
    }
}

#[test]
fn vendors_options_go_both_ways() {
    let Some((device, ip)) = device_with_address() else { return };
    let (listener, addr) = listen(&device, ip, PortSpace::Tcp);
    let (asked, answered) =
        (Ece { vendor: 0x02_c9ff, options: 0x8000_0001 }, Ece { vendor: 0x02_c9ff, options: 1 });
    let server = thread::spawn(move || {
        let request = listener.next(LIMIT).unwrap();
        assert_eq!(request.details().ece, asked);
        let context = request.device().unwrap().open().unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(256).unwrap());
        let mut qp = context.queue_pair(&pd, &cq).build().unwrap();
        let id = request.id();
        id.ready(&mut qp, 1, 1).unwrap();
        id.accept(qp.qpn(), &Param { ece: answered, ..Param::default() }).unwrap();
        let request = listener.next(LIMIT).unwrap();
        assert_eq!(request.details().ece, asked);
        request.reject_options(b"none of these").unwrap();
        let request = listener.next(LIMIT).unwrap();
        let fresh = context.queue_pair(&pd, &cq).build().unwrap();
        assert_eq!(request.details().ece, fresh.ece(), "the device's own");
    });
    let route = || connector(addr).resolve_on(EventChannel::of(&device).unwrap()).unwrap();
    let param = Param { ece: asked, ..Param::default() };
    let first = route();
    first.id().connect(0x77, &param).unwrap();
    let answer = first.id().channel().next(LIMIT).unwrap();
    assert_eq!(answer.expect(EventKind::ConnectResponse).unwrap().connection().ece, answered);

    let context = device.open().unwrap();
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(512).unwrap());
    let qp = || context.queue_pair(&pd, &cq).build().unwrap();
    let error = route().connect(qp(), &param).map_err(Refused::into_error).unwrap_err();
    let Error::Connection(error) = error else { panic!("{error:?}") };
    let ConnectionErrorKind::Rejected { reason, private_data } = error.kind else {
        panic!("{error:?}")
    };
    assert_eq!(reason, ConnectionErrorKind::VENDOR_OPTIONS);
    assert!(private_data.starts_with(b"none of these\0"));
    route().connect(qp(), &Param::default()).map(drop).unwrap_err();
    server.join().unwrap();
    // The number has 24 bits in the messages.
    let param = Param { ece: Ece { vendor: 1 << 24, options: 0 }, ..Param::default() };
    let error = route().id().connect(1, &param).unwrap_err();
    assert!(matches!(error, Error::Limit { limit: 0xff_ffff, .. }), "{error}");
}

/// Port spaces have separate ports, and a request goes to the listener in its space.
#[test]
fn ports_are_of_their_space() {
    let Some((device, ip)) = device_with_address() else { return };
    let (listener, addr) = listen(&device, ip, PortSpace::Ib);
    let builder = Listener::builder(addr).limit(LIMIT);
    let of_tcp = builder.listen_on(EventChannel::of(&device).unwrap()).unwrap();
    let ask = |space| {
        let channel = EventChannel::of(&device).unwrap();
        let route = connector(addr).port_space(space).resolve_on(channel).unwrap();
        route.id().connect(0x77, &Param::default()).unwrap();
        route
    };
    let ib = ask(PortSpace::Ib);
    let request = listener.next(LIMIT).unwrap();
    assert_eq!(request.id().local_addr().unwrap(), Some(addr));
    assert!(of_tcp.try_next().unwrap().is_none());
    drop((ib, request));
    let tcp = ask(PortSpace::Tcp);
    drop(of_tcp.next(LIMIT).unwrap());
    drop(tcp);
    // Datagram port spaces make no connection.
    for space in [PortSpace::Udp, PortSpace::Ipoib] {
        let channel = EventChannel::of(&device).unwrap();
        let error = connector(addr).port_space(space).resolve_on(channel).unwrap_err();
        assert_eq!(error.to_errno(), Errno::EINVAL);
        assert!(error.to_string().contains("port space"), "{error}");
    }
}

/// A program that knows the path need not resolve it, and both sides use the given path.
#[test]
fn a_path_may_be_given() {
    let Some((device, ip)) = device_with_address() else { return };
    if not_on_siw("iWARP has no paths") {
        return;
    }
    let (listener, addr) = listen(&device, ip, PortSpace::Tcp);
    let channel = || EventChannel::of(&device).unwrap();
    let asked = connector(addr).resolve_on(channel()).unwrap();
    let found = asked.id().paths().unwrap();
    assert_eq!(found.len(), 1);
    let (own, peer) = asked.id().gids().unwrap();
    assert_eq!((found[0].sgid, found[0].dgid), (own, peer));
    let gids = device.open().unwrap().query_gid_table().unwrap();
    assert!(gids.iter().any(|entry| entry.gid == own));
    assert!(found[0].reversible && found[0].pkey == 0xffff);
    // No device has a smaller one, so it can't have come from elsewhere.
    assert_ne!(found[0].mtu, Mtu::Mtu256);
    let path = PathRecord { mtu: Mtu::Mtu256, ..found[0] };

    let there = device.clone();
    let server = thread::spawn(move || {
        let request = listener.next(LIMIT).unwrap();
        let of_request = request.id().paths().unwrap();
        assert_eq!((of_request.len(), of_request[0].mtu), (1, Mtu::Mtu256));
        let context = there.open().unwrap();
        let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(256).unwrap());
        let mut qp = context.queue_pair(&pd, &cq).build().unwrap();
        request.init(&mut qp).unwrap();
        qp.post_recv(1, pd.slab(1024, 1).unwrap().take().unwrap()).unwrap();
        let mut connection = request.accept(qp, &Param::default()).unwrap();
        assert_eq!(connection.queue_pair().query().unwrap().path_mtu, Mtu::Mtu256);
        assert_eq!(done(&mut cq).frame.unwrap().len(), 1000);
        assert!(connection.is_closed(LIMIT).unwrap());
    });
    let route = connector(addr).path(path).resolve_on(channel()).unwrap();
    assert_eq!(route.id().paths().unwrap(), [path]);
    let context = device.open().unwrap();
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(256).unwrap());
    let qp = context.queue_pair(&pd, &cq).build().unwrap();
    let mut connection = route.connect(qp, &Param::default()).unwrap();
    assert_eq!(connection.queue_pair().query().unwrap().path_mtu, Mtu::Mtu256);
    let mut frame = pd.slab(1000, 1).unwrap().take().unwrap();
    frame.fill(7);
    connection.queue_pair().post_send(2, frame).unwrap();
    assert_eq!(done(&mut cq).id, 2);
    drop(connection);
    server.join().unwrap();
}

/// A path comes between the address and the connection.
#[test]
fn a_path_has_its_time() {
    let Some((device, ip)) = device_with_address() else { return };
    if not_on_siw("iWARP has no paths") {
        return;
    }
    let (_listener, addr) = listen(&device, ip, PortSpace::Tcp);
    let channel = EventChannel::of(&device).unwrap();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    assert_eq!(id.gids().unwrap(), (Gid([0; 16]), Gid([0; 16])));
    let path = PathRecord::new(Gid([1; 16]), Gid([2; 16]));
    let refused = |error: Error| assert_eq!(error.to_errno(), Errno::EINVAL, "{error}");
    refused(id.set_path(&path).unwrap_err());
    id.resolve_addr(None, addr, LIMIT).unwrap();
    channel.next(LIMIT).unwrap().expect(EventKind::AddressResolved).unwrap();
    assert_eq!(id.paths().unwrap(), []);
    let (own, peer) = id.gids().unwrap();
    let path = PathRecord::new(own, peer);
    let error = id.set_path(&PathRecord { service_level: 16, ..path }).unwrap_err();
    assert!(matches!(error, Error::Limit { value: 16, limit: 15, .. }), "{error}");
    id.set_path(&path).unwrap();
    channel.next(LIMIT).unwrap().expect(EventKind::RouteResolved).unwrap();
    assert_eq!(id.paths().unwrap().len(), 1);
    refused(id.set_path(&path).unwrap_err());
    refused(id.resolve_route(LIMIT).unwrap_err());
}

/// IPoIB port space needs addresses of IPoIB interfaces, which Ethernet's are not.
#[test]
fn the_space_of_ipoib_is_infinibands() {
    let Some((device, ip)) = device_with_address() else { return };
    if not_on_siw("iWARP has no datagrams") {
        return;
    }
    let channel = EventChannel::of(&device).unwrap();
    let id = channel.create_id(PortSpace::Ipoib).unwrap();
    let error = id.bind((ip, 0).into()).unwrap_err();
    assert_eq!(error.to_errno(), Errno::EINVAL);
    assert!(error.to_string().contains("IPoIB"), "{error}");
    let id = channel.create_id(PortSpace::Ipoib).unwrap();
    id.resolve_addr(None, (ip, 7471).into(), LIMIT).unwrap();
    let event = channel.next(LIMIT).unwrap();
    assert_eq!((event.kind(), event.key()), (EventKind::AddressError, id.key()));
    assert_eq!(event.status(), -Errno::EINVAL.raw());
}

/// Connects without any IP address: both sides by the port's GID, on a path that the program knows.
#[test]
fn a_gid_is_an_address() {
    let device = device();
    let context = device.open().unwrap();
    let port = context.query_port(1).unwrap();
    if port.link_layer != LinkLayer::InfiniBand || device.index().is_none() {
        return skip("such addresses are those of Linux's InfiniBand ports");
    }
    let gid = context.query_gid_table().unwrap()[0].gid;
    let any = IbAddr::new(gid).port(PortSpace::Tcp, 0);
    let listener = Listener::builder_ib(any).limit(LIMIT).listen().unwrap();
    assert_eq!(listener.local_addr().unwrap(), None);
    let at = listener.id().local_ib_addr().unwrap().unwrap();
    assert_eq!((at.gid, at.service_mask), (gid, u64::MAX));
    assert_ne!(at.service_id & 0xffff, 0, "the system chose a port");
    let there = device.clone();
    let server = thread::spawn(move || {
        let request = listener.next(LIMIT).unwrap();
        // All that the message has room for is the program's.
        assert_eq!(request.private_data().len(), 92);
        assert!(request.private_data().starts_with(b"\0\0by GID\0"));
        assert_eq!(request.peer_addr().unwrap(), None);
        assert_eq!(request.id().peer_ib_addr().unwrap().unwrap().gid, gid);
        let context = there.open().unwrap();
        let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(256).unwrap());
        let mut qp = context.queue_pair(&pd, &cq).build().unwrap();
        request.init(&mut qp).unwrap();
        qp.post_recv(1, pd.slab(64, 1).unwrap().take().unwrap()).unwrap();
        let mut connection = request.accept(qp, &Param::default()).unwrap();
        assert_eq!(&done(&mut cq).frame.unwrap()[..], b"hello");
        assert!(connection.is_closed(LIMIT).unwrap());
    });
    let path = PathRecord { slid: port.lid, dlid: port.lid, ..PathRecord::new(gid, gid) };
    let route = Connector::to_ib(at).limit(LIMIT).path(path).resolve().unwrap();
    assert_eq!(route.device().unwrap().name(), device.name());
    assert_eq!(route.id().paths().unwrap()[0].dlid, port.lid);
    let (pd, mut cq) = (context.alloc_pd().unwrap(), context.create_cq(256).unwrap());
    let qp = context.queue_pair(&pd, &cq).build().unwrap();
    let param = Param { private_data: b"\0\0by GID".to_vec(), ..Param::default() };
    let mut connection = route.connect(qp, &param).unwrap();
    connection.queue_pair().post_send_inline(2, b"hello").unwrap();
    assert_eq!(done(&mut cq).id, 2);
    drop(connection);
    server.join().unwrap();

    // Source and destination of different address families have no route.
    let from: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let error = Connector::to_ib(at).from(from).resolve().unwrap_err();
    assert_eq!(error.to_errno(), Errno::EINVAL, "{error}");
}

/// The connection manager carries the options of both devices, which use those that they share.
#[test]
fn devices_agree_on_options_by_themselves() {
    if !common::only_on_softhca("devices with options of their own") {
        return;
    }
    const VERSION: u32 = 1 << 28;
    let fabric = uverbs::softhca::wire::Fabric::new();
    let device = |ece| {
        let hca = SoftHca::builder().fabric(&fabric).hca(|config| config.ece = ece);
        common::soft(&hca.build().unwrap())
    };
    for (client, server, agreed) in [
        (VERSION | 0b0110, VERSION | 0b1011, VERSION | 0b0010),
        (VERSION | 0b0110, VERSION | 0b0110, VERSION | 0b0110),
        (VERSION | 0b0110, 0, 0),
        (0, VERSION | 0b0110, 0),
    ] {
        let (client, server) = (device(client), device(server));
        let (listener, addr) = listen(&server, server.addresses().unwrap()[0], PortSpace::Tcp);
        let accepting = thread::spawn(move || {
            let context = server.open().unwrap();
            let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(256).unwrap());
            let qp = context.queue_pair(&pd, &cq).build().unwrap();
            let request = listener.next(LIMIT).unwrap();
            request.accept(qp, &Param::default()).unwrap()
        });
        let route = connector(addr).resolve_on(EventChannel::of(&client).unwrap()).unwrap();
        let context = client.open().unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(256).unwrap());
        let qp = context.queue_pair(&pd, &cq).build().unwrap();
        let mut here = route.connect(qp, &Param::default()).unwrap();
        let mut there = accepting.join().unwrap();
        if agreed != 0 {
            let found = [here.queue_pair().ece(), there.queue_pair().ece()];
            assert_eq!(found.map(|ece| ece.options), [agreed; 2]);
        }
    }
}
