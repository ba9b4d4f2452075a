//! Life cycle of the device (enabled, initialised), and its identity (Linux `core/main.c`,
//! `mlx5_function_enable`).

use uverbs_mlx5_prm::cmd::hca::{
    FORCE_CLOSE, GRACEFUL_CLOSE, PREPARE_FAST_TEARDOWN, query_adapter_out,
    query_adapter_param_block, query_issi_out, set_issi_in, teardown_hca_in,
};

use crate::board::profile::VENDOR_ID;
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};

/// Interface version between software and firmware that mlx5_core requests.
const ISSI: u64 = 1;
/// Supported versions: bit 0 for version 0, bit 1 for version 1.
const SUPPORTED_ISSI: u64 = 0b11;
/// PSID, the board type. No real board has this one.
const PSID: &[u8; 16] = b"UVERBS_SOFTHCA\0\0";

/// Stage to which the driver has brought the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Life {
    /// State after power-on.
    #[default]
    Off,
    /// After ENABLE_HCA.
    Enabled,
    /// After INIT_HCA: objects can be created.
    Initialized,
}

impl Firmware {
    pub(crate) fn enable(&mut self, _: &mut Call<'_>) -> Result<(), Refusal> {
        self.life = self.life.max(Life::Enabled);
        Ok(())
    }

    pub(crate) fn disable(&mut self, _: &mut Call<'_>) -> Result<(), Refusal> {
        self.drop_objects();
        self.life = Life::Off;
        Ok(())
    }

    pub(crate) fn init(&mut self, _: &mut Call<'_>) -> Result<(), Refusal> {
        self.life = Life::Initialized;
        Ok(())
    }

    /// TEARDOWN_HCA: at once, or prepared for the end of the interface (Linux `core/fw.c`,
    /// `mlx5_cmd_fast_teardown_hca`). The answer's state stays 0, success.
    pub(crate) fn teardown(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        match teardown_hca_in::PROFILE.get(call.input) {
            GRACEFUL_CLOSE | FORCE_CLOSE => self.end(),
            PREPARE_FAST_TEARDOWN => self.ends_fast = true,
            _ => return Err(Refusal::param("no such kind of teardown")),
        }
        Ok(())
    }

    /// The driver disabled the interface, which ends a prepared teardown.
    pub(crate) fn interface_ended(&mut self) {
        if self.ends_fast {
            self.end();
        }
    }

    fn end(&mut self) {
        self.drop_objects();
        self.life = Life::Enabled;
    }

    pub(crate) fn query_issi(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        query_issi_out::CURRENT_ISSI.set(call.output, ISSI);
        query_issi_out::SUPPORTED_ISSI_DW0.set(call.output, SUPPORTED_ISSI);
        Ok(())
    }

    pub(crate) fn set_issi(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        match set_issi_in::CURRENT_ISSI.get(call.input) {
            0 | ISSI => Ok(()),
            _ => Err(Refusal::param("no such interface version")),
        }
    }

    pub(crate) fn query_adapter(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let block = query_adapter_out::QUERY_ADAPTER_STRUCT.of_mut(call.output);
        query_adapter_param_block::IEEE_VENDOR_ID.set(block, VENDOR_ID.into());
        query_adapter_param_block::VSD_VENDOR_ID.set(block, VENDOR_ID.into());
        query_adapter_param_block::VSD_CONTD_PSID.of_mut(block).copy_from_slice(PSID);
        Ok(())
    }

    /// Accepts a command without effect: SET_DRIVER_VERSION, NOP and similar.
    pub(crate) fn noted(&mut self, _: &mut Call<'_>) -> Result<(), Refusal> {
        Ok(())
    }
}
