//! Expected outcomes. They may depend on the kernel's version and on the driver.

use std::fmt;

use nix::errno::Errno;

/// Kernel version: major and minor.
pub(crate) type Version = (u32, u32);

/// Outcome of a call: on success the values that the case reads from the answer, else an errno.
pub(crate) type Outcome = Result<String, Errno>;

/// Driver of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Driver {
    Mlx5,
    Rxe,
}

/// Link of the device's port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Link {
    Ethernet,
    InfiniBand,
}

/// Facts that an expectation may depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    pub(crate) driver: Driver,
    /// Version of the running kernel. softhca: the version whose answers it gives.
    pub(crate) kernel: Version,
    pub(crate) link: Link,
    /// True if the device is softhca in this process.
    pub(crate) in_process: bool,
}

/// Expected outcome.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Want {
    /// Success, whatever it says.
    Ok,
    /// Success, and just this.
    Is(&'static str),
    /// Refusal.
    Err(Errno),
    /// The outcome comes from the driver.
    Driver { mlx5: &'static Want, rxe: &'static Want },
    /// The outcome depends on the link layer.
    Link { ethernet: &'static Want, infiniband: &'static Want },
    /// softhca supports the feature in process, but not as a PCI device.
    InProcess { here: &'static Want, there: &'static Want },
    /// One or the other: kernels of a version differ by what was taken over into the stable series.
    Either(&'static Want, &'static Want),
    /// One outcome up to a kernel version (exclusive), another from it on.
    Since(Version, &'static Want, &'static Want),
}

impl Want {
    /// Expected outcome on a device with these `facts`.
    pub(crate) fn of(self, facts: Facts) -> Self {
        match self {
            Self::Link { ethernet, infiniband } => {
                let one = if facts.link == Link::Ethernet { ethernet } else { infiniband };
                one.of(facts)
            }
            Self::InProcess { here, there } => {
                let one = if facts.in_process { here } else { there };
                one.of(facts)
            }
            Self::Driver { mlx5, rxe } => {
                let one = if facts.driver == Driver::Mlx5 { mlx5 } else { rxe };
                one.of(facts)
            }
            Self::Since(version, before, after) => {
                let one = if facts.kernel < version { before } else { after };
                one.of(facts)
            }
            other => other,
        }
    }

    /// An outcome that fits.
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::Err(errno) => Err(errno),
            Self::Is(text) => Ok(text.to_owned()),
            _ => Ok(String::new()),
        }
    }

    /// True if `outcome` is the expected one. `self` must be resolved by [`Self::of`].
    pub(crate) fn fits(self, outcome: &Outcome) -> bool {
        match (self, outcome) {
            (Self::Ok, Ok(_)) => true,
            (Self::Is(text), Ok(said)) => text == said,
            (Self::Err(wanted), Err(errno)) => wanted == *errno,
            (Self::Either(one, other), outcome) => one.fits(outcome) || other.fits(outcome),
            _ => false,
        }
    }
}

impl fmt::Display for Want {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Is(text) => write!(f, "ok {text}"),
            Self::Err(errno) => write!(f, "{errno:?}"),
            Self::InProcess { here, there } => {
                write!(f, "{here} in process, {there} as a PCI device")
            }
            Self::Driver { mlx5, rxe } => write!(f, "mlx5 {mlx5}, rxe {rxe}"),
            Self::Link { ethernet, infiniband } => {
                write!(f, "Ethernet {ethernet}, InfiniBand {infiniband}")
            }
            Self::Either(one, other) => write!(f, "{one} or {other}"),
            Self::Since((major, minor), before, after) => {
                write!(f, "{before}, since {major}.{minor} {after}")
            }
        }
    }
}

/// An outcome as it is printed.
pub(crate) fn show(outcome: &Outcome) -> String {
    match outcome {
        Ok(said) if said.is_empty() => "ok".to_owned(),
        Ok(said) => format!("ok {said}"),
        Err(errno) => format!("{errno:?}"),
    }
}

// The refusals that tables are full of.
pub(crate) const EAGAIN: Want = Want::Err(Errno::EAGAIN);
pub(crate) const EBADF: Want = Want::Err(Errno::EBADF);
pub(crate) const EBUSY: Want = Want::Err(Errno::EBUSY);
pub(crate) const EFAULT: Want = Want::Err(Errno::EFAULT);
pub(crate) const EINVAL: Want = Want::Err(Errno::EINVAL);
pub(crate) const ENODATA: Want = Want::Err(Errno::ENODATA);
pub(crate) const ENODEV: Want = Want::Err(Errno::ENODEV);
pub(crate) const ENOENT: Want = Want::Err(Errno::ENOENT);
pub(crate) const ENOSPC: Want = Want::Err(Errno::ENOSPC);
pub(crate) const ENOMEM: Want = Want::Err(Errno::ENOMEM);
pub(crate) const EEXIST: Want = Want::Err(Errno::EEXIST);
pub(crate) const ENOSYS: Want = Want::Err(Errno::ENOSYS);
pub(crate) const EOPNOTSUPP: Want = Want::Err(Errno::EOPNOTSUPP);
pub(crate) const EPERM: Want = Want::Err(Errno::EPERM);
pub(crate) const EREMOTEIO: Want = Want::Err(Errno::EREMOTEIO);
pub(crate) const EPROTONOSUPPORT: Want = Want::Err(Errno::EPROTONOSUPPORT);
