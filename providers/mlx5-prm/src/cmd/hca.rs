//! The device as a whole: life cycle, pages, identity.

use super::ifc;

ifc! {
    /// QUERY_PAGES: number of pages that the device requests (`mlx5_ifc_query_pages_in_bits`).
    pub mod query_pages_in[16] {
        FUNCTION_ID: 0x50 + 16;
    }
}

ifc! {
    /// Answer to QUERY_PAGES (`mlx5_ifc_query_pages_out_bits`).
    pub mod query_pages_out[16] {
        FUNCTION_ID: 0x50 + 16;
        NUM_PAGES: 0x60 + 32;
    }
}

ifc! {
    /// MANAGE_PAGES: the driver gives pages, or reclaims them (`mlx5_ifc_manage_pages_in_bits`).
    pub mod manage_pages_in[16] {
        FUNCTION_ID: 0x50 + 16;
        INPUT_NUM_ENTRIES: 0x60 + 32;
        PAS: bytes 16 + 0;
    }
}

ifc! {
    /// Answer to MANAGE_PAGES: the returned pages (`mlx5_ifc_manage_pages_out_bits`).
    pub mod manage_pages_out[16] {
        OUTPUT_NUM_ENTRIES: 0x40 + 32;
        PAS: bytes 16 + 0;
    }
}

ifc! {
    /// Answer to QUERY_ISSI: versions of the interface between software and firmware
    /// (`mlx5_ifc_query_issi_out_bits`).
    pub mod query_issi_out[112] {
        CURRENT_ISSI: 0x50 + 16;
        SUPPORTED_ISSI_DW0: 0x360 + 32;
    }
}

ifc! {
    /// SET_ISSI (`mlx5_ifc_set_issi_in_bits`).
    pub mod set_issi_in[16] {
        CURRENT_ISSI: 0x50 + 16;
    }
}

ifc! {
    /// Answer to QUERY_ADAPTER (`mlx5_ifc_query_adapter_out_bits`).
    pub mod query_adapter_out[272] {
        QUERY_ADAPTER_STRUCT: bytes 16 + 256;
    }
}

ifc! {
    /// Identity of the board (`mlx5_ifc_query_adapter_param_block_bits`).
    pub mod query_adapter_param_block[256] {
        IEEE_VENDOR_ID: 0xc8 + 24;
        VSD_VENDOR_ID: 0xf0 + 16;
        VSD_CONTD_PSID: bytes 240 + 16;
    }
}

ifc! {
    /// TEARDOWN_HCA (`mlx5_ifc_teardown_hca_in_bits`).
    pub mod teardown_hca_in[16] {
        PROFILE: 0x50 + 16;
    }
}

/// `profile` of TEARDOWN_HCA: ends all objects (`MLX5_TEARDOWN_HCA_IN_PROFILE_GRACEFUL_CLOSE`).
pub const GRACEFUL_CLOSE: u64 = 0;
/// Ends all access to the host at once (`MLX5_TEARDOWN_HCA_IN_PROFILE_FORCE_CLOSE`).
pub const FORCE_CLOSE: u64 = 1;
/// Prepares the end by the state of the interface
/// (`MLX5_TEARDOWN_HCA_IN_PROFILE_PREPARE_FAST_TEARDOWN`).
pub const PREPARE_FAST_TEARDOWN: u64 = 2;

ifc! {
    /// Answer to TEARDOWN_HCA: `state` is 0 if it succeeded (`mlx5_ifc_teardown_hca_out_bits`).
    pub mod teardown_hca_out[16] {
        STATE: 0x7f + 1;
    }
}

ifc! {
    /// Answer to QUERY_HCA_CAP (`mlx5_ifc_query_hca_cap_out_bits`).
    pub mod query_hca_cap_out[4112] {
        CAPABILITY: bytes 16 + 4096;
    }
}

ifc! {
    /// SET_HCA_CAP (`mlx5_ifc_set_hca_cap_in_bits`).
    pub mod set_hca_cap_in[4112] {
        CAPABILITY: bytes 16 + 4096;
    }
}

ifc! {
    /// ACCESS_REG: reads or writes a register by number (`mlx5_ifc_access_register_in_bits`).
    pub mod access_register_in[16] {
        REGISTER_ID: 0x50 + 16;
        ARGUMENT: 0x60 + 32;
        REGISTER_DATA: bytes 16 + 0;
    }
}

ifc! {
    /// Answer to ACCESS_REG (`mlx5_ifc_access_register_out_bits`).
    pub mod access_register_out[16] {
        REGISTER_DATA: bytes 16 + 0;
    }
}

ifc! {
    /// SET_DRIVER_VERSION (`mlx5_ifc_set_driver_version_in_bits`).
    pub mod set_driver_version_in[80] {
        DRIVER_VERSION: bytes 16 + 64;
    }
}

ifc! {
    /// Answer to QUERY_SPECIAL_CONTEXTS (`mlx5_ifc_query_special_contexts_out_bits`).
    pub mod query_special_contexts_out[32] {
        DUMP_FILL_MKEY: 0x40 + 32;
        RESD_LKEY: 0x60 + 32;
        NULL_MKEY: 0x80 + 32;
    }
}
