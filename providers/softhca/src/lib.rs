//! Software ConnectX: the device's side of mlx5's hardware interface.
//!
//! [`SoftHca`] is a device in the process. Opening it returns a door, which takes the place of an
//! open `/dev/infiniband/uverbsN`: it answers ioctls like ib_uverbs and mlx5_ib, and maps UAR
//! pages. The provider then writes WQEs and doorbell records; the device reads them, sends packets
//! over a wire, and writes CQEs.
//!
//! ```
//! use uverbs_softhca::SoftHca;
//!
//! let device = SoftHca::builder().name("softhca0").build()?;
//! let door = device.open()?;
//! // ... ioctls through the door ...
//! drop(door); // frees all that was made through it
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! Layers from top to bottom; each uses only the layers below it:
//!
//! - the top (`SoftHca`, threads and steps) assembles a device;
//! - `uverbs-front` is the in-process front, in the kernel's role: ioctls, handles, errnos. `model`
//!   implements its interface to a device;
//! - `vfio_user` and `pci` are the second front, behind the feature `pci`: a PCI function for a
//!   virtual machine, driven by the guest's kernel;
//! - `cm_door` is a program's door to the front's connection manager;
//! - `firmware` has the commands of the PCI function, three of which a program sends in process,
//!   too (DEVX);
//! - `board` is shared by both fronts: identity, capabilities, layout of the BAR;
//! - `hca` is the device: queues, keys, transport; it knows neither ioctls nor process addresses;
//! - [`wire`] carries packets.

mod board;
mod builder;
mod closer;
mod cm_door;
mod copy;
mod descriptors;
mod door;
mod embedded;
#[cfg(any(test, fuzzing))]
#[path = "../../../fuzz/feed.rs"]
mod feed;
#[cfg_attr(
    not(feature = "pci"),
    allow(dead_code, reason = "most commands come from the driver of a PCI function alone")
)]
mod firmware;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod handle;
pub(crate) mod hca;
mod idle;
#[cfg(any(test, fuzzing))]
mod kernel_tests;
mod memory;
mod model;
mod name;
mod naps;
#[cfg(feature = "pci")]
pub mod pci;
mod progress;
mod report;
mod run;
mod sleep;
mod softhca;
mod udp;
#[cfg(feature = "pci")]
pub mod vfio_user;
pub mod wire;
mod wire_control;

pub use board::card::{Card, UnknownCard};
pub use builder::SoftHcaBuilder;
pub use hca::{
    Complaints, HcaConfig, HcaStats, PendingCq, PendingQp, PendingRing, PendingSrq, Placement,
    Strictness,
};
pub use idle::Idle;
pub use name::is_option;
pub use softhca::{Pending, PortInfo, SoftHca};
pub use udp::{BadUdp, Carrier, Udp};
pub use uverbs_front::backend::config::{Gid, GidType};
pub use uverbs_front::backend::context::{LinkLayer, Mtu};
pub use uverbs_front::backend::number::Key;
