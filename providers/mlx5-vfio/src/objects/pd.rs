//! Protection domains.

use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::simple::{alloc_pd_out, dealloc_pd_in};

use super::{SHORT, destroy};
use crate::error::Error;
use crate::function::Function;

/// A protection domain.
#[derive(Debug)]
pub struct ProtectionDomain<'f> {
    pub(super) function: &'f Function,
    number: u32,
}

impl Function {
    /// Allocates a protection domain.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`], or the device's failure.
    pub fn alloc_pd(&self) -> Result<ProtectionDomain<'_>, Error> {
        let output = self.command(CmdOpcode::ALLOC_PD, 0, &[0; SHORT], alloc_pd_out::SIZE)?;
        Ok(ProtectionDomain { function: self, number: alloc_pd_out::PD.get32(&output) })
    }
}

impl ProtectionDomain<'_> {
    /// Number in commands.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for ProtectionDomain<'_> {
    fn drop(&mut self) {
        let id = (dealloc_pd_in::PD, self.number);
        destroy(self.function, CmdOpcode::DEALLOC_PD, id, None);
    }
}
