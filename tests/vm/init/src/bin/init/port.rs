//! The results port.

use std::fs::{File, OpenOptions};
use std::io::Write;

use uverbs_vm_init::report::{Line, PORT};
use uverbs_vm_init::sys;

/// The results port, which only this process writes to.
pub(crate) struct Port(File);

impl Port {
    pub(crate) fn open() -> Result<Self, String> {
        let named = |error: std::io::Error| format!("{PORT}: {error}");
        let file = OpenOptions::new().write(true).open(PORT).map_err(named)?;
        // No carriage returns.
        sys::make_raw(&file).map_err(named)?;
        Ok(Self(file))
    }

    /// Writes a line. If that fails, the host misses the line.
    pub(crate) fn say(&mut self, line: &Line) {
        let _ = self.0.write_all(format!("{line}\n").as_bytes());
    }

    /// Waits until everything is sent.
    pub(crate) fn drain(&self) {
        let _ = sys::drain(&self.0);
    }
}
