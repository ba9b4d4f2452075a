//! Buffers of packets, used again: the next packet is neither allocated nor cleared, and lies where
//! the processor's cache still has it.

/// Kept at most: as many packets as one call receives by UDP, a quarter of a MiB.
const MOST: usize = 64;

/// Buffers whose bytes nobody needs any more.
#[derive(Debug, Default)]
pub(crate) struct Spare(Vec<Vec<u8>>);

impl Spare {
    /// The one that was used last, with what is in it, or an empty one.
    pub(crate) fn take(&mut self) -> Vec<u8> {
        self.0.pop().unwrap_or_default()
    }

    pub(crate) fn put(&mut self, bytes: Vec<u8>) {
        if self.0.len() < MOST {
            self.0.push(bytes);
        }
    }
}
