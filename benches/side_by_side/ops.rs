//! The timed operations, each raw and by safe calls.
//!
//! # Safety
//!
//! As in `ours.rs`: the device never reads a work request.
#![allow(unsafe_code, reason = "raw posts are what is measured")]

use uverbs::provider::Provider;
use uverbs::raw::{Data, SendOp, Sge};
use uverbs::{Batch, ExposedMemory, Frame, PostError, Remote, Unposted, Wr};
use zerocopy::IntoBytes;

/// Bytes of a message, and of a place in the memory.
pub(crate) const PAYLOAD: u32 = 64;
/// Places, used in turn.
pub(crate) const LINES: u64 = 64;
/// Pieces of a gather list.
const SGES: usize = 4;

/// Registered memory as raw posts name it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    pub(crate) addr: u64,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
    /// Inline data; a program's own memory.
    pub(crate) bytes: &'static [[u64; 8]; LINES as usize],
}

impl Area {
    pub(crate) fn of(memory: &ExposedMemory) -> Self {
        Self {
            addr: memory.remote(0).addr,
            lkey: memory.sge(0, PAYLOAD).lkey,
            rkey: memory.remote(0).rkey,
            bytes: &[[1; 8]; LINES as usize],
        }
    }

    #[inline(always)]
    fn offset(self, id: u64) -> u64 {
        id % LINES * u64::from(PAYLOAD)
    }

    #[inline(always)]
    pub(crate) fn sge(self, id: u64, len: u32) -> Sge {
        Sge { addr: self.addr + self.offset(id), len, lkey: self.lkey }
    }

    #[inline(always)]
    fn remote(self, id: u64) -> Remote {
        Remote { addr: self.addr + self.offset(id), rkey: self.rkey }
    }

    #[inline(always)]
    fn bytes(&self, id: u64) -> &[u8] {
        self.bytes[(id % LINES) as usize][0].as_bytes()
    }
}

/// One operation of the benchmark, raw and by safe calls.
pub(crate) trait Op {
    /// WQEBBs of the operation's WQE.
    const UNITS: u32 = 1;
    /// The operation has a safe call.
    const SAFE: bool = true;
    /// The safe call takes a frame.
    const FRAME: bool = true;

    fn raw<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        id: u64,
        area: &Area,
    ) -> Result<(), PostError>;

    /// The raw post, with memory that is not predictable, as a safe call's frame. Ignores it if the
    /// operation has no data.
    #[inline(always)]
    fn piece<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        id: u64,
        area: &Area,
        piece: Sge,
    ) -> Result<(), PostError> {
        let _ = piece;
        Self::raw(batch, wr, id, area)
    }

    /// The safe post with a frame. Ignores it if the operation has no data.
    fn safe<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        id: u64,
        area: &Area,
        frames: &mut Vec<Frame>,
    ) -> Result<(), PostError>;
}

#[cold]
#[inline(never)]
pub(crate) fn refused(rejected: Unposted) -> PostError {
    rejected.error
}

#[derive(Debug)]
pub(crate) struct WriteInline8;
#[derive(Debug)]
pub(crate) struct Send64;
#[derive(Debug)]
pub(crate) struct Read;
#[derive(Debug)]
pub(crate) struct Atomic;
#[derive(Debug)]
pub(crate) struct Gather4;

impl Op for WriteInline8 {
    const FRAME: bool = false;

    #[inline(always)]
    fn raw<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        id: u64,
        area: &Area,
    ) -> Result<(), PostError> {
        // SAFETY: inline: no memory is named by key.
        unsafe { batch.raw().write(wr, Data::Inline(area.bytes(id)), area.remote(id)) }
    }

    #[inline(always)]
    fn safe<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        id: u64,
        area: &Area,
        _: &mut Vec<Frame>,
    ) -> Result<(), PostError> {
        batch.write_inline(wr, area.bytes(id), area.remote(id))
    }
}

impl Op for Send64 {
    #[inline(always)]
    fn raw<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        id: u64,
        area: &Area,
    ) -> Result<(), PostError> {
        // SAFETY: see the file's text.
        unsafe { batch.raw().send(wr, Data::One(area.sge(id, PAYLOAD))) }
    }

    #[inline(always)]
    fn piece<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        _: u64,
        _: &Area,
        piece: Sge,
    ) -> Result<(), PostError> {
        // SAFETY: see the file's text.
        unsafe { batch.raw().send(wr, Data::One(piece)) }
    }

    #[inline(always)]
    fn safe<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        _: u64,
        _: &Area,
        frames: &mut Vec<Frame>,
    ) -> Result<(), PostError> {
        let Some(frame) = frames.pop() else { return Err(PostError::Full) };
        batch.send(wr, frame).map_err(refused)
    }
}

impl Op for Read {
    #[inline(always)]
    fn raw<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        id: u64,
        area: &Area,
    ) -> Result<(), PostError> {
        // SAFETY: see the file's text.
        unsafe { batch.raw().read(wr, &[area.sge(id, PAYLOAD)], area.remote(id)) }
    }

    #[inline(always)]
    fn piece<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        id: u64,
        area: &Area,
        piece: Sge,
    ) -> Result<(), PostError> {
        // SAFETY: see the file's text.
        unsafe { batch.raw().read(wr, &[piece], area.remote(id)) }
    }

    #[inline(always)]
    fn safe<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        id: u64,
        area: &Area,
        frames: &mut Vec<Frame>,
    ) -> Result<(), PostError> {
        let Some(frame) = frames.pop() else { return Err(PostError::Full) };
        batch.read(wr, frame, area.remote(id)).map_err(refused)
    }
}

impl Op for Atomic {
    #[inline(always)]
    fn raw<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        id: u64,
        area: &Area,
    ) -> Result<(), PostError> {
        // SAFETY: see the file's text.
        unsafe { batch.raw().fetch_add(wr, area.sge(id, 8), area.remote(id), 1) }
    }

    #[inline(always)]
    fn piece<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        id: u64,
        area: &Area,
        piece: Sge,
    ) -> Result<(), PostError> {
        let piece = Sge { len: 8, ..piece };
        // SAFETY: see the file's text.
        unsafe { batch.raw().fetch_add(wr, piece, area.remote(id), 1) }
    }

    #[inline(always)]
    fn safe<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        id: u64,
        area: &Area,
        frames: &mut Vec<Frame>,
    ) -> Result<(), PostError> {
        let Some(frame) = frames.pop() else { return Err(PostError::Full) };
        batch.fetch_add(wr, frame, area.remote(id), 1).map_err(refused)
    }
}

impl Op for Gather4 {
    const FRAME: bool = false;

    const UNITS: u32 = 2;
    // There is no safe list.
    const SAFE: bool = false;

    #[inline(always)]
    fn raw<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        id: u64,
        area: &Area,
    ) -> Result<(), PostError> {
        let mut list: [Sge; SGES] = std::array::from_fn(|at| area.sge(at as u64, PAYLOAD));
        list[0] = area.sge(id, PAYLOAD);
        let op = SendOp::Write(area.remote(id));
        // SAFETY: see the file's text.
        unsafe { batch.raw().post(wr, op, Data::List(&list)) }
    }

    fn safe<P: Provider>(
        batch: &mut Batch<'_, P>,
        wr: Wr,
        id: u64,
        area: &Area,
        _: &mut Vec<Frame>,
    ) -> Result<(), PostError> {
        Self::raw(batch, wr, id, area)
    }
}
