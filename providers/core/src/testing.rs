//! Test doubles: a door whose commands all succeed or all fail, and objects created through it.
//!
//! # Safety
//!
//! Slabs made here register nothing; no device ever touches their memory.
#![allow(unsafe_code, reason = "makes slabs, whose constructor is unsafe")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use crate::Errno;
use crate::commands::Uverbs;
use crate::doors::UverbsDoor;
use crate::memory::frame::Slab;
use crate::memory::mapping::Mapping;
use crate::memory::pages::Pages;
use crate::objects::context::ContextCore;
use crate::objects::mr::MrCore;
use crate::objects::pd::PdCore;

/// A door that answers every ioctl with success or `EBUSY`, and counts them.
#[derive(Debug, Default)]
pub(crate) struct YesDoor {
    pub(crate) refuse: AtomicBool,
    pub(crate) ioctls: AtomicU32,
}

// SAFETY: no device is behind it, and it returns no descriptors or mappings.
unsafe impl UverbsDoor for YesDoor {
    unsafe fn ioctl(&self, _command: &mut [u64]) -> Result<(), Errno> {
        self.ioctls.fetch_add(1, Ordering::Relaxed);
        if self.refuse.load(Ordering::Relaxed) { Err(Errno::EBUSY) } else { Ok(()) }
    }

    fn mmap(&self, _len: usize, _offset: u64) -> Result<Pages, Errno> {
        Err(Errno::ENODEV)
    }
}

/// A domain on a new door.
pub(crate) fn domain() -> (Arc<YesDoor>, Arc<PdCore>) {
    let door = Arc::new(YesDoor::default());
    let context = ContextCore::new(Uverbs::new(door.clone(), 0));
    // SAFETY: the door creates no object, so no other owner exists.
    (door, unsafe { PdCore::new(context, 0) })
}

/// A slab in `pd` that is unknown to any device.
pub(crate) fn slab(pd: &Arc<PdCore>, frame_len: u32, count: u32) -> Slab {
    let memory = Mapping::new((frame_len * count) as usize).unwrap();
    // SAFETY: the door creates no object, so no other owner exists.
    let region = unsafe { MrCore::new(pd.clone(), 1, 0x100, 0x100) };
    // SAFETY: the mapping is new, and no device knows of it.
    unsafe { Slab::new(memory, region, frame_len, count) }
}
