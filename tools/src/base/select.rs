//! Selection of the device that a command works on: a device of the machine, or the embedded
//! software HCA on a machine without RDMA devices.

use std::io;

use uverbs::Device;
use uverbs::softhca::SoftHca;

use crate::base::error::Error;
use crate::base::output;

/// Names of the embedded software HCAs. `softhca` also means the first.
const EMBEDDED: [&str; 2] = ["softhca0", "softhca1"];

/// Prefix of the name of a software HCA on the network; its address follows.
const ON_UDP: &str = "softhca@";

/// Message printed once when the embedded software HCA is used.
const NONE_HERE: &str = "no RDMA device here, using the embedded software HCA (softhca)";

/// Options that name a device, a port and a GID.
#[derive(Debug, clap::Args)]
pub(crate) struct PortArgs {
    /// The device, as `uverbs devices` names it; `softhca` is the embedded software HCA, and
    /// `softhca@ADDRESS` or `softhca@loopback` one that other processes reach, in shared memory on
    /// this host and over UDP otherwise (`,udp` behind it: over UDP alone) [default: the first]
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
    let [device, _] = embedded()?;
    Ok((vec![device], true))
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

/// A device that another process can reach: the named one, or the machine's first. A software HCA
/// is reachable only on the network.
pub(crate) fn reachable(name: Option<&str>) -> Result<Two, Error> {
    let two = two(name, true)?;
    // A device that the machine lists belongs to all processes, whatever its name.
    let listed = uverbs::devices()?.iter().any(|device| device.name() == two.client.name());
    if two.embedded && !listed && !two.client.name().starts_with(ON_UDP) {
        let value = name.unwrap_or("softhca, since there is no RDMA device here");
        return Err(Error::Argument {
            option: "--device",
            value: value.to_owned(),
            why: "the software HCA lives inside one process, and no other reaches it: use \
                  softhca@loopback or softhca@ADDRESS; without --server and HOST both sides are in \
                  this process"
                .to_owned(),
        });
    }
    Ok(two)
}

fn named(name: &str) -> Result<Two, Error> {
    match of_kernel(name) {
        Ok(device) => Ok(loopback(device)),
        // A device of the machine with that name comes first.
        Err(uverbs::Error::NoSuchDevice { .. }) if name == "softhca" => two_embedded(),
        Err(uverbs::Error::NoSuchDevice { .. }) if name.starts_with(ON_UDP) => {
            let made =
                SoftHca::embedded(name).unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
            Ok(loopback(made.map(Device::from).map_err(Error::Embedded)?))
        }
        Err(uverbs::Error::NoSuchDevice { .. }) if EMBEDDED.contains(&name) => {
            let [first, second] = embedded()?;
            Ok(loopback(if name == EMBEDDED[0] { first } else { second }))
        }
        Err(uverbs::Error::NoSuchDevice { name, mut available }) => {
            available.push("softhca (embedded)".to_owned());
            Err(uverbs::Error::NoSuchDevice { name, available }.into())
        }
        Err(error) => Err(error.into()),
    }
}

fn loopback(device: Device) -> Two {
    let embedded = EMBEDDED.contains(&device.name()) || device.name().starts_with(ON_UDP);
    Two { client: device.clone(), server: device, embedded }
}

fn two_embedded() -> Result<Two, Error> {
    let [client, server] = embedded()?;
    Ok(Two { client, server, embedded: true })
}

/// The two software HCAs of this process, on one fabric.
fn embedded() -> Result<[Device; 2], Error> {
    let get = |name| {
        let made = SoftHca::embedded(name).unwrap_or_else(|| Err(io::ErrorKind::NotFound.into()));
        made.map(Device::from).map_err(Error::Embedded)
    };
    Ok([get(EMBEDDED[0])?, get(EMBEDDED[1])?])
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
