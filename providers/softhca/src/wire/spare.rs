//! Buffers, used again: the next packet or request is neither allocated nor cleared, and lies where
//! the processor's cache still has it.

/// Packets that are kept at most: as many as one call receives by UDP, a quarter of a MiB.
const PACKETS: usize = 64;

/// A pool of buffers whose content is stale. It keeps `MOST` of them; the defaults fit packets.
#[derive(Debug, Default)]
pub(crate) struct Spare<T = Vec<u8>, const MOST: usize = PACKETS>(Vec<T>);

impl<T: Default, const MOST: usize> Spare<T, MOST> {
    /// The one that was used last, with what is in it, or an empty one.
    pub(crate) fn take(&mut self) -> T {
        self.0.pop().unwrap_or_default()
    }

    pub(crate) fn put(&mut self, buffer: T) {
        if self.0.len() < MOST {
            self.0.push(buffer);
        }
    }
}
