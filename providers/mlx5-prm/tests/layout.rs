//! Every structure and number against the C headers (`fixtures/*.tsv`, made by
//! `xtask/layouts/mlx5_prm.py` from rdma-core's mlx5dv.h, wqe.h and cq.c).
//!
//! Nothing may be missing on either side: a Rust field that is not listed here does not compile, a C
//! field, structure or number that is not listed here fails, and what is left out has its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{offset_of, size_of_val};
use uverbs_mlx5_prm::{
    address::*, cqe::*, ctrl::*, data::*, doorbell::*, eth::*, offload::*, opcode::*, remote::*,
    syndrome::*, tag::*, umr::*,
};

type Row = (String, String, usize, usize);

/// Rows of one structure. `views` are C fields that share the bytes of others and have a method or a
/// structure of their own; `pad` are Rust fields that spell out C's padding.
macro_rules! rows {
    ($rows:ident: $($name:ident {
        $($field:ident)*
        $(; views $($view:literal @ $offset:literal + $size:literal)*)?
        $(; pad $($pad:ident)*)?
    })*) => { $({
        let value = $name::default();
        let $name { $($field: _,)* $($($pad: _,)*)? } = value;
        let mut row = |field: &str, offset, size| {
            $rows.insert((stringify!($name).to_owned(), field.to_owned(), offset, size));
        };
        row("-", 0, size_of_val(&value));
        $( row(stringify!($field), offset_of!($name, $field), size_of_val(&value.$field)); )*
        $($( row($view, $offset, $size); )*)?
    })* };
}

/// C structures without a Rust one.
const NOT_MODELLED: &[(&str, &str)] = &[
    (
        "mlx5_bsf",
        "byte stream formats are carried as opaque bytes",
    ),
    (
        "mlx5_bsf_basic",
        "byte stream formats are carried as opaque bytes",
    ),
    (
        "mlx5_bsf_ext",
        "byte stream formats are carried as opaque bytes",
    ),
    (
        "mlx5_bsf_inl",
        "byte stream formats are carried as opaque bytes",
    ),
    (
        "mlx5_crypto_bsf",
        "byte stream formats are carried as opaque bytes",
    ),
    ("mlx5_eqe_comp", "event queues belong to the kernel"),
    ("mlx5_eqe_qp_srq", "event queues belong to the kernel"),
    ("mlx5_seg_check_psv", "no opcode uses it"),
    ("mlx5_seg_get_psv", "no opcode uses it"),
    (
        "mlx5_seg_set_psv",
        "no opcode uses it; mlx5_wqe_set_psv_seg is the one in use",
    ),
    ("mlx5_sg_copy_ptr", "a variable of the C driver"),
];

/// C numbers without a Rust one, by prefix.
const NUMBERS_NOT_MODELLED: &[(&str, &str)] = &[
    (
        "MLX5_BFS_",
        "byte stream formats are carried as opaque bytes",
    ),
    (
        "MLX5_BSF_",
        "byte stream formats are carried as opaque bytes",
    ),
    (
        "MLX5_T10DIF_",
        "byte stream formats are carried as opaque bytes",
    ),
    ("MLX5_MMAP_", "a kernel interface, not the device's"),
];

fn fixture(text: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    text.lines().skip(1).map(|line| line.split('\t').collect())
}

#[test]
fn structures_are_those_of_the_c_headers() {
    let mut rust = BTreeSet::<Row>::new();
    rows! { rust:
        mlx5_wqe_ctrl_seg { opmod_idx_opcode qpn_ds signature dci_stream_channel_id fm_ce_se imm }
        mlx5_wqe_av {
            key dqp_dct stat_rate_sl fl_mlid rlid reserved0 rmac tclass hop_limit grh_gid_fl rgid;
            views "key.qkey" @ 0 + 8 "key.qkey.qkey" @ 0 + 4 "key.qkey.reserved" @ 4 + 4
                "key.dc_key" @ 0 + 8
        }
        mlx5_wqe_datagram_seg { av }
        mlx5_wqe_xrc_seg { xrc_srqn rsvd }
        mlx5_wqe_raddr_seg { raddr rkey reserved }
        mlx5_wqe_atomic_seg { swap_add compare }
        mlx5_wqe_masked_atomic_seg { swap_add compare swap_add_mask compare_mask }
        mlx5_wqe_data_seg { byte_count lkey addr }
        mlx5_wqe_inline_seg { byte_count }
        mlx5_wqe_srq_next_seg { rsvd0 next_wqe_index signature rsvd1 }
        mlx5_mprq_wqe { nseg dseg }
        mlx5_rwqe_sig { rsvd0 signature rsvd1 }
        mlx5_wqe_eth_seg {
            rsvd0 cs_flags rsvd1 mss rsvd2 inline_hdr_sz inline_hdr_start inline_hdr
        }
        mlx5_wqe_eth_pad { rsvd0 }
        mlx5_wqe_umr_ctrl_seg {
            flags rsvd0 klm_octowords translation_offset mkey_mask rsvd1;
            views "bsf_octowords" @ 6 + 2
        }
        mlx5_wqe_mkey_context_seg {
            free reserved1 access_flags sf qpn_mkey reserved2 flags_pd start_addr len
            bsf_octword_size reserved3 translations_octword_size reserved4 log_page_size reserved;
            views "inseg" @ 64 + 0
        }
        mlx5_wqe_umr_klm_seg { byte_count mkey address }
        mlx5_wqe_umr_repeat_block_seg {
            byte_count op repeat_count reserved num_ent;
            views "entries" @ 16 + 0
        }
        mlx5_wqe_umr_repeat_ent_seg { stride byte_count memkey va }
        mlx5_wqe_tm_seg { opcode flags index rsvd0 sw_cnt rsvd1 append_tag append_mask }
        ibv_tmh { opcode reserved app_ctx tag }
        mlx5_wqe_set_psv_seg { psv_index syndrome reserved transient_signature }
        mlx5_mmo_metadata_seg { mmo_control_31_0 local_key local_address }
        mlx5_mmo_wqe { ctrl mmo_meta src dest }
        mlx5_wqe_flow_update_ctrl_seg { flow_idx_update dest_handle reserved0 }
        mlx5_wqe_header_modify_argument_update_seg { argument_list }
        mlx5_cqe64 {
            rsvd0 wqe_id rsvd4 ml_path rsvd20 slid flags_rqpn hds_ip_ext l4_hdr_type_etc vlan_info
            srqn_uidx imm_inval_pkey app app_op app_info byte_cnt timestamp sop_drop_qpn
            wqe_counter signature op_own;
            views "tm_cqe" @ 0 + 20 "tmh" @ 0 + 16
        }
        mlx5_tm_cqe { success hw_phase_cnt rsvd0; pad pad_tail }
        mlx5_err_cqe {
            rsvd0 srqn rsvd1 vendor_err_synd syndrome s_wqe_opcode_qpn wqe_counter signature op_own
        }
        mlx5_sigerr_cqe {
            rsvd0 expected_trans_sig actual_trans_sig expected_ref_tag actual_ref_tag syndrome
            sig_type domain mkey sig_err_offset rsvd30 signature op_own
        }
    }
    // Two names of one structure.
    for (alias, name) in [
        ("mlx5_wqe_inl_data_seg", "mlx5_wqe_inline_seg"),
        ("mlx5_wqe_signature_seg", "mlx5_rwqe_sig"),
    ] {
        let rows: Vec<Row> = rust.iter().filter(|row| row.0 == name).cloned().collect();
        rust.extend(
            rows.into_iter()
                .map(|row| (alias.to_owned(), row.1, row.2, row.3)),
        );
    }

    let c: BTreeSet<Row> = fixture(include_str!("fixtures/layout.tsv"))
        .map(|row| {
            (
                row[0].into(),
                row[1].into(),
                row[2].parse().unwrap(),
                row[3].parse().unwrap(),
            )
        })
        .collect();
    for (name, _) in NOT_MODELLED {
        assert!(
            c.iter().any(|row| row.0 == *name),
            "{name}: left out, but C has it no more"
        );
    }
    let modelled: BTreeSet<Row> = c
        .into_iter()
        .filter(|row| !NOT_MODELLED.iter().any(|(name, _)| *name == row.0))
        .collect();
    assert!(modelled.len() > 150, "fixture is cut");
    let only_c: Vec<_> = modelled.difference(&rust).collect();
    let only_rust: Vec<_> = rust.difference(&modelled).collect();
    assert!(
        only_c.is_empty() && only_rust.is_empty(),
        "C: {only_c:#?}\nRust: {only_rust:#?}"
    );
}

#[test]
fn the_two_halves_of_an_address_vector_are_the_whole() {
    macro_rules! same {
        ($half:ident + $base:literal: $($field:ident)*) => {
            $( assert_eq!(
                offset_of!($half, $field) + $base,
                offset_of!(mlx5_wqe_av, $field),
                stringify!($field),
            ); )*
        };
    }
    same!(mlx5_base_av + 0: key dqp_dct stat_rate_sl fl_mlid rlid);
    same!(mlx5_grh_av + 16: reserved0 rmac tclass hop_limit grh_gid_fl rgid);
    assert_eq!(
        size_of::<mlx5_base_av>() + size_of::<mlx5_grh_av>(),
        size_of::<mlx5_wqe_av>()
    );
}

#[test]
fn the_short_ethernet_segment_starts_the_long_one() {
    macro_rules! same {
        ($($field:ident)*) => {
            $( assert_eq!(
                offset_of!(mlx5_wqe_eth_seg_min, $field),
                offset_of!(mlx5_wqe_eth_seg, $field),
            ); )*
        };
    }
    same!(rsvd0 cs_flags rsvd1 mss rsvd2 inline_hdr_sz inline_hdr_start);
    assert_eq!(
        offset_of!(mlx5_wqe_eth_seg, inline_hdr),
        size_of::<mlx5_wqe_eth_seg_min>()
    );
}

#[test]
fn numbers_are_those_of_the_c_headers() {
    let mut rust = BTreeMap::<String, u64>::new();
    macro_rules! plain {
        ($($name:ident)*) => { $( rust.insert(stringify!($name).to_owned(), $name as u64); )* };
    }
    plain! {
        MLX5_CQE_L2_OK MLX5_CQE_L3_HDR_TYPE_IPV4 MLX5_CQE_L3_HDR_TYPE_IPV6
        MLX5_CQE_L3_HDR_TYPE_NONE MLX5_CQE_L3_OK MLX5_CQE_L4_OK MLX5_CQE_OWNER_MASK
        MLX5_CQE_VENDOR_SYNDROME_ODP_PFAULT MLX5_CQ_DB_REQ_NOT MLX5_CQ_DB_REQ_NOT_SOL
        MLX5_CQ_DOORBELL MLX5_ETH_L2_INLINE_HEADER_SIZE MLX5_ETH_L2_MIN_HEADER_SIZE
        MLX5_ETH_WQE_L3_CSUM MLX5_ETH_WQE_L4_CSUM MLX5_EXTENDED_UD_AV MLX5_INLINE_SCATTER_32
        MLX5_INLINE_SCATTER_64 MLX5_INLINE_SEG MLX5_INVALID_LKEY MLX5_IPOIB_INLINE_MIN_HEADER_SIZE
        MLX5_OPC_MOD_MMO_DMA MLX5_RCV_DBR MLX5_SEND_WQE_BB MLX5_SEND_WQE_SHIFT MLX5_SND_DBR
        MLX5_SOURCE_QPN_INLINE_MAX_HEADER_SIZE MLX5_TMC_SUCCESS MLX5_WQE_CTRL_CQ_UPDATE
        MLX5_WQE_CTRL_FENCE MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE MLX5_WQE_CTRL_SOLICITED
        MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_ATOMIC MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_READ
        MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_LOCAL_WRITE
        MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_READ
        MLX5_WQE_MKEY_CONTEXT_ACCESS_FLAGS_REMOTE_WRITE MLX5_WQE_MKEY_CONTEXT_FLAGS_BSF_ENABLE
        MLX5_WQE_MKEY_CONTEXT_FREE MLX5_WQE_MKEY_CONTEXT_SIG_ERR_CNT_MASK
        MLX5_WQE_MKEY_CONTEXT_SIG_ERR_CNT_SHIFT MLX5_WQE_UMR_CTRL_FLAG_CHECK_FREE
        MLX5_WQE_UMR_CTRL_FLAG_CHECK_QPN MLX5_WQE_UMR_CTRL_FLAG_INLINE
        MLX5_WQE_UMR_CTRL_FLAG_TRNSLATION_OFFSET MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_ATOMIC
        MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_LOCAL_WRITE
        MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_READ
        MLX5_WQE_UMR_CTRL_MKEY_MASK_ACCESS_REMOTE_WRITE MLX5_WQE_UMR_CTRL_MKEY_MASK_BSF_ENABLE
        MLX5_WQE_UMR_CTRL_MKEY_MASK_FREE MLX5_WQE_UMR_CTRL_MKEY_MASK_LEN
        MLX5_WQE_UMR_CTRL_MKEY_MASK_MKEY MLX5_WQE_UMR_CTRL_MKEY_MASK_QPN
        MLX5_WQE_UMR_CTRL_MKEY_MASK_SIG_ERR MLX5_WQE_UMR_CTRL_MKEY_MASK_START_ADDR
    }
    let mut named = |prefix: &str, name: Option<&str>, number: u8| {
        rust.insert(format!("{prefix}{}", name.unwrap()), number.into());
    };
    Opcode::ALL
        .iter()
        .for_each(|x| named("MLX5_OPCODE_", x.name(), x.0));
    CqeOpcode::ALL
        .iter()
        .for_each(|x| named("MLX5_CQE_", x.name(), x.0));
    Syndrome::ALL
        .iter()
        .for_each(|x| named("MLX5_CQE_SYNDROME_", x.name(), x.0));

    let left_out = |name: &str| {
        NUMBERS_NOT_MODELLED
            .iter()
            .any(|(x, _)| name.starts_with(x))
    };
    let c: BTreeMap<String, u64> = fixture(include_str!("fixtures/constants.tsv"))
        .filter(|row| !left_out(row[0]))
        .map(|row| {
            (
                row[0].into(),
                u64::from_str_radix(row[1].trim_start_matches("0x"), 16).unwrap(),
            )
        })
        .collect();
    assert!(c.len() > 90, "fixture is cut");
    let only_c: Vec<_> = c
        .iter()
        .filter(|(name, x)| rust.get(*name) != Some(x))
        .collect();
    let only_rust: Vec<_> = rust
        .iter()
        .filter(|(name, x)| c.get(*name) != Some(x))
        .collect();
    assert!(
        only_c.is_empty() && only_rust.is_empty(),
        "C: {only_c:#x?}\nRust: {only_rust:#x?}"
    );
}
