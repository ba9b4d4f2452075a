//! Replays the corpus of each fuzz target.

use support::replay;

#[test]
fn any_packets() {
    replay("packets", super::packets);
}

#[test]
fn any_work_requests() {
    replay("work_requests", super::work_requests);
}

#[test]
fn any_ethernet_frames() {
    replay("ethernet", super::ethernet);
}

#[test]
#[cfg(not(uverbs_loom))]
fn any_stores_into_rings() {
    replay("rings", super::rings);
}

#[test]
#[cfg(feature = "pci")]
fn any_mailboxes() {
    replay("mailboxes", super::mailboxes);
}

#[test]
#[cfg(feature = "pci")]
fn any_guests() {
    replay("guests", super::guests);
}

#[test]
#[cfg(feature = "pci")]
fn any_clients() {
    replay("clients", super::clients);
}
