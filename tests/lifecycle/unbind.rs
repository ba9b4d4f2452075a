//! The driver is taken from a device in mid-traffic, as when it is unplugged: on Linux's own mlx5
//! drivers.
//!
//! mlx5_ib lets go of open devices (`disassociate_ucontext`): the kernel destroys their objects,
//! maps a page of memory where the doorbells were (`uverbs_main.c:rdma_umap_fault`), raises
//! DEVICE_FATAL and answers EIO to everything.
//!
//! Needs root, and `UVERBS_TEST_UNBIND` to name the mlx5 device that may go. `tests/vm/unbind.sh`
//! runs one test at a time, and gives the device its driver back.

use std::time::{Duration, Instant};

use common::victim::Driven;
use common::{LIMIT, Side, pair_on};
use uverbs::event::{AsyncElement, AsyncEventKind};
use uverbs::{AccessFlags, AckTimeout, Context, Errno, Error, Local, PostError, QpState, Status};

/// Rounds of traffic before the driver goes.
const ROUNDS: u64 = 20;
/// Time without a completion after which none is expected.
const SILENCE: Duration = Duration::from_secs(5);

/// How traffic ended.
#[derive(Debug)]
enum End {
    Post(PostError),
    Wait(Error),
    /// A failed completion, the client's or the server's.
    Completion(Status),
}

/// Statuses of sends while the kernel destroys the objects of the context, newest first: the
/// receive's memory goes before the queue pair that has the receive.
const HALF_GONE: [Status; 3] = [Status::LocalProtection, Status::RemoteOperation, Status::Flushed];

/// Messages one after the other until something goes wrong. `each` hears of every round.
fn traffic(client: &mut Side, server: &mut Side, mut each: impl FnMut(u64)) -> End {
    let slab = server.slab(64, 4);
    let started = Instant::now();
    for round in 0.. {
        assert!(started.elapsed() < LIMIT, "traffic goes on without a driver");
        each(round);
        if let Err(rejected) = server.qp.post_recv(round, slab.take().expect("a frame is free")) {
            return End::Post(rejected.error);
        }
        let mut batch = client.qp.batch();
        if let Err(error) = batch.send_inline(round, b"and on") {
            return End::Post(error);
        }
        batch.ring();
        for side in [&mut *client, &mut *server] {
            match side.cq.wait(SILENCE) {
                Ok(completion) => match completion.result {
                    Ok(_) => assert_eq!(completion.id, round),
                    Err(failure) => return End::Completion(failure.status),
                },
                Err(error) => return End::Wait(error),
            }
        }
    }
    unreachable!("rounds don't end")
}

/// Checks that each verb of a context that lost its device says so.
fn is_gone(context: &Context) {
    assert!(context.is_gone());
    for error in [
        context.query_port(1).unwrap_err(),
        context.query_device().unwrap_err(),
        context.alloc_pd().unwrap_err(),
        context.create_cq(16).unwrap_err(),
    ] {
        assert_eq!(error.errno(), Some(Errno::EIO), "{error}");
    }
}

/// Waits for the fatal event; others may come before it.
fn fatal_event(context: &Context) {
    loop {
        let event = context.async_event(LIMIT).unwrap().expect("an event tells of it");
        if event.kind == AsyncEventKind::DeviceFatal {
            return assert_eq!(event.element, AsyncElement::Device);
        }
    }
}

#[test]
fn a_device_that_goes_in_mid_traffic_ends_in_typed_errors() {
    let Some(victim) = Driven::new() else { return };
    let device = victim.device();
    let (mut client, mut server) = pair_on(&device, &device, &Local::default(), |qp| qp);
    let exposed = server.pd.expose(4096, AccessFlags::REMOTE_WRITE).unwrap();
    let waiting = client.context.clone();
    let end = std::thread::scope(|scope| {
        let watcher = scope.spawn(move || fatal_event(&waiting));
        let mut thief = None;
        let end = traffic(&mut client, &mut server, |round| {
            if round == ROUNDS {
                thief = Some(scope.spawn(|| victim.take()));
            }
        });
        thief.expect("it lasted").join().expect("the driver went");
        watcher.join().expect("the event came");
        end
    });
    // Doorbells have no effect, so no work request completes any more. Any call that notices the
    // removal may report it.
    match &end {
        End::Wait(Error::TimedOut { .. }) => {}
        End::Wait(error) => assert_eq!(error.errno(), Some(Errno::EIO), "{error}"),
        End::Completion(status) => assert!(HALF_GONE.contains(status), "{status:?}"),
        other => assert!(matches!(other, End::Post(PostError::DeviceGone)), "{other:?}"),
    }
    fatal_event(&server.context);
    for side in [&client, &server] {
        is_gone(&side.context);
    }
    assert_eq!(client.qp.query().unwrap_err().errno(), Some(Errno::EIO));
    assert!(!uverbs::devices().unwrap().iter().any(|device| device.name() == victim.name));
    assert!(device.open().is_err());
    // The doorbell page stays mapped: stores have no effect, and raise no signal.
    let mut batch = client.qp.batch();
    if batch.send_inline(7, b"nobody hears").is_ok() {
        batch.ring();
    }
    assert_eq!(client.cq.poll_into(&mut [uverbs::WorkCompletion::default()]), 0);
    // Memory that peers reached stays readable, and everything can be dropped.
    exposed.read(0, &mut [0; 16]).unwrap();
    drop((exposed, client, server));
}

#[test]
fn a_peer_whose_device_goes_is_a_failed_completion() {
    let Some(victim) = Driven::new() else { return };
    // Half a second, thrice: a peer that is only slow is not given up.
    let timeout = AckTimeout::from_code(17).unwrap();
    let local = Local { timeout, retry_count: 3, ..Local::default() };
    let (mut client, mut server) = pair_on(&common::device(), &victim.device(), &local, |qp| qp);
    let end = std::thread::scope(|scope| {
        let mut thief = None;
        let end = traffic(&mut client, &mut server, |round| {
            if round == ROUNDS {
                thief = Some(scope.spawn(|| victim.take()));
            }
        });
        thief.expect("it lasted").join().expect("the driver went");
        end
    });
    // The client's queue pair has failed, unless the last message was acknowledged just in time.
    if client.qp.query().unwrap().state != QpState::Error {
        let mut batch = client.qp.batch();
        batch.send_inline(7, b"nobody hears").unwrap();
        batch.ring();
        assert_eq!(client.wait().result.unwrap_err().status, Status::RetryExceeded);
    } else {
        let failed = [Status::RetryExceeded, Status::RemoteOperation];
        assert!(matches!(end, End::Completion(status) if failed.contains(&status)), "{end:?}");
    }
    is_gone(&server.context);
    drop(server);
    // The other device is unaffected.
    assert_eq!(client.context.query_port(1).unwrap().state, uverbs::PortState::Active);
    let gone = client.qp.destroy().unwrap();
    client.cq.reclaim(&gone);
}
