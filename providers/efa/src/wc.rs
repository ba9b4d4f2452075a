//! Completions, decoded in place.
//!
//! # Safety
//!
//! An entry is read through a raw pointer, by volatile loads. It is the program's from the moment
//! its phase bit is new until the ring has turned, which comes after the view's lifetime.
#![allow(unsafe_code, reason = "reads completions that the device wrote, by raw address")]

use std::fmt;
use std::marker::PhantomData;
use std::mem::offset_of;

use uverbs_core::attr::Gid;
use uverbs_core::provider::View;
use uverbs_core::queues::completion::{Completed, Failure, Sender, Status};
use uverbs_core::queues::token::Queue;
use uverbs_kernel_abi::efa::io as abi;
use uverbs_kernel_abi::efa::io::{efa_io_cdesc_common, efa_io_rx_cdesc, efa_io_rx_cdesc_ex};

/// Address handle of a sender without one.
const UNKNOWN_AH: u16 = 0xffff;
/// Flags that name the queue. A swept entry has none of them.
pub(crate) const QUEUE_TYPE: u8 = abi::EFA_IO_CDESC_COMMON_Q_TYPE_MASK;

/// Entry of a completion queue.
#[derive(Clone, Copy, Debug)]
pub struct EfaCqe {
    at: *const u8,
    /// Bytes: 16 or 32.
    size: u32,
    /// Flags, read once.
    flags: u8,
}

impl EfaCqe {
    /// # Safety
    ///
    /// `at` is aligned to eight bytes and valid to read `size` bytes while the entry or a view of
    /// it is used.
    #[inline(always)]
    pub(crate) unsafe fn new(at: *const u8, size: u32) -> Self {
        let mut entry = Self { at, size, flags: 0 };
        entry.flags = entry.byte(offset_of!(efa_io_cdesc_common, flags));
        entry
    }

    #[inline(always)]
    fn byte(self, offset: usize) -> u8 {
        // SAFETY: a field; see `new`.
        unsafe { self.at.wrapping_add(offset).read_volatile() }
    }

    #[inline(always)]
    fn half(self, offset: usize) -> u16 {
        // SAFETY: a field, aligned by the layout; see `new`.
        u16::from_le(unsafe { self.at.wrapping_add(offset).cast::<u16>().read_volatile() })
    }

    /// Address of the flags.
    #[inline(always)]
    pub(crate) fn at_flags(self) -> *const u8 {
        self.at.wrapping_add(offset_of!(efa_io_cdesc_common, flags))
    }

    #[inline(always)]
    pub(crate) fn flags(self) -> u8 {
        self.flags
    }

    #[inline(always)]
    pub(crate) fn status(self) -> u8 {
        self.byte(offset_of!(efa_io_cdesc_common, status))
    }

    #[inline(always)]
    pub(crate) fn req_id(self) -> u16 {
        self.half(offset_of!(efa_io_cdesc_common, req_id))
    }

    #[inline(always)]
    pub(crate) fn qpn(self) -> u16 {
        self.half(offset_of!(efa_io_cdesc_common, qp_num))
    }

    /// Queue of the completed work request; `None` for a swept entry.
    #[inline(always)]
    pub(crate) fn queue(self) -> Option<Queue> {
        match (self.flags() & QUEUE_TYPE) >> QUEUE_TYPE.trailing_zeros() {
            abi::EFA_IO_SEND_QUEUE => Some(Queue::Send),
            abi::EFA_IO_RECV_QUEUE => Some(Queue::Recv),
            _ => None,
        }
    }

    #[inline(always)]
    fn operation(self) -> u8 {
        const MASK: u8 = abi::EFA_IO_CDESC_COMMON_OP_TYPE_MASK;
        (self.flags() & MASK) >> MASK.trailing_zeros()
    }

    #[inline(always)]
    fn has(self, flag: u8) -> bool {
        self.flags() & flag != 0
    }

    /// True if the completion belongs to no receive: a WRITE with immediate data on a queue pair
    /// that takes them without receives.
    #[inline(always)]
    pub(crate) fn is_unsolicited(self) -> bool {
        self.has(abi::EFA_IO_CDESC_COMMON_UNSOLICITED_MASK)
    }

    /// True for an entry of 32 bytes.
    #[inline(always)]
    fn is_long(self) -> bool {
        self.size as usize >= size_of::<efa_io_rx_cdesc_ex>()
    }

    /// Bytes of a received message.
    #[inline(always)]
    pub(crate) fn received(self) -> u32 {
        let low = self.half(offset_of!(efa_io_rx_cdesc, length)).into();
        // Only a long entry has the upper half (rdma-core `verbs.c:efa_wc_read_byte_len`).
        if self.is_long() && self.operation() == abi::EFA_IO_RDMA_WRITE {
            u32::from(self.half(offset_of!(efa_io_rx_cdesc_ex, u))) << 16 | low
        } else {
            low
        }
    }

    /// GID of the sender, if its address handle is unknown. It is zero unless the completion queue
    /// has GIDs of senders; a WRITE has the upper half of its length in its place.
    #[inline(always)]
    pub(crate) fn gid(self) -> Option<Gid> {
        let is_unknown = self.half(offset_of!(efa_io_rx_cdesc, ah)) == UNKNOWN_AH;
        if !self.is_long() || !is_unknown || self.operation() == abi::EFA_IO_RDMA_WRITE {
            return None;
        }
        let at = offset_of!(efa_io_rx_cdesc_ex, u);
        let gid = Gid(std::array::from_fn(|byte| self.byte(at + byte)));
        (gid != Gid::default()).then_some(gid)
    }

    /// Bytes of a received message that are in the receive's own buffer: none of a WRITE.
    #[inline(always)]
    pub(crate) fn placed(self) -> u32 {
        if self.operation() == abi::EFA_IO_RDMA_WRITE { 0 } else { self.received() }
    }
}

/// A completion that lives until the next poll.
#[derive(Clone, Copy)]
pub struct Wc<'a> {
    entry: EfaCqe,
    is_recv: bool,
    _queue: PhantomData<&'a ()>,
}

impl Wc<'_> {
    /// # Safety
    ///
    /// The entry stays valid for the view's lifetime.
    #[inline(always)]
    pub(crate) unsafe fn new(entry: EfaCqe, is_recv: bool) -> Self {
        Self { entry, is_recv, _queue: PhantomData }
    }

    fn is_ok(&self) -> bool {
        self.entry.status() == abi::EFA_IO_COMP_STATUS_OK
    }
}

/// Name of an `enum efa_io_comp_status` (rdma-core `verbs.c:to_ibv_status`). Unknown statuses are
/// general.
pub(crate) fn status_of(status: u8) -> Status {
    match status {
        abi::EFA_IO_COMP_STATUS_FLUSHED => Status::Flushed,
        abi::EFA_IO_COMP_STATUS_LOCAL_ERROR_QP_INTERNAL_ERROR
        | abi::EFA_IO_COMP_STATUS_LOCAL_ERROR_UNSUPPORTED_OP
        | abi::EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_AH => Status::LocalQpOperation,
        abi::EFA_IO_COMP_STATUS_LOCAL_ERROR_INVALID_LKEY => Status::LocalProtection,
        abi::EFA_IO_COMP_STATUS_LOCAL_ERROR_BAD_LENGTH => Status::LocalLength,
        abi::EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_ADDRESS => Status::RemoteAccess,
        abi::EFA_IO_COMP_STATUS_REMOTE_ERROR_ABORT => Status::RemoteAborted,
        abi::EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_DEST_QPN => Status::RemoteInvalidRdRequest,
        abi::EFA_IO_COMP_STATUS_REMOTE_ERROR_RNR => Status::RnrRetryExceeded,
        abi::EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_LENGTH
        | abi::EFA_IO_COMP_STATUS_REMOTE_ERROR_FEATURE_MISMATCH => Status::RemoteInvalidRequest,
        abi::EFA_IO_COMP_STATUS_REMOTE_ERROR_BAD_STATUS => Status::BadResponse,
        abi::EFA_IO_COMP_STATUS_LOCAL_ERROR_UNRESP_REMOTE
        | abi::EFA_IO_COMP_STATUS_LOCAL_ERROR_UNREACH_REMOTE => Status::ResponseTimeout,
        abi::EFA_IO_COMP_STATUS_REMOTE_ERROR_UNKNOWN_PEER => Status::RemoteOperation,
        _ => Status::General,
    }
}

impl View for Wc<'_> {
    #[inline]
    fn result(&self) -> Result<Completed, Failure> {
        if !self.is_ok() {
            let status = self.entry.status();
            let (syndrome, vendor_syndrome) = (status, status);
            return Err(Failure { status: status_of(status), syndrome, vendor_syndrome });
        }
        Ok(match (self.is_recv, self.entry.operation()) {
            (true, abi::EFA_IO_RDMA_WRITE) => Completed::RecvWriteImm,
            (true, _) => Completed::Recv,
            (false, abi::EFA_IO_SEND) => Completed::Send,
            (false, abi::EFA_IO_RDMA_READ) => Completed::Read,
            (false, abi::EFA_IO_RDMA_WRITE) => Completed::Write,
            (false, other) => Completed::Other(other),
        })
    }

    #[inline]
    fn is_recv(&self) -> bool {
        self.is_recv
    }

    /// Length of receives: the device tells no length of a READ.
    #[inline]
    fn byte_len(&self) -> u32 {
        if self.is_recv && self.is_ok() { self.entry.received() } else { 0 }
    }

    #[inline]
    fn immediate(&self) -> Option<u32> {
        let has = self.is_recv && self.is_ok();
        if !has || !self.entry.has(abi::EFA_IO_CDESC_COMMON_HAS_IMM_MASK) {
            return None;
        }
        let at = offset_of!(efa_io_rx_cdesc, imm);
        let (low, high) = (self.entry.half(at), self.entry.half(at + 2));
        Some(u32::from(high) << 16 | u32::from(low))
    }

    /// `None`: the device has no clock.
    #[inline]
    fn timestamp(&self) -> Option<u64> {
        None
    }

    /// `None`: no message invalidates a key.
    #[inline]
    fn invalidated(&self) -> Option<u32> {
        None
    }

    #[inline]
    fn qpn(&self) -> u32 {
        self.entry.qpn().into()
    }

    #[inline]
    fn is_unsolicited(&self) -> bool {
        self.is_recv && self.entry.is_unsolicited()
    }

    #[inline(always)]
    fn shows_reads_as_sends(&self) -> bool {
        true
    }

    /// See rdma-core `verbs.c:efa_wc_read_sgid`.
    #[inline]
    fn sender_gid(&self) -> Option<Gid> {
        if self.is_recv { self.entry.gid() } else { None }
    }

    /// Queue pair of the sender, and in place of a LID the number of an address handle to it, or
    /// 0xFFFF (rdma-core `verbs.c:efa_wc_read_slid`). UD receives begin with 40 bytes for a GRH,
    /// whose content is undefined.
    #[inline]
    fn sender(&self) -> Sender {
        if !self.is_recv {
            return Sender::default();
        }
        let qpn = self.entry.half(offset_of!(efa_io_rx_cdesc, src_qp_num));
        let ah = self.entry.half(offset_of!(efa_io_rx_cdesc, ah));
        Sender::new(qpn.into(), 0, false, ah)
    }
}

/// Prints the fields of the entry.
impl fmt::Debug for Wc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wc")
            .field("req_id", &format_args!("{:#x}", self.entry.req_id()))
            .field("status", &self.entry.status())
            .field("flags", &format_args!("{:#04x}", self.entry.flags()))
            .field("qp_num", &self.entry.qpn())
            .finish_non_exhaustive()
    }
}
