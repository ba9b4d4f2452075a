//! Sockets over RDMA: streams and datagrams.

mod datagram_sockets;
mod keep_alive;
mod peer_ends;
mod stream;
mod stream_calls;
mod stream_peer;
