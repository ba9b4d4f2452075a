//! Command opcodes, and status codes of the device.

use crate::bits::named;

named! {
    /// Command (Linux `include/linux/mlx5/mlx5_ifc.h`, `MLX5_CMD_OP_*`). Two names that start with
    /// a digit there start with `TO_` here.
    pub struct CmdOpcode(u16) {
        /// `MLX5_CMD_OP_QUERY_HCA_CAP`.
        QUERY_HCA_CAP = 0x100,
        /// `MLX5_CMD_OP_QUERY_ADAPTER`.
        QUERY_ADAPTER = 0x101,
        /// `MLX5_CMD_OP_INIT_HCA`.
        INIT_HCA = 0x102,
        /// `MLX5_CMD_OP_TEARDOWN_HCA`.
        TEARDOWN_HCA = 0x103,
        /// `MLX5_CMD_OP_ENABLE_HCA`.
        ENABLE_HCA = 0x104,
        /// `MLX5_CMD_OP_DISABLE_HCA`.
        DISABLE_HCA = 0x105,
        /// `MLX5_CMD_OP_QUERY_PAGES`.
        QUERY_PAGES = 0x107,
        /// `MLX5_CMD_OP_MANAGE_PAGES`.
        MANAGE_PAGES = 0x108,
        /// `MLX5_CMD_OP_SET_HCA_CAP`.
        SET_HCA_CAP = 0x109,
        /// `MLX5_CMD_OP_QUERY_ISSI`.
        QUERY_ISSI = 0x10a,
        /// `MLX5_CMD_OP_SET_ISSI`.
        SET_ISSI = 0x10b,
        /// `MLX5_CMD_OP_SET_DRIVER_VERSION`.
        SET_DRIVER_VERSION = 0x10d,
        /// `MLX5_CMD_OP_QUERY_SF_PARTITION`.
        QUERY_SF_PARTITION = 0x111,
        /// `MLX5_CMD_OP_ALLOC_SF`.
        ALLOC_SF = 0x113,
        /// `MLX5_CMD_OP_DEALLOC_SF`.
        DEALLOC_SF = 0x114,
        /// `MLX5_CMD_OP_SUSPEND_VHCA`.
        SUSPEND_VHCA = 0x115,
        /// `MLX5_CMD_OP_RESUME_VHCA`.
        RESUME_VHCA = 0x116,
        /// `MLX5_CMD_OP_QUERY_VHCA_MIGRATION_STATE`.
        QUERY_VHCA_MIGRATION_STATE = 0x117,
        /// `MLX5_CMD_OP_SAVE_VHCA_STATE`.
        SAVE_VHCA_STATE = 0x118,
        /// `MLX5_CMD_OP_LOAD_VHCA_STATE`.
        LOAD_VHCA_STATE = 0x119,
        /// `MLX5_CMD_OP_CREATE_MKEY`.
        CREATE_MKEY = 0x200,
        /// `MLX5_CMD_OP_QUERY_MKEY`.
        QUERY_MKEY = 0x201,
        /// `MLX5_CMD_OP_DESTROY_MKEY`.
        DESTROY_MKEY = 0x202,
        /// `MLX5_CMD_OP_QUERY_SPECIAL_CONTEXTS`.
        QUERY_SPECIAL_CONTEXTS = 0x203,
        /// `MLX5_CMD_OP_PAGE_FAULT_RESUME`.
        PAGE_FAULT_RESUME = 0x204,
        /// `MLX5_CMD_OP_ALLOC_MEMIC`.
        ALLOC_MEMIC = 0x205,
        /// `MLX5_CMD_OP_DEALLOC_MEMIC`.
        DEALLOC_MEMIC = 0x206,
        /// `MLX5_CMD_OP_MODIFY_MEMIC`.
        MODIFY_MEMIC = 0x207,
        /// `MLX5_CMD_OP_CREATE_EQ`.
        CREATE_EQ = 0x301,
        /// `MLX5_CMD_OP_DESTROY_EQ`.
        DESTROY_EQ = 0x302,
        /// `MLX5_CMD_OP_QUERY_EQ`.
        QUERY_EQ = 0x303,
        /// `MLX5_CMD_OP_GEN_EQE`.
        GEN_EQE = 0x304,
        /// `MLX5_CMD_OP_CREATE_CQ`.
        CREATE_CQ = 0x400,
        /// `MLX5_CMD_OP_DESTROY_CQ`.
        DESTROY_CQ = 0x401,
        /// `MLX5_CMD_OP_QUERY_CQ`.
        QUERY_CQ = 0x402,
        /// `MLX5_CMD_OP_MODIFY_CQ`.
        MODIFY_CQ = 0x403,
        /// `MLX5_CMD_OP_CREATE_QP`.
        CREATE_QP = 0x500,
        /// `MLX5_CMD_OP_DESTROY_QP`.
        DESTROY_QP = 0x501,
        /// `MLX5_CMD_OP_RST2INIT_QP`.
        RST2INIT_QP = 0x502,
        /// `MLX5_CMD_OP_INIT2RTR_QP`.
        INIT2RTR_QP = 0x503,
        /// `MLX5_CMD_OP_RTR2RTS_QP`.
        RTR2RTS_QP = 0x504,
        /// `MLX5_CMD_OP_RTS2RTS_QP`.
        RTS2RTS_QP = 0x505,
        /// `MLX5_CMD_OP_SQERR2RTS_QP`.
        SQERR2RTS_QP = 0x506,
        /// `MLX5_CMD_OP_2ERR_QP`.
        TO_ERR_QP = 0x507,
        /// `MLX5_CMD_OP_2RST_QP`.
        TO_RST_QP = 0x50a,
        /// `MLX5_CMD_OP_QUERY_QP`.
        QUERY_QP = 0x50b,
        /// `MLX5_CMD_OP_SQD_RTS_QP`.
        SQD_RTS_QP = 0x50c,
        /// `MLX5_CMD_OP_MAD_IFC`.
        MAD_IFC = 0x50d,
        /// `MLX5_CMD_OP_INIT2INIT_QP`.
        INIT2INIT_QP = 0x50e,
        /// `MLX5_CMD_OP_CREATE_PSV`.
        CREATE_PSV = 0x600,
        /// `MLX5_CMD_OP_DESTROY_PSV`.
        DESTROY_PSV = 0x601,
        /// `MLX5_CMD_OP_CREATE_SRQ`.
        CREATE_SRQ = 0x700,
        /// `MLX5_CMD_OP_DESTROY_SRQ`.
        DESTROY_SRQ = 0x701,
        /// `MLX5_CMD_OP_QUERY_SRQ`.
        QUERY_SRQ = 0x702,
        /// `MLX5_CMD_OP_ARM_RQ`.
        ARM_RQ = 0x703,
        /// `MLX5_CMD_OP_CREATE_XRC_SRQ`.
        CREATE_XRC_SRQ = 0x705,
        /// `MLX5_CMD_OP_DESTROY_XRC_SRQ`.
        DESTROY_XRC_SRQ = 0x706,
        /// `MLX5_CMD_OP_QUERY_XRC_SRQ`.
        QUERY_XRC_SRQ = 0x707,
        /// `MLX5_CMD_OP_ARM_XRC_SRQ`.
        ARM_XRC_SRQ = 0x708,
        /// `MLX5_CMD_OP_CREATE_DCT`.
        CREATE_DCT = 0x710,
        /// `MLX5_CMD_OP_DESTROY_DCT`.
        DESTROY_DCT = 0x711,
        /// `MLX5_CMD_OP_DRAIN_DCT`.
        DRAIN_DCT = 0x712,
        /// `MLX5_CMD_OP_QUERY_DCT`.
        QUERY_DCT = 0x713,
        /// `MLX5_CMD_OP_ARM_DCT_FOR_KEY_VIOLATION`.
        ARM_DCT_FOR_KEY_VIOLATION = 0x714,
        /// `MLX5_CMD_OP_CREATE_XRQ`.
        CREATE_XRQ = 0x717,
        /// `MLX5_CMD_OP_DESTROY_XRQ`.
        DESTROY_XRQ = 0x718,
        /// `MLX5_CMD_OP_QUERY_XRQ`.
        QUERY_XRQ = 0x719,
        /// `MLX5_CMD_OP_ARM_XRQ`.
        ARM_XRQ = 0x71a,
        /// `MLX5_CMD_OP_QUERY_XRQ_DC_PARAMS_ENTRY`.
        QUERY_XRQ_DC_PARAMS_ENTRY = 0x725,
        /// `MLX5_CMD_OP_SET_XRQ_DC_PARAMS_ENTRY`.
        SET_XRQ_DC_PARAMS_ENTRY = 0x726,
        /// `MLX5_CMD_OP_QUERY_XRQ_ERROR_PARAMS`.
        QUERY_XRQ_ERROR_PARAMS = 0x727,
        /// `MLX5_CMD_OP_RELEASE_XRQ_ERROR`.
        RELEASE_XRQ_ERROR = 0x729,
        /// `MLX5_CMD_OP_MODIFY_XRQ`.
        MODIFY_XRQ = 0x72a,
        /// `MLX5_CMD_OP_QUERY_ESW_FUNCTIONS`.
        QUERY_ESW_FUNCTIONS = 0x740,
        /// `MLX5_CMD_OP_QUERY_VPORT_STATE`.
        QUERY_VPORT_STATE = 0x750,
        /// `MLX5_CMD_OP_MODIFY_VPORT_STATE`.
        MODIFY_VPORT_STATE = 0x751,
        /// `MLX5_CMD_OP_QUERY_ESW_VPORT_CONTEXT`.
        QUERY_ESW_VPORT_CONTEXT = 0x752,
        /// `MLX5_CMD_OP_MODIFY_ESW_VPORT_CONTEXT`.
        MODIFY_ESW_VPORT_CONTEXT = 0x753,
        /// `MLX5_CMD_OP_QUERY_NIC_VPORT_CONTEXT`.
        QUERY_NIC_VPORT_CONTEXT = 0x754,
        /// `MLX5_CMD_OP_MODIFY_NIC_VPORT_CONTEXT`.
        MODIFY_NIC_VPORT_CONTEXT = 0x755,
        /// `MLX5_CMD_OP_QUERY_ROCE_ADDRESS`.
        QUERY_ROCE_ADDRESS = 0x760,
        /// `MLX5_CMD_OP_SET_ROCE_ADDRESS`.
        SET_ROCE_ADDRESS = 0x761,
        /// `MLX5_CMD_OP_QUERY_HCA_VPORT_CONTEXT`.
        QUERY_HCA_VPORT_CONTEXT = 0x762,
        /// `MLX5_CMD_OP_MODIFY_HCA_VPORT_CONTEXT`.
        MODIFY_HCA_VPORT_CONTEXT = 0x763,
        /// `MLX5_CMD_OP_QUERY_HCA_VPORT_GID`.
        QUERY_HCA_VPORT_GID = 0x764,
        /// `MLX5_CMD_OP_QUERY_HCA_VPORT_PKEY`.
        QUERY_HCA_VPORT_PKEY = 0x765,
        /// `MLX5_CMD_OP_QUERY_VNIC_ENV`.
        QUERY_VNIC_ENV = 0x76f,
        /// `MLX5_CMD_OP_QUERY_VPORT_COUNTER`.
        QUERY_VPORT_COUNTER = 0x770,
        /// `MLX5_CMD_OP_ALLOC_Q_COUNTER`.
        ALLOC_Q_COUNTER = 0x771,
        /// `MLX5_CMD_OP_DEALLOC_Q_COUNTER`.
        DEALLOC_Q_COUNTER = 0x772,
        /// `MLX5_CMD_OP_QUERY_Q_COUNTER`.
        QUERY_Q_COUNTER = 0x773,
        /// `MLX5_CMD_OP_SET_MONITOR_COUNTER`.
        SET_MONITOR_COUNTER = 0x774,
        /// `MLX5_CMD_OP_ARM_MONITOR_COUNTER`.
        ARM_MONITOR_COUNTER = 0x775,
        /// `MLX5_CMD_OP_SET_PP_RATE_LIMIT`.
        SET_PP_RATE_LIMIT = 0x780,
        /// `MLX5_CMD_OP_QUERY_RATE_LIMIT`.
        QUERY_RATE_LIMIT = 0x781,
        /// `MLX5_CMD_OP_CREATE_SCHEDULING_ELEMENT`.
        CREATE_SCHEDULING_ELEMENT = 0x782,
        /// `MLX5_CMD_OP_DESTROY_SCHEDULING_ELEMENT`.
        DESTROY_SCHEDULING_ELEMENT = 0x783,
        /// `MLX5_CMD_OP_QUERY_SCHEDULING_ELEMENT`.
        QUERY_SCHEDULING_ELEMENT = 0x784,
        /// `MLX5_CMD_OP_MODIFY_SCHEDULING_ELEMENT`.
        MODIFY_SCHEDULING_ELEMENT = 0x785,
        /// `MLX5_CMD_OP_CREATE_QOS_PARA_VPORT`.
        CREATE_QOS_PARA_VPORT = 0x786,
        /// `MLX5_CMD_OP_DESTROY_QOS_PARA_VPORT`.
        DESTROY_QOS_PARA_VPORT = 0x787,
        /// `MLX5_CMD_OP_ALLOC_PD`.
        ALLOC_PD = 0x800,
        /// `MLX5_CMD_OP_DEALLOC_PD`.
        DEALLOC_PD = 0x801,
        /// `MLX5_CMD_OP_ALLOC_UAR`.
        ALLOC_UAR = 0x802,
        /// `MLX5_CMD_OP_DEALLOC_UAR`.
        DEALLOC_UAR = 0x803,
        /// `MLX5_CMD_OP_CONFIG_INT_MODERATION`.
        CONFIG_INT_MODERATION = 0x804,
        /// `MLX5_CMD_OP_ACCESS_REG`.
        ACCESS_REG = 0x805,
        /// `MLX5_CMD_OP_ATTACH_TO_MCG`.
        ATTACH_TO_MCG = 0x806,
        /// `MLX5_CMD_OP_DETACH_FROM_MCG`.
        DETACH_FROM_MCG = 0x807,
        /// `MLX5_CMD_OP_GET_DROPPED_PACKET_LOG`.
        GET_DROPPED_PACKET_LOG = 0x80a,
        /// `MLX5_CMD_OP_QUERY_MAD_DEMUX`.
        QUERY_MAD_DEMUX = 0x80b,
        /// `MLX5_CMD_OP_SET_MAD_DEMUX`.
        SET_MAD_DEMUX = 0x80c,
        /// `MLX5_CMD_OP_NOP`.
        NOP = 0x80d,
        /// `MLX5_CMD_OP_ALLOC_XRCD`.
        ALLOC_XRCD = 0x80e,
        /// `MLX5_CMD_OP_DEALLOC_XRCD`.
        DEALLOC_XRCD = 0x80f,
        /// `MLX5_CMD_OP_ALLOC_TRANSPORT_DOMAIN`.
        ALLOC_TRANSPORT_DOMAIN = 0x816,
        /// `MLX5_CMD_OP_DEALLOC_TRANSPORT_DOMAIN`.
        DEALLOC_TRANSPORT_DOMAIN = 0x817,
        /// `MLX5_CMD_OP_QUERY_CONG_STATUS`.
        QUERY_CONG_STATUS = 0x822,
        /// `MLX5_CMD_OP_MODIFY_CONG_STATUS`.
        MODIFY_CONG_STATUS = 0x823,
        /// `MLX5_CMD_OP_QUERY_CONG_PARAMS`.
        QUERY_CONG_PARAMS = 0x824,
        /// `MLX5_CMD_OP_MODIFY_CONG_PARAMS`.
        MODIFY_CONG_PARAMS = 0x825,
        /// `MLX5_CMD_OP_QUERY_CONG_STATISTICS`.
        QUERY_CONG_STATISTICS = 0x826,
        /// `MLX5_CMD_OP_ADD_VXLAN_UDP_DPORT`.
        ADD_VXLAN_UDP_DPORT = 0x827,
        /// `MLX5_CMD_OP_DELETE_VXLAN_UDP_DPORT`.
        DELETE_VXLAN_UDP_DPORT = 0x828,
        /// `MLX5_CMD_OP_SET_L2_TABLE_ENTRY`.
        SET_L2_TABLE_ENTRY = 0x829,
        /// `MLX5_CMD_OP_QUERY_L2_TABLE_ENTRY`.
        QUERY_L2_TABLE_ENTRY = 0x82a,
        /// `MLX5_CMD_OP_DELETE_L2_TABLE_ENTRY`.
        DELETE_L2_TABLE_ENTRY = 0x82b,
        /// `MLX5_CMD_OP_SET_WOL_ROL`.
        SET_WOL_ROL = 0x830,
        /// `MLX5_CMD_OP_QUERY_WOL_ROL`.
        QUERY_WOL_ROL = 0x831,
        /// `MLX5_CMD_OP_CREATE_LAG`.
        CREATE_LAG = 0x840,
        /// `MLX5_CMD_OP_MODIFY_LAG`.
        MODIFY_LAG = 0x841,
        /// `MLX5_CMD_OP_QUERY_LAG`.
        QUERY_LAG = 0x842,
        /// `MLX5_CMD_OP_DESTROY_LAG`.
        DESTROY_LAG = 0x843,
        /// `MLX5_CMD_OP_CREATE_VPORT_LAG`.
        CREATE_VPORT_LAG = 0x844,
        /// `MLX5_CMD_OP_DESTROY_VPORT_LAG`.
        DESTROY_VPORT_LAG = 0x845,
        /// `MLX5_CMD_OP_CREATE_TIR`.
        CREATE_TIR = 0x900,
        /// `MLX5_CMD_OP_MODIFY_TIR`.
        MODIFY_TIR = 0x901,
        /// `MLX5_CMD_OP_DESTROY_TIR`.
        DESTROY_TIR = 0x902,
        /// `MLX5_CMD_OP_QUERY_TIR`.
        QUERY_TIR = 0x903,
        /// `MLX5_CMD_OP_CREATE_SQ`.
        CREATE_SQ = 0x904,
        /// `MLX5_CMD_OP_MODIFY_SQ`.
        MODIFY_SQ = 0x905,
        /// `MLX5_CMD_OP_DESTROY_SQ`.
        DESTROY_SQ = 0x906,
        /// `MLX5_CMD_OP_QUERY_SQ`.
        QUERY_SQ = 0x907,
        /// `MLX5_CMD_OP_CREATE_RQ`.
        CREATE_RQ = 0x908,
        /// `MLX5_CMD_OP_MODIFY_RQ`.
        MODIFY_RQ = 0x909,
        /// `MLX5_CMD_OP_DESTROY_RQ`.
        DESTROY_RQ = 0x90a,
        /// `MLX5_CMD_OP_QUERY_RQ`.
        QUERY_RQ = 0x90b,
        /// `MLX5_CMD_OP_CREATE_RMP`.
        CREATE_RMP = 0x90c,
        /// `MLX5_CMD_OP_MODIFY_RMP`.
        MODIFY_RMP = 0x90d,
        /// `MLX5_CMD_OP_DESTROY_RMP`.
        DESTROY_RMP = 0x90e,
        /// `MLX5_CMD_OP_QUERY_RMP`.
        QUERY_RMP = 0x90f,
        /// `MLX5_CMD_OP_SET_DELAY_DROP_PARAMS`.
        SET_DELAY_DROP_PARAMS = 0x910,
        /// `MLX5_CMD_OP_CREATE_TIS`.
        CREATE_TIS = 0x912,
        /// `MLX5_CMD_OP_MODIFY_TIS`.
        MODIFY_TIS = 0x913,
        /// `MLX5_CMD_OP_DESTROY_TIS`.
        DESTROY_TIS = 0x914,
        /// `MLX5_CMD_OP_QUERY_TIS`.
        QUERY_TIS = 0x915,
        /// `MLX5_CMD_OP_CREATE_RQT`.
        CREATE_RQT = 0x916,
        /// `MLX5_CMD_OP_MODIFY_RQT`.
        MODIFY_RQT = 0x917,
        /// `MLX5_CMD_OP_DESTROY_RQT`.
        DESTROY_RQT = 0x918,
        /// `MLX5_CMD_OP_QUERY_RQT`.
        QUERY_RQT = 0x919,
        /// `MLX5_CMD_OP_SET_FLOW_TABLE_ROOT`.
        SET_FLOW_TABLE_ROOT = 0x92f,
        /// `MLX5_CMD_OP_CREATE_FLOW_TABLE`.
        CREATE_FLOW_TABLE = 0x930,
        /// `MLX5_CMD_OP_DESTROY_FLOW_TABLE`.
        DESTROY_FLOW_TABLE = 0x931,
        /// `MLX5_CMD_OP_QUERY_FLOW_TABLE`.
        QUERY_FLOW_TABLE = 0x932,
        /// `MLX5_CMD_OP_CREATE_FLOW_GROUP`.
        CREATE_FLOW_GROUP = 0x933,
        /// `MLX5_CMD_OP_DESTROY_FLOW_GROUP`.
        DESTROY_FLOW_GROUP = 0x934,
        /// `MLX5_CMD_OP_QUERY_FLOW_GROUP`.
        QUERY_FLOW_GROUP = 0x935,
        /// `MLX5_CMD_OP_SET_FLOW_TABLE_ENTRY`.
        SET_FLOW_TABLE_ENTRY = 0x936,
        /// `MLX5_CMD_OP_QUERY_FLOW_TABLE_ENTRY`.
        QUERY_FLOW_TABLE_ENTRY = 0x937,
        /// `MLX5_CMD_OP_DELETE_FLOW_TABLE_ENTRY`.
        DELETE_FLOW_TABLE_ENTRY = 0x938,
        /// `MLX5_CMD_OP_ALLOC_FLOW_COUNTER`.
        ALLOC_FLOW_COUNTER = 0x939,
        /// `MLX5_CMD_OP_DEALLOC_FLOW_COUNTER`.
        DEALLOC_FLOW_COUNTER = 0x93a,
        /// `MLX5_CMD_OP_QUERY_FLOW_COUNTER`.
        QUERY_FLOW_COUNTER = 0x93b,
        /// `MLX5_CMD_OP_MODIFY_FLOW_TABLE`.
        MODIFY_FLOW_TABLE = 0x93c,
        /// `MLX5_CMD_OP_ALLOC_PACKET_REFORMAT_CONTEXT`.
        ALLOC_PACKET_REFORMAT_CONTEXT = 0x93d,
        /// `MLX5_CMD_OP_DEALLOC_PACKET_REFORMAT_CONTEXT`.
        DEALLOC_PACKET_REFORMAT_CONTEXT = 0x93e,
        /// `MLX5_CMD_OP_QUERY_PACKET_REFORMAT_CONTEXT`.
        QUERY_PACKET_REFORMAT_CONTEXT = 0x93f,
        /// `MLX5_CMD_OP_ALLOC_MODIFY_HEADER_CONTEXT`.
        ALLOC_MODIFY_HEADER_CONTEXT = 0x940,
        /// `MLX5_CMD_OP_DEALLOC_MODIFY_HEADER_CONTEXT`.
        DEALLOC_MODIFY_HEADER_CONTEXT = 0x941,
        /// `MLX5_CMD_OP_QUERY_MODIFY_HEADER_CONTEXT`.
        QUERY_MODIFY_HEADER_CONTEXT = 0x942,
        /// `MLX5_CMD_OP_FPGA_CREATE_QP`.
        FPGA_CREATE_QP = 0x960,
        /// `MLX5_CMD_OP_FPGA_MODIFY_QP`.
        FPGA_MODIFY_QP = 0x961,
        /// `MLX5_CMD_OP_FPGA_QUERY_QP`.
        FPGA_QUERY_QP = 0x962,
        /// `MLX5_CMD_OP_FPGA_DESTROY_QP`.
        FPGA_DESTROY_QP = 0x963,
        /// `MLX5_CMD_OP_FPGA_QUERY_QP_COUNTERS`.
        FPGA_QUERY_QP_COUNTERS = 0x964,
        /// `MLX5_CMD_OP_CREATE_GENERAL_OBJECT`.
        CREATE_GENERAL_OBJECT = 0xa00,
        /// `MLX5_CMD_OP_MODIFY_GENERAL_OBJECT`.
        MODIFY_GENERAL_OBJECT = 0xa01,
        /// `MLX5_CMD_OP_QUERY_GENERAL_OBJECT`.
        QUERY_GENERAL_OBJECT = 0xa02,
        /// `MLX5_CMD_OP_DESTROY_GENERAL_OBJECT`.
        DESTROY_GENERAL_OBJECT = 0xa03,
        /// `MLX5_CMD_OP_CREATE_UCTX`.
        CREATE_UCTX = 0xa04,
        /// `MLX5_CMD_OP_DESTROY_UCTX`.
        DESTROY_UCTX = 0xa06,
        /// `MLX5_CMD_OP_CREATE_UMEM`.
        CREATE_UMEM = 0xa08,
        /// `MLX5_CMD_OP_DESTROY_UMEM`.
        DESTROY_UMEM = 0xa0a,
        /// `MLX5_CMD_OP_SYNC_STEERING`.
        SYNC_STEERING = 0xb00,
        /// `MLX5_CMD_OP_QUERY_VHCA_STATE`.
        QUERY_VHCA_STATE = 0xb0d,
        /// `MLX5_CMD_OP_MODIFY_VHCA_STATE`.
        MODIFY_VHCA_STATE = 0xb0e,
        /// `MLX5_CMD_OP_PSP_GEN_SPI`.
        PSP_GEN_SPI = 0xb10,
        /// `MLX5_CMD_OP_PSP_ROTATE_KEY`.
        PSP_ROTATE_KEY = 0xb11,
        /// `MLX5_CMD_OP_SYNC_CRYPTO`.
        SYNC_CRYPTO = 0xb12,
        /// `MLX5_CMD_OP_ALLOW_OTHER_VHCA_ACCESS`.
        ALLOW_OTHER_VHCA_ACCESS = 0xb16,
        /// `MLX5_CMD_OP_GENERATE_WQE`.
        GENERATE_WQE = 0xb17,
    }
}

named! {
    /// Status of a command (Linux `include/linux/mlx5/device.h`, `MLX5_CMD_STAT_*`).
    pub struct CmdStatus(u8) {
        /// Success.
        OK = 0x0,
        /// Internal error.
        INT_ERR = 0x1,
        /// Bad or unsupported opcode.
        BAD_OP_ERR = 0x2,
        /// Bad parameter.
        BAD_PARAM_ERR = 0x3,
        /// The device is not initialised.
        BAD_SYS_STATE_ERR = 0x4,
        /// The resource does not exist, or can't be used so.
        BAD_RES_ERR = 0x5,
        /// The resource is in use.
        RES_BUSY = 0x6,
        /// Not ready.
        NOT_READY = 0x7,
        /// Limit exceeded.
        LIM_ERR = 0x8,
        /// The resource is in the wrong state.
        BAD_RES_STATE_ERR = 0x9,
        /// Index out of range.
        IX_ERR = 0xa,
        /// Out of resources.
        NO_RES_ERR = 0xf,
        /// The queue pair is in the wrong state.
        BAD_QP_STATE_ERR = 0x10,
        /// Bad packet.
        BAD_PKT_ERR = 0x30,
        /// More completions outstanding than the new queue holds.
        BAD_SIZE_OUTS_CQES_ERR = 0x40,
        /// Input too short.
        BAD_INP_LEN_ERR = 0x50,
        /// Output too short.
        BAD_OUTP_LEN_ERR = 0x51,
    }
}

named! {
    /// Delivery status of a command (Linux `drivers/net/ethernet/mellanox/mlx5/core/cmd.c`,
    /// `MLX5_CMD_DELIVERY_STAT_*`).
    pub struct Delivery(u8) {
        /// Delivered.
        OK = 0x0,
        /// Bad signature.
        SIGNAT_ERR = 0x1,
        /// A mailbox has a wrong token.
        TOK_ERR = 0x2,
        /// A mailbox has a wrong number.
        BAD_BLK_NUM_ERR = 0x3,
        /// The output's mailboxes are misaligned.
        OUT_PTR_ALIGN_ERR = 0x4,
        /// The input's mailboxes are misaligned.
        IN_PTR_ALIGN_ERR = 0x5,
        /// Firmware error.
        FW_ERR = 0x6,
        /// Bad input length.
        IN_LENGTH_ERR = 0x7,
        /// Bad output length.
        OUT_LENGTH_ERR = 0x8,
        /// A reserved field is not zero.
        RES_FLD_NOT_CLR_ERR = 0x9,
        /// Bad command entry.
        CMD_DESCR_ERR = 0x10,
    }
}
