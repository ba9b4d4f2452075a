//! Buffers for reuse: the next packet or request needs neither an allocation nor zeroing, and its
//! buffer is still in the processor's cache.

/// Maximum kept packets: as many as a UDP call receives, a quarter of a MiB.
const PACKETS: usize = 64;

/// A pool of buffers whose content is stale. It keeps `MOST` of them; the defaults fit packets.
#[derive(Debug, Default)]
pub(crate) struct Spare<T = Vec<u8>, const MOST: usize = PACKETS>(Vec<T>);

impl<T: Default, const MOST: usize> Spare<T, MOST> {
    /// Returns the last used buffer with its contents, or an empty one.
    pub(crate) fn take(&mut self) -> T {
        self.0.pop().unwrap_or_default()
    }

    pub(crate) fn put(&mut self, buffer: T) {
        if self.0.len() < MOST {
            self.0.push(buffer);
        }
    }
}
