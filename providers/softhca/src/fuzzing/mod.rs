//! Entry points of fuzzers: a function for each boundary where foreign bytes come in. Each accepts
//! arbitrary bytes, and panics if a promise is violated.
//!
//! `fuzz/` has the targets; `corpus.rs` replays the kept inputs in a plain test.
//!
//! | function | bytes of |
//! |---|---|
//! | [`packets`] | a peer, to connected queue pairs of each service |
//! | [`work_requests`] | a program: WQEs, doorbell records, doorbells |
//! | [`ethernet`] | a sender of Ethernet frames |
//! | [`rings`] | another process, in rings of shared memory |
//! | [`ioctls`] | a program: commands |
//! | [`mailboxes`] | a guest's driver: firmware commands |
//! | [`guests`] | a guest: registers, command queue entries, rings, beside another guest |
//! | [`clients`] | a vfio-user client: messages and descriptors |

mod frames;
mod scene;
mod work;

#[cfg(test)]
mod corpus;

pub use frames::packets;
pub use work::work_requests;

/// An arbitrary Ethernet frame: its headers, and its RSS hash.
pub fn ethernet(data: &[u8]) {
    crate::hca::ethernet::rss::fuzz::ethernet(data);
}

/// Arbitrary stores into a ring of shared memory during writes and reads.
#[cfg(not(uverbs_loom))]
pub fn rings(data: &[u8]) {
    crate::wire::shared::ring::fuzz::rings(data);
}

/// Arbitrary sequences of ioctls.
pub fn ioctls(data: &[u8]) {
    crate::kernel_tests::sequences::ioctls(data);
}

/// Arbitrary firmware commands, after commands that create an object of each kind.
#[cfg(feature = "pci")]
pub fn mailboxes(data: &[u8]) {
    crate::firmware::fuzz::mailboxes(data);
}

/// Arbitrary stores of a guest into registers, memory and rings, beside another guest.
#[cfg(feature = "pci")]
pub fn guests(data: &[u8]) {
    crate::pci::fuzz::guests(data);
}

/// Arbitrary messages of a vfio-user client, with and without descriptors.
#[cfg(feature = "pci")]
pub fn clients(data: &[u8]) {
    crate::vfio_user::fuzz::clients(data);
}
