//! Events that lie: of connections that share a channel, and of connection managers without a
//! kernel.

use std::fs::File;
use std::mem::offset_of;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::free;
use common::{LIMIT, device, device_with_address, done, local, only_on_softhca};
use uverbs::cm::{
    Connection, Connector, EventChannel, EventKind, Listener, Membership, Param, PortSpace,
};
use uverbs::unstable::doors::cm::{CmCommand, CmDoor};
use uverbs::{AccessFlags, Context, Errno, ProtectionDomain, QpState, QueuePair};
use uverbs_kernel_abi::qp::ib_uverbs_qp_attr;

fn queue_pair(context: &Context, pd: &ProtectionDomain) -> QueuePair {
    let cq = context.create_cq(64).unwrap();
    context.queue_pair(pd, &cq).overcommit().build().unwrap()
}

#[test]
fn the_end_of_one_connection_is_not_anothers() {
    if !only_on_softhca("it shares a channel between connections") {
        return;
    }
    let Some((device, ip)) = device_with_address() else { return };
    let channel = || EventChannel::of(&device).unwrap();
    let listener = Listener::builder((ip, 0).into()).listen_on(channel()).unwrap();
    let to = listener.local_addr().unwrap().unwrap();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let shared = channel();
    let connect = || {
        thread::scope(|scope| {
            let accepted = scope.spawn(|| {
                let request = listener.next(LIMIT).unwrap();
                request.accept(queue_pair(&context, &pd), &Param::default()).unwrap()
            });
            let route = Connector::new(to).limit(LIMIT).resolve_on(shared.clone()).unwrap();
            let qp = queue_pair(&context, &pd);
            let connected: Connection = route.connect(qp, &Param::default()).unwrap();
            (connected, accepted.join().unwrap())
        })
    };
    let ((mut one, _far), (mut other, theirs)) = (connect(), connect());
    // The peer of the second one parts.
    let parting = thread::spawn(move || theirs.disconnect(LIMIT).is_ok());
    let closed = one.is_closed(Duration::from_millis(300)).unwrap();
    assert!(!closed, "its peer is there");
    let _ = other.is_closed(Duration::from_millis(10));
    drop(other);
    assert!(parting.join().unwrap(), "its peer answers");
    // It goes on.
    assert!(!one.is_closed(Duration::ZERO).unwrap());
}

/// A connection manager without a kernel.
#[derive(Debug)]
struct Liar {
    file: File,
    /// Byte that fills each answer; random bytes without.
    byte: Option<u8>,
    seed: AtomicU64,
}

impl Liar {
    fn channel(byte: Option<u8>) -> EventChannel {
        // It can always be read.
        let file = File::open("/dev/zero").unwrap();
        EventChannel::from_door(Arc::new(Self { file, byte, seed: AtomicU64::new(1) }))
    }
}

impl CmDoor for Liar {
    fn command(&self, command: CmCommand<'_>) -> Result<(), Errno> {
        let Some(answer) = command.answer else { return Ok(()) };
        for place in answer {
            let next = self.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
            *place = self.byte.unwrap_or((next >> 32) as u8);
        }
        Ok(())
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Each call ends in time, by an answer or an error, on any answer of the connection manager.
#[test]
fn a_connection_manager_that_lies_breaks_no_call() {
    let device = device();
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    const SOON: Duration = Duration::from_millis(2);
    let to: SocketAddr = "127.0.0.1:1".parse().unwrap();
    for byte in [Some(0), Some(1), Some(3), Some(9), Some(0x7f), Some(0x80), Some(0xff), None] {
        let channel = Liar::channel(byte);
        for space in [PortSpace::Tcp, PortSpace::Udp, PortSpace::Ib, PortSpace::Ipoib] {
            let Ok(mut id) = channel.create_id(space) else { continue };
            let _ = id.bind(to);
            let _ = id.resolve_addr(None, to, SOON);
            let _ = id.resolve_route(SOON);
            let _ = id.listen(u32::MAX);
            let _ = (id.local_addr(), id.peer_addr(), id.local_ib_addr(), id.peer_ib_addr());
            let _ = (id.device(), id.port(), id.gids(), id.paths(), id.service_records());
            let _ = id.connect(u32::MAX, &Param::default());
            let _ = id.accept(u32::MAX, &Param::default());
            let _ = (id.reject(&[1; 300]), id.disconnect(), id.establish());
            let _ = id.join_multicast("239.1.2.3".parse().unwrap(), Membership::Full);
            let _ = id.migrate(&Liar::channel(byte));
            let mut qp = queue_pair(&context, &pd);
            let _ = id.init(&mut qp);
            let _ = id.ready(&mut qp, u8::MAX, u8::MAX);
            for _ in 0..4 {
                let Ok(Some(mut event)) = channel.try_next() else { continue };
                let _ = (event.kind(), event.connection(), event.datagram().group());
                let _ = (event.argument(), format!("{event:?}"), event.take_request());
                let _ = event.expect(EventKind::Established);
            }
        }
        let _ = Connector::new(to).limit(SOON).resolve_on(Liar::channel(byte));
        if let Ok(listener) = Listener::builder(to).limit(SOON).listen_on(Liar::channel(byte))
            && let Ok(request) = listener.next(SOON)
        {
            let _ = request.accept(queue_pair(&context, &pd), &Param::default());
        }
    }
}

/// A connection manager of a kernel that says that the queue pair is connected, as of iWARP.
#[derive(Debug)]
struct Connected(File);

impl CmDoor for Connected {
    fn command(&self, command: CmCommand<'_>) -> Result<(), Errno> {
        if let Some(answer) = command.answer {
            answer.fill(0);
            if answer.len() == size_of::<ib_uverbs_qp_attr>() {
                answer[offset_of!(ib_uverbs_qp_attr, port_num)] = 1;
            }
        }
        Ok(())
    }

    fn file(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A queue pair that was said to be connected, and isn't, loses no frame.
#[test]
fn a_queue_pair_that_only_seems_connected_gives_its_frames_back() {
    if !only_on_softhca("it makes a connection manager up") {
        return;
    }
    let door = Connected(File::open("/dev/zero").unwrap());
    let id = EventChannel::from_door(Arc::new(door)).create_id(PortSpace::Tcp).unwrap();
    let context = device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(64).unwrap();
    let slab = pd.slab(64, 8).unwrap();
    let memory = pd.expose(64, AccessFlags::REMOTE_READ).unwrap();
    for ends in [false, true] {
        let mut qp: QueuePair = context.queue_pair(&pd, &cq).overcommit().build().unwrap();
        id.ready(&mut qp, 1, 1).unwrap();
        assert_eq!(qp.state(), QpState::ReadyToSend);
        let mut batch = qp.batch();
        batch.send(1, slab.take().unwrap()).unwrap();
        batch.read(2, slab.take().unwrap(), memory.remote(0)).unwrap();
        batch.ring();
        qp.post_recv(3, slab.take().unwrap()).unwrap();
        thread::sleep(crate::WHILE);
        assert!(cq.poll(1).next().is_none());
        if ends {
            let gone = qp.destroy().unwrap();
            assert_eq!(cq.reclaim(&gone).len(), 3);
        } else {
            assert_eq!(qp.reset(&mut [&mut cq]).unwrap().len(), 3);
            // As new.
            qp.prepare(&local()).unwrap();
            qp.connect_to_self().unwrap();
            qp.post_recv(4, slab.take().unwrap()).unwrap();
            qp.post_send_inline(5, b"x").unwrap();
            assert_eq!([done(&mut cq).id, done(&mut cq).id].iter().sum::<u64>(), 9);
        }
        assert_eq!(free(&slab), 8);
    }
}
