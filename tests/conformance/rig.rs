//! One open device file with a context, and good commands of every kind, for cases to send and to
//! spoil.

use std::cell::{OnceCell, RefCell};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_core::doors::UverbsDoor;
use uverbs_kernel_abi::ah::ib_uverbs_create_ah;
use uverbs_kernel_abi::ioctl::ib_uverbs_attr;
use uverbs_kernel_abi::mcast::ib_uverbs_attach_mcast;
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::mr::*;
use uverbs_kernel_abi::mw::*;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::port::ib_uverbs_query_port_resp;
use uverbs_kernel_abi::qp::*;
use uverbs_kernel_abi::rxe::{
    rxe_create_cq_resp, rxe_create_qp_resp, rxe_create_srq_resp, rxe_modify_srq_cmd,
};
use uverbs_kernel_abi::srq::*;
use uverbs_kernel_abi::write::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::cmd::{Cmd, find};
use crate::memory::Memory;
use crate::target::Target;
use crate::want::Driver;

/// All rights that a region of data has here.
pub(crate) const DATA_RIGHTS: u32 = IB_UVERBS_ACCESS_LOCAL_WRITE
    | IB_UVERBS_ACCESS_REMOTE_WRITE
    | IB_UVERBS_ACCESS_REMOTE_READ
    | IB_UVERBS_ACCESS_REMOTE_ATOMIC;

/// An open file. Objects are made when they are first asked for.
#[derive(Debug)]
pub(crate) struct Rig {
    /// Closed before the memory goes.
    door: Arc<dyn UverbsDoor>,
    pub(crate) memory: Memory,
    pub(crate) target: Target,
    fds: RefCell<Vec<OwnedFd>>,
    pd: OnceCell<u32>,
    uar: OnceCell<Uar>,
    cq: OnceCell<u32>,
    qp: OnceCell<u32>,
    srq: OnceCell<u32>,
    datagram_qp: OnceCell<u32>,
    mr: OnceCell<u32>,
    mw: OnceCell<u32>,
    ah: OnceCell<u32>,
    channel: OnceCell<RawFd>,
    events: OnceCell<RawFd>,
}

/// A doorbell page of mlx5.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Uar {
    pub(crate) handle: u32,
    pub(crate) page: u32,
    pub(crate) offset: u64,
}

impl Rig {
    /// Opens the device, without a context.
    pub(crate) fn bare(target: &Target) -> Result<Self, Errno> {
        Ok(Self {
            door: target.open()?,
            memory: Memory::new(),
            target: target.clone(),
            fds: RefCell::default(),
            pd: OnceCell::new(),
            uar: OnceCell::new(),
            cq: OnceCell::new(),
            qp: OnceCell::new(),
            srq: OnceCell::new(),
            datagram_qp: OnceCell::new(),
            mr: OnceCell::new(),
            mw: OnceCell::new(),
            ah: OnceCell::new(),
            channel: OnceCell::new(),
            events: OnceCell::new(),
        })
    }

    /// Opens the device with a context.
    pub(crate) fn new(target: &Target) -> Result<Self, Errno> {
        let rig = Self::bare(target)?;
        rig.send(&rig.get_context())?;
        Ok(rig)
    }

    pub(crate) fn door(&self) -> &dyn UverbsDoor {
        &*self.door
    }

    pub(crate) fn driver(&self) -> Driver {
        self.target.facts.driver
    }

    pub(crate) fn is_mlx5(&self) -> bool {
        self.driver() == Driver::Mlx5
    }

    /// Sends a command. Descriptors that it makes are closed with the rig.
    pub(crate) fn send(&self, cmd: &Cmd) -> Result<Vec<ib_uverbs_attr>, Errno> {
        let attrs = cmd.send(&*self.door)?;
        if let Some(fd) = self.new_fd(cmd, &attrs) {
            self.adopt(fd);
        }
        Ok(attrs)
    }

    /// Sends a command that is to say nothing.
    pub(crate) fn run(&self, cmd: &Cmd) -> Result<String, Errno> {
        self.send(cmd).map(|_| String::new())
    }

    fn new_fd(&self, cmd: &Cmd, attrs: &[ib_uverbs_attr]) -> Option<RawFd> {
        if cmd.header.object_id == UVERBS_OBJECT_ASYNC_EVENT {
            let attr = find(attrs, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE)?;
            return RawFd::try_from(attr.data_s64()).ok();
        }
        let command = cmd.is_write().then(|| cmd.find(UVERBS_ATTR_WRITE_CMD))??;
        if command.data != u64::from(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL) {
            return None;
        }
        let out = cmd.find(UVERBS_ATTR_CORE_OUT)?;
        Some(self.memory.get::<u32>(out.data).cast_signed())
    }

    #[allow(unsafe_code, reason = "takes over a descriptor that a command has just made")]
    fn adopt(&self, fd: RawFd) {
        // SAFETY: the command that succeeded made it for its caller, which is this rig.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        self.fds.borrow_mut().push(fd);
    }

    /// Closes a descriptor now.
    pub(crate) fn close_fd(&self, fd: RawFd) {
        use std::os::fd::AsRawFd;
        self.fds.borrow_mut().retain(|known| known.as_raw_fd() != fd);
    }

    /// Closes the device file. Descriptors and memory stay.
    pub(crate) fn close(self) -> (Memory, Vec<OwnedFd>) {
        let Self { door, memory, fds, .. } = self;
        drop(door);
        (memory, fds.into_inner())
    }

    // Commands.

    pub(crate) fn cmd(&self, object: u16, method: u16) -> Cmd {
        Cmd::new(self.target.driver_id(), object, method)
    }

    /// A write command with request and room for a response, where there is one.
    pub(crate) fn write<R: IntoBytes + Immutable>(
        &self,
        command: u32,
        request: &R,
        room: usize,
    ) -> Cmd {
        let cmd = self
            .cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
            .constant(UVERBS_ATTR_WRITE_CMD, u64::from(command))
            .input(&self.memory, UVERBS_ATTR_CORE_IN, request);
        match room {
            0 => cmd,
            _ => cmd.output(&self.memory, UVERBS_ATTR_CORE_OUT, room),
        }
    }

    pub(crate) fn get_context(&self) -> Cmd {
        let cmd = self
            .cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT)
            .output(&self.memory, UVERBS_ATTR_GET_CONTEXT_NUM_COMP_VECTORS, 4)
            .output(&self.memory, UVERBS_ATTR_GET_CONTEXT_CORE_SUPPORT, 8);
        match self.driver() {
            Driver::Rxe => cmd,
            Driver::Mlx5 => {
                let request = mlx5_ib_alloc_ucontext_req_v2 {
                    total_num_bfregs: 16,
                    num_low_latency_bfregs: 4,
                    flags: MLX5_IB_ALLOC_UCTX_DEVX,
                    max_cqe_version: 1,
                    lib_caps: MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR,
                    ..Default::default()
                };
                cmd.input(&self.memory, UVERBS_ATTR_UHW_IN, &request).output(
                    &self.memory,
                    UVERBS_ATTR_UHW_OUT,
                    size_of::<mlx5_ib_alloc_ucontext_resp>(),
                )
            }
        }
    }

    pub(crate) fn alloc_pd(&self) -> Cmd {
        let cmd = self.write(IB_USER_VERBS_CMD_ALLOC_PD, &0u64, 4);
        match self.driver() {
            Driver::Rxe => cmd,
            Driver::Mlx5 => cmd.output(&self.memory, UVERBS_ATTR_UHW_OUT, 4),
        }
    }

    /// The start of what a command answers.
    pub(crate) fn answer<T: FromBytes>(&self, cmd: &Cmd, id: u16) -> T {
        self.memory.get(cmd.find(id).expect("the attribute").data)
    }

    /// Another PD.
    pub(crate) fn new_pd(&self) -> Result<u32, Errno> {
        let cmd = self.alloc_pd();
        self.send(&cmd)?;
        Ok(self.answer(&cmd, UVERBS_ATTR_CORE_OUT))
    }

    pub(crate) fn pd(&self) -> u32 {
        *self.pd.get_or_init(|| self.new_pd().expect("a PD"))
    }

    /// REG_MR of two pages.
    pub(crate) fn reg_mr_request(&self) -> ib_uverbs_reg_mr {
        let addr = self.memory.alloc(8192, 4096);
        ib_uverbs_reg_mr {
            start: addr,
            hca_va: addr,
            length: 8192,
            pd_handle: self.pd(),
            access_flags: DATA_RIGHTS,
            ..Default::default()
        }
    }

    pub(crate) fn reg_mr(&self, request: &ib_uverbs_reg_mr) -> Cmd {
        self.write(IB_USER_VERBS_CMD_REG_MR, request, size_of::<ib_uverbs_reg_mr_resp>())
    }

    /// REREG_MR with other rights.
    pub(crate) fn rereg_mr_request(&self) -> ib_uverbs_rereg_mr {
        ib_uverbs_rereg_mr {
            mr_handle: self.mr(),
            pd_handle: self.pd(),
            flags: IB_MR_REREG_ACCESS,
            access_flags: IB_UVERBS_ACCESS_LOCAL_WRITE,
            ..Default::default()
        }
    }

    pub(crate) fn rereg_mr(&self, request: &ib_uverbs_rereg_mr) -> Cmd {
        self.write(IB_USER_VERBS_CMD_REREG_MR, request, size_of::<ib_uverbs_rereg_mr_resp>())
    }

    pub(crate) fn new_mr(
        &self,
        request: &ib_uverbs_reg_mr,
    ) -> Result<ib_uverbs_reg_mr_resp, Errno> {
        let cmd = self.reg_mr(request);
        self.send(&cmd)?;
        Ok(self.answer(&cmd, UVERBS_ATTR_CORE_OUT))
    }

    pub(crate) fn mr(&self) -> u32 {
        *self.mr.get_or_init(|| self.new_mr(&self.reg_mr_request()).expect("a region").mr_handle)
    }

    pub(crate) fn alloc_mw_request(&self) -> ib_uverbs_alloc_mw {
        ib_uverbs_alloc_mw { pd_handle: self.pd(), mw_type: IB_MW_TYPE_2, ..Default::default() }
    }

    pub(crate) fn alloc_mw(&self, request: &ib_uverbs_alloc_mw) -> Cmd {
        self.write(IB_USER_VERBS_CMD_ALLOC_MW, request, size_of::<ib_uverbs_alloc_mw_resp>())
    }

    pub(crate) fn new_mw(&self) -> Result<ib_uverbs_alloc_mw_resp, Errno> {
        let cmd = self.alloc_mw(&self.alloc_mw_request());
        self.send(&cmd)?;
        Ok(self.answer(&cmd, UVERBS_ATTR_CORE_OUT))
    }

    pub(crate) fn mw(&self) -> u32 {
        *self.mw.get_or_init(|| self.new_mw().expect("a window").mw_handle)
    }

    pub(crate) fn create_ah_request(&self) -> ib_uverbs_create_ah {
        let mut request = ib_uverbs_create_ah { pd_handle: self.pd(), ..Default::default() };
        request.attr.port_num = 1;
        request.attr.is_global = 1;
        let (index, gid) = self.gid();
        request.attr.grh.dgid = gid;
        request.attr.grh.sgid_index = index;
        request.attr.grh.hop_limit = 64;
        request
    }

    pub(crate) fn create_ah(&self, request: &ib_uverbs_create_ah) -> Cmd {
        let cmd = self.write(IB_USER_VERBS_CMD_CREATE_AH, request, 4);
        let room = if self.is_mlx5() { 16 } else { 8 };
        cmd.output(&self.memory, UVERBS_ATTR_UHW_OUT, room)
    }

    pub(crate) fn ah(&self) -> u32 {
        *self.ah.get_or_init(|| {
            let cmd = self.create_ah(&self.create_ah_request());
            self.send(&cmd).expect("an address handle");
            self.answer(&cmd, UVERBS_ATTR_CORE_OUT)
        })
    }

    pub(crate) fn create_channel(&self) -> Cmd {
        self.write(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, &0u64, 4)
    }

    pub(crate) fn new_channel(&self) -> Result<RawFd, Errno> {
        let cmd = self.create_channel();
        self.send(&cmd)?;
        Ok(self.answer::<u32>(&cmd, UVERBS_ATTR_CORE_OUT).cast_signed())
    }

    pub(crate) fn channel(&self) -> RawFd {
        *self.channel.get_or_init(|| self.new_channel().expect("a channel"))
    }

    pub(crate) fn alloc_events(&self) -> Cmd {
        self.cmd(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC)
            .handle(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0u32)
    }

    pub(crate) fn new_events(&self) -> Result<RawFd, Errno> {
        let attrs = self.send(&self.alloc_events())?;
        Ok(attrs[0].data as RawFd)
    }

    pub(crate) fn events(&self) -> RawFd {
        *self.events.get_or_init(|| self.new_events().expect("an async event file"))
    }

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

    /// Makes one object of each kind.
    pub(crate) fn furnish(&self) {
        self.qp();
        self.mr();
        self.mw();
        self.ah();
        self.channel();
        self.events();
        self.datagram_qp();
    }

    pub(crate) fn destroy(&self, object: u16, handle: impl Into<u64>) -> Cmd {
        let (method, attr, room) = match object {
            UVERBS_OBJECT_CQ => {
                (UVERBS_METHOD_CQ_DESTROY, 0, Some((UVERBS_ATTR_DESTROY_CQ_RESP, 8)))
            }
            UVERBS_OBJECT_QP => {
                (UVERBS_METHOD_QP_DESTROY, 0, Some((UVERBS_ATTR_DESTROY_QP_RESP, 4)))
            }
            UVERBS_OBJECT_SRQ => {
                (UVERBS_METHOD_SRQ_DESTROY, 0, Some((UVERBS_ATTR_DESTROY_SRQ_RESP, 4)))
            }
            UVERBS_OBJECT_WQ => {
                (UVERBS_METHOD_WQ_DESTROY, 0, Some((UVERBS_ATTR_DESTROY_WQ_RESP, 4)))
            }
            UVERBS_OBJECT_MR => (UVERBS_METHOD_MR_DESTROY, 0, None),
            UVERBS_OBJECT_DM => (UVERBS_METHOD_DM_FREE, 0, None),
            UVERBS_OBJECT_COUNTERS => (UVERBS_METHOD_COUNTERS_DESTROY, 0, None),
            MLX5_IB_OBJECT_UAR => {
                (MLX5_IB_METHOD_UAR_OBJ_DESTROY, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, None)
            }
            _ => (0, 0, None),
        };
        let cmd = self.cmd(object, method).handle(attr, handle);
        match room {
            Some((id, len)) => cmd.output(&self.memory, id, len),
            None => cmd,
        }
    }

    // Shared receive queues.

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

    /// QUERY_GID_TABLE for 16 entries.
    pub(crate) fn gid_table(&self) -> Cmd {
        self.cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE)
            .constant(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, 32)
            .input(&self.memory, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, &0u32)
            .output(&self.memory, UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, 16 * 32)
            .output(&self.memory, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, 8)
    }

    /// How many GIDs the port's table has room for.
    pub(crate) fn gid_table_len(&self) -> u32 {
        let cmd = self
            .cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT)
            .constant(UVERBS_ATTR_QUERY_PORT_PORT_NUM, 1)
            .output(&self.memory, UVERBS_ATTR_QUERY_PORT_RESP, 48);
        self.send(&cmd).expect("QUERY_PORT");
        let port: ib_uverbs_query_port_resp = self.answer(&cmd, UVERBS_ATTR_QUERY_PORT_RESP);
        port.gid_tbl_len
    }

    /// The last index of the GID table that a path can name. Its entry is unused.
    pub(crate) fn empty_gid(&self) -> u8 {
        u8::try_from(self.gid_table_len() - 1).unwrap_or(u8::MAX)
    }

    /// The first index beyond the GID table, for a path.
    pub(crate) fn no_gid(&self) -> u8 {
        u8::try_from(self.gid_table_len()).expect("a table that an index of 8 bits reaches beyond")
    }

    /// A GID of the port and its index: the last of the table, which is an IPv4 address in RoCE v2.
    pub(crate) fn gid(&self) -> (u8, [u8; 16]) {
        let cmd = self.gid_table();
        self.send(&cmd).expect("the GID table");
        let count: u64 = self.answer(&cmd, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES);
        let entries = cmd.find(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES).expect("entries").data;
        let last = entries + 32 * (count - 1);
        let index: u32 = self.memory.get(last + 16);
        (index as u8, self.memory.get(last))
    }
}
