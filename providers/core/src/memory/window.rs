//! Memory windows over exposed memory.

use std::fmt;
use std::sync::Arc;

use crate::attr::AccessFlags;
use crate::error::Error;
use crate::memory::exposed::{ExposedMemory, ExposedPart};
use crate::memory::registered::{Held, Registered};
use crate::objects::mw::MwCore;
use crate::objects::pd::PdCore;
use crate::queues::work::{PostError, Rekey, Remote, Sge, WINDOW_MAX, WindowKind};

/// Rights that a window can grant.
const REMOTE: AccessFlags =
    AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_ATOMIC);

/// Bits of a key that name the object. The low eight bits are a variant.
const INDEX: u32 = !0xff;

/// The next key: the same index, and the next of its 256 variants.
#[must_use]
#[doc(alias = "ibv_inc_rkey")]
pub const fn next_key(key: u32) -> u32 {
    key & INDEX | key.wrapping_add(1) & !INDEX
}

/// Memory window: a key to part of [exposed memory](ExposedMemory) that work requests bind and
/// invalidate, without the kernel.
///
/// It is deallocated, which takes the key from peers, once it is dropped and no bind of it is
/// outstanding. Until then it keeps all memory that it was bound to.
pub struct MemoryWindow {
    node: Arc<Registered>,
    kind: WindowKind,
    handle: u32,
    rkey: u32,
}

impl MemoryWindow {
    /// Allocates a window in `pd`.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn alloc(pd: Arc<PdCore>, kind: WindowKind) -> Result<Self, Error> {
        let core = MwCore::alloc(pd, kind)?;
        let (handle, rkey) = (core.handle(), core.rkey());
        Ok(Self { node: Registered::window(core), kind, handle, rkey })
    }

    /// Type of the window.
    #[must_use]
    pub fn kind(&self) -> WindowKind {
        self.kind
    }

    /// Remote key, set by the last bind that was posted. Each bind sets a new key, so that a holder
    /// of the old key cannot use the new binding.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.rkey
    }

    /// Remote address and key of the byte at `offset` of `memory`, for a peer that uses this
    /// window.
    #[must_use]
    pub fn remote(&self, memory: &ExposedMemory, offset: usize) -> Remote {
        Remote { rkey: self.rkey, ..memory.remote(offset) }
    }

    /// The kernel's handle, for the program's own commands.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// Restores the key after binds that did not happen: their batch was dropped, or their
    /// completions reported a failure. `rkey` is the value of [`rkey`](Self::rkey) before the first
    /// such bind. Peers are refused while the window's key here differs from the device's. On
    /// soft-RoCE the next bind fails, too (kernel `rxe_mw.c:rxe_bind_mw`); mlx5 names the window by
    /// its index.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for the key of another object. A bind by that key would bind the other
    /// object, while this window keeps the memory.
    pub fn undo(&mut self, rkey: u32) -> Result<(), Error> {
        if (self.rkey ^ rkey) & INDEX != 0 {
            return Err(Error::Invalid {
                verb: "bind_mw",
                what: "key",
                value: format!("{rkey:#x}"),
                why: "the key belongs to another object: keys of a window differ only in the \
                      lowest eight bits",
            });
        }
        self.rkey = rkey;
        Ok(())
    }

    /// Builds the work request that binds the window to a part of exposed memory.
    ///
    /// # Errors
    ///
    /// [`PostError::ForeignBuffer`] for memory of another protection domain than the window or
    /// `domain`; [`PostError::BadData`] for an empty part, or for rights that are not remote;
    /// [`PostError::MessageTooLong`] for more than 2 GiB.
    pub fn bind<'w>(
        &'w mut self,
        domain: u64,
        part: &'w ExposedPart,
        access: AccessFlags,
    ) -> Result<WindowChange<'w>, PostError> {
        if self.node.domain != domain || part.domain() != domain {
            return Err(PostError::ForeignBuffer);
        }
        let Sge { addr, len, lkey } = part.sge();
        if len == 0 || !REMOTE.contains(access) {
            return Err(PostError::BadData);
        }
        let len = u64::from(len);
        if len > WINDOW_MAX {
            return Err(PostError::MessageTooLong);
        }
        let (old, new) = (self.rkey, next_key(self.rkey));
        let op = Rekey::Bind { kind: self.kind, old, new, lkey, addr, len, access };
        Ok(WindowChange { window: self, op, part: Some(part) })
    }

    /// Builds the work request that takes the window away from peers.
    ///
    /// # Errors
    ///
    /// [`PostError::ForeignBuffer`] for a queue pair of another protection domain.
    pub fn unbind(&mut self, domain: u64) -> Result<WindowChange<'_>, PostError> {
        if self.node.domain != domain {
            return Err(PostError::ForeignBuffer);
        }
        let op = match self.kind {
            WindowKind::Type1 => Rekey::Bind {
                kind: self.kind,
                old: self.rkey,
                new: next_key(self.rkey),
                lkey: 0,
                addr: 0,
                len: 0,
                access: AccessFlags::empty(),
            },
            WindowKind::Type2 => Rekey::Invalidate { key: self.rkey },
        };
        Ok(WindowChange { window: self, op, part: None })
    }
}

/// A work request that changes a window. It borrows the window until it is posted, so no other
/// change can be built in between.
///
/// ```compile_fail,E0451
/// # use uverbs_core::memory::window::{MemoryWindow, WindowChange};
/// # use uverbs_core::queues::work::Rekey;
/// # fn f(window: &mut MemoryWindow, op: Rekey) {
/// WindowChange { window, op, part: None }.posted(); // another window's
/// # }
/// ```
#[derive(Debug)]
pub struct WindowChange<'w> {
    window: &'w mut MemoryWindow,
    op: Rekey,
    /// Memory that it binds to.
    part: Option<&'w ExposedPart>,
}

impl WindowChange<'_> {
    /// The work request to post.
    #[must_use]
    pub fn op(&self) -> &Rekey {
        &self.op
    }

    /// Notes that the work request was posted: the window has the new key, and keeps its memory
    /// until it is dropped. Call it before the device can see the work request, and put the result
    /// into the work request's slot: dropping it allows the window to be deallocated.
    pub fn posted(self) -> Held {
        let Self { window, op, part } = self;
        if let Some(part) = part {
            window.node.keep(part.registered());
        }
        if let Rekey::Bind { new, .. } = op {
            window.rkey = new;
        }
        Held::exposed(Arc::clone(&window.node))
    }
}

impl fmt::Debug for MemoryWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryWindow")
            .field("kind", &self.kind)
            .field("rkey", &format_args!("{:#x}", self.rkey))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_around() {
        assert_eq!(next_key(0x1234_5600), 0x1234_5601);
        assert_eq!(next_key(0x1234_56ff), 0x1234_5600);
        assert_eq!(next_key(u32::MAX), 0xffff_ff00);
    }
}
