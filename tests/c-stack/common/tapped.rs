//! A device that records its commands.

use std::sync::{Arc, Mutex};

use uverbs_core::Errno;
use uverbs_core::doors::{DeviceRecord, DeviceSource, Recorded, Recorder, UverbsDoor};

/// A device whose openings are recorded.
#[derive(Debug)]
pub struct Tapped<D> {
    device: D,
    recorders: Mutex<Vec<Arc<Recorder>>>,
}

impl<D> Tapped<D> {
    pub fn new(device: D) -> Self {
        Self { device, recorders: Mutex::default() }
    }

    pub fn device(&self) -> &D {
        &self.device
    }

    /// Takes the commands that were recorded, in order of the openings.
    pub fn take(&self) -> Vec<Recorded> {
        self.recorders.lock().unwrap().iter().flat_map(|recorder| recorder.take()).collect()
    }
}

impl<D: DeviceSource> DeviceSource for Tapped<D> {
    fn record(&self) -> &DeviceRecord {
        self.device.record()
    }

    fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        let recorder = Arc::new(Recorder::new(self.device.open()?));
        self.recorders.lock().unwrap().push(Arc::clone(&recorder));
        Ok(recorder)
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        self.device.pkey(port, index)
    }
}
