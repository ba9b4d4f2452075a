//! Texts of [`Error`]: verb, value, limit, cause and remedy.

use std::fmt;
use std::time::Duration;

use super::Error;
use crate::Errno;

/// Remedy for a process without a free file descriptor.
pub(super) const FEWER_FILES: &str = "raise the limit (ulimit -n), or open the device once: an \
                                      open device takes two, a completion channel one";

/// Names of the software HCAs, for a program that asked for a device in vain.
const SOFTWARE: &str = "software HCAs are softhca (other processes reach it), softhca0, softhca1 \
                        and softhca@ADDRESS";

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // No refusal of the RDMA driver.
            Self::Kernel { verb, errno: errno @ Errno::EMFILE, hint } => {
                write!(f, "{verb}: no file descriptor is left ({errno:?})")?;
                hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
            }
            Self::Kernel { verb, errno, hint } => {
                write!(f, "{verb}: the kernel returned {errno:?} ({errno})")?;
                hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
            }
            Self::Limit { verb, what, value, limit } => {
                let side = if value > limit { "at most" } else { "at least" };
                write!(f, "{verb}: {what} is {value}, must be {side} {limit}")
            }
            Self::Invalid { verb, what, value, why } => {
                write!(f, "{verb}: {what} is {value}; {why}")
            }
            Self::MissingAttribute { verb, attribute } => {
                write!(f, "{verb}: attribute {attribute} is missing")
            }
            Self::State { verb, state, needs } => {
                write!(f, "{verb}: the queue pair is in {state}, must be in {needs}")
            }
            Self::NoSuchDevice { .. }
            | Self::NoUsableDevice { .. }
            | Self::SoftHca { .. }
            | Self::PermissionDenied { .. } => self.of_device(f),
            Self::Memlock { verb, wanted, limit } => write!(
                f,
                "{verb}: can't pin {wanted} bytes, RLIMIT_MEMLOCK is {limit} bytes; raise it \
                 (ulimit -l)"
            ),
            Self::Unsupported { verb, what } => write!(f, "{verb}: unsupported: {what}"),
            Self::TimedOut { verb, waited, why } => {
                write!(f, "{verb}: timed out after {:?}", rounded(*waited))?;
                why.as_ref().map_or(Ok(()), |why| write!(f, "; {why}"))
            }
            Self::DeviceGone { verb } => {
                write!(f, "{verb}: the device is gone; drop its objects, and list devices again")
            }
            Self::Unmatched { verb, count } => write!(
                f,
                "{verb}: {count} completions named no outstanding work request and were dropped; \
                 destroy the queue pairs"
            ),
            Self::OtherProcess { verb } => {
                write!(f, "{verb}: the parent process opened the device; open it again here")
            }
            Self::System { what, errno: errno @ Errno::EMFILE } => {
                write!(f, "{what}: no file descriptor is left ({errno:?}); {FEWER_FILES}")
            }
            Self::System { what, errno } => write!(f, "{what}: {errno:?} ({errno})"),
            Self::EmptyGid { port, index, used } => {
                let used: Vec<_> = used.iter().map(u32::to_string).collect();
                let used = if used.is_empty() { "none".to_owned() } else { used.join(", ") };
                write!(
                    f,
                    "query_gid: entry {index} of port {port} is empty; in use: {used}; without an \
                     index the best one is taken"
                )
            }
            Self::Post(error) => write!(f, "the work request was not posted: {error}"),
            Self::Failed(failure) => write!(f, "the work request failed: {failure}"),
            Self::OutOfRange(error) => error.fmt(f),
            Self::Endpoint(error) => error.fmt(f),
            Self::Connection(error) => error.fmt(f),
        }
    }
}

/// A measured duration in two digits or three, as people read it.
fn rounded(time: Duration) -> Duration {
    let nanos = time.as_nanos();
    let unit = match nanos {
        1_000_000_000.. => 100_000_000,
        10_000_000.. => 1_000_000,
        10_000.. => 1_000,
        _ => 1,
    };
    let nanos = (nanos + unit / 2) / unit * unit;
    u64::try_from(nanos).map_or(time, Duration::from_nanos)
}

impl Error {
    /// Text of an error of finding or starting a device.
    fn of_device(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchDevice { name, .. } if name.is_empty() => f.write_str(
                "no RDMA device: the kernel has none, or /dev/infiniband is hidden from this \
                 process; without one, uverbs::device_or_softhca() opens the software HCA softhca",
            ),
            Self::NoSuchDevice { name, available } if available.is_empty() => {
                write!(f, "no RDMA device `{name}`: this machine has none; {SOFTWARE}")
            }
            Self::NoSuchDevice { name, available } => {
                let there = available.join(", ");
                write!(f, "no RDMA device `{name}`; there are: {there}; {SOFTWARE}")
            }
            Self::NoUsableDevice { passed, .. } => {
                f.write_str("no RDMA device can be opened")?;
                passed.iter().try_for_each(|(name, why)| write!(f, "; {name}: {why}"))?;
                f.write_str("; uverbs::device_or_softhca() opens the software HCA softhca")
            }
            Self::SoftHca { name, errno: Errno::EMFILE, .. } => {
                write!(f, "{name}: no file descriptor is left (EMFILE); {FEWER_FILES}")
            }
            Self::SoftHca { name, why, .. } => write!(f, "can't open {name}: {why}"),
            Self::PermissionDenied { path } => write!(
                f,
                "no permission to open {path}; it needs read and write access: join its group, or \
                 pass the device into the container"
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_in_vain_says_why_where_it_is_known() {
        let waited = Duration::from_secs(5);
        let error = Error::TimedOut { verb: "poll_cq", waited, why: Some("it overran".to_owned()) };
        assert_eq!(error.to_string(), "poll_cq: timed out after 5s; it overran");
        for (nanos, text) in [
            (5_000_123_456, "5s"),
            (1_060_000_000, "1.1s"),
            (200_071_344, "200ms"),
            (10_071_344, "10ms"),
            (15_344, "15µs"),
            (7, "7ns"),
        ] {
            let waited = Duration::from_nanos(nanos);
            let error = Error::TimedOut { verb: "poll_cq", waited, why: None };
            assert_eq!(error.to_string(), format!("poll_cq: timed out after {text}"));
        }
    }

    #[test]
    fn a_process_without_descriptors_learns_how_to_get_some() {
        let errno = Errno::EMFILE;
        let name = "softhca@127.0.0.2".to_owned();
        for error in [
            Error::kernel("open_device", errno),
            Error::cm("rdma_create_id", errno),
            Error::SoftHca { name, errno, why: String::new() },
            Error::System { what: "a socket", errno },
        ] {
            let text = error.to_string();
            assert!(text.contains("ulimit -n") && text.contains("takes two"), "{text}");
            assert!(!text.contains("kernel"), "{text}");
            assert_eq!(error.to_errno(), errno);
        }
    }

    #[test]
    fn no_device_at_all_comes_with_advice() {
        let none = Error::NoSuchDevice { name: String::new(), available: Vec::new() };
        assert!(none.to_string().contains("/dev/infiniband"), "{none}");
        assert!(none.to_string().contains("device_or_softhca"), "{none}");
        let available = vec!["mlx5_0".to_owned()];
        let other = Error::NoSuchDevice { name: "softhca7".to_owned(), available };
        for name in ["softhca7", "mlx5_0", "softhca0", "softhca@ADDRESS"] {
            assert!(other.to_string().contains(name), "{other}");
        }
        assert_eq!(none.to_errno(), Errno::ENODEV);
    }
}
