//! The software HCA under unmodified C programs.
//!
//! This library is preloaded (`LD_PRELOAD=libuverbs_c_stack.so`) and takes the place of
//! `/dev/infiniband/uverbs0`. It writes a sysfs tree with one ConnectX, points `SYSFS_PATH` at it,
//! and answers the process's calls on the device node by a [`SoftHca`](uverbs_softhca::SoftHca) in
//! the process. The rest of the process is unchanged, except that the machine's RDMA devices are
//! hidden.
//!
//! | file | contents |
//! |---|---|
//! | `hooks` | interposed functions of libc |
//! | `real` | libc's own functions |
//! | `files` | descriptors of the device, and the door of each |
//! | `device` | the device and the environment variables that describe it |
//! | `tree` | the sysfs tree |
//! | `exports` | pending writes, for programs that know of this library |
//! | `trace` | marks the time in this library, for programs that count the client's work |
//! | `user` | access to process memory by pointers that may be wrong |
//! | `c_stack::log` | log of all commands |
//! | `c_stack::obliging` | accepts commands that Linux refuses, for comparisons |
//! | `c_stack::capture` | text of pending writes |
//!
//! Environment:
//!
//! - `UVERBS_SOFTHCA_LINK`: `eth` (default) or `ib`.
//! - `UVERBS_SOFTHCA_OMNI_PATH`, `UVERBS_SOFTHCA_EFA`: if set, the device is one of Omni-Path, or
//!   an adapter of Amazon's.
//! - `UVERBS_SOFTHCA_NUMBER`: number that GUID and addresses are derived from; default 1.
//! - `UVERBS_SOFTHCA_UDP`: network address of the device, RoCEv2 over UDP. A port may follow
//!   (`127.0.0.2`, `192.0.2.7:4792`); `,udp` at the end excludes shared memory.
//! - `UVERBS_SOFTHCA_STEPPED`: if set, commands are answered, and queues are processed only when
//!   the program asks for it (`exports`).
//! - `UVERBS_SOFTHCA_DIR`: parent directory of the sysfs tree, which is removed at exit; default:
//!   the temporary directory.
//! - `UVERBS_SOFTHCA_LOG`: file to which a line per command is appended.
//! - `UVERBS_SOFTHCA_CAPTURE`: file for captures (`exports`).
//! - `UVERBS_SOFTHCA_OBLIGING`: if set, commands that Linux refuses for this device succeed:
//!   changes of queue pairs into SQD, and alternate paths (`obliging`).
//! - `UVERBS_SOFTHCA_LINES`: if set, the program's output is written line by line, also to pipes.
//! - `UVERBS_SOFTHCA_MARKED`, `UVERBS_SOFTHCA_TIMED`: if set, calls are marked for a tracer, or the
//!   time in this library is counted (`trace`).
//!
//! Limits. A duplicate of a descriptor (`dup2`, `fcntl`, `SCM_RIGHTS`) is `/dev/null`; so is a
//! descriptor of the device after `dup2` onto it or `close_range`. A forked child cannot use the
//! device, whose thread runs in the parent: every command and mmap fails with `EIO` there. Legacy
//! `write()` commands fail with `EOPNOTSUPP`. System calls made without libc are not seen.

mod device;
mod exports;
mod files;
mod hooks;
mod real;
mod trace;
mod tree;
mod user;
