//! Devices that every process can open by name: two on one fabric, one that the user's processes
//! share, and any on the network.

use std::io;
use std::sync::{Arc, Weak};

use crate::per_process::PerProcess;
use crate::softhca::{Inner, SoftHca};
use crate::udp::{Carrier, Udp};
use crate::wire::Fabric;

/// Names of the devices that this process alone reaches.
const NAMES: [&str; 2] = ["softhca0", "softhca1"];

/// Name of the device that all processes of this user on this host reach.
const NAME: &str = "softhca";

/// Prefix of the name of a device on the network; its address follows.
const ON_UDP: &str = "softhca@";

/// Devices and fabric of this process. A device ends with its last handle, the fabric never. A
/// forked child inherits no device thread, so it begins with an empty set.
static EMBEDDED: PerProcess<Embedded> = PerProcess::new();

#[derive(Debug, Default)]
struct Embedded {
    fabric: Option<Fabric>,
    devices: [Weak<Inner>; 2],
    on_udp: Vec<(String, Weak<Inner>)>,
}

impl SoftHca {
    /// Device of this process by its name: the same one while a handle exists. `None` for other
    /// names.
    ///
    /// Device `softhca` sends through shared memory: the user's other processes on this host
    /// reach it, other users and hosts do not. It has the first free address of 127.0.0.0/8; where
    /// none can be had it is `softhca0`.
    ///
    /// `softhca0` and `softhca1` are reached by this process alone. Both are on one fabric, so that
    /// queue pairs of either reach each other, whichever part of the program made them.
    ///
    /// `softhca@ADDRESS` or `softhca@ADDRESS:PORT` is a device on the network; [`Udp`] parses the
    /// text: `softhca@127.0.0.2`. `softhca@loopback` takes the first free address of 127.0.0.0/8.
    /// Two such devices on one host use shared memory, except with `,udp` at the end.
    ///
    /// Devices of [`SoftHca::builder`] are on private fabrics, unless
    /// [attached](crate::SoftHcaBuilder::fabric) to a shared one.
    ///
    /// # Errors
    ///
    /// As [`SoftHcaBuilder::build`](crate::SoftHcaBuilder::build); `InvalidInput` for a malformed
    /// address.
    pub fn embedded(name: &str) -> Option<io::Result<Self>> {
        if name == NAME {
            let udp = Udp::loopback().by(Carrier::SharedMemory);
            let shared = EMBEDDED.lock().on_udp(name, udp);
            // A sandbox may forbid the sockets, or have no loopback address.
            return shared.map_or_else(|_| Self::embedded(NAMES[0]), |made| Some(Ok(made)));
        }
        if let Some(udp) = name.strip_prefix(ON_UDP) {
            let udp = udp.parse::<Udp>().map_err(io::Error::from);
            return Some(udp.and_then(|udp| EMBEDDED.lock().on_udp(name, udp)));
        }
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

impl Embedded {
    fn on_udp(&mut self, name: &str, udp: Udp) -> io::Result<SoftHca> {
        let known = self.on_udp.iter().find(|(known, _)| known == name);
        if let Some(inner) = known.and_then(|(_, device)| device.upgrade()) {
            return Ok(SoftHca { inner });
        }
        let device = SoftHca::builder().name(name).udp(udp).build()?;
        self.on_udp.retain(|(_, device)| device.strong_count() != 0);
        self.on_udp.push((name.to_owned(), Arc::downgrade(&device.inner)));
        Ok(device)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_device_while_somebody_has_it() {
        let get = |name| SoftHca::embedded(name).unwrap().unwrap();
        let (first, again, other) = (get("softhca0"), get("softhca0"), get("softhca1"));
        assert!(Arc::ptr_eq(&first.inner, &again.inner));
        assert!(!Arc::ptr_eq(&first.inner, &other.inner));
        let weak = Arc::downgrade(&other.inner);
        drop(other);
        assert_eq!(weak.strong_count(), 0);
        assert!(!weak.ptr_eq(&Arc::downgrade(&get("softhca1").inner)));
        let (shared, again) = (get("softhca"), get("softhca"));
        assert!(Arc::ptr_eq(&shared.inner, &again.inner));
        assert!(!Arc::ptr_eq(&shared.inner, &first.inner));
        assert!(SoftHca::embedded("softhca2").is_none());
    }
}
