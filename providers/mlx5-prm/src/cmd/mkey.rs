//! Memory keys: contexts and commands.

use super::ifc;

ifc! {
    /// Memory key context (`mlx5_ifc_mkc_bits`).
    pub mod mkc[64] {
        FREE: 0x1 + 1;
        ACCESS_MODE_4_2: 0x3 + 3;
        UMR_EN: 0x10 + 1;
        A: 0x11 + 1;
        RW: 0x12 + 1;
        RR: 0x13 + 1;
        LW: 0x14 + 1;
        LR: 0x15 + 1;
        ACCESS_MODE_1_0: 0x16 + 2;
        QPN: 0x20 + 24;
        MKEY_7_0: 0x38 + 8;
        LENGTH64: 0x60 + 1;
        BSF_EN: 0x61 + 1;
        EN_RINVAL: 0x67 + 1;
        PD: 0x68 + 24;
        START_ADDR: 0x80 + 64;
        LEN: 0xc0 + 64;
        BSF_OCTWORD_SIZE: 0x100 + 32;
        TRANSLATIONS_OCTWORD_SIZE: 0x1a0 + 32;
        LOG_PAGE_SIZE: 0x1da + 6;
    }
}

ifc! {
    /// CREATE_MKEY (`mlx5_ifc_create_mkey_in_bits`).
    pub mod create_mkey_in[272] {
        PG_ACCESS: 0x60 + 1;
        MKEY_UMEM_VALID: 0x61 + 1;
        MEMORY_KEY_MKEY_ENTRY: bytes 16 + 64;
        TRANSLATIONS_OCTWORD_ACTUAL_SIZE: 0x300 + 32;
        KLM_PAS_MTT: bytes 272 + 0;
    }
}

ifc! {
    /// Answer to CREATE_MKEY (`mlx5_ifc_create_mkey_out_bits`).
    pub mod create_mkey_out[16] {
        MKEY_INDEX: 0x48 + 24;
    }
}

ifc! {
    /// DESTROY_MKEY (`mlx5_ifc_destroy_mkey_in_bits`).
    pub mod destroy_mkey_in[16] {
        MKEY_INDEX: 0x48 + 24;
    }
}

ifc! {
    /// QUERY_MKEY (`mlx5_ifc_query_mkey_in_bits`).
    pub mod query_mkey_in[16] {
        MKEY_INDEX: 0x48 + 24;
    }
}

ifc! {
    /// Answer to QUERY_MKEY (`mlx5_ifc_query_mkey_out_bits`).
    pub mod query_mkey_out[304] {
        MEMORY_KEY_MKEY_ENTRY: bytes 16 + 64;
        BSF0_KLM0_PAS_MTT0_1: bytes 272 + 16;
        BSF1_KLM1_PAS_MTT2_3: bytes 288 + 16;
    }
}

ifc! {
    /// PAGE_FAULT_RESUME (`mlx5_ifc_page_fault_resume_in_bits`).
    pub mod page_fault_resume_in[16] {
        PAGE_FAULT_INFO: bytes 8 + 8;
    }
}

ifc! {
    /// Page fault of a queue to resume, and its result (`mlx5_ifc_trans_page_fault_info_bits`).
    pub mod trans_page_fault_info[8] {
        ERROR: 0x0 + 1;
        PAGE_FAULT_TYPE: 0x5 + 3;
        WQ_NUMBER: 0x8 + 24;
        FAULT_TOKEN: 0x28 + 24;
    }
}
