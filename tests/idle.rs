//! A software HCA that sleeps is woken by each kind of work, and loses no doorbell stored
//! meanwhile.
//!
//! These devices sleep at once, and longer than any wait here lasts: a lost wake-up is a timeout.
//! If the system refuses userfaultfd, they check their doorbells periodically, and the tests pass
//! as well.
#![allow(unsafe_code, reason = "forks")]

use std::thread;
use std::time::Duration;

use common::{LIMIT, Side, impatient, only_on_softhca, pair_on, pattern, soft};
use uverbs::softhca::SoftHca;
use uverbs::softhca::wire::Fabric;
use uverbs::{Device, DoorbellMode, Error, Local};

/// Long enough for a device to go to sleep.
const PAUSE: Duration = Duration::from_millis(5);

/// A device that sleeps whenever it can, on a fabric.
fn sleepy(fabric: &Fabric) -> SoftHca {
    let builder = SoftHca::builder().fabric(fabric).idle(|idle| {
        idle.awake = Duration::ZERO;
        idle.longest = 3 * LIMIT;
    });
    builder.build().expect("a software HCA")
}

fn sleepy_pair(mode: DoorbellMode) -> (Side, Side) {
    let fabric = Fabric::new();
    let [one, other] = [soft(&sleepy(&fabric)), soft(&sleepy(&fabric))];
    pair_on(&one, &other, &Local::default(), |builder| builder.doorbell(mode))
}

fn skipped() -> bool {
    !only_on_softhca("sleeping is the software HCA's own")
}

/// A message after a pause, and the receiver's bytes.
fn message(client: &mut Side, server: &mut Side, id: u64) {
    server.expect(id, 64);
    thread::sleep(PAUSE);
    let frame = client.filled(64, id as u8);
    let mut batch = client.qp.batch();
    batch.send(id, frame).unwrap();
    batch.ring();
    let received = server.done();
    assert_eq!((received.id, &received.frame.unwrap()[..]), (id, &pattern(64, id as u8)[..]));
    assert_eq!(client.done().id, id);
}

#[test]
fn each_kind_of_doorbell_wakes_it() {
    if skipped() {
        return;
    }
    for mode in [DoorbellMode::BlueFlame, DoorbellMode::NonCached] {
        let (mut client, mut server) = sleepy_pair(mode);
        for id in 0..20 {
            message(&mut client, &mut server, id);
            message(&mut server, &mut client, id);
        }
    }
}

#[test]
fn doorbells_on_many_pages_wake_it() {
    if skipped() {
        return;
    }
    let fabric = Fabric::new();
    let device = soft(&sleepy(&fabric));
    // More contexts than one, and in each a page for every two queue pairs.
    let mut pairs = (0..20)
        .map(|_| pair_on(&device, &device, &Local::default(), |builder| builder))
        .collect::<Vec<_>>();
    for round in 0..3 {
        for (client, server) in &mut pairs {
            message(client, server, round);
        }
    }
    // All at once, from threads: each store stops at its own page.
    thread::sleep(PAUSE);
    thread::scope(|scope| {
        for (client, server) in &mut pairs {
            scope.spawn(|| message(client, server, 9));
        }
    });
}

#[test]
fn stores_while_it_falls_asleep_are_not_lost() {
    if skipped() {
        return;
    }
    let (mut client, mut server) = sleepy_pair(DoorbellMode::BlueFlame);
    // The device sleeps between these, or is about to, at a different point each time.
    for id in 0..3000 {
        server.expect(id, 8);
        let frame = client.filled(8, id as u8);
        let mut batch = client.qp.batch();
        batch.send(id, frame).unwrap();
        batch.ring();
        assert_eq!((server.done().id, client.done().id), (id, id));
        for _ in 0..id % 97 * 40 {
            std::hint::spin_loop();
        }
    }
}

#[test]
fn its_timers_wake_it() {
    if skipped() {
        return;
    }
    let fabric = Fabric::new();
    let (hca, peer) = (sleepy(&fabric), sleepy(&fabric));
    let (mut client, _server) = pair_on(&soft(&hca), &soft(&peer), &impatient(), |builder| builder);
    peer.link_down();
    let frame = client.filled(8, 1);
    let mut batch = client.qp.batch();
    batch.send(1, frame).unwrap();
    batch.ring();
    // Some retransmissions and then the verdict, each at its time.
    assert!(client.wait().result.is_err());
    assert!(hca.stats().timeouts > 1);
}

#[test]
fn commands_wake_it_and_receives_in_the_error_state_flush() {
    if skipped() {
        return;
    }
    let (_client, mut server) = sleepy_pair(DoorbellMode::BlueFlame);
    server.expect(1, 8);
    thread::sleep(PAUSE);
    server.qp.fail().unwrap();
    assert!(server.wait().result.is_err());
    thread::sleep(PAUSE);
    server.expect(2, 8);
    assert_eq!(server.wait().id, 2);
}

#[test]
fn it_is_removed_in_its_sleep() {
    if skipped() {
        return;
    }
    let hca = sleepy(&Fabric::new());
    let device = soft(&hca);
    let (mut client, server) = pair_on(&device, &device, &Local::default(), |builder| builder);
    let frame = client.filled(8, 1);
    thread::sleep(PAUSE);
    hca.unplug();
    thread::sleep(PAUSE);
    // A doorbell of a device that is gone is a store like any other.
    let mut batch = client.qp.batch();
    batch.send(1, frame).unwrap();
    batch.ring();
    drop((client, server, device, hca));
}

#[test]
fn it_ends_in_its_sleep() {
    if skipped() {
        return;
    }
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let mine = |name: &str| {
        threads().any(|task| {
            std::fs::read_to_string(task.path().join("comm")).is_ok_and(|comm| comm.trim() == name)
        })
    };
    let hca =
        SoftHca::builder().name("ends").idle(|idle| idle.longest = 3 * LIMIT).build().unwrap();
    thread::sleep(PAUSE);
    assert!(mine("softhca-ends"));
    drop(hca);
    let start = std::time::Instant::now();
    while mine("softhca-ends") {
        assert!(start.elapsed() < LIMIT, "the thread of a device that nobody has still runs");
        thread::sleep(PAUSE);
    }
}

#[test]
fn a_child_takes_nothing_from_it() {
    if skipped() {
        return;
    }
    let (mut client, mut server) = sleepy_pair(DoorbellMode::BlueFlame);
    thread::sleep(PAUSE);
    // SAFETY: the child calls nothing but pause and _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: no memory is involved.
        unsafe { libc::pause() };
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(0) };
    }
    assert!(child > 0);
    for id in 0..5 {
        message(&mut client, &mut server, id);
    }
    // The child still has the descriptors while these go.
    drop((client, server));
    // SAFETY: the child made above, which is not waited for yet.
    unsafe { libc::kill(child, libc::SIGKILL) };
    // SAFETY: no status is asked for.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}

#[test]
fn without_protection_it_looks_now_and_then() {
    if skipped() {
        return;
    }
    let hca = SoftHca::builder().idle(|idle| {
        idle.awake = Duration::ZERO;
        idle.longest = 3 * LIMIT;
        idle.protect = false;
    });
    let hca = hca.build().unwrap();
    assert!(!hca.is_woken_by_doorbells());
    let device = Device::from(hca);
    let (mut client, mut server) = pair_on(&device, &device, &Local::default(), |builder| builder);
    for id in 0..20 {
        message(&mut client, &mut server, id);
    }
}

#[test]
fn devices_by_name_are_the_same_for_all_and_reach_each_other() {
    if skipped() {
        return;
    }
    let get = |name: &str| uverbs::device(name).unwrap();
    let (first, again, second) = (get("softhca0"), get("softhca0"), get("softhca1"));
    assert_eq!((first.name(), again.name(), second.name()), ("softhca0", "softhca0", "softhca1"));
    assert_eq!(first.node_guid(), again.node_guid());
    assert_ne!(first.node_guid(), second.node_guid());
    // Two parts of a program that are independent of each other.
    for other in [again, second] {
        let (mut client, mut server) =
            pair_on(&first, &other, &Local::default(), |builder| builder);
        message(&mut client, &mut server, 1);
    }
    assert!(matches!(uverbs::device("softhca2"), Err(Error::NoSuchDevice { .. })));
}
