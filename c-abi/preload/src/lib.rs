//! `librspreload.so`, as rdma-core has it (`librdmacm/preload.c`): preloaded
//! (`LD_PRELOAD=librspreload.so`), it puts the sockets of an unmodified program on librdmacm's
//! (`rsocket`), which are streams over RDMA. What librdmacm can't connect goes over TCP.
//!
//! | file | what |
//! |---|---|
//! | `sockets` | `socket`, `bind`, `listen`, `accept`, `connect`, `shutdown`, names and options |
//! | `descriptors` | `close`, `dup`, `dup2`, `fcntl` |
//! | `transfer` | `read`, `send` and their like, `sendfile` |
//! | `waiting` | `poll`, `select` |
//! | `epoll` | `epoll_create` and its like |
//! | `switch` | forking servers: from TCP to RDMA at the first byte |
//! | `config` | which sockets of which program are taken, and how they are made |
//! | `table` | which descriptors are ours |
//! | `rdma` | librdmacm's functions |
//! | `real` | libc's own functions |
//!
//! Top to bottom; each uses only those below it. A program's descriptor is one of `/dev/null`, so
//! that no other file has its number; `table` knows what is behind it.
//!
//! | variable | what |
//! |---|---|
//! | `RS_SQ_SIZE`, `RS_RQ_SIZE` | sizes of a socket's queues |
//! | `RS_INLINE` | bytes inline |
//! | `RDMAV_FORK_SAFE` | a number but 0: the program forks before the first byte (`switch`) |
//! | `RS_PRELOAD_CONFIG` | another file than `/etc/rdma/rsocket/preload_config` |
//!
//! That file says which programs' sockets are taken (`config`).
//!
//! Limits, which C's library has, too: descriptors that are closed without `close` (`fclose`,
//! `close_range`), waiting by `ppoll`, `pselect` or `epoll_pwait`, calls that libc was compiled
//! into with checks (`__read_chk`), and sockets of numbers from 65536 on.
//!
//! # Safety
//!
//! The functions have the C signatures of those that they hide, and pass the program's arguments
//! on untouched. `fcntl` is variadic in C; here it takes the one argument that may follow, which
//! the calling conventions of Linux on x86-64 and AArch64 pass alike.
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a call's arguments are the program's")]

mod config;
mod descriptors;
mod epoll;
mod rdma;
mod real;
mod sockets;
mod switch;
mod table;
mod transfer;
mod waiting;
