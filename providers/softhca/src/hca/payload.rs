//! Bytes that arrived, on their way into memory: here, or still in their sender's memory.

use crate::hca::dma::{Dma, DmaFault};
use crate::wire::Loan;

/// Bytes that arrived.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// In a buffer of ours.
    Bytes(&'a [u8]),
    /// Lent: so many, from an offset on.
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
    /// How many.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        match self {
            Payload::Bytes(bytes) => bytes.len(),
            Payload::Loan(_, _, len) => *len,
        }
    }

    /// Those from `start` to `end`, which is no more than there are.
    #[must_use]
    pub fn part(&self, start: usize, end: usize) -> Payload<'a> {
        match *self {
            Payload::Bytes(bytes) => Payload::Bytes(&bytes[start..end]),
            Payload::Loan(loan, from, _) => Payload::Loan(loan, from + start as u64, end - start),
        }
    }

    /// Those that are here already; none if they were lent.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        match *self {
            Payload::Bytes(bytes) => bytes,
            Payload::Loan(..) => &[],
        }
    }

    /// Whether they were lent, and what was written of them isn't all, or not what was sent. Asked
    /// once, after they were written.
    pub(crate) fn is_lost<E>(&self, written: Result<(), E>) -> bool {
        match self {
            Payload::Bytes(_) => false,
            Payload::Loan(loan, ..) => match written {
                Ok(()) => !loan.settle(),
                Err(_) => loan.is_lost(),
            },
        }
    }

    /// Copies all of them to a bus address.
    ///
    /// # Errors
    /// The host's refusal; of a loan also that it is lost, which [`Loan`] knows.
    pub fn write(&self, dma: &dyn Dma, addr: u64) -> Result<(), DmaFault> {
        match *self {
            Payload::Bytes(bytes) => dma.write(addr, bytes),
            Payload::Loan(loan, from, len) => dma.take(addr, loan, from, len),
        }
    }
}
