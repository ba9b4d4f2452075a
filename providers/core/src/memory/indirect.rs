//! Indirect keys: keys over parts of exposed memory.
//!
//! # Safety
//!
//! The file declares an unsafe constructor and calls no unsafe function.
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

/// Rights that a key can grant.
const RIGHTS: AccessFlags = AccessFlags::LOCAL_WRITE
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_WRITE)
    .union(AccessFlags::REMOTE_ATOMIC);

/// Key of one contiguous range of addresses over parts of [exposed memory](ExposedMemory). A work
/// request chooses the parts, without the kernel.
///
/// Peers use it by [`remote`](Self::remote), own posts by [`part`](Self::part); its first byte is
/// at offset 0. Each layout changes the key, so a holder of the old key can't use the new layout.
/// If a layout fails or its batch is dropped, the device keeps the layout before it: work requests
/// with the new key fail until the next layout.
///
/// The key is deallocated once it is dropped and no post that uses it is outstanding. Until then it
/// keeps all memory of all its layouts.
#[doc(alias = "mlx5dv_mkey")]
pub struct IndirectKey {
    node: Arc<Registered>,
    handle: u32,
    /// Capacity in entries.
    room: u32,
    key: u32,
    /// Length in bytes.
    len: u64,
}

/// Part of the range of an [`IndirectKey`], as the argument of a post: to send from, read into, or
/// receive into.
#[derive(Clone)]
pub struct IndirectPart {
    node: Arc<Registered>,
    sge: Sge,
}

/// Equally spaced blocks of exposed memory, such as a column of a matrix.
#[derive(Clone, Debug)]
pub struct ExposedBlocks {
    memory: ExposedMemory,
    offset: usize,
    len: u16,
    stride: u16,
    count: u32,
}

impl ExposedMemory {
    /// `count` blocks of `len` bytes from `offset`, with `stride` bytes from one start to the next.
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
    /// Wraps the kernel's object with its capacity in entries.
    ///
    /// # Safety
    ///
    /// Both come from one call of [`alloc_indirect`](crate::provider::ContextOps::alloc_indirect),
    /// and the object is not deallocated. The device writes as many entries as it is told, and the
    /// key of a deallocated object may belong to another.
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

    /// Maximum parts of a list layout. An interleaved layout has room for one less.
    #[must_use]
    pub fn max_parts(&self) -> u32 {
        self.room
    }

    /// Length in bytes, by the last posted layout.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a key without a layout isn't a container")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Remote key, set by the last posted layout.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.key
    }

    /// Remote address and key of the byte at `offset`. The peer's request checks the range.
    #[must_use]
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { addr: offset, rkey: self.key }
    }

    /// Part of `len` bytes from `offset` of the last posted layout, for posts.
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

    /// The kernel's handle, for the program's own commands.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// Builds the work request that lays the key out over `parts`, one after the other. Overwrites
    /// `room`.
    ///
    /// # Errors
    ///
    /// [`PostError::ForeignBuffer`] for memory of another protection domain than the key or
    /// `domain`; [`PostError::TooManySges`] for more parts than the key has room for;
    /// [`PostError::BadData`] for an empty layout or unsupported rights;
    /// [`PostError::MessageTooLong`] for a part of more than 2 GiB.
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
            // Skipped if empty: in a work request a length of 0 means 2 GiB.
            if sge.len != 0 {
                list[count] = sge;
                count += 1;
            }
        }
        let op = self.layout(domain, KeyParts::List(&list[..count]), access)?;
        Ok(KeyChange { key: self, op, over: Over::Parts(parts) })
    }

    /// Builds the work request that lays the key out over one block of each memory in turn.
    /// Overwrites `room`.
    ///
    /// # Errors
    ///
    /// The errors of [`list`](Self::list), and [`PostError::BadData`] for unequal numbers of
    /// blocks.
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

    /// Builds the work request that invalidates the key. The `Held` keeps the key until its
    /// completion.
    ///
    /// # Errors
    ///
    /// [`PostError::ForeignBuffer`] for a queue pair of another protection domain.
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

/// A work request that lays out a key. It borrows the key until it is posted, so no other layout
/// can be built in between.
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

/// Memory of a layout.
#[derive(Debug)]
enum Over<'a> {
    Parts(&'a [ExposedPart]),
    Blocks(&'a [ExposedBlocks]),
}

impl KeyChange<'_> {
    /// The work request to post.
    #[must_use]
    pub fn op(&self) -> &KeyLayout<'_> {
        &self.op
    }

    /// Notes that the work request was posted: the key has the new layout, and keeps its memory
    /// until it is dropped. Call it before the device can see the work request, and put the result
    /// into the work request's slot: dropping it allows the key to be deallocated.
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
