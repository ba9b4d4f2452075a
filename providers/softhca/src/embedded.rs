//! Devices that every process can open by name: two on one fabric, one that the user's processes
//! share, and any on the network.

use std::io;
use std::sync::{Arc, Weak};

use crate::SoftHcaBuilder;
use crate::name::NetworkName;
use crate::softhca::{Inner, SoftHca};
use crate::udp::{Carrier, Udp};
use crate::wire::Fabric;
use uverbs_core::memory::per_process::PerProcess;
use uverbs_front::backend::context::LinkLayer;

/// Names of the devices that this process alone reaches.
const NAMES: [&str; 4] = ["softhca0", "softhca1", "softhfi0", "softhfi1"];
/// Place of the first one that is of Omni-Path.
const OMNI_PATH: usize = 2;

/// Name of the device that all processes of this user on this host reach.
const NAME: &str = "softhca";

/// Devices and fabric of this process. A device ends with its last handle, the fabric never. A
/// forked child inherits no device thread, so it begins with an empty set.
static EMBEDDED: PerProcess<Embedded> = PerProcess::new();

#[derive(Debug, Default)]
struct Embedded {
    fabric: Option<Fabric>,
    devices: [Weak<Inner>; 4],
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
    /// `softhfi0` and `softhfi1` are devices of Omni-Path
    /// ([`omni_path`](crate::SoftHcaBuilder::omni_path)); so is `softhfi@ADDRESS`.
    ///
    /// `softhca0` and `softhca1` are reached by this process alone. Both are on one fabric, so that
    /// queue pairs of either reach each other, whichever part of the program made them.
    ///
    /// `softhca@ADDRESS` or `softhca@ADDRESS:PORT` is a device on the network; [`Udp`] parses the
    /// text: `softhca@127.0.0.2`. `softhca@loopback` takes the first free address of 127.0.0.0/8.
    /// Two such devices on one host use shared memory, except with `,udp` at the end. With `,ib` at
    /// the end the port is InfiniBand ([`link`](crate::SoftHcaBuilder::link)). A name that the
    /// program sees can follow the address: `softhca@127.0.0.2=mlx5_0`.
    ///
    /// Devices of [`SoftHca::builder`] are on private fabrics, unless
    /// [attached](crate::SoftHcaBuilder::fabric) to a shared one.
    ///
    /// # Errors
    ///
    /// As [`SoftHcaBuilder::build`](crate::SoftHcaBuilder::build); `InvalidInput` for a malformed
    /// address or name, and for a name that another device of the process has.
    pub fn embedded(name: &str) -> Option<io::Result<Self>> {
        if name == NAME {
            let udp = Udp::loopback().by(Carrier::SharedMemory);
            let asked = NetworkName {
                shown: name.to_owned(),
                udp,
                link: LinkLayer::Ethernet,
                omni_path: false,
            };
            let shared = EMBEDDED.lock().on_udp(name, asked);
            // A sandbox may forbid the sockets, or have no loopback address.
            return shared.map_or_else(|_| Self::embedded(NAMES[0]), |made| Some(Ok(made)));
        }
        if let Some(asked) = NetworkName::parse(name) {
            return Some(asked.and_then(|asked| EMBEDDED.lock().on_udp(name, asked)));
        }
        Self::in_process(name)
    }

    /// Description of the device that has this name or would get it: its addresses and attributes,
    /// for programs that open no device. Its UDP port stays free for a device.
    ///
    /// # Errors
    ///
    /// As [`embedded`](Self::embedded), except for an address in use.
    #[doc(hidden)]
    pub fn described(name: &str) -> Option<io::Result<Self>> {
        let asked = match NetworkName::parse(name) {
            Some(Err(error)) => return Some(Err(error)),
            Some(Ok(asked)) => asked,
            None if name == NAME => NetworkName {
                shown: name.to_owned(),
                udp: Udp::loopback(),
                link: LinkLayer::Ethernet,
                omni_path: false,
            },
            None => return Self::in_process(name),
        };
        if let Some(inner) = EMBEDDED.lock().known(name) {
            return Some(Ok(Self { inner }));
        }
        let described = asked.udp.unclaimed().and_then(|udp| {
            let builder = of_kind(asked.omni_path).name(asked.shown).link(asked.link);
            builder.udp(udp).stepped().silent().build()
        });
        Some(described)
    }

    fn in_process(name: &str) -> Option<io::Result<Self>> {
        let at = NAMES.iter().position(|known| *known == name)?;
        let mut embedded = EMBEDDED.lock();
        if let Some(inner) = embedded.devices[at].upgrade() {
            return Some(Ok(Self { inner }));
        }
        let fabric = embedded.fabric.get_or_insert_with(Fabric::new).clone();
        let made = of_kind(at >= OMNI_PATH).name(name).fabric(&fabric).build();
        if let Ok(device) = &made {
            embedded.devices[at] = Arc::downgrade(&device.inner);
        }
        Some(made)
    }
}

/// Builder of a ConnectX, or of a device of Omni-Path.
fn of_kind(omni_path: bool) -> SoftHcaBuilder {
    let builder = SoftHca::builder();
    if omni_path { builder.omni_path() } else { builder }
}

impl Embedded {
    fn known(&self, name: &str) -> Option<Arc<Inner>> {
        let known = self.on_udp.iter().find(|(known, _)| known == name);
        known.and_then(|(_, device)| device.upgrade())
    }

    fn on_udp(&mut self, name: &str, asked: NetworkName) -> io::Result<SoftHca> {
        if let Some(inner) = self.known(name) {
            return Ok(SoftHca { inner });
        }
        self.on_udp.retain(|(_, device)| device.strong_count() != 0);
        let mut others = self.on_udp.iter().filter_map(|(_, device)| device.upgrade());
        if others.any(|other| other.record.name == asked.shown) {
            let why = format!("another software HCA of this process is named {:?}", asked.shown);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let NetworkName { shown, udp, link, omni_path } = asked;
        let device = of_kind(omni_path).name(shown).link(link).udp(udp).build()?;
        self.on_udp.push((name.to_owned(), Arc::downgrade(&device.inner)));
        Ok(device)
    }
}

#[cfg(test)]
mod tests {
    use uverbs_core::doors::DeviceSource;

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

    #[test]
    fn a_description_leaves_the_address_to_a_device() {
        let [_, b, c, d] = (127 << 24 | std::process::id() | 1).to_be_bytes();
        let at = format!("softhca@127.{b}.{c}.{d}");
        let described = SoftHca::described(&at).unwrap().unwrap();
        let device = SoftHca::embedded(&at).unwrap().unwrap();
        assert_eq!(described.record(), device.record());
        assert_eq!(described.gids(), device.gids());
        let known = SoftHca::described(&at).unwrap().unwrap();
        assert!(Arc::ptr_eq(&known.inner, &device.inner));
        let twice = format!("{at},udp");
        assert_eq!(SoftHca::described(&twice).unwrap().unwrap().gids(), device.gids());
        assert!(SoftHca::described("softhca@here").unwrap().is_err());
        assert!(SoftHca::described("mlx5_0").is_none());
    }
}
