//! The results port.

use std::fs::{File, OpenOptions};
use std::io::Write;

use nix::sys::termios::{SetArg, cfmakeraw, tcdrain, tcgetattr, tcsetattr};
use uverbs_vm_init::report::{Line, PORT};

/// Nobody but this process writes here.
pub(crate) struct Port(File);

impl Port {
    pub(crate) fn open() -> Result<Self, String> {
        let named = |error: &dyn std::fmt::Display| format!("{PORT}: {error}");
        let file = OpenOptions::new().write(true).open(PORT).map_err(|error| named(&error))?;
        // Raw: no carriage returns.
        let mut settings = tcgetattr(&file).map_err(|error| named(&error))?;
        cfmakeraw(&mut settings);
        tcsetattr(&file, SetArg::TCSANOW, &settings).map_err(|error| named(&error))?;
        Ok(Self(file))
    }

    /// Says a line. What can't be said is missed by the host.
    pub(crate) fn say(&mut self, line: &Line) {
        let _ = self.0.write_all(format!("{line}\n").as_bytes());
    }

    /// Waits until everything is out.
    pub(crate) fn drain(&self) {
        let _ = tcdrain(&self.0);
    }
}
