//! Packets: exact ones, lost ones, marked ones, and arbitrary ones.

mod congestion;
mod delayed_acks;
mod hostile;
mod lossy;
mod packets;
mod patience;
mod placement;
mod stuck;
