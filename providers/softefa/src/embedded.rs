//! Devices that every process can open by name: two on one fabric.

use std::io;
use std::sync::{Arc, Weak};

use uverbs_core::doors::DeviceRecord;
use uverbs_core::memory::per_process::PerProcess;

use crate::device::world::{Fabric, Shared};
use crate::softefa::SoftEfa;

/// Names of the devices.
const NAMES: [&str; 2] = ["softefa0", "softefa1"];
/// Another name of the first one.
const NAME: &str = "softefa";
/// Prefix of a name on the network, where no software adapter is.
const ON_NETWORK: &str = "softefa@";

/// Devices of this process. Fabric and thread end with the last handle. A forked child inherits no
/// thread, so it begins with a new fabric.
static EMBEDDED: PerProcess<Embedded> = PerProcess::new();

#[derive(Debug, Default)]
struct Embedded {
    fabric: Weak<Shared>,
    boards: Vec<(Arc<DeviceRecord>, usize)>,
}

impl SoftEfa {
    /// Device of this process by its name, `softefa0` or `softefa1`: the same one while a handle of
    /// either exists. `softefa` is `softefa0`; `None` for other names.
    ///
    /// Both are on one fabric, so that queue pairs of either reach each other, whichever part of
    /// the program made them. Other processes do not reach them.
    ///
    /// # Errors
    ///
    /// As [`SoftEfaBuilder::build`](crate::SoftEfaBuilder::build); `InvalidInput` for
    /// `softefa@ADDRESS`.
    pub fn embedded(name: &str) -> Option<io::Result<Self>> {
        if name.starts_with(ON_NETWORK) {
            let why = "software Elastic Fabric Adapters reach each other within a process alone: \
                       softefa0 and softefa1; between processes there is softhca@ADDRESS";
            return Some(Err(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        let name = if name == NAME { NAMES[0] } else { name };
        let at = NAMES.iter().position(|known| *known == name)?;
        Some(EMBEDDED.lock().device(at))
    }
}

impl Embedded {
    fn device(&mut self, at: usize) -> io::Result<SoftEfa> {
        if let Some(shared) = self.fabric.upgrade() {
            let (record, board) = &self.boards[at];
            let (record, fabric) = (Arc::clone(record), Fabric::from(shared));
            return Ok(SoftEfa { record, fabric, board: *board });
        }
        let first = SoftEfa::builder().name(NAMES[0]).number(0).build()?;
        let second = SoftEfa::builder().name(NAMES[1]).number(1).fabric(&first.fabric).build()?;
        let both = [first, second];
        self.fabric = both[0].fabric.downgrade();
        self.boards = both.iter().map(|efa| (Arc::clone(&efa.record), efa.board)).collect();
        let [first, second] = both;
        Ok(if at == 0 { first } else { second })
    }
}
