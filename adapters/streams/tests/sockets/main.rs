//! Sockets over RDMA: streams and datagrams.

mod datagram_sockets;
mod keep_alive;
mod stream;
mod stream_calls;
mod stream_peer;
