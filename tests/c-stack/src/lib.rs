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
//! | `log` | log of all commands |
//! | `obliging` | accepts commands that Linux refuses, for comparisons |
//! | `capture`, `exports` | pending writes, for programs that know of this library |
//! | `trace` | marks the time in this library, for programs that count the client's work |
//! | `user` | access to process memory by pointers that may be wrong |
//!
//! Environment:
//!
//! | variable | |
//! |---|---|
//! | `UVERBS_SOFTHCA_LINK` | `eth` (default) or `ib` |
//! | `UVERBS_SOFTHCA_NUMBER` | makes GUID and addresses; 1 by default |
//! | `UVERBS_SOFTHCA_UDP` | puts the device on the network, RoCEv2 over UDP, at this address of the host; a port may follow (`127.0.0.2`, `192.0.2.7:4792`), and `,udp` keeps it from shared memory |
//! | `UVERBS_SOFTHCA_STEPPED` | set: commands are answered, and the queues' memory is left alone, until the program asks for work (`exports`) |
//! | `UVERBS_SOFTHCA_DIR` | folder in which the sysfs tree is made, and removed at exit; the temporary folder by default |
//! | `UVERBS_SOFTHCA_LOG` | file to which a line is added for each command |
//! | `UVERBS_SOFTHCA_CAPTURE` | file to which captures go (`exports`) |
//! | `UVERBS_SOFTHCA_OBLIGING` | set: changes of queue pairs into SQD and alternate paths, which Linux refuses for this device, are answered with success (`obliging`) |
//! | `UVERBS_SOFTHCA_LINES` | set: what the program prints is written out line by line, also into a pipe |
//! | `UVERBS_SOFTHCA_MARKED`, `UVERBS_SOFTHCA_TIMED` | set: calls are marked for a tracer, the time in here is counted (`trace`) |
//!
//! Limits. A duplicate of a descriptor (`dup2`, `fcntl`, `SCM_RIGHTS`) is `/dev/null`; so is a
//! descriptor of the device after `dup2` onto it or `close_range`. A forked child cannot use the
//! device, whose thread runs in the parent: every command and mmap fails with `EIO` there. Legacy
//! `write()` commands fail with `EOPNOTSUPP`. System calls made without libc are not seen.

mod capture;
mod device;
mod exports;
mod files;
mod hooks;
mod log;
mod obliging;
mod real;
mod trace;
mod tree;
mod user;
