//! Boot: writes the image, starts the device's server, and watches the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use uverbs_vm_init::plan::{PATH, Plan};

use crate::debian::apt::{create, failed};
use crate::step::Outcome;
use crate::vm::fetch::{Qemu, base};
use crate::vm::image::Image;
use crate::vm::machine::{Accel, LOGS, Machine, Showed};
use crate::vm::server::Server;
use crate::vm::verdict::{Failure, Limits, Ran};

/// Boot of one image.
pub(crate) struct Boot<'a> {
    pub(crate) qemu: &'a Qemu,
    pub(crate) accel: Accel,
    pub(crate) processors: u8,
    pub(crate) kernel: &'a Path,
    /// Name of the run's folder.
    pub(crate) name: String,
    pub(crate) image: Image,
    pub(crate) plan: Plan,
    pub(crate) server: Option<Command>,
    pub(crate) iommu: bool,
    pub(crate) limits: Limits,
}

impl Boot<'_> {
    /// Folder of the run's image and logs.
    pub(crate) fn folder(&self) -> PathBuf {
        base().join("runs").join(&self.name)
    }

    /// Boots, and calls `ended` for each program that ends.
    ///
    /// Boots once more if the kernel did not come up. TCG may stall a kernel of two processors on
    /// a busy host, and nothing under test ran yet. With a server, the device itself is under test.
    ///
    /// # Errors
    ///
    /// A failure if the image can't be written.
    pub(crate) fn run(mut self, mut ended: impl FnMut(&Ran)) -> Result<Showed, Outcome> {
        let folder = self.folder();
        let _ = fs::remove_dir_all(&folder);
        create(&folder)?;
        let plan = self.plan.to_text().map_err(Outcome::Failed)?;
        self.image.text(PATH.trim_start_matches('/'), plan.into_bytes());
        let image = folder.join("image.cpio");
        self.image.write(&image).map_err(|error| failed(&image, &error))?;
        let server = self.server.take().map(|command| Server::start(command, &folder));
        let server = server
            .transpose()
            .map_err(|why| Outcome::Failed(format!("the device's server: {why}")))?;
        let once = server.is_some() || self.accel == Accel::Kvm;
        let showed = self.machine(&image, &folder, server).boot(&mut ended);
        let Some(Failure::NoBoot(_)) = showed.failure else { return Ok(showed) };
        if once {
            return Ok(showed);
        }
        let log = fs::read_to_string(folder.join(LOGS[0])).unwrap_or_default();
        println!("vm: {}: no first process, booted once more; the kernel's last lines:", self.name);
        for line in log.lines().rev().take(5).collect::<Vec<_>>().into_iter().rev() {
            println!("vm:   {line}");
        }
        Ok(self.machine(&image, &folder, None).boot(ended))
    }

    fn machine<'a>(
        &'a self,
        image: &'a Path,
        folder: &'a Path,
        server: Option<Server>,
    ) -> Machine<'a> {
        Machine {
            qemu: self.qemu,
            accel: self.accel,
            processors: self.processors,
            kernel: self.kernel,
            image,
            folder,
            server,
            iommu: self.iommu,
            limits: self.limits,
            shell: self.plan.shell,
            has_setup: self.plan.setup.is_some(),
        }
    }
}
