//! Data: each transport moves the right bytes to the right queue.

mod any_transport;
mod dc;
mod dc_streams;
mod multicast;
mod placement;
mod raw_packets;
mod rc_data;
mod refused;
mod rss;
mod sniffer;
mod srq;
mod srq_limits;
mod tags;
mod unreliable;
mod xrc;
