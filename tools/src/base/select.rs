//! Selection of the device that a command works on: a device of the machine, or the embedded
//! software HCA on a machine without RDMA devices.

use std::io;

use uverbs::Device;
use uverbs::softhca::SoftHca;
use uverbs_mlx5_vfio::discovery::is_function;

use crate::base::error::Error;
use crate::base::output;

/// Name of the software HCA that this user's other processes on this host reach. Where both sides
/// are in this process it stands for the two [`EMBEDDED`] ones.
const SHARED: &str = "softhca";

/// The names of the software HCAs that no other process reaches.
const EMBEDDED: [&str; 2] = ["softhca0", "softhca1"];

/// The names of software devices of Omni-Path that no other process reaches.
const OMNI_PATH: [&str; 2] = ["softhfi0", "softhfi1"];

/// The names of software Elastic Fabric Adapters that no other process reaches.
const EFA: [&str; 2] = ["softefa0", "softefa1"];

/// Name of the software Elastic Fabric Adapter that this user's other processes on this host reach.
/// It stands for the two [`EFA`] ones if both sides are in this process.
const SHARED_EFA: &str = "softefa";

/// Prefixes of the name of a software device on the network; its address follows.
const ON_UDP: [&str; 3] = ["softhca@", "softhfi@", "softefa@"];

/// Message printed once when devices are there, and none can be opened.
const NONE_USABLE: &str = "no RDMA device here can be opened, using the embedded software HCA \
                           (softhca)";

/// Message printed once when the embedded software HCA is used.
const NONE_HERE: &str = "no RDMA device here, using the embedded software HCA (softhca)";

/// Options that name a device, a port and a GID.
#[derive(Debug, clap::Args)]
pub(crate) struct PortArgs {
    /// Device, as `uverbs devices` names it. `softhca` is the software HCA, for this user's
    /// processes on this host. `softhca@ADDRESS` or `softhca@loopback` is one for all users and
    /// hosts: over shared memory where possible, else over UDP (`,udp` behind it: UDP alone).
    /// `softhfi0` and `softhfi@ADDRESS` are devices of Omni-Path. `softefa`, `softefa0` and
    /// `softefa@ADDRESS` are software Elastic Fabric Adapters.
    /// `near:PLACE` is the device nearest to an interface (near:eth0), a processor (near:cpu:3), a
    /// NUMA node (near:node:1) or a PCI function such as a GPU (near:0000:17:00.0)
    /// [default: UVERBS_DEVICE; else the first with an active port; `softhca` without any]
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

/// The device of [`uverbs::choose`], with a message on stderr if it isn't simply the first. `None`
/// on a machine without a device that can be opened, with a message; `none` is the message without
/// any device.
fn chosen(quiet: bool, none: Option<&str>) -> Result<Option<Device>, Error> {
    match uverbs::choose() {
        Ok(choice) => {
            if !quiet && !choice.passed.is_empty() {
                output::complain(&choice);
            }
            if let Some(warning) = choice.warning() {
                output::complain(&warning);
            }
            Ok(Some(choice.device))
        }
        Err(uverbs::Error::NoSuchDevice { name, .. }) if name.is_empty() => {
            if let Some(none) = none.filter(|_| !quiet) {
                output::complain(&none);
            }
            Ok(None)
        }
        Err(uverbs::Error::NoUsableDevice { passed, .. }) => {
            let reasons = passed.iter().map(|(name, why)| format!("{name}: {why}"));
            let reasons = reasons.collect::<Vec<_>>().join("; ");
            output::complain(&format!("{NONE_USABLE}; {reasons}"));
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}

/// The name that an option has, or that `UVERBS_DEVICE` has if it holds one name.
fn wanted(option: Option<&str>) -> Option<String> {
    let variable = || std::env::var("UVERBS_DEVICE").ok();
    let single = |names: &String| !names.is_empty() && !names.contains(',');
    option.map(str::to_owned).or_else(|| variable().filter(single))
}

/// Devices that `devinfo` shows: the named one, or all.
pub(crate) fn named_or_all(name: Option<&str>) -> Result<Vec<Device>, Error> {
    match name {
        None => all().map(|(devices, _)| devices),
        Some(name) => named(name).map(|two| vec![two.client]),
    }
}

/// Devices of the two sides: the named device (default: the machine's, by [`uverbs::choose`]) for
/// both, or two software HCAs on one fabric.
pub(crate) fn two(name: Option<&str>, quiet: bool) -> Result<Two, Error> {
    if let Some(name) = wanted(name) {
        return named(&name);
    }
    match chosen(quiet, Some(NONE_HERE))? {
        Some(device) => Ok(loopback(device)),
        None => two_embedded(),
    }
}

/// A device that another process can reach: the one named, the machine's by [`uverbs::choose`], or
/// `softhca`.
pub(crate) fn reachable(name: Option<&str>) -> Result<Two, Error> {
    let name = wanted(name);
    let device = match name.as_deref() {
        None => match chosen(false, None)? {
            Some(device) => device,
            None => uverbs::device(SHARED)?,
        },
        // `named` takes two embedded ones for both sides.
        Some(shared @ (SHARED | SHARED_EFA)) => uverbs::device(shared)?,
        Some(name) => named(name)?.client,
    };
    if is_embedded(&device) {
        let why = match name.as_deref() {
            None | Some(SHARED | SHARED_EFA) => {
                "no address of 127.0.0.0/8 is free here, so no other process reaches it"
            }
            Some(_) => {
                "it lives inside this process, and no other reaches it: use softhca, softefa or a \
                 name with @ADDRESS; without --server and HOST both sides are in this process"
            }
        };
        let value = name.unwrap_or_else(|| SHARED.to_owned());
        let why = why.to_owned();
        return Err(Error::Argument { option: "--device", value, why });
    }
    Ok(loopback(device))
}

/// Returns true if no other process reaches the device.
fn is_of_process(name: &str) -> bool {
    [EMBEDDED, OMNI_PATH, EFA].concat().contains(&name)
}

fn is_on_udp(name: &str) -> bool {
    ON_UDP.iter().any(|prefix| name.starts_with(prefix))
}

fn named(name: &str) -> Result<Two, Error> {
    match of_kernel(name) {
        Ok(device) => Ok(loopback(device)),
        // A device of the machine comes first, should one have that name.
        Err(uverbs::Error::NoSuchDevice { .. }) if name == SHARED => two_embedded(),
        Err(uverbs::Error::NoSuchDevice { .. }) if name == SHARED_EFA => {
            let [client, server] = EFA.map(uverbs::device);
            Ok(Two { client: client?, server: server?, embedded: true })
        }
        Err(uverbs::Error::NoSuchDevice { .. })
            if name.starts_with(SHARED_EFA) || is_function(name) =>
        {
            Ok(loopback(uverbs::device(name)?))
        }
        Err(uverbs::Error::NoSuchDevice { .. }) if is_on_udp(name) || is_of_process(name) => {
            Ok(loopback(embedded(name)?))
        }
        Err(error) => Err(error.into()),
    }
}

fn loopback(device: Device) -> Two {
    let name = device.name();
    let shared = [SHARED, SHARED_EFA].contains(&name);
    let embedded = is_of_process(name) || shared || is_on_udp(name);
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

/// The machine's device of that name, or near that place; never an embedded one.
fn of_kernel(name: &str) -> Result<Device, uverbs::Error> {
    if let Some(place) = name.strip_prefix("near:") {
        let choice = uverbs::near(place)?;
        output::complain(&choice);
        return Ok(choice.device);
    }
    let devices = uverbs::devices()?;
    devices.iter().find(|device| device.name() == name).cloned().ok_or_else(|| {
        let available = devices.iter().map(|device| device.name().to_owned()).collect();
        uverbs::Error::NoSuchDevice { name: name.to_owned(), available }
    })
}

/// The software HCA of a device of this process; `None` for the machine's devices.
pub(crate) fn software(device: &Device) -> Option<SoftHca> {
    if is_listed(device) {
        return None;
    }
    SoftHca::embedded(device.name())?.ok()
}

/// True for a software device that no other process reaches.
pub(crate) fn is_embedded(device: &Device) -> bool {
    is_of_process(device.name()) && !is_listed(device)
}

/// True for a device of the machine.
fn is_listed(device: &Device) -> bool {
    let is_named = |listed: &Device| listed.name() == device.name();
    uverbs::devices().is_ok_and(|listed| listed.iter().any(is_named))
}

/// The kernel driver's name, by `enum rdma_driver_id` (`rdma/ib_user_ioctl_verbs.h`).
pub(crate) fn driver(device: &Device) -> String {
    const NAMES: [&str; 22] = [
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
        "mana",
        "ionic",
    ];
    let id = device.record().driver_id;
    NAMES.get(id as usize).map_or_else(|| format!("driver {id}"), |name| (*name).to_owned())
}
