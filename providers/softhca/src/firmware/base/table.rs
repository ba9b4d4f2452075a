//! Command table: the handler of each command, the required stage of the device, and the lengths of
//! its fixed parts.

use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_prm::cmd::{
    cq, dct, eq, flow, hca, mcast, memic, mkey, nic, qp, rq, sq, steering, umem, vport,
};

use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::device::life::Life;
use crate::firmware::device::life::Life::{Enabled, Initialized, Off};

/// One command.
pub(crate) struct CommandEntry {
    pub(crate) opcode: CmdOpcode,
    pub(crate) needs: Life,
    /// Minimum bytes of input and output.
    pub(crate) input: usize,
    pub(crate) output: usize,
    pub(crate) run: fn(&mut Firmware, &mut Call<'_>) -> Result<(), Refusal>,
}

/// Finds the entry of a command. None: this device lacks it.
pub(crate) fn find(opcode: CmdOpcode) -> Option<&'static CommandEntry> {
    TABLE.iter().find(|entry| entry.opcode == opcode)
}

/// Input and output bytes of commands with only an object number.
const SHORT: usize = 16;
/// Output bytes of commands that return only a status.
const NOTHING: usize = 8;

macro_rules! table {
    ($($opcode:ident $run:ident $needs:ident $input:expr, $output:expr;)*) => {
        &[$(CommandEntry {
            opcode: CmdOpcode::$opcode,
            needs: $needs,
            input: $input,
            output: $output,
            run: Firmware::$run,
        }),*]
    };
}

pub(crate) static TABLE: &[CommandEntry] = table! {
    // Device.
    ENABLE_HCA enable Off SHORT, NOTHING;
    DISABLE_HCA disable Off SHORT, NOTHING;
    INIT_HCA init Enabled SHORT, NOTHING;
    TEARDOWN_HCA teardown Enabled SHORT, NOTHING;
    QUERY_ISSI query_issi Off SHORT, hca::query_issi_out::SIZE;
    SET_ISSI set_issi Off SHORT, NOTHING;
    QUERY_PAGES query_pages Enabled SHORT, SHORT;
    MANAGE_PAGES manage_pages Off SHORT, SHORT;
    QUERY_HCA_CAP query_cap Enabled SHORT, QUERY_CAP_OUT;
    SET_HCA_CAP set_cap Enabled hca::set_hca_cap_in::SIZE, NOTHING;
    QUERY_ADAPTER query_adapter Enabled SHORT, hca::query_adapter_out::SIZE;
    QUERY_SPECIAL_CONTEXTS special_contexts Enabled SHORT, hca::query_special_contexts_out::SIZE;
    SET_DRIVER_VERSION noted Enabled SHORT, NOTHING;
    ACCESS_REG access_register Enabled SHORT, NOTHING;
    NOP noted Off SHORT, NOTHING;
    // Port.
    QUERY_HCA_VPORT_CONTEXT query_vport Enabled SHORT, vport::query_hca_vport_context_out::SIZE;
    MODIFY_HCA_VPORT_CONTEXT modify_vport Enabled vport::modify_hca_vport_context_in::SIZE, NOTHING;
    QUERY_HCA_VPORT_GID query_vport_gid Enabled SHORT, SHORT;
    QUERY_HCA_VPORT_PKEY query_vport_pkey Enabled SHORT, SHORT;
    QUERY_VPORT_STATE query_vport_state Enabled SHORT, SHORT;
    QUERY_VPORT_COUNTER query_vport_counter Enabled SHORT, vport::query_vport_counter_out::SIZE;
    QUERY_Q_COUNTER query_q_counter Enabled vport::query_q_counter_in::SIZE,
        vport::query_q_counter_out::SIZE;
    MAD_IFC mad_ifc Enabled vport::mad_ifc_in::SIZE, vport::mad_ifc_out::SIZE;
    // Objects without state.
    ALLOC_UAR alloc_uar Initialized SHORT, SHORT;
    DEALLOC_UAR dealloc_uar Initialized SHORT, NOTHING;
    ALLOC_PD alloc_pd Initialized SHORT, SHORT;
    DEALLOC_PD dealloc_pd Initialized SHORT, NOTHING;
    ALLOC_XRCD alloc_xrcd Initialized SHORT, SHORT;
    DEALLOC_XRCD dealloc_xrcd Initialized SHORT, NOTHING;
    ALLOC_TRANSPORT_DOMAIN alloc_td Initialized SHORT, SHORT;
    DEALLOC_TRANSPORT_DOMAIN dealloc_td Initialized SHORT, NOTHING;
    CREATE_UCTX create_uctx Initialized SHORT, SHORT;
    DESTROY_UCTX destroy_uctx Initialized SHORT, NOTHING;
    ALLOC_Q_COUNTER alloc_q_counter Initialized SHORT, SHORT;
    DEALLOC_Q_COUNTER dealloc_q_counter Initialized SHORT, NOTHING;
    CREATE_GENERAL_OBJECT create_general Initialized SHORT, SHORT;
    DESTROY_GENERAL_OBJECT destroy_general Initialized SHORT, SHORT;
    // Queues.
    CREATE_EQ create_eq Initialized eq::create_eq_in::SIZE, SHORT;
    DESTROY_EQ destroy_eq Initialized SHORT, NOTHING;
    QUERY_EQ query_eq Initialized SHORT, eq::query_eq_out::SIZE;
    CREATE_CQ create_cq Initialized cq::create_cq_in::SIZE, SHORT;
    DESTROY_CQ destroy_cq Initialized SHORT, NOTHING;
    QUERY_CQ query_cq Initialized SHORT, cq::query_cq_out::SIZE;
    MODIFY_CQ modify_cq Initialized cq::modify_cq_in::SIZE, NOTHING;
    CREATE_QP create_qp Initialized qp::create_qp_in::SIZE, SHORT;
    DESTROY_QP destroy_qp Initialized SHORT, NOTHING;
    QUERY_QP query_qp Initialized SHORT, QUERY_QP_OUT;
    RST2INIT_QP rst2init Initialized qp::rst2init_qp_in::SIZE, NOTHING;
    INIT2INIT_QP init2init Initialized qp::rst2init_qp_in::SIZE, NOTHING;
    INIT2RTR_QP init2rtr Initialized qp::rst2init_qp_in::SIZE, NOTHING;
    RTR2RTS_QP rtr2rts Initialized qp::rst2init_qp_in::SIZE, NOTHING;
    RTS2RTS_QP rts2rts Initialized qp::rst2init_qp_in::SIZE, NOTHING;
    SQERR2RTS_QP sqerr2rts Initialized qp::rst2init_qp_in::SIZE, NOTHING;
    SQD_RTS_QP sqd_rts Initialized qp::rst2init_qp_in::SIZE, NOTHING;
    TO_ERR_QP error Initialized SHORT, NOTHING;
    TO_RST_QP reset_qp Initialized SHORT, NOTHING;
    CREATE_RMP create_rmp Initialized rq::create_rmp_in::SIZE, SHORT;
    DESTROY_RMP destroy_rmp Initialized SHORT, NOTHING;
    QUERY_RMP query_rmp Initialized SHORT, rq::query_rmp_out::SIZE;
    MODIFY_RMP modify_rmp Initialized rq::modify_rmp_in::SIZE, NOTHING;
    CREATE_XRC_SRQ create_xrc_srq Initialized rq::create_xrc_srq_in::SIZE, SHORT;
    DESTROY_XRC_SRQ destroy_xrc_srq Initialized SHORT, NOTHING;
    QUERY_XRC_SRQ query_xrc_srq Initialized SHORT, rq::query_xrc_srq_out::SIZE;
    ARM_XRC_SRQ arm_xrc_srq Initialized SHORT, NOTHING;
    CREATE_XRQ create_xrq Initialized rq::create_xrq_in::SIZE, SHORT;
    DESTROY_XRQ destroy_xrq Initialized SHORT, NOTHING;
    QUERY_XRQ query_xrq Initialized SHORT, rq::query_xrq_out::SIZE;
    ARM_RQ arm_rq Initialized SHORT, NOTHING;
    ATTACH_TO_MCG attach Initialized mcast::attach_to_mcg_in::SIZE, NOTHING;
    DETACH_FROM_MCG detach Initialized mcast::detach_from_mcg_in::SIZE, NOTHING;
    // Ethernet.
    QUERY_NIC_VPORT_CONTEXT query_nic_vport Enabled SHORT, nic::query_nic_vport_context_out::SIZE;
    MODIFY_NIC_VPORT_CONTEXT modify_nic_vport Enabled
        nic::modify_nic_vport_context_in::SIZE, NOTHING;
    SET_ROCE_ADDRESS set_roce_address Enabled nic::set_roce_address_in::SIZE, NOTHING;
    CREATE_SQ create_sq Initialized sq::create_sq_in::SIZE, SHORT;
    MODIFY_SQ modify_sq Initialized sq::modify_sq_in::SIZE, NOTHING;
    DESTROY_SQ destroy_sq Initialized SHORT, NOTHING;
    QUERY_SQ query_sq Initialized SHORT, sq::query_sq_out::SIZE;
    CREATE_RQ create_rq Initialized sq::create_rq_in::SIZE, SHORT;
    MODIFY_RQ modify_rq Initialized sq::modify_rq_in::SIZE, NOTHING;
    DESTROY_RQ destroy_rq Initialized SHORT, NOTHING;
    QUERY_RQ query_rq Initialized SHORT, sq::query_rq_out::SIZE;
    CREATE_TIS create_tis Initialized steering::create_tis_in::SIZE, SHORT;
    MODIFY_TIS noted Initialized SHORT, NOTHING;
    DESTROY_TIS destroy_tis Initialized SHORT, NOTHING;
    CREATE_TIR create_tir Initialized steering::create_tir_in::SIZE, SHORT;
    MODIFY_TIR modify_tir Initialized steering::modify_tir_in::SIZE, NOTHING;
    DESTROY_TIR destroy_tir Initialized SHORT, NOTHING;
    CREATE_RQT create_rqt Initialized steering::create_rqt_in::SIZE, SHORT;
    MODIFY_RQT modify_rqt Initialized steering::modify_rqt_in::SIZE, NOTHING;
    DESTROY_RQT destroy_rqt Initialized SHORT, NOTHING;
    CREATE_FLOW_TABLE create_flow_table Initialized flow::create_flow_table_in::SIZE, SHORT;
    MODIFY_FLOW_TABLE modify_flow_table Initialized flow::modify_flow_table_in::SIZE, NOTHING;
    DESTROY_FLOW_TABLE destroy_flow_table Initialized flow::destroy_flow_table_in::SIZE, NOTHING;
    SET_FLOW_TABLE_ROOT set_flow_table_root Initialized flow::set_flow_table_root_in::SIZE, NOTHING;
    CREATE_FLOW_GROUP create_flow_group Initialized flow::create_flow_group_in::SIZE, SHORT;
    DESTROY_FLOW_GROUP destroy_flow_group Initialized flow::destroy_flow_group_in::SIZE, NOTHING;
    SET_FLOW_TABLE_ENTRY set_flow_entry Initialized flow::set_fte_in::SIZE, NOTHING;
    DELETE_FLOW_TABLE_ENTRY delete_flow_entry Initialized flow::delete_fte_in::SIZE, NOTHING;
    ALLOC_FLOW_COUNTER alloc_flow_counter Initialized SHORT, SHORT;
    DEALLOC_FLOW_COUNTER dealloc_flow_counter Initialized SHORT, NOTHING;
    ALLOC_PACKET_REFORMAT_CONTEXT alloc_reformat Initialized
        flow::alloc_packet_reformat_context_in::SIZE, SHORT;
    DEALLOC_PACKET_REFORMAT_CONTEXT dealloc_reformat Initialized SHORT, NOTHING;
    ALLOC_MODIFY_HEADER_CONTEXT alloc_rewrites Initialized SHORT, SHORT;
    DEALLOC_MODIFY_HEADER_CONTEXT dealloc_rewrites Initialized SHORT, NOTHING;
    QUERY_FLOW_COUNTER query_flow_counter Initialized flow::query_flow_counter_in::SIZE, SHORT;
    // Dynamic connections.
    CREATE_DCT create_dct Initialized dct::create_dct_in::SIZE, SHORT;
    DESTROY_DCT destroy_dct Initialized SHORT, NOTHING;
    DRAIN_DCT drain_dct Initialized SHORT, NOTHING;
    QUERY_DCT query_dct Initialized SHORT, dct::query_dct_out::SIZE;
    ARM_DCT_FOR_KEY_VIOLATION arm_dct Initialized SHORT, NOTHING;
    // Memory.
    CREATE_UMEM create_umem Initialized umem::create_umem_in::SIZE, SHORT;
    DESTROY_UMEM destroy_umem Initialized SHORT, NOTHING;
    CREATE_MKEY create_mkey Initialized mkey::create_mkey_in::SIZE, SHORT;
    DESTROY_MKEY destroy_mkey Initialized SHORT, NOTHING;
    ALLOC_MEMIC alloc_memic Initialized memic::alloc_memic_in::SIZE, SHORT;
    DEALLOC_MEMIC dealloc_memic Initialized memic::dealloc_memic_in::SIZE, NOTHING;
    MODIFY_MEMIC modify_memic Initialized memic::modify_memic_in::SIZE,
        memic::modify_memic_out::SIZE;
    QUERY_MKEY query_mkey Initialized SHORT, QUERY_MKEY_OUT;
    PAGE_FAULT_RESUME page_fault_resume Initialized mkey::page_fault_resume_in::SIZE, NOTHING;
};

/// Half of the maximum output: enough for every capability type except flow tables, and the length
/// that users request.
const QUERY_CAP_OUT: usize = 16 + 2048;
/// The context; the page list behind it is optional.
const QUERY_QP_OUT: usize = 272;
/// The context; the translations behind it are optional.
const QUERY_MKEY_OUT: usize = 80;
