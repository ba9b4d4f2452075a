//! Counters of a shared-memory wire and of its link.

use crate::wire::counts::counts;

counts! {
    /// Counts of a shared-memory wire since it was made.
    stats SharedStats;
    /// The link and the counters of a shared-memory wire that its HCA owns by now.
    /// Clones are the same control.
    control SharedControl;
    /// Packets written to another device's ring.
    sent,
    /// Packets among these whose payload, of several packets perhaps, stayed where it was.
    lent,
    /// Packets that arrived and were handed to the device.
    received,
    /// Payloads that were copied from another process's memory.
    taken,
    /// Copies among these, one or more for a payload, out of memory that this process has mapped.
    mapped,
    /// Payloads that couldn't be read there; their process lends nothing more to this one.
    unread,
    /// Payloads that weren't there any more: their work request or memory region had ended.
    recalled,
    /// System calls that woke a reader.
    wakes,
    /// Devices that this one has written to; one that came back is counted again.
    met,
    /// Devices that have written to this one.
    joined,
    /// Devices of either kind that have gone.
    left,
    /// Refused: of another user, with a malformed message, or one too many.
    refused,
    /// Ended because the other side wrote what none of this kind writes.
    broken,
    /// Packets that a ring had no room for; they were offered again, or lost.
    full,
    /// Not sent: shared memory alone was asked for, and doesn't reach the destination.
    nowhere,
    /// Dropped on either way while the link was down.
    link_down,
}
