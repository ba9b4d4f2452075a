//! Keys made of parts of exposed memory.
//!
//! # Safety
//!
//! The file declares an unsafe constructor and calls nothing unsafe.
#![allow(unsafe_code, reason = "what a key is made of is the caller's promise")]

use std::fmt;
use std::sync::Arc;

use crate::attr::AccessFlags;
use crate::error::OutOfRange;
use crate::memory::exposed::{ExposedMemory, ExposedPart};
use crate::memory::registered::{Held, Registered};
use crate::memory::window::next_key;
use crate::objects::mw::MwCore;
use crate::queues::layout::{Block, KeyLayout, KeyParts, MOST_PARTS};
use crate::queues::work::{PostError, Rekey, Remote, Sge, WINDOW_MAX};

/// The rights that a key can grant.
const RIGHTS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC);

/// One range of addresses for parts of [exposed memory](ExposedMemory) that lie anywhere: a work
/// request says which, without the kernel.
///
/// Peers reach it by [`remote`](Self::remote), own posts by [`part`](Self::part); its first byte is
/// at offset 0. Each layout gives it another key, so that who has the old one can't use the new
/// layout. A layout that did not happen (its batch was dropped, or it failed) leaves the device
/// with the one before: work requests by the new key then fail, and the next layout puts it right.
///
/// Deallocated when it is dropped and nothing that was posted with it is outstanding. Until then it
/// keeps all memory that it was ever laid out over.
#[doc(alias = "mlx5dv_mkey")]
pub struct IndirectKey {
    node: Arc<Registered>,
    handle: u32,
    /// Entries that the device has room for.
    room: u32,
    key: u32,
    /// Bytes that it names.
    len: u64,
}

/// A part of what an [`IndirectKey`] names, to be posted: sent from, read into, or received into.
#[derive(Clone)]
pub struct IndirectPart {
    node: Arc<Registered>,
    sge: Sge,
}

/// Blocks of exposed memory that are as far apart as each other: a column of a matrix.
#[derive(Clone, Debug)]
pub struct ExposedBlocks {
    memory: ExposedMemory,
    offset: usize,
    len: u16,
    stride: u16,
    count: u32,
}

impl ExposedMemory {
    /// `count` blocks of `len` bytes from `offset`, each `stride` bytes behind the one before.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`] if there are no blocks, or one lies outside the memory.
    pub fn blocks(
        &self,
        offset: usize,
        len: u16,
        stride: u16,
        count: u32,
    ) -> Result<ExposedBlocks, OutOfRange> {
        let last = usize::from(stride).saturating_mul(count.saturating_sub(1) as usize);
        let wanted = last.saturating_add(len.into());
        let fits = offset <= self.len() && wanted <= self.len() - offset;
        if !fits || count == 0 || len == 0 {
            return Err(OutOfRange { offset, wanted, len: self.len() });
        }
        Ok(ExposedBlocks { memory: self.clone(), offset, len, stride, count })
    }
}

impl ExposedBlocks {
    /// Exposed memory that contains the blocks.
    #[must_use]
    pub fn memory(&self) -> &ExposedMemory {
        &self.memory
    }

    fn block(&self) -> Block {
        let Sge { addr, lkey, .. } = self.memory.sge(self.offset, self.len.into());
        Block { addr, lkey, len: self.len, stride: self.stride }
    }
}

impl IndirectPart {
    pub(crate) fn sge(&self) -> Sge {
        self.sge
    }

    pub(crate) fn domain(&self) -> u64 {
        self.node.domain
    }

    pub(crate) fn into_held(self) -> Held {
        Held::exposed(self.node)
    }
}

impl IndirectKey {
    /// Wraps the kernel's object, which has room for so many entries.
    ///
    /// # Safety
    ///
    /// Both are one answer of [`alloc_indirect`](crate::provider::ContextOps::alloc_indirect), and
    /// the object was not deallocated since: a device writes as many entries as it is told, and a
    /// dead object's key may be another's.
    ///
    /// ```compile_fail,E0133
    /// # use uverbs_core::memory::indirect::IndirectKey;
    /// # fn f(window: uverbs_core::objects::mw::MwCore) {
    /// IndirectKey::new(window, 52);
    /// # }
    /// ```
    #[must_use]
    pub unsafe fn new(core: MwCore, room: u32) -> Self {
        let (handle, key) = (core.handle(), core.rkey());
        Self { node: Registered::window(core), handle, room, key, len: 0 }
    }

    /// Parts that a list may have. An interleaved layout may have one less.
    #[must_use]
    pub fn max_parts(&self) -> u32 {
        self.room
    }

    /// Bytes that it names, by the last layout that was posted.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a key without a layout isn't a container")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Remote key, set by the last layout that was posted.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.key
    }

    /// The place at `offset`, as a peer names it. The device checks the range when it is used.
    #[must_use]
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { addr: offset, rkey: self.key }
    }

    /// `len` bytes from `offset`, to be posted, by the last layout that was posted.
    ///
    /// # Errors
    ///
    /// [`OutOfRange`].
    pub fn part(&self, offset: u64, len: u32) -> Result<IndirectPart, OutOfRange> {
        if offset > self.len || u64::from(len) > self.len - offset {
            let [offset, wanted, len] = [offset, len.into(), self.len].map(|n| n as usize);
            return Err(OutOfRange { offset, wanted, len });
        }
        let sge = Sge { addr: offset, len, lkey: self.key };
        Ok(IndirectPart { node: Arc::clone(&self.node), sge })
    }

    /// The kernel's handle, for commands of your own.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// The work request that lays it out over parts one after the other. `room` is written.
    ///
    /// # Errors
    ///
    /// [`PostError::ForeignBuffer`] for memory of another domain than this key or `domain`;
    /// [`PostError::TooManySges`] for more parts than it has room for; [`PostError::BadData`] for
    /// no bytes, and for rights that there aren't; [`PostError::MessageTooLong`] for a part of more
    /// than 2 GiB.
    pub fn list<'a>(
        &'a mut self,
        domain: u64,
        parts: &'a [ExposedPart],
        access: AccessFlags,
        room: &'a mut [Sge; MOST_PARTS],
    ) -> Result<KeyChange<'a>, PostError> {
        let list = room.get_mut(..parts.len()).ok_or(PostError::TooManySges)?;
        let mut count = 0;
        for part in parts {
            if part.domain() != domain {
                return Err(PostError::ForeignBuffer);
            }
            let sge = part.sge();
            if u64::from(sge.len) > WINDOW_MAX {
                return Err(PostError::MessageTooLong);
            }
            // Elsewhere in work requests a length of 0 is one of 2 GiB.
            if sge.len != 0 {
                list[count] = sge;
                count += 1;
            }
        }
        let op = self.layout(domain, KeyParts::List(&list[..count]), access)?;
        Ok(KeyChange { key: self, op, over: Over::Parts(parts) })
    }

    /// The work request that lays it out over blocks of each memory in turn. `room` is written.
    ///
    /// # Errors
    ///
    /// As for [`list`](Self::list), and [`PostError::BadData`] for unequal numbers of blocks.
    pub fn interleaved<'a>(
        &'a mut self,
        domain: u64,
        given: &'a [ExposedBlocks],
        access: AccessFlags,
        room: &'a mut [Block; MOST_PARTS],
    ) -> Result<KeyChange<'a>, PostError> {
        let rounds = given.first().ok_or(PostError::BadData)?.count;
        let blocks = room.get_mut(..given.len()).ok_or(PostError::TooManySges)?;
        for (entry, given) in blocks.iter_mut().zip(given) {
            if given.memory.registered().domain != domain {
                return Err(PostError::ForeignBuffer);
            }
            if given.count != rounds {
                return Err(PostError::BadData);
            }
            *entry = given.block();
        }
        let op = self.layout(domain, KeyParts::Interleaved { rounds, blocks }, access)?;
        Ok(KeyChange { key: self, op, over: Over::Blocks(given) })
    }

    fn layout<'a>(
        &self,
        domain: u64,
        parts: KeyParts<'a>,
        access: AccessFlags,
    ) -> Result<KeyLayout<'a>, PostError> {
        if self.node.domain != domain {
            return Err(PostError::ForeignBuffer);
        }
        if parts.entries() > self.room as usize {
            return Err(PostError::TooManySges);
        }
        if !RIGHTS.contains(access) || parts.bytes() == 0 {
            return Err(PostError::BadData);
        }
        let (old, new) = (self.key, next_key(self.key));
        let access = access | AccessFlags::LOCAL_WRITE;
        Ok(KeyLayout { old, new, access, parts })
    }

    /// The work request that takes it away, and what that holds.
    ///
    /// # Errors
    ///
    /// [`PostError::ForeignBuffer`] for a queue pair of another domain.
    pub fn invalidation(&self, domain: u64) -> Result<(Rekey, Held), PostError> {
        if self.node.domain != domain {
            return Err(PostError::ForeignBuffer);
        }
        Ok((Rekey::Invalidate { key: self.key }, self.held()))
    }

    fn held(&self) -> Held {
        Held::exposed(Arc::clone(&self.node))
    }
}

/// A work request that lays a key out, from the key itself to its post: no other one is noted
/// there.
///
/// ```compile_fail,E0560
/// # use uverbs_core::memory::indirect::{IndirectKey, KeyChange};
/// # use uverbs_core::queues::layout::KeyLayout;
/// # fn f(key: &mut IndirectKey, op: KeyLayout<'_>) {
/// KeyChange { key, op, memory: [] }.posted(); // a slab's key, of whatever length
/// # }
/// ```
#[derive(Debug)]
pub struct KeyChange<'a> {
    key: &'a mut IndirectKey,
    op: KeyLayout<'a>,
    over: Over<'a>,
}

/// Memory that a layout names.
#[derive(Debug)]
enum Over<'a> {
    Parts(&'a [ExposedPart]),
    Blocks(&'a [ExposedBlocks]),
}

impl KeyChange<'_> {
    /// The work request, to be posted.
    #[must_use]
    pub fn op(&self) -> &KeyLayout<'_> {
        &self.op
    }

    /// Notes that the work request was posted. The key keeps the memory until it is dropped, and
    /// has the new layout. To be called before the device may see the work request, whose slot
    /// holds what this returns: the key is deallocated when that is dropped.
    pub fn posted(self) -> Held {
        let Self { key, op, over } = self;
        match over {
            Over::Parts(parts) => parts.iter().for_each(|part| key.node.keep(part.registered())),
            Over::Blocks(blocks) => {
                blocks.iter().for_each(|given| key.node.keep(given.memory.registered()));
            }
        }
        (key.key, key.len) = (op.new, op.parts.bytes());
        key.held()
    }
}

impl fmt::Debug for IndirectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndirectKey")
            .field("key", &format_args!("{:#x}", self.key))
            .field("len", &self.len)
            .field("max_parts", &self.room)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for IndirectPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndirectPart").field("sge", &self.sge).finish_non_exhaustive()
    }
}
