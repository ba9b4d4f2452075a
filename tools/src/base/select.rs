//! Selection of the device that a command works on: a device of the machine, or the embedded
//! software HCA on a machine without RDMA devices.

use std::io;

use uverbs::Device;
use uverbs::softhca::SoftHca;

use crate::base::error::Error;
use crate::base::output;

/// Name of the software HCA that this user's other processes on this host reach. Where both sides
/// are in this process it stands for the two [`EMBEDDED`] ones.
const SHARED: &str = "softhca";

/// The names of the software HCAs that no other process reaches.
const EMBEDDED: [&str; 2] = ["softhca0", "softhca1"];

/// Prefix of the name of a software HCA on the network; its address follows.
const ON_UDP: &str = "softhca@";

/// Message printed once when the embedded software HCA is used.
const NONE_HERE: &str = "no RDMA device here, using the embedded software HCA (softhca)";

/// Options that name a device, a port and a GID.
#[derive(Debug, clap::Args)]
pub(crate) struct PortArgs {
    /// Device, as `uverbs devices` names it. `softhca` is the software HCA, for this user's
    /// processes on this host. `softhca@ADDRESS` or `softhca@loopback` is one for all users and
    /// hosts: over shared memory where possible, else over UDP (`,udp` behind it: UDP alone)
    /// [default: the first; `softhca` without any]
    #[arg(short, long, visible_alias = "ib-dev", value_name = "NAME")]
    pub(crate) device: Option<String>,

    /// Port of the device, from 1
    #[arg(short, long, value_name = "PORT", default_value_t = 1)]
    pub(crate) ib_port: u8,

    /// Index into the port's GID table [default: RoCE v2 over IPv4 if there is one]
    #[arg(
        short = 'x',
        visible_short_alias = 'g',
        long,
        visible_alias = "gid-idx",
        value_name = "I"
    )]
    pub(crate) gid_index: Option<u32>,
}

/// Devices for the two sides of a connection.
#[derive(Debug)]
pub(crate) struct Two {
    pub(crate) client: Device,
    pub(crate) server: Device,
    /// The device is a thread of this process, and needs processor time.
    pub(crate) embedded: bool,
}

/// Returns the machine's RDMA devices; on a machine without, the embedded device, with a message on
/// stderr.
pub(crate) fn all() -> Result<(Vec<Device>, bool), Error> {
    let devices = uverbs::devices()?;
    if !devices.is_empty() {
        return Ok((devices, false));
    }
    output::complain(&NONE_HERE);
    Ok((vec![embedded(EMBEDDED[0])?], true))
}

/// Devices that `devinfo` shows: the named one, or all.
pub(crate) fn named_or_all(name: Option<&str>) -> Result<Vec<Device>, Error> {
    match name {
        None => all().map(|(devices, _)| devices),
        Some(name) => named(name).map(|two| vec![two.client]),
    }
}

/// Devices of the two sides: the named device (default: the machine's first) for both, or two
/// software HCAs on one fabric.
pub(crate) fn two(name: Option<&str>, quiet: bool) -> Result<Two, Error> {
    if let Some(name) = name {
        return named(name);
    }
    if let Some(device) = uverbs::devices()?.into_iter().next() {
        return Ok(loopback(device));
    }
    if !quiet {
        output::complain(&NONE_HERE);
    }
    two_embedded()
}

/// A device that another process can reach: the one named, the machine's first, or `softhca`.
pub(crate) fn reachable(name: Option<&str>) -> Result<Two, Error> {
    let device = match name {
        None => uverbs::device_or_softhca()?,
        // `named` takes two embedded ones for both sides.
        Some(SHARED) => uverbs::device(SHARED)?,
        Some(name) => named(name)?.client,
    };
    if EMBEDDED.contains(&device.name()) && software(&device).is_some() {
        let why = match name {
            None | Some(SHARED) => {
                "no address of 127.0.0.0/8 is free here, so no other process reaches it"
            }
            Some(_) => {
                "it lives inside this process, and no other reaches it: use softhca, or \
                 softhca@ADDRESS; without --server and HOST both sides are in this process"
            }
        };
        let (value, why) = (name.unwrap_or(SHARED).to_owned(), why.to_owned());
        return Err(Error::Argument { option: "--device", value, why });
    }
    Ok(loopback(device))
}

fn named(name: &str) -> Result<Two, Error> {
    match of_kernel(name) {
        Ok(device) => Ok(loopback(device)),
        // A device of the machine comes first, should one have that name.
        Err(uverbs::Error::NoSuchDevice { .. }) if name == SHARED => two_embedded(),
        Err(uverbs::Error::NoSuchDevice { .. })
            if name.starts_with(ON_UDP) || EMBEDDED.contains(&name) =>
        {
            Ok(loopback(embedded(name)?))
        }
        Err(error) => Err(error.into()),
    }
}

fn loopback(device: Device) -> Two {
    let name = device.name();
    let embedded = EMBEDDED.contains(&name) || name == SHARED || name.starts_with(ON_UDP);
    Two { client: device.clone(), server: device, embedded }
}

fn two_embedded() -> Result<Two, Error> {
    let [client, server] = EMBEDDED.map(embedded);
    Ok(Two { client: client?, server: server?, embedded: true })
}

/// A software HCA of this process.
fn embedded(name: &str) -> Result<Device, Error> {
    let made = SoftHca::embedded(name).unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
    made.map(Device::from).map_err(Error::Embedded)
}

/// The machine's device of that name; never an embedded one.
fn of_kernel(name: &str) -> Result<Device, uverbs::Error> {
    let devices = uverbs::devices()?;
    devices.iter().find(|device| device.name() == name).cloned().ok_or_else(|| {
        let available = devices.iter().map(|device| device.name().to_owned()).collect();
        uverbs::Error::NoSuchDevice { name: name.to_owned(), available }
    })
}

/// The software HCA of a device of this process; `None` for the machine's devices.
pub(crate) fn software(device: &Device) -> Option<SoftHca> {
    let listed = uverbs::devices().ok()?;
    match listed.iter().any(|listed| listed.name() == device.name()) {
        true => None,
        false => SoftHca::embedded(device.name())?.ok(),
    }
}

/// The kernel driver's name, by `enum rdma_driver_id` (`rdma/ib_user_ioctl_verbs.h`).
pub(crate) fn driver(device: &Device) -> String {
    const NAMES: [&str; 20] = [
        "unknown",
        "mlx5",
        "mlx4",
        "cxgb3",
        "cxgb4",
        "mthca",
        "bnxt_re",
        "ocrdma",
        "nes",
        "irdma",
        "vmw_pvrdma",
        "qedr",
        "hns",
        "usnic",
        "rxe",
        "hfi1",
        "qib",
        "efa",
        "siw",
        "erdma",
    ];
    let id = device.record().driver_id;
    NAMES.get(id as usize).map_or_else(|| format!("driver {id}"), |name| (*name).to_owned())
}
