//! `librspreload.so`, as rdma-core has it (`librdmacm/preload.c`): preloaded
//! (`LD_PRELOAD=librspreload.so`), it puts the sockets of an unmodified program on librdmacm's
//! (`rsocket`), which are streams over RDMA. What librdmacm can't connect goes over TCP.
//!
//! | file | what |
//! |---|---|
//! | `sockets` | `socket`, `bind`, `listen`, `accept`, `connect`, `shutdown`, names and options |
//! | `descriptors` | `close`, `dup`, `dup2`, `fcntl`, `ioctl` |
//! | `transfer` | `read`, `write`, `send`, `recv`, their vector forms, `sendfile` |
//! | `waiting` | `poll`, `select`, and with a signal mask |
//! | `epoll` | `epoll_create`, `epoll_ctl`, `epoll_wait`, and with a signal mask |
//! | `forks` | listeners of servers that fork workers |
//! | `switch` | forking servers: from TCP to RDMA at the first byte |
//! | `config` | selection of programs and sockets, queue sizes |
//! | `table` | descriptors that stand for sockets of librdmacm |
//! | `rdma` | librdmacm's functions |
//! | `real` | libc's own functions |
//!
//! Each file uses only the files below it. A program's descriptor is an open `/dev/null`, so that
//! its number is taken; `table` maps it to the socket.
//!
//! | variable | what |
//! |---|---|
//! | `RS_SQ_SIZE`, `RS_RQ_SIZE` | sizes of a socket's queues |
//! | `RS_INLINE` | bytes inline |
//! | `RDMAV_FORK_SAFE` | not 0: the program forks before the first byte (`switch`) |
//! | `RS_PRELOAD_CONFIG` | configuration file, instead of `/etc/rdma/rsocket/preload_config` |
//!
//! The file selects the programs and sockets that are taken (`config`).
//!
//! Limits, shared with C's library: a descriptor must be closed by `close` (not `fclose` or
//! `close_range`); libc's checked variants of calls (`__read_chk`) are not intercepted; descriptors
//! from 65536 on stay the system's. A wait with a signal mask may miss a signal that comes as it
//! begins.
//!
//! # Safety
//!
//! The functions have the C signatures of those that they hide, and pass the program's arguments
//! on untouched. `fcntl` and `ioctl` are variadic in C; here they take the one argument that may
//! follow, which the calling conventions of Linux on x86-64 and AArch64 pass alike.
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a call's arguments are the program's")]

mod config;
mod descriptors;
mod epoll;
mod forks;
mod rdma;
mod real;
mod sockets;
mod switch;
mod table;
mod transfer;
mod waiting;
