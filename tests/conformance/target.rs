//! The device under test: softhca in this process, or the kernel's that `UVERBS_TEST_DEVICE` names.

use std::os::unix::net::UnixListener;
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_core::discovery;
use uverbs_core::doors::cm::CmDoor;
use uverbs_core::doors::{DeviceSource, UverbsDoor};
use uverbs_kernel_abi::driver_id::{RDMA_DRIVER_MLX5, RDMA_DRIVER_RXE};
use uverbs_mlx5_vfio::transport::vfio_user::VfioUser;
use uverbs_mlx5_vfio::{Function, Hca, Interface, Limits};
use uverbs_softhca::pci::{PciOptions, Trouble};
use uverbs_softhca::vfio_user::Server;
use uverbs_softhca::{LinkLayer, SoftHca};

use crate::cmd::known;
use crate::want::{Driver, Facts, Link, Version};

/// A device.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    source: Arc<dyn DeviceSource>,
    pub(crate) facts: Facts,
    /// The software HCA, if it is one.
    pub(crate) soft: Option<SoftHca>,
}

/// softhca answers as this kernel does (`providers/front/src/kernel/mod.rs`).
const SOFT_KERNEL: Version = (6, 15);

/// Starts of the names of cases and calls that a function without a kernel driver refuses by name
/// (docs/VFIO.md), and what it lacks.
const LACKS: [(&str, &str); 2] = [
    ("advice", "no paging on demand over VFIO"),
    ("regions: access flags 0x41", "no paging on demand over VFIO"),
];

/// Address of a function on Ethernet, as of the software HCA.
const ADDRESS: &str = "10.86.0.1/16";

impl Target {
    /// Lack of a function for which a case or call of this name is not asked.
    pub(crate) fn lacks(&self, name: &str) -> Option<&'static str> {
        let is_function = self.facts.in_process && self.soft.is_none();
        let lacks = LACKS.iter().filter(|_| is_function).find(|(start, _)| name.starts_with(start));
        lacks.map(|(_, why)| *why)
    }

    /// A software HCA that works when it is stepped only.
    pub(crate) fn soft(link: Link) -> Self {
        let hca = SoftHca::builder().stepped().link(layer(link)).build().expect("a software HCA");
        Self {
            source: Arc::new(hca.clone()),
            facts: Facts { driver: Driver::Mlx5, kernel: SOFT_KERNEL, link, in_process: true },
            soft: Some(hca),
        }
    }

    /// The kernel's device of a name.
    fn kernel(name: &str) -> Result<Self, String> {
        let devices = discovery::list().map_err(|error| error.to_string())?;
        let found = devices.into_iter().find(|device| device.record().name == name);
        let device = found.ok_or_else(|| format!("no device {name}"))?;
        let driver = match device.record().driver_id {
            RDMA_DRIVER_MLX5 => Driver::Mlx5,
            RDMA_DRIVER_RXE => Driver::Rxe,
            other => {
                return Err(format!("{name} has driver {other}, which the suite doesn't know"));
            }
        };
        let link = match device.attribute("ports/1/link_layer").as_deref() {
            Ok("Ethernet") => Link::Ethernet,
            Ok("InfiniBand") => Link::InfiniBand,
            other => return Err(format!("the link layer of {name}: {other:?}")),
        };
        let facts = Facts { driver, kernel: running_kernel()?, link, in_process: false };
        Ok(Self { source: Arc::new(device), facts, soft: None })
    }

    /// A function without a kernel driver, whose server is a thread of this process.
    fn function(link: Link) -> Result<Self, String> {
        let says = |error: &dyn std::fmt::Display| format!("a function: {error}");
        let trouble = Trouble::strict();
        let options = PciOptions { link: layer(link), trouble, ..PciOptions::default() };
        let mut server = Server::new(&options).map_err(|error| says(&error))?;
        let folder = tempfile::tempdir().map_err(|error| says(&error))?;
        let path = folder.path().join("hca");
        let listener = UnixListener::bind(&path).map_err(|error| says(&error))?;
        std::thread::spawn(move || server.serve_one(&listener));
        let transport = VfioUser::connect(&path).map_err(|error| says(&error))?;
        let function = Function::open(transport, Limits::default());
        let mut interface = Interface::default();
        if link == Link::Ethernet {
            let address = ADDRESS.parse().map_err(|error| says(&error))?;
            interface.add_address(address).map_err(|error| says(&error))?;
        }
        let hca =
            function.and_then(|function| Hca::with_interface(function, "vfio-user", &interface));
        let source = Arc::new(hca.map_err(|error| says(&error))?);
        let facts = Facts { driver: Driver::Mlx5, kernel: SOFT_KERNEL, link, in_process: true };
        Ok(Self { source, facts, soft: None })
    }

    /// Targets that the environment selects: a kernel's device, or software HCAs and functions
    /// without a kernel driver, with either link.
    pub(crate) fn from_env() -> Result<Vec<Self>, String> {
        if let Ok(name) = std::env::var("UVERBS_TEST_DEVICE") {
            return Ok(vec![Self::kernel(&name)?]);
        }
        let links = [Link::Ethernet, Link::InfiniBand];
        let functions = links.into_iter().map(Self::function);
        links.into_iter().map(|link| Ok(Self::soft(link))).chain(functions).collect()
    }

    pub(crate) fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        self.source.open().map_err(known)
    }

    /// Its connection manager.
    pub(crate) fn open_cm(&self) -> Result<Arc<dyn CmDoor>, Errno> {
        self.source.open_cm().map_err(known)
    }

    pub(crate) fn name(&self) -> &str {
        &self.source.record().name
    }

    /// `RDMA_DRIVER_*`.
    pub(crate) fn driver_id(&self) -> u32 {
        self.source.record().driver_id
    }
}

fn layer(link: Link) -> LinkLayer {
    match link {
        Link::Ethernet => LinkLayer::Ethernet,
        Link::InfiniBand => LinkLayer::InfiniBand,
    }
}

fn running_kernel() -> Result<Version, String> {
    let uname = nix::sys::utsname::uname().map_err(|errno| errno.to_string())?;
    let release = uname.release().to_string_lossy();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse().ok());
    match (numbers.next(), numbers.next()) {
        (Some(major), Some(minor)) => Ok((major, minor)),
        _ => Err(format!("kernel version {release}")),
    }
}
