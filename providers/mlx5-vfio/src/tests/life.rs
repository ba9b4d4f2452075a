//! Bring-up, pages at run time, failures, teardown.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode as Op, CmdStatus, Delivery};
use uverbs_mlx5_prm::eqe::{EventQueueType, EventType, MLX5_PORT_CHANGE_SUBTYPE_DOWN, mlx5_eqe};
use zerocopy::IntoBytes;

use super::fake::{Fake, Twist, UAR, limits};
use crate::error::Error;
use crate::function::Function;

/// Commands of bring-up, in mlx5_core's order (`mlx5_function_enable`, `mlx5_function_open`).
const UP: [Op; 16] = [
    Op::ENABLE_HCA,
    Op::QUERY_ISSI,
    Op::SET_ISSI,
    Op::QUERY_PAGES,
    Op::MANAGE_PAGES,
    Op::ACCESS_REG,
    Op::QUERY_HCA_CAP,
    Op::QUERY_HCA_CAP,
    Op::SET_HCA_CAP,
    Op::QUERY_PAGES,
    Op::MANAGE_PAGES,
    Op::INIT_HCA,
    Op::QUERY_ADAPTER,
    Op::QUERY_HCA_CAP,
    Op::ALLOC_UAR,
    Op::CREATE_EQ,
];
const DOWN: [Op; 5] =
    [Op::DESTROY_EQ, Op::DEALLOC_UAR, Op::TEARDOWN_HCA, Op::MANAGE_PAGES, Op::DISABLE_HCA];

fn open(fake: &Fake) -> Result<Function, Error> {
    Function::open(fake.clone(), limits())
}

/// Checks that nothing is left of a function.
fn gone(fake: &Fake) {
    let state = fake.state();
    assert_eq!((state.maps.len(), state.live, state.torn), (0, false, false));
    assert_eq!(state.failures, [""; 0]);
}

#[test]
fn a_function_comes_up_and_goes_down_in_order() {
    let fake = Fake::new();
    for _ in 0..3 {
        let function = open(&fake).unwrap();
        assert_eq!((function.uar(), function.eqn(), function.pages()), (UAR, 3, 10));
        assert_eq!(function.identity().firmware.to_string(), "7.2.0009");
        let commands = std::mem::take(&mut fake.state().commands);
        assert!(commands.iter().map(|(_, op, _)| *op).eq(UP), "{commands:?}");
        function.close().unwrap();
        let commands = std::mem::take(&mut fake.state().commands);
        assert!(commands.iter().map(|(_, op, _)| *op).eq(DOWN), "{commands:?}");
        gone(&fake);
    }
    // Dropping closes, too.
    drop(open(&fake).unwrap());
    assert_eq!(fake.count(Op::DISABLE_HCA), 1);
    gone(&fake);
}

#[test]
fn each_refused_command_is_named_and_leaves_nothing() {
    for (at, opcode) in UP.into_iter().chain(DOWN).enumerate() {
        // A virtual function may not write the register.
        if opcode == Op::ACCESS_REG {
            continue;
        }
        let fake = Fake::new();
        fake.twist(at, Twist::Refuse(CmdStatus::NO_RES_ERR.0));
        let refused = open(&fake).and_then(Function::close);
        let status = CmdStatus::NO_RES_ERR;
        assert_eq!(refused, Err(Error::Refused { opcode, status, syndrome: 0 }));
        gone(&fake);
        let fake = Fake::new();
        fake.twist(at, Twist::Deliver(Delivery::TOK_ERR.0));
        let delivery = Delivery::TOK_ERR;
        let done = open(&fake).and_then(Function::close);
        assert_eq!(done, Err(Error::Undelivered { opcode, delivery }));
        gone(&fake);
    }
}

#[test]
fn each_command_that_gets_stuck_times_out() {
    for (at, opcode) in UP.into_iter().chain(DOWN).enumerate() {
        let fake = Fake::new();
        fake.twist(at, Twist::Keep);
        match open(&fake).and_then(Function::close) {
            Err(Error::TimedOut { what, .. }) => assert!(what.ends_with(opcode.name().unwrap())),
            other => panic!("{opcode}: {other:?}"),
        }
        gone(&fake);
    }
}

/// A function whose orderly end fails is ended by the state of its interface, or else by force.
#[test]
fn a_function_that_does_not_end_in_order_ends_quickly() {
    let one = vec![0, 0, 0, 0, 0, 0, 0, 1];
    let after = |twists: &[(usize, Twist)], teardowns| {
        let fake = Fake::new();
        fake.state().teardowns = teardowns;
        let function = open(&fake).unwrap();
        // The end of the event queue is refused, then TEARDOWN_HCA follows.
        fake.twist(0, Twist::Refuse(CmdStatus::RES_BUSY.0));
        for (after, twist) in twists {
            fake.twist(*after, twist.clone());
        }
        let refused = function.close();
        assert!(matches!(refused, Err(Error::Refused { opcode: Op::DESTROY_EQ, .. })));
        gone(&fake);
        std::mem::take(&mut fake.state().profiles)
    };
    assert_eq!(after(&[], [false; 2]), []);
    assert_eq!(after(&[], [true; 2]), [2]);
    assert_eq!(after(&[], [false, true]), [1]);
    // State 1: the preparation failed.
    assert_eq!(after(&[(0, Twist::Output(one.clone()))], [true, false]), [2]);
    assert_eq!(after(&[(0, Twist::Output(one))], [true; 2]), [2, 1]);
    assert_eq!(after(&[(0, Twist::Refuse(CmdStatus::BAD_PARAM_ERR.0))], [true; 2]), [1]);
}

/// An interface that does not say that it is disabled may answer no command.
#[test]
fn an_interface_that_never_ends_has_a_short_limit() {
    let mut limits = limits();
    limits.command = Duration::from_secs(60);
    let fake = Fake::new();
    fake.state().teardowns = [true; 2];
    let function = Function::open(fake.clone(), limits).unwrap();
    fake.state().set_register(0x14, 0x56);
    fake.twist(0, Twist::Refuse(CmdStatus::RES_BUSY.0));
    // After the preparation.
    fake.twist(2, Twist::Keep);
    let start = Instant::now();
    assert!(function.close().is_err());
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    assert_eq!(fake.state().profiles, [2]);
    assert_eq!(fake.count(Op::TEARDOWN_HCA), 2);
    gone(&fake);
}

/// The memory of a command that timed out is never used again, and the device only closed.
#[test]
fn a_stuck_command_is_the_end() {
    let fake = Fake::new();
    let function = open(&fake).unwrap();
    let buffer = function.buffer(4096).unwrap();
    let before = fake.state().commands.len();
    fake.twist(0, Twist::Keep);
    let stuck = function.command(Op::QUERY_HCA_CAP, 0, &[0; 16], 4112);
    assert!(matches!(stuck, Err(Error::TimedOut { .. })), "{stuck:?}");
    let dma = std::sync::Arc::clone(function.device().dma());
    let used = dma.pages_in_use();
    drop(buffer);
    assert_eq!(dma.pages_in_use(), used, "no page is free after a failure");
    let failed = |error| matches!(error, Err(Error::Fatal { .. }));
    assert!(failed(function.command(Op::ALLOC_PD, 0, &[0; 16], 16).map(drop)));
    assert!(failed(function.buffer(1).map(drop)) && failed(function.ring(0, 0)));
    assert!(function.failure().unwrap().contains("QUERY_HCA_CAP"));
    assert_eq!(fake.state().commands.len(), before + 1);
    assert!(failed(function.close()));
    gone(&fake);
}

#[test]
fn the_device_gets_and_returns_pages_at_run_time() {
    let fake = Fake::new();
    // Zeroing so many pages takes a while.
    let mut limits = limits();
    limits.command = Duration::from_secs(20);
    let function = Function::open(fake.clone(), limits).unwrap();
    fake.report(&mlx5_eqe::page_request(0, 700));
    fake.wait(|state| (state.pages.len() == 710).then_some(()));
    fake.report(&mlx5_eqe::page_request(0, -705));
    fake.wait(|state| (state.pages.len() == 5).then_some(()));
    // More than there are, and none.
    fake.report(&mlx5_eqe::page_request(0, i32::MIN));
    fake.wait(|state| state.pages.is_empty().then_some(()));
    // Pages of a virtual function, and more than the limit, are declined.
    for (eqe, declined) in [
        (mlx5_eqe::page_request(2, 1), 1),
        (mlx5_eqe::page_request(0, i32::MAX), 2),
        (mlx5_eqe::page_request(0, (limits.memory / 4096) as i32), 3),
    ] {
        fake.report(&eqe);
        fake.wait(|state| {
            let of = |(_, op, op_mod): &&(u32, Op, u16)| (*op, *op_mod) == (Op::MANAGE_PAGES, 0);
            (state.commands.iter().filter(of).count() == declined).then_some(())
        });
    }
    assert_eq!(function.failure(), None);
    // The last entry is for pages alone.
    let commands = std::mem::take(&mut fake.state().commands);
    assert!(commands.iter().all(|(slot, op, _)| (*slot == 31) == (*op == Op::MANAGE_PAGES)));
    function.close().unwrap();
    gone(&fake);
}

/// A device that answers each command in time, but slowly, has a limit for each request.
#[test]
fn a_request_for_many_pages_has_a_limit() {
    let limit = Duration::from_millis(600);
    let mut limits = limits();
    (limits.command, limits.reclaim) = (limit, limit);
    let many = || {
        let fake = Fake::new();
        let function = Function::open(fake.clone(), limits).unwrap();
        fake.report(&mlx5_eqe::page_request(0, 1400));
        fake.wait(|state| (state.pages.len() == 1410).then_some(()));
        fake.state().commands.clear();
        fake.state().slow = limit / 2;
        (fake, function)
    };
    for (count, says) in [(1400, "acceptance of 1400 pages"), (-1400, "return of 1400 pages")] {
        let (fake, function) = many();
        fake.report(&mlx5_eqe::page_request(0, count));
        fake.wait(|_| function.failure().map(drop));
        assert!(function.failure().unwrap().contains(says), "{:?}", function.failure());
        assert_eq!(fake.count(Op::MANAGE_PAGES), 2);
        drop(function);
        gone(&fake);
    }
    let (fake, function) = many();
    assert!(matches!(function.close(), Err(Error::TimedOut { .. })));
    assert_eq!(fake.count(Op::MANAGE_PAGES), 2);
    gone(&fake);
}

/// Tables of a port are a command an entry, and the whole has the limit of one.
#[test]
fn a_slow_port_has_a_limit() {
    let mut limits = limits();
    limits.command = Duration::from_millis(600);
    let fake = Fake::new();
    let function = Function::open(fake.clone(), limits).unwrap();
    assert_eq!(function.port().unwrap().gids, []);
    assert_eq!(fake.count(Op::QUERY_HCA_VPORT_GID), 8);
    fake.state().commands.clear();
    fake.state().slow = limits.command / 2;
    match function.port() {
        Err(Error::TimedOut { what, .. }) => assert!(what.contains("port"), "{what}"),
        other => panic!("{other:?}"),
    }
    assert!(fake.count(Op::QUERY_HCA_VPORT_GID) < 3);
    // Each command was answered.
    assert_eq!(function.failure(), None);
    fake.state().slow = Duration::ZERO;
    function.close().unwrap();
    gone(&fake);
}

/// A thread that does not end in time is the function's failure, so its next command ends it.
#[test]
fn a_thread_that_does_not_end_is_given_up() {
    let fake = Fake::new();
    let function = open(&fake).unwrap();
    let before = fake.count(Op::MANAGE_PAGES);
    fake.state().slow = limits().command + Duration::from_millis(1500);
    (0..20).for_each(|_| fake.report(&mlx5_eqe::page_request(0, 1)));
    std::thread::sleep(10 * limits().health);
    match function.close() {
        Err(Error::TimedOut { what, .. }) => assert!(what.contains("thread"), "{what}"),
        other => panic!("{other:?}"),
    }
    fake.wait_for_the_end();
    assert!(fake.count(Op::MANAGE_PAGES) <= before + 2);
    gone(&fake);
}

#[test]
fn pages_that_were_never_given_do_not_come_back() {
    let fake = Fake::new();
    let function = open(&fake).unwrap();
    // One page: its number, and an address that no page has.
    let mut lie = vec![0, 0, 0, 1, 0, 0, 0, 0];
    lie.extend(0x1234_5000u64.to_be_bytes());
    fake.twist(0, Twist::Output(lie));
    fake.report(&mlx5_eqe::page_request(0, -1));
    fake.wait(|_| function.failure().map(drop));
    assert!(function.failure().unwrap().contains("0x12345000"));
    assert_eq!(function.pages(), 10);
    drop(function);
    gone(&fake);
}

#[test]
fn events_wait_for_the_program() {
    let fake = Fake::new();
    let function = open(&fake).unwrap();
    let report = |port| fake.report(&mlx5_eqe::port(MLX5_PORT_CHANGE_SUBTYPE_DOWN, port));
    // More than a lap of the ring.
    for _ in 0..300 {
        (0..16).for_each(report);
        for port in 0..16 {
            let event = fake.wait(|_| function.take_event());
            assert_eq!(event.kind, EventType::PORT_CHANGE);
            assert_eq!(event.data[2] >> 28, port);
        }
    }
    assert_eq!(function.take_event(), None);
    function.close().unwrap();
}

/// A burst that fits Linux's queue, while the driver reads few.
#[test]
fn a_burst_fits_into_the_queue() {
    let fake = Fake::new();
    let function = open(&fake).unwrap();
    let events = 4000;
    // The driver's next doorbell waits for the lock.
    let mut state = fake.state();
    for number in 0..events {
        state.report(
            mlx5_eqe::queue(EventType::SRQ_RQ_LIMIT, EventQueueType::QP, number).as_bytes(),
            true,
        );
    }
    drop(state);
    for _ in 0..events {
        fake.wait(|_| function.take_event());
    }
    function.close().unwrap();
}

/// A device that writes events without end delays neither health nor the end.
#[test]
fn a_flood_of_events_starves_nothing() {
    let fake = Fake::new();
    let function = open(&fake).unwrap();
    fake.state().floods = true;
    fake.report(&mlx5_eqe::port(MLX5_PORT_CHANGE_SUBTYPE_DOWN, 1));
    fake.wait(|state| (state.events() > 50_000).then_some(()));
    fake.state().heart_stands = true;
    fake.wait(|_| function.failure().map(drop));
    drop(function);
    gone(&fake);
}

#[test]
fn a_heart_that_stands_is_a_failure() {
    let fake = Fake::new();
    let function = open(&fake).unwrap();
    std::thread::sleep(10 * limits().health);
    assert_eq!(function.failure(), None);
    fake.state().heart_stands = true;
    fake.wait(|_| function.failure().map(drop));
    assert!(function.failure().unwrap().contains("health counter"));
    drop(function);
    gone(&fake);
}

#[test]
fn registers_that_no_device_has_are_refused() {
    for (offset, value, says) in [
        (0x1fc, 1 << 31, "start of the firmware"),
        (0x4, 4 << 16, "command interface 4"),
        (0x14, 0x66, "size of the command queue"),
        (0x14, 0x06, "size of the command queue"),
        (0x14, 0x55, "size of the command queue"),
        (0x0, u32::MAX, "removed device"),
    ] {
        let fake = Fake::new();
        fake.state().set_register(offset, value);
        let error = open(&fake).map(drop).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
        gone(&fake);
    }
}

#[test]
fn a_doorbell_page_beyond_the_bar_is_refused() {
    let fake = Fake::new();
    fake.twist(14, Twist::Output(vec![0xff; 4]));
    let error = open(&fake).map(drop).unwrap_err();
    assert!(matches!(error, Error::Answer { what: "the number of a UAR page", .. }), "{error}");
    gone(&fake);
}

/// Without a reset the bus master bit ends DMA.
#[test]
fn a_function_without_reset_is_silenced() {
    let fake = Fake::new();
    fake.state().can_reset = false;
    let function = open(&fake).unwrap();
    assert!(fake.state().live);
    drop(function);
    gone(&fake);
}

/// The reset and the end of the mappings are a part of the close.
#[test]
fn a_close_tells_what_failed_at_its_end() {
    let fake = Fake::new();
    let function = open(&fake).unwrap();
    fake.state().reset_fails = true;
    let errno = uverbs_core::Errno::EIO;
    assert_eq!(function.close(), Err(Error::System { what: "reset", errno }));
    // The device may still use the memory.
    fake.wait(|state| (state.maps.len() == 1 && !state.torn).then_some(()));
    let fake = Fake::new();
    let function = open(&fake).unwrap();
    fake.state().unmap_fails = true;
    assert_eq!(function.close(), Err(Error::System { what: "unmap", errno }));
    // A first failure stays the error.
    let fake = Fake::new();
    let function = open(&fake).unwrap();
    fake.state().reset_fails = true;
    fake.twist(0, Twist::Keep);
    assert!(matches!(function.close(), Err(Error::TimedOut { .. })));
}

#[test]
fn commands_of_many_threads_end_in_their_own_entries() {
    let fake = Fake::new();
    let function = open(&fake).unwrap();
    let done = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    function.command(Op::QUERY_HCA_CAP, 1, &[0; 16], 4112).unwrap();
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(done.into_inner(), 160);
    function.close().unwrap();
    gone(&fake);
}
