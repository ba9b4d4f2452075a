//! Objects by firmware commands, and commands of several parts of the driver. An object borrows the
//! function, and is destroyed with its value.
//!
//! The firmware's answer to the destruction comes before the memory is available for other buffers.
//! A refused destruction keeps the memory.

pub(crate) mod cq;
pub(crate) mod flow;
pub(crate) mod pd;
pub(crate) mod prepared;
pub(crate) mod qp;
pub(crate) mod raw_queues;
pub(crate) mod region;

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use crate::command::SHORT;
use crate::dma::Buffer;
use crate::function::Function;

/// Destroys an object by its number, before its memory is dropped.
pub(crate) fn destroy(
    function: &Function,
    opcode: CmdOpcode,
    id: (Field, u32),
    memory: Option<&Buffer>,
) {
    let mut input = [0; SHORT];
    id.0.set(&mut input, id.1.into());
    if function.command(opcode, 0, &input, SHORT).is_err()
        && let Some(memory) = memory
    {
        memory.bury();
    }
}
