//! Inputs of commands as structures of fields: Linux's `mlx5_ifc.h` as far as mlx5-prm has it.

use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::{
    Block, Field, cq, dct, eq, flow, general, hca, header, mcast, memic, mkey, nic, qp, rq, simple,
    sq, steering, umem, vport,
};

/// A structure.
#[derive(Clone, Copy)]
pub(super) struct Layout {
    pub(super) name: &'static str,
    /// Reason to refuse one of its reserved bits.
    pub(super) refusal: &'static str,
    /// Bytes without a list at the end.
    pub(super) size: usize,
    pub(super) fields: &'static [(&'static str, Field)],
    pub(super) blocks: &'static [(&'static str, Block)],
}

/// Input of a command.
pub(super) struct Input {
    pub(super) opcode: CmdOpcode,
    pub(super) layout: Layout,
}

/// A structure inside another.
pub(super) struct Part {
    /// Name of the outer structure.
    pub(super) outer: &'static str,
    pub(super) offset: usize,
    pub(super) layout: Layout,
}

macro_rules! layout {
    ($file:ident $name:ident) => {
        Layout {
            name: stringify!($name),
            refusal: concat!("a reserved bit of ", stringify!($name), " is set"),
            size: $file::$name::SIZE,
            fields: $file::$name::FIELDS,
            blocks: $file::$name::BLOCKS,
        }
    };
}

macro_rules! inputs {
    ($($opcode:ident $file:ident $name:ident;)*) => {
        &[$(Input { opcode: CmdOpcode::$opcode, layout: layout!($file $name) }),*]
    };
}

macro_rules! parts {
    ($($file:ident $outer:ident $block:ident: $inner_file:ident $inner:ident;)*) => {
        &[$(Part {
            outer: stringify!($outer),
            offset: $file::$outer::$block.offset(),
            layout: layout!($inner_file $inner),
        }),*]
    };
}

macro_rules! selections {
    ($($file:ident $outer:ident $field:ident: $inner_file:ident $inner:ident;)*) => {
        &[$(Part {
            outer: stringify!($outer),
            offset: $file::$outer::$field.bit() as usize / 8,
            layout: layout!($inner_file $inner),
        }),*]
    };
}

/// Inputs of all commands. `cmd_in`: this device has no capability by which a driver fills in more
/// than opcode, user and modifier.
pub(super) const INPUTS: &[Input] = inputs! {
    ENABLE_HCA header cmd_in;
    DISABLE_HCA header cmd_in;
    INIT_HCA header cmd_in;
    TEARDOWN_HCA hca teardown_hca_in;
    QUERY_ISSI header cmd_in;
    SET_ISSI hca set_issi_in;
    QUERY_PAGES hca query_pages_in;
    MANAGE_PAGES hca manage_pages_in;
    QUERY_HCA_CAP header cmd_in;
    SET_HCA_CAP hca set_hca_cap_in;
    QUERY_ADAPTER header cmd_in;
    QUERY_SPECIAL_CONTEXTS header cmd_in;
    SET_DRIVER_VERSION hca set_driver_version_in;
    ACCESS_REG hca access_register_in;
    NOP header cmd_in;
    QUERY_HCA_VPORT_CONTEXT vport query_hca_vport_context_in;
    MODIFY_HCA_VPORT_CONTEXT vport modify_hca_vport_context_in;
    QUERY_HCA_VPORT_GID vport query_hca_vport_gid_in;
    QUERY_HCA_VPORT_PKEY vport query_hca_vport_pkey_in;
    QUERY_VPORT_STATE header cmd_in;
    QUERY_VPORT_COUNTER header cmd_in;
    QUERY_Q_COUNTER vport query_q_counter_in;
    MAD_IFC vport mad_ifc_in;
    ALLOC_UAR header cmd_in;
    DEALLOC_UAR simple dealloc_uar_in;
    ALLOC_PD header cmd_in;
    DEALLOC_PD simple dealloc_pd_in;
    ALLOC_XRCD header cmd_in;
    DEALLOC_XRCD simple dealloc_xrcd_in;
    ALLOC_TRANSPORT_DOMAIN header cmd_in;
    DEALLOC_TRANSPORT_DOMAIN simple dealloc_transport_domain_in;
    CREATE_UCTX simple create_uctx_in;
    DESTROY_UCTX simple destroy_uctx_in;
    ALLOC_Q_COUNTER header cmd_in;
    DEALLOC_Q_COUNTER simple dealloc_q_counter_in;
    CREATE_GENERAL_OBJECT general general_obj_in_cmd_hdr;
    DESTROY_GENERAL_OBJECT general general_obj_in_cmd_hdr;
    CREATE_EQ eq create_eq_in;
    DESTROY_EQ eq destroy_eq_in;
    QUERY_EQ eq query_eq_in;
    CREATE_CQ cq create_cq_in;
    DESTROY_CQ cq destroy_cq_in;
    QUERY_CQ cq query_cq_in;
    MODIFY_CQ cq modify_cq_in;
    CREATE_QP qp create_qp_in;
    DESTROY_QP qp destroy_qp_in;
    QUERY_QP qp query_qp_in;
    RST2INIT_QP qp rst2init_qp_in;
    INIT2INIT_QP qp rst2init_qp_in;
    INIT2RTR_QP qp rst2init_qp_in;
    RTR2RTS_QP qp rst2init_qp_in;
    RTS2RTS_QP qp rst2init_qp_in;
    SQERR2RTS_QP qp rst2init_qp_in;
    SQD_RTS_QP qp rst2init_qp_in;
    TO_ERR_QP qp destroy_qp_in;
    TO_RST_QP qp destroy_qp_in;
    CREATE_RMP rq create_rmp_in;
    DESTROY_RMP rq destroy_rmp_in;
    QUERY_RMP rq query_rmp_in;
    MODIFY_RMP rq modify_rmp_in;
    CREATE_XRC_SRQ rq create_xrc_srq_in;
    DESTROY_XRC_SRQ rq destroy_xrc_srq_in;
    QUERY_XRC_SRQ rq query_xrc_srq_in;
    ARM_XRC_SRQ rq arm_xrc_srq_in;
    CREATE_XRQ rq create_xrq_in;
    DESTROY_XRQ rq destroy_xrq_in;
    QUERY_XRQ rq query_xrq_in;
    ARM_RQ rq arm_rq_in;
    ATTACH_TO_MCG mcast attach_to_mcg_in;
    DETACH_FROM_MCG mcast detach_from_mcg_in;
    QUERY_NIC_VPORT_CONTEXT nic query_nic_vport_context_in;
    MODIFY_NIC_VPORT_CONTEXT nic modify_nic_vport_context_in;
    SET_ROCE_ADDRESS nic set_roce_address_in;
    CREATE_SQ sq create_sq_in;
    MODIFY_SQ sq modify_sq_in;
    DESTROY_SQ sq destroy_sq_in;
    QUERY_SQ sq query_sq_in;
    CREATE_RQ sq create_rq_in;
    MODIFY_RQ sq modify_rq_in;
    DESTROY_RQ sq destroy_rq_in;
    QUERY_RQ sq query_rq_in;
    CREATE_TIS steering create_tis_in;
    MODIFY_TIS steering modify_tis_in;
    DESTROY_TIS steering destroy_tis_in;
    CREATE_TIR steering create_tir_in;
    MODIFY_TIR steering modify_tir_in;
    DESTROY_TIR steering destroy_tir_in;
    CREATE_RQT steering create_rqt_in;
    MODIFY_RQT steering modify_rqt_in;
    DESTROY_RQT steering destroy_rqt_in;
    CREATE_FLOW_TABLE flow create_flow_table_in;
    MODIFY_FLOW_TABLE flow modify_flow_table_in;
    DESTROY_FLOW_TABLE flow destroy_flow_table_in;
    SET_FLOW_TABLE_ROOT flow set_flow_table_root_in;
    CREATE_FLOW_GROUP flow create_flow_group_in;
    DESTROY_FLOW_GROUP flow destroy_flow_group_in;
    SET_FLOW_TABLE_ENTRY flow set_fte_in;
    DELETE_FLOW_TABLE_ENTRY flow delete_fte_in;
    ALLOC_FLOW_COUNTER flow alloc_flow_counter_in;
    DEALLOC_FLOW_COUNTER flow dealloc_flow_counter_in;
    QUERY_FLOW_COUNTER flow query_flow_counter_in;
    ALLOC_PACKET_REFORMAT_CONTEXT flow alloc_packet_reformat_context_in;
    DEALLOC_PACKET_REFORMAT_CONTEXT flow dealloc_packet_reformat_context_in;
    ALLOC_MODIFY_HEADER_CONTEXT flow alloc_modify_header_context_in;
    DEALLOC_MODIFY_HEADER_CONTEXT flow dealloc_modify_header_context_in;
    CREATE_DCT dct create_dct_in;
    DESTROY_DCT dct destroy_dct_in;
    DRAIN_DCT dct drain_dct_in;
    QUERY_DCT dct query_dct_in;
    ARM_DCT_FOR_KEY_VIOLATION dct arm_dct_in;
    CREATE_UMEM umem create_umem_in;
    DESTROY_UMEM umem destroy_umem_in;
    CREATE_MKEY mkey create_mkey_in;
    DESTROY_MKEY mkey destroy_mkey_in;
    QUERY_MKEY mkey query_mkey_in;
    PAGE_FAULT_RESUME mkey page_fault_resume_in;
    ALLOC_MEMIC memic alloc_memic_in;
    DEALLOC_MEMIC memic dealloc_memic_in;
    MODIFY_MEMIC memic modify_memic_in;
};

/// Commands whose inputs end in a list which no block of the input has: a list of an inner
/// structure, pages behind a queue's context, addresses, an object, a header to insert.
pub(super) const LISTS: [CmdOpcode; 11] = [
    CmdOpcode::CREATE_GENERAL_OBJECT,
    CmdOpcode::MODIFY_NIC_VPORT_CONTEXT,
    CmdOpcode::CREATE_RMP,
    CmdOpcode::CREATE_XRQ,
    CmdOpcode::CREATE_SQ,
    CmdOpcode::CREATE_RQ,
    CmdOpcode::CREATE_RQT,
    CmdOpcode::MODIFY_RQT,
    CmdOpcode::SET_FLOW_TABLE_ENTRY,
    CmdOpcode::ALLOC_PACKET_REFORMAT_CONTEXT,
    CmdOpcode::CREATE_UMEM,
];

/// Entries of the list behind MODIFY_NIC_VPORT_CONTEXT, by `allowed_list_type`.
pub(super) const PORT_LISTS: [Layout; 3] =
    [layout!(nic mac_address_layout), layout!(nic mac_address_layout), layout!(nic vlan_layout)];

/// Structures inside others. A block without an entry may have any bytes (`FREE` in the tests).
pub(super) const PARTS: &[Part] = parts! {
    vport modify_hca_vport_context_in HCA_VPORT_CONTEXT: vport hca_vport_context;
    eq create_eq_in EQ_CONTEXT_ENTRY: eq eqc;
    cq create_cq_in CQ_CONTEXT: cq cqc;
    cq modify_cq_in CQ_CONTEXT: cq cqc;
    qp create_qp_in QPC: qp qpc;
    qp rst2init_qp_in QPC: qp qpc;
    qp qpc PRIMARY_ADDRESS_PATH: qp ads;
    qp qpc SECONDARY_ADDRESS_PATH: qp ads;
    rq create_rmp_in CTX: rq rmpc;
    rq modify_rmp_in CTX: rq rmpc;
    rq rmpc WQ: rq wq;
    rq create_xrc_srq_in XRC_SRQ_CONTEXT_ENTRY: rq xrc_srqc;
    rq create_xrq_in XRQ_CONTEXT: rq xrqc;
    rq xrqc TAG_MATCHING_TOPOLOGY_CONTEXT: rq tag_matching_topology_context;
    rq xrqc WQ: rq wq;
    nic modify_nic_vport_context_in NIC_VPORT_CONTEXT: nic nic_vport_context;
    nic set_roce_address_in ROCE_ADDRESS: nic roce_addr_layout;
    sq create_sq_in CTX: sq sqc;
    sq modify_sq_in CTX: sq sqc;
    sq sqc WQ: rq wq;
    sq create_rq_in CTX: sq rqc;
    sq modify_rq_in CTX: sq rqc;
    sq rqc WQ: rq wq;
    steering create_tis_in CTX: steering tisc;
    steering modify_tis_in CTX: steering tisc;
    steering modify_tis_in BITMASK: steering modify_tis_bitmask;
    steering create_tir_in CTX: steering tirc;
    steering modify_tir_in CTX: steering tirc;
    steering create_rqt_in RQT_CONTEXT: steering rqtc;
    steering modify_rqt_in CTX: steering rqtc;
    flow create_flow_table_in FLOW_TABLE_CONTEXT: flow flow_table_context;
    flow modify_flow_table_in FLOW_TABLE_CONTEXT: flow flow_table_context;
    flow create_flow_group_in MATCH_CRITERIA: flow fte_match_param;
    flow set_fte_in FLOW_CONTEXT: flow flow_context;
    flow flow_context MATCH_VALUE: flow fte_match_param;
    flow alloc_packet_reformat_context_in PACKET_REFORMAT_CONTEXT: flow packet_reformat_context_in;
    flow fte_match_param OUTER_HEADERS: flow fte_match_set_lyr_2_4;
    flow fte_match_param MISC_PARAMETERS: flow fte_match_set_misc;
    flow fte_match_param INNER_HEADERS: flow fte_match_set_lyr_2_4;
    dct create_dct_in DCT_CONTEXT_ENTRY: dct dctc;
    umem create_umem_in UMEM: umem umem;
    mkey create_mkey_in MEMORY_KEY_MKEY_ENTRY: mkey mkc;
    mkey page_fault_resume_in PAGE_FAULT_INFO: mkey trans_page_fault_info;
};

/// Fields that select the changes of a command.
pub(super) const SELECTIONS: &[Part] = selections! {
    nic modify_nic_vport_context_in FIELD_SELECT: nic modify_nic_vport_field_select;
    rq modify_rmp_in BITMASK: rq rmp_bitmask;
    steering modify_tir_in BITMASK: steering modify_tir_bitmask;
    steering modify_rqt_in BITMASK: steering rqt_bitmask;
};

/// Fields that only users fill in, which Linux's header leaves reserved.
pub(super) const OF_USERS: [(&str, Field); 9] = [
    ("create_cq_in", umem::CQ_UMEM_OFFSET),
    ("create_cq_in", umem::CQ_UMEM_ID),
    ("cqc", umem::CQC_DBR_UMEM_ID),
    ("qpc", umem::QPC_DBR_UMEM_ID),
    ("rst2init_qp_in", qp::RTS2RTS_QPC_EXT),
    ("rst2init_qp_in", qp::RTS2RTS_OPT_PARAM_MASK_95_32),
    ("rst2init_qp_in", qp::QPC_EXT_MMO),
    ("rst2init_qp_in", qp::RTS2RTS_DCI_STREAM_CHANNEL_ID),
    ("general_obj_in_cmd_hdr", general::CREATE_LOG_OBJ_RANGE),
];
