//! Devices by name, and the machine's default device.

use uverbs_core::discovery::function;
use uverbs_core::error::Error;

use super::choose::choose;
use super::find::{Device, embedded, look_for};
use super::near::near;
use crate::Context;

/// An RDMA device of this machine that can be opened, with an active port if there is one, by
/// [`choose`]; `UVERBS_DEVICE` overrides it.
///
/// A machine without one, or a container from which `/dev/infiniband` is hidden, is an error here:
/// a simulation doesn't take the place of hardware unasked. [`device_or_softhca`] asks for that,
/// and [`device`] takes the software HCA by its name.
///
/// # Errors
///
/// As [`choose`]: [`Error::NoSuchDevice`] on a machine without RDMA devices,
/// [`Error::NoUsableDevice`] if none can be opened.
///
/// ```no_run
/// let context = uverbs::default_device()?.open()?;
/// # Ok::<(), uverbs::Error>(())
/// ```
pub fn default_device() -> Result<Device, Error> {
    choose().map(|choice| choice.device)
}

/// The device of [`default_device`], or the software HCA `softhca` on a machine without a device
/// that can be opened. For examples, tests, and programs that print which device they use
/// ([`Device::name`]).
///
/// `softhca` reaches the software HCAs of the user's other processes on this host through shared
/// memory; each has a separate address. Other users and hosts cannot reach it. A test that must not
/// meet other processes takes `device("softhca0")`.
///
/// # Errors
///
/// As [`devices`](crate::devices); [`Error::NoSuchDevice`] if `UVERBS_DEVICE` names a device that
/// does not exist; [`Error::SoftHca`] if the software HCA's thread or memory can't be had.
///
/// ```
/// let device = uverbs::device_or_softhca()?;
/// println!("this is {}", device.name());
/// # Ok::<(), uverbs::Error>(())
/// ```
#[cfg(feature = "softhca")]
pub fn device_or_softhca() -> Result<Device, Error> {
    match default_device() {
        Err(error) if is_none(&error) => embedded("softhca").unwrap_or(Err(error)),
        found => found,
    }
}

/// Splits a list of device names, as in `UVERBS_DEVICE`, at its commas. An option after the name of
/// a software HCA on the network, or of a function without a kernel driver, is part of that name.
///
/// ```
/// let names = uverbs::device_names("mlx5_0,softhca@127.0.0.2,udp");
/// assert_eq!(names, ["mlx5_0", "softhca@127.0.0.2,udp"]);
/// let names = uverbs::device_names("vfio-user:/a,address=10.0.0.1/24,mlx5_0");
/// assert_eq!(names, ["vfio-user:/a,address=10.0.0.1/24", "mlx5_0"]);
/// ```
#[must_use]
pub fn device_names(list: &str) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    let mut start = 0;
    for part in list.split(',') {
        let end = start + part.len();
        match names.last_mut() {
            Some(last) if is_option(last, part) => *last = &list[start - 1 - last.len()..end],
            _ => names.push(part),
        }
        start = end + 1;
    }
    names
}

fn is_option(name: &str, part: &str) -> bool {
    #[cfg(feature = "softhca")]
    let of_softhca = uverbs_softhca::is_option(name, part);
    #[cfg(not(feature = "softhca"))]
    let of_softhca = false;
    of_softhca || function::is_option(name, part)
}

/// Returns true if this machine lacks a device that can be opened.
#[cfg(feature = "softhca")]
fn is_none(error: &Error) -> bool {
    match error {
        Error::NoSuchDevice { name, .. } => name.is_empty(),
        error => matches!(error, Error::NoUsableDevice { .. }),
    }
}

/// The device with this name, such as `mlx5_0`. If the kernel has no device of that name, these
/// names are software HCAs (feature `softhca`):
///
/// - `softhca` reaches the user's other processes on this host, through shared memory;
/// - `softhca0` and `softhca1` are on one fabric, which other processes cannot reach;
/// - `softhca@127.0.0.2` is on the network, RoCEv2 over UDP at that address: other processes and
///   machines reach it, processes of the same user and host through shared memory;
/// - `softhca@loopback` takes the first free loopback address;
/// - `softhca@127.0.0.2,ib` has an InfiniBand port, whose LID is the end of the address; `,udp` or
///   `,shm` chooses one [carrier](uverbs_softhca::Carrier);
/// - `softhca@127.0.0.2=mlx5_0` names itself `mlx5_0`;
/// - `softhfi0`, `softhfi1` and `softhfi@127.0.0.2` are devices of Omni-Path, which
///   [`Any`](crate::Any) opens with the feature `any-rdmavt`;
/// - `softefa`, `softefa@127.0.0.2`, `softefa0` and `softefa1` are Elastic Fabric Adapters with the
///   same reach (feature `softefa`);
/// - `vfio:0000:65:00.2`, or `vfio-user:/path` of a server, is a ConnectX function that this
///   process drives without a kernel driver (feature `vfio`);
/// - `vfio-user:/path,address=10.0.0.1/24,neighbour=10.0.0.2@02:00:00:00:00:02` has IP addresses,
///   and peers whose MAC addresses are known; both may be repeated or left out. `,vlan=5` is of the
///   address before it, `,gateway=10.0.0.254` a router, `,mtu=4200` the longest IP packet of its
///   Ethernet port.
///
/// `near:PLACE` is the device of [`near`](crate::near): `near:eth0`, `near:cpu:3`.
///
/// # Errors
///
/// [`Error::NoSuchDevice`], which lists the existing names; [`Error::SoftHca`] with `EADDRINUSE` if
/// another software HCA or the kernel's soft-RoCE has the address, `EADDRNOTAVAIL` if the machine
/// lacks the address, `EINVAL` for text that isn't an address. For a function: `EBUSY` if another
/// process has it, `EACCES` without access to its node, `EINVAL` for a malformed option.
///
/// ```
/// let context = uverbs::device("softhca0")?.open()?;
/// # Ok::<(), uverbs::Error>(())
/// ```
pub fn device(name: &str) -> Result<Device, Error> {
    if let Some(place) = name.strip_prefix("near:") {
        return near(place).map(|choice| choice.device);
    }
    let (found, available) =
        look_for(|devices| devices.iter().find(|device| device.name() == name).cloned())?;
    if let Some(device) = found {
        return Ok(device);
    }
    embedded(name).unwrap_or_else(|| Err(Error::NoSuchDevice { name: name.to_owned(), available }))
}

/// Opens the device with this name.
///
/// # Errors
///
/// [`Error::NoSuchDevice`], or as [`Device::open`].
#[doc(alias = "ibv_open_device")]
pub fn open(name: &str) -> Result<Context, Error> {
    device(name)?.open()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "softhca")]
    fn a_comma_separates_devices_and_options() {
        for one in ["softhca@127.0.0.1=mlx5_0,udp,ib", "", "vfio:0000:65:00.2,address=::1,vlan=5"] {
            assert_eq!(device_names(one), [one]);
        }
        let all = ["softhca@[::1]:4792,ib", "udp0", "softhca", "udp", "softhca@loopback,shm", "x"];
        assert_eq!(device_names(&all.join(",")), all, "an option needs a device on the network");
        let all = ["vfio-user:/a,address=10.0.0.1/24,gateway=10.0.0.2", "udp", "vlan=5", "mlx5_0"];
        assert_eq!(device_names(&all.join(",")), all, "an option needs a function");
    }
}
