//! Part of a check that takes the device away: each wait ends, and each frame comes back. Only if
//! asked for.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use uverbs::{Device, Local};

use super::Budget;
use super::report::Row;
use crate::base::error::Error;
use crate::base::select;
use crate::base::sysfs;

const PART: &str = "removal";
const NAME: &str = "the device goes";

/// Time until a wait must end, and until the driver must be back.
const LIMIT: Duration = Duration::from_secs(20);
/// Frames of the queue pair, all in flight.
const FRAMES: usize = 4;

/// Way to take a device away.
enum Way {
    /// Unplugs the software HCA.
    Unplug(uverbs::softhca::SoftHca),
    /// Unbinds the driver from the PCI function, whose address and driver's folder in sysfs these
    /// are.
    Unbind { address: String, driver: PathBuf },
}

impl Way {
    fn of(device: &Device) -> Result<Self, String> {
        if let Some(hca) = select::software(device) {
            return Ok(Self::Unplug(hca));
        }
        let address = device.pci_address().ok_or("no PCI function, and no software HCA")?;
        let address = address.to_string();
        let link = sysfs::root().join("bus/pci/devices").join(&address).join("driver");
        let driver = fs::canonicalize(link).map_err(|error| format!("its driver: {error}"))?;
        Ok(Self::Unbind { address, driver })
    }

    fn take_away(&self) -> Result<(), String> {
        match self {
            Self::Unplug(hca) => hca.unplug(),
            Self::Unbind { address, driver } => write(&driver.join("unbind"), address)?,
        }
        Ok(())
    }

    /// Gives the device back; a software HCA of this process is not needed any more.
    fn give_back(&self) -> Result<(), String> {
        match self {
            Self::Unplug(_) => Ok(()),
            Self::Unbind { address, driver } => write(&driver.join("bind"), address),
        }
    }
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// A row for the removal.
pub(super) fn rows(device: &Device, budget: &Budget) -> Vec<Row> {
    if let Some(why) = budget.over() {
        return vec![Row::untried(PART, NAME, why)];
    }
    let way = match Way::of(device) {
        Ok(way) => way,
        Err(why) => return vec![Row::untried(PART, NAME, why)],
    };
    vec![removed(device, &way)]
}

fn removed(device: &Device, way: &Way) -> Row {
    let mut taken = Ok(());
    let ended = ends(device, || taken = way.take_away());
    if let Err(why) = taken {
        return Row::untried(PART, NAME, why);
    }
    let back = way.give_back();
    match (ended, back) {
        (Err(error), _) => Row::failed(PART, NAME, error.to_string()),
        (Ok(_), Err(why)) => Row::failed(PART, NAME, format!("it does not come back: {why}")),
        (Ok(after), Ok(())) => {
            let text = format!("a wait ended after {after:.1?}, all frames came back");
            Row::good(PART, NAME, text)
        }
    }
}

/// Time until a wait for a receive ended after the removal.
fn ends(device: &Device, take_away: impl FnOnce()) -> Result<Duration, Error> {
    let wrong = |what: &str| Error::Unexpected { iteration: 0, what: what.to_owned() };
    let context = device.open()?;
    let pd = context.alloc_pd()?;
    let mut cq = context.create_cq(256)?;
    let mut qp = context.queue_pair(&pd, &cq).max_recv_wr(FRAMES as u32).build()?;
    qp.prepare(&Local::default())?;
    qp.connect_to_self()?;
    let slab = pd.slab(64, FRAMES)?;
    for id in 0..FRAMES as u64 {
        let frame = slab.take().ok_or_else(|| wrong("no frame is free"))?;
        let posted = qp.post_recv(id, frame);
        posted.map_err(|refused| uverbs::Error::from(refused.error))?;
    }
    let started = Instant::now();
    take_away();
    // The device may flush the receives before it goes.
    while cq.wait(LIMIT).is_ok() {}
    let after = started.elapsed();
    if after >= LIMIT {
        return Err(wrong("a wait did not end"));
    }
    if !context.is_gone() {
        return Err(wrong("the context does not know that its device is gone"));
    }
    // The kernel has confirmed the end of the queue pair, so its frames come back.
    let gone = qp.destroy().map_err(uverbs::Refused::into_error)?;
    drop(cq.reclaim(&gone));
    drop(cq);
    let back = std::iter::from_fn(|| slab.take()).collect::<Vec<_>>().len();
    match back {
        FRAMES => Ok(after),
        _ => Err(wrong(&format!("{back} of {FRAMES} frames came back"))),
    }
}
