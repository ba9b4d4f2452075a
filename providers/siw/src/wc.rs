//! Completions, decoded in place.
//!
//! # Safety
//!
//! An entry is read through a raw pointer, by volatile loads. It is the program's from the moment
//! the kernel set its flag until it is given back, which comes after the view's lifetime.
#![allow(unsafe_code, reason = "reads completions that the kernel wrote, by raw address")]

use std::fmt;
use std::marker::PhantomData;
use std::mem::offset_of;

use uverbs_core::provider::View;
use uverbs_core::queues::completion::{Completed, Failure, Sender, Status};
use uverbs_kernel_abi::siw as abi;
use uverbs_kernel_abi::siw::siw_cqe;

/// Entry of a completion queue's ring.
#[derive(Clone, Copy, Debug)]
pub struct SiwCqe {
    at: *const siw_cqe,
}

impl SiwCqe {
    /// # Safety
    ///
    /// `at` is aligned and valid to read while the entry or a view of it is used.
    #[inline(always)]
    pub(crate) unsafe fn new(at: *const siw_cqe) -> Self {
        Self { at }
    }

    #[inline(always)]
    fn field<T>(self, offset: usize) -> *const T {
        self.at.cast::<u8>().wrapping_add(offset).cast()
    }

    /// Number of the work request: its token, with a bit for quiet ones.
    #[inline(always)]
    pub(crate) fn id(self) -> u64 {
        // SAFETY: a field; see `new`.
        unsafe { self.field::<u64>(offset_of!(siw_cqe, id)).read_volatile() }
    }

    #[inline(always)]
    pub(crate) fn status(self) -> u32 {
        // SAFETY: a field; see `new`.
        unsafe { self.field::<u16>(offset_of!(siw_cqe, status)).read_volatile() }.into()
    }

    #[inline(always)]
    fn opcode(self) -> u32 {
        // SAFETY: a field; see `new`.
        unsafe { self.field::<u8>(offset_of!(siw_cqe, opcode)).read_volatile() }.into()
    }

    #[inline(always)]
    pub(crate) fn bytes(self) -> u32 {
        // SAFETY: a field; see `new`.
        unsafe { self.field::<u32>(offset_of!(siw_cqe, bytes)).read_volatile() }
    }

    /// Number of the local queue pair.
    #[inline(always)]
    pub(crate) fn qpn(self) -> u32 {
        // SAFETY: a field; see `new`.
        unsafe { self.field::<u64>(offset_of!(siw_cqe, base_qp)).read_volatile() as u32 }
    }
}

/// A completion that lives until the next poll.
#[derive(Clone, Copy)]
pub struct Wc<'a> {
    entry: SiwCqe,
    is_recv: bool,
    _queue: PhantomData<&'a ()>,
}

impl Wc<'_> {
    /// # Safety
    ///
    /// The entry stays valid, and is not given back to the kernel, for the view's lifetime.
    #[inline(always)]
    pub(crate) unsafe fn new(entry: SiwCqe, is_recv: bool) -> Self {
        Self { entry, is_recv, _queue: PhantomData }
    }

    /// The entry in the layout of `siw-abi.h`. `id` is the provider's token.
    #[must_use]
    pub fn abi(&self) -> siw_cqe {
        // SAFETY: see `SiwCqe::new`.
        unsafe { self.entry.at.read_volatile() }
    }
}

/// Name of an `enum siw_wc_status`. Unknown statuses are general.
fn status_of(status: u32) -> Status {
    match status {
        abi::SIW_WC_LOC_LEN_ERR => Status::LocalLength,
        abi::SIW_WC_LOC_PROT_ERR => Status::LocalProtection,
        abi::SIW_WC_LOC_QP_OP_ERR => Status::LocalQpOperation,
        abi::SIW_WC_WR_FLUSH_ERR => Status::Flushed,
        abi::SIW_WC_BAD_RESP_ERR => Status::BadResponse,
        abi::SIW_WC_LOC_ACCESS_ERR => Status::LocalAccess,
        abi::SIW_WC_REM_ACCESS_ERR => Status::RemoteAccess,
        abi::SIW_WC_REM_INV_REQ_ERR => Status::RemoteInvalidRequest,
        _ => Status::General,
    }
}

impl View for Wc<'_> {
    #[inline]
    fn result(&self) -> Result<Completed, Failure> {
        let status = self.entry.status();
        if status != abi::SIW_WC_SUCCESS {
            let syndrome = u8::try_from(status).unwrap_or(u8::MAX);
            return Err(Failure { status: status_of(status), syndrome, vendor_syndrome: 0 });
        }
        Ok(match (self.is_recv, self.entry.opcode()) {
            (true, _) => Completed::Recv,
            (false, abi::SIW_OP_SEND | abi::SIW_OP_SEND_REMOTE_INV) => Completed::Send,
            (false, abi::SIW_OP_WRITE) => Completed::Write,
            (false, abi::SIW_OP_READ) => Completed::Read,
            (false, other) => Completed::Other(other as u8),
        })
    }

    #[inline]
    fn is_recv(&self) -> bool {
        self.is_recv
    }

    /// Length of receives and READs: the program knows the length of sends and writes, although the
    /// kernel tells it.
    #[inline]
    fn byte_len(&self) -> u32 {
        let told = self.is_recv || self.entry.opcode() == abi::SIW_OP_READ;
        if told && self.entry.status() == abi::SIW_WC_SUCCESS { self.entry.bytes() } else { 0 }
    }

    /// `None`: iWARP has no immediate data.
    #[inline]
    fn immediate(&self) -> Option<u32> {
        None
    }

    /// `None`: siw has no clock.
    #[inline]
    fn timestamp(&self) -> Option<u64> {
        None
    }

    /// `None`: the kernel tells only its own users (`siw_qp.c:siw_rqe_complete`).
    #[inline]
    fn invalidated(&self) -> Option<u32> {
        None
    }

    #[inline]
    fn qpn(&self) -> u32 {
        self.entry.qpn()
    }

    /// Default sender: iWARP has no datagrams.
    #[inline]
    fn sender(&self) -> Sender {
        Sender::default()
    }
}

/// Prints every field of the entry.
impl fmt::Debug for Wc<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.abi(), f)
    }
}
