//! The software device of this process, created when it is first opened.

use std::sync::{Arc, OnceLock};

use nix::errno::Errno;
use uverbs_core::doors::{DeviceSource, UverbsDoor};
use uverbs_softefa::SoftEfa;
use uverbs_softhca::{LinkLayer, SoftHca, SoftHcaBuilder, Udp};

use c_stack::log::known;
use c_stack::obliging::Obliging;

/// Name of the RDMA device.
pub(crate) const NAME: &str = "softhca0";
/// Name of the character device.
pub(crate) const NODE: &str = "uverbs0";

/// Settings of the device from the environment.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) link: LinkLayer,
    /// Number that GUID and addresses are derived from; `None`: derived from the network address.
    pub(crate) number: Option<u16>,
    /// Network address; `None`: a private fabric.
    pub(crate) udp: Option<Udp>,
    /// No thread: commands are answered, queues are not processed. For timing the client's side of
    /// the data path.
    pub(crate) stepped: bool,
    /// Raw packets need inline headers.
    headers: bool,
    /// Page faults end shared receives.
    faults: bool,
    /// Two ports are bonded.
    bonded: bool,
    /// There is a direct path to GPUs.
    data_direct: bool,
    /// A device of Omni-Path (`hfi1`) in place of a ConnectX.
    pub(crate) omni_path: bool,
    /// A device of Amazon's (`efa`) in place of a ConnectX.
    pub(crate) efa: bool,
    /// It has no WRITEs.
    reads: bool,
}

impl Settings {
    /// Reads the settings from the environment.
    ///
    /// # Errors
    ///
    /// A text that names the wrong variable.
    pub(crate) fn from_env() -> Result<Self, String> {
        let text = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
        let link = match text("UVERBS_SOFTHCA_LINK").as_deref() {
            None | Some("eth") => LinkLayer::Ethernet,
            Some("ib") => LinkLayer::InfiniBand,
            Some(other) => return Err(format!("UVERBS_SOFTHCA_LINK={other}: neither eth nor ib")),
        };
        let udp = text("UVERBS_SOFTHCA_UDP").map(|text| {
            // The sysfs tree and the device are made one after the other, and must have one
            // address.
            let udp = text.parse().ok().filter(|udp| *udp != Udp::loopback());
            udp.ok_or_else(|| format!("UVERBS_SOFTHCA_UDP={text}: no address"))
        });
        let udp = udp.transpose()?;
        let number = match text("UVERBS_SOFTHCA_NUMBER") {
            None => Some(1).filter(|_| udp.is_none()),
            Some(digits) => Some(
                digits
                    .parse()
                    .ok()
                    .filter(|&number| number != 0)
                    .ok_or_else(|| format!("UVERBS_SOFTHCA_NUMBER={digits}: not 1 to 65535"))?,
            ),
        };
        let has = |name| text(name).is_some();
        let stepped = has("UVERBS_SOFTHCA_STEPPED");
        let headers = has("UVERBS_SOFTHCA_HEADERS");
        let faults = has("UVERBS_SOFTHCA_FAULTS");
        let bonded = has("UVERBS_SOFTHCA_BONDED");
        let data_direct = has("UVERBS_SOFTHCA_DATA_DIRECT");
        let omni_path = has("UVERBS_SOFTHCA_OMNI_PATH");
        let efa = text("UVERBS_SOFTHCA_EFA");
        let reads = efa.as_deref() == Some("reads");
        let efa = efa.is_some();
        Ok(Self {
            link,
            number,
            udp,
            stepped,
            headers,
            faults,
            bonded,
            data_direct,
            omni_path,
            efa,
            reads,
        })
    }

    /// Builder of a device with these settings.
    pub(crate) fn builder(self) -> SoftHcaBuilder {
        let mut builder = SoftHca::builder().name(NAME).link(self.link);
        if let Some(number) = self.number {
            builder = builder.number(number);
        }
        if let Some(udp) = self.udp {
            builder = builder.udp(udp);
        }
        if self.headers {
            builder = builder.wants_headers();
        }
        if self.faults {
            builder = builder.hca(|config| config.aborts_shared_receives = true);
        }
        if self.bonded {
            builder = builder.hca(|config| config.lag_ports = 2);
        }
        if self.data_direct {
            builder = builder.hca(|config| config.data_direct = true);
        }
        if self.omni_path {
            builder = builder.omni_path();
        }
        if self.stepped { builder.stepped() } else { builder }
    }
}

/// Software adapter of Amazon's with these settings.
///
/// # Errors
///
/// The system's error if its thread can't be created or its address is taken.
pub(crate) fn new_efa(settings: Settings) -> std::io::Result<SoftEfa> {
    let mut builder = SoftEfa::builder().name(NAME).number(0).assume_arms();
    if let Some(udp) = settings.udp {
        builder = builder.udp(udp);
    }
    if settings.reads {
        builder = builder.without_write();
    }
    if settings.stepped { builder.stepped() } else { builder }.build()
}

/// Returns the adapter, if the settings ask for one and it can be created.
pub(crate) fn efa() -> Option<&'static SoftEfa> {
    static DEVICE: OnceLock<Option<SoftEfa>> = OnceLock::new();
    let new = || {
        let settings = Settings::from_env().ok().filter(|settings| settings.efa)?;
        new_efa(settings).ok()
    };
    DEVICE.get_or_init(new).as_ref()
}

/// Returns the software HCA; `None` if it cannot be created.
pub(crate) fn get() -> Option<&'static SoftHca> {
    static DEVICE: OnceLock<Option<SoftHca>> = OnceLock::new();
    let device =
        DEVICE.get_or_init(|| Settings::from_env().ok().and_then(|all| all.builder().build().ok()));
    device.as_ref()
}

/// Opens the device.
///
/// # Errors
///
/// `EIO` if the device cannot be created; the error of the open.
pub(crate) fn open() -> Result<Arc<dyn UverbsDoor>, Errno> {
    let source = match efa() {
        Some(device) => device as &dyn DeviceSource,
        None => get().ok_or(Errno::EIO)?,
    };
    let door = source.open().map_err(known)?;
    Ok(match std::env::var_os("UVERBS_SOFTHCA_OBLIGING") {
        Some(_) => Arc::new(Obliging(door)),
        None => door,
    })
}
