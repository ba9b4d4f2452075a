//! One open device file with a context, and good commands of every kind, for cases to send and to
//! spoil.

mod queues;

use std::cell::{OnceCell, RefCell};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_core::doors::UverbsDoor;
use uverbs_kernel_abi::ah::ib_uverbs_create_ah;
use uverbs_kernel_abi::ioctl::ib_uverbs_attr;
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::mr::*;
use uverbs_kernel_abi::mw::*;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::port::ib_uverbs_query_port_resp;
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
        let door = target.open()?;
        Ok(Self {
            memory: Memory::new(),
            door,
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
