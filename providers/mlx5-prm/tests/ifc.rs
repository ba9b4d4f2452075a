//! The fields of the command interface against the kernel's mlx5_ifc.h (`fixtures/ifc.tsv`, made by
//! `xtask/layouts/mlx5_ifc.py` from Linux 7.2), and reading and writing them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::mem::offset_of;
use std::path::Path;

use proptest::prelude::*;
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
use uverbs_mlx5_prm::cmd::queue::{MLX5_CMD_DATA_BLOCK_SIZE, mlx5_cmd_layout, mlx5_cmd_prot_block};
use uverbs_mlx5_prm::cmd::{
    Block, Field, caps, cq, dct, eq, flow, general, hca, header, iseg, mcast, memic, mkey, nic, qp,
    register, rq, simple, sq, steering, umem, vport,
};
use uverbs_mlx5_prm::eqe::{
    EventQueueType, EventType, MLX5_PFAULT_SUBTYPE_RDMA, MLX5_PFAULT_SUBTYPE_WQE,
    MLX5_PORT_CHANGE_SUBTYPE_ACTIVE, MLX5_PORT_CHANGE_SUBTYPE_DOWN, PageFaultType, mlx5_eqe,
};
use zerocopy::IntoBytes;

type Table = BTreeMap<String, BTreeMap<String, (u32, u32)>>;

fn c_side() -> Table {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/ifc.tsv");
    let text = fs::read_to_string(path).unwrap();
    let mut table = Table::new();
    for line in text.lines() {
        let row = line.split('\t').collect::<Vec<_>>();
        let [name, field, bit, width] = row[..] else { panic!("{line}") };
        let at = (bit.parse().unwrap(), width.parse().unwrap());
        table.entry(name.into()).or_default().insert(field.to_lowercase(), at);
    }
    table
}

fn numbers() -> BTreeMap<String, u32> {
    let numbers = c_side().remove("#").unwrap();
    numbers.into_iter().map(|(name, (number, _))| (name.to_uppercase(), number)).collect()
}

struct Module {
    name: &'static str,
    size: usize,
    fields: &'static [(&'static str, Field)],
    blocks: &'static [(&'static str, Block)],
}

macro_rules! modules {
    ($($file:ident: $($name:ident)*;)*) => {
        [$($(Module {
            name: stringify!($name),
            size: $file::$name::SIZE,
            fields: $file::$name::FIELDS,
            blocks: $file::$name::BLOCKS,
        },)*)*]
    };
}

fn rust_side() -> Vec<Module> {
    modules! {
        caps: cmd_hca_cap cmd_hca_cap_2 atomic_caps odp_cap odp_scheme_cap
            odp_per_transport_service_cap roce_cap per_protocol_networking_offload_caps
            flow_table_nic_cap flow_table_prop_layout flow_table_fields_supported;
        nic: query_nic_vport_context_in query_nic_vport_context_out modify_nic_vport_context_in
            modify_nic_vport_field_select nic_vport_context mac_address_layout vlan_layout
            set_roce_address_in roce_addr_layout;
        sq: sqc rqc create_sq_in create_sq_out modify_sq_in destroy_sq_in query_sq_in query_sq_out
            create_rq_in create_rq_out modify_rq_in destroy_rq_in query_rq_in query_rq_out;
        steering: tisc create_tis_in create_tis_out modify_tis_in modify_tis_bitmask query_tis_in
            query_tis_out destroy_tis_in tirc rx_hash_field_select
            create_tir_in create_tir_out modify_tir_in modify_tir_bitmask destroy_tir_in rqtc rq_num
            create_rqt_in create_rqt_out modify_rqt_in rqt_bitmask destroy_rqt_in;
        flow: fte_match_set_lyr_2_4 fte_match_set_misc fte_match_param flow_table_context
            create_flow_table_in create_flow_table_out modify_flow_table_in destroy_flow_table_in
            set_flow_table_root_in create_flow_group_in create_flow_group_out destroy_flow_group_in
            flow_context dest_format_struct flow_counter_list set_fte_in delete_fte_in
            alloc_flow_counter_in alloc_flow_counter_out dealloc_flow_counter_in
            query_flow_counter_in query_flow_counter_out traffic_counter
            packet_reformat_context_in alloc_packet_reformat_context_in
            alloc_packet_reformat_context_out dealloc_packet_reformat_context_in set_action_in
            add_action_in copy_action_in alloc_modify_header_context_in
            alloc_modify_header_context_out dealloc_modify_header_context_in;
        cq: cqc create_cq_in create_cq_out destroy_cq_in query_cq_in query_cq_out modify_cq_in;
        eq: eqc create_eq_in create_eq_out destroy_eq_in query_eq_in query_eq_out;
        hca: query_pages_in query_pages_out manage_pages_in manage_pages_out query_issi_out
            set_issi_in query_adapter_out query_adapter_param_block teardown_hca_in
            teardown_hca_out query_hca_cap_out set_hca_cap_in access_register_in access_register_out
            set_driver_version_in query_special_contexts_out;
        iseg: initial_seg;
        dct: dctc create_dct_in create_dct_out drain_dct_in destroy_dct_in query_dct_in
            query_dct_out arm_dct_in;
        mcast: attach_to_mcg_in detach_from_mcg_in;
        memic: device_mem_cap alloc_memic_in alloc_memic_out dealloc_memic_in modify_memic_in
            modify_memic_out;
        general: general_obj_in_cmd_hdr general_obj_out_cmd_hdr general_obj_create_param;
        mkey: mkc create_mkey_in create_mkey_out destroy_mkey_in query_mkey_in query_mkey_out
            page_fault_resume_in trans_page_fault_info;
        qp: ads qpc create_qp_in create_qp_out destroy_qp_in rst2init_qp_in query_qp_in
            query_qp_out;
        register: ptys_reg pmtu_reg pvlc_reg paos_reg ppcnt_reg;
        rq: wq rmpc create_rmp_in create_rmp_out modify_rmp_in rmp_bitmask destroy_rmp_in
            query_rmp_in query_rmp_out xrc_srqc create_xrc_srq_in create_xrc_srq_out
            destroy_xrc_srq_in query_xrc_srq_in query_xrc_srq_out arm_xrc_srq_in xrqc
            tag_matching_topology_context create_xrq_in create_xrq_out destroy_xrq_in query_xrq_in
            query_xrq_out arm_rq_in;
        simple: alloc_uar_out dealloc_uar_in alloc_pd_out dealloc_pd_in alloc_xrcd_out
            dealloc_xrcd_in alloc_transport_domain_out dealloc_transport_domain_in create_uctx_in
            create_uctx_out destroy_uctx_in alloc_q_counter_out dealloc_q_counter_in;
        umem: umem create_umem_in create_umem_out destroy_umem_in;
        vport: query_hca_vport_context_in query_hca_vport_context_out
            modify_hca_vport_context_in hca_vport_context
            query_hca_vport_gid_in query_hca_vport_gid_out query_hca_vport_pkey_in
            query_hca_vport_pkey_out query_vport_state_out mad_ifc_in mad_ifc_out
            query_vport_counter_out query_q_counter_in query_q_counter_out traffic_counter;
    }
    .into()
}

#[test]
fn every_field_is_where_the_header_has_it() {
    let c = c_side();
    let mut seen = BTreeSet::new();
    for module in rust_side() {
        let rows =
            c.get(module.name).unwrap_or_else(|| panic!("{} is not in the table", module.name));
        seen.insert(module.name);
        assert_eq!(8 * module.size as u32, rows["-"].1, "size of {}", module.name);
        for (name, field) in module.fields {
            let name = name.to_lowercase();
            let at = (field.bit(), field.width());
            assert_eq!(rows.get(&name), Some(&at), "{}.{name}", module.name);
        }
        for (name, block) in module.blocks {
            let name = name.to_lowercase();
            let at = (8 * block.offset() as u32, 8 * block.len() as u32);
            assert_eq!(rows.get(&name), Some(&at), "{}.{name}", module.name);
        }
    }
    seen.insert("#");
    let missing = c.keys().filter(|name| !seen.contains(name.as_str())).collect::<Vec<_>>();
    assert!(missing.is_empty(), "in the table and not in this test: {missing:?}");
}

/// Fields that Linux's header leaves reserved, compared with rdma-core (`fixtures/ifc_users.tsv`).
#[test]
fn what_only_users_know_is_where_they_have_it() {
    let fields = [
        ("cmd_hca_cap log_dma_mmo_max_size", caps::LOG_DMA_MMO_MAX_SIZE),
        ("cmd_hca_cap rts2rts_qp_udp_sport", caps::RTS2RTS_QP_UDP_SPORT),
        ("cmd_hca_cap rts2rts_lag_tx_port_affinity", caps::RTS2RTS_LAG_TX_PORT_AFFINITY),
        ("cmd_hca_cap dma_mmo_sq", caps::DMA_MMO_SQ),
        ("cmd_hca_cap lag_tx_port_affinity", caps::LAG_TX_PORT_AFFINITY),
        ("cmd_hca_cap num_lag_ports", caps::NUM_LAG_PORTS),
        ("cmd_hca_cap dma_mmo_qp", caps::DMA_MMO_QP),
        ("cmd_hca_cap_2 log_reserved_qpn_granularity", caps::LOG_RESERVED_QPN_GRANULARITY),
        ("lagc lag_state", general::LAG_STATE),
        ("lagc tx_remap_affinity_2", general::LAG_TX_REMAP_AFFINITY_2),
        ("lagc tx_remap_affinity_1", general::LAG_TX_REMAP_AFFINITY_1),
        ("qpc dbr_umem_id", umem::QPC_DBR_UMEM_ID),
        ("rts2rts_qp_in qpc_ext", qp::RTS2RTS_QPC_EXT),
        ("rts2rts_qp_in opt_param_mask_95_32", qp::RTS2RTS_OPT_PARAM_MASK_95_32),
    ];
    let rust = fields.map(|(name, field)| format!("{name} {} {}", field.bit(), field.width()));
    let text = include_str!("fixtures/ifc_users.tsv").replace('\t', " ");
    assert_eq!(text.lines().collect::<Vec<_>>(), rust);
    // Counted by hand along the same header: `rts2rts_qp_in` up to its `qpc_data_ext`, and
    // `create_av_qp_mapping_in`. `tests/test_mlx5_dm_ops.py` counts from the answer, 16 bytes
    // before its capabilities.
    let at = |field: Field| (field.bit() / 8, field.width());
    assert_eq!(at(qp::RTS2RTS_DCI_STREAM_CHANNEL_ID), (264 + 8 + 2, 16));
    assert_eq!((qp::QPC_EXT_MMO.bit(), qp::QPC_EXT_MMO.width()), (8 * (264 + 8) + 2, 1));
    assert_eq!(qp::RTS2RTS_BYTES, 264 + 8 + 0x600 / 8);
    assert_eq!(at(general::AV_QP_MAPPING_QPN), (16 + 12, 32));
    assert_eq!(at(memic::INCREMENT_SIZES), (20 - 16, 8));
    assert_eq!(at(memic::TEST_AND_SET_SIZES), (22 - 16, 8));
    // Along rdma-core's `tests/mlx5_prm_structs.py`: `CmdHcaCap2`, the byte behind
    // `ts_cqe_metadata_size2wqe_counter`.
    let bulk = caps::FLOW_COUNTER_BULK_LOG_MAX_ALLOC;
    assert_eq!((bulk.bit(), bulk.width()), (8 * 74 + 3, 5));
    // Counted by hand along rdma-core's `tests/mlx5_prm_structs.py`: `CreateCqIn` behind its
    // context, `SwCqc`.
    assert_eq!(at(umem::CQ_UMEM_OFFSET), (16 + 64, 64));
    assert_eq!(at(umem::CQ_UMEM_ID), (16 + 64 + 8, 32));
    assert_eq!(at(umem::CQC_DBR_UMEM_ID), (4, 32));
}

#[test]
fn commands_statuses_and_events_have_their_numbers() {
    let c = numbers();
    let compare = |prefix: &str, rust: BTreeMap<String, u32>, all: bool| {
        for (name, number) in &rust {
            assert_eq!(c.get(&format!("{prefix}{name}")), Some(number), "{prefix}{name}");
        }
        let missing = c.keys().filter_map(|name| name.strip_prefix(prefix));
        let missing = missing.filter(|name| !rust.contains_key(*name)).collect::<Vec<_>>();
        assert!(!all || missing.is_empty(), "{prefix}: {missing:?}");
    };
    let opcodes = CmdOpcode::ALL.iter().map(|opcode| {
        let name = opcode.name().unwrap();
        (name.strip_prefix("TO_").map_or(name.into(), |rest| format!("2{rest}")), opcode.0.into())
    });
    compare("MLX5_CMD_OP_", opcodes.collect(), true);
    let statuses = CmdStatus::ALL.iter().map(|status| (status.name().unwrap(), status.0.into()));
    compare("MLX5_CMD_STAT_", statuses.map(|(name, x)| (name.into(), x)).collect(), true);
    // Only the events that this project's device raises.
    let events = EventType::ALL.iter().map(|event| (event.name().unwrap(), event.0.into()));
    compare("MLX5_EVENT_TYPE_", events.map(|(name, x)| (name.into(), x)).collect(), false);
    let one = |name: &str| c[name];
    assert_eq!(one("MLX5_PORT_CHANGE_SUBTYPE_DOWN"), MLX5_PORT_CHANGE_SUBTYPE_DOWN.into());
    assert_eq!(one("MLX5_PORT_CHANGE_SUBTYPE_ACTIVE"), MLX5_PORT_CHANGE_SUBTYPE_ACTIVE.into());
    assert_eq!(one("MLX5_PFAULT_SUBTYPE_WQE"), MLX5_PFAULT_SUBTYPE_WQE.into());
    assert_eq!(one("MLX5_PFAULT_SUBTYPE_RDMA"), MLX5_PFAULT_SUBTYPE_RDMA.into());
    let faults = PageFaultType::ALL.iter().map(|kind| (kind.name().unwrap(), kind.0.into()));
    // Request page faults are flags of Linux's `hw/mlx5/odp.c` and `mlx5_ib.h`: writes, RDMA.
    let faults = faults.map(|(name, x)| (name.into(), x)).collect::<BTreeMap<String, u32>>();
    let (rdma, wqe) = faults.into_iter().partition(|(name, _)| name.starts_with("RDMA_"));
    compare("MLX5_WQE_PF_TYPE_", wqe, true);
    assert_eq!(rdma, BTreeMap::from([("RDMA_READ".into(), 4), ("RDMA_WRITE".into(), 6)]));
    assert_eq!(one("MLX5_CMD_DATA_BLOCK_SIZE") as usize, MLX5_CMD_DATA_BLOCK_SIZE);
}

/// Numbers along `include/linux/mlx5/qp.h`, `cq.h`, `device.h` and `mlx5_ifc.h`.
#[test]
fn selections_and_profiles_have_their_numbers() {
    use qp::optpar::*;
    let low = [ALT_ADDR_PATH, RRE, RAE, RWE, PKEY_INDEX, Q_KEY, RNR_TIMEOUT, PRIMARY_ADDR_PATH];
    let middle = [SRA_MAX, RRA_MAX, PM_STATE];
    let high = [RETRY_COUNT, RNR_RETRY, ACK_TIMEOUT, LAG_TX_AFF, PRI_PORT];
    let bits = |masks: &[u64]| masks.iter().map(|mask| mask.trailing_zeros()).collect::<Vec<_>>();
    assert_eq!(bits(&low), (0..8).collect::<Vec<_>>());
    assert_eq!(bits(&middle), [8, 9, 10]);
    assert_eq!(bits(&high), [12, 13, 14, 15, 16]);
    assert_eq!(bits(&[SRQN, CQN_RCV, COUNTER_SET_ID]), [18, 19, 25]);
    use cq::modify;
    let masks = [modify::PERIOD, modify::COUNT, modify::OVERRUN, modify::PERIOD_MODE];
    assert_eq!(masks, [1, 2, 4, 16]);
    assert_eq!((cq::RESIZE_CQ, cq::RESIZE_FIELDS), (1, 7));
    assert_eq!((memic::ADD_OPERATION, memic::REMOVE_OPERATION), (0, 1));
    let queues = EventQueueType::ALL.iter().map(|queue| (queue.name().unwrap(), queue.0));
    let queues = queues.collect::<Vec<_>>();
    assert_eq!(queues, [("QP", 0), ("RQ", 1), ("SQ", 2), ("DCT", 6)]);
    let profiles = [hca::GRACEFUL_CLOSE, hca::FORCE_CLOSE, hca::PREPARE_FAST_TEARDOWN];
    assert_eq!(profiles, [0, 1, 2]);
}

/// Offsets counted by hand along `include/linux/mlx5/device.h`.
#[test]
fn entries_mailboxes_and_events_have_their_offsets() {
    assert_eq!(offset_of!(mlx5_cmd_layout, inlen), 4);
    assert_eq!(offset_of!(mlx5_cmd_layout, in_ptr), 8);
    assert_eq!(offset_of!(mlx5_cmd_layout, out), 32);
    assert_eq!(offset_of!(mlx5_cmd_layout, out_ptr), 48);
    assert_eq!(offset_of!(mlx5_cmd_layout, token), 60);
    assert_eq!(offset_of!(mlx5_cmd_layout, status_own), 63);
    assert_eq!(offset_of!(mlx5_cmd_prot_block, next), 560);
    assert_eq!(offset_of!(mlx5_cmd_prot_block, token), 573);
    let bytes = |eqe: mlx5_eqe| -> [u8; 64] { eqe.as_bytes().try_into().unwrap() };
    let eqe = bytes(mlx5_eqe::completion(0x12_3456));
    assert_eq!((eqe[1], &eqe[56..60]), (0, &[0, 0x12, 0x34, 0x56][..]));
    let eqe = bytes(mlx5_eqe::queue(EventType::WQ_CATAS_ERROR, EventQueueType::SQ, 0x77));
    assert_eq!((eqe[1], eqe[52], eqe[59]), (5, 2, 0x77));
    let eqe = bytes(mlx5_eqe::cq_error(0x77, 1));
    assert_eq!((eqe[1], eqe[35], eqe[43]), (4, 0x77, 1));
    let eqe = bytes(mlx5_eqe::command(1 << 31));
    assert_eq!((eqe[1], eqe[32]), (0xa, 0x80));
    let eqe = bytes(mlx5_eqe::port(MLX5_PORT_CHANGE_SUBTYPE_ACTIVE, 1));
    assert_eq!((eqe[1], eqe[3], eqe[40]), (9, 4, 0x10));
    let kind = PageFaultType::REQ_READ_OR_ATOMIC;
    let eqe = bytes(mlx5_eqe::wqe_fault(kind, 0xa1_b2c3, 0x77_8899, 0x1234, 0x5678));
    assert_eq!((eqe[1], eqe[3], &eqe[32..36]), (0xc, 0, &[0; 4][..]));
    assert_eq!((&eqe[38..40], &eqe[42..44]), (&[0x12, 0x34][..], &[0x56, 0x78][..]));
    assert_eq!((&eqe[45..48], &eqe[56..60]), (&[0xa1, 0xb2, 0xc3][..], &[3, 0x77, 0x88, 0x99][..]));
    let kind = PageFaultType::RDMA_WRITE;
    let eqe = bytes(mlx5_eqe::rdma_fault(kind, 0xa1_b2c3, 5 << 8, (0x11 << 56 | 6, 7), 8));
    assert_eq!((eqe[1], eqe[3], &eqe[32..36]), (0xc, 1, &[0; 4][..]));
    assert_eq!((eqe[38], eqe[43], eqe[47]), (5, 8, 7));
    assert_eq!((eqe[48], eqe[55], &eqe[56..60]), (0x11, 6, &[6, 0xa1, 0xb2, 0xc3][..]));
}

/// Parts of inputs, which have their names for what they are part of.
const PARTS: [&str; 4] =
    ["packet_reformat_context_in", "set_action_in", "add_action_in", "copy_action_in"];

/// The common header of all inputs, and of all outputs, has the same offsets in each.
#[test]
fn headers_are_common() {
    let common = header::cmd_in::FIELDS.iter().map(|field| (field, "_in"));
    let common = common.chain(header::cmd_out::FIELDS.iter().map(|field| (field, "_out")));
    for ((name, field), end) in common {
        let name = name.to_lowercase();
        let is_whole = |name: &str| name.ends_with(end) && !PARTS.contains(&name);
        for (structure, rows) in c_side().iter().filter(|(name, _)| is_whole(name)) {
            match rows.get(&name) {
                // This one is about a user: its field has the name, too.
                _ if structure == "destroy_uctx_in" && name == "uid" => {}
                Some(at) => assert_eq!(*at, (field.bit(), field.width()), "{structure}.{name}"),
                // Not every command has a user.
                None => assert_eq!(name, "uid", "{structure}"),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_field_keeps_its_value_and_its_neighbours(
        bit in 0u32..256,
        width in 1u32..=64,
        value: u64,
        mut bytes in prop::collection::vec(any::<u8>(), 0..48),
    ) {
        let field = Field::new(bit, width);
        let before = bytes.clone();
        field.set(&mut bytes, value);
        let fits = (bit + width) as usize <= 8 * bytes.len();
        let mask = u64::MAX >> (64 - width);
        if fits {
            prop_assert_eq!(field.get(&bytes), value & mask);
        }
        // Bit by bit: outside of the field nothing changed, inside it is the value.
        for at in 0..8 * bytes.len() {
            let bit_of = |bytes: &[u8]| bytes[at / 8] >> (7 - at % 8) & 1;
            let inside = at.checked_sub(bit as usize).filter(|place| *place < width as usize);
            let expected = match inside {
                Some(place) => (value >> (width as usize - 1 - place) & 1) as u8,
                None => bit_of(&before),
            };
            prop_assert_eq!(bit_of(&bytes), expected, "bit {}", at);
        }
    }

    #[test]
    fn blocks_never_reach_beyond(offset in 0usize..64, len in 0usize..64, have in 0usize..64) {
        let mut bytes = vec![0; have];
        let block = Block::new(offset, len);
        let expected = match len {
            0 => have.saturating_sub(offset),
            len => have.saturating_sub(offset).min(len),
        };
        prop_assert_eq!(block.of(&bytes).len(), expected);
        prop_assert_eq!(block.of_mut(&mut bytes).len(), expected);
    }
}
