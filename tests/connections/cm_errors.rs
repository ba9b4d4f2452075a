//! Errors of the connection manager that name a limit, or the call that is missing.

use std::net::{IpAddr, SocketAddr};
use std::thread;

use common::{LIMIT, device_with_address, is_siw};
use uverbs::cm::{Connector, EventChannel, Listener, Param, PortSpace, Route};
use uverbs::{Device, Error, QueuePair};

fn listening(device: &Device, ip: IpAddr) -> (Listener, SocketAddr) {
    let builder = Listener::builder(SocketAddr::new(ip, 0)).limit(LIMIT);
    let listener = builder.listen_on(EventChannel::of(device).unwrap()).unwrap();
    let addr = listener.local_addr().unwrap().unwrap();
    (listener, addr)
}

fn resolve(device: &Device, to: SocketAddr) -> Route {
    Connector::new(to).limit(LIMIT).resolve_on(EventChannel::of(device).unwrap()).unwrap()
}

fn queue_pair(device: &Device) -> QueuePair {
    let context = device.open().unwrap();
    let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(256).unwrap());
    context.queue_pair(&pd, &cq).build().unwrap()
}

#[test]
fn private_data_has_a_limit() {
    let Some((device, ip)) = device_with_address() else { return };
    let (_listener, addr) = listening(&device, ip);
    // iWARP has room for more than the command.
    let tried = if is_siw() { &[256][..] } else { &[57, 256] };
    for &len in tried {
        let route = resolve(&device, addr);
        let qp = queue_pair(&route.device().unwrap());
        let param = Param { private_data: vec![1; len], ..Param::default() };
        let refused = route.connect(qp, &param).unwrap_err();
        let most = if len == 57 { 56 } else { 255 };
        let (verb, what, value) = ("rdma_connect", "length of the private data", len as u64);
        let limit = match refused.error {
            Error::Limit { verb: a, what: b, value: c, limit }
                if (a, b, c) == (verb, what, value) =>
            {
                limit
            }
            error => panic!("{len}: {error}"),
        };
        assert_eq!(limit, most);
    }
    // An answer has more room.
    if is_siw() {
        return;
    }
    let (listener, addr) = listening(&device, ip);
    let server = thread::spawn(move || {
        let request = listener.next(LIMIT).unwrap();
        let qp = queue_pair(&request.device().unwrap());
        let param = Param { private_data: vec![1; 197], ..Param::default() };
        request.accept(qp, &param).unwrap_err().error
    });
    let client = resolve(&device, addr).connect(queue_pair(&device), &Param::default());
    assert!(client.is_err());
    let error = server.join().unwrap();
    assert!(matches!(error, Error::Limit { value: 197, limit: 196, .. }), "{error}");
    let (listener, addr) = listening(&device, ip);
    let server = thread::spawn(move || listener.next(LIMIT).unwrap().reject(&[1; 149]));
    let client = resolve(&device, addr).connect(queue_pair(&device), &Param::default());
    assert!(client.is_err());
    let error = server.join().unwrap().unwrap_err();
    assert!(matches!(error, Error::Limit { value: 149, limit: 148, .. }), "{error}");
}

/// An id learns its device by an address, and calls need the events before them.
#[test]
fn calls_out_of_order_say_what_comes_first() {
    let Some((device, ip)) = device_with_address() else { return };
    let channel = EventChannel::of(&device).unwrap();
    let id = channel.create_id(PortSpace::Tcp).unwrap();
    let error = id.device().unwrap_err().to_string();
    assert!(error.contains("bind the id"), "{error}");
    let error = id.resolve_route(LIMIT).unwrap_err().to_string();
    assert!(error.contains("AddressResolved"), "{error}");
    let error = id.connect(1, &Param::default()).unwrap_err().to_string();
    assert!(error.contains("RouteResolved"), "{error}");
    id.bind(SocketAddr::new(ip, 0)).unwrap();
    assert_eq!(id.device().unwrap().name(), device.name());
}
