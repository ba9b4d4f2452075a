//! Memory of inline data, which the device lacks: the data of a send is copied there when it is
//! posted, and sent from there by an SGE.
//!
//! # Safety
//!
//! Each slot of the send queue has its own part. A slot is written only while no work request of it
//! is under way. The region is deregistered before the memory is unmapped.
#![allow(unsafe_code, reason = "registers memory, and copies data into it by address")]

use std::sync::Arc;

use uverbs_core::attr::AccessFlags;
use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::mr::MrCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::queues::work::{Data, Sge};
use uverbs_kernel_rings::elements::write_bytes;

/// Parts of a send queue's slots.
#[derive(Clone, Debug)]
pub(crate) struct Inline {
    memory: Arc<(MrCore, Pages)>,
    /// Bytes of a part.
    bytes: u32,
    /// Slots less one.
    mask: u32,
}

impl Inline {
    /// Memory for `slots`, a power of two, of `bytes` each.
    ///
    /// # Errors
    ///
    /// [`Error::System`], or the kernel's refusal.
    pub(crate) fn new(
        uverbs: &Uverbs,
        pd: &Arc<PdCore>,
        slots: u32,
        bytes: u32,
    ) -> Result<Self, Error> {
        let len = slots as usize * bytes as usize;
        let memory = |errno| Error::System { what: "mmap", errno };
        let pages = Pages::anonymous(len).map_err(memory)?;
        let start = pages.as_mut_ptr().expose_provenance() as u64;
        let rights = AccessFlags::empty();
        // SAFETY: `pages` stays mapped until the region is deregistered, and is reached through raw
        // pointers; the device only reads it.
        let keys = unsafe { uverbs.reg_mr(pd.handle(), start, len as u64, start, rights) }?;
        // SAFETY: the kernel just made it.
        let region = unsafe { MrCore::new(Arc::clone(pd), keys.handle, keys.lkey, keys.rkey) };
        Ok(Self { memory: Arc::new((region, pages)), bytes, mask: slots - 1 })
    }

    /// Copies inline data to the part of the slot at `index`. Returns the SGE of the copy.
    ///
    /// # Safety
    ///
    /// No work request of the slot is under way, and the data is no longer than a part.
    pub(crate) unsafe fn copy(&self, index: u32, data: &Data<'_>) -> Sge {
        let at = (index & self.mask) as usize * self.bytes as usize;
        let start = self.memory.1.as_mut_ptr().wrapping_add(at);
        let one;
        let pieces: &[&[u8]] = match data {
            Data::Inline(bytes) => {
                one = [*bytes];
                &one
            }
            Data::InlineList(pieces) => pieces,
            Data::One(_) | Data::List(_) => &[],
        };
        let mut end = start;
        for piece in pieces {
            // SAFETY: the part has room for all pieces, says the caller.
            unsafe { write_bytes(end, piece) };
            end = end.wrapping_add(piece.len());
        }
        let len = (end.addr() - start.addr()) as u32;
        Sge { addr: start.addr() as u64, len, lkey: self.memory.0.lkey() }
    }
}
