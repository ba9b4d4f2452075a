//! The client's objects, and its WRITE.
#![allow(unsafe_code, reason = "registers memory that the program has, and posts it by its key")]

use std::collections::HashMap;

use uverbs::Wr;
use uverbs::memory::{IndirectKey, KeyLayout, KeyParts};
use uverbs::raw::Data;
use uverbs::raw::Sge;
use uverbs::{AccessFlags, Frame, MemoryRegion, Remote};

use crate::common::{End, Outcome};

/// The client's side. Regions are declared before the buffers that they are of, and so dropped
/// before them.
pub(crate) struct Program {
    pub(crate) client: End,
    pub(crate) to: Remote,
    /// `None` on a device without indirect keys: soft-RoCE.
    pub(crate) key: Option<IndirectKey>,
    pub(crate) once: Vec<MemoryRegion>,
    pub(crate) cache: HashMap<usize, MemoryRegion>,
    pub(crate) copy: Option<Frame>,
    pub(crate) buffers: Vec<Vec<u8>>,
    pub(crate) registered: usize,
}

/// All of it.
pub(crate) fn whole(region: &MemoryRegion) -> Sge {
    region.sge(0, region.len() as u32)
}

impl Program {
    pub(crate) fn register(&mut self, number: usize) -> Outcome<MemoryRegion> {
        self.registered += 1;
        let buffer = &self.buffers[number];
        let address = buffer.as_ptr().cast_mut();
        // SAFETY: the buffer outlives its regions, and the device only reads from it.
        Ok(unsafe { self.client.pd.register(address, buffer.len(), AccessFlags::empty()) }?)
    }

    /// WRITEs from memory that is registered, and waits. If there is a key, gives it that first.
    pub(crate) fn write(&mut self, mut memory: Sge, key: Option<u32>) -> Outcome {
        let mut batch = self.client.qp.batch();
        let mut raw = batch.raw();
        if let Some(key) = key {
            let (access, parts) = (AccessFlags::empty(), KeyParts::List(&[memory]));
            let layout = KeyLayout { old: key, new: key, access, parts };
            // SAFETY: as below; the key is laid out anew before it is used again.
            unsafe { raw.lay_out(Wr::new(0).unsignaled(), &layout) }?;
            memory = Sge { addr: 0, len: memory.len, lkey: key };
        }
        // SAFETY: the caller keeps the region until this returns, and does not write to the buffer.
        unsafe { raw.write(1, Data::One(memory), self.to) }?;
        batch.ring();
        self.client.done()?.result?;
        Ok(())
    }
}
