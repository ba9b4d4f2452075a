//! Counters of a UDP wire and of its link.

use crate::wire::counts::counts;

counts! {
    /// Counts of a UDP wire since it was made.
    stats UdpStats;
    /// The link and the counters of a [`UdpWire`](super::UdpWire) that its HCA owns by now. Clones
    /// are the same control.
    control UdpControl;
    /// Packets given to the system.
    sent,
    /// Packets that arrived whole and were handed to the device.
    received,
    /// System calls that sent: a call takes several packets where the system divides them.
    send_calls,
    /// System calls that received packets.
    receive_calls,
    /// Dropped on arrival: the ICRC doesn't match.
    bad_icrc,
    /// Dropped on arrival: no packet can be as short, as long, or of such a length.
    malformed,
    /// Lost on arrival: the socket's buffer was full.
    overrun,
    /// Arrived with ECN's mark of congestion.
    congested,
    /// Congestion notifications (CNP) that arrived.
    congestion_notices,
    /// Not sent: no socket has the source's address, or none of its kind leads to the destination.
    unroutable,
    /// Not sent: the system refused (no route, a packet filter, an interface that is down).
    refused,
    /// Not sent: longer than the interface takes.
    too_long,
    /// Not sent: a packet of a dynamic connection, which only this device's like understands.
    foreign,
    /// Dropped on either way while the link was down.
    link_down,
}
