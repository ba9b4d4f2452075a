//! Memory of programs that is lent to the device while an object uses it.
//!
//! A loan ends after the firmware answered the destruction of its object. A refused destruction
//! keeps it until the front forsakes the object, at the end of the program's file. A key's loan
//! also ends with its destruction after the device's first failure.
//!
//! # Safety
//!
//! The front passes ranges that commands named, and whose owner promised to keep them until the
//! object is destroyed ([`uverbs_core::doors::UverbsDoor::ioctl`]). Nothing is lent after that, nor
//! after the object is forsaken.
#![allow(unsafe_code, reason = "memory that a program named is given to the device")]

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::Firmware;
use crate::area::Lent;
use crate::error::Error;
use crate::transport::Purpose;
use uverbs_front::backend::error::{HcaError, Noun};

/// Object by kind and number.
pub(super) type Object = (Noun, u32);

/// Memory that is lent for an object.
#[derive(Debug, Default)]
pub(super) struct Loan {
    /// Ring of a queue, bytes of a region.
    pub(super) memory: Option<Lent>,
    /// Doorbell record.
    pub(super) record: Option<Lent>,
}

impl Loan {
    fn is_empty(&self) -> bool {
        self.memory.is_none() && self.record.is_none()
    }
}

/// Loans by object; an empty one of an object whose memory is in areas.
#[derive(Debug, Default)]
pub(super) struct Loans(HashMap<Object, Loan>);

impl Loans {
    /// True if memory is lent for an object.
    pub(super) fn has(&self, object: Object) -> bool {
        self.0.get(&object).is_some_and(|loan| !loan.is_empty())
    }
}

impl Firmware {
    /// Address for the device of `len` bytes that the program has at `address`: in an area, or
    /// lent.
    pub(super) fn reach(
        &self,
        address: u64,
        len: u64,
        purpose: Purpose,
        lent: &mut Option<Lent>,
    ) -> Result<u64, HcaError> {
        let dma = self.function.dma();
        if let Some(at) = dma.translate(address, len) {
            return Ok(at);
        }
        // SAFETY: module docs.
        let lends = unsafe { dma.lend(address, len, purpose) };
        let lends = lends.map_err(|error| self.refusal(&error, (Noun::Mkey, 0)))?;
        Ok(lent.insert(lends).at)
    }

    /// Creates an object by `make`, which returns its number and lends its memory. An error takes
    /// the memory back.
    pub(super) fn lending<T>(
        &mut self,
        noun: Noun,
        make: impl FnOnce(&mut Self, &mut Loan) -> Result<(u32, T), HcaError>,
    ) -> Result<(u32, T), HcaError> {
        let mut loan = Loan::default();
        let made = make(self, &mut loan);
        match made {
            Ok((number, made)) => match self.loans.0.entry((noun, number)) {
                Entry::Vacant(entry) => {
                    entry.insert(loan);
                    Ok((number, made))
                }
                // The older object's loan would be lost.
                Entry::Occupied(_) => {
                    let error = Error::answer("the number of an object", number);
                    self.function.device().fail(error);
                    self.take_loan_back(loan);
                    Err(HcaError::Dead)
                }
            },
            Err(error) => {
                self.take_loan_back(loan);
                Err(error)
            }
        }
    }

    /// Moves an object to other memory by `change`, which lends it. Afterwards the former memory is
    /// taken back; after an error, the new.
    pub(super) fn moving(
        &mut self,
        object: Object,
        change: impl FnOnce(&mut Self, &mut Option<Lent>) -> Result<(), HcaError>,
    ) -> Result<(), HcaError> {
        let mut lent = None;
        let changed = change(self, &mut lent);
        if changed.is_ok() && (lent.is_some() || self.loans.has(object)) {
            let loan = self.loans.0.entry(object).or_default();
            std::mem::swap(&mut loan.memory, &mut lent);
        }
        self.take_back(lent);
        changed
    }

    /// Ends the loan of an object that is destroyed, or forsaken.
    pub(super) fn end_loan(&mut self, object: Object) {
        if let Some(loan) = self.loans.0.remove(&object) {
            self.take_loan_back(loan);
        }
    }

    fn take_loan_back(&self, loan: Loan) {
        let Loan { memory, record } = loan;
        self.take_back(memory);
        self.take_back(record);
    }

    /// Ends the device's access to lent memory: by the end of its mapping, or of all DMA.
    fn take_back(&self, lent: Option<Lent>) {
        let Some(lent) = lent else { return };
        if let Err(error) = self.function.dma().take_back(&lent) {
            let device = self.function.device();
            device.fail(error);
            // A server that is gone can't be reset, and reaches nothing.
            let _ = device.silence();
        }
    }

    /// Takes the memory of an object back that the firmware refused to destroy. Areas stay mapped.
    pub(super) fn forsake_object(&mut self, object: Object) {
        self.function.dma().keep_areas();
        self.end_loan(object);
    }
}
