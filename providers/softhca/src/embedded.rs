//! The devices that every process has, by name, on one fabric.

use std::io;
use std::sync::{Arc, Weak};

use crate::per_process::PerProcess;
use crate::softhca::{Inner, SoftHca};
use crate::wire::Fabric;

/// Their names. `softhca` alone stands for the first, too.
const NAMES: [&str; 2] = ["softhca0", "softhca1"];

/// What this process has made so far. A device ends with its last handle, the fabric never. What a
/// forked child inherits has no thread, so it begins anew.
static EMBEDDED: PerProcess<Embedded> = PerProcess::new();

#[derive(Debug, Default)]
struct Embedded {
    fabric: Option<Fabric>,
    devices: [Weak<Inner>; 2],
}

impl SoftHca {
    /// The process's own device of that name: `softhca0` (or `softhca`), `softhca1`. It is the same
    /// device each time, as long as somebody has it, and both are on one fabric, so that queue
    /// pairs of either reach each other, whichever part of the program made them. `None` for other
    /// names.
    ///
    /// Devices of [`SoftHca::builder`] are on fabrics of their own, unless they are
    /// [attached](crate::SoftHcaBuilder::fabric).
    ///
    /// # Errors
    ///
    /// As [`SoftHcaBuilder::build`](crate::SoftHcaBuilder::build).
    pub fn embedded(name: &str) -> Option<io::Result<Self>> {
        let name = if name == "softhca" { NAMES[0] } else { name };
        let at = NAMES.iter().position(|known| *known == name)?;
        let mut embedded = EMBEDDED.lock();
        if let Some(inner) = embedded.devices[at].upgrade() {
            return Some(Ok(Self { inner }));
        }
        let fabric = embedded.fabric.get_or_insert_with(Fabric::new).clone();
        let made = Self::builder().name(name).fabric(&fabric).build();
        if let Ok(device) = &made {
            embedded.devices[at] = Arc::downgrade(&device.inner);
        }
        Some(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_device_while_somebody_has_it() {
        let get = |name| SoftHca::embedded(name).unwrap().unwrap();
        let (first, again, other) = (get("softhca0"), get("softhca"), get("softhca1"));
        assert!(Arc::ptr_eq(&first.inner, &again.inner));
        assert!(!Arc::ptr_eq(&first.inner, &other.inner));
        let weak = Arc::downgrade(&other.inner);
        drop(other);
        assert_eq!(weak.strong_count(), 0);
        assert!(!weak.ptr_eq(&Arc::downgrade(&get("softhca1").inner)));
        assert!(SoftHca::embedded("softhca2").is_none());
    }
}
