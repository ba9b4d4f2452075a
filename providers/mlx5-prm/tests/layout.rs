//! Every structure and number against the C headers (`fixtures/*.tsv`, made by
//! `xtask/layouts/mlx5_prm.py`: `layout.tsv` and `constants.tsv` from mlx5dv.h, which is installed
//! and which `cargo xtask layouts` reads again; `*_internal.tsv` from rdma-core's sources).
//!
//! Nothing may be missing on either side: a Rust field that is not listed here does not compile, a
//! structure or number of the sources that is not listed here fails, so does a C one, and what is
//! left out has its reason.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem::{offset_of, size_of_val};
use std::path::Path;
use uverbs_mlx5_prm::{
    address::*, context::*, cqe::*, ctrl::*, data::*, doorbell::*, eth::*, offload::*, opcode::*,
    remote::*, syndrome::*, tag::*, umr::*,
};

type Row = (String, String, usize, usize);

/// Rows of one structure. `views` are C fields that share the bytes of others and have a method or
/// a separate structure; `pad` are Rust fields that spell out C's padding.
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
    ("mlx5_bsf", "byte stream formats are carried as opaque bytes"),
    ("mlx5_bsf_basic", "byte stream formats are carried as opaque bytes"),
    ("mlx5_bsf_ext", "byte stream formats are carried as opaque bytes"),
    ("mlx5_bsf_inl", "byte stream formats are carried as opaque bytes"),
    ("mlx5_crypto_bsf", "byte stream formats are carried as opaque bytes"),
    ("mlx5_eqe_comp", "event queues belong to the kernel"),
    ("mlx5_eqe_qp_srq", "event queues belong to the kernel"),
    ("mlx5_seg_check_psv", "no opcode uses it"),
    ("mlx5_seg_get_psv", "no opcode uses it"),
    ("mlx5_seg_set_psv", "no opcode uses it; mlx5_wqe_set_psv_seg is the one in use"),
    ("mlx5_sg_copy_ptr", "a variable of the C driver"),
];

/// C numbers without a Rust one, by prefix.
const NUMBERS_NOT_MODELLED: &[(&str, &str)] = &[
    ("MLX5_BFS_", "byte stream formats are carried as opaque bytes"),
    ("MLX5_BSF_", "byte stream formats are carried as opaque bytes"),
    ("MLX5_T10DIF_", "byte stream formats are carried as opaque bytes"),
    ("MLX5_MMAP_", "a kernel interface, not the device's"),
];

/// Rust structures without a C one.
const NOT_IN_C: &[(&str, &str)] = &[
    ("mlx5_wqe_av_key", "a union in C; its members are views of mlx5_wqe_av"),
    ("mlx5_base_av", "half of mlx5_wqe_av, compared below"),
    ("mlx5_grh_av", "half of mlx5_wqe_av, compared below"),
    ("mlx5_wqe_eth_seg_min", "start of mlx5_wqe_eth_seg, compared below"),
    ("mlx5_wqe_masked_cs32_seg", "PRM; in C words are written one by one"),
    ("mlx5_wqe_masked_fa32_seg", "PRM; in C words are written one by one"),
    ("mlx5_cq_doorbell", "an array in C, compared below"),
    ("mlx5_qp_dbr", "an array in C, compared below"),
    ("mlx5_cq_dbr", "an array in C, compared below"),
    ("mlx5_cmd_layout", "the kernel driver's; offsets in ifc.rs"),
    ("mlx5_cmd_prot_block", "the kernel driver's; offsets in ifc.rs"),
    ("mlx5_eqe", "the kernel driver's; offsets in ifc.rs"),
    ("mlx5_mini_cqe8", "the kernel driver's (device.h); its views differ by kind of entry"),
];

/// Rust numbers without a C one that user space sees, and kinds of numbers.
const NUMBERS_NOT_IN_C: &[(&str, &str)] = &[
    ("MLX5_CQE_COMPRESSED", "the kernel driver's (device.h); in C a value of a field"),
    ("MINI_CQES", "the kernel driver's (en.h)"),
    ("CmdOpcode", "the kernel driver's; compared in ifc.rs"),
    ("CmdStatus", "the kernel driver's; compared in ifc.rs"),
    ("LOG_DMA_MMO_MAX_SIZE", "users'; compared in ifc.rs"),
    ("RTS2RTS_QP_UDP_SPORT", "users'; compared in ifc.rs"),
    ("RTS2RTS_LAG_TX_PORT_AFFINITY", "users'; compared in ifc.rs"),
    ("LAG_TX_PORT_AFFINITY", "users'; compared in ifc.rs"),
    ("NUM_LAG_PORTS", "users'; compared in ifc.rs"),
    ("LAG_STATE", "users'; compared in ifc.rs"),
    ("LAG_TX_REMAP_AFFINITY_2", "users'; compared in ifc.rs"),
    ("LAG_TX_REMAP_AFFINITY_1", "users'; compared in ifc.rs"),
    ("QUERY_LAG_BYTES", "a size of ours"),
    ("DMA_MMO_SQ", "users'; compared in ifc.rs"),
    ("DMA_MMO_QP", "users'; compared in ifc.rs"),
    ("QPC_EXT_MMO", "users'; compared in ifc.rs"),
    ("QPC_DBR_UMEM_ID", "users'; compared in ifc.rs"),
    ("RTS2RTS_OPT_PARAM_MASK_95_32", "users'; compared in ifc.rs"),
    ("RTS2RTS_BYTES", "users'; compared in ifc.rs"),
    ("GRACEFUL_CLOSE", "the kernel driver's; compared in ifc.rs"),
    ("FORCE_CLOSE", "the kernel driver's; compared in ifc.rs"),
    ("PREPARE_FAST_TEARDOWN", "the kernel driver's; compared in ifc.rs"),
    ("ADD_OPERATION", "the kernel driver's; compared in ifc.rs"),
    ("REMOVE_OPERATION", "the kernel driver's; compared in ifc.rs"),
    ("RESIZE_CQ", "the kernel driver's; compared in ifc.rs"),
    ("RESIZE_FIELDS", "the kernel driver's; compared in ifc.rs"),
    ("CQ_UMEM_OFFSET", "users'; compared in ifc.rs"),
    ("CQ_UMEM_ID", "users'; compared in ifc.rs"),
    ("CQC_DBR_UMEM_ID", "users'; compared in ifc.rs"),
    ("MLX5_WQE_UMR_CTRL_FLAG_CHECK_NOT_FREE", "the kernel driver's (device.h)"),
    ("MLX5_WQE_UMR_CTRL_MKEY_MASK_PAGE_SIZE", "the kernel driver's (device.h)"),
    ("MLX5_WQE_UMR_CTRL_MKEY_MASK_PD", "the kernel driver's (device.h)"),
    ("MLX5_WQE_UMR_CTRL_MKEY_MASK_EN_RINVAL", "the kernel driver's (device.h)"),
    ("MLX5_CQE_APP_TAG_MATCHING", "rdma-core's, a member of an enumeration in mlx5.h"),
    ("TmAppOp", "rdma-core's, in a source file"),
    ("TmhOp", "an enumeration of tm_types.h, on the wire and not in a work request"),
    ("RTS2RTS_QPC_EXT", "users'; compared in ifc.rs"),
    ("RTS2RTS_DCI_STREAM_CHANNEL_ID", "users'; compared in ifc.rs"),
    ("LOG_RESERVED_QPN_GRANULARITY", "users'; compared in ifc.rs"),
    ("FLOW_COUNTER_BULK_LOG_MAX_ALLOC", "users'; compared in ifc.rs"),
    ("INCREMENT_SIZES", "users'; compared in ifc.rs"),
    ("TEST_AND_SET_SIZES", "users'; compared in ifc.rs"),
    ("CREATE_LOG_OBJ_RANGE", "users'; the field is of general_obj_create_param"),
    ("RESERVED_QPN", "users', a kind of object in mlx5_ifc.h"),
    ("AV_QP_MAPPING", "users', a kind of object in mlx5_ifc.h"),
    ("RESERVED_QPN_IN", "a size of ours"),
    ("AV_QP_MAPPING_IN", "a size of ours"),
    ("AV_QP_MAPPING_QPN", "users'; compared in ifc.rs"),
    ("Delivery", "the kernel driver's, in a source file"),
    ("WQ_TYPE_CYCLIC", "the kernel driver's (qp.h)"),
    ("MISS_FORWARD", "the kernel driver's (mlx5_ifc.h)"),
    ("ACTION_FORWARD", "the kernel driver's (mlx5_ifc.h)"),
    ("DESTINATION_TIR", "the kernel driver's (mlx5_ifc.h)"),
    ("LIST_UNICAST", "the kernel driver's (vport.h)"),
    ("LIST_MULTICAST", "the kernel driver's (vport.h)"),
    ("LIST_VLAN", "the kernel driver's (vport.h)"),
    ("NIC_RX", "the kernel driver's (fs_core.h)"),
    ("NIC_TX", "the kernel driver's (fs_core.h)"),
    ("SELECT_MISS", "the kernel driver's (mlx5_ifc.h)"),
    ("NO_ROOT", "the kernel driver's (fs_cmd.c)"),
    ("CHANGE_ENTRY", "the kernel driver's (fs_cmd.c)"),
    ("ACTION_ALLOW", "the kernel driver's (mlx5_ifc.h)"),
    ("ACTION_DROP", "the kernel driver's (mlx5_ifc.h)"),
    ("ACTION_COUNT", "the kernel driver's (mlx5_ifc.h)"),
    ("ACTION_REFORMAT", "the kernel driver's (mlx5_ifc.h)"),
    ("ACTION_DECAP", "the kernel driver's (mlx5_ifc.h)"),
    ("ACTION_MOD_HDR", "the kernel driver's (mlx5_ifc.h)"),
    ("CHANGE_ACTION", "the kernel driver's (mlx5_ifc.h)"),
    ("CHANGE_TAG", "the kernel driver's (mlx5_ifc.h)"),
    ("CHANGE_DESTINATIONS", "the kernel driver's (mlx5_ifc.h)"),
    ("CHANGE_COUNTERS", "the kernel driver's (mlx5_ifc.h)"),
    ("DESTINATION_TABLE", "the kernel driver's (mlx5_ifc.h)"),
    ("EventType", "the kernel driver's; compared in ifc.rs"),
    ("EventQueueType", "the kernel driver's; compared in ifc.rs"),
    ("MLX5_PCI_CMD_XPORT", "the kernel driver's, in a source file"),
    ("INLINE_BYTES", "a size in the kernel driver"),
    ("MLX5_CMD_DATA_BLOCK_SIZE", "the kernel driver's; compared in ifc.rs"),
    ("MAILBOX_ALIGN", "PRM"),
    ("MLX5_PFAULT_SUBTYPE_WQE", "the kernel driver's; compared in ifc.rs"),
    ("MLX5_PFAULT_SUBTYPE_RDMA", "the kernel driver's; compared in ifc.rs"),
    ("PageFaultType", "the kernel driver's; compared in ifc.rs"),
    ("MLX5_PORT_CHANGE_SUBTYPE_DOWN", "the kernel driver's; compared in ifc.rs"),
    ("MLX5_PORT_CHANGE_SUBTYPE_ACTIVE", "the kernel driver's; compared in ifc.rs"),
    ("DOORBELL_RECORD", "size of a structure of ours"),
    ("CI_MASK", "a literal in C"),
    ("WQE_COUNTER_MASK", "a literal in C"),
    ("NUMBER_MASK", "a literal in C"),
    ("EQ_DOORBELL_ARM", "compared under C's name, MLX5_EQ_DOORBEL_OFFSET"),
    ("EQ_DOORBELL_CI", "the kernel driver's"),
    ("BFREGS_PER_UAR", "the kernel driver's"),
    ("NON_FP_BFREGS_PER_UAR", "the kernel driver's"),
    ("DS_BYTES", "a literal in C"),
    ("DS_MAX", "a literal in C"),
    ("WQE_BB_MAX", "follows from DS_MAX"),
    ("UMR_REPEAT_OP", "a literal in C"),
    ("INLINE_HDR_OFFSET", "an offset, compared as such"),
    ("DATA_SEG_MAX", "PRM"),
    ("INLINE_HEADER", "size of a structure"),
    ("ServiceType", "the kernel driver's, but for RC"),
    ("QpState", "the kernel driver's"),
    ("PmState", "the kernel driver's, but for MIGRATED"),
    ("Mtu", "the kernel driver's"),
];

/// Rows of a table of the installed header and of the one of rdma-core's sources.
fn fixture(
    public: &'static str,
    internal: &'static str,
) -> impl Iterator<Item = Vec<&'static str>> {
    let rows = public.lines().skip(1).chain(internal.lines().skip(1));
    rows.map(|line| line.split('\t').collect())
}

/// Every structure that is compared.
fn structures() -> BTreeSet<Row> {
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
        ibv_rvh { va rkey len }
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
        rust.extend(rows.into_iter().map(|row| (alias.to_owned(), row.1, row.2, row.3)));
    }

    rust
}

#[test]
fn structures_are_those_of_the_c_headers() {
    let rust = structures();
    let c: BTreeSet<Row> =
        fixture(include_str!("fixtures/layout.tsv"), include_str!("fixtures/layout_internal.tsv"))
            .map(|row| {
                (row[0].into(), row[1].into(), row[2].parse().unwrap(), row[3].parse().unwrap())
            })
            .collect();
    for (name, _) in NOT_MODELLED {
        assert!(c.iter().any(|row| row.0 == *name), "{name}: left out, but C has it no more");
    }
    let modelled: BTreeSet<Row> =
        c.into_iter().filter(|row| !NOT_MODELLED.iter().any(|(name, _)| *name == row.0)).collect();
    assert!(modelled.len() > 150, "fixture is cut");
    let only_c: Vec<_> = modelled.difference(&rust).collect();
    let only_rust: Vec<_> = rust.difference(&modelled).collect();
    assert!(only_c.is_empty() && only_rust.is_empty(), "C: {only_c:#?}\nRust: {only_rust:#?}");
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
    assert_eq!(size_of::<mlx5_base_av>() + size_of::<mlx5_grh_av>(), size_of::<mlx5_wqe_av>());
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
    assert_eq!(offset_of!(mlx5_wqe_eth_seg, inline_hdr), size_of::<mlx5_wqe_eth_seg_min>());
}

#[test]
fn doorbells_are_arrays_of_words() {
    assert_eq!(offset_of!(mlx5_qp_dbr, rcv), 4 * MLX5_RCV_DBR);
    assert_eq!(offset_of!(mlx5_qp_dbr, snd), 4 * MLX5_SND_DBR);
    assert_eq!(offset_of!(mlx5_cq_dbr, set_ci), 4 * MLX5_CQ_SET_CI);
    assert_eq!(offset_of!(mlx5_cq_dbr, arm), 4 * MLX5_CQ_ARM_DB);
    // rdma-core cq.c, `mlx5_arm_cq`: the arm word first, then the number.
    assert_eq!(offset_of!(mlx5_cq_doorbell, arm), 0);
    assert_eq!(offset_of!(mlx5_cq_doorbell, cqn), 4);
}

/// Every number that is compared.
fn numbers() -> BTreeMap<String, u64> {
    let mut rust = BTreeMap::<String, u64>::new();
    macro_rules! plain {
        ($($name:ident)*) => { $( rust.insert(stringify!($name).to_owned(), $name as u64); )* };
    }
    plain! {
        MLX5_ADAPTER_PAGE_SHIFT MLX5_ADAPTER_PAGE_SIZE MLX5_BF_OFFSET MLX5_CQ_ARM_DB MLX5_CQ_SET_CI
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
    Opcode::ALL.iter().for_each(|x| named("MLX5_OPCODE_", x.name(), x.0));
    CqeOpcode::ALL.iter().for_each(|x| named("MLX5_CQE_", x.name(), x.0));
    Syndrome::ALL.iter().for_each(|x| named("MLX5_CQE_SYNDROME_", x.name(), x.0));
    named("MLX5_QPC_ST_", ServiceType::RC.name(), ServiceType::RC.0);
    let migrated = PmState::MIGRATED;
    named("MLX5_QPC_PM_STATE_", migrated.name(), migrated.0);
    let flags = TmFlags::ZERO;
    named("MLX5_SRQ_FLAG_TM_", Some("SW_CNT"), flags.with_sw_cnt(true).0);
    named("MLX5_SRQ_FLAG_TM_", Some("CQE_REQ"), flags.with_cqe_req(true).0);
    rust.insert("MLX5_EQ_DOORBEL_OFFSET".into(), EQ_DOORBELL_ARM as u64);
    rust
}

#[test]
fn numbers_are_those_of_the_c_headers() {
    let rust = numbers();
    let left_out = |name: &str| NUMBERS_NOT_MODELLED.iter().any(|(x, _)| name.starts_with(x));
    let c: BTreeMap<String, u64> = fixture(
        include_str!("fixtures/constants.tsv"),
        include_str!("fixtures/constants_internal.tsv"),
    )
    .filter(|row| !left_out(row[0]))
    .map(|row| (row[0].into(), u64::from_str_radix(row[1].trim_start_matches("0x"), 16).unwrap()))
    .collect();
    assert!(c.len() > 90, "fixture is cut");
    let only_c: Vec<_> = c.iter().filter(|(name, x)| rust.get(*name) != Some(x)).collect();
    let only_rust: Vec<_> = rust.iter().filter(|(name, x)| c.get(*name) != Some(x)).collect();
    assert!(only_c.is_empty() && only_rust.is_empty(), "C: {only_c:#x?}\nRust: {only_rust:#x?}");
}

/// A structure or number that the crate gains is compared, or has its reason above.
#[test]
fn every_item_of_the_sources_is_compared() {
    let layouts: BTreeSet<_> = structures().into_iter().map(|row| row.0).collect();
    let numbers = numbers();
    let compared_kinds = ["Opcode", "CqeOpcode", "Syndrome"];
    let listed = |list: &[(&str, &str)], name: &str| list.iter().any(|(listed, _)| *listed == name);
    let mut found = 0;
    let mut missed = Vec::new();
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files =
        [src.clone(), src.join("cmd")].into_iter().flat_map(|dir| fs::read_dir(dir).unwrap());
    for path in files.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        // The macros behind the structures.
        if path.ends_with("bits.rs") {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        assert!(!text.contains("repr(C"), "{path:?}: only `layout!` makes structures");
        let mut kind = "";
        for line in text.lines() {
            if let Some(name) = line.strip_suffix("! {") {
                kind = name;
            }
            let word = |rest: &str| -> String {
                let end = |c: char| !c.is_alphanumeric() && c != '_';
                rest.split(end).next().unwrap_or_default().to_owned()
            };
            let (name, known) = if let Some(rest) = line.strip_prefix("    pub struct ") {
                let name = word(rest);
                let known = match kind {
                    "layout" => layouts.contains(&name) || listed(NOT_IN_C, &name),
                    "named" => {
                        compared_kinds.contains(&name.as_str()) || listed(NUMBERS_NOT_IN_C, &name)
                    }
                    // Names for the bits of a field, which is compared with its structure.
                    _ => kind == "bits",
                };
                (name, known)
            } else if let Some(rest) = line.strip_prefix("pub const ")
                && !rest.starts_with("fn ")
            {
                let name = word(rest);
                let known = numbers.contains_key(&name) || listed(NUMBERS_NOT_IN_C, &name);
                (name, known)
            } else {
                continue;
            };
            found += 1;
            if !known {
                missed.push(name);
            }
        }
    }
    assert!(found > 130, "the scan sees {found} items only");
    assert!(missed.is_empty(), "compared with nothing: {missed:#?}");
}
