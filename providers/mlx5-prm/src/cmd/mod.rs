//! The command interface: how a driver asks the device to make, change and destroy objects (PRM
//! "Command Interface"; Linux `include/linux/mlx5/mlx5_ifc.h`).
//!
//! Inputs, outputs and contexts are bit fields that follow no byte, so each is a module of
//! [`Field`]s and [`Block`]s over any bytes, with the names of `mlx5_ifc.h` in capitals: what C
//! writes as `MLX5_GET(qpc, p, mtu)` is `qpc::MTU.get(p)`. A structure inside another is a block:
//! `create_qp_in::QPC.of(input)`.
//!
//! | file | what |
//! |---|---|
//! | `opcode`, `queue` | what a command is, and how it travels |
//! | `header` | what all commands share |
//! | `hca`, `caps`, `register`, `iseg`, `vport`, `nic` | the device, its abilities, its port |
//! | `simple`, `eq`, `cq`, `qp`, `dct`, `mkey`, `memic`, `rq`, `mcast`, `sq`, `steering`, `flow`, `general`, `umem` | objects |

mod field;
pub(crate) use field::ifc;
pub use field::{Block, Field};

pub mod caps;
pub mod cq;
pub mod dct;
pub mod eq;
pub mod flow;
pub mod general;
pub mod hca;
pub mod header;
pub mod iseg;
pub mod mcast;
pub mod memic;
pub mod mkey;
pub mod nic;
pub mod opcode;
pub mod qp;
pub mod queue;
pub mod register;
pub mod rq;
pub mod simple;
pub mod sq;
pub mod steering;
pub mod umem;
pub mod vport;
