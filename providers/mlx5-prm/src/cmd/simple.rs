//! Objects without state except their number.

use super::ifc;

ifc! {
    /// Answer to ALLOC_UAR (`mlx5_ifc_alloc_uar_out_bits`).
    pub mod alloc_uar_out[16] {
        UAR: 0x48 + 24;
    }
}

ifc! {
    /// DEALLOC_UAR (`mlx5_ifc_dealloc_uar_in_bits`).
    pub mod dealloc_uar_in[16] {
        UAR: 0x48 + 24;
    }
}

ifc! {
    /// Answer to ALLOC_PD (`mlx5_ifc_alloc_pd_out_bits`).
    pub mod alloc_pd_out[16] {
        PD: 0x48 + 24;
    }
}

ifc! {
    /// DEALLOC_PD (`mlx5_ifc_dealloc_pd_in_bits`).
    pub mod dealloc_pd_in[16] {
        PD: 0x48 + 24;
    }
}

ifc! {
    /// Answer to ALLOC_XRCD (`mlx5_ifc_alloc_xrcd_out_bits`).
    pub mod alloc_xrcd_out[16] {
        XRCD: 0x48 + 24;
    }
}

ifc! {
    /// DEALLOC_XRCD (`mlx5_ifc_dealloc_xrcd_in_bits`).
    pub mod dealloc_xrcd_in[16] {
        XRCD: 0x48 + 24;
    }
}

ifc! {
    /// Answer to ALLOC_TRANSPORT_DOMAIN (`mlx5_ifc_alloc_transport_domain_out_bits`).
    pub mod alloc_transport_domain_out[16] {
        TRANSPORT_DOMAIN: 0x48 + 24;
    }
}

ifc! {
    /// DEALLOC_TRANSPORT_DOMAIN (`mlx5_ifc_dealloc_transport_domain_in_bits`).
    pub mod dealloc_transport_domain_in[16] {
        TRANSPORT_DOMAIN: 0x48 + 24;
    }
}

ifc! {
    /// CREATE_UCTX: a user of the command interface (`mlx5_ifc_create_uctx_in_bits`).
    pub mod create_uctx_in[64] {
        UCTX: bytes 16 + 48;
    }
}

ifc! {
    /// Answer to CREATE_UCTX (`mlx5_ifc_create_uctx_out_bits`).
    pub mod create_uctx_out[16] {
        UID: 0x50 + 16;
    }
}

ifc! {
    /// DESTROY_UCTX (`mlx5_ifc_destroy_uctx_in_bits`).
    pub mod destroy_uctx_in[16] {
        UID: 0x50 + 16;
    }
}

ifc! {
    /// Answer to ALLOC_Q_COUNTER (`mlx5_ifc_alloc_q_counter_out_bits`).
    pub mod alloc_q_counter_out[16] {
        COUNTER_SET_ID: 0x58 + 8;
    }
}

ifc! {
    /// DEALLOC_Q_COUNTER (`mlx5_ifc_dealloc_q_counter_in_bits`).
    pub mod dealloc_q_counter_in[16] {
        COUNTER_SET_ID: 0x58 + 8;
    }
}
