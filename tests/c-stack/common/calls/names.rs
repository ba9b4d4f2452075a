//! Names of the counted calls, and of the versions that the counts depend on.
//!
//! # Safety
//!
//! One function of glibc is called, which returns a static C string.
#![allow(unsafe_code, reason = "asks glibc for its version")]

use super::trace::{Calls, is_memory};

/// Method names by object and method in hex, with the number of a write command:
/// `rdma/ib_user_ioctl_cmds.h`, `ib_user_verbs.h`, `mlx5_user_ioctl_cmds.h`.
const METHODS: [(&str, &str); 19] = [
    ("0.0(0x1)", "QUERY_DEVICE"),
    ("0.0(0x3)", "ALLOC_PD"),
    ("0.0(0x9)", "REG_MR"),
    ("0.0(0x1a)", "MODIFY_QP"),
    ("0.0(0x80000001)", "EX_QUERY_DEVICE"),
    ("0.2", "QUERY_PORT"),
    ("0.3", "GET_CONTEXT"),
    ("0.5", "QUERY_GID_TABLE"),
    ("0.6", "QUERY_GID_ENTRY"),
    ("1.0", "PD_DESTROY"),
    ("3.0", "CQ_CREATE"),
    ("3.1", "CQ_DESTROY"),
    ("4.0", "QP_CREATE"),
    ("4.1", "QP_DESTROY"),
    ("7.1", "MR_DESTROY"),
    ("10.0", "ASYNC_EVENT_ALLOC"),
    ("1000.1000", "DEVX_OTHER"),
    ("1008.1000", "UAR_OBJ_ALLOC"),
    ("1008.1001", "UAR_OBJ_DESTROY"),
];

/// Readable name of a call.
fn call_name(call: &str) -> String {
    let Some(rest) = call.strip_prefix("device ") else { return call.to_owned() };
    match rest.strip_prefix("ioctl ") {
        Some(number) => METHODS
            .iter()
            .find(|(known, _)| *known == number)
            .map_or_else(|| format!("method {number}"), |(_, name)| (*name).to_owned()),
        None if rest.ends_with("of RDMA netlink") => rest.to_owned(),
        None => format!("{rest} of the device"),
    }
}

/// Lists both sides' calls under a title, without memory management: `GET_CONTEXT, 2 read`. Equal
/// calls are one line.
pub fn listed(title: &str, c: &Calls, ours: &Calls) -> String {
    let [c, ours] = [c, ours].map(|calls| {
        let named = calls.iter().filter(|(name, _)| !is_memory(name)).map(|(name, &count)| {
            let name = call_name(name);
            if count == 1 { name } else { format!("{count} {name}") }
        });
        named.collect::<Vec<_>>().join(", ")
    });
    if c == ours {
        return format!("{title}: {c}\n");
    }
    format!("{title}\n    C     {c}\n    ours  {ours}\n")
}

/// Version of glibc, as `2.36`.
pub fn libc_version() -> String {
    // SAFETY: the function takes no argument.
    let version = unsafe { libc::gnu_get_libc_version() };
    // SAFETY: a static C string.
    unsafe { std::ffi::CStr::from_ptr(version) }.to_string_lossy().into_owned()
}
