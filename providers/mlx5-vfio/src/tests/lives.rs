//! Lives of an RDMA device: nothing is left of one, whichever of its commands fails.

use std::time::Duration;

use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus, Delivery};

use super::context::{context, use_context};
use super::fake::{Fake, Twist, limits};
use crate::device::Limits;
use crate::door::Hca;
use crate::error::Error;
use crate::function::Function;

/// Number of lives.
const LIVES: usize = 1000;

/// A device whose completion queues have entries.
fn device() -> Fake {
    let fake = Fake::new();
    fake.state().log_max_cq_sz = 16;
    fake
}

/// Opens the device, uses it as a program does, and closes it. Returns true if all went well.
fn live(fake: &Fake, limits: Limits) -> Result<bool, Error> {
    let hca = Hca::new(Function::open(fake.clone(), limits)?, "fake")?;
    let uverbs = context(&hca);
    let queue = uverbs.as_ref().and_then(use_context);
    let all = queue.is_some();
    // The queue's memory outlives the file.
    drop(uverbs);
    drop(queue);
    Ok(all)
}

/// Checks that a closed device has nothing of the process.
fn gone(fake: &Fake) {
    fake.wait_for_the_end();
    let state = fake.state();
    assert_eq!((state.maps.len(), state.umems.len(), state.live), (0, 0, false));
    assert_eq!(state.failures, [""; 0]);
}

/// Commands of one life.
fn commands() -> Vec<CmdOpcode> {
    let fake = device();
    assert_eq!(live(&fake, patient()), Ok(true));
    gone(&fake);
    let state = fake.state();
    state.commands.iter().map(|(_, opcode, _)| *opcode).collect()
}

/// Limits of a device that answers. No look at its health comes between two commands.
fn patient() -> Limits {
    let limit = Duration::from_secs(20);
    Limits { command: limit, reclaim: limit, health: limit, ..limits() }
}

#[test]
fn a_thousand_lives_leave_nothing() {
    let fake = device();
    for _ in 0..LIVES {
        assert_eq!(live(&fake, patient()), Ok(true));
        gone(&fake);
        let mut state = fake.state();
        // The firmware gave its pages back before the reset.
        assert_eq!(state.pages_at_reset, 0);
        state.commands.clear();
    }
}

#[test]
fn each_command_that_fails_leaves_nothing() {
    for (at, command) in commands().iter().enumerate() {
        for twist in [Twist::Refuse(CmdStatus::NO_RES_ERR.0), Twist::Deliver(Delivery::TOK_ERR.0)] {
            let fake = device();
            fake.twist(at, twist.clone());
            if let Err(error) = live(&fake, patient()) {
                let named = error.to_string();
                let name = command.name().unwrap();
                assert!(named.contains(name), "{name} {twist:?}: {named}");
            }
            gone(&fake);
        }
    }
}

#[test]
fn each_command_that_is_stuck_leaves_nothing() {
    let short = Limits { command: Duration::from_millis(30), ..patient() };
    for at in 0..commands().len() {
        let fake = device();
        fake.twist(at, Twist::Keep);
        let _ = live(&fake, short);
        gone(&fake);
    }
}
