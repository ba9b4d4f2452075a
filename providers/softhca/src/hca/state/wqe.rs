//! A send WQE ready for execution: decoded, checked, its payload inline or in memory.

use uverbs_mlx5_prm::opcode::Opcode;

use crate::hca::payload::Payload;
use crate::hca::state::common::Common;
use crate::hca::state::frame::EthernetSend;
use crate::hca::state::keys::{KeyFault, Segment, Who};
use crate::hca::state::tags::TagWork;
use crate::hca::state::umr::Umr;
use crate::wire::{Address, Feth, Route, Span};
use uverbs_front::backend::context::Access;
use uverbs_front::backend::number::{Key, Qpn};

/// Bytes that are copied in one step.
const COPY_STEP: usize = 1 << 16;

/// Operation of a send WQE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Nop,
    /// Copies memory to memory on this host: the first piece to the second.
    Copy,
    /// Changes a memory key by [`Wqe::umr`].
    Umr,
    /// Changes a tag list by [`Wqe::tags`].
    Tags,
    Send,
    SendImm(u32),
    SendInval(Key),
    Write {
        va: u64,
        rkey: Key,
        imm: Option<u32>,
    },
    Read {
        va: u64,
        rkey: Key,
    },
    CompareSwap {
        va: u64,
        rkey: Key,
        swap: u64,
        compare: u64,
    },
    FetchAdd {
        va: u64,
        rkey: Key,
        add: u64,
    },
    Flush {
        va: u64,
        rkey: Key,
        len: u32,
        header: Feth,
    },
    /// Writes the eight bytes of the payload.
    AtomicWrite {
        va: u64,
        rkey: Key,
    },
}

impl Op {
    /// True for READ, atomics, FLUSH and ATOMIC WRITE: limited in number, waited for by a fence,
    /// answered by more than an acknowledgement.
    pub(crate) fn is_fetching(self) -> bool {
        matches!(self, Op::Read { .. } | Op::CompareSwap { .. } | Op::FetchAdd { .. })
            || self.is_placing()
    }

    /// True for FLUSH and ATOMIC WRITE: their answer has no data.
    pub(crate) fn is_placing(self) -> bool {
        matches!(self, Op::Flush { .. } | Op::AtomicWrite { .. })
    }
}

/// Part of a payload: an SGE, or inline data.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Piece {
    Memory(Segment),
    /// Offset in the bytes of [`Pieces`], and length.
    Inline(u16, u16),
}

/// A payload's SGEs and inline data in order, and the inline bytes.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    list: Vec<Piece>,
    bytes: Vec<u8>,
}

impl Pieces {
    pub(crate) fn push(&mut self, segment: Segment) {
        self.list.push(Piece::Memory(segment));
    }

    /// Appends inline data. All calls together may not exceed one WQE's bytes.
    pub(crate) fn push_inline(&mut self, data: &[u8]) {
        self.list.push(Piece::Inline(self.bytes.len() as u16, data.len() as u16));
        self.bytes.extend_from_slice(data);
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
    }

    pub(crate) fn list(&self) -> &[Piece] {
        &self.list
    }
}

impl From<Vec<Segment>> for Pieces {
    fn from(segments: Vec<Segment>) -> Self {
        let list = segments.into_iter().map(Piece::Memory).collect();
        Self { list, bytes: Vec::new() }
    }
}

/// A send WQE that passed its checks. Its size is limited: a WQE has at most 63 segments and 1008
/// bytes.
#[derive(Debug)]
pub(crate) struct Wqe {
    /// Index of the first WQEBB.
    pub(crate) index: u16,
    pub(crate) opcode: Opcode,
    pub(crate) op: Op,
    /// Completes with a CQE on success.
    pub(crate) signaled: bool,
    pub(crate) solicited: bool,
    pub(crate) fence: bool,
    /// Bytes of the payload, or of the response.
    pub(crate) len: u32,
    pub(crate) umr: Option<Box<Umr>>,
    pub(crate) ethernet: Option<Box<EthernetSend>>,
    /// Work of a tag-matching SRQ.
    pub(crate) tags: Option<Box<TagWork>>,
    /// Destination, for UD and DC.
    pub(crate) to: Option<Destination>,
    /// SRQ at the peer, for XRC.
    pub(crate) xrc_srqn: u32,
    /// Stream, for DC; 0 without streams.
    pub(crate) stream: u16,
    pub(crate) pieces: Pieces,
}

/// Destination of a datagram or of a dynamic connection, from the address vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) src: Address,
    pub(crate) dst: Address,
    pub(crate) route: Route,
    /// Queue pair, or target of dynamic connections.
    pub(crate) qpn: Qpn,
    pub(crate) qkey: u32,
    pub(crate) dc_key: u64,
}

impl Default for Wqe {
    /// A NOP.
    fn default() -> Self {
        Self {
            index: 0,
            opcode: Opcode::NOP,
            op: Op::Nop,
            signaled: false,
            solicited: false,
            fence: false,
            len: 0,
            umr: None,
            ethernet: None,
            tags: None,
            to: None,
            xrc_srqn: 0,
            stream: 0,
            pieces: Pieces::default(),
        }
    }
}

impl Wqe {
    /// Drops lists and boxes. The next fetch sets the other fields.
    #[inline]
    pub(crate) fn clear(&mut self) {
        (self.umr, self.ethernet, self.tags) = (None, None, None);
        self.pieces.clear();
    }

    /// Reads `buf.len()` bytes of the payload, from `offset`.
    #[inline]
    pub(crate) fn gather(
        &self,
        common: &Common,
        who: Who,
        offset: u64,
        buf: &mut [u8],
    ) -> Result<(), KeyFault> {
        if let ([Piece::Inline(at, len)], 0) = (&self.pieces.list[..], offset)
            && usize::from(*len) == buf.len()
        {
            // In range: the buffer has the length of the piece.
            buf.copy_from_slice(&self.pieces.bytes[usize::from(*at)..][..buf.len()]);
            return Ok(());
        }
        let (mut skip, mut done) = (offset, 0);
        for &piece in &self.pieces.list {
            let len = piece.len();
            if skip >= len {
                skip -= len;
                continue;
            }
            let run = (len - skip).min((buf.len() - done) as u64) as usize;
            let into = &mut buf[done..done + run];
            match piece {
                Piece::Memory(segment) => {
                    common.keys.gather(&*common.dma, who, &[segment], skip, into)?;
                }
                // In range: `run` ends at or before the piece's end.
                Piece::Inline(at, _) => {
                    let from = usize::from(at) + skip as usize;
                    into.copy_from_slice(&self.pieces.bytes[from..from + run]);
                }
            }
            skip = 0;
            done += run;
            if done == buf.len() {
                break;
            }
        }
        if done == buf.len() { Ok(()) } else { Err(KeyFault::Range) }
    }

    /// Addresses of `len` bytes of the payload from `offset` in this process. None if another
    /// process can't read them there.
    pub(crate) fn spans(
        &self,
        common: &Common,
        who: Who,
        offset: u64,
        len: u32,
    ) -> Option<Vec<Span>> {
        let (mut skip, mut left) = (offset, u64::from(len));
        let mut spans = Vec::new();
        for piece in &self.pieces.list {
            let run = piece.len().saturating_sub(skip).min(left);
            if run != 0 {
                let Piece::Memory(segment) = piece else { return None };
                let addr = segment.addr.checked_add(skip)?;
                let part = Segment { addr, len: run, ..*segment };
                common.keys.spans(&*common.dma, who, part, Access::empty(), &mut spans)?;
            }
            skip = skip.saturating_sub(piece.len());
            left -= run;
        }
        (left == 0).then_some(spans)
    }

    /// Writes a part of the response, from `offset`.
    pub(crate) fn scatter(
        &self,
        common: &Common,
        who: Who,
        mut offset: u64,
        data: Payload<'_>,
    ) -> Result<(), KeyFault> {
        let mut done = 0;
        for piece in &self.pieces.list {
            let Piece::Memory(segment) = piece else {
                return Err(KeyFault::Range);
            };
            if offset >= segment.len {
                offset -= segment.len;
                continue;
            }
            let end = done + (segment.len - offset).min((data.len() - done) as u64) as usize;
            common.keys.scatter(&*common.dma, who, &[*segment], offset, data.part(done, end))?;
            (offset, done) = (0, end);
            if done == data.len() {
                break;
            }
        }
        if done == data.len() { Ok(()) } else { Err(KeyFault::Range) }
    }

    /// Checks that a response could be written, without writing.
    pub(crate) fn check(&self, common: &Common, who: Who) -> Result<(), KeyFault> {
        self.pieces.list.iter().try_for_each(|piece| match piece {
            Piece::Memory(segment) => common.keys.check(who, *segment, Access::LOCAL_WRITE),
            Piece::Inline(..) => Err(KeyFault::Range),
        })
    }

    /// Copies the first piece to the second.
    pub(crate) fn copy(&self, common: &Common, who: Who) -> Result<(), KeyFault> {
        let [Piece::Memory(from), Piece::Memory(to)] = &self.pieces.list[..] else {
            return Err(KeyFault::Range);
        };
        let mut buf = vec![0; COPY_STEP.min(self.len as usize)];
        let mut done = 0;
        while done < from.len {
            let run = (from.len - done).min(COPY_STEP as u64) as usize;
            common.keys.gather(&*common.dma, who, &[*from], done, &mut buf[..run])?;
            common.keys.scatter(&*common.dma, who, &[*to], done, &buf[..run])?;
            done += run as u64;
        }
        Ok(())
    }
}

impl Piece {
    pub(crate) fn len(self) -> u64 {
        match self {
            Piece::Memory(segment) => segment.len,
            Piece::Inline(_, len) => len.into(),
        }
    }
}
