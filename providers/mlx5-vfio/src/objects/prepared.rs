//! Firmware commands that are ready to run.

use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use crate::command::SHORT;
use crate::error::Error;
use crate::function::Function;

/// A command with its input.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    pub(crate) opcode: CmdOpcode,
    pub(crate) op_mod: u16,
    pub(crate) input: Vec<u8>,
    /// Bytes of the output.
    pub(crate) outlen: usize,
}

impl Prepared {
    /// A command whose input of `len` bytes has `fields`. Its output is status and syndrome only.
    pub(crate) fn new(opcode: CmdOpcode, len: usize, fields: &[(Field, u64)]) -> Self {
        let mut input = vec![0; len];
        set(&mut input, fields);
        Self { opcode, op_mod: 0, input, outlen: SHORT }
    }

    /// A command that destroys an object by its number.
    pub(crate) fn end(opcode: CmdOpcode, number: Field, value: u32) -> Self {
        Self::new(opcode, SHORT, &[(number, value.into())])
    }

    /// Runs the command, and returns its output.
    pub(crate) fn run(&self, function: &Function) -> Result<Vec<u8>, Error> {
        function.command(self.opcode, self.op_mod, &self.input, self.outlen)
    }
}

/// Sets fields of an input, or of a part of one.
pub(crate) fn set(input: &mut [u8], fields: &[(Field, u64)]) {
    fields.iter().for_each(|(field, value)| field.set(input, *value));
}
