//! Choice of a device: the first that can be opened and has an active port.

use std::fmt;

use uverbs_core::Errno;
use uverbs_core::attr::PortState;
use uverbs_core::environment::Variable;
use uverbs_core::error::Error;

use super::find::{Device, devices};
use super::named::{device, device_names};
use super::near::Distance;

/// Reason for which a device was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// `UVERBS_DEVICE` names it.
    Named,
    /// It can be opened, and this port of it is active.
    Active(u8),
    /// It can be opened. Its ports are down, and no device of this choice has an active port.
    Down,
    /// It is the nearest one to a place ([`near`](crate::near)), at this distance.
    Near(Distance),
}

/// A device that was chosen, and the reason. It prints as a sentence.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Choice {
    /// The device.
    pub device: Device,
    /// Reason for the choice.
    pub reason: Reason,
    /// Devices that were tried and not taken: name and reason.
    pub passed: Vec<(String, String)>,
}

impl Choice {
    /// Returns a warning if no port of the device is active, so that it reaches no peer now.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let name = self.device.name();
        (self.reason == Reason::Down)
            .then(|| format!("{name}: no port is active; check its cable, its switch, `ip link`"))
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.device.name();
        match &self.reason {
            Reason::Named => write!(f, "{name}: UVERBS_DEVICE names it")?,
            Reason::Active(port) => write!(f, "{name}: port {port} is active")?,
            Reason::Down => write!(f, "{name}: it can be opened, its ports are down")?,
            Reason::Near(distance) => write!(f, "{name}: nearest ({distance})")?,
        }
        for (name, why) in &self.passed {
            write!(f, "; not {name}: {why}")?;
        }
        Ok(())
    }
}

/// Chooses a device of this machine: those that `UVERBS_DEVICE` names (separated by commas), or
/// [`devices`], by [`choose_among`]. A single named device is taken as it is.
///
/// # Errors
///
/// [`Error::NoSuchDevice`] on a machine without RDMA devices, or for a name that no device has; as
/// [`choose_among`].
///
/// ```no_run
/// let choice = uverbs::choose()?;
/// eprintln!("{choice}"); // "mlx5_1: port 1 is active; not mana_0: ..."
/// let context = choice.device.open()?;
/// # Ok::<(), uverbs::Error>(())
/// ```
pub fn choose() -> Result<Choice, Error> {
    let Some(names) = Variable::Device.text().filter(|names| !names.is_empty()) else {
        return choose_among(&devices()?);
    };
    let names = device_names(&names).into_iter().filter(|name| !name.is_empty());
    let named = names.map(device).collect::<Result<Vec<_>, _>>()?;
    match &named[..] {
        [only] => Ok(Choice { device: only.clone(), reason: Reason::Named, passed: Vec::new() }),
        several => choose_among(several),
    }
}

/// Chooses the first device that can be opened and has an active port, else the first that can be
/// opened. It opens and closes devices up to that one.
///
/// # Errors
///
/// [`Error::NoUsableDevice`], with the reason of each device, if none can be opened;
/// [`Error::NoSuchDevice`] for an empty list. Errors of this process, such as `EMFILE`, are
/// returned at once.
pub fn choose_among(devices: &[Device]) -> Result<Choice, Error> {
    let mut tried = Tried::default();
    for device in devices {
        if let Some(port) = tried.active_port(device)? {
            return Ok(tried.choice(device, Reason::Active(port)));
        }
    }
    tried.without_active()
}

/// Devices of a choice that were tried and have no active port.
#[derive(Debug, Default)]
pub(super) struct Tried {
    passed: Vec<(String, String)>,
    /// The first that can be opened.
    down: Option<Device>,
    /// Errno of the first that can't be opened.
    errno: Option<Errno>,
}

impl Tried {
    /// The first active port of a device; notes a device without one.
    ///
    /// # Errors
    ///
    /// Errors of this process, such as `EMFILE`: another device would fail alike.
    pub(super) fn active_port(&mut self, device: &Device) -> Result<Option<u8>, Error> {
        let why = match active_port(device) {
            Ok(Some(port)) => return Ok(Some(port)),
            Ok(None) => {
                self.down.get_or_insert_with(|| device.clone());
                "no port is active".to_owned()
            }
            Err(error) if is_of_process(&error) => return Err(error),
            Err(error) => {
                self.errno.get_or_insert(error.to_errno());
                error.to_string()
            }
        };
        self.passed.push((device.name().to_owned(), why));
        Ok(None)
    }

    /// True if one can be opened.
    pub(super) fn has_down(&self) -> bool {
        self.down.is_some()
    }

    pub(super) fn choice(self, device: &Device, reason: Reason) -> Choice {
        Choice { device: device.clone(), reason, passed: self.passed }
    }

    /// Choice after the last device: one that is down.
    pub(super) fn without_active(mut self) -> Result<Choice, Error> {
        match (self.down.take(), self.errno) {
            (Some(device), _) => {
                self.passed.retain(|(name, _)| name != device.name());
                Ok(self.choice(&device, Reason::Down))
            }
            (None, Some(errno)) => Err(Error::NoUsableDevice { passed: self.passed, errno }),
            (None, None) => Err(Error::NoSuchDevice { name: String::new(), available: Vec::new() }),
        }
    }
}

/// The first active port of a device.
fn active_port(device: &Device) -> Result<Option<u8>, Error> {
    let context = device.open()?;
    for port in 1..=context.query_device()?.phys_port_count {
        if context.query_port(port)?.state == PortState::Active {
            return Ok(Some(port));
        }
    }
    Ok(None)
}

/// Returns true if another device would fail alike.
fn is_of_process(error: &Error) -> bool {
    matches!(error.errno(), Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOMEM))
}

#[cfg(all(test, feature = "softhca"))]
mod tests {
    use std::sync::Arc;

    use uverbs_core::doors::{DeviceRecord, DeviceSource, UverbsDoor};
    use uverbs_softhca::SoftHca;

    use super::*;

    /// A device of a list: driver, and a software HCA or the errno of opening it.
    #[derive(Debug)]
    struct Listed(DeviceRecord, Result<SoftHca, Errno>);

    impl DeviceSource for Listed {
        fn record(&self) -> &DeviceRecord {
            &self.0
        }

        fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
            self.1.as_ref().map_err(|errno| *errno)?.open()
        }

        fn pkey(&self, _: u8, _: u16) -> Result<u16, Errno> {
            Err(Errno::ENOENT)
        }
    }

    const MLX5: u32 = 1;
    const MANA: u32 = 20;
    const IRDMA: u32 = 9;

    fn listed(name: &str, driver: u32, hca: Result<SoftHca, Errno>) -> Device {
        Device::from_source(Arc::new(Listed(DeviceRecord::new(name, driver), hca)))
    }

    fn hca(active: bool) -> Result<SoftHca, Errno> {
        let hca = SoftHca::builder().build().unwrap();
        if !active {
            hca.link_down();
        }
        Ok(hca)
    }

    #[test]
    fn devices_without_a_provider_or_a_link_are_passed_over() {
        let list = [
            listed("mana_0", MANA, hca(true)),
            listed("irdma0", IRDMA, hca(true)),
            listed("mlx5_0", MLX5, hca(false)),
            listed("mlx5_1", MLX5, Err(Errno::EACCES)),
            listed("mlx5_2", MLX5, hca(true)),
            listed("mlx5_3", MLX5, hca(true)),
        ];
        let choice = choose_among(&list).unwrap();
        assert_eq!((choice.device.name(), &choice.reason), ("mlx5_2", &Reason::Active(1)));
        let passed: Vec<_> = choice.passed.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(passed, ["mana_0", "irdma0", "mlx5_0", "mlx5_1"]);
        let text = choice.to_string();
        assert!(text.starts_with("mlx5_2: port 1 is active; not mana_0: open_device: "), "{text}");
        assert!(
            text.contains("not mlx5_0: no port is active; not mlx5_1: no permission"),
            "{text}"
        );
        assert_eq!(choice.warning(), None);
        assert!(choice.device.open().is_ok());
    }

    #[test]
    fn a_device_that_is_down_is_taken_with_a_warning() {
        let list = [
            listed("mana_0", MANA, hca(true)),
            listed("mlx5_0", MLX5, hca(false)),
            listed("mlx5_1", MLX5, hca(false)),
        ];
        let choice = choose_among(&list).unwrap();
        assert_eq!((choice.device.name(), &choice.reason), ("mlx5_0", &Reason::Down));
        assert!(choice.warning().unwrap().starts_with("mlx5_0: no port is active"));
        assert!(!choice.to_string().contains("not mlx5_0"), "{choice}");
    }

    #[test]
    fn without_a_usable_device_each_has_its_reason() {
        let list = [listed("mana_0", MANA, hca(true)), listed("mlx5_0", MLX5, Err(Errno::EACCES))];
        let error = choose_among(&list).unwrap_err();
        let Error::NoUsableDevice { passed, errno } = &error else { panic!("{error:?}") };
        assert_eq!((passed.len(), *errno), (2, Errno::EOPNOTSUPP));
        assert!(error.to_string().contains("mlx5_0: no permission"), "{error}");
        let none = choose_among(&[]).unwrap_err();
        assert_eq!(none, Error::NoSuchDevice { name: String::new(), available: Vec::new() });
        // Another device would end alike.
        let list = [listed("mlx5_0", MLX5, Err(Errno::EMFILE)), listed("mlx5_1", MLX5, hca(true))];
        assert_eq!(choose_among(&list).unwrap_err().errno(), Some(Errno::EMFILE));
    }
}
