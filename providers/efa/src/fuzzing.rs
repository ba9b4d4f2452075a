//! Targets of fuzzers (`fuzz/`, docs/TESTING.md): rings whose device works correctly, almost
//! correctly, or stores arbitrary values. Any bytes are valid input; a broken promise panics.

use std::sync::Arc;

use uverbs_core::provider::{CqOps, Provider};
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_EFA;
use uverbs_kernel_rings::testing::{Ledger, Liar, objects};

use crate::Efa;
use crate::tests::kernel::{Kernel, SUB_CQS};
use crate::tests::rig::Rig;

/// Number of frames, and entries of the completion queue.
const FRAMES: u32 = 24;
const ENTRIES: u32 = 16;
/// Completions of full rings, each twice as long as was asked for, in two turns.
const MOST: u32 = 4 * SUB_CQS * ENTRIES;

/// Opens a device, makes objects and uses them. Whatever the kernel answers, each command returns
/// an object or an error, posts stay within their rings, and all objects are destroyed.
pub fn efa_answers(data: &[u8]) {
    let liar = Liar::new(Arc::new(Kernel::default()), |_, _, _| false, data);
    let opened = Efa::open(Arc::clone(&liar).core(RDMA_DRIVER_EFA));
    if let Err(error) = opened.and_then(|context| objects::<Efa>(&context, &liar)) {
        assert!(!error.to_string().is_empty());
    }
    liar.check();
}

/// Posts work requests. The device completes them in any order with any status, completes unknown
/// ones and some twice, and overwrites the rings.
pub fn efa_rings(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let mut rig = Rig::new(ENTRIES);
    let mut ledger = Ledger::new(rig.slab(64, FRAMES), false).unsolicited();
    while let Some(op) = bytes.next() {
        let mut next = || bytes.next().unwrap_or(0);
        match op % 8 {
            0 => ledger.send_to(&mut rig.sq, Rig::to(&rig.ah)),
            1 => ledger.recv(&mut rig.rq),
            2 => rig.kernel.state().take(),
            3 => rig.kernel.state().finish(
                op & 8 != 0,
                next(),
                if op & 16 != 0 { next() } else { 0 },
            ),
            // A work request that was never posted, or completed already.
            4 => {
                let id = u16::from_ne_bytes([next(), next()]);
                let entry = (next(), next(), next());
                rig.kernel.state().complete(op.into(), id, entry);
            }
            5 => {
                let at = u16::from_ne_bytes([next(), op >> 3]);
                rig.kernel.state().spoil(next().into(), at.into(), next());
            }
            6 => rig.cq.publish(),
            _ if op & 8 != 0 => ledger.drain(&mut rig.cq, MOST),
            _ => {
                ledger.poll(&mut rig.cq);
            }
        }
    }
    ledger.drain(&mut rig.cq, MOST);
    drop(rig);
    ledger.end();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn what_is_kept() {
        support::replay("efa_rings", super::efa_rings);
    }

    #[test]
    fn what_is_kept_of_answers() {
        support::replay("efa_answers", super::efa_answers);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_stores_of_the_device(data in prop::collection::vec(any::<u8>(), 0..300)) {
            super::efa_rings(&data);
        }

        #[test]
        fn any_answers_of_the_kernel(data in prop::collection::vec(any::<u8>(), 0..600)) {
            super::efa_answers(&data);
        }
    }
}
