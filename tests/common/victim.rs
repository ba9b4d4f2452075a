//! A device that a test may take away: a software HCA that is unplugged, or one of Linux's whose
//! driver is unbound.

use std::fs;
use std::path::PathBuf;

use uverbs::Device;
use uverbs::softhca::SoftHca;

pub enum Victim {
    Soft(SoftHca),
    Driver(Driven),
}

/// A device of Linux's mlx5 drivers.
pub struct Driven {
    pub name: String,
    /// The PCI device, and the file that takes its driver away.
    pci: String,
    unbind: PathBuf,
}

impl Victim {
    /// Takes the device that `UVERBS_TEST_UNBIND` names, or makes a software HCA if the tests run
    /// on one. Returns `None`, and skips the test, if there is no such device.
    pub fn new() -> Option<Self> {
        if std::env::var_os("UVERBS_TEST_UNBIND").is_some() {
            return Driven::new().map(Self::Driver);
        }
        if std::env::var_os("UVERBS_TEST_DEVICE").is_some() {
            super::skip("UVERBS_TEST_UNBIND names no device whose driver may go");
            return None;
        }
        Some(Self::Soft(SoftHca::builder().build().expect("a software HCA")))
    }

    pub fn device(&self) -> Device {
        match self {
            Self::Soft(hca) => super::soft(hca),
            Self::Driver(driven) => driven.device(),
        }
    }

    /// Removes the device. Returns when the kernel has removed it.
    pub fn take(&self) {
        match self {
            Self::Soft(hca) => hca.unplug(),
            Self::Driver(driven) => driven.take(),
        }
    }

    /// Objects and pinned bytes that the software HCA still has.
    pub fn left(&self) -> (usize, u64) {
        match self {
            Self::Soft(hca) => (hca.objects().values().sum(), hca.pinned_bytes()),
            Self::Driver(_) => (0, 0),
        }
    }
}

impl Driven {
    /// Returns `None`, and skips the test, if `UVERBS_TEST_UNBIND` names no device.
    pub fn new() -> Option<Self> {
        let Ok(name) = std::env::var("UVERBS_TEST_UNBIND") else {
            super::skip("UVERBS_TEST_UNBIND names no device whose driver may go");
            return None;
        };
        let device = fs::canonicalize(format!("/sys/class/infiniband/{name}/device")).unwrap();
        let pci = device.file_name().unwrap().to_str().unwrap().to_owned();
        let unbind = fs::canonicalize(device.join("driver/unbind")).unwrap();
        Some(Self { name, pci, unbind })
    }

    pub fn device(&self) -> Device {
        uverbs::device(&self.name).expect("the device that UVERBS_TEST_UNBIND names")
    }

    /// Unbinds the driver. Returns when the kernel has unbound it.
    pub fn take(&self) {
        fs::write(&self.unbind, &self.pci).expect("the driver goes");
        assert!(!fs::exists(format!("/sys/class/infiniband/{}", self.name)).unwrap());
    }
}
