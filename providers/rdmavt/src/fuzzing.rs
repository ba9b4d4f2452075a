//! Targets of fuzzers (`fuzz/`, docs/TESTING.md): rings whose kernel works correctly, almost
//! correctly, or stores arbitrary values. Any bytes are valid input; a broken promise panics.

use uverbs_core::Errno;
use uverbs_core::provider::CqOps;
use uverbs_kernel_rings::testing::Ledger;

use crate::tests::rig::Rig;

mod answers;

pub use answers::rdmavt_answers;

/// Number of frames, and entries of the completion queue.
const FRAMES: u32 = 24;
const ENTRIES: u32 = 16;

/// Makes the kernel take the oldest work request that it has, and complete it.
fn complete(rig: &Rig, recv: bool, opcode: u32, status: u32, bytes: u32) {
    let mut kernel = rig.kernel.state();
    let taken = if recv {
        kernel.take_recv().map(|receive| receive.id())
    } else {
        kernel.take_send().map(|sent| sent.wr.id())
    };
    if let Some(id) = taken {
        kernel.complete(id, status, opcode, bytes);
    }
}

/// Posts work requests. The simulated kernel completes them with any status and opcode, completes
/// unknown ones, refuses some, and overwrites the rings.
pub fn rdmavt_rings(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let mut rig = Rig::new(ENTRIES);
    let mut ledger = Ledger::new(rig.slab(64, FRAMES), true);
    while let Some(op) = bytes.next() {
        let mut next = || bytes.next().unwrap_or(0);
        match op % 8 {
            0 => ledger.send(&mut rig.sq),
            1 => ledger.recv(&mut rig.rq),
            2 => complete(&rig, op & 8 != 0, if op & 8 != 0 { 128 } else { 0 }, 0, 40),
            3 => complete(&rig, op & 8 != 0, next().into(), next().into(), u32::from(next()) << 24),
            // A work request that was never posted, or completed already.
            4 => {
                let id = u64::from(next()) | u64::from(next()) << 31 | u64::from(next()) << 56;
                rig.kernel.state().complete(id, next().into(), next().into(), 40);
            }
            5 => {
                let at = u16::from_ne_bytes([next(), op >> 3]);
                rig.kernel.state().spoil(next().into(), at, next());
            }
            6 if op & 8 != 0 => {
                let errno = if op & 16 != 0 { Errno::ENOMEM } else { Errno::EINVAL };
                rig.kernel.state().refusals.push_back((0, errno));
            }
            6 => rig.cq.publish(),
            _ if op & 8 != 0 => ledger.drain(&mut rig.cq, 2 * ENTRIES),
            _ => {
                ledger.poll(&mut rig.cq);
            }
        }
    }
    ledger.drain(&mut rig.cq, 2 * ENTRIES);
    drop(rig);
    ledger.end();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn what_is_kept() {
        support::replay("rdmavt_rings", super::rdmavt_rings);
    }

    #[test]
    fn what_is_kept_of_answers() {
        support::replay("rdmavt_answers", super::rdmavt_answers);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_stores_of_the_kernel(data in prop::collection::vec(any::<u8>(), 0..300)) {
            super::rdmavt_rings(&data);
        }

        #[test]
        fn any_answers_of_the_kernel(data in prop::collection::vec(any::<u8>(), 0..600)) {
            super::rdmavt_answers(&data);
        }
    }
}
