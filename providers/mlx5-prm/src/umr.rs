//! Segments of user-mode memory registration: changes of an mkey, and its new translation.

use crate::bits::{bits, layout};
use zerocopy::byteorder::big_endian::{U16, U32, U64};

/// `flags` value: the translation follows in the WQE.
pub const MLX5_WQE_UMR_CTRL_FLAG_INLINE: u8 = 1 << 7;
/// `flags` value: fail if the mkey is free (Linux include/linux/mlx5/device.h,
/// `MLX5_UMR_CHECK_FREE`).
pub const MLX5_WQE_UMR_CTRL_FLAG_CHECK_NOT_FREE: u8 = 1 << 6;
/// `flags` value: fail if the mkey is not free.
pub const MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE: u8 = 1 << 5;
/// `flags` value: `translation_offset` is valid.
pub const MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET: u8 = 1 << 4;
/// `flags` value: fail if the mkey belongs to another queue.
pub const MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN: u8 = 1 << 3;

/// `mkey_mask` bit: length.
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN: u64 = 1 << 0;
/// `mkey_mask` bit: log2 of the page size (this and the next bits as in Linux
/// include/linux/mlx5/device.h, `MLX5_MKEY_MASK_*`).
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_PAGE_SIZE: u64 = 1 << 1;
/// `mkey_mask` bit: protection domain.
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_PD: u64 = 1 << 7;
/// `mkey_mask` bit: start address.
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR: u64 = 1 << 6;
/// `mkey_mask` bit: right of a peer to invalidate the key (Linux, `MLX5_MKEY_MASK_EN_RINVAL`).
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_EN_RINVAL: u64 = 1 << 8;
/// `mkey_mask` bit: signature error counter.
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR: u64 = 1 << 9;
/// `mkey_mask` bit: byte stream format enabled.
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE: u64 = 1 << 12;
/// `mkey_mask` bit: low byte of the mkey.
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY: u64 = 1 << 13;
/// `mkey_mask` bit: owning queue.
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN: u64 = 1 << 14;
/// `mkey_mask` bit: local write.
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE: u64 = 1 << 18;
/// `mkey_mask` bit: remote read.
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ: u64 = 1 << 19;
/// `mkey_mask` bit: remote write.
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE: u64 = 1 << 20;
/// `mkey_mask` bit: remote atomic.
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC: u64 = 1 << 21;
/// `mkey_mask` bit: free state.
pub const MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE: u64 = 1 << 29;

/// `free` value: the mkey is free.
pub const MLX5_WQE_MKEY_CONTEXT_FREE: u8 = 1 << 6;
/// `access_flags` value: remote atomic.
pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC: u8 = 1 << 6;
/// `access_flags` value: remote write.
pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE: u8 = 1 << 5;
/// `access_flags` value: remote read.
pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ: u8 = 1 << 4;
/// `access_flags` value: local write.
pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE: u8 = 1 << 3;
/// `access_flags` value: local read.
pub const MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ: u8 = 1 << 2;
/// `flags_pd` bit: the mkey has a byte stream format.
pub const MLX5_WQE_MKEY_CONTEXT_FLAGS_BSF_ENABLE: u32 = 1 << 30;
/// Mask of the signature error counter in `flags_pd`, before shifting.
pub const MLX5_WQE_MKEY_CONTEXT_SIG_ERR_CNT_MASK: u32 = 1;
/// Shift of the signature error counter in `flags_pd`.
pub const MLX5_WQE_MKEY_CONTEXT_SIG_ERR_CNT_SHIFT: u32 = 26;

/// `op` of a repeat block (rdma-core qp.c, `umr_strided_seg_create`).
pub const UMR_REPEAT_OP: u32 = 0x400;

bits! {
    /// Checks of the registration, and position of the translation.
    pub struct UmrFlags(u8) {
        /// The translation follows in the WQE.
        7 inline with_inline;
        /// Fail if the mkey is free.
        6 check_not_free with_check_not_free;
        /// Fail if the mkey is not free.
        5 check_free with_check_free;
        /// `translation_offset` is valid.
        4 translation_offset with_translation_offset;
        /// Fail if the mkey belongs to another queue.
        3 check_qpn with_check_qpn;
    }
}

bits! {
    /// Access rights of an mkey.
    pub struct AccessFlags(u8) {
        /// Remote atomic.
        6 atomic with_atomic;
        /// Remote write.
        5 remote_write with_remote_write;
        /// Remote read.
        4 remote_read with_remote_read;
        /// Local write.
        3 local_write with_local_write;
        /// Local read.
        2 local_read with_local_read;
    }
}

bits! {
    /// Owner of an mkey, and the variant byte that its user chooses.
    pub struct QpnMkey(u32) {
        /// Queue that the mkey is bound to; all ones mean any queue.
        31:8 qpn with_qpn: u32;
        /// Low byte of the mkey.
        7:0 mkey with_mkey: u8;
    }
}

bits! {
    /// Flags and protection domain of an mkey.
    pub struct FlagsPd(u32) {
        /// Highest bit of the length, which has 65 bits (`mlx5_ifc_mkc_bits`).
        31 length64 with_length64;
        /// The mkey has a byte stream format.
        30 bsf_enable with_bsf_enable;
        /// Signature error counter.
        26 sig_err_cnt with_sig_err_cnt;
        /// A peer may invalidate the key (`mlx5_ifc_mkc_bits`).
        24 en_rinval with_en_rinval;
        /// Protection domain.
        23:0 pd with_pd: u32;
    }
}

layout! {
    /// UMR control segment (mlx5dv.h; PRM "UMR Control Segment").
    pub struct mlx5_wqe_umr_ctrl_seg[48] {
        /// Checks, inline translation.
        pub flags: u8 as UmrFlags,
        /// Zero.
        pub rsvd0: [u8; 3],
        /// Length of the translation in octowords of 16 bytes, a multiple of 4.
        pub klm_octowords: U16,
        /// First octoword of the translation. `bsf_octowords` is another use of these bytes.
        pub translation_offset: U16,
        /// Fields of the mkey to change, `MLX5_WQE_UMR_CTRL_MKEY_MASK_*`.
        pub mkey_mask: U64,
        /// Zero.
        pub rsvd1: [u8; 32],
    }
}

impl mlx5_wqe_umr_ctrl_seg {
    /// Length of the byte stream format in octowords, in the bytes of `translation_offset`.
    #[inline]
    #[must_use]
    pub const fn bsf_octowords(&self) -> U16 {
        self.translation_offset
    }

    /// First octoword of the translation, all 48 bits: the upper bits are the first word of `rsvd1`
    /// (Linux include/linux/mlx5/qp.h, `mlx5_wqe_umr_ctrl_seg`: `xlt_offset_47_16`).
    #[inline]
    #[must_use]
    pub const fn translation_offset_48(&self) -> u64 {
        let [a, b, c, d, ..] = self.rsvd1;
        (u32::from_be_bytes([a, b, c, d]) as u64) << 16 | self.translation_offset.get() as u64
    }
}

layout! {
    /// New attributes of the mkey (mlx5dv.h; PRM "Memory Key Context Segment"). The translation
    /// follows.
    pub struct mlx5_wqe_mkey_context_seg[64] {
        /// Bit 6: the mkey is free.
        pub free: u8,
        /// Zero.
        pub reserved1: u8,
        /// Access rights.
        pub access_flags: u8 as AccessFlags,
        /// Scalable function.
        pub sf: u8,
        /// Owner, key byte.
        pub qpn_mkey: U32 as QpnMkey,
        /// Zero.
        pub reserved2: U32,
        /// Flags, protection domain.
        pub flags_pd: U32 as FlagsPd,
        /// First address.
        pub start_addr: U64,
        /// Length in bytes.
        pub len: U64,
        /// Length of the byte stream format, in octowords.
        pub bsf_octword_size: U32,
        /// Zero.
        pub reserved3: [U32; 4],
        /// Length of the translation, in octowords.
        pub translations_octword_size: U32,
        /// Zero.
        pub reserved4: [u8; 3],
        /// log2 of the page size.
        pub log_page_size: u8,
        /// Zero.
        pub reserved: U32,
    }
}

layout! {
    /// Translation entry (mlx5dv.h): a range of another mkey.
    pub struct mlx5_wqe_umr_klm_seg[16] {
        /// Length, up to 2 GiB.
        pub byte_count: U32,
        /// Key.
        pub mkey: U32,
        /// Address under that key.
        pub address: U64,
    }
}

layout! {
    /// Head of an interleaved translation (mlx5dv.h); `num_ent` entries follow.
    pub struct mlx5_wqe_umr_repeat_block_seg[16] {
        /// Bytes of one round over all entries.
        pub byte_count: U32,
        /// [`UMR_REPEAT_OP`].
        pub op: U32,
        /// Number of rounds.
        pub repeat_count: U32,
        /// Zero.
        pub reserved: U16,
        /// Number of entries.
        pub num_ent: U16,
    }
}

layout! {
    /// Entry of an interleaved translation (mlx5dv.h).
    pub struct mlx5_wqe_umr_repeat_ent_seg[16] {
        /// Distance of the addresses from round to round, in bytes.
        pub stride: U16,
        /// Bytes of each round.
        pub byte_count: U16,
        /// Key.
        pub memkey: U32,
        /// First address.
        pub va: U64,
    }
}
