//! Umems: memory of programs that is mapped for the device while an object uses it (`ib_umem_get`).
//!
//! Umems end after the firmware answered the destruction of their object. A refused destruction
//! keeps them until the front forsakes the object, at the end of the program's file. After the
//! device failed, the destruction of a key unmaps its umem although the firmware answers nothing.
//!
//! # Safety
//!
//! The front passes ranges that commands named, and whose owner promised to keep them until the
//! object is destroyed ([`uverbs_core::doors::UverbsDoor::ioctl`]). No mapping outlives that, nor
//! the call that forsakes the object.
#![allow(unsafe_code, reason = "memory that a program named is given to the device")]

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::Firmware;
use crate::area::Umem;
use crate::error::Error;
use crate::transport::Purpose;
use uverbs_front::backend::error::{HcaError, Noun};

/// Object by kind and number.
pub(super) type Object = (Noun, u32);

/// Umems of an object.
#[derive(Debug, Default)]
pub(super) struct Umems {
    /// Ring of a queue, bytes of a region.
    pub(super) memory: Option<Umem>,
    /// Doorbell record.
    pub(super) record: Option<Umem>,
}

impl Umems {
    fn is_empty(&self) -> bool {
        self.memory.is_none() && self.record.is_none()
    }
}

/// Umems by object; empty for an object whose memory is in areas.
#[derive(Debug, Default)]
pub(super) struct UmemTable(HashMap<Object, Umems>);

impl UmemTable {
    /// True if an object has umems.
    pub(super) fn has(&self, object: Object) -> bool {
        self.0.get(&object).is_some_and(|umems| !umems.is_empty())
    }
}

impl Firmware {
    /// DMA address of the program's `len` bytes at `address`: in an area, or in a new umem, which
    /// goes to `umem`.
    pub(super) fn reach(
        &self,
        address: u64,
        len: u64,
        purpose: Purpose,
        umem: &mut Option<Umem>,
    ) -> Result<u64, HcaError> {
        let dma = self.function.dma();
        if let Some(at) = dma.translate(address, len) {
            return Ok(at);
        }
        // SAFETY: module docs.
        let mapped = unsafe { dma.map_umem(address, len, purpose) };
        let mapped = mapped.map_err(|error| self.refusal(&error, (Noun::Mkey, 0)))?;
        Ok(umem.insert(mapped).at)
    }

    /// Creates an object by `make`, which returns its number and maps its memory. An error unmaps
    /// the memory.
    pub(super) fn with_umems<T>(
        &mut self,
        noun: Noun,
        make: impl FnOnce(&mut Self, &mut Umems) -> Result<(u32, T), HcaError>,
    ) -> Result<(u32, T), HcaError> {
        let mut umems = Umems::default();
        let made = make(self, &mut umems);
        match made {
            Ok((number, made)) => match self.umems.0.entry((noun, number)) {
                Entry::Vacant(entry) => {
                    entry.insert(umems);
                    Ok((number, made))
                }
                // The older object's umems would be lost.
                Entry::Occupied(_) => {
                    let error = Error::answer("the number of an object", number);
                    self.function.device().fail(error);
                    self.release(umems);
                    Err(HcaError::Dead)
                }
            },
            Err(error) => {
                self.release(umems);
                Err(error)
            }
        }
    }

    /// Moves an object to other memory by `change`, which maps the new memory. Success unmaps the
    /// old memory, an error the new.
    pub(super) fn moving(
        &mut self,
        object: Object,
        change: impl FnOnce(&mut Self, &mut Option<Umem>) -> Result<(), HcaError>,
    ) -> Result<(), HcaError> {
        let mut umem = None;
        let changed = change(self, &mut umem);
        if changed.is_ok() && (umem.is_some() || self.umems.has(object)) {
            let umems = self.umems.0.entry(object).or_default();
            std::mem::swap(&mut umems.memory, &mut umem);
        }
        self.unmap(umem);
        changed
    }

    /// Ends the umems of an object that is destroyed, or forsaken.
    pub(super) fn release_umems(&mut self, object: Object) {
        if let Some(umems) = self.umems.0.remove(&object) {
            self.release(umems);
        }
    }

    fn release(&self, umems: Umems) {
        let Umems { memory, record } = umems;
        self.unmap(memory);
        self.unmap(record);
    }

    /// Unmaps a umem. If that fails, ends all DMA of the device.
    fn unmap(&self, umem: Option<Umem>) {
        let Some(umem) = umem else { return };
        if let Err(error) = self.function.dma().unmap_umem(&umem) {
            let device = self.function.device();
            device.fail(error);
            // Ignored: a server that is gone can't be reset, and accesses no memory.
            let _ = device.silence();
        }
    }

    /// Unmaps the umems of an object that the firmware refused to destroy. Areas stay mapped.
    pub(super) fn forsake_object(&mut self, object: Object) {
        self.function.dma().keep_areas();
        self.release_umems(object);
    }
}
