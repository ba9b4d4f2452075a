//! iWARP only: a READ that the peer does not serve. Linux's software iWARP would stall on it for
//! ever, so the post is refused.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::thread;

use common::{LIMIT, device_with_address, is_siw, skip};
use uverbs::cm::{Connection, Connector, EventChannel, EventKind, Listener, Param};
use uverbs::unstable::doors::cm::{CmCommand, CmDoor};
use uverbs::{Context, Device, Errno, PostError, ProtectionDomain, QueuePair, Remote};

/// Somewhere in the peer's memory: no READ gets there.
const SOMEWHERE: Remote = Remote { addr: 0x1000, rkey: 7 };

/// A connection manager that changes events: peers of established connections serve no READs.
#[derive(Debug)]
struct Unserved(Arc<dyn CmDoor>);

impl CmDoor for Unserved {
    fn command(&self, command: CmCommand<'_>) -> Result<(), Errno> {
        // `struct rdma_ucm_event_resp`: the event, and the parameters' responder resources.
        const GET_EVENT: u32 = 12;
        const EVENT: usize = 12;
        const RESPONDER_RESOURCES: usize = 20 + 266;
        const ESTABLISHED: u8 = 9;
        let CmCommand { number, request, mut answer, value } = command;
        let room = answer.as_deref_mut();
        self.0.command(CmCommand { number, request, answer: room, value })?;
        if let Some(event) =
            answer.filter(|event| number == GET_EVENT && event[EVENT] == ESTABLISHED)
        {
            assert_ne!(event[RESPONDER_RESOURCES], 0, "the peer serves some");
            event[RESPONDER_RESOURCES] = 0;
        }
        Ok(())
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.0.file()
    }
}

/// One side: a queue pair with its parents.
fn end(device: &Device) -> (QueuePair, ProtectionDomain, Context) {
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    (context.queue_pair(&pd, &cq).build().unwrap(), pd, context)
}

/// Posts a READ and returns the result.
fn read(qp: &mut QueuePair, pd: &ProtectionDomain) -> Result<(), PostError> {
    let frame = pd.slab(8, 1).unwrap().take().unwrap();
    let mut batch = qp.batch();
    batch.read(1, frame, SOMEWHERE).map_err(PostError::from)
}

/// A server's queue pair, by calls that wait and event by event; the client serves no READs.
#[test]
fn a_server_knows_that_its_client_serves_no_reads() {
    if !is_siw() {
        return skip("other devices fail such a READ by a completion");
    }
    let Some((device, ip)) = device_with_address() else { return };
    let channel = || EventChannel::of(&device).unwrap();
    let listener = Listener::builder((ip, 0).into()).limit(LIMIT).listen_on(channel()).unwrap();
    let addr = listener.local_addr().unwrap().unwrap();
    let there = device.clone();
    let client = thread::spawn(move || {
        let none = Param { responder_resources: Some(0), ..Param::default() };
        let connect = |param: &Param| -> Connection {
            let channel = EventChannel::of(&there).unwrap();
            let route = Connector::new(addr).limit(LIMIT).resolve_on(channel).unwrap();
            let (qp, ..) = end(&there);
            route.connect(qp, param).unwrap()
        };
        let all = [&none, &none, &Param::default()].map(connect);
        for mut connection in all {
            assert!(connection.is_closed(LIMIT).unwrap());
        }
    });
    let request = listener.next(LIMIT).unwrap();
    assert_eq!(request.details().initiator_depth, 0);
    let (qp, pd, _context) = end(&device);
    let mut waited = request.accept(qp, &Param::default()).unwrap();
    assert_eq!(read(waited.queue_pair(), &pd), Err(PostError::NoReads));

    // The numbers that the program gives here are more than the client serves.
    let request = listener.next(LIMIT).unwrap();
    let (mut qp, pd, _context) = end(&device);
    let id = request.id();
    id.ready(&mut qp, 1, 1).unwrap();
    let one = Param { initiator_depth: Some(1), responder_resources: Some(1), ..Param::default() };
    id.accept(qp.qpn(), &one).unwrap();
    assert_eq!(read(&mut qp, &pd), Err(PostError::NoReads));
    let event = listener.id().channel().next(LIMIT).unwrap().expect(EventKind::Established);
    drop((event.unwrap(), request, qp));

    // A READ may be posted to a peer that serves READs.
    let request = listener.next(LIMIT).unwrap();
    let (qp, pd, _context) = end(&device);
    let mut serves = request.accept(qp, &Param::default()).unwrap();
    assert_eq!(read(serves.queue_pair(), &pd), Ok(()));
    drop((waited, serves));
    client.join().unwrap();
}

/// siw's acceptance always serves the requested READs (`siw_cm.c`, `siw_accept`). Other devices may
/// not, so the test changes the event.
#[test]
fn a_client_knows_that_its_server_serves_no_reads() {
    if !is_siw() {
        return skip("other devices fail such a READ by a completion");
    }
    let Some((device, ip)) = device_with_address() else { return };
    let channel = EventChannel::of(&device).unwrap();
    let listener = Listener::builder((ip, 0).into()).limit(LIMIT).listen_on(channel).unwrap();
    let addr = listener.local_addr().unwrap().unwrap();
    let there = device.clone();
    let server = thread::spawn(move || {
        for _ in 0..2 {
            let (qp, ..) = end(&there);
            let request = listener.next(LIMIT).unwrap();
            let mut connection = request.accept(qp, &Param::default()).unwrap();
            assert!(connection.is_closed(LIMIT).unwrap());
        }
    });
    let door = || device.source().open_cm().unwrap();
    for (door, wanted) in
        [(Arc::new(Unserved(door())) as Arc<dyn CmDoor>, Err(PostError::NoReads)), (door(), Ok(()))]
    {
        let channel = EventChannel::from_door(door);
        let route = Connector::new(addr).limit(LIMIT).resolve_on(channel).unwrap();
        let (qp, pd, _context) = end(&device);
        let mut connection = route.connect(qp, &Param::default()).unwrap();
        assert_eq!(read(connection.queue_pair(), &pd), wanted);
    }
    server.join().unwrap();
}
