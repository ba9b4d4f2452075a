//! `uverbs vfio bind` and `unbind`: the driver of a PCI function (Linux
//! `Documentation/driver-api/vfio.rst`, "VFIO Usage Example").

use std::fs;
use std::path::{Path, PathBuf};

use uverbs_mlx5_vfio::discovery::{PciFunction, VFIO_PCI};

use crate::base::error::Error;
use crate::base::output;
use crate::base::sysfs;

/// Give a PCI function to vfio-pci.
///
/// Prints the writes to sysfs, and makes them only with --yes, which needs root. The kernel's
/// driver lets go of the function: its network interface and RDMA device vanish.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs vfio bind 0000:65:00.2\n  \
    uverbs vfio bind 0000:65:00.2 --yes\n\n\
    EXIT STATUS: 0, 1 when a write failed, 2 for a function that can't be bound.")]
pub(crate) struct BindArgs {
    #[command(flatten)]
    change: Change,
}

/// Give a PCI function back to the kernel's driver.
///
/// Prints the writes to sysfs, and makes them only with --yes, which needs root.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs vfio unbind 0000:65:00.2 --yes\n\n\
    EXIT STATUS: 0, 1 when a write failed, 2 for a function that isn't bound to vfio-pci.")]
pub(crate) struct UnbindArgs {
    #[command(flatten)]
    change: Change,
}

#[derive(Debug, clap::Args)]
struct Change {
    /// PCI address of the function
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// Make the writes
    #[arg(long)]
    yes: bool,
}

/// A write to a file of sysfs.
struct Write {
    path: PathBuf,
    text: String,
}

pub(crate) fn bind(args: &BindArgs) -> Result<(), Error> {
    let change = &args.change;
    let (sysfs, function) = change.find()?;
    if function.driver.as_deref() == Some(VFIO_PCI) {
        return Err(change.refused("is bound to vfio-pci already"));
    }
    let Some(group) = function.group else {
        return Err(change.refused("has no IOMMU group: turn the machine's IOMMU on"));
    };
    if function.virtual_functions != 0 {
        return Err(change.refused("has virtual functions: bind one of them instead"));
    }
    if !sysfs.join("bus/pci/drivers").join(VFIO_PCI).is_dir() {
        return Err(change.refused("needs the driver: modprobe vfio-pci"));
    }
    let notes = [
        ("takes away", &function.users, ""),
        ("group also has", &function.companions, ", which must not be in use by other drivers"),
    ];
    let notes = notes.iter().filter(|(_, names, _)| !names.is_empty());
    let notes = notes.map(|(what, names, why)| format!("# {what}: {}{why}\n", names.join(" ")));
    let after = format!("# then give your user the group: chown USER /dev/vfio/{group}\n");
    let writes = writes(&sysfs, &function, VFIO_PCI);
    change.make(&writes, &(notes.collect::<String>() + &after), |driver| driver == Some(VFIO_PCI))
}

pub(crate) fn unbind(args: &UnbindArgs) -> Result<(), Error> {
    let change = &args.change;
    let (sysfs, function) = change.find()?;
    if function.driver.as_deref() != Some(VFIO_PCI) {
        return Err(change.refused("is not bound to vfio-pci"));
    }
    // A line feed alone clears the override.
    let writes = writes(&sysfs, &function, "");
    change.make(&writes, "", |driver| driver != Some(VFIO_PCI))
}

/// Writes that give a function to the driver of this name, or of the kernel's choice.
fn writes(sysfs: &Path, function: &PciFunction, driver: &str) -> Vec<Write> {
    let line = |path: PathBuf, text: &str| Write { path, text: format!("{text}\n") };
    let mut writes = Vec::new();
    if function.driver.is_some() {
        writes.push(line(function.path.join("driver/unbind"), &function.address));
    }
    writes.push(line(function.path.join("driver_override"), driver));
    writes.push(line(sysfs.join("bus/pci/drivers_probe"), &function.address));
    writes
}

impl Change {
    fn find(&self) -> Result<(PathBuf, PciFunction), Error> {
        let sysfs = sysfs::root();
        let found = PciFunction::at(&sysfs, &self.address);
        let function = found.ok_or_else(|| self.refused("is no PCI function of Mellanox here"))?;
        Ok((sysfs, function))
    }

    fn refused(&self, why: &str) -> Error {
        let (value, why) = (self.address.clone(), why.to_owned());
        Error::Argument { option: "ADDRESS", value, why }
    }

    /// Prints the writes, and with `--yes` makes them and checks the driver afterwards.
    fn make(
        &self,
        writes: &[Write],
        notes: &str,
        is_done: impl Fn(Option<&str>) -> bool,
    ) -> Result<(), Error> {
        let lines = writes
            .iter()
            .map(|write| format!("echo '{}' > {}\n", write.text.trim_end(), write.path.display()));
        let dry = if self.yes { "" } else { "# nothing was changed: --yes makes these writes\n" };
        output::print(&(lines.collect::<String>() + notes + dry))?;
        if !self.yes {
            return Ok(());
        }
        for write in writes {
            let failed = |error| Error::File { path: write.path.clone(), error };
            fs::write(&write.path, &write.text).map_err(failed)?;
        }
        let (_, function) = self.find()?;
        match is_done(function.driver.as_deref()) {
            true => Ok(()),
            false => {
                let driver = function.driver.as_deref().unwrap_or("no driver");
                let why = format!("still with {driver}: the kernel's log says why");
                Err(Error::Record { path: function.path, why })
            }
        }
    }
}
