//! Counters of a shared-memory wire and of its link.

use crate::wire::counts::counts;

counts! {
    /// Counts of a shared-memory wire since its creation.
    stats SharedStats;
    /// Link and counters of a shared-memory wire that an HCA owns. Clones are the same control.
    control SharedControl;
    /// Packets written to another device's ring.
    sent,
    /// Sent packets whose payload, perhaps of several packets, was lent.
    lent,
    /// Packets received and handed to the device.
    received,
    /// Payloads copied from another process's memory.
    taken,
    /// Copies of payloads, one or more each, from memory that this process has mapped.
    mapped,
    /// Payloads that could not be read; their process lends nothing more to this one.
    unread,
    /// Payloads recalled before the copy: their work request or memory region had ended.
    recalled,
    /// System calls that woke a reader.
    wakes,
    /// Devices that this one has written to; a device that came back counts again.
    met,
    /// Devices that have written to this one.
    joined,
    /// Devices of both kinds that have left.
    left,
    /// Refused connections: of another user, with an invalid message, or one too many.
    refused,
    /// Connections ended because the other side stored invalid values.
    broken,
    /// Packets that a ring had no room for; they were offered again, or lost.
    full,
    /// Packets lost because shared memory, the only carrier, does not reach the destination.
    nowhere,
    /// Packets dropped in either direction while the link was down.
    link_down,
}
