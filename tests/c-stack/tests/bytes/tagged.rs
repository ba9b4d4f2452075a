//! Tag-matching shared receive queues: changes of their tag lists, in the order of `c/bytes.c`.
//!
//! # Safety
//!
//! Work requests name the area of `area.rs`, which outlives the queue.
#![allow(unsafe_code, reason = "raw posts, and headers at a fixed address")]

use std::fmt::Write as _;

use uverbs::raw::Sge;
use uverbs::tags::{ForTags, Rendezvous, Tag, TagHandle, TagMessage, TagMessageKind, TagWr};
use uverbs::{Mlx5, PostError, Remote, SharedReceiveQueue};

use crate::area::Area;
use crate::words::number;

/// Added to the id of a change that adds a tag: id of the tag's message.
const OF_MESSAGE: u64 = 1_000_000;

/// A change that awaits its post.
struct Change {
    wr: TagWr,
    op: Op,
}

enum Op {
    Add {
        tag: Tag,
        into: Sge,
    },
    /// Removes the tag that was added `back` changes before.
    Remove {
        back: usize,
    },
    Sync,
}

/// A tag-matching queue, its collected changes and its tags.
pub(crate) struct Tagged {
    pub(crate) srq: SharedReceiveQueue<Mlx5, ForTags>,
    changes: Vec<Change>,
    handles: Vec<TagHandle>,
}

impl Tagged {
    pub(crate) fn new(srq: SharedReceiveQueue<Mlx5, ForTags>) -> Self {
        Self { srq, changes: Vec::new(), handles: Vec::new() }
    }

    pub(crate) fn add<'a>(
        &mut self,
        id: u64,
        mut words: impl Iterator<Item = &'a str>,
        sge: impl Fn(&str) -> Sge,
    ) {
        let verb = words.next().unwrap();
        let (mut wr, mut tag, mut back) = (TagWr::new(id), Tag::exact(0), 0);
        let mut into = Sge { addr: 0, len: 0, lkey: 0 };
        while let Some(word) = words.next() {
            match word.split_once('=') {
                Some(("count", value)) => wr = wr.dealt_with(number(value) as u16),
                Some(("tag", value)) => tag.value = number(value),
                Some(("mask", value)) => tag.mask = number(value),
                Some(("back", value)) => back = number(value) as usize,
                _ if word == "unsignaled" => wr = wr.unsignaled(),
                _ if word == "sge" => into = words.next().map_or(into, &sge),
                _ => panic!("{word}"),
            }
        }
        let op = match verb {
            "add" => Op::Add { tag, into },
            "remove" => Op::Remove { back },
            _ => Op::Sync,
        };
        self.changes.push(Change { wr, op });
    }

    /// Posts the collected changes and rings. A refusal is noted.
    pub(crate) fn ring(&mut self, captures: &mut String) {
        if self.changes.is_empty() {
            return;
        }
        let before = self.handles.len();
        let mut batch = self.srq.tag_batch();
        for Change { wr, op } in self.changes.drain(..) {
            let posted: Result<(), PostError> = match op {
                Op::Add { tag, into } => {
                    // SAFETY: the area stays registered.
                    let added = unsafe { batch.add_raw(wr, tag, wr.id + OF_MESSAGE, into) };
                    added.map(|handle| self.handles.push(handle))
                }
                // As in C, counted among the tags that were rung.
                Op::Remove { back } => batch.remove(wr, self.handles[before - back]),
                Op::Sync => batch.sync(wr),
            };
            if let Err(error) = posted {
                let _ = writeln!(captures, "tag {}: {error}", wr.id);
            }
        }
        batch.ring();
    }
}

/// Writes a message's header to memory: offset, kind, tag, and for a rendezvous the data's place.
pub(crate) fn write_header<'a>(mut words: impl Iterator<Item = &'a str>, rkey: u32) {
    let at = number(words.next().unwrap()) as usize;
    let kind = match words.next().unwrap() {
        "0" => TagMessageKind::NoTag,
        "1" => TagMessageKind::Rendezvous,
        "3" => TagMessageKind::Eager,
        other => panic!("{other}"),
    };
    let tag = number(words.next().unwrap());
    let mut bytes = TagMessage { kind, app_ctx: 0x0102_0304, tag }.to_bytes().to_vec();
    if let Some((offset, len)) = words.next().and_then(|piece| piece.split_once(':')) {
        let addr = Area::byte(number(offset) as usize).addr() as u64;
        let from = Remote { addr, rkey };
        bytes.extend(Rendezvous { from, len: number(len) as u32 }.to_bytes());
    }
    for (n, byte) in bytes.into_iter().enumerate() {
        // SAFETY: within the area; the device is idle.
        unsafe { Area::byte(at + n).write_volatile(byte) };
    }
}
