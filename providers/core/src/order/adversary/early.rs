//! Loads: values that the processor may have loaded early, and loads that it may delay.

/// Maximum number of remembered loads.
const LOADS: usize = 4096;

/// Old values of watched memory, and loads that may be delayed.
#[derive(Default)]
pub(super) struct Early {
    watched: Vec<Watched>,
    /// Loads that no order keeps before an index yet: address, value, kind.
    loads: Vec<(*const u8, u8, Of)>,
    late: u64,
}

/// Kind of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// A completion queue entry.
    Entry,
    /// Exposed memory: a buffer.
    Buffer,
}

/// Watched memory with its content at the last load fence, updated by this thread's loads and
/// stores since.
struct Watched {
    at: *mut u8,
    then: Vec<u8>,
}

impl Watched {
    /// Offset of `len` bytes at `at` in the memory.
    fn place(&self, at: *const u8, len: usize) -> Option<usize> {
        let offset = at.addr().checked_sub(self.at.addr())?;
        (offset.checked_add(len)? <= self.then.len()).then_some(offset)
    }

    fn now(&self, offset: usize) -> u8 {
        // SAFETY: within watched memory, valid by the contract of `Adversary::watch`.
        unsafe { self.at.wrapping_add(offset).read_volatile() }
    }

    fn fence(&mut self) {
        let words = self.at.cast::<u64>();
        for (index, then) in self.then.as_chunks_mut().0.iter_mut().enumerate() {
            // SAFETY: within watched memory, which consists of whole words.
            *then = unsafe { words.wrapping_add(index).read_volatile() }.to_ne_bytes();
        }
    }
}

impl Early {
    /// Adds memory; address and length are multiples of a word.
    pub(super) fn watch(&mut self, at: *mut u8, len: usize) {
        let mut watched = Watched { at, then: vec![0; len] };
        watched.fence();
        self.watched.push(watched);
    }

    pub(super) fn is_watched(&self, at: *const u8, len: usize) -> bool {
        self.watched.iter().any(|watched| watched.place(at, len).is_some())
    }

    /// Handles a load fence.
    pub(super) fn fence(&mut self) {
        self.watched.iter_mut().for_each(Watched::fence);
    }

    /// Records a store: later loads of the address never return an older value.
    pub(super) fn note_store(&mut self, at: *const u8, bytes: &[u8]) {
        // A delayed load never returns a value that the thread stored after it.
        let stored = at.addr()..at.addr() + bytes.len();
        self.loads.retain(|(place, ..)| !stored.contains(&place.addr()));
        for watched in &mut self.watched {
            if let Some(offset) = watched.place(at, bytes.len()) {
                watched.then[offset..][..bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    /// Loads each byte's current value, or with `old` its value at the last fence.
    pub(super) fn load(&mut self, at: *const u8, bytes: &mut [u8], old: bool) {
        for watched in &mut self.watched {
            if let Some(offset) = watched.place(at, bytes.len()) {
                for (offset, byte) in (offset..).zip(&mut *bytes) {
                    if !old {
                        watched.then[offset] = watched.now(offset);
                    }
                    *byte = watched.then[offset];
                }
                return;
            }
        }
    }

    /// Remembers a load of an entry or of exposed memory.
    pub(super) fn note_load(&mut self, at: *const u8, bytes: &[u8], of: Of) {
        let all = (0..).zip(bytes).map(|(offset, byte)| (at.wrapping_add(offset), *byte, of));
        self.loads.extend(all);
        let over = self.loads.len().saturating_sub(LOADS);
        self.loads.drain(..over);
    }

    /// Forgets all loads: they are ordered before later accesses.
    pub(super) fn forget_loads(&mut self) {
        self.loads.clear();
    }

    /// Forgets loads of buffers.
    pub(super) fn forget_buffers(&mut self) {
        self.loads.retain(|(.., of)| *of != Of::Buffer);
    }

    /// Counts the loads that would return another value now.
    pub(super) fn look_for_late_loads(&mut self) {
        let Self { watched, loads, late } = self;
        loads.retain(|&(at, value, _)| {
            let now = watched.iter().find_map(|place| Some(place.now(place.place(at, 1)?)));
            let same = now == Some(value);
            *late += u64::from(!same);
            same
        });
    }

    pub(super) fn late_loads(&self) -> u64 {
        self.late
    }
}
