//! A command's input and output, and the reasons to refuse a command.

pub(crate) use uverbs_front::backend::command::Refusal;

/// One command.
#[derive(Debug)]
pub(crate) struct Call<'a> {
    pub(crate) input: &'a [u8],
    /// Zeroed before the command runs.
    pub(crate) output: &'a mut [u8],
    pub(crate) op_mod: u16,
}
