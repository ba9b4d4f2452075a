//! Attributes: what devices, ports, GIDs and queues have and can be given.

mod access;
mod change;
mod dc;
mod device;
mod flow;
mod gid;
mod grh;
mod link;
mod multicast;
mod path;
mod port;
mod qp;
mod raw;
mod raw_packet;
mod rss;
mod srq;
mod transition;
mod xrc;

pub use access::AccessFlags;
pub use change::*;
pub use dc::*;
pub use device::*;
pub use flow::{EthMatch, FlowRule, Ipv4Match, Ipv6Match, MacAddr, Masked, PortMatch};
pub use gid::*;
pub use grh::{Grh, GrhKind};
pub use link::*;
pub use multicast::MulticastGroup;
pub use path::{AhAttr, GlobalRoute, Path};
pub use port::*;
pub use qp::*;
pub use raw::{QpAttrMask, RawQpAttr};
pub use raw_packet::{RawPacketChange, RawPacketInitAttr, RawPacketRtrAttr, RawPacketRtsAttr};
pub use rss::{HashFields, RssHash, WqState};
pub use srq::SrqAttr;
pub use transition::*;
pub use xrc::{XrcFile, XrcTargetRtsAttr};
