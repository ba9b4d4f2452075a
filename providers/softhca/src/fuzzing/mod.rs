//! Entry points of fuzzers: one function for each boundary where foreign bytes come in. Each takes
//! any bytes, and panics when a promise is broken.
//!
//! `fuzz/` has the targets, `corpus.rs` replays what is kept of a fuzzer's finds, in a plain test.
//!
//! | function | whose bytes |
//! |---|---|
//! | [`packets`] | a peer's, to connected queue pairs of each service |
//! | [`work_requests`] | a program's: WQEs, doorbell records, doorbells |
//! | [`ethernet`] | a sender's, of any Ethernet frame |
//! | [`rings`] | another process's, in rings of shared memory |
//! | [`mads`] | another host's connection manager |
//! | [`mailboxes`] | a guest's driver: commands of the firmware, one after the other |
//! | [`guests`] | a guest's: registers, entries of the command queue, rings, beside another guest |
//! | [`clients`] | a vfio-user client's: messages and descriptors |

#[path = "../../../../fuzz/feed.rs"]
pub(crate) mod feed;
mod frames;
mod scene;
mod work;

#[cfg(test)]
mod corpus;

pub use frames::packets;
pub use work::work_requests;

/// Any Ethernet frame: its headers, and its number for receive side scaling.
pub fn ethernet(data: &[u8]) {
    crate::hca::ethernet::rss::fuzz::ethernet(data);
}

/// Any stores into a ring of shared memory that is written and read meanwhile.
#[cfg(not(uverbs_loom))]
pub fn rings(data: &[u8]) {
    crate::wire::shared::ring::fuzz::rings(data);
}

/// Any messages between two connection managers whose programs connect and part.
pub fn mads(data: &[u8]) {
    crate::cm::fuzz::mads(data);
}

/// Any commands of the firmware, after those that make one object of each kind.
#[cfg(feature = "pci")]
pub fn mailboxes(data: &[u8]) {
    crate::firmware::fuzz::mailboxes(data);
}

/// Any stores of a guest into registers, memory and rings, beside another guest.
#[cfg(feature = "pci")]
pub fn guests(data: &[u8]) {
    crate::pci::fuzz::guests(data);
}

/// Any messages of a vfio-user client, with descriptors and without.
#[cfg(feature = "pci")]
pub fn clients(data: &[u8]) {
    crate::vfio_user::fuzz::clients(data);
}
