//! Limit of pinned memory: `RLIMIT_MEMLOCK`, compared with what the process has pinned.

use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};

/// The limit in bytes, if pinning `wanted` more bytes exceeds it. The kernel (`ib_umem_get`)
/// exempts `CAP_IPC_LOCK`; a process that has it gets no `ENOMEM` from the limit and does not call
/// this.
#[must_use]
pub fn exceeded(wanted: u64) -> Option<u64> {
    let (limit, _) = getrlimit(Resource::RLIMIT_MEMLOCK).ok()?;
    let status = std::fs::read_to_string("/proc/self/status").ok();
    let pinned = status.as_deref().and_then(pinned_bytes).unwrap_or(0);
    (limit != RLIM_INFINITY && pinned.saturating_add(wanted) > limit).then_some(limit)
}

/// `VmPin` of `/proc/self/status` in bytes; proc(5).
fn pinned_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmPin:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinned_memory_is_read_from_proc_status() {
        let status = "Name:\tcat\nVmLck:\t       8 kB\nVmPin:\t     512 kB\nVmHWM:\t1 kB\n";
        assert_eq!(pinned_bytes(status), Some(512 * 1024));
        assert_eq!(pinned_bytes("VmPin:\tmany kB\n"), None);
        assert_eq!(pinned_bytes(""), None);
    }

    #[test]
    fn what_no_limit_can_hold_goes_over_it() {
        let (limit, _) = getrlimit(Resource::RLIMIT_MEMLOCK).unwrap();
        let expected = (limit != RLIM_INFINITY).then_some(limit);
        assert_eq!(exceeded(u64::MAX), expected);
    }
}
