//! RDMA netlink, `NETLINK_RDMA`: discovery of devices (`rdma_netlink.h`).
//!
//! The iWARP port mapper and the local path service, which daemons use, are left out.

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

// Clients.
pub const RDMA_NL_IWCM: u32 = 2;
pub const RDMA_NL_RSVD: u32 = 3;
pub const RDMA_NL_LS: u32 = 4;
pub const RDMA_NL_NLDEV: u32 = 5;
pub const RDMA_NL_NUM_CLIENTS: u32 = 6;

// Multicast groups.
pub const RDMA_NL_GROUP_IWPM: u32 = 2;
pub const RDMA_NL_GROUP_LS: u32 = 3;
pub const RDMA_NL_NUM_GROUPS: u32 = 4;

/// `nlmsg_type` of operation `op` of `client`.
#[expect(non_snake_case, reason = "a macro of the header")]
pub const fn RDMA_NL_GET_TYPE(client: u32, op: u32) -> u16 {
    ((client & 0x3f) << 10 | op & 0x3ff) as u16
}

/// The client of a `nlmsg_type`.
#[expect(non_snake_case, reason = "a macro of the header")]
pub const fn RDMA_NL_GET_CLIENT(nlmsg_type: u16) -> u32 {
    (nlmsg_type >> 10) as u32
}

/// The operation of a `nlmsg_type`.
#[expect(non_snake_case, reason = "a macro of the header")]
pub const fn RDMA_NL_GET_OP(nlmsg_type: u16) -> u32 {
    (nlmsg_type & 0x3ff) as u32
}

// Operations of RDMA_NL_NLDEV.
pub const RDMA_NLDEV_CMD_UNSPEC: u32 = 0;
pub const RDMA_NLDEV_CMD_GET: u32 = 1;
pub const RDMA_NLDEV_CMD_SET: u32 = 2;
pub const RDMA_NLDEV_CMD_NEWLINK: u32 = 3;
pub const RDMA_NLDEV_CMD_DELLINK: u32 = 4;
pub const RDMA_NLDEV_CMD_PORT_GET: u32 = 5;
pub const RDMA_NLDEV_CMD_SYS_GET: u32 = 6;
pub const RDMA_NLDEV_CMD_SYS_SET: u32 = 7;
pub const RDMA_NLDEV_CMD_RES_GET: u32 = 9;
pub const RDMA_NLDEV_CMD_RES_QP_GET: u32 = 10;
pub const RDMA_NLDEV_CMD_RES_CM_ID_GET: u32 = 11;
pub const RDMA_NLDEV_CMD_RES_CQ_GET: u32 = 12;
pub const RDMA_NLDEV_CMD_RES_MR_GET: u32 = 13;
pub const RDMA_NLDEV_CMD_RES_PD_GET: u32 = 14;
pub const RDMA_NLDEV_CMD_GET_CHARDEV: u32 = 15;
pub const RDMA_NLDEV_CMD_STAT_SET: u32 = 16;
pub const RDMA_NLDEV_CMD_STAT_GET: u32 = 17;
pub const RDMA_NLDEV_CMD_STAT_DEL: u32 = 18;
pub const RDMA_NLDEV_CMD_RES_QP_GET_RAW: u32 = 19;
pub const RDMA_NLDEV_CMD_RES_CQ_GET_RAW: u32 = 20;
pub const RDMA_NLDEV_CMD_RES_MR_GET_RAW: u32 = 21;
pub const RDMA_NLDEV_CMD_RES_CTX_GET: u32 = 22;
pub const RDMA_NLDEV_CMD_RES_SRQ_GET: u32 = 23;
pub const RDMA_NLDEV_CMD_STAT_GET_STATUS: u32 = 24;
pub const RDMA_NLDEV_NUM_OPS: u32 = 25;

// Attributes of RDMA_NL_NLDEV: `nla_type`.
pub const RDMA_NLDEV_ATTR_UNSPEC: u16 = 0;
pub const RDMA_NLDEV_ATTR_PAD: u16 = RDMA_NLDEV_ATTR_UNSPEC;
pub const RDMA_NLDEV_ATTR_DEV_INDEX: u16 = 1;
pub const RDMA_NLDEV_ATTR_DEV_NAME: u16 = 2;
pub const RDMA_NLDEV_ATTR_PORT_INDEX: u16 = 3;
pub const RDMA_NLDEV_ATTR_CAP_FLAGS: u16 = 4;
pub const RDMA_NLDEV_ATTR_FW_VERSION: u16 = 5;
pub const RDMA_NLDEV_ATTR_NODE_GUID: u16 = 6;
pub const RDMA_NLDEV_ATTR_SYS_IMAGE_GUID: u16 = 7;
pub const RDMA_NLDEV_ATTR_SUBNET_PREFIX: u16 = 8;
pub const RDMA_NLDEV_ATTR_LID: u16 = 9;
pub const RDMA_NLDEV_ATTR_SM_LID: u16 = 10;
pub const RDMA_NLDEV_ATTR_LMC: u16 = 11;
pub const RDMA_NLDEV_ATTR_PORT_STATE: u16 = 12;
pub const RDMA_NLDEV_ATTR_PORT_PHYS_STATE: u16 = 13;
pub const RDMA_NLDEV_ATTR_DEV_NODE_TYPE: u16 = 14;
pub const RDMA_NLDEV_ATTR_RES_SUMMARY: u16 = 15;
pub const RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY: u16 = 16;
pub const RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME: u16 = 17;
pub const RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR: u16 = 18;
pub const RDMA_NLDEV_ATTR_RES_QP: u16 = 19;
pub const RDMA_NLDEV_ATTR_RES_QP_ENTRY: u16 = 20;
pub const RDMA_NLDEV_ATTR_RES_LQPN: u16 = 21;
pub const RDMA_NLDEV_ATTR_RES_RQPN: u16 = 22;
pub const RDMA_NLDEV_ATTR_RES_RQ_PSN: u16 = 23;
pub const RDMA_NLDEV_ATTR_RES_SQ_PSN: u16 = 24;
pub const RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE: u16 = 25;
pub const RDMA_NLDEV_ATTR_RES_TYPE: u16 = 26;
pub const RDMA_NLDEV_ATTR_RES_STATE: u16 = 27;
pub const RDMA_NLDEV_ATTR_RES_PID: u16 = 28;
pub const RDMA_NLDEV_ATTR_RES_KERN_NAME: u16 = 29;
pub const RDMA_NLDEV_ATTR_RES_CM_ID: u16 = 30;
pub const RDMA_NLDEV_ATTR_RES_CM_ID_ENTRY: u16 = 31;
pub const RDMA_NLDEV_ATTR_RES_PS: u16 = 32;
pub const RDMA_NLDEV_ATTR_RES_SRC_ADDR: u16 = 33;
pub const RDMA_NLDEV_ATTR_RES_DST_ADDR: u16 = 34;
pub const RDMA_NLDEV_ATTR_RES_CQ: u16 = 35;
pub const RDMA_NLDEV_ATTR_RES_CQ_ENTRY: u16 = 36;
pub const RDMA_NLDEV_ATTR_RES_CQE: u16 = 37;
pub const RDMA_NLDEV_ATTR_RES_USECNT: u16 = 38;
pub const RDMA_NLDEV_ATTR_RES_POLL_CTX: u16 = 39;
pub const RDMA_NLDEV_ATTR_RES_MR: u16 = 40;
pub const RDMA_NLDEV_ATTR_RES_MR_ENTRY: u16 = 41;
pub const RDMA_NLDEV_ATTR_RES_RKEY: u16 = 42;
pub const RDMA_NLDEV_ATTR_RES_LKEY: u16 = 43;
pub const RDMA_NLDEV_ATTR_RES_IOVA: u16 = 44;
pub const RDMA_NLDEV_ATTR_RES_MRLEN: u16 = 45;
pub const RDMA_NLDEV_ATTR_RES_PD: u16 = 46;
pub const RDMA_NLDEV_ATTR_RES_PD_ENTRY: u16 = 47;
pub const RDMA_NLDEV_ATTR_RES_LOCAL_DMA_LKEY: u16 = 48;
pub const RDMA_NLDEV_ATTR_RES_UNSAFE_GLOBAL_RKEY: u16 = 49;
pub const RDMA_NLDEV_ATTR_NDEV_INDEX: u16 = 50;
pub const RDMA_NLDEV_ATTR_NDEV_NAME: u16 = 51;
pub const RDMA_NLDEV_ATTR_DRIVER: u16 = 52;
pub const RDMA_NLDEV_ATTR_DRIVER_ENTRY: u16 = 53;
pub const RDMA_NLDEV_ATTR_DRIVER_STRING: u16 = 54;
pub const RDMA_NLDEV_ATTR_DRIVER_PRINT_TYPE: u16 = 55;
pub const RDMA_NLDEV_ATTR_DRIVER_S32: u16 = 56;
pub const RDMA_NLDEV_ATTR_DRIVER_U32: u16 = 57;
pub const RDMA_NLDEV_ATTR_DRIVER_S64: u16 = 58;
pub const RDMA_NLDEV_ATTR_DRIVER_U64: u16 = 59;
pub const RDMA_NLDEV_ATTR_RES_PDN: u16 = 60;
pub const RDMA_NLDEV_ATTR_RES_CQN: u16 = 61;
pub const RDMA_NLDEV_ATTR_RES_MRN: u16 = 62;
pub const RDMA_NLDEV_ATTR_RES_CM_IDN: u16 = 63;
pub const RDMA_NLDEV_ATTR_RES_CTXN: u16 = 64;
pub const RDMA_NLDEV_ATTR_LINK_TYPE: u16 = 65;
pub const RDMA_NLDEV_SYS_ATTR_NETNS_MODE: u16 = 66;
pub const RDMA_NLDEV_ATTR_DEV_PROTOCOL: u16 = 67;
pub const RDMA_NLDEV_NET_NS_FD: u16 = 68;
pub const RDMA_NLDEV_ATTR_CHARDEV_TYPE: u16 = 69;
pub const RDMA_NLDEV_ATTR_CHARDEV_NAME: u16 = 70;
pub const RDMA_NLDEV_ATTR_CHARDEV_ABI: u16 = 71;
pub const RDMA_NLDEV_ATTR_CHARDEV: u16 = 72;
pub const RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID: u16 = 73;
pub const RDMA_NLDEV_ATTR_STAT_MODE: u16 = 74;
pub const RDMA_NLDEV_ATTR_STAT_RES: u16 = 75;
pub const RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK: u16 = 76;
pub const RDMA_NLDEV_ATTR_STAT_COUNTER: u16 = 77;
pub const RDMA_NLDEV_ATTR_STAT_COUNTER_ENTRY: u16 = 78;
pub const RDMA_NLDEV_ATTR_STAT_COUNTER_ID: u16 = 79;
pub const RDMA_NLDEV_ATTR_STAT_HWCOUNTERS: u16 = 80;
pub const RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY: u16 = 81;
pub const RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME: u16 = 82;
pub const RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE: u16 = 83;
pub const RDMA_NLDEV_ATTR_DEV_DIM: u16 = 84;
pub const RDMA_NLDEV_ATTR_RES_RAW: u16 = 85;
pub const RDMA_NLDEV_ATTR_RES_CTX: u16 = 86;
pub const RDMA_NLDEV_ATTR_RES_CTX_ENTRY: u16 = 87;
pub const RDMA_NLDEV_ATTR_RES_SRQ: u16 = 88;
pub const RDMA_NLDEV_ATTR_RES_SRQ_ENTRY: u16 = 89;
pub const RDMA_NLDEV_ATTR_RES_SRQN: u16 = 90;
pub const RDMA_NLDEV_ATTR_MIN_RANGE: u16 = 91;
pub const RDMA_NLDEV_ATTR_MAX_RANGE: u16 = 92;
pub const RDMA_NLDEV_SYS_ATTR_COPY_ON_FORK: u16 = 93;
pub const RDMA_NLDEV_ATTR_STAT_HWCOUNTER_INDEX: u16 = 94;
pub const RDMA_NLDEV_ATTR_STAT_HWCOUNTER_DYNAMIC: u16 = 95;
pub const RDMA_NLDEV_ATTR_MAX: u16 = 96;

// `RDMA_NLDEV_ATTR_DRIVER_PRINT_TYPE`.
pub const RDMA_NLDEV_PRINT_TYPE_UNSPEC: u8 = 0;
pub const RDMA_NLDEV_PRINT_TYPE_HEX: u8 = 1;

// `RDMA_NLDEV_ATTR_DEV_NODE_TYPE`.
pub const RDMA_NODE_IB_CA: u8 = 1;
pub const RDMA_NODE_IB_SWITCH: u8 = 2;
pub const RDMA_NODE_IB_ROUTER: u8 = 3;
pub const RDMA_NODE_RNIC: u8 = 4;
pub const RDMA_NODE_USNIC: u8 = 5;
pub const RDMA_NODE_USNIC_UDP: u8 = 6;
pub const RDMA_NODE_UNSPECIFIED: u8 = 7;

// `RDMA_NLDEV_ATTR_STAT_MODE`.
pub const RDMA_COUNTER_MODE_NONE: u32 = 0;
pub const RDMA_COUNTER_MODE_AUTO: u32 = 1;
pub const RDMA_COUNTER_MODE_MANUAL: u32 = 2;
pub const RDMA_COUNTER_MODE_MAX: u32 = 3;

// `RDMA_NLDEV_ATTR_STAT_AUTO_MODE_MASK`.
pub const RDMA_COUNTER_MASK_QP_TYPE: u32 = 1;
pub const RDMA_COUNTER_MASK_PID: u32 = 1 << 1;
