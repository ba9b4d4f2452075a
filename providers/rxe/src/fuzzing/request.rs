//! Any work request, the send queue's expected verdict, and the element that the kernel must find:
//! by the offsets of `struct rxe_send_wqe` in `rdma_user_rxe.h`, without the provider's types.

use uverbs_core::attr::AccessFlags;
use uverbs_core::queues::placement::{FlushLevel, PlaceOp, PlacementTypes};
use uverbs_core::queues::work::{PostError, Rekey, Remote, SendFlags, SendOp, Sge, WindowKind};

/// Sizes that a queue was granted.
pub(super) struct Granted {
    pub(super) sges: usize,
    pub(super) inline: usize,
}

/// A work request of a connected queue pair.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) flags: SendFlags,
    pub(super) op: Op,
}

#[derive(Debug)]
pub(super) enum Op {
    List(SendOp, Vec<Sge>),
    Inline(SendOp, Vec<u8>),
    Rekey(Rekey),
    Place(PlaceOp),
}

/// Numbers out of a fuzzer's bytes; 0 after their end.
pub(super) struct Feed<'a>(pub(super) std::slice::Iter<'a, u8>);

impl Feed<'_> {
    pub(super) fn u8(&mut self) -> u8 {
        self.0.next().copied().unwrap_or(0)
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(std::array::from_fn(|_| self.u8()))
    }

    fn u64(&mut self) -> u64 {
        u64::from(self.u32()) << 32 | u64::from(self.u32())
    }

    fn remote(&mut self) -> Remote {
        Remote { addr: self.u64(), rkey: self.u32() }
    }

    /// Mostly short, since a list of any lengths is soon too long for a message.
    fn sge(&mut self) -> Sge {
        let len = match self.u8() {
            any if any >= 0xf0 => self.u32(),
            8.. => u32::from(self.u8()),
            _ => 8,
        };
        Sge { addr: self.u64(), len, lkey: self.u32() }
    }

    fn send_op(&mut self) -> SendOp {
        match self.u8() % 8 {
            0 => SendOp::Send,
            1 => SendOp::SendImm(self.u32()),
            2 => SendOp::SendInvalidate(self.u32()),
            3 => SendOp::Write(self.remote()),
            4 => SendOp::WriteImm(self.remote(), self.u32()),
            5 => SendOp::Read(self.remote()),
            6 => {
                SendOp::CompareSwap { remote: self.remote(), compare: self.u64(), swap: self.u64() }
            }
            _ => SendOp::FetchAdd { remote: self.remote(), add: self.u64() },
        }
    }

    fn place(&mut self) -> PlaceOp {
        let remote = self.remote();
        if self.u8() & 1 == 0 {
            return PlaceOp::AtomicWrite { remote, data: self.u64().to_ne_bytes() };
        }
        let types = PlacementTypes::from_bits_truncate(self.u8());
        let level = if self.u8() & 1 == 0 { FlushLevel::Range } else { FlushLevel::Region };
        PlaceOp::Flush { remote, len: self.u32(), types, level }
    }

    fn rekey(&mut self) -> Rekey {
        if self.u8() & 1 == 0 {
            return Rekey::Invalidate { key: self.u32() };
        }
        Rekey::Bind {
            kind: WindowKind::Type2,
            old: self.u32(),
            new: self.u32(),
            lkey: self.u32(),
            addr: self.u64(),
            len: self.u64() >> (self.u8() % 64),
            access: AccessFlags::from_bits_truncate(self.u8().into()),
        }
    }

    pub(super) fn request(&mut self) -> Request {
        let flags = SendFlags::from_bits_truncate(self.u8());
        let op = match self.u8() % 8 {
            0 => Op::Rekey(self.rekey()),
            1 => Op::Place(self.place()),
            2..=4 => {
                let (op, len) = (self.send_op(), self.u8() % 120);
                Op::Inline(op, (0..len).map(|_| self.u8()).collect())
            }
            _ => {
                let (op, count) = (self.send_op(), self.u8() % 8);
                Op::List(op, (0..count).map(|_| self.sge()).collect())
            }
        };
        Request { flags, op }
    }
}

impl Request {
    /// Error that every queue must return; `None` for a valid request. Limits: room of an element,
    /// `i32::MAX` bytes (kernel `rxe_req.c:rxe_requester`), eight bytes of an atomic (IBTA vol 1,
    /// 9.4.5), no inline data in READs and atomics (10.7.2.2), 2 GiB of a window.
    pub(super) fn refusal(&self, granted: &Granted) -> Option<PostError> {
        let is_long = |bytes: u64| bytes > i32::MAX as u64;
        match &self.op {
            Op::Inline(op, _) if op.is_answered() => Some(PostError::BadData),
            Op::Inline(_, bytes) if bytes.len() > granted.inline => Some(PostError::InlineTooLong),
            Op::List(_, list) if list.len() > granted.sges => Some(PostError::TooManySges),
            Op::List(_, list) if is_long(total(list)) => Some(PostError::MessageTooLong),
            Op::List(SendOp::CompareSwap { .. } | SendOp::FetchAdd { .. }, list)
                if list.iter().filter(|sge| sge.len != 0).count() != 1 || total(list) != 8 =>
            {
                Some(PostError::BadData)
            }
            Op::Rekey(Rekey::Bind { len, .. }) if *len > 1 << 31 => Some(PostError::MessageTooLong),
            Op::Place(PlaceOp::Flush { types, .. }) if types.is_empty() => Some(PostError::BadData),
            Op::Place(PlaceOp::Flush { len, .. }) if is_long(u64::from(*len)) => {
                Some(PostError::MessageTooLong)
            }
            Op::Place(PlaceOp::AtomicWrite { remote, .. }) if !remote.addr.is_multiple_of(8) => {
                Some(PostError::BadData)
            }
            _ => None,
        }
    }

    /// Fills an element as a post must: its first 208 bytes completely, and the bytes behind them
    /// that the work request uses.
    pub(super) fn fill(&self, element: &mut [u8], number: u64) {
        element[..208].fill(0);
        let mut put = |at: usize, bytes: &[u8]| element[at..][..bytes.len()].copy_from_slice(bytes);
        put(0, &number.to_ne_bytes());
        // `enum ib_send_flags`: fence, signaled, solicited, inline.
        let bits = [(SendFlags::FENCE, 1), (SendFlags::SIGNALED, 2), (SendFlags::SOLICITED, 4)];
        let bits = bits.iter().filter(|(flag, _)| self.flags.contains(*flag));
        let inline = if matches!(self.op, Op::Inline(..)) { 8 } else { 0 };
        put(16, &bits.fold(inline, |all: u32, (_, bit)| all | bit).to_ne_bytes());
        let length = match &self.op {
            Op::List(op, list) => {
                fill_op(&mut put, op);
                let list = list.iter().filter(|sge| sge.len != 0);
                put(196, &(list.clone().count() as u32).to_ne_bytes());
                for (at, sge) in (208..).step_by(16).zip(list.clone()) {
                    put(at, &sge.addr.to_ne_bytes());
                    put(at + 8, &sge.len.to_ne_bytes());
                    put(at + 12, &sge.lkey.to_ne_bytes());
                }
                list.map(|sge| sge.len).sum()
            }
            Op::Inline(op, bytes) => {
                fill_op(&mut put, op);
                put(208, bytes);
                bytes.len() as u32
            }
            Op::Rekey(op) => {
                fill_rekey(&mut put, op);
                0
            }
            Op::Place(op) => fill_place(&mut put, op),
        };
        put(184, &length.to_ne_bytes());
        put(188, &length.to_ne_bytes());
    }
}

fn total(list: &[Sge]) -> u64 {
    list.iter().map(|sge| u64::from(sge.len)).sum()
}

/// Opcode (`enum ib_uverbs_wr_opcode`), immediate data, and the union.
fn fill_op(put: &mut impl FnMut(usize, &[u8]), op: &SendOp) {
    let mut there = |number: u32, remote: Remote| {
        put(12, &number.to_ne_bytes());
        put(24, &remote.addr.to_ne_bytes());
        put(if number >= 5 { 48 } else { 32 }, &remote.rkey.to_ne_bytes());
        put(152, &remote.addr.to_ne_bytes());
    };
    match *op {
        SendOp::Send => put(12, &2u32.to_ne_bytes()),
        SendOp::SendImm(imm) => {
            put(12, &3u32.to_ne_bytes());
            put(20, &imm.to_be_bytes());
        }
        SendOp::SendInvalidate(key) => {
            put(12, &9u32.to_ne_bytes());
            put(20, &key.to_ne_bytes());
        }
        SendOp::Write(remote) => there(0, remote),
        SendOp::WriteImm(remote, imm) => {
            there(1, remote);
            put(20, &imm.to_be_bytes());
        }
        SendOp::Read(remote) => there(4, remote),
        SendOp::CompareSwap { remote, compare, swap } => {
            there(5, remote);
            put(32, &compare.to_ne_bytes());
            put(40, &swap.to_ne_bytes());
        }
        SendOp::FetchAdd { remote, add } => {
            there(6, remote);
            put(32, &add.to_ne_bytes());
        }
    }
}

fn fill_rekey(put: &mut impl FnMut(usize, &[u8]), op: &Rekey) {
    match *op {
        Rekey::Invalidate { key } => {
            put(12, &7u32.to_ne_bytes());
            put(20, &key.to_ne_bytes());
        }
        Rekey::Bind { old, new, lkey, addr, len, access, .. } => {
            put(12, &8u32.to_ne_bytes());
            put(24, &addr.to_ne_bytes());
            put(32, &len.to_ne_bytes());
            for (at, word) in (40..).step_by(4).zip([lkey, old, new, access.bits()]) {
                put(at, &word.to_ne_bytes());
            }
        }
    }
}

/// Writes the place's fields and returns the length, which no SGE list or inline data gives.
fn fill_place(put: &mut impl FnMut(usize, &[u8]), op: &PlaceOp) -> u32 {
    let (PlaceOp::Flush { remote, .. } | PlaceOp::AtomicWrite { remote, .. }) = *op;
    put(24, &remote.addr.to_ne_bytes());
    put(152, &remote.addr.to_ne_bytes());
    match *op {
        PlaceOp::Flush { len, types, level, .. } => {
            put(12, &14u32.to_ne_bytes());
            put(36, &remote.rkey.to_ne_bytes());
            put(40, &[types.bits(), u8::from(level == FlushLevel::Region)]);
            len
        }
        PlaceOp::AtomicWrite { data, .. } => {
            put(12, &15u32.to_ne_bytes());
            put(32, &remote.rkey.to_ne_bytes());
            put(208, &data);
            8
        }
    }
}
