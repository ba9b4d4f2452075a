//! A software mlx5 HCA: the other side of the hardware interface.
//!
//! [`SoftHca`] is one device in the process. Opening it gives a door that takes the place of an
//! open `/dev/infiniband/uverbsN`: it answers the ioctl bytes that ib_uverbs and mlx5_ib answer,
//! and maps UAR pages. The provider then writes WQEs and doorbell records into memory and rings;
//! the device reads them, moves data over a wire and writes CQEs.
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
//! Top to bottom; each uses only those below it:
//!
//! - the top (`SoftHca`, threads and steps) puts one device together;
//! - `kernel` is the front in process, the kernel side: ioctls, handles, errnos;
//! - `vfio_user`, `pci` and `firmware` are the other front, behind the feature `pci`: the same
//!   device as a PCI function for a virtual machine, whose own kernel drives it;
//! - `cm` is the device's connection manager, `cm_door` a program's door to it;
//! - `board` is what both fronts say of the device: identity, limits, layout of the BAR;
//! - [`hca`] is the device: queues, keys, transport; it knows no ioctl and no process address;
//! - [`wire`] carries packets.

mod board;
mod builder;
mod closer;
mod cm;
mod cm_door;
mod copy;
mod descriptors;
mod door;
mod embedded;
#[cfg(feature = "pci")]
mod firmware;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod guard;
mod handle;
pub mod hca;
mod idle;
mod kernel;
mod link;
mod maps;
mod memory;
#[cfg(feature = "pci")]
pub mod pci;
mod per_process;
mod run;
#[cfg(test)]
#[path = "../../../tests/common/skip.rs"]
mod skip;
mod sleep;
mod softhca;
mod uar;
mod udp;
#[cfg(feature = "pci")]
pub mod vfio_user;
pub mod wire;

pub use board::profile::{Gid, GidType};
pub use builder::SoftHcaBuilder;
pub use hca::{
    HcaStats, LinkLayer, Mtu, PendingCq, PendingQp, PendingRing, PendingSrq, Strictness,
};
pub use idle::Idle;
pub use softhca::{Pending, PortInfo, SoftHca};
pub use udp::{BadUdp, Carrier, Udp};
