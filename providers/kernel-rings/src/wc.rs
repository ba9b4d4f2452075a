//! Completions of the kernel's own layout (`ib_uverbs_wc`), decoded in place. rxe and
//! rdmavt have it.
//!
//! # Safety
//!
//! An entry is read through a raw pointer, by volatile loads. It is the program's from the moment
//! the kernel's producer index passed it until the consumer index is published, which comes after
//! the view's lifetime.
#![allow(unsafe_code, reason = "reads completions that the kernel wrote, by raw address")]

use std::fmt;
use std::marker::PhantomData;
use std::mem::offset_of;

use uverbs_core::provider::View;
use uverbs_core::queues::completion::{Completed, Failure, Sender, Status};
use uverbs_core::queues::known::Ended;
use uverbs_kernel_abi::wc as abi;
use uverbs_kernel_abi::wc::ib_uverbs_wc;
use zerocopy::{FromZeros, IntoBytes};

/// Bit in the opcode of a receive (kernel `ib_verbs.h`, `enum ib_wc_opcode`).
const IB_WC_RECV: u32 = 1 << 7;
const IB_WC_RECV_RDMA_WITH_IMM: u32 = IB_WC_RECV + 1;
/// Linux 6.2, `enum ib_uverbs_wc_opcode`.
const IB_WC_FLUSH: u32 = 8;
const IB_WC_ATOMIC_WRITE: u32 = 9;
/// Flag of a completion that invalidated a key (kernel `ib_verbs.h`, `enum ib_wc_flags`).
const IB_WC_WITH_INVALIDATE: u32 = 1 << 2;

/// Entry of a completion queue's ring.
#[derive(Clone, Copy, Debug)]
pub struct UverbsWc {
    at: *const u8,
}

impl UverbsWc {
    /// Entry at an address.
    ///
    /// # Safety
    ///
    /// `at` is aligned to 8 bytes and valid to read an `ib_uverbs_wc` while the entry or a view of
    /// it is used.
    #[inline(always)]
    pub unsafe fn new(at: *const u8) -> Self {
        Self { at }
    }

    #[inline(always)]
    fn word(self, offset: usize) -> u32 {
        // SAFETY: a field of this size is at `offset`, aligned by the layout; see `new`.
        unsafe { self.at.wrapping_add(offset).cast::<u32>().read_volatile() }
    }

    #[inline(always)]
    fn half(self, offset: usize) -> u16 {
        // SAFETY: as in `word`.
        unsafe { self.at.wrapping_add(offset).cast::<u16>().read_volatile() }
    }

    #[inline(always)]
    fn byte(self, offset: usize) -> u8 {
        // SAFETY: as in `word`.
        unsafe { self.at.wrapping_add(offset).read_volatile() }
    }

    /// Token of the work request.
    #[inline(always)]
    #[must_use]
    pub fn wr_id(self) -> u64 {
        let at = self.at.wrapping_add(offset_of!(ib_uverbs_wc, wr_id));
        // SAFETY: as in `word`.
        unsafe { at.cast::<u64>().read_volatile() }
    }

    /// Status: `enum ib_wc_status`.
    #[inline(always)]
    #[must_use]
    pub fn status(self) -> u32 {
        self.word(offset_of!(ib_uverbs_wc, status))
    }

    /// Opcode: `enum ib_wc_opcode`.
    #[inline(always)]
    #[must_use]
    pub fn opcode(self) -> u32 {
        self.word(offset_of!(ib_uverbs_wc, opcode))
    }

    /// Length of the message.
    #[inline(always)]
    #[must_use]
    pub fn byte_len(self) -> u32 {
        self.word(offset_of!(ib_uverbs_wc, byte_len))
    }

    /// Number of the local queue pair.
    #[inline(always)]
    #[must_use]
    pub fn qpn(self) -> u32 {
        self.word(offset_of!(ib_uverbs_wc, qp_num))
    }

    /// Result, as far as the slot of the work request is concerned. The bytes of a WRITE with
    /// immediate data are elsewhere.
    #[inline(always)]
    #[must_use]
    pub fn ended(self) -> Ended {
        if self.status() != abi::IB_WC_SUCCESS {
            return Ended::Failed;
        }
        let took_send = self.opcode() == IB_WC_RECV;
        Ended::Done { bytes: if took_send { self.byte_len() } else { 0 } }
    }

    /// Copy of the entry, for printing.
    fn copy(self) -> ib_uverbs_wc {
        let mut wc = ib_uverbs_wc::new_zeroed();
        for (offset, byte) in wc.as_mut_bytes().iter_mut().enumerate() {
            // SAFETY: within the struct; see `new`.
            *byte = unsafe { self.at.wrapping_add(offset).read_volatile() };
        }
        wc
    }
}

/// A completion that lives until the next poll.
#[derive(Clone, Copy)]
pub struct Wc<'a> {
    entry: UverbsWc,
    is_recv: bool,
    _queue: PhantomData<&'a ()>,
}

impl Wc<'_> {
    /// View of an entry, of a receive if `is_recv`.
    ///
    /// # Safety
    ///
    /// The entry stays valid, and is not given back to the kernel, for the view's lifetime.
    #[inline(always)]
    pub unsafe fn new(entry: UverbsWc, is_recv: bool) -> Self {
        Self { entry, is_recv, _queue: PhantomData }
    }

    /// Fields of the entry as the header has them. `wr_id` is the provider's token.
    #[must_use]
    pub fn abi(&self) -> ib_uverbs_wc {
        self.entry.copy()
    }

    fn is_success(&self) -> bool {
        self.entry.status() == abi::IB_WC_SUCCESS
    }

    #[cold]
    #[inline(never)]
    fn failure(self, status: u32) -> Failure {
        let vendor = self.entry.word(offset_of!(ib_uverbs_wc, vendor_err));
        Failure {
            status: status_of(status),
            syndrome: u8::try_from(status).unwrap_or(u8::MAX),
            vendor_syndrome: u8::try_from(vendor).unwrap_or(u8::MAX),
        }
    }
}

/// Name of an `enum ib_wc_status`. Statuses that no driver gives (datagram domains, end-to-end
/// contexts) are general, and so are unknown ones.
fn status_of(status: u32) -> Status {
    match status {
        abi::IB_WC_LOC_LEN_ERR => Status::LocalLength,
        abi::IB_WC_LOC_QP_OP_ERR => Status::LocalQpOperation,
        abi::IB_WC_LOC_PROT_ERR => Status::LocalProtection,
        abi::IB_WC_WR_FLUSH_ERR => Status::Flushed,
        abi::IB_WC_MW_BIND_ERR => Status::MemoryWindowBind,
        abi::IB_WC_BAD_RESP_ERR => Status::BadResponse,
        abi::IB_WC_LOC_ACCESS_ERR => Status::LocalAccess,
        abi::IB_WC_REM_INV_REQ_ERR => Status::RemoteInvalidRequest,
        abi::IB_WC_REM_ACCESS_ERR => Status::RemoteAccess,
        abi::IB_WC_REM_OP_ERR => Status::RemoteOperation,
        abi::IB_WC_RETRY_EXC_ERR => Status::RetryExceeded,
        abi::IB_WC_RNR_RETRY_EXC_ERR => Status::RnrRetryExceeded,
        abi::IB_WC_REM_ABORT_ERR => Status::RemoteAborted,
        _ => Status::General,
    }
}

impl View for Wc<'_> {
    #[inline]
    fn result(&self) -> Result<Completed, Failure> {
        let status = self.entry.status();
        if status != abi::IB_WC_SUCCESS {
            return Err(self.failure(status));
        }
        Ok(match (self.is_recv, self.entry.opcode()) {
            (true, IB_WC_RECV) => Completed::Recv,
            (true, IB_WC_RECV_RDMA_WITH_IMM) => Completed::RecvWriteImm,
            (false, abi::IB_UVERBS_WC_SEND) => Completed::Send,
            (false, abi::IB_UVERBS_WC_RDMA_WRITE) => Completed::Write,
            (false, abi::IB_UVERBS_WC_RDMA_READ) => Completed::Read,
            (false, abi::IB_UVERBS_WC_COMP_SWAP) => Completed::CompareSwap,
            (false, abi::IB_UVERBS_WC_FETCH_ADD) => Completed::FetchAdd,
            (false, abi::IB_UVERBS_WC_BIND_MW | abi::IB_UVERBS_WC_LOCAL_INV) => Completed::Rekey,
            (false, IB_WC_FLUSH) => Completed::Flush,
            (false, IB_WC_ATOMIC_WRITE) => Completed::AtomicWrite,
            (_, other) => Completed::Other(u8::try_from(other).unwrap_or(u8::MAX)),
        })
    }

    #[inline]
    fn is_recv(&self) -> bool {
        self.is_recv
    }

    /// Length of receives, READs and atomics. The kernel tells the length of sends and writes, too,
    /// but the program knows it.
    #[inline]
    fn byte_len(&self) -> u32 {
        if !self.is_success() {
            return 0;
        }
        match (self.is_recv, self.entry.opcode()) {
            (false, abi::IB_UVERBS_WC_SEND | abi::IB_UVERBS_WC_RDMA_WRITE) => 0,
            (false, IB_WC_FLUSH | IB_WC_ATOMIC_WRITE) => 0,
            _ => self.entry.byte_len(),
        }
    }

    #[inline]
    fn immediate(&self) -> Option<u32> {
        let flags = self.entry.word(offset_of!(ib_uverbs_wc, wc_flags));
        let has_one = self.is_recv && self.is_success() && flags & abi::IB_WC_WITH_IMM != 0;
        has_one.then(|| u32::from_be(self.entry.word(offset_of!(ib_uverbs_wc, ex))))
    }

    /// Kernel `rxe_comp.c:make_send_cqe`.
    #[inline]
    fn sent_immediate(&self) -> bool {
        let flags = self.entry.word(offset_of!(ib_uverbs_wc, wc_flags));
        !self.is_recv && self.is_success() && flags & abi::IB_WC_WITH_IMM != 0
    }

    /// Kernel `rxe_comp.c:wr_to_wc_opcode`. librxe hands the opcode on (`rxe.c:rxe_poll_cq`,
    /// `cq_read_opcode`).
    #[inline]
    fn is_local_invalidation(&self) -> bool {
        let is_one = self.entry.opcode() == abi::IB_UVERBS_WC_LOCAL_INV;
        !self.is_recv && self.is_success() && is_one
    }

    /// `None`: the kernel has no timestamp here.
    #[inline]
    fn timestamp(&self) -> Option<u64> {
        None
    }

    #[inline]
    fn invalidated(&self) -> Option<u32> {
        let flags = self.entry.word(offset_of!(ib_uverbs_wc, wc_flags));
        let has_one = self.is_recv && self.is_success() && flags & IB_WC_WITH_INVALIDATE != 0;
        has_one.then(|| self.entry.word(offset_of!(ib_uverbs_wc, ex)))
    }

    #[inline]
    fn qpn(&self) -> u32 {
        self.entry.qpn()
    }

    #[inline]
    fn pkey_index(&self) -> u16 {
        self.entry.half(offset_of!(ib_uverbs_wc, pkey_index))
    }

    #[inline]
    fn path_bits(&self) -> u8 {
        self.entry.byte(offset_of!(ib_uverbs_wc, dlid_path_bits))
    }

    /// On RoCE LID and service level are 0.
    #[inline]
    fn sender(&self) -> Sender {
        let flags = self.entry.word(offset_of!(ib_uverbs_wc, wc_flags));
        let qpn = self.entry.word(offset_of!(ib_uverbs_wc, src_qp));
        let has_grh = flags & abi::IB_WC_GRH != 0;
        let level = self.entry.byte(offset_of!(ib_uverbs_wc, sl));
        Sender::new(qpn, level, has_grh, self.entry.half(offset_of!(ib_uverbs_wc, slid)))
    }
}

/// Prints every field of the entry.
impl fmt::Debug for Wc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.abi(), f)
    }
}
