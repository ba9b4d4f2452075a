//! Which receive queue a frame goes to, and how one leaves. No frame arrives, so rules are checked for what they hang on and
//! otherwise only taken (Linux `core/fs_cmd.c`).

use uverbs_mlx5_prm::cmd::steering::{create_flow_group_in, delete_fte_in, set_fte_in};

use super::Firmware;
use super::call::{Call, Refusal};

impl Firmware {
    pub(super) fn create_flow_group(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.flow_table(create_flow_group_in::TABLE_ID.get32(call.input))?;
        self.alloc_flow_group(call)
    }

    pub(super) fn set_flow_entry(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.flow_table(set_fte_in::TABLE_ID.get32(call.input))
    }

    pub(super) fn delete_flow_entry(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        self.flow_table(delete_fte_in::TABLE_ID.get32(call.input))
    }

    fn flow_table(&self, number: u32) -> Result<(), Refusal> {
        match self.simple.has_flow_table(number) {
            true => Ok(()),
            false => Err(Refusal::resource("no such flow table")),
        }
    }
}
