use super::*;
use crate::wire::Route;

fn gid(n: u8) -> Address {
    let mut gid = [0; 16];
    gid[..2].copy_from_slice(&[0xfe, 0x80]);
    gid[15] = n;
    Address { gid, lid: 0 }
}

fn lid(lid: u16) -> Address {
    Address { gid: [0; 16], lid }
}

fn frame(src: Address, dst: Address, n: u8) -> Frame {
    Frame { src, dst, route: Route::default(), bytes: vec![n], loan: None }
}

fn numbers(port: &mut FabricPort) -> Vec<u8> {
    std::iter::from_fn(|| port.receive()).map(|frame| frame.bytes[0]).collect()
}

#[test]
fn delivers_in_order_to_each_address() {
    let fabric = Fabric::new();
    let mut a = fabric.attach(&[gid(1)]);
    let mut b = fabric.attach(&[gid(2), gid(3), lid(7)]);
    for (n, dst) in (0..).zip([gid(2), gid(3), lid(7), gid(2)]) {
        a.transmit(frame(gid(1), dst, n)).unwrap();
    }
    assert!(a.receive().is_none());
    assert_eq!(b.receive(), Some(frame(gid(1), gid(2), 0)));
    assert_eq!(numbers(&mut b), [1, 2, 3]);
    assert_eq!(fabric.stats(), FabricStats { sent: 4, delivered: 4, ..Default::default() });
    assert!(!a.needs_icrc());
    assert_eq!(a.next_event(), None);
}

#[test]
fn loops_back_to_the_own_port() {
    let fabric = Fabric::new();
    let mut a = fabric.attach(&[gid(1)]);
    a.transmit(frame(gid(1), gid(1), 9)).unwrap();
    assert_eq!(numbers(&mut a), [9]);
}

#[test]
fn a_group_frame_reaches_each_member_once() {
    let group = |n| Address { gid: [0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, n], lid: 0 };
    let mapped = |first| {
        let mut gid = [0; 16];
        gid[10..].copy_from_slice(&[0xff, 0xff, first, 1, 2, 3]);
        Address { gid, lid: 0 }
    };
    assert!(mapped(239).is_group() && mapped(224).is_group() && !mapped(223).is_group());
    let fabric = Fabric::with_queue_depth(2);
    let mut a = fabric.attach(&[gid(1), group(1)]);
    let mut b = fabric.attach(&[gid(2), group(1), group(2)]);
    let mut c = fabric.attach(&[gid(3), group(2)]);
    // A multicast LID belongs to no port.
    a.transmit(frame(gid(1), Address { lid: 0xc001, ..group(1) }, 1)).unwrap();
    a.transmit(frame(gid(1), group(2), 2)).unwrap();
    a.transmit(frame(gid(1), group(3), 3)).unwrap();
    // b is full; the sender is not stopped.
    a.transmit(frame(gid(1), group(2), 4)).unwrap();
    assert_eq!(
        (numbers(&mut a), numbers(&mut b), numbers(&mut c)),
        (vec![1], vec![1, 2], vec![2, 4])
    );
    let stats = fabric.stats();
    assert_eq!((stats.sent, stats.delivered), (4, 5));
    assert_eq!((stats.unknown_destination, stats.missed_copies, stats.refused), (1, 1, 0));
}

#[test]
fn a_lid_decides_over_a_gid() {
    let fabric = Fabric::new();
    let mut a = fabric.attach(&[Address { lid: 1, ..gid(1) }]);
    let mut b = fabric.attach(&[Address { lid: 2, ..gid(2) }]);
    a.transmit(frame(gid(1), Address { lid: 2, ..gid(1) }, 5)).unwrap();
    assert_eq!(numbers(&mut b), [5]);
    assert_eq!(numbers(&mut a), [0; 0]);
}

#[test]
fn unknown_destinations_are_dropped_and_counted() {
    let fabric = Fabric::new();
    let mut a = fabric.attach(&[gid(1), Address::default()]);
    a.transmit(frame(gid(1), gid(2), 0)).unwrap();
    a.transmit(frame(gid(1), lid(2), 0)).unwrap();
    // An empty address reaches no port, even if a port names it.
    a.transmit(frame(gid(1), Address::default(), 0)).unwrap();
    let expected = FabricStats { sent: 3, unknown_destination: 3, ..Default::default() };
    assert_eq!(fabric.stats(), expected);
}

#[test]
fn addresses_change_and_the_oldest_owner_keeps_one() {
    let fabric = Fabric::new();
    let mut a = fabric.attach(&[gid(1)]);
    let mut b = fabric.attach(&[gid(1)]);
    a.transmit(frame(gid(1), gid(1), 1)).unwrap();
    assert_eq!(numbers(&mut a), [1]);
    a.set_addresses(&[gid(4)]);
    a.transmit(frame(gid(4), gid(1), 2)).unwrap();
    assert_eq!(numbers(&mut b), [2]);
    b.link_control().set_addresses(&[]);
    a.transmit(frame(gid(4), gid(1), 3)).unwrap();
    assert_eq!(fabric.stats().unknown_destination, 1);
}

#[test]
fn an_unplugged_port_loses_both_ways() {
    let fabric = Fabric::new();
    let mut a = fabric.attach(&[gid(1)]);
    let mut b = fabric.attach(&[gid(2)]);
    let link = b.link_control();
    a.transmit(frame(gid(1), gid(2), 1)).unwrap();
    link.unplug();
    assert!(!link.is_plugged());
    // Queued for the dead port, sent to it, and sent by it.
    a.transmit(frame(gid(1), gid(2), 2)).unwrap();
    b.transmit(frame(gid(2), gid(1), 3)).unwrap();
    assert_eq!(numbers(&mut b), [0; 0]);
    assert_eq!(numbers(&mut a), [0; 0]);
    assert_eq!(fabric.stats(), FabricStats { sent: 3, dead_link: 3, ..Default::default() });
    link.replug();
    a.transmit(frame(gid(1), gid(2), 4)).unwrap();
    b.transmit(frame(gid(2), gid(1), 5)).unwrap();
    assert_eq!(numbers(&mut b), [4]);
    assert_eq!(numbers(&mut a), [5]);
}

#[test]
fn a_full_queue_gives_the_frame_back() {
    let fabric = Fabric::with_queue_depth(2);
    let mut a = fabric.attach(&[gid(1)]);
    let mut b = fabric.attach(&[gid(2)]);
    a.transmit(frame(gid(1), gid(2), 1)).unwrap();
    a.transmit(frame(gid(1), gid(2), 2)).unwrap();
    let WireFull(back) = a.transmit(frame(gid(1), gid(2), 3)).unwrap_err();
    assert_eq!(back, frame(gid(1), gid(2), 3));
    // Another destination still has room.
    a.transmit(frame(gid(1), gid(1), 8)).unwrap();
    assert_eq!(b.receive().unwrap().bytes, [1]);
    a.transmit(back).unwrap();
    assert_eq!(numbers(&mut b), [2, 3]);
    assert_eq!(numbers(&mut a), [8]);
    let stats = FabricStats { sent: 4, delivered: 4, refused: 1, ..Default::default() };
    assert_eq!(fabric.stats(), stats);
}

#[test]
fn a_dropped_port_is_gone_for_good() {
    let fabric = Fabric::new();
    let mut a = fabric.attach(&[gid(1)]);
    let b = fabric.attach(&[gid(2)]);
    let link = b.link_control();
    a.transmit(frame(gid(1), gid(2), 1)).unwrap();
    drop(b);
    link.replug();
    link.set_addresses(&[gid(2)]);
    assert!(!link.is_plugged());
    a.transmit(frame(gid(1), gid(2), 2)).unwrap();
    let stats = FabricStats { sent: 2, dead_link: 1, unknown_destination: 1, ..Default::default() };
    assert_eq!(fabric.stats(), stats);
}

#[test]
fn a_frame_wakes_who_has_nothing_to_read() {
    struct Count(AtomicU64);
    impl std::task::Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let fabric = Fabric::new();
    let mut a = fabric.attach(&[gid(1)]);
    let mut b = fabric.attach(&[gid(2)]);
    let count = Arc::new(Count(AtomicU64::new(0)));
    b.set_waker(Arc::clone(&count).into());
    let woken = || count.0.load(Ordering::Relaxed);
    a.transmit(frame(gid(1), gid(2), 1)).unwrap();
    a.transmit(frame(gid(1), gid(2), 2)).unwrap();
    assert_eq!((woken(), numbers(&mut b)), (1, vec![1, 2]));
    a.transmit(frame(gid(1), gid(2), 3)).unwrap();
    assert_eq!((woken(), numbers(&mut b)), (2, vec![3]));
    // A port that sends is awake.
    b.transmit(frame(gid(2), gid(2), 4)).unwrap();
    assert_eq!((woken(), numbers(&mut b)), (2, vec![4]));
}

/// Two threads push through a small queue to a third: no frame is lost, and each keeps its order.
#[test]
fn threads_share_a_fabric() {
    const FRAMES: u32 = 5_000;
    let fabric = Fabric::with_queue_depth(8);
    let mut sink = fabric.attach(&[gid(9)]);
    let senders: Vec<_> = (1..=2)
        .map(|id| {
            let mut port = fabric.attach(&[gid(id)]);
            std::thread::spawn(move || {
                for n in 0..FRAMES {
                    let bytes = n.to_be_bytes().to_vec();
                    let mut next = Frame {
                        src: gid(id),
                        dst: gid(9),
                        route: Route::default(),
                        bytes,
                        loan: None,
                    };
                    while let Err(WireFull(back)) = port.transmit(next) {
                        next = back;
                        std::thread::yield_now();
                    }
                }
            })
        })
        .collect();
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    let mut expected = [0u32; 3];
    while expected != [0, FRAMES, FRAMES] {
        assert!(std::time::Instant::now() < deadline, "stuck at {expected:?}");
        let Some(frame) = sink.receive() else {
            std::thread::yield_now();
            continue;
        };
        let from = usize::from(frame.src.gid[15]);
        assert_eq!(frame.bytes, expected[from].to_be_bytes());
        expected[from] += 1;
    }
    for sender in senders {
        sender.join().unwrap();
    }
    assert_eq!(fabric.stats().delivered, u64::from(2 * FRAMES));
}
