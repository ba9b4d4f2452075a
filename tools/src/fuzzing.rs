//! Entry points of the fuzzer (`fuzz/`, docs/TESTING.md): bytes of the other process, in each
//! exchange of the tools. Any bytes are allowed; a violated promise panics.

/// Arbitrary bytes of a peer; the first byte chooses the tool.
pub(crate) fn exchanges(data: &[u8]) {
    let Some((tool, said)) = data.split_first() else { return };
    match tool % 3 {
        0 => crate::pingpong::remote::fuzz::pingpong(said),
        1 => crate::perf::exchange::fuzz::perf(said),
        _ => crate::files::fuzz::files(said),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn what_is_kept() {
        support::replay("exchanges", super::exchanges);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_words(data in prop::collection::vec(any::<u8>(), 0..300)) {
            super::exchanges(&data);
        }
    }
}
