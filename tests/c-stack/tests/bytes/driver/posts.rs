//! Sends and receives of a script: parsed, collected, and posted.
#![allow(unsafe_code, reason = "posts by address and key")]

use std::fmt::Write as _;

use uverbs::memory::{Block, KeyLayout, KeyParts, WindowKind};
use uverbs::packet::Checksums;
use uverbs::raw::{Data, Rekey, SendOp, Sge};
use uverbs::{AccessFlags, Mlx5, RecvBatch, Remote, SendFlags, Wr};
use uverbs_core::memory::window::next_key;
use uverbs_core::provider::RecvOps;

use super::Driver;
use crate::area::{BASE, bytes};
use crate::completions;
use crate::receivers::{Peer, Receiver};
use crate::transports::{QKEY, Spoken, To};
use crate::words::number;

/// Work requests of a post that fills a ring.
const CHUNK: u32 = 2;

/// Operation of a send: a message to the peer, or a key operation of this side.
enum Op {
    Send(SendOp),
    /// Binds a window to the first SGE.
    Bind {
        window: usize,
        new: u32,
        access: AccessFlags,
    },
    Invalidate(u32),
    /// Lays out the indirect key over the SGEs; with `rounds`: blocks `stride` bytes apart.
    LayOut {
        rounds: u32,
        stride: u16,
        access: AccessFlags,
    },
}

/// A send that awaits its post.
pub(super) struct Send {
    wr: Wr,
    op: Op,
    inline: bool,
    list: Vec<Sge>,
    /// UD: index of the address, and Q_Key.
    address: usize,
    qkey: u32,
    /// DC: stream of the initiator.
    stream: u16,
    /// Raw packets: checksums that the device fills in.
    checksums: Checksums,
}

impl<T: Spoken> Driver<T> {
    pub(super) fn send<'a>(&mut self, mut words: impl Iterator<Item = &'a str>) -> Send {
        let op = words.next().unwrap();
        let mut wr = Wr::new(self.next_id);
        self.next_id += 1;
        let mut remote = Remote { addr: BASE as u64, rkey: self.region.rkey() };
        let (mut imm, mut a, mut b, mut stride) = (0, 0, 0, 0);
        let (mut inline, mut list) = (false, Vec::new());
        let (mut address, mut qkey, mut window, mut stream) = (0, QKEY, 0, 0);
        let mut checksums = Checksums::AsTheyAre;
        while let Some(word) = words.next() {
            match word.split_once('=') {
                Some(("imm", value)) => imm = number(value) as u32,
                Some(("to", value)) => remote.addr = BASE as u64 + number(value),
                Some(("a", value)) => a = number(value),
                Some(("b", value)) => b = number(value),
                Some(("s", value)) => stride = number(value) as u16,
                Some(("ah", value)) => address = number(value) as usize,
                Some(("stream", value)) => stream = number(value) as u16,
                Some(("w", value)) => window = number(value) as usize - 1,
                Some(("qkey", value)) => qkey = number(value) as u32,
                _ => match word {
                    "unsignaled" => wr.flags.remove(SendFlags::SIGNALED),
                    "fence" => wr.flags.insert(SendFlags::FENCE),
                    "solicited" => wr.flags.insert(SendFlags::SOLICITED),
                    "csum" => checksums = Checksums::Filled,
                    "sge" | "inline" => {
                        inline = word == "inline";
                        list = words.by_ref().map(|piece| self.sge(piece)).collect();
                    }
                    _ => panic!("{word}"),
                },
            }
        }
        let op = match op {
            "send" | "packet" => Op::Send(SendOp::Send),
            "send_imm" => Op::Send(SendOp::SendImm(imm)),
            "send_inv" => Op::Send(SendOp::SendInvalidate(self.key_of(window))),
            "write" => Op::Send(SendOp::Write(remote)),
            "write_imm" => Op::Send(SendOp::WriteImm(remote, imm)),
            "read" => Op::Send(SendOp::Read(remote)),
            "cas" => Op::Send(SendOp::CompareSwap { remote, compare: a, swap: b }),
            "faa" => Op::Send(SendOp::FetchAdd { remote, add: a }),
            "inval" => Op::Invalidate(self.key_of(window)),
            "layout" => {
                let access = AccessFlags::from_bits_retain(a as u32);
                Op::LayOut { rounds: b as u32, stride, access }
            }
            "bind" => {
                let new = next_key(self.keys[window][0]);
                self.keys[window][0] = new;
                let access = AccessFlags::from_bits_retain(a as u32);
                Op::Bind { window, new, access }
            }
            _ => panic!("{op}"),
        };
        match op {
            Op::Send(SendOp::SendImm(_) | SendOp::WriteImm(..)) => {
                self.immediates.insert(wr.id);
            }
            Op::Bind { .. } => drop(self.rekeys.insert(wr.id, completions::BIND_MW)),
            Op::LayOut { .. } => drop(self.rekeys.insert(wr.id, completions::DRIVER1)),
            Op::Send(_) | Op::Invalidate(_) => {}
        }
        Send { wr, op, inline, list, address, qkey, stream, checksums }
    }

    /// Key of a window, or the indirect key.
    fn key_of(&self, window: usize) -> u32 {
        self.keys.get(window).map_or(self.key, |keys| keys[0])
    }

    /// Rings the collected sends and receives. A refusal is noted, so that it is compared with
    /// libmlx5's result.
    pub(super) fn ring(&mut self, side: usize) {
        let Self { lists, captures, sides, addresses, keys, key, .. } = self;
        let side = &mut sides[side];
        if let Some(Receiver::Tags(tagged)) = &mut side.receiver {
            tagged.ring(captures);
        }
        if !side.recvs.is_empty() {
            let lists = side.recvs.drain(..);
            match &mut side.receiver {
                Some(receiver) => receive(receiver.batch(), lists, captures),
                None => receive(side.qp.recv_batch(), lists, captures),
            }
        }
        if !side.sends.is_empty() {
            let mut batch = side.qp.batch();
            for send in side.sends.drain(..) {
                let inline = send.list.iter().filter(|_| send.inline);
                let copied: Vec<Vec<u8>> = inline.map(bytes).collect();
                let copied: Vec<&[u8]> = copied.iter().map(Vec::as_slice).collect();
                let data = match (send.inline, &send.list[..], &copied[..]) {
                    (false, [one], _) if !*lists => Data::One(*one),
                    (false, list, _) => Data::List(list),
                    (true, _, [one]) if !*lists => Data::Inline(one),
                    (true, _, list) => Data::InlineList(list),
                };
                let Peer { qpn, srq, target } = side.peer;
                let handle = addresses.get(send.address);
                let destination = handle.map(|to| to.to(qpn, send.qkey));
                let target = target
                    .and_then(|(dctn, key)| Some(handle?.to_target(dctn, key)))
                    .map(|to| to.on_stream(send.stream));
                let to = To { destination, srq, target, checksums: send.checksums };
                let posted = match send.op {
                    // SAFETY: the area stays registered.
                    Op::Send(op) => unsafe { T::post(&mut batch, send.wr, op, data, &to) },
                    Op::Invalidate(key) => {
                        // SAFETY: no window is bound by it.
                        unsafe { T::rekey(&mut batch, send.wr, &Rekey::Invalidate { key }) }
                    }
                    Op::LayOut { rounds, stride, access } => {
                        let blocks = blocks(&send.list, stride);
                        let parts = match rounds {
                            0 => KeyParts::List(&send.list),
                            _ => KeyParts::Interleaved { rounds, blocks: &blocks },
                        };
                        let op = KeyLayout { old: *key, new: *key, access, parts };
                        // SAFETY: the area stays registered.
                        unsafe { T::lay_out(&mut batch, send.wr, &op) }
                    }
                    Op::Bind { window, new, access } => {
                        let kind = [WindowKind::Type1, WindowKind::Type2][window];
                        let (old, one) = (keys[window][1], send.list.first());
                        let Sge { addr, len, lkey } =
                            one.copied().unwrap_or(Sge { addr: 0, len: 0, lkey: 0 });
                        let len = len.into();
                        let op = Rekey::Bind { kind, old, new, lkey, addr, len, access };
                        // SAFETY: the area stays registered.
                        unsafe { T::rekey(&mut batch, send.wr, &op) }
                    }
                };
                if let Err(error) = posted {
                    let _ = writeln!(captures, "send {}: {error}", send.wr.id);
                }
            }
            batch.ring();
            for [said, rung] in keys {
                *rung = *said;
            }
        }
    }

    /// Posts empty WRITEs, a WQEBB each; for UD, empty datagrams that the peer drops because of a
    /// wrong Q_Key.
    pub(super) fn fill(&mut self, side: usize, mut count: u32) {
        let remote = Remote { addr: BASE as u64, rkey: self.region.rkey() };
        if T::DYNAMIC {
            // Each takes two WQEBBs.
            count /= 2;
        }
        while count > 0 {
            for _ in 0..CHUNK.min(count) {
                let op = match T::DATAGRAMS || T::PACKETS {
                    true => Op::Send(SendOp::Send),
                    false => Op::Send(SendOp::Write(remote)),
                };
                // A raw packet needs headers.
                let list = T::PACKETS.then(|| self.region.sge(0, 60)).into_iter().collect();
                self.sides[side].sends.push(Send {
                    wr: Wr::new(0),
                    op,
                    inline: false,
                    list,
                    address: 0,
                    qkey: QKEY ^ 1,
                    stream: 0,
                    checksums: Checksums::AsTheyAre,
                });
                count -= 1;
            }
            self.ring(side);
            self.settle();
        }
    }
}

/// Converts SGEs to blocks of an interleaved layout.
fn blocks(list: &[Sge], stride: u16) -> Vec<Block> {
    let block = |one: &Sge| Block { addr: one.addr, lkey: one.lkey, len: one.len as u16, stride };
    list.iter().map(block).collect()
}

/// Posts receives and rings. A refusal is noted.
fn receive<Q: RecvOps>(
    mut batch: RecvBatch<'_, Mlx5, Q>,
    lists: impl Iterator<Item = (u64, Vec<Sge>)>,
    captures: &mut String,
) {
    for (id, list) in lists {
        // SAFETY: the area stays registered.
        if let Err(error) = unsafe { batch.post_raw(id, &list) } {
            let _ = writeln!(captures, "receive {id}: {error}");
        }
    }
    batch.ring();
}
