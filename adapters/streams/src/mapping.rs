//! Memory that the peer writes at an offset, without this side's doing: rsocket's `riomap`,
//! `riounmap` and `riowrite`.

use std::io;

use uverbs::{ExposedMemory, MemoryRegion, Remote};

use super::engine::Engine;
use super::outgoing::{Copied, Piece};
use super::wire::{MAPPING_LEN, Message, PLACE_LEN, RemoteMemory, SLOTS};

/// Memory that the peer writes.
#[derive(Debug)]
pub(super) enum Mapped {
    Exposed(ExposedMemory),
    /// The program's own.
    Region(MemoryRegion),
}

impl Mapped {
    fn place(&self) -> RemoteMemory {
        match self {
            Self::Exposed(it) => {
                RemoteMemory { addr: it.addr(), key: it.rkey(), len: it.len() as u32 }
            }
            Self::Region(it) => {
                RemoteMemory { addr: it.addr(), key: it.rkey(), len: it.len() as u32 }
            }
        }
    }
}

/// Memory that this end offers, and memory that the peer offers.
#[derive(Debug)]
pub(super) struct Offered {
    /// Offset and place of each of the peer's entries, copied when its message came; empty before.
    /// In memory an entry may be half written at any other time.
    theirs: Vec<(u64, RemoteMemory)>,
    /// An entry of the peer's each; one that was taken back is filled again.
    memories: Vec<Option<Mapped>>,
}

impl Offered {
    pub(super) fn new(room: u16) -> Self {
        Self { theirs: vec![(0, RemoteMemory::default()); room.into()], memories: Vec::new() }
    }
}

impl Engine {
    /// Tells the peer of memory that it writes by offsets from `offset` on, and takes it. `None`
    /// while the message can't go.
    pub(super) fn offer(
        &mut self,
        memory: &mut Option<Mapped>,
        offset: u64,
    ) -> io::Result<Option<()>> {
        self.may_write()?;
        let memories = &self.offered.memories;
        let free = memories.iter().position(Option::is_none);
        let index = free.unwrap_or(memories.len()) as u16;
        if index >= self.peer.mappings {
            let why = format!("the peer has room for {} mappings", self.peer.mappings);
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
        }
        if !self.is_established() || !self.outgoing.may_tell() {
            return Ok(None);
        }
        let Some(place) = memory.as_ref().map(Mapped::place) else { return Ok(Some(())) };
        let offset = if self.peer.swap { offset.swap_bytes() } else { offset };
        let mut entry = [0; MAPPING_LEN];
        entry[..8].copy_from_slice(&offset.to_ne_bytes());
        entry[8..].copy_from_slice(&place.to_bytes(self.peer.swap));
        let to = self.peer.mapping(index);
        self.outgoing.tell();
        let piece = Piece { len: 0, copied: Copied::Inline };
        self.post(piece, &entry, to, Some(Message::Mapping(index).to_imm()))?;
        match self.offered.memories.get_mut(usize::from(index)) {
            Some(entry) => *entry = memory.take(),
            None => self.offered.memories.push(memory.take()),
        }
        Ok(Some(()))
    }

    /// Lets go of memory that was offered. Whether there was such.
    pub(super) fn take_back(&mut self, addr: u64, len: usize) -> Option<Mapped> {
        let is_it = |it: &Mapped| (it.place().addr, it.place().len as usize) == (addr, len);
        let entry = self.offered.memories.iter_mut().find(|it| it.as_ref().is_some_and(is_it));
        entry.and_then(Option::take)
    }

    /// Keeps what was taken back, and the kernel refused to let go.
    pub(super) fn keep_offered(&mut self, memory: Mapped) {
        self.offered.memories.push(Some(memory));
    }

    /// Takes back all offered memory: the peer's access ends when the result is dropped.
    pub(super) fn take_all_back(&mut self) -> Vec<Option<Mapped>> {
        std::mem::take(&mut self.offered.memories)
    }

    /// Writes as much as possible now into the peer's memory at `offset`. `None` if no byte can be
    /// written.
    pub(super) fn write_at(&mut self, from: &[u8], offset: u64) -> io::Result<Option<usize>> {
        self.may_write()?;
        if from.is_empty() {
            return Ok(Some(0));
        }
        let mut done = 0;
        while self.is_established() && done < from.len() {
            let Some(to) = self.mapped(offset.saturating_add(done as u64)) else {
                if done > 0 {
                    break;
                }
                let why = format!("the peer has mapped nothing at {offset}");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
            };
            let Some(piece) = self.outgoing.fit(from.len() - done, done, to.len) else { break };
            self.outgoing.post(piece);
            let at = Remote { addr: to.addr, rkey: to.key };
            self.post(piece, &from[done..done + piece.len as usize], at, None)?;
            done += piece.len as usize;
        }
        Ok((done > 0).then_some(done))
    }

    /// The peer wrote this entry: its message comes behind the WRITE.
    pub(super) fn learn(&mut self, index: u16) {
        let at = SLOTS * PLACE_LEN + usize::from(index) * MAPPING_LEN;
        // The list has room for all entries, so no load fails. An index beyond them is ignored.
        let word = |at| self.list.load(at).unwrap_or_default();
        if let Some(entry) = self.offered.theirs.get_mut(usize::from(index)) {
            *entry = (word(at), RemoteMemory::from_words(word(at + 8), word(at + 16)));
        }
    }

    /// The peer's memory from this offset on. Its entries are the peer's word: the device checks
    /// addresses.
    fn mapped(&self, offset: u64) -> Option<RemoteMemory> {
        self.offered.theirs.iter().find_map(|&(start, place)| part(start, place, offset))
    }
}

/// Part of `place`, which is mapped at `start`, from `offset` on.
fn part(start: u64, place: RemoteMemory, offset: u64) -> Option<RemoteMemory> {
    let skip = u32::try_from(offset.checked_sub(start)?).ok()?;
    let len = place.len.checked_sub(skip).filter(|len| *len > 0)?;
    Some(RemoteMemory { addr: place.addr.wrapping_add(skip.into()), key: place.key, len })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_part_is_within_its_place() {
        let place = RemoteMemory { addr: 0x1000, key: 5, len: 100 };
        assert_eq!(part(50, place, 50), Some(place));
        assert_eq!(part(50, place, 149), Some(RemoteMemory { addr: 0x1063, key: 5, len: 1 }));
        assert_eq!([part(50, place, 49), part(50, place, 150)], [None, None]);
    }

    proptest! {
        #[test]
        fn any_entry_gives_a_part_or_none(start: u64, addr: u64, len: u32, offset: u64) {
            if let Some(found) = part(start, RemoteMemory { addr, key: 0, len }, offset) {
                let end = u128::from(start) + u128::from(len);
                prop_assert_eq!(u128::from(offset) + u128::from(found.len), end);
            }
        }
    }
}
