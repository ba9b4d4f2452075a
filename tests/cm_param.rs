//! What two sides tell each other when they connect: shared receive queues, vendors' options, port
//! spaces.

mod common;

use std::net::{IpAddr, SocketAddr};
use std::thread;

use common::{LIMIT, device_with_address, done};
use uverbs::cm::{
    ConnectionError, Connector, Ece, EventChannel, EventKind, Listener, Param, PortSpace,
};
use uverbs::{Device, Errno, Error, Refused};

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
        assert_eq!(request.details().ece, Ece::default(), "nothing was said");
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
    let Error::Connection(ConnectionError::Rejected { reason, private_data }) = error else {
        panic!("{error:?}")
    };
    assert_eq!(reason, ConnectionError::VENDOR_OPTIONS);
    assert!(private_data.starts_with(b"none of these\0"));
    route().connect(qp(), &Param::default()).map(drop).unwrap_err();
    server.join().unwrap();
    // The number has 24 bits in the messages.
    let param = Param { ece: Ece { vendor: 1 << 24, options: 0 }, ..Param::default() };
    let error = route().id().connect(1, &param).unwrap_err();
    assert!(matches!(error, Error::Limit { limit: 0xff_ffff, .. }), "{error}");
}

/// A port of one space is another's, too, and a request comes to the listener of its space.
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
    // Of datagrams no connection is made.
    for space in [PortSpace::Udp, PortSpace::Ipoib] {
        let channel = EventChannel::of(&device).unwrap();
        let error = connector(addr).port_space(space).resolve_on(channel).unwrap_err();
        assert_eq!(error.to_errno(), Errno::EINVAL);
        assert!(error.to_string().contains("port space"), "{error}");
    }
}
