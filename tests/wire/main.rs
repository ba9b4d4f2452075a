//! Wires of the software HCA: UDP, shared memory, and soft-RoCE at the other end.

mod exit;
mod interop;
mod udp;
