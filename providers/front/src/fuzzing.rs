//! Entry point of a fuzzer: accepts arbitrary bytes, and panics if a promise is violated.

/// Arbitrary messages between two connection managers whose programs connect and disconnect.
pub fn mads(data: &[u8]) {
    crate::cm::fuzz::mads(data);
}

#[cfg(test)]
mod tests {
    #[test]
    fn any_mads() {
        support::replay("mads", super::mads);
    }
}
