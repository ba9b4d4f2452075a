//! Tells the linker of the shared object's name, of its version nodes, and of the functions of libc
//! that `src/cancel.rs` replaces.

use std::path::Path;

/// Cancellation points of libc that the library calls, in whichever crate. A name that is missing
/// here or in `src/cancel.rs` is a symbol that the linker doesn't find.
const REPLACED: [&str; 28] = [
    "accept4",
    "clock_nanosleep",
    "close",
    "closedir",
    "connect",
    "epoll_wait",
    "fallocate",
    "getaddrinfo",
    "getifaddrs",
    "getrandom",
    "nanosleep",
    "open64",
    "opendir",
    "pause",
    "poll",
    "ppoll",
    "pread64",
    "pwrite64",
    "read",
    "readdir64",
    "recv",
    "recvfrom",
    "recvmsg",
    "send",
    "sendmsg",
    "sendto",
    "write",
    "writev",
];

fn main() {
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("libibverbs.map");
    println!("cargo::rerun-if-changed={}", map.display());
    for arg in [
        "-soname,libibverbs.so.1".to_owned(),
        format!("--version-script={}", map.display()),
        // Its threads and their destructors don't survive an unloading.
        "-z,nodelete".to_owned(),
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{arg}");
    }
    for name in REPLACED {
        println!("cargo::rustc-cdylib-link-arg=-Wl,--wrap={name}");
    }
}
