//! Titles of compressed entries, written by hand.

use uverbs_core::provider::CqOps;
use uverbs_mlx5_prm::cqe::MLX5_CQE_COMPRESSED;

use super::cq::{Cqe, RESP_SEND};
use super::fixture::PollSide;

const ENTRIES: u32 = 8;

/// A title with a number of completions.
fn title(count: u32) -> [u8; 64] {
    let Cqe(mut bytes) = Cqe::new(RESP_SEND, 1).bytes(count);
    bytes[63] |= MLX5_CQE_COMPRESSED;
    bytes
}

/// Expanding a title overwrites only entries that software owns.
#[test]
fn a_title_with_any_count_touches_no_more_than_the_ring_has_left() {
    for before in [0, 3, ENTRIES - 1] {
        for count in [0, 1, ENTRIES + 1, 2 * ENTRIES, u32::MAX] {
            let mut side = PollSide::compressed(ENTRIES);
            for _ in 0..before {
                side.complete(Cqe::new(RESP_SEND, 1).0);
                assert!(side.cq.next().is_none());
            }
            side.complete(title(count));
            let (at, all) = (before as usize * 64, ENTRIES as usize * 64);
            let others = |side: &PollSide| {
                [side.ring.read(0, at), side.ring.read(at + 64, all - at - 64)].concat()
            };
            let held = others(&side);
            assert!(side.cq.next().is_none());
            assert!(others(&side) == held, "{count} behind {before}");
            assert_eq!(side.cq.strays(), u64::from(before) + 1);
        }
    }
}
