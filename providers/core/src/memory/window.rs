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

/// The rights that a window can grant.
const REMOTE: AccessFlags =
    AccessFlags::REMOTE_READ.union(AccessFlags::REMOTE_WRITE).union(AccessFlags::REMOTE_ATOMIC);

/// The bits of a key that say whose it is. The others are a variant.
const INDEX: u32 = !0xff;

/// The key that follows: its index and the next of its 256 variants.
#[must_use]
#[doc(alias = "ibv_inc_rkey")]
pub const fn next_key(key: u32) -> u32 {
    key & INDEX | key.wrapping_add(1) & !INDEX
}

/// A key to part of [exposed memory](ExposedMemory) that is given and taken away by work requests,
/// without the kernel.
///
/// Deallocated when it is dropped and no bind of it is outstanding: peers lose the key. Until then
/// it keeps all memory that it was ever bound to.
pub struct MemoryWindow {
    node: Arc<Registered>,
    kind: WindowKind,
    handle: u32,
    rkey: u32,
}

impl MemoryWindow {
    /// Allocates one in `pd`.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    pub fn alloc(pd: Arc<PdCore>, kind: WindowKind) -> Result<Self, Error> {
        let core = MwCore::alloc(pd, kind)?;
        let (handle, rkey) = (core.handle(), core.rkey());
        Ok(Self { node: Registered::window(core), kind, handle, rkey })
    }

    /// Its kind.
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

    /// The place at `offset` of `memory`, as a peer names it through this window.
    #[must_use]
    pub fn remote(&self, memory: &ExposedMemory, offset: usize) -> Remote {
        Remote { rkey: self.rkey, ..memory.remote(offset) }
    }

    /// The kernel's handle, for commands of your own.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.handle
    }

    /// Makes its key the one it had before binds that did not happen: their batch was dropped, or
    /// their completions told of a failure. `rkey` is what [`rkey`](Self::rkey) said before the
    /// first of them. A bind fails on a window whose key isn't the one that the device has.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for the key of something else. A bind by that key would bind what it is
    /// of, and this window would keep the memory.
    pub fn undo(&mut self, rkey: u32) -> Result<(), Error> {
        if (self.rkey ^ rkey) & INDEX != 0 {
            return Err(Error::Invalid {
                verb: "bind_mw",
                what: "key",
                value: format!("{rkey:#x}"),
                why: "a window has 256 keys, which differ in the lowest eight bits",
            });
        }
        self.rkey = rkey;
        Ok(())
    }

    /// The work request that binds it to a part of exposed memory.
    ///
    /// # Errors
    ///
    /// [`PostError::ForeignBuffer`] for memory of another domain than this window or `domain`;
    /// [`PostError::BadData`] for no bytes, or rights that aren't remote ones;
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

    /// The work request that takes it away from peers.
    ///
    /// # Errors
    ///
    /// [`PostError::ForeignBuffer`] for a queue pair of another domain.
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

/// A work request that changes a window, from the window itself to its post: no other one is noted
/// there.
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
    /// The work request, to be posted.
    #[must_use]
    pub fn op(&self) -> &Rekey {
        &self.op
    }

    /// Notes that the work request was posted. The window keeps the memory until it is dropped,
    /// and has the new key. To be called before the device may see the work request, whose slot
    /// holds what this returns: the window is deallocated when that is dropped.
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
