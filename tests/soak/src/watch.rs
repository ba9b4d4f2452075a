//! Resources of a process by the kernel's count, and leftovers of a run.

use std::fs;
use std::io;

use serde::Serialize;

use crate::wire::Net;

/// Resources of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Sample {
    /// Resident memory in KiB.
    pub(crate) rss: u64,
    /// Open files.
    pub(crate) files: u64,
    pub(crate) threads: u64,
    /// Mappings.
    pub(crate) maps: u64,
}

impl Sample {
    /// Sample of a live process.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        Ok(Self {
            rss: field(&status, "VmRSS:"),
            threads: field(&status, "Threads:"),
            files: fs::read_dir(format!("/proc/{pid}/fd"))?.count() as u64,
            maps: fs::read_to_string(format!("/proc/{pid}/maps"))?.lines().count() as u64,
        })
    }
}

/// The number behind a name at the beginning of a line.
fn field(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Leaks: sockets of this run's addresses, and softhca's files in `/dev/shm`.
pub(crate) fn left(net: Net) -> u64 {
    let files = fs::read_dir("/dev/shm").into_iter().flatten().flatten();
    let files = files.filter(|file| file.file_name().to_string_lossy().contains("uverbs"));
    sockets(net) + files.count() as u64
}

/// Sockets of this run's addresses.
fn sockets(net: Net) -> u64 {
    let lines = |file: &str, mark: &str| {
        let text = fs::read_to_string(file).unwrap_or_default();
        text.lines().filter(|line| line.contains(mark)).count() as u64
    };
    let unix = lines("/proc/net/unix", &format!("/{}", net.prefix()));
    unix + lines("/proc/net/udp", &net.in_hex())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Wire;

    #[test]
    fn a_process_has_what_it_opens() {
        let before = Sample::of(std::process::id()).unwrap();
        assert!(before.rss > 100 && before.threads > 0 && before.maps > 10, "{before:?}");
        let files: Vec<_> = (0..100).map(|_| fs::File::open("/dev/null").unwrap()).collect();
        let after = Sample::of(std::process::id()).unwrap();
        assert!(after.files > before.files + 90, "{before:?} {after:?}");
        drop(files);
    }

    #[test]
    fn a_device_that_is_there_is_left() {
        let net = Net::of(std::process::id());
        // Files are anybody's.
        assert_eq!(sockets(net), 0);
        let device = Wire::Either.device(net.address(1)).unwrap();
        assert!(sockets(net) >= 2, "a UDP socket and a name of shared memory");
        drop(device);
        assert_eq!(sockets(net), 0);
    }
}
