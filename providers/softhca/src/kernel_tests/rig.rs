//! A minimal client that builds ioctls by hand, independent of the provider.

use std::cell::Cell;
use std::sync::Arc;

use crate::{SoftHca, SoftHcaBuilder};
use uverbs_core::Errno;
use uverbs_core::doors::UverbsDoor;
pub(crate) use uverbs_core::memory::pages::page_size;
use uverbs_kernel_abi::ah::{ib_uverbs_create_ah, ib_uverbs_create_ah_resp};
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_MLX5;
use uverbs_kernel_abi::ioctl::{UVERBS_ATTR_F_MANDATORY, ib_uverbs_attr, ib_uverbs_ioctl_hdr};
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::mr::*;
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::pd::*;
use uverbs_kernel_abi::qp::*;
use uverbs_kernel_abi::write::*;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Client memory: mapped once, allocated in pieces, never freed. Both the device and the test
/// access it, so only volatile accesses are used.
#[derive(Debug)]
pub(crate) struct Arena {
    base: u64,
    len: u64,
    next: Cell<u64>,
}

impl Arena {
    pub(crate) fn new(len: usize) -> Self {
        let map = memmap2::MmapOptions::new().len(len).map_anon().unwrap();
        let map = Box::leak(Box::new(map));
        let base = map.as_mut_ptr().expose_provenance() as u64;
        Self { base, len: len as u64, next: Cell::new(base) }
    }

    /// An arena over the same memory, with nothing allocated.
    pub(crate) fn anew(&self) -> Self {
        let new = Self { base: self.base, len: self.len, next: Cell::new(self.base) };
        new.write(self.base, &vec![0; self.len as usize]);
        new
    }

    pub(crate) fn alloc(&self, len: usize, align: u64) -> u64 {
        let at = self.next.get().next_multiple_of(align);
        let end = at + len as u64;
        assert!(end <= self.base + self.len, "the arena is too small");
        self.next.set(end);
        at
    }

    pub(crate) fn range(&self) -> (u64, u64) {
        (self.base, self.len)
    }

    pub(crate) fn write(&self, addr: u64, bytes: &[u8]) {
        assert!(addr >= self.base && addr + bytes.len() as u64 <= self.base + self.len);
        for (at, byte) in bytes.iter().enumerate() {
            let target = std::ptr::with_exposed_provenance_mut::<u8>(addr as usize + at);
            // SAFETY: inside the arena, which is never unmapped.
            unsafe { target.write_volatile(*byte) };
        }
    }

    pub(crate) fn read(&self, addr: u64, len: usize) -> Vec<u8> {
        assert!(addr >= self.base && addr + len as u64 <= self.base + self.len);
        let byte = |at| {
            let source = std::ptr::with_exposed_provenance::<u8>(addr as usize + at);
            // SAFETY: inside the arena, which is never unmapped.
            unsafe { source.read_volatile() }
        };
        (0..len).map(byte).collect()
    }

    pub(crate) fn get<T: FromBytes>(&self, addr: u64) -> T {
        T::read_from_bytes(&self.read(addr, size_of::<T>())).unwrap()
    }

    /// Room for an output, filled with bytes that no output has by chance.
    pub(crate) fn out(&self, len: usize) -> u64 {
        let addr = self.alloc(len, 8);
        self.write(addr, &vec![0xcc; len]);
        addr
    }

    pub(crate) fn put<T: IntoBytes + Immutable>(&self, value: &T) -> u64 {
        let addr = self.alloc(size_of::<T>(), 8);
        self.write(addr, value.as_bytes());
        addr
    }
}

/// A command under construction.
#[derive(Clone, Debug)]
pub(crate) struct Cmd {
    pub(crate) header: ib_uverbs_ioctl_hdr,
    pub(crate) attrs: Vec<ib_uverbs_attr>,
}

impl Cmd {
    pub(crate) fn new(object: u16, method: u16) -> Self {
        let header = ib_uverbs_ioctl_hdr {
            object_id: object,
            method_id: method,
            driver_id: RDMA_DRIVER_MLX5,
            ..ib_uverbs_ioctl_hdr::default()
        };
        Self { header, attrs: Vec::new() }
    }

    pub(crate) fn attr(mut self, attr_id: u16, len: usize, data: u64) -> Self {
        self.attrs.push(ib_uverbs_attr {
            attr_id,
            len: len as u16,
            flags: UVERBS_ATTR_F_MANDATORY,
            attr_data: [0; 2],
            data,
        });
        self
    }

    /// Adds a handle or descriptor, in either direction.
    pub(crate) fn handle(self, id: u16, handle: impl Into<u64>) -> Self {
        self.attr(id, 0, handle.into())
    }

    pub(crate) fn constant(self, id: u16, value: u64) -> Self {
        self.attr(id, 8, value)
    }

    /// Adds an input, inside the attribute up to 8 bytes.
    pub(crate) fn input<T: IntoBytes + Immutable>(self, arena: &Arena, id: u16, value: &T) -> Self {
        let bytes = value.as_bytes();
        if bytes.len() > 8 {
            let addr = arena.put(value);
            return self.attr(id, bytes.len(), addr);
        }
        let mut data = [0; 8];
        data[..bytes.len()].copy_from_slice(bytes);
        self.attr(id, bytes.len(), u64::from_ne_bytes(data))
    }

    /// Adds an output. Returns its address.
    pub(crate) fn output(self, arena: &Arena, id: u16, len: usize) -> (Self, u64) {
        let addr = arena.out(len);
        (self.attr(id, len, addr), addr)
    }

    pub(crate) fn without(mut self, id: u16) -> Self {
        self.attrs.retain(|attr| attr.attr_id != id);
        self
    }

    pub(crate) fn edit(mut self, id: u16, change: impl FnOnce(&mut ib_uverbs_attr)) -> Self {
        change(self.attrs.iter_mut().find(|attr| attr.attr_id == id).unwrap());
        self
    }

    pub(crate) fn words(&self) -> Vec<u64> {
        let mut header = self.header;
        header.num_attrs = self.attrs.len() as u16;
        header.length = (24 + 16 * self.attrs.len()) as u16;
        let mut bytes = header.as_bytes().to_vec();
        for attr in &self.attrs {
            bytes.extend_from_slice(attr.as_bytes());
        }
        bytes.chunks_exact(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect()
    }

    /// Sends the command. Returns the attributes as the device left them.
    pub(crate) fn send(&self, door: &dyn UverbsDoor) -> Result<Vec<ib_uverbs_attr>, Errno> {
        let mut words = self.words();
        // SAFETY: addresses are in the arena, which stays mapped, or wild on purpose, which the
        // software device answers with EFAULT.
        unsafe { door.ioctl(&mut words) }?;
        let bytes = words.as_bytes();
        Ok(bytes[24..]
            .chunks_exact(16)
            .map(|attr| ib_uverbs_attr::read_from_bytes(attr).unwrap())
            .collect())
    }

    pub(crate) fn errno(&self, door: &dyn UverbsDoor) -> Errno {
        match self.send(door) {
            Ok(_) => panic!("succeeded: {self:?}"),
            Err(errno) => errno,
        }
    }
}

/// A write command.
pub(crate) fn write_cmd(command: u32) -> Cmd {
    Cmd::new(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
        .constant(UVERBS_ATTR_WRITE_CMD, u64::from(command))
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct UarPage {
    pub(crate) handle: u32,
    pub(crate) page_id: u32,
    pub(crate) offset: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct CqRings {
    pub(crate) handle: u32,
    pub(crate) cqn: u32,
    pub(crate) buf: u64,
    pub(crate) record: u64,
    pub(crate) entries: u32,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct QpRings {
    pub(crate) handle: u32,
    pub(crate) qpn: u32,
    pub(crate) buf: u64,
    pub(crate) record: u64,
    /// Offset of the send queue, behind the receive queue.
    pub(crate) sq_offset: u64,
}

/// An open device with a context, and client memory.
#[derive(Debug)]
pub(crate) struct Rig {
    pub(crate) hca: SoftHca,
    pub(crate) door: Arc<dyn UverbsDoor>,
    pub(crate) arena: Arena,
}

pub(crate) const DATA_RIGHTS: u32 = IB_UVERBS_ACCESS_LOCAL_WRITE
    | IB_UVERBS_ACCESS_REMOTE_WRITE
    | IB_UVERBS_ACCESS_REMOTE_READ
    | IB_UVERBS_ACCESS_REMOTE_ATOMIC;

impl Rig {
    /// Opens a device without a context.
    pub(crate) fn bare(builder: SoftHcaBuilder) -> Self {
        let hca = builder.build().unwrap();
        let door = hca.open().unwrap();
        Self { hca, door, arena: Arena::new(4 << 20) }
    }

    pub(crate) fn with(builder: SoftHcaBuilder) -> Self {
        let rig = Self::bare(builder);
        rig.get_context().send(&*rig.door).unwrap();
        rig
    }

    pub(crate) fn new() -> Self {
        Self::with(SoftHca::builder().stepped())
    }

    pub(crate) fn door(&self) -> &dyn UverbsDoor {
        &*self.door
    }

    pub(crate) fn get_context(&self) -> Cmd {
        let request = mlx5_ib_alloc_ucontext_req_v2 {
            total_num_bfregs: 16,
            num_low_latency_bfregs: 4,
            flags: MLX5_IB_ALLOC_UCTX_DEVX,
            max_cqe_version: 1,
            lib_caps: MLX5_LIB_CAP_4K_UAR | MLX5_LIB_CAP_DYN_UAR,
            ..Default::default()
        };
        let cmd = Cmd::new(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT).input(
            &self.arena,
            UVERBS_ATTR_UHW_IN,
            &request,
        );
        let (cmd, _) = cmd.output(&self.arena, UVERBS_ATTR_UHW_OUT, 72);
        cmd
    }

    /// Builds a write command with request and room for a response.
    pub(crate) fn write<R: IntoBytes + Immutable>(
        &self,
        command: u32,
        request: &R,
        room: usize,
    ) -> (Cmd, u64) {
        write_cmd(command).input(&self.arena, UVERBS_ATTR_CORE_IN, request).output(
            &self.arena,
            UVERBS_ATTR_CORE_OUT,
            room,
        )
    }

    /// Builds ALLOC_PD, with room for the driver's response.
    pub(crate) fn alloc_pd<R: IntoBytes + Immutable>(
        &self,
        request: &R,
        room: usize,
    ) -> (Cmd, u64) {
        let (cmd, out) = self.write(IB_USER_VERBS_CMD_ALLOC_PD, request, room);
        (cmd.output(&self.arena, UVERBS_ATTR_UHW_OUT, 4).0, out)
    }

    pub(crate) fn pd(&self) -> u32 {
        let (cmd, out) = self.alloc_pd(&ib_uverbs_alloc_pd::default(), 4);
        cmd.send(self.door()).unwrap();
        self.arena.get(out)
    }

    pub(crate) fn reg_mr(&self, request: ib_uverbs_reg_mr) -> Result<ib_uverbs_reg_mr_resp, Errno> {
        let (cmd, out) = self.write(IB_USER_VERBS_CMD_REG_MR, &request, 12);
        cmd.send(self.door())?;
        Ok(self.arena.get(out))
    }

    pub(crate) fn mr(&self, pd: u32, addr: u64, len: u64) -> ib_uverbs_reg_mr_resp {
        self.reg_mr(ib_uverbs_reg_mr {
            start: addr,
            hca_va: addr,
            length: len,
            pd_handle: pd,
            access_flags: DATA_RIGHTS,
            ..Default::default()
        })
        .unwrap()
    }

    pub(crate) fn uar_cmd(&self) -> (Cmd, [u64; 3]) {
        let cmd = Cmd::new(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC)
            .handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, 0u32)
            .constant(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, 0);
        let (cmd, offset) = cmd.output(&self.arena, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, 8);
        let (cmd, len) = cmd.output(&self.arena, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, 4);
        let (cmd, page) = cmd.output(&self.arena, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, 4);
        (cmd, [offset, len, page])
    }

    pub(crate) fn uar(&self) -> UarPage {
        let (cmd, [offset, len, page]) = self.uar_cmd();
        let attrs = cmd.send(self.door()).unwrap();
        assert_eq!(self.arena.get::<u32>(len) as usize, page_size());
        UarPage {
            handle: attrs[0].data as u32,
            page_id: self.arena.get(page),
            offset: self.arena.get(offset),
        }
    }

    /// Builds CREATE_CQ. Returns buffer, record, and the addresses of CQN and CQE.
    pub(crate) fn cq_cmd(&self, uar: u32, cqe: u32) -> (Cmd, [u64; 4]) {
        let entries = (cqe + 1).next_power_of_two();
        let buf = self.arena.alloc(entries as usize * 64, 4096);
        // The provider's initial pattern: invalid opcode, device ownership.
        self.arena.write(buf, &vec![0xf1; entries as usize * 64]);
        let record = self.arena.alloc(8, 64);
        let request = mlx5_ib_create_cq {
            buf_addr: buf,
            db_addr: record,
            cqe_size: 64,
            flags: MLX5_IB_CREATE_CQ_FLAGS_UAR_PAGE_INDEX,
            uar_page_index: uar as u16,
            ..Default::default()
        };
        let cmd = Cmd::new(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE)
            .handle(UVERBS_ATTR_CREATE_CQ_HANDLE, 0u32)
            .input(&self.arena, UVERBS_ATTR_CREATE_CQ_CQE, &cqe)
            .input(&self.arena, UVERBS_ATTR_CREATE_CQ_USER_HANDLE, &0xc0ffee_u64)
            .input(&self.arena, UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, &0u32)
            .input(&self.arena, UVERBS_ATTR_UHW_IN, &request);
        let (cmd, resp) = cmd.output(&self.arena, UVERBS_ATTR_CREATE_CQ_RESP_CQE, 4);
        let (cmd, cqn) = cmd.output(&self.arena, UVERBS_ATTR_UHW_OUT, 8);
        (cmd, [buf, record, cqn, resp])
    }

    pub(crate) fn cq_of(&self, (cmd, [buf, record, cqn, resp]): (Cmd, [u64; 4])) -> CqRings {
        let attrs = cmd.send(self.door()).unwrap();
        CqRings {
            handle: attrs[0].data as u32,
            cqn: self.arena.get(cqn),
            buf,
            record,
            entries: self.arena.get::<u32>(resp) + 1,
        }
    }

    pub(crate) fn cq(&self, uar: u32, cqe: u32) -> CqRings {
        self.cq_of(self.cq_cmd(uar, cqe))
    }

    /// Changes the driver's request of a command.
    pub(crate) fn edit_driver<T: FromBytes + IntoBytes + Immutable>(
        &self,
        cmd: Cmd,
        change: impl FnOnce(&mut T),
    ) -> Cmd {
        let attr = *cmd.attrs.iter().find(|attr| attr.attr_id == UVERBS_ATTR_UHW_IN).unwrap();
        let mut request: T = self.arena.get(attr.data);
        change(&mut request);
        let addr = self.arena.put(&request);
        cmd.edit(UVERBS_ATTR_UHW_IN, |attr| attr.data = addr)
    }

    /// Builds CREATE_QP for an RC QP with 16 WQEBBs and 8 receives of one SGE.
    pub(crate) fn qp_cmd(&self, uar: u32, pd: u32, cq: u32) -> (Cmd, [u64; 3]) {
        let buf = self.arena.alloc(8 * 16 + 16 * 64, 4096);
        let record = self.arena.alloc(8, 64);
        let request = mlx5_ib_create_qp {
            buf_addr: buf,
            db_addr: record,
            sq_wqe_count: 16,
            rq_wqe_count: 8,
            rq_wqe_shift: 4,
            flags: MLX5_QP_FLAG_UAR_PAGE_INDEX | MLX5_QP_FLAG_SCATTER_CQE,
            uidx: 0x1234,
            bfreg_index: uar,
            ..Default::default()
        };
        let cap = ib_uverbs_qp_cap {
            max_send_wr: 16,
            max_recv_wr: 8,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let cmd = Cmd::new(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE)
            .handle(UVERBS_ATTR_CREATE_QP_HANDLE, 0u32)
            .handle(UVERBS_ATTR_CREATE_QP_PD_HANDLE, pd)
            .handle(UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE, cq)
            .handle(UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE, cq)
            .constant(UVERBS_ATTR_CREATE_QP_TYPE, u64::from(IB_UVERBS_QPT_RC))
            .input(&self.arena, UVERBS_ATTR_CREATE_QP_USER_HANDLE, &0xbeef_u64)
            .input(&self.arena, UVERBS_ATTR_CREATE_QP_CAP, &cap)
            .input(&self.arena, UVERBS_ATTR_UHW_IN, &request);
        let (cmd, _) = cmd.output(&self.arena, UVERBS_ATTR_CREATE_QP_RESP_CAP, 20);
        let (cmd, qpn) = cmd.output(&self.arena, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, 4);
        let (cmd, _) = cmd.output(&self.arena, UVERBS_ATTR_UHW_OUT, 40);
        (cmd, [buf, record, qpn])
    }

    pub(crate) fn qp(&self, uar: u32, pd: u32, cq: u32) -> QpRings {
        let (cmd, [buf, record, qpn]) = self.qp_cmd(uar, pd, cq);
        let attrs = cmd.send(self.door()).unwrap();
        QpRings {
            handle: attrs[0].data as u32,
            qpn: self.arena.get(qpn),
            buf,
            record,
            sq_offset: 8 * 16,
        }
    }

    pub(crate) fn modify(&self, request: &ib_uverbs_modify_qp) -> Result<(), Errno> {
        write_cmd(IB_USER_VERBS_CMD_MODIFY_QP)
            .input(&self.arena, UVERBS_ATTR_CORE_IN, request)
            .send(self.door())
            .map(drop)
    }

    pub(crate) fn query_qp(&self, handle: u32) -> ib_uverbs_query_qp_resp {
        let request = ib_uverbs_query_qp { qp_handle: handle, ..Default::default() };
        let (cmd, out) = self.write(IB_USER_VERBS_CMD_QUERY_QP, &request, 128);
        cmd.send(self.door()).unwrap();
        self.arena.get(out)
    }

    /// Moves a QP from RESET to RTS.
    pub(crate) fn connect(&self, qp: u32, remote_qpn: u32, remote_gid: [u8; 16]) {
        for request in [to_init(qp), to_rtr(qp, remote_qpn, remote_gid), to_rts(qp)] {
            self.modify(&request).unwrap();
        }
    }

    pub(crate) fn destroy(&self, object: u16, method: u16, handle: u32) -> Result<(), Errno> {
        let cmd = Cmd::new(object, method).handle(first_attr(object), handle);
        let cmd = match object {
            UVERBS_OBJECT_CQ => cmd.output(&self.arena, UVERBS_ATTR_DESTROY_CQ_RESP, 8).0,
            UVERBS_OBJECT_QP => cmd.output(&self.arena, UVERBS_ATTR_DESTROY_QP_RESP, 4).0,
            _ => cmd,
        };
        cmd.send(self.door()).map(drop)
    }

    pub(crate) fn async_fd(&self) -> i32 {
        let cmd = Cmd::new(UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC)
            .handle(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, 0u32);
        let attrs = cmd.send(self.door()).unwrap();
        i32::try_from(attrs[0].data_s64()).unwrap()
    }

    pub(crate) fn channel(&self) -> i32 {
        let (cmd, out) = self.write(IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, &0u64, 4);
        cmd.send(self.door()).unwrap();
        self.arena.get::<u32>(out).cast_signed()
    }

    pub(crate) fn ah(&self, request: &ib_uverbs_create_ah) -> Result<u32, Errno> {
        let (cmd, out) = self.write(IB_USER_VERBS_CMD_CREATE_AH, request, 4);
        let (cmd, _) = cmd.output(&self.arena, UVERBS_ATTR_UHW_OUT, 16);
        cmd.send(self.door())?;
        Ok(self.arena.get::<ib_uverbs_create_ah_resp>(out).ah_handle)
    }
}

pub(crate) fn first_attr(object: u16) -> u16 {
    match object {
        MLX5_IB_OBJECT_UAR => MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE,
        _ => 0,
    }
}

/// Reads one event from an event file, if there is one.
pub(crate) fn read_event<T: FromBytes + IntoBytes>(fd: i32) -> Option<T> {
    let mut value = T::new_zeroed();
    let flags = nix::sys::socket::MsgFlags::MSG_DONTWAIT;
    let len = nix::sys::socket::recv(fd, value.as_mut_bytes(), flags).ok()?;
    assert_eq!(len, size_of::<T>());
    Some(value)
}

pub(crate) fn to_init(qp: u32) -> ib_uverbs_modify_qp {
    ib_uverbs_modify_qp {
        qp_handle: qp,
        attr_mask: IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_ACCESS_FLAGS,
        qp_state: IB_QPS_INIT,
        port_num: 1,
        qp_access_flags: DATA_RIGHTS,
        ..Default::default()
    }
}

pub(crate) fn to_rtr(qp: u32, dest_qp_num: u32, dgid: [u8; 16]) -> ib_uverbs_modify_qp {
    ib_uverbs_modify_qp {
        qp_handle: qp,
        attr_mask: IB_QP_STATE
            | IB_QP_AV
            | IB_QP_PATH_MTU
            | IB_QP_DEST_QPN
            | IB_QP_RQ_PSN
            | IB_QP_MAX_DEST_RD_ATOMIC
            | IB_QP_MIN_RNR_TIMER,
        qp_state: IB_QPS_RTR,
        path_mtu: 3,
        dest_qp_num,
        rq_psn: 0x100,
        max_dest_rd_atomic: 1,
        min_rnr_timer: 12,
        dest: ib_uverbs_qp_dest {
            dgid,
            is_global: 1,
            sgid_index: 3,
            hop_limit: 64,
            port_num: 1,
            ..Default::default()
        },
        ..Default::default()
    }
}

pub(crate) fn to_rts(qp: u32) -> ib_uverbs_modify_qp {
    ib_uverbs_modify_qp {
        qp_handle: qp,
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
