//! Capabilities of QUERY_HCA_CAP. A capability that is not set here is 0: the device lacks it.

use uverbs_mlx5_prm::cmd::Block;
use uverbs_mlx5_prm::cmd::caps::{
    DMA_MMO_SQ, FLOW_COUNTER_BULK_LOG_MAX_ALLOC, LAG_TX_PORT_AFFINITY, LOG_DMA_MMO_MAX_SIZE,
    LOG_RESERVED_QPN_GRANULARITY, NUM_LAG_PORTS, RTS2RTS_LAG_TX_PORT_AFFINITY,
    RTS2RTS_QP_UDP_SPORT, atomic_caps, cmd_hca_cap, cmd_hca_cap_2, flow_table_fields_supported,
    flow_table_nic_cap, flow_table_prop_layout, odp_cap, odp_per_transport_service_cap,
    odp_scheme_cap, per_protocol_networking_offload_caps, roce_cap,
};
use uverbs_mlx5_prm::cmd::hca::{query_hca_cap_out, set_hca_cap_in};
use uverbs_mlx5_prm::cmd::memic::{INCREMENT_SIZES, TEST_AND_SET_SIZES, device_mem_cap};

use crate::board::bar::{DEVICE_MEMORY as IN_BAR, OPERATION_COUNT};
use crate::board::capabilities::{
    self, BF_REG_SIZE, CLOCK_KHZ, DEVICE_MEMORY_LEN, DEVICE_MEMORY_UNIT, LOG_MAX_COUNTER_ROW,
    LOG_MAX_DEVICE_MEMORY_ALIGNMENT, LOG_MAX_EQES, LOG_MAX_NUMBER, LOG_RESERVED_QPNS, MAX_COUNTERS,
    MAX_ENCAP_HEADER, MAX_EQ, MAX_RQ_DESC, MAX_SQ_DESC, MAX_STEERING, MAX_UMEM, PAGED_IN_GUEST,
    paged,
};
use crate::firmware::Firmware;
use crate::firmware::base::call::{Call, Refusal};
use crate::firmware::base::general;
use crate::firmware::device::nic::{LOG_MAX_ADDRESSES, LOG_MAX_VLANS};
use crate::hca::{DEPTH as MAX_INDIRECTION_LEVELS, HcaConfig, MAX_BLOCK, ethernet};
use uverbs_front::backend::config::Paging;

/// Capability types (Linux `include/linux/mlx5/device.h`, `mlx5_cap_type`).
pub(crate) mod kind {
    pub(crate) const GENERAL: u16 = 0;
    pub(super) const ETHERNET: u16 = 1;
    pub(super) const ODP: u16 = 2;
    pub(super) const ATOMIC: u16 = 3;
    pub(super) const ROCE: u16 = 4;
    pub(super) const FLOW_TABLE: u16 = 7;
    pub(super) const DEVICE_MEMORY: u16 = 0xf;
    pub(super) const GENERAL_2: u16 = 0x20;

    /// Type in `op_mod` of QUERY_HCA_CAP and SET_HCA_CAP. Bit 0 asks for the maximum or the current
    /// value, which are equal here.
    pub(crate) const fn of(op_mod: u16) -> u16 {
        op_mod >> 1
    }
}

/// Compare and swap, fetch and add (`MLX5_ATOMIC_OPS_*`).
const ATOMIC_OPERATIONS: u64 = 0b11;
/// Operand size: 8 bytes.
const ATOMIC_SIZE: u64 = 8;
/// Value of `port_type` for Ethernet (`MLX5_CAP_PORT_TYPE_ETH`).
const PORT_ETHERNET: u64 = 1;
/// `l3_type`: IPv4 and IPv6, one bit each from bit 1 on; `roce_version`: 1 and 2, one bit each
/// (Linux `core/lib/gid.c`, `hw/mlx5/main.c`).
const L3_TYPES: u64 = 0b110;
const ROCE_VERSIONS: u64 = 0b101;
/// UDP port of RoCEv2 (IBTA annex A17).
const ROCE_UDP_PORT: u64 = 4791;
/// Code of `pkey_table_size` for 128 entries (`mlx5_to_sw_pkey_sz`).
const PKEYS_128: u64 = 0;
/// Code of `gid_table_size` for 8 entries (`mlx5_get_gid_table_len`).
const GIDS_8: u64 = 0;
/// Operand size in bytes of operations on device memory: the byte order of longer ones is not
/// public.
const ONE_BYTE: u64 = 1;

/// Device that QUERY_HCA_CAP describes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Capabilities<'a> {
    pub(crate) vhca_id: u16,
    pub(crate) config: &'a HcaConfig,
    /// Values of SET_HCA_CAP: `atomic_req_8B_endianness_mode`, and log2 of the UARs in a page.
    pub(crate) atomic_mode: u64,
    pub(crate) log_uars_in_page: u32,
}

impl Firmware {
    pub(crate) fn query_cap(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let capabilities = Capabilities {
            vhca_id: self.profile.number,
            config: self.hca.config(),
            atomic_mode: self.atomic_mode,
            log_uars_in_page: self.simple.log_uars_in_page(),
        };
        capabilities.query(call);
        Ok(())
    }

    /// SET_HCA_CAP: a driver writes back the capabilities that it read, with changes. The only
    /// general one with an effect here is the driver's page size, by which UARs are allocated
    /// (Linux `core/main.c`, `handle_hca_cap`). Paging is always on. Of the atomic ones only the
    /// byte order can be set; the rest of that structure is zeros (`handle_hca_cap_atomic`).
    pub(crate) fn set_cap(&mut self, call: &mut Call<'_>) -> Result<(), Refusal> {
        let cap = set_hca_cap_in::CAPABILITY.of(call.input);
        match kind::of(call.op_mod) {
            kind::GENERAL => {
                self.simple.set_uars_in_page(cmd_hca_cap::LOG_UAR_PAGE_SZ.get(cap));
            }
            kind::ATOMIC => {
                self.atomic_mode = atomic_caps::ATOMIC_REQ_8B_ENDIANNESS_MODE.get(cap);
            }
            _ => {}
        }
        Ok(())
    }
}

impl Capabilities<'_> {
    /// QUERY_HCA_CAP.
    pub(crate) fn query(&self, call: &mut Call<'_>) {
        let cap = query_hca_cap_out::CAPABILITY.of_mut(call.output);
        let ethernet = self.config.is_ethernet();
        match kind::of(call.op_mod) {
            kind::GENERAL => self.general(cap),
            kind::ODP => paging(cap),
            kind::GENERAL_2 => general_2(cap, ethernet),
            kind::ATOMIC => self.atomic(cap),
            kind::DEVICE_MEMORY if self.config.device_memory => device_memory(cap),
            kind::ETHERNET if ethernet => offloads(cap),
            kind::ROCE if ethernet => self.roce(cap),
            kind::FLOW_TABLE if ethernet => flow_table(cap),
            // Silicon answers zeros for capability types that it lacks.
            _ => {}
        }
    }

    fn atomic(&self, cap: &mut [u8]) {
        atomic_caps::ATOMIC_REQ_8B_ENDIANNESS_MODE.set(cap, self.atomic_mode);
        atomic_caps::SUPPORTED_ATOMIC_REQ_8B_ENDIANNESS_MODE_1.set(cap, 1);
        atomic_caps::ATOMIC_OPERATIONS.set(cap, ATOMIC_OPERATIONS);
        atomic_caps::ATOMIC_SIZE_QP.set(cap, ATOMIC_SIZE);
        atomic_caps::ATOMIC_SIZE_DC.set(cap, ATOMIC_SIZE);
    }

    fn roce(&self, cap: &mut [u8]) {
        roce_cap::L3_TYPE.set(cap, L3_TYPES);
        roce_cap::ROCE_VERSION.set(cap, ROCE_VERSIONS);
        roce_cap::R_ROCE_DEST_UDP_PORT.set(cap, ROCE_UDP_PORT);
        roce_cap::R_ROCE_MIN_SRC_UDP_PORT.set(cap, 0xc000);
        roce_cap::R_ROCE_MAX_SRC_UDP_PORT.set(cap, 0xffff);
        roce_cap::ROCE_ADDRESS_TABLE_SIZE.set(cap, self.config.gid_table_len().into());
    }

    fn general(&self, cap: &mut [u8]) {
        self.queues(cap);
        self.memory(cap);
        self.transport(cap);
        numbers_and_doorbells(cap, self.log_uars_in_page);
        self.port(cap);
    }

    fn queues(&self, cap: &mut [u8]) {
        use cmd_hca_cap::*;
        let config = self.config;
        LOG_MAX_QP.set(cap, log2(config.max_qp));
        LOG_MAX_QP_SZ.set(cap, config.log_max_wqebbs.into());
        LOG_MAX_CQ.set(cap, log2(config.max_cq));
        LOG_MAX_CQ_SZ.set(cap, config.log_max_cqes.into());
        LOG_MAX_SRQ.set(cap, log2(config.max_srq));
        LOG_MAX_SRQ_SZ.set(cap, config.log_max_rq_entries.into());
        LOG_MAX_RMP.set(cap, log2(config.max_srq));
        LOG_MAX_EQ.set(cap, MAX_EQ.ilog2().into());
        MAX_NUM_EQS.set(cap, MAX_EQ.into());
        LOG_MAX_EQ_SZ.set(cap, LOG_MAX_EQES.into());
        MAX_WQE_SZ_SQ.set(cap, MAX_SQ_DESC.into());
        MAX_WQE_SZ_RQ.set(cap, MAX_RQ_DESC.into());
        CQE_VERSION.set(cap, 1);
        CQ_OI.set(cap, 1);
        CQ_RESIZE.set(cap, 1);
        CQE_128_ALWAYS.set(cap, 1);
        SCTR_DATA_CQE.set(cap, 1);
        // CQEs of 128 bytes may be compressed too, but this device never does it.
        CQE_COMPRESSION.set(cap, 1);
        CQE_COMPRESSION_128.set(cap, 1);
        CQE_COMPRESSION_MAX_NUM.set(cap, MAX_BLOCK as u64);
        CQ_MODERATION.set(cap, 1);
        CQ_PERIOD_MODE_MODIFY.set(cap, 1);
        CQ_PERIOD_START_FROM_CQE.set(cap, 1);
    }

    fn memory(&self, cap: &mut [u8]) {
        use cmd_hca_cap::*;
        let config = self.config;
        LOG_MAX_MKEY.set(cap, log2(config.max_mkey));
        LOG_MAX_MRW_SZ.set(cap, 64);
        LOG_MAX_KLM_LIST_SIZE.set(cap, 22);
        // UMR work requests map pages to keys, change keys, and bind windows.
        UMR_EXTENDED_TRANSLATION_OFFSET.set(cap, 1);
        IMAICL.set(cap, 1);
        DEVICE_MEMORY.set(cap, 1);
        DUMP_FILL_MKEY.set(cap, 1);
        // Page faults, and a key for all memory, whose blocks of equal length are null at first.
        PG.set(cap, 1);
        NULL_MKEY.set(cap, 1);
        FIXED_BUFFER_SIZE.set(cap, 1);
        MAX_INDIRECTION.set(cap, MAX_INDIRECTION_LEVELS.into());
    }

    /// Transport capabilities. mlx5_ib requires XRC.
    fn transport(&self, cap: &mut [u8]) {
        use cmd_hca_cap::*;
        let config = self.config;
        RC.set(cap, 1);
        UC.set(cap, 1);
        UD.set(cap, 1);
        XRC.set(cap, 1);
        DCT.set(cap, 1);
        LOG_MAX_MCG.set(cap, log2(config.max_mcast_qp));
        MAX_QP_MCG.set(cap, config.max_mcast_qp.into());
        ATOMIC.set(cap, 1);
        LOG_MAX_MSG.set(cap, log2(config.max_msg_size));
        // Requests that peers may have outstanding here, and resources of own ones (kernel
        // `main.c:mlx5_ib_query_device`, `qp.c:validate_rd_atomic`).
        LOG_MAX_RA_REQ_QP.set(cap, log2(config.max_dest_rd_atomic.into()));
        LOG_MAX_RA_RES_QP.set(cap, log2(config.max_rd_atomic.into()));
        LOG_MAX_RA_REQ_DC.set(cap, log2(config.max_dest_rd_atomic.into()));
        LOG_MAX_RA_RES_DC.set(cap, log2(config.max_dc_rd_atomic.into()));
        // On InfiniBand with an empty list, too.
        if !self.config.is_ethernet() {
            TAG_MATCHING.set(cap, 1);
            RNDV_OFFLOAD_RC.set(cap, 1);
            LOG_TAG_MATCHING_LIST_SZ.set(cap, self.config.log_max_tags().into());
        }
        QPC_EXTENSION.set(cap, 1);
        LOG_MAX_DCI_STREAM_CHANNELS.set(cap, config.log_max_dci_streams.into());
        LOG_MAX_DCI_ERRORED_STREAMS.set(cap, config.log_max_dci_streams.into());
        // Allowed to complete out of order; this device always completes in order.
        for may in [
            DP_ORDERING_OOO_ALL_RC,
            DP_ORDERING_OOO_ALL_UC,
            DP_ORDERING_OOO_ALL_UD,
            DP_ORDERING_OOO_ALL_XRC,
            DP_ORDERING_OOO_ALL_DC,
        ] {
            may.set(cap, 1);
        }
        LOCAL_CA_ACK_DELAY.set(cap, capabilities::LOCAL_CA_ACK_DELAY.into());
        if let Some(log) = config.max_copy.checked_ilog2() {
            DMA_MMO_SQ.set(cap, 1);
            LOG_DMA_MMO_MAX_SIZE.set(cap, log.into());
        }
        RTS2RTS_QP_UDP_SPORT.set(cap, 1);
        ECE_SUPPORT.set(cap, u64::from(config.ece != 0));
        if config.real_time.is_some() {
            SQ_TS_FORMAT.set(cap, 1);
            RQ_TS_FORMAT.set(cap, 1);
        }
        if config.lag_ports > 1 {
            NUM_LAG_PORTS.set(cap, config.lag_ports.into());
            LAG_TX_PORT_AFFINITY.set(cap, 1);
            RTS2RTS_LAG_TX_PORT_AFFINITY.set(cap, 1);
        }
    }

    fn port(&self, cap: &mut [u8]) {
        use cmd_hca_cap::*;
        let config = self.config;
        NUM_PORTS.set(cap, 1);
        NATIVE_PORT_NUM.set(cap, 1);
        if let Some(log_max_rq) = self.config.log_max_rq() {
            PORT_TYPE.set(cap, PORT_ETHERNET);
            ETH_NET_OFFLOADS.set(cap, 1);
            NIC_FLOW_TABLE.set(cap, 1);
            ROCE.set(cap, 1);
            DISABLE_LOCAL_LB_UC.set(cap, 1);
            DISABLE_LOCAL_LB_MC.set(cap, 1);
            let log_steering = u64::from(MAX_STEERING.ilog2());
            for field in [LOG_MAX_TIR, LOG_MAX_TIS, LOG_MAX_RQT] {
                field.set(cap, log_steering);
            }
            LOG_MAX_RQT_SIZE.set(cap, capabilities::LOG_MAX_RQT_SIZE.into());
            LOG_MAX_RQ.set(cap, log_max_rq.into());
            LOG_MAX_SQ.set(cap, log2(config.max_qp));
            LOG_MAX_TIS_PER_SQ.set(cap, 3);
            LOG_MAX_WQ_SZ.set(cap, config.log_max_wqebbs.into());
            LOG_MIN_STRIDE_SZ_SQ.set(cap, 6);
            LOG_MAX_STRIDE_SZ_SQ.set(cap, 6);
            LOG_MIN_STRIDE_SZ_RQ.set(cap, 4);
            LOG_MAX_STRIDE_SZ_RQ.set(cap, 9);
            LOG_MAX_CURRENT_UC_LIST.set(cap, LOG_MAX_ADDRESSES);
            LOG_MAX_CURRENT_MC_LIST.set(cap, LOG_MAX_ADDRESSES);
            LOG_MAX_VLAN_LIST.set(cap, LOG_MAX_VLANS);
        } else {
            // The driver queries the port by commands instead of management packets.
            IB_VIRT.set(cap, 1);
            PKEY_TABLE_SIZE.set(cap, PKEYS_128);
            GID_TABLE_SIZE.set(cap, GIDS_8);
        }
        // Further general capabilities: the clock, counters, the function's number.
        HCA_CAP_2.set(cap, 1);
        PAGE_REQUEST_DISABLE.set(cap, 1);
        DRIVER_VERSION.set(cap, 1);
        VPORT_COUNTERS.set(cap, 1);
        MAX_QP_CNT.set(cap, MAX_COUNTERS.into());
        OUT_OF_SEQ_CNT.set(cap, 1);
        RETRANSMISSION_Q_COUNTERS.set(cap, 1);
        ENHANCED_ERROR_Q_COUNTERS.set(cap, 1);
        DEVICE_FREQUENCY_KHZ.set(cap, CLOCK_KHZ);
        DEVICE_FREQUENCY_MHZ.set(cap, CLOCK_KHZ / 1000);
        VHCA_ID.set(cap, self.vhca_id.into());
    }
}

fn general_2(cap: &mut [u8], ethernet: bool) {
    cmd_hca_cap_2::DP_ORDERING_FORCE.set(cap, 1);
    LOG_RESERVED_QPN_GRANULARITY.set(cap, LOG_RESERVED_QPNS);
    if ethernet {
        FLOW_COUNTER_BULK_LOG_MAX_ALLOC.set(cap, LOG_MAX_COUNTER_ROW);
    }
}

/// Page faults are reported by queue; the scheme that reports them by memory is not offered. A
/// driver may enable the capabilities; they are always on.
fn paging(cap: &mut [u8]) {
    let scheme = odp_cap::TRANSPORT_PAGE_FAULT_SCHEME_CAP.of_mut(cap);
    let Paging { connected, uc: _, ud } = PAGED_IN_GUEST;
    for (transport, operations) in [
        (odp_scheme_cap::RC_ODP_CAPS, connected),
        (odp_scheme_cap::XRC_ODP_CAPS, connected),
        (odp_scheme_cap::DC_ODP_CAPS, connected),
        (odp_scheme_cap::UD_ODP_CAPS, ud),
    ] {
        service(transport, scheme, operations);
    }
}

fn service(transport: Block, scheme: &mut [u8], operations: u32) {
    use odp_per_transport_service_cap::*;
    let cap = transport.of_mut(scheme);
    for (field, operation) in [
        (SEND, paged::SEND),
        (RECEIVE, paged::RECEIVE),
        (WRITE, paged::WRITE),
        (READ, paged::READ),
        (ATOMIC, paged::ATOMIC),
        (SRQ_RECEIVE, paged::SRQ_RECEIVE),
    ] {
        field.set(cap, u64::from(operations & operation != 0));
    }
}

fn device_memory(cap: &mut [u8]) {
    use device_mem_cap::*;
    MEMIC.set(cap, 1);
    LOG_MIN_MEMIC_ALLOC_SIZE.set(cap, DEVICE_MEMORY_UNIT.ilog2().into());
    LOG_MAX_MEMIC_ADDR_ALIGNMENT.set(cap, LOG_MAX_DEVICE_MEMORY_ALIGNMENT.into());
    MEMIC_BAR_START_ADDR.set(cap, IN_BAR);
    MEMIC_BAR_SIZE.set(cap, DEVICE_MEMORY_LEN);
    MAX_MEMIC_SIZE.set(cap, DEVICE_MEMORY_LEN);
    MEMIC_OPERATIONS.set(cap, (1 << OPERATION_COUNT) - 1);
    INCREMENT_SIZES.set(cap, ONE_BYTE);
    TEST_AND_SET_SIZES.set(cap, ONE_BYTE);
}

fn offloads(cap: &mut [u8]) {
    use per_protocol_networking_offload_caps::*;
    CSUM_CAP.set(cap, 1);
    VLAN_CAP.set(cap, 1);
    MAX_LSO_CAP.set(cap, 16);
    RSS_IND_TBL_CAP.set(cap, 1);
    SELF_LB_EN_MODIFIABLE.set(cap, 1);
}

fn flow_table(cap: &mut [u8]) {
    use flow_table_nic_cap::*;
    let log_steering = u64::from(MAX_STEERING.ilog2());
    ENCAP_GENERAL_HEADER.set(cap, 1);
    LOG_MAX_PACKET_REFORMAT_CONTEXT.set(cap, log_steering);
    MAX_ENCAP_HEADER_SIZE.set(cap, MAX_ENCAP_HEADER as u64);
    use flow_table_prop_layout::*;
    let receive = FLOW_TABLE_PROPERTIES_NIC_RECEIVE.of_mut(cap);
    flow_tables(receive);
    for able in [DECAP, REFORMAT_L3_TUNNEL_TO_L2] {
        able.set(receive, 1);
    }
    let transmit = FLOW_TABLE_PROPERTIES_NIC_TRANSMIT.of_mut(cap);
    flow_tables(transmit);
    REFORMAT_L2_TO_L3_TUNNEL.set(transmit, 1);
}

/// Capabilities of a direction's flow tables.
fn flow_tables(cap: &mut [u8]) {
    use flow_table_prop_layout::*;
    for able in [
        FT_SUPPORT,
        FLOW_COUNTER,
        FLOW_MODIFY_EN,
        MODIFY_ROOT,
        IDENTIFIED_MISS_TABLE_MODE,
        FLOW_TABLE_MODIFY,
        REFORMAT,
        REFORMAT_AND_MODIFY_ACTION,
        REFORMAT_AND_FWD_TO_TABLE,
    ] {
        able.set(cap, 1);
    }
    let log_steering = u64::from(MAX_STEERING.ilog2());
    LOG_MAX_MODIFY_HEADER_CONTEXT.set(cap, log_steering);
    MAX_MODIFY_HEADER_ACTIONS.set(cap, ethernet::MAX_REWRITES as u64);
    MAX_FT_LEVEL.set(cap, ethernet::MAX_LEVEL.into());
    LOG_MAX_FT_SIZE.set(cap, ethernet::LOG_MAX_SIZE.into());
    LOG_MAX_FT_NUM.set(cap, log_steering);
    LOG_MAX_DESTINATION.set(cap, ethernet::MAX_DESTINATIONS.ilog2().into());
    LOG_MAX_FLOW.set(cap, ethernet::MAX_ENTRIES.ilog2().into());
    LOG_MAX_FLOW_COUNTER.set(cap, log_steering);
    let fields = FT_FIELD_SUPPORT.of_mut(cap);
    for (_, field) in flow_table_fields_supported::FIELDS {
        field.set(fields, 1);
    }
}

/// Object numbers and doorbell pages: a UAR for each 4 KiB, no BlueFlame. A larger page of the
/// driver contains several UARs.
fn numbers_and_doorbells(cap: &mut [u8], log_uars_in_page: u32) {
    use cmd_hca_cap::*;
    for field in [LOG_MAX_PD, LOG_MAX_XRCD, LOG_MAX_TRANSPORT_DOMAIN] {
        field.set(cap, LOG_MAX_NUMBER.into());
    }
    GENERAL_OBJ_TYPES.set(cap, general::KINDS);
    FAST_TEARDOWN.set(cap, 1);
    FORCE_TEARDOWN.set(cap, 1);
    LOG_MAX_UMEM.set(cap, MAX_UMEM.ilog2().into());
    LOG_MAX_UCTX.set(cap, capabilities::LOG_MAX_UCTX.into());
    UAR_4K.set(cap, 1);
    LOG_PG_SZ.set(cap, 12);
    LOG_UAR_PAGE_SZ.set(cap, log_uars_in_page.into());
    NUM_OF_UARS_PER_PAGE.set(cap, 1 << log_uars_in_page);
    UAR_SZ.set(cap, 5);
    // Set although BlueFlame is off: Linux's own queue pairs alternate between the two halves of a
    // register (`mlx5_ib_post_send`).
    LOG_BF_REG_SIZE.set(cap, BF_REG_SIZE.ilog2().into());
}

/// Log2, rounded down.
fn log2(count: u32) -> u64 {
    count.max(1).ilog2().into()
}
