//! Packets: exact ones, lost ones, marked ones, and arbitrary ones.

mod congestion;
mod held;
mod hostile;
mod lossy;
mod packets;
mod patience;
mod placement;
mod stuck;
