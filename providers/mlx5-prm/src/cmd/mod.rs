//! The command interface, by which a driver creates, changes and destroys objects (PRM "Command
//! Interface"; Linux `include/linux/mlx5/mlx5_ifc.h`).
//!
//! Inputs, outputs and contexts have bit fields that cross bytes. So each is a module of [`Field`]s
//! and [`Block`]s over any bytes, with the names of `mlx5_ifc.h` in capitals: `MLX5_GET(qpc, p,
//! mtu)` in C is `qpc::MTU.get(p)`. A structure inside another is a block:
//! `create_qp_in::QPC.of(input)`.
//!
//! | file | contents |
//! |---|---|
//! | `opcode`, `queue` | commands and their status; the command queue |
//! | `header` | fields that all commands share |
//! | `hca`, `caps`, `register`, `iseg`, `vport`, `nic` | the device, its capabilities, its port |
//! | `simple`, `eq`, `cq`, `qp`, `dct`, `mkey`, `memic`, `rq`, `mcast` | objects of the verbs |
//! | `sq`, `steering`, `flow` | raw packet queues, steering |
//! | `general`, `umem` | general objects, registered memory |

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
