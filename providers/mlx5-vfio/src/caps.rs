//! Capabilities of the device (PRM "HCA Capabilities"; `mlx5_core_get_caps` and `handle_hca_cap`
//! of Linux's `core/main.c`).

use uverbs_core::memory::pages::page_size;
use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap;
use uverbs_mlx5_prm::cmd::caps::per_protocol_networking_offload_caps::WQE_INLINE_MODE;
use uverbs_mlx5_prm::cmd::hca::{query_hca_cap_out, set_hca_cap_in};
use uverbs_mlx5_prm::cmd::memic::device_mem_cap;
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::eth::MLX5_ETH_L2_INLINE_HEADER_SIZE;

use crate::device::Device;
use crate::dma::PAGE;
use crate::error::Error;

/// Kinds of capabilities (`enum mlx5_cap_type`).
const GENERAL: u16 = 0;
const ETHERNET: u16 = 1;
const DEVICE_MEMORY: u16 = 0xf;
/// Lowest bit of `op_mod` (`enum mlx5_cap_mode`).
const MAXIMUM: u16 = 0;
const CURRENT: u16 = 1;
/// Bytes of a QUERY_HCA_CAP input.
const QUERY_BYTES: usize = 16;
/// `wqe_inline_mode` of a device that needs no inline header (`MLX5_CAP_INLINE_MODE_NOT_REQUIRED`).
const NO_INLINE: u64 = 2;

/// General capabilities in force.
#[derive(Clone)]
pub struct Caps(Vec<u8>);

impl std::fmt::Debug for Caps {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let set = cmd_hca_cap::FIELDS.iter().map(|(name, field)| (name, self.get(*field)));
        f.debug_map().entries(set.filter(|(_, value)| *value != 0)).finish()
    }
}

impl Caps {
    /// Value of a field of [`cmd_hca_cap`].
    #[must_use]
    pub fn get(&self, field: Field) -> u64 {
        field.get(&self.0)
    }

    /// Value of a field that is the logarithm of a number; 0 if the number has more than 32 bits.
    #[must_use]
    pub fn power(&self, field: Field) -> u32 {
        1u32.checked_shl(field.get32(&self.0)).unwrap_or(0)
    }

    /// True if the port is Ethernet (`MLX5_CAP_PORT_TYPE_ETH`).
    #[must_use]
    pub fn is_ethernet(&self) -> bool {
        self.get(cmd_hca_cap::PORT_TYPE) == 1
    }

    /// Entries of the GID table (`mlx5_get_gid_table_len`); 0 for an unknown code.
    #[must_use]
    pub fn gid_table_len(&self) -> u16 {
        match self.get(cmd_hca_cap::GID_TABLE_SIZE) {
            code @ 0..=4 => 8 << code,
            _ => 0,
        }
    }

    /// Entries of the P_Key table (`mlx5_to_sw_pkey_sz`); 0 for an unknown code.
    #[must_use]
    pub fn pkey_table_len(&self) -> u16 {
        match self.get(cmd_hca_cap::PKEY_TABLE_SIZE) {
            code @ 0..=5 => 128 << code,
            _ => 0,
        }
    }
}

impl Device {
    fn query_caps(&self, kind: u16, mode: u16) -> Result<Vec<u8>, Error> {
        let (opcode, op_mod) = (CmdOpcode::QUERY_HCA_CAP, kind << 1 | mode);
        let output = self.run(opcode, op_mod, &[0; QUERY_BYTES], query_hca_cap_out::SIZE)?;
        Ok(query_hca_cap_out::CAPABILITY.of(&output).to_vec())
    }

    /// Reads the capabilities in force.
    pub(crate) fn caps(&self) -> Result<Caps, Error> {
        self.query_caps(GENERAL, CURRENT).map(Caps)
    }

    /// Bytes of a raw packet that must be inline in its WQE (`mlx5_query_min_inline`). If the
    /// port's settings decide, it is the Ethernet header.
    pub(crate) fn inline_header(&self, general: &Caps) -> Result<u16, Error> {
        if general.get(cmd_hca_cap::ETH_NET_OFFLOADS) == 0 {
            return Ok(0);
        }
        let caps = self.query_caps(ETHERNET, CURRENT)?;
        Ok(match WQE_INLINE_MODE.get(&caps) {
            NO_INLINE => 0,
            _ => MLX5_ETH_L2_INLINE_HEADER_SIZE as u16,
        })
    }

    /// Reads the capabilities of device memory, if there is some (`mlx5_query_hca_caps`).
    pub(crate) fn memory_caps(&self, general: &Caps) -> Result<Option<Vec<u8>>, Error> {
        if general.get(cmd_hca_cap::DEVICE_MEMORY) == 0 {
            return Ok(None);
        }
        let caps = self.query_caps(DEVICE_MEMORY, CURRENT)?;
        Ok(device_mem_cap::MEMIC.is_set(&caps).then_some(caps))
    }

    /// Sets the general capabilities that this driver needs; all others keep their values.
    pub(crate) fn set_caps(&self) -> Result<(), Error> {
        use cmd_hca_cap::{CMDIF_CHECKSUM, LOG_UAR_PAGE_SZ, UAR_4K};
        let current = self.query_caps(GENERAL, CURRENT)?;
        let most = self.query_caps(GENERAL, MAXIMUM)?;
        let mut input = vec![0; set_hca_cap_in::SIZE];
        let caps = set_hca_cap_in::CAPABILITY.of_mut(&mut input);
        caps.copy_from_slice(&current);
        // The device signs no answers, and checks no signatures.
        CMDIF_CHECKSUM.set(caps, 0);
        if UAR_4K.is_set(&most) {
            UAR_4K.set(caps, 1);
        }
        // UARs of one page of this machine are allocated together.
        LOG_UAR_PAGE_SZ.set(caps, (page_size() / PAGE).max(1).ilog2().into());
        self.run(CmdOpcode::SET_HCA_CAP, GENERAL << 1, &input, 16).map(drop)
    }
}
