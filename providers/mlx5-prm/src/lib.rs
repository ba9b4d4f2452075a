//! ConnectX (mlx5) hardware layouts as Rust types: structures that a driver writes and a device
//! reads (WQEs, doorbells), and structures that a device writes and a driver reads (CQEs).
//!
//! The crate has layouts only, without logic: it serves a driver and a software device that share
//! no other code. C names are kept, so a name from `mlx5dv.h` or the Ethernet Adapters PRM leads
//! here, and every structure is checked against the C headers field by field (`tests/layout.rs`).
//!
//! - Structures hold big-endian fields of alignment 1 and can be viewed in, or copied to, any bytes
//!   (zerocopy). Fields packed into a word have a separate type: `mlx5_wqe_ctrl_seg::word0` returns
//!   [`ctrl::OpmodIdxOpcode`], whose getters and builders have the manual's names.
//! - Numbers with names ([`opcode::Opcode`], [`syndrome::Syndrome`], ...) also keep values without
//!   a name.
//! - [`wqe::WqeView`] finds the segments of a send WQE, [`wqe::RecvView`] the segments of a receive
//!   WQE, [`print::CqeView`] the form of a completion. All three print every field.
//!
//! ```
//! use uverbs_mlx5_prm::ctrl::{FmCeSe, OpmodIdxOpcode, QpnDs, mlx5_wqe_ctrl_seg};
//! use uverbs_mlx5_prm::data::mlx5_wqe_data_seg;
//! use uverbs_mlx5_prm::opcode::Opcode;
//! use uverbs_mlx5_prm::wqe::{Segment, Service, WqeView};
//! use zerocopy::IntoBytes;
//!
//! let ctrl = mlx5_wqe_ctrl_seg::new(
//!     OpmodIdxOpcode::ZERO.with_wqe_index(7).with_opcode(Opcode::SEND.0),
//!     QpnDs::ZERO.with_qpn(0x48).with_ds(2),
//!     FmCeSe::ZERO.with_ce(FmCeSe::CE_CQE),
//!     0,
//! );
//! let data = mlx5_wqe_data_seg::new(64, 0x1000, 0x7f00_0000_0000);
//! let bytes = [ctrl.as_bytes(), data.as_bytes()].concat();
//!
//! let wqe = WqeView::parse(&bytes, Service::Rc).unwrap();
//! assert_eq!(wqe.ctrl().word1().qpn(), 0x48);
//! assert!(wqe.segments().eq([Segment::Data(&data)]));
//! println!("{wqe}");
//! ```
#![no_std]
#![forbid(unsafe_code)]
#![expect(
    missing_debug_implementations,
    reason = "hidden types of the zerocopy derives; every type declared here derives Debug"
)]
// `ifc!` recurses once for each field, and `cmd_hca_cap` has more fields than the default limit
// 128.
#![recursion_limit = "256"]

mod bits;
mod field;

pub mod address;
pub mod cmd;
pub mod context;
pub mod cqe;
pub mod ctrl;
pub mod data;
pub mod doorbell;
pub mod eqe;
pub mod eth;
pub mod offload;
pub mod opcode;
pub mod print;
pub mod remote;
pub mod syndrome;
pub mod table;
pub mod tag;
pub mod umr;
pub mod wqe;
mod wqe_error;
