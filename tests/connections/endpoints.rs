//! Endpoints: the synchronous style of `rdma_verbs.h` over the connection manager.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use common::{LIMIT, device_with_address, is_private_data};
use uverbs::cm::{
    AddressInfo, ConnectionErrorKind, Endpoint, EndpointListener, EventChannel, Lookup,
    NewEndpoint, Param, PortSpace,
};
use uverbs::{AccessFlags, Completed, Device, Error, PostError, QpCap, Remote};

fn sizes() -> QpCap {
    QpCap { max_send_wr: 4, max_recv_wr: 4, ..QpCap::default() }
}

fn listen(device: &Device, ip: IpAddr) -> (EndpointListener, AddressInfo) {
    let own = Lookup::new().passive().numeric().find(Some(&ip.to_string()), None).unwrap();
    let channel = EventChannel::of(device).unwrap();
    let listener = EndpointListener::listen_on(channel, &own[0], &sizes()).unwrap();
    let at = listener.listener().local_addr().unwrap();
    assert_ne!(at.unwrap().port(), 0);
    (listener, AddressInfo { space: PortSpace::Tcp, own: None, peer: at })
}

fn reach(device: &Device, to: &AddressInfo) -> NewEndpoint<uverbs::cm::Route> {
    NewEndpoint::to_on(EventChannel::of(device).unwrap(), to, &sizes(), LIMIT).unwrap()
}

fn received(endpoint: &mut Endpoint) -> Vec<u8> {
    let done = endpoint.recv_completion(LIMIT).unwrap();
    assert_eq!(done.result, Ok(Completed::Recv));
    done.frame.unwrap()[..done.byte_len as usize].to_vec()
}

#[test]
fn one_call_after_the_other() {
    let Some((device, ip)) = device_with_address() else { return };
    let (mut listener, at) = listen(&device, ip);
    let server = thread::spawn(move || {
        // Two clients, one after the other, on the same protection domain.
        let mut domains = Vec::new();
        for _ in 0..2 {
            let mut new = listener.next(LIMIT).unwrap();
            assert!(new.way().private_data().starts_with(b"please"));
            domains.push(new.pd().handle());
            let slab = new.pd().slab(64, 1).unwrap();
            new.queue_pair().post_recv(1, slab.take().unwrap()).unwrap();
            let mut endpoint = new.accept(&Param::default()).unwrap();
            assert_eq!(received(&mut endpoint), b"where may I write?");
            let memory = endpoint.pd().expose(64, AccessFlags::REMOTE_WRITE).unwrap();
            let at = memory.remote(0);
            let slab = endpoint.pd().slab(64, 1).unwrap();
            endpoint.queue_pair().post_recv(2, slab.take().unwrap()).unwrap();
            let place = format!("{} {}", at.addr, at.rkey);
            endpoint.queue_pair().post_send_inline(3, place.as_bytes()).unwrap();
            assert_eq!(endpoint.send_completion(LIMIT).unwrap().id, 3);
            // Behind its WRITE.
            assert_eq!(received(&mut endpoint), b"done");
            let mut there = [0; 6];
            memory.read(0, &mut there).unwrap();
            assert_eq!(&there, b"inside");
            assert!(endpoint.connection().is_closed(LIMIT).unwrap());
        }
        assert_eq!(domains[0], domains[1]);
    });
    for _ in 0..2 {
        let mut new = reach(&device, &at);
        let slab = new.pd().slab(64, 1).unwrap();
        new.queue_pair().post_recv(1, slab.take().unwrap()).unwrap();
        let param = Param { private_data: b"please".to_vec(), ..Param::default() };
        let mut endpoint = new.connect(&param).unwrap();
        endpoint.queue_pair().post_send_inline(2, b"where may I write?").unwrap();
        assert_eq!(endpoint.send_completion(LIMIT).unwrap().result, Ok(Completed::Send));
        let told = String::from_utf8(received(&mut endpoint)).unwrap();
        let (addr, rkey) = told.split_once(' ').unwrap();
        let to = Remote { addr: addr.parse().unwrap(), rkey: rkey.parse().unwrap() };
        endpoint.queue_pair().post_write_inline(3, b"inside", to).unwrap();
        endpoint.queue_pair().post_send_inline(4, b"done").unwrap();
        for id in [3, 4] {
            assert_eq!(endpoint.send_completion(LIMIT).unwrap().id, id);
        }
        endpoint.disconnect(LIMIT).unwrap();
    }
    server.join().unwrap();
}

#[test]
fn what_goes_wrong_is_told_within_its_limit() {
    let Some((device, ip)) = device_with_address() else { return };
    let (mut listener, at) = listen(&device, ip);
    let short = Duration::from_millis(50);
    assert!(matches!(listener.next(short), Err(Error::TimedOut { .. })));
    // Each side's address is of no use to the other.
    let own = AddressInfo { own: Some(SocketAddr::new(ip, 0)), peer: None, ..at };
    let channel = || EventChannel::of(&device).unwrap();
    let error = NewEndpoint::to_on(channel(), &own, &sizes(), LIMIT).map(drop).unwrap_err();
    assert!(matches!(error, Error::Invalid { verb: "rdma_create_ep", .. }), "{error}");
    let error = EndpointListener::listen_on(channel(), &at, &sizes()).map(drop).unwrap_err();
    assert!(error.to_string().contains("a server needs"), "{error}");
    // A server that says no.
    let server = thread::spawn(move || {
        listener.next(LIMIT).unwrap().reject(b"no").unwrap();
        listener.next(LIMIT).unwrap().accept(&Param::default()).unwrap()
    });
    let error = reach(&device, &at).connect(&Param::default()).unwrap_err();
    let Error::Connection(error) = error else { panic!("{error}") };
    let ConnectionErrorKind::Rejected { private_data, .. } = error.kind else { panic!("{error}") };
    assert!(is_private_data(&private_data, b"no"));
    // A peer that sends no answer, a queue that is full, a peer that goes.
    let mut endpoint = reach(&device, &at).connect(&Param::default()).unwrap();
    let peer = server.join().unwrap();
    assert!(matches!(endpoint.recv_completion(short), Err(Error::TimedOut { .. })));
    let slab = endpoint.pd().slab(16, 1024).unwrap();
    let full = loop {
        let frame = slab.take().expect("the queue has less room than the slab has frames");
        if let Err(rejected) = endpoint.queue_pair().post_recv(9, frame) {
            break rejected.error;
        }
    };
    assert_eq!(full, PostError::Full);
    drop(peer);
    assert!(endpoint.connection().is_closed(LIMIT).unwrap());
    endpoint.disconnect(LIMIT).unwrap();
    let all: Vec<_> = std::iter::from_fn(|| slab.take()).collect();
    assert_eq!(all.len(), 1024, "what was outstanding came back");
}
