//! Loans: payload that stays in the sender's memory until the receiver has copied it.
//!
//! The lender writes a record with the packet's headers and the payload's place into the ring. The
//! receiver copies the payload from its mapping if the place is in an [area](super::area);
//! otherwise the kernel copies between the processes (process_vm_readv(2)). States of a record:
//!
//! | state | stored by | meaning |
//! |---|---|---|
//! | lent | the lender | the payload is at the place |
//! | taken | the reader, after its copy | the payload arrived |
//! | refused | the reader | the place was unreadable; the packet is lost |
//! | recalled | the lender | the program owns the memory again; the packet is lost |
//!
//! The first change of "lent" counts. A copy that ends after the recall is discarded.
//!
//! The kernel reports the process that connected, and checks that this process may read it. Its
//! number may be reused before a copy. So the lender keeps a random name in its memory, which is
//! compared before a copy: a process that reused the number loses no bytes. Each copy also ends
//! with the name. The kernel looks the process up once per call, so all bytes of a call come from
//! the process with that name.
#![allow(unsafe_code, reason = "process_vm_readv and copies write to addresses")]

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::borrowed::{Borrowed, Mapped};
use super::lease::{Lease, Move, Piece};
use super::memory::Memory;
use super::stats::Shared;
use crate::closer::Closer;
use crate::copy;
use crate::wire::Frame;
use crate::wire::counts::add;

/// Bytes of a process's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Address of the first byte.
    pub(crate) addr: u64,
    /// Length in bytes.
    pub(crate) len: u64,
}

/// Maximum pieces of a payload.
pub(crate) const SPANS: usize = 8;
/// Minimum bytes of a loan; shorter payloads are faster copied.
pub(crate) const SHORTEST_LOAN: u32 = 8192;
/// Maximum bytes of a loan.
pub(crate) const LONGEST_LOAN: u32 = 1 << 16;

/// Name of a lender, and its address in the lender's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) at: u64,
    pub(super) name: [u64; 2],
}

/// Name of a wire's end, valid while the end exists.
#[derive(Debug)]
pub(super) struct Name(Box<[AtomicU64; 2]>);

impl Default for Name {
    fn default() -> Name {
        // The hasher's keys are random; that is all that is needed.
        let random = || RandomState::new().build_hasher().finish() | 1;
        Name(Box::new([random(), random()].map(AtomicU64::new)))
    }
}

impl Name {
    pub(super) fn identity(&self) -> Identity {
        Identity {
            at: self.0.as_ptr().expose_provenance() as u64,
            name: self.0.each_ref().map(|word| word.load(Ordering::Relaxed)),
        }
    }

    /// Withdraws the name: the kernel copies no more from here.
    pub(super) fn forget(&self) {
        self.0.iter().for_each(|word| word.store(0, Ordering::SeqCst));
    }
}

impl Drop for Name {
    fn drop(&mut self) {
        self.forget();
    }
}

/// A process that lends.
#[derive(Debug)]
pub(super) struct Lender {
    pid: i32,
    identity: Identity,
    borrowed: Borrowed,
    shared: Arc<Shared>,
}

impl Lender {
    /// Finds the process at the other end of a connection. `None` if its memory is unreadable.
    pub(super) fn find(
        pid: i32,
        identity: Identity,
        shared: &Arc<Shared>,
        closer: &Closer,
    ) -> Option<Arc<Lender>> {
        // In this order: if the name is there after the open, the opened process has it.
        let borrowed = Borrowed::new(pid, closer.clone());
        let lender = Lender { pid, identity, borrowed, shared: Arc::clone(shared) };
        (pid > 0 && lender.is_there()).then(|| Arc::new(lender))
    }

    /// See [`Borrowed::rest`].
    pub(super) fn rest(&self, now: Duration) {
        self.borrowed.rest(now);
    }

    /// Number of known files, mapped or not.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.borrowed.count()
    }

    /// Returns `true` if the process of this number has the lender's name in its memory.
    fn is_there(&self) -> bool {
        // SAFETY: no bytes are asked for, so nothing is written to the address.
        unsafe { self.read_named(&[], 0, 0, 0) }
    }

    /// Copies `len` bytes from offset `from` of the pieces to an address of this process. The
    /// address may be unmapped: the kernel tests it. True if all bytes were copied from this
    /// lender.
    ///
    /// # Safety
    /// If the bytes at `to` are mapped, their owner allows writes to them until this returns.
    unsafe fn read(&self, pieces: &[Piece], from: u64, to: u64, len: u64) -> bool {
        // SAFETY: by the contract of `read`.
        self.is_there() && unsafe { self.read_named(pieces, from, to, len) }
    }

    /// Copies bytes, and then the name, in one call. True if all bytes were copied and the name is
    /// the lender's.
    ///
    /// # Safety
    /// As [`read`](Self::read).
    unsafe fn read_named(&self, pieces: &[Piece], from: u64, to: u64, len: u64) -> bool {
        let part = |addr: u64, len: u64| libc::iovec {
            iov_base: std::ptr::with_exposed_provenance_mut(addr as usize),
            iov_len: len as usize,
        };
        let mut there = [part(0, 0); SPANS + 1];
        let (mut count, mut left) = (0, len);
        for Part { piece, skip, run } in parts(pieces, from, len) {
            there[count] = part(piece.span.addr.wrapping_add(skip), run);
            (count, left) = (count + 1, left - run);
        }
        let mut name = [0_u64; 2];
        let name_len = size_of_val(&name);
        there[count] = part(self.identity.at, name_len as u64);
        let name_here = libc::iovec { iov_base: name.as_mut_ptr().cast(), iov_len: name_len };
        let here = [part(to, len), name_here];
        let here = if len == 0 { &here[1..] } else { &here };
        // SAFETY: both lists have the given lengths. The kernel refuses unmapped memory. It writes
        // to `to` by the contract of `read_named`, and to `name`.
        let read = unsafe {
            libc::process_vm_readv(
                self.pid,
                here.as_ptr(),
                here.len() as libc::c_ulong,
                there.as_ptr(),
                count as libc::c_ulong + 1,
                0,
            )
        };
        left == 0 && u64::try_from(read) == Ok(len + name_len as u64) && name == self.identity.name
    }

    /// Copies from mapped memory. Returns `false`, and copies no byte, unless all pieces are
    /// mapped.
    ///
    /// # Safety
    /// The bytes at `to` are mapped, and their owner allows writes to them.
    unsafe fn copy(&self, pieces: &[Piece], from: u64, to: u64, len: u64) -> bool {
        let mut found: [Option<(Arc<Mapped>, Part)>; SPANS] = Default::default();
        let mut left = len;
        for (to, part) in found.iter_mut().zip(parts(pieces, from, len)) {
            let Some(place) = part.piece.place else { return false };
            let Some(mapped) = self.borrowed.find(place, part.piece.span.len) else { return false };
            left -= part.run;
            *to = Some((mapped, part));
        }
        if left != 0 {
            return false;
        }
        let mut to = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
        for (mapped, Part { piece, skip, run }) in found.iter().flatten() {
            let offset = piece.place.map_or(0, |place| place.offset) + skip;
            let from = mapped.as_ptr().wrapping_add(offset as usize);
            // SAFETY: `find` checked that the piece lies in the mapping, which is held here. The
            // target is valid by the contract of `copy`.
            unsafe { copy::between(from, to, *run as usize) };
            to = to.wrapping_add(*run as usize);
        }
        true
    }
}

/// Part of a piece: `run` bytes after the first `skip`.
#[derive(Clone, Copy, Debug)]
struct Part {
    piece: Piece,
    skip: u64,
    run: u64,
}

/// Splits `len` bytes from offset `from` of the pieces into parts; fewer if the pieces end before.
fn parts(pieces: &[Piece], mut from: u64, len: u64) -> impl Iterator<Item = Part> {
    let mut left = len;
    let parts = pieces.iter().take(SPANS).map(move |piece| {
        let (skip, run) = (from, piece.span.len.saturating_sub(from).min(left));
        from = from.saturating_sub(piece.span.len);
        left -= run;
        Part { piece: *piece, skip, run }
    });
    parts.filter(|part| part.run != 0)
}

/// A packet's payload in its sender's memory.
#[derive(Clone, Debug)]
pub struct Loan {
    lender: Arc<Lender>,
    memory: Arc<Memory>,
    lease: Lease,
    len: u32,
}

impl PartialEq for Loan {
    fn eq(&self, other: &Loan) -> bool {
        Arc::ptr_eq(&self.memory, &other.memory) && self.lease == other.lease
    }
}

impl Eq for Loan {}

impl Loan {
    pub(super) fn new(lender: &Arc<Lender>, memory: &Arc<Memory>, lease: Lease) -> Loan {
        let len = lease.pieces.iter().map(|piece| piece.span.len).sum::<u64>() as u32;
        Loan { lender: Arc::clone(lender), memory: Arc::clone(memory), lease, len }
    }

    /// Bytes of payload.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.len as usize
    }

    /// Packets of the path's MTU that the payload counts for, as stated by its sender.
    pub(crate) fn packets(&self) -> u32 {
        self.lease.packets.into()
    }

    /// Copies `len` bytes from offset `from` of the payload to an address of this process. False if
    /// they are unreadable: then this payload and all later ones of the lender are lost, and the
    /// lender is told.
    ///
    /// # Safety
    /// The bytes at `to` are mapped, and their owner allows a device to write them.
    pub(crate) unsafe fn read(&self, from: u64, to: u64, len: u64) -> bool {
        let pieces = &self.lease.pieces;
        // SAFETY: by the contract of `read`.
        let mapped = unsafe { self.lender.copy(pieces, from, to, len) };
        if mapped {
            add(&self.lender.shared.counters.mapped, 1);
        }
        // SAFETY: by the contract of `read`.
        let done = mapped || unsafe { self.lender.read(pieces, from, to, len) };
        if !done && self.memory.turn(self.lease.at, Move::Refuse) {
            self.memory.take_loans(false);
            add(&self.lender.shared.counters.unread, 1);
        }
        done
    }

    /// Copies into a buffer.
    pub(crate) fn copy(&self, from: u64, to: &mut [u8]) -> bool {
        let (addr, len) = (to.as_mut_ptr().expose_provenance() as u64, to.len() as u64);
        // SAFETY: the buffer has these bytes, and is borrowed for writing.
        unsafe { self.read(from, addr, len) }
    }

    /// Copies the whole payload; `None` if it is unreadable.
    pub(crate) fn bytes(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; self.len()];
        (self.copy(0, &mut bytes) && self.settle()).then_some(bytes)
    }

    /// Takes the payload after the last copy. False if the lender recalled it: the copied bytes may
    /// differ from the sent ones.
    pub(crate) fn settle(&self) -> bool {
        let counters = &self.lender.shared.counters;
        let taken = self.memory.turn(self.lease.at, Move::Take);
        add(if taken { &counters.taken } else { &counters.recalled }, 1);
        taken
    }

    /// Returns `true` if the payload was unreadable or recalled.
    pub(crate) fn is_lost(&self) -> bool {
        !self.memory.is_lent(self.lease.at)
    }
}

/// Payload that a device offers its wire to lend, once. Only the device names the memory and ends
/// the loan: a wire can neither lend other memory nor keep the loan open.
///
/// ```compile_fail,E0451
/// use uverbs_softhca::wire::Lending;
/// let other = Lending { spans: &[], packets: 1, lent: None };
/// ```
///
/// ```compile_fail,E0616
/// # fn f(payload: &mut uverbs_softhca::wire::Lending<'_>) {
/// let kept = payload.lent.take();
/// # }
/// ```
#[derive(Debug)]
pub struct Lending<'a> {
    spans: &'a [Span],
    packets: u16,
    lent: Option<Lent>,
}

impl<'a> Lending<'a> {
    pub(crate) fn new(spans: &'a [Span], packets: u16) -> Self {
        Self { spans, packets, lent: None }
    }

    /// Calls `lend`, unless the payload is lent already.
    pub(crate) fn once(
        &mut self,
        frame: Frame,
        lend: impl FnOnce(Frame, &[Span], u16) -> Result<Lent, Frame>,
    ) -> Result<(), Frame> {
        if self.lent.is_some() {
            return Err(frame);
        }
        self.lent = Some(lend(frame, self.spans, self.packets)?);
        Ok(())
    }

    /// The lent memory, if a wire lent it.
    pub(crate) fn into_lent(self) -> Option<Lent> {
        self.lent
    }
}

/// Lent memory. Dropping it recalls a payload that was not taken: the packet is lost.
#[derive(Debug)]
pub(crate) struct Lent {
    memory: Arc<Memory>,
    at: u64,
    /// Spans of the payload, to detect changes by the program.
    spans: Vec<Span>,
}

impl Lent {
    pub(super) fn new(memory: &Arc<Memory>, at: u64, spans: &[Span]) -> Lent {
        Lent { memory: Arc::clone(memory), at, spans: spans.to_vec() }
    }

    pub(crate) fn spans(&self) -> &[Span] {
        &self.spans
    }

    /// Returns `true` if the receiver may still take it.
    pub(crate) fn is_open(&self) -> bool {
        self.memory.is_open(self.at)
    }

    /// Recalls the payload. False if it was taken or refused before.
    pub(crate) fn recall(&self) -> bool {
        self.memory.turn(self.at, Move::Recall)
    }

    /// Returns `true` if the receiver could not read it.
    pub(crate) fn is_refused(&self) -> bool {
        self.memory.is_refused(self.at)
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.recall();
    }
}
