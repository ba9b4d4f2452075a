//! Counters of a UDP wire and of its link.

use crate::wire::counts::counts;

counts! {
    /// Counts of a UDP wire since its creation.
    stats UdpStats;
    /// Link and counters of a [`UdpWire`](super::UdpWire) that an HCA owns. Clones are the same
    /// control.
    control UdpControl;
    /// Packets passed to the system.
    sent,
    /// Packets received whole and handed to the device.
    received,
    /// System calls that sent packets: several per call if the system divides.
    send_calls,
    /// Sends that the system refused to divide. The address sends single packets since.
    undivided,
    /// System calls that received packets.
    receive_calls,
    /// Dropped on arrival: the ICRC doesn't match.
    bad_icrc,
    /// Dropped on arrival: no packet has such a length.
    malformed,
    /// Dropped on arrival: sent from another port, by a wire that keeps to its own.
    strangers,
    /// Lost on arrival: the socket's buffer was full.
    overrun,
    /// Received with ECN's congestion mark.
    congested,
    /// Received congestion notifications (CNP).
    congestion_notices,
    /// Not sent: no socket has the source address, or none of its family reaches the destination.
    unroutable,
    /// Multicast groups whose packets do not arrive: the system refused the membership.
    unjoined,
    /// Not sent: the system refused (no route, packet filter, interface down).
    refused,
    /// Not sent: longer than the interface's MTU.
    too_long,
    /// Not sent: a packet of a dynamic connection, which only software HCAs understand.
    foreign,
    /// Dropped in either direction while the link was down.
    link_down,
}
