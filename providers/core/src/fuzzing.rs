//! Entry points of the fuzzers (`fuzz/`, docs/TESTING.md). All accept any bytes; a broken invariant
//! panics.

/// Fuzzes discovery with arbitrary responses of RDMA netlink.
pub fn netlink(data: &[u8]) {
    crate::discovery::netlink::fuzz::netlink(data);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn what_is_kept() {
        support::replay("netlink", super::netlink);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_answers_of_netlink(data in prop::collection::vec(any::<u8>(), 0..400)) {
            super::netlink(&data);
        }
    }
}
