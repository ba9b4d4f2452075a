//! The device under test: softhca in this process, or the kernel's that `UVERBS_TEST_DEVICE` names.

use std::sync::Arc;

use nix::errno::Errno;
use uverbs_core::discovery;
use uverbs_core::door::{DeviceSource, UverbsDoor};
use uverbs_kernel_abi::driver_id::{RDMA_DRIVER_MLX5, RDMA_DRIVER_RXE};
use uverbs_softhca::SoftHca;

use crate::want::{Driver, Version};

/// A device.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    source: Arc<dyn DeviceSource>,
    pub(crate) driver: Driver,
    /// Of the running kernel; of softhca the one whose answers it gives.
    pub(crate) kernel: Version,
    /// The software HCA, if it is one.
    pub(crate) soft: Option<SoftHca>,
}

/// softhca answers as this kernel does (`providers/softhca/src/kernel/mod.rs`).
const SOFT_KERNEL: Version = (6, 15);

impl Target {
    /// A software HCA that works when it is stepped only.
    pub(crate) fn soft() -> Self {
        let hca = SoftHca::builder().stepped().build().expect("a software HCA");
        Self {
            source: Arc::new(hca.clone()),
            driver: Driver::Mlx5,
            kernel: SOFT_KERNEL,
            soft: Some(hca),
        }
    }

    /// The kernel's device of a name.
    pub(crate) fn kernel(name: &str) -> Result<Self, String> {
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
        Ok(Self { source: Arc::new(device), driver, kernel: running_kernel()?, soft: None })
    }

    /// The one that the environment asks for.
    pub(crate) fn from_env() -> Result<Self, String> {
        match std::env::var("UVERBS_TEST_DEVICE") {
            Ok(name) => Self::kernel(&name),
            Err(_) => Ok(Self::soft()),
        }
    }

    pub(crate) fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        self.source.open()
    }

    pub(crate) fn name(&self) -> &str {
        &self.source.record().name
    }

    /// `RDMA_DRIVER_*`.
    pub(crate) fn driver_id(&self) -> u32 {
        self.source.record().driver_id
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
