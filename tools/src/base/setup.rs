//! Checks of device and port before objects are created, with the options' names, and their
//! description in reports.

use serde::{Deserialize, Serialize};
use uverbs::any_transport::TransportName;
use uverbs::{AckTimeout, Context, Mtu, PortState};

use crate::base::error::{BecauseOf, Error};
use crate::base::select;
use crate::link::operation::Operation;

/// Requirements of the options on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) port: u8,
    pub(crate) gid_index: Option<u32>,
    pub(crate) mtu: Option<Mtu>,
    /// Bytes of a message.
    pub(crate) size: u32,
    pub(crate) op: Operation,
    pub(crate) connection: TransportName,
}

/// Description of a device and its port in a report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeviceSummary {
    pub(crate) device: String,
    pub(crate) driver: String,
    pub(crate) firmware: String,
    pub(crate) embedded: bool,
    pub(crate) port: u8,
    pub(crate) link_layer: String,
    pub(crate) gid: Option<String>,
    pub(crate) gid_type: Option<String>,
    /// MTU of the connection in bytes; `None` before there is one.
    pub(crate) mtu: Option<u32>,
}

impl DeviceSummary {
    /// Text for people: device, port and its address.
    pub(crate) fn line(&self) -> String {
        let Self { device, port, link_layer, .. } = self;
        match (&self.gid, &self.gid_type) {
            (Some(gid), Some(kind)) => {
                format!("{device} port {port}, {link_layer}, {gid} ({kind})")
            }
            _ => format!("{device} port {port}, {link_layer}"),
        }
    }
}

/// Acknowledgement timeout on the software HCA: 2 s. In process memory no packet is lost. A late
/// acknowledgement only means that the device's thread waits for a processor.
const PATIENT: u8 = 19;

/// Default acknowledgement timeout.
pub(crate) fn ack_timeout(embedded: bool) -> AckTimeout {
    AckTimeout::from_code(PATIENT).filter(|_| embedded).unwrap_or(AckTimeout::DEFAULT)
}

/// Index of the GID to use, if the port needs one, and the description.
pub(crate) type Found = (Option<u32>, DeviceSummary);

impl Wanted {
    /// Refuses options that the device or its port does not support.
    pub(crate) fn find(&self, context: &Context, embedded: bool) -> Result<Found, Error> {
        let refuse =
            |option, value: String, why: String| Err(Error::Argument { option, value, why });
        let name = context.device().name();
        let device = context.query_device()?;
        if self.port == 0 || self.port > device.phys_port_count {
            let why = format!("{name} has ports 1 to {}", device.phys_port_count);
            return refuse("--ib-port", self.port.to_string(), why);
        }
        if self.op.is_atomic() && device.atomic_cap.raw() == 0 {
            return refuse("--device", name.to_owned(), "it has no atomics".to_owned());
        }
        let port = context.query_port(self.port)?;
        if port.state != PortState::Active {
            return Err(Error::Verb(uverbs::Error::Invalid {
                verb: "query_port",
                what: "the port's state",
                value: port.state.to_string(),
                why: "nothing can be sent until its link is up",
            }));
        }
        // The port's limit is of a SEND's one packet on SRD.
        let in_packets = self.connection == TransportName::Srd && self.op.needs_memory();
        if self.size > port.max_message_size && !in_packets {
            let why = format!("a message of {name} has at most {} bytes", port.max_message_size);
            return refuse("--size", self.size.to_string(), why);
        }
        let longest = port.active_mtu.bytes().filter(|_| self.connection == TransportName::Ud);
        if let Some(longest) = longest.filter(|longest| self.size > *longest) {
            let why = format!("a datagram is one packet, and the port's MTU is {longest} bytes");
            return refuse("--size", self.size.to_string(), why);
        }
        if let Some(mtu) = self.mtu.filter(|mtu| mtu.raw() > port.active_mtu.raw()) {
            let why = format!("the port's MTU is {}", port.active_mtu);
            return refuse("--mtu", mtu.to_string(), why);
        }
        let gid = match self.gid_index {
            Some(index) if index >= port.gid_table_len => {
                let why =
                    format!("the port's GID table has {} entries, from 0", port.gid_table_len);
                return refuse("--gid-index", index.to_string(), why);
            }
            Some(index) => {
                Some(context.query_gid(self.port, index).because_of("--gid-index", index)?)
            }
            None => context.best_gid(self.port)?,
        };
        let place = DeviceSummary {
            device: name.to_owned(),
            driver: select::driver(context.device()),
            firmware: device.firmware(),
            embedded,
            port: self.port,
            link_layer: port.link_layer.to_string(),
            gid: gid.map(|entry| entry.gid.to_string()),
            gid_type: gid.map(|entry| entry.kind.to_string()),
            mtu: longest,
        };
        Ok((gid.map(|entry| entry.index), place))
    }
}
