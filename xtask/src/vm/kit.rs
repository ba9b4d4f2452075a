//! Kit of every boot, prepared once: QEMU, the guest's programs and first process, the accelerator.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use uverbs_vm_init::plan::Plan;

use crate::debian::apt::{create, failed};
use crate::step::Outcome;
use crate::vm::binaries::{build_init, stripped};
use crate::vm::board::Board;
use crate::vm::boot::Boot;
use crate::vm::fetch::{Qemu, base, guest};
use crate::vm::image::Image;
use crate::vm::kernels::Kernel;
use crate::vm::machine::Accel;
use crate::vm::verdict::Limits;

/// Limit of the boot that tries KVM.
const KVM_BEGINS: Duration = Duration::from_secs(20);

/// Limits of a run. A boot alone on two cores under TCG takes 3 s, on a busy host several times as
/// long.
pub(crate) const LIMITS: Limits = Limits {
    boot: Duration::from_secs(180),
    silence: Duration::from_secs(40),
    total: Duration::from_secs(300),
    // The driver destroys the 6000 memory keys of each device's cache one by one.
    stop: Duration::from_secs(120),
};

/// See the [module](self).
pub(crate) struct Kit {
    pub(crate) qemu: Qemu,
    pub(crate) guest: PathBuf,
    pub(crate) init: BTreeMap<String, PathBuf>,
    pub(crate) accel: Accel,
    /// Held while building or stripping programs, since two guests may run at once.
    pub(crate) preparing: Mutex<()>,
    /// Excludes other runs, which would overwrite these files.
    _lock: Flock<File>,
}

impl Kit {
    /// Downloads and builds the missing parts. `kernel` is the kernel that tries KVM.
    ///
    /// # Errors
    ///
    /// A skip if a part is unavailable.
    pub(crate) fn new(kernel: &str) -> Result<Self, Outcome> {
        if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
            return Err(Outcome::Skipped("the machine is run on x86-64 Linux only".to_owned()));
        }
        create(&base())?;
        let lock = lock()?;
        let qemu = Qemu::fetch(Board::Q35)?;
        let guest = guest()?;
        let mut init = BTreeMap::new();
        for (name, path) in build_init()? {
            init.insert(name, stripped(&path)?);
        }
        let mut kit =
            Self { qemu, guest, init, accel: Accel::Tcg, preparing: Mutex::new(()), _lock: lock };
        kit.accel = kit.accel(kernel)?;
        Ok(kit)
    }

    /// Image with only the first process and `misbehave`.
    pub(crate) fn bare(&self) -> Result<Image, Outcome> {
        let mut image = Image::default();
        image.program("init", &self.init["init"]).map_err(Outcome::Failed)?;
        image.program("vm/misbehave", &self.init["misbehave"]).map_err(Outcome::Failed)?;
        Ok(image)
    }

    /// KVM if a guest boots under it, else TCG. A machine may open `/dev/kvm` and run no guest, so
    /// this boots one. The answer is kept until the next boot of this machine.
    fn accel(&self, kernel: &str) -> Result<Accel, Outcome> {
        if OpenOptions::new().read(true).write(true).open("/dev/kvm").is_err() {
            return Ok(Accel::Tcg);
        }
        let stamp = base().join("accel");
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let text = |accel| format!("{accel:?} {boot}");
        let known = fs::read_to_string(&stamp).unwrap_or_default();
        if let Some(accel) = [Accel::Kvm, Accel::Tcg].into_iter().find(|&a| known == text(a)) {
            return Ok(accel);
        }
        let kernel = Kernel::fetch(kernel)?;
        let boot = Boot {
            qemu: &self.qemu,
            accel: Accel::Kvm,
            processors: 1,
            kernel: &kernel.image,
            name: "kvm".to_owned(),
            image: self.bare()?,
            plan: Plan::default(),
            server: None,
            iommu: false,
            limits: Limits { boot: KVM_BEGINS, ..LIMITS },
        };
        let folder = boot.folder();
        let showed = boot.run(|_| {})?;
        let _ = fs::remove_dir_all(folder);
        let accel = match showed.failure {
            None => Accel::Kvm,
            Some(why) => {
                println!("vm: KVM is here, but no guest runs under it ({why}): TCG is used");
                Accel::Tcg
            }
        };
        fs::write(&stamp, text(accel)).map_err(|error| failed(&stamp, &error))?;
        Ok(accel)
    }
}

fn lock() -> Result<Flock<File>, Outcome> {
    let path = base().join("lock");
    let file = File::create(&path).map_err(|error| failed(&path, &error))?;
    let file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => return Ok(lock),
        Err((file, _)) => file,
    };
    println!("vm: waiting for another run");
    Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| failed(&path, &error))
}
