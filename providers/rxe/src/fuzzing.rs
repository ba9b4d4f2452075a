//! Targets of fuzzers (`fuzz/`, docs/TESTING.md): rings whose kernel works correctly, almost
//! correctly, or stores arbitrary values. Any bytes are valid input; a broken promise panics.

use uverbs_core::provider::CqOps;
use uverbs_kernel_rings::testing::Ledger;

use crate::tests::rig::Rig;

mod answers;
mod request;
mod sends;

pub use answers::rxe_answers;
pub use sends::rxe_sends;

/// Number of frames, and entries of the completion queue.
const FRAMES: u32 = 24;
const ENTRIES: u32 = 15;

/// Stores an index, valid or any, or bytes of an element, as no kernel would.
fn lie(rig: &Rig, mut next: impl FnMut() -> u8) {
    let queue = [&rig.completions, &rig.sends, &rig.recvs][usize::from(next() % 3)];
    let queue = queue.lock().expect("nobody panics with it");
    let index = match next() % 3 {
        // An index of an element.
        0 | 1 => u32::from(next()) % queue.slots(),
        _ => u32::from_ne_bytes([next(), next(), next(), next()]),
    };
    match next() % 3 {
        0 => queue.poke_producer(index),
        1 => queue.poke_consumer(index),
        _ => {
            let mut bytes = queue.read(index);
            for _ in 0..1 + next() % 4 {
                // A completion has 48 bytes, a work request begins with its number.
                bytes[usize::from(next() % 48)] = next();
            }
            queue.write(index, &bytes);
        }
    }
}

/// Posts, and plays a kernel that completes them, with any status and opcode, or that lies.
pub fn rxe_rings(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let mut rig = Rig::new(ENTRIES);
    rig.start_at(bytes.next().unwrap_or(0).into());
    let mut ledger = Ledger::new(rig.slab(64, FRAMES), true);
    while let Some(op) = bytes.next() {
        let mut next = || bytes.next().unwrap_or(0);
        match op % 8 {
            0 => ledger.send(&mut rig.sq),
            1 => ledger.recv(&mut rig.rq),
            2 => {
                rig.complete_send(0, u32::from(op >> 3));
            }
            3 => {
                rig.complete_recv(0, 128 + u32::from(op >> 3 & 1), 40, None);
            }
            4 => {
                let (status, opcode) = (u32::from(next()), u32::from(next()));
                if op & 8 == 0 {
                    rig.complete_send(status, opcode);
                } else {
                    let length = u32::from_ne_bytes([next(), next(), next(), next()]);
                    rig.complete_recv(status, opcode, length, Some(7));
                }
            }
            5 => lie(&rig, next),
            6 => rig.cq.publish(),
            _ if op & 8 != 0 => ledger.drain(&mut rig.cq, 2 * ENTRIES + 1),
            _ => {
                ledger.poll(&mut rig.cq);
            }
        }
    }
    ledger.drain(&mut rig.cq, 2 * ENTRIES + 1);
    drop(rig);
    ledger.end();
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn what_is_kept() {
        support::replay("rxe_rings", super::rxe_rings);
    }

    #[test]
    fn what_is_kept_of_sends() {
        support::replay("rxe_sends", super::rxe_sends);
    }

    /// Mostly short posts and their processing by the kernel, so that the ring is often full.
    fn step() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            8 => (0u8..2).prop_map(|signaled| vec![0, signaled, 2, 0, 0]),
            8 => prop::sample::select(vec![6, 9, 10, 11, 12]).prop_map(|step| vec![step]),
            1 => prop::collection::vec(any::<u8>(), 1..60),
        ]
    }

    #[test]
    fn what_is_kept_of_answers() {
        support::replay("rxe_answers", super::rxe_answers);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_answers_of_the_kernel(data in prop::collection::vec(any::<u8>(), 0..600)) {
            super::rxe_answers(&data);
        }

        #[test]
        fn any_stores_of_the_kernel(data in prop::collection::vec(any::<u8>(), 0..300)) {
            super::rxe_rings(&data);
        }

        #[test]
        fn any_consumer_index(
            size: u8,
            start in prop_oneof![u32::MAX - 8..=u32::MAX, any::<u32>()],
            steps in prop::collection::vec(step(), 0..100),
        ) {
            let head = [&[size][..], &start.to_le_bytes()].concat();
            super::rxe_sends(&[head, steps.concat()].concat());
        }
    }
}
