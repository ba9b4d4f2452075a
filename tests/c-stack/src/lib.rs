//! The software HCA under unmodified C programs.
//!
//! Preloaded (`LD_PRELOAD=libuverbs_c_stack.so`), this library takes the place of
//! `/dev/infiniband/uverbs0`: it writes a sysfs tree that shows one ConnectX, points `SYSFS_PATH`
//! at it, and answers what the process then does with the device node out of a
//! [`SoftHca`](uverbs_softhca::SoftHca) in the same process. Nothing else of the process changes;
//! the machine's own RDMA devices are out of its sight.
//!
//! | file | what |
//! |---|---|
//! | `hooks` | the symbols of libc that are interposed |
//! | `real` | libc's own, behind them |
//! | `files` | which descriptors are ours, and the door behind each |
//! | `device` | the device and the environment variables that describe it |
//! | `tree` | the sysfs tree |
//! | `log` | the record of all commands |
//! | `obliging` | says yes where Linux refuses, for comparisons |
//! | `capture`, `exports` | what is pending in rings, records and doorbell pages, for programs that know of this library |
//! | `trace` | when the process is in here, for those who count what the client does |
//! | `user` | the process's memory, where a pointer may be wrong |
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
//! Limits. A descriptor that was duplicated (`dup`, `fcntl`, `SCM_RIGHTS`) is `/dev/null` and
//! nothing else; so is what is left after `dup2` onto the device's, or after `close_range`. After a
//! fork the child must not use the device (the thread that serves it lives in the parent): every
//! command and every mmap gives `EIO` there. The legacy `write()` commands are not answered
//! (`EOPNOTSUPP`). Programs that make system calls without libc are not seen.

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
