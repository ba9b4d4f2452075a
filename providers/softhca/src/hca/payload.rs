//! Received payload on its way into memory: copied into this process, or lent by its sender.

use crate::hca::dma::{Dma, DmaFault};
use crate::wire::Loan;

/// Received payload bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    /// Bytes in a local buffer.
    Bytes(&'a [u8]),
    /// Part of a loan: offset and length.
    Loan(&'a Loan, u64, usize),
}

impl<'a> From<&'a [u8]> for Payload<'a> {
    fn from(bytes: &'a [u8]) -> Payload<'a> {
        Payload::Bytes(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Payload<'a> {
    fn from(bytes: &'a [u8; N]) -> Payload<'a> {
        Payload::Bytes(bytes)
    }
}

impl<'a> From<&'a Loan> for Payload<'a> {
    fn from(loan: &'a Loan) -> Payload<'a> {
        Payload::Loan(loan, 0, loan.len())
    }
}

impl<'a> Payload<'a> {
    /// Number of bytes.
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Loan(_, _, len) => *len,
        }
    }

    /// The bytes from `start` to `end`, which must not exceed the length.
    pub(crate) fn part(&self, start: usize, end: usize) -> Payload<'a> {
        match *self {
            Payload::Bytes(bytes) => Payload::Bytes(&bytes[start..end]),
            Payload::Loan(loan, from, _) => Payload::Loan(loan, from + start as u64, end - start),
        }
    }

    /// Bytes in a local buffer; empty for a loan.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        match *self {
            Payload::Bytes(bytes) => bytes,
            Payload::Loan(..) => &[],
        }
    }

    /// True if a loan's bytes were not written whole, or not as sent. Must be called once, after
    /// the write.
    pub(crate) fn is_lost<E>(&self, written: Result<(), E>) -> bool {
        match self {
            Payload::Bytes(_) => false,
            Payload::Loan(loan, ..) => match written {
                Ok(()) => !loan.settle(),
                Err(_) => loan.is_lost(),
            },
        }
    }

    /// Copies all bytes to a bus address.
    ///
    /// # Errors
    /// The host refused the access, or the loan is lost; [`Loan`] knows which.
    pub(crate) fn write(&self, dma: &dyn Dma, addr: u64) -> Result<(), DmaFault> {
        match *self {
            Payload::Bytes(bytes) => dma.write(addr, bytes),
            Payload::Loan(loan, from, len) => dma.take(addr, loan, from, len),
        }
    }
}
