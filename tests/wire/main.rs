//! Wires of the software HCA: UDP, shared memory, and soft-RoCE at the other end.

mod interop;
mod udp;
