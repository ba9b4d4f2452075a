//! The results port.

use std::fs::{File, OpenOptions};
use std::io::Write;

use uverbs_vm_init::report::{Line, PORT};
use uverbs_vm_init::sys;

/// Nobody but this process writes here.
pub(crate) struct Port(File);

impl Port {
    pub(crate) fn open() -> Result<Self, String> {
        let named = |error: std::io::Error| format!("{PORT}: {error}");
        let file = OpenOptions::new().write(true).open(PORT).map_err(named)?;
        // No carriage returns.
        sys::make_raw(&file).map_err(named)?;
        Ok(Self(file))
    }

    /// Says a line. What can't be said is missed by the host.
    pub(crate) fn say(&mut self, line: &Line) {
        let _ = self.0.write_all(format!("{line}\n").as_bytes());
    }

    /// Waits until everything is out.
    pub(crate) fn drain(&self) {
        let _ = sys::drain(&self.0);
    }
}
