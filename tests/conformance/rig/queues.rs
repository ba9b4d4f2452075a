//! Commands of queues: completion queues, shared receive queues, queue pairs and their states.

use nix::errno::Errno;
use uverbs_kernel_abi::mcast::ib_uverbs_attach_mcast;
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::qp::*;
use uverbs_kernel_abi::rxe::*;
use uverbs_kernel_abi::srq::*;
use uverbs_kernel_abi::write::*;

use super::{DATA_RIGHTS, Rig, Uar};
use crate::cmd::Cmd;
use crate::want::Driver;

impl Rig {
    pub(crate) fn alloc_uar(&self) -> Cmd {
        self.cmd(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC)
            .handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0u32)
            .constant(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, u64::from(MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC))
            .output(&self.memory, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, 8)
            .output(&self.memory, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, 4)
            .output(&self.memory, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, 4)
    }

    pub(crate) fn uar(&self) -> Uar {
        *self.uar.get_or_init(|| {
            let cmd = self.alloc_uar();
            let attrs = self.send(&cmd).expect("a doorbell page");
            Uar {
                handle: attrs[0].data as u32,
                page: self.answer(&cmd, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID),
                offset: self.answer(&cmd, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET),
            }
        })
    }

    pub(crate) fn create_cq(&self, cqe: u32) -> Cmd {
        let cmd = self
            .cmd(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE)
            .handle(UVERBS_ATTR_CREATE_CQ_HANDLE, 0u32)
            .input(&self.memory, UVERBS_ATTR_CREATE_CQ_CQE, &cqe)
            .input(&self.memory, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, &0xc0ffee_u64)
            .input(&self.memory, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, &0u32)
            .output(&self.memory, UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4);
        match self.driver() {
            Driver::Rxe => {
                cmd.output(&self.memory, UVERBS_ATTR_UHW_OUT, size_of::<rxe_create_cq_resp>())
            }
            Driver::Mlx5 => {
                let room = (cqe.min(1 << 10) as usize + 1).next_power_of_two() * 64;
                let request = mlx5_ib_create_cq {
                    buf_addr: self.memory.alloc(room, 4096),
                    db_addr: self.memory.alloc(8, 64),
                    cqe_size: 64,
                    flags: MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX,
                    uar_page_index: self.uar().page as u16,
                    ..Default::default()
                };
                cmd.input(&self.memory, UVERBS_ATTR_UHW_IN, &request).output(
                    &self.memory,
                    UVERBS_ATTR_UHW_OUT,
                    8,
                )
            }
        }
    }

    pub(crate) fn new_cq(&self) -> u32 {
        self.send(&self.create_cq(15)).expect("a CQ")[0].data as u32
    }

    pub(crate) fn cq(&self) -> u32 {
        *self.cq.get_or_init(|| self.new_cq())
    }

    pub(crate) fn cap() -> ib_uverbs_qp_cap {
        ib_uverbs_qp_cap {
            max_send_wr: 16,
            max_recv_wr: 8,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        }
    }

    /// CREATE_QP of an RC queue pair.
    pub(crate) fn create_qp(&self) -> Cmd {
        let (pd, cq) = (self.pd(), self.cq());
        let cmd = self
            .cmd(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE)
            .handle(UVERBS_ATTR_CREATE_QP_HANDLE, 0u32)
            .handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd)
            .handle(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq)
            .handle(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cq)
            .constant(UVERBS_ATTR_CREATE_QP_TYPE, u64::from(IB_UVERBS_QPT_RC))
            .input(&self.memory, UVERBS_ATTR_CREATE_QP_USER_HANDLE, &0xbeef_u64)
            .input(&self.memory, UVERBS_ATTR_CREATE_QP_CAP, &Self::cap())
            .output(&self.memory, UVERBS_ATTR_CREATE_QP_RESP_CAP, size_of::<ib_uverbs_qp_cap>())
            .output(&self.memory, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4);
        match self.driver() {
            Driver::Rxe => {
                cmd.output(&self.memory, UVERBS_ATTR_UHW_OUT, size_of::<rxe_create_qp_resp>())
            }
            Driver::Mlx5 => {
                let request = mlx5_ib_create_qp {
                    buf_addr: self.memory.alloc(8 * 16 + 16 * 64, 4096),
                    db_addr: self.memory.alloc(8, 64),
                    sq_wqe_count: 16,
                    rq_wqe_count: 8,
                    rq_wqe_shift: 4,
                    flags: MLX5_QP_FLAG_UAR_PAGE_INDEX,
                    uidx: 0x1234,
                    bfreg_index: self.uar().page,
                    ..Default::default()
                };
                cmd.input(&self.memory, UVERBS_ATTR_UHW_IN, &request).output(
                    &self.memory,
                    UVERBS_ATTR_UHW_OUT,
                    size_of::<mlx5_ib_create_qp_resp>(),
                )
            }
        }
    }

    pub(crate) fn new_qp(&self) -> u32 {
        self.send(&self.create_qp()).expect("a QP")[0].data as u32
    }

    pub(crate) fn qp(&self) -> u32 {
        *self.qp.get_or_init(|| self.new_qp())
    }

    /// A new queue pair of a kind, in RESET.
    pub(crate) fn qp_of(&self, kind: u8) -> u32 {
        let cmd = self.create_qp();
        let cmd = cmd.edit(UVERBS_ATTR_CREATE_QP_TYPE, |attr| attr.data = kind.into());
        self.send(&cmd).expect("a QP of a kind")[0].data as u32
    }

    /// A UD queue pair, in RESET.
    pub(crate) fn datagram_qp(&self) -> u32 {
        *self.datagram_qp.get_or_init(|| self.qp_of(IB_UVERBS_QPT_UD))
    }

    /// ATTACH_MCAST of the UD queue pair to a group; DETACH_MCAST has the same layout.
    pub(crate) fn group(&self) -> ib_uverbs_attach_mcast {
        let mut gid = [0; 16];
        (gid[0], gid[1], gid[15]) = (0xff, 0x12, 7);
        ib_uverbs_attach_mcast { gid, qp_handle: self.datagram_qp(), mlid: 0xc001, reserved: 0 }
    }

    pub(crate) fn attach(&self, request: &ib_uverbs_attach_mcast) -> Cmd {
        self.write(IB_USER_VERBS_CMD_ATTACH_MCAST, request, 0)
    }

    pub(crate) fn detach(&self, request: &ib_uverbs_attach_mcast) -> Cmd {
        self.write(IB_USER_VERBS_CMD_DETACH_MCAST, request, 0)
    }

    /// Memory of a shared receive queue of mlx5, long enough for 15 receives of two pieces.
    pub(crate) fn srq_request(&self) -> mlx5_ib_create_srq {
        mlx5_ib_create_srq {
            buf_addr: self.memory.alloc(4096, 4096),
            db_addr: self.memory.alloc(8, 64),
            ..Default::default()
        }
    }

    /// SRQ.CREATE of 15 receives of two pieces.
    pub(crate) fn create_srq(&self) -> Cmd {
        let cmd = self
            .cmd(UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE)
            .handle(UVERBS_ATTR_CREATE_SRQ_HANDLE, 0u32)
            .handle(UVERBS_ATTR_CREATE_SRQ_PD_HANDLE, self.pd())
            .constant(UVERBS_ATTR_CREATE_SRQ_TYPE, u64::from(IB_UVERBS_SRQT_BASIC))
            .input(&self.memory, UVERBS_ATTR_CREATE_SRQ_USER_HANDLE, &0x5e_u64)
            .input(&self.memory, UVERBS_ATTR_CREATE_SRQ_MAX_WR, &15u32)
            .input(&self.memory, UVERBS_ATTR_CREATE_SRQ_MAX_SGE, &2u32)
            .input(&self.memory, UVERBS_ATTR_CREATE_SRQ_LIMIT, &0u32)
            .output(&self.memory, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, 4)
            .output(&self.memory, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, 4);
        let (memory, out) = (&self.memory, UVERBS_ATTR_UHW_OUT);
        match self.driver() {
            Driver::Rxe => cmd.output(memory, out, size_of::<rxe_create_srq_resp>()),
            Driver::Mlx5 => {
                let cmd = cmd.input(memory, UVERBS_ATTR_UHW_IN, &self.srq_request());
                cmd.output(memory, out, size_of::<mlx5_ib_create_srq_resp>())
            }
        }
    }

    pub(crate) fn srq(&self) -> u32 {
        let made = || self.send(&self.create_srq()).expect("a shared receive queue")[0].data as u32;
        *self.srq.get_or_init(made)
    }

    /// MODIFY_SRQ of the limit, to 3.
    pub(crate) fn modify_srq_request(&self) -> ib_uverbs_modify_srq {
        let (srq_handle, attr_mask) = (self.srq(), IB_SRQ_LIMIT);
        ib_uverbs_modify_srq { srq_handle, attr_mask, max_wr: 0, srq_limit: 3 }
    }

    pub(crate) fn modify_srq(&self, request: &ib_uverbs_modify_srq) -> Cmd {
        let cmd = self.write(IB_USER_VERBS_CMD_MODIFY_SRQ, request, 0);
        match self.driver() {
            Driver::Mlx5 => cmd,
            Driver::Rxe => {
                cmd.input(&self.memory, UVERBS_ATTR_UHW_IN, &rxe_modify_srq_cmd::default())
            }
        }
    }

    pub(crate) fn query_srq(&self, srq_handle: u32) -> Cmd {
        let request = ib_uverbs_query_srq { response: 0, srq_handle, reserved: 0 };
        let room = size_of::<ib_uverbs_query_srq_resp>();
        self.write(IB_USER_VERBS_CMD_QUERY_SRQ, &request, room)
    }

    // Queue pair states.

    pub(crate) fn modify(&self, request: &ib_uverbs_modify_qp) -> Cmd {
        self.write(IB_USER_VERBS_CMD_MODIFY_QP, request, 0)
    }

    pub(crate) fn modify_ex(&self, request: &ib_uverbs_ex_modify_qp) -> Cmd {
        let command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_MODIFY_QP;
        self.write(command, request, 8)
    }

    pub(crate) fn to_init(&self) -> ib_uverbs_modify_qp {
        ib_uverbs_modify_qp {
            qp_handle: self.qp(),
            attr_mask: IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS,
            qp_state: IB_QPS_INIT,
            port_num: 1,
            qp_access_flags: DATA_RIGHTS,
            ..Default::default()
        }
    }

    pub(crate) fn to_rtr(&self) -> ib_uverbs_modify_qp {
        let (sgid_index, dgid) = self.gid();
        ib_uverbs_modify_qp {
            qp_handle: self.qp(),
            attr_mask: IB_QP_STATE
                | IB_QP_AV
                | IB_QP_PATH_MTU
                | IB_QP_DEST_QPN
                | IB_QP_RQ_PSN
                | IB_QP_MAX_DEST_RD_ATOMIC
                | IB_QP_MIN_RNR_TIMER,
            qp_state: IB_QPS_RTR,
            path_mtu: 3,
            dest_qp_num: 0x50,
            rq_psn: 0x100,
            max_dest_rd_atomic: 1,
            min_rnr_timer: 12,
            dest: ib_uverbs_qp_dest {
                dgid,
                is_global: 1,
                sgid_index,
                hop_limit: 64,
                port_num: 1,
                ..Default::default()
            },
            ..Default::default()
        }
    }

    pub(crate) fn to_rts(&self) -> ib_uverbs_modify_qp {
        ib_uverbs_modify_qp {
            qp_handle: self.qp(),
            attr_mask: IB_QP_STATE
                | IB_QP_TIMEOUT
                | IB_QP_RETRY_CNT
                | IB_QP_RNR_RETRY
                | IB_QP_SQ_PSN
                | IB_QP_MAX_QP_RD_ATOMIC,
            qp_state: IB_QPS_RTS,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            sq_psn: 0x100,
            max_rd_atomic: 1,
            ..Default::default()
        }
    }

    /// Takes the queue pair up to a state, from RESET.
    pub(crate) fn bring_to(&self, state: u8) -> Result<(), Errno> {
        let steps = [self.to_init(), self.to_rtr(), self.to_rts()];
        for step in steps.iter().take_while(|step| step.qp_state <= state) {
            self.send(&self.modify(step))?;
        }
        Ok(())
    }

    pub(crate) fn query_qp(&self, handle: u32) -> Cmd {
        let request = ib_uverbs_query_qp { qp_handle: handle, ..Default::default() };
        self.write(IB_USER_VERBS_CMD_QUERY_QP, &request, size_of::<ib_uverbs_query_qp_resp>())
    }
}
