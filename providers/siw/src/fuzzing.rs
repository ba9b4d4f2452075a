//! Targets of fuzzers (`fuzz/`, docs/TESTING.md): rings whose kernel works correctly, almost
//! correctly, or stores arbitrary values. Any bytes are valid input; a broken promise panics.

use uverbs_core::provider::CqOps;
use uverbs_kernel_rings::testing::Ledger;

use crate::tests::rig::Rig;

mod answers;

pub use answers::siw_answers;

/// Number of frames, and entries of the completion queue.
const FRAMES: u32 = 24;
const ENTRIES: u32 = 16;

/// Makes the kernel take the oldest work request that it sees, and complete it.
fn complete(rig: &Rig, recv: bool, opcode: u8, status: u16, bytes: u32) {
    let mut kernel = rig.kernel.state();
    let taken = if recv { kernel.take_recv() } else { kernel.take_send() };
    if let Some(taken) = taken {
        kernel.complete(taken.id(), opcode, status, bytes);
    }
}

/// Posts work requests. The simulated kernel completes them with any status and opcode, completes
/// unknown ones, and overwrites the rings.
pub fn siw_rings(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let mut rig = Rig::new(ENTRIES);
    let mut ledger = Ledger::new(rig.slab(64, FRAMES), false);
    while let Some(op) = bytes.next() {
        let mut next = || bytes.next().unwrap_or(0);
        match op % 8 {
            0 => ledger.send(&mut rig.sq),
            1 => ledger.recv(&mut rig.rq),
            2 => complete(&rig, op & 8 != 0, if op & 8 != 0 { 4 } else { 2 }, 0, 40),
            3 => complete(&rig, op & 8 != 0, next(), next().into(), u32::from(next()) << 24),
            // A work request that was never posted, or completed already.
            4 => {
                let id = u64::from(next()) | u64::from(next()) << 31 | u64::from(next()) << 56;
                rig.kernel.state().complete(id, next(), next().into(), 40);
            }
            5 => rig.kernel.state().spoil((op >> 3).into(), next(), next(), next()),
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
        support::replay("siw_rings", super::siw_rings);
    }

    #[test]
    fn what_is_kept_of_answers() {
        support::replay("siw_answers", super::siw_answers);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_stores_of_the_kernel(data in prop::collection::vec(any::<u8>(), 0..300)) {
            super::siw_rings(&data);
        }

        #[test]
        fn any_answers_of_the_kernel(data in prop::collection::vec(any::<u8>(), 0..600)) {
            super::siw_answers(&data);
        }
    }
}
