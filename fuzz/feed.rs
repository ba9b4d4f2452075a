//! Numbers out of a fuzzer's bytes. Where the bytes end, all is 0.

#[derive(Clone, Debug)]
pub(crate) struct Feed<'a>(&'a [u8]);

impl<'a> Feed<'a> {
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let (from, rest) = self.0.split_at(N.min(self.0.len()));
        bytes[..from.len()].copy_from_slice(from);
        self.0 = rest;
        bytes
    }

    pub(crate) fn u8(&mut self) -> u8 {
        let [byte] = self.take();
        byte
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    /// Below `n`; 0 for 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::from(self.u8()) % n.max(1)
    }

    /// At most `most` bytes.
    pub(crate) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let len = usize::from(self.u16()).min(most).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        bytes
    }

    /// Changes a few bytes.
    pub(crate) fn edit(&mut self, bytes: &mut [u8]) {
        for _ in 0..self.below(6) {
            let (at, value) = (usize::from(self.u16()), self.u8());
            let at = at % bytes.len().max(1);
            if let Some(byte) = bytes.get_mut(at) {
                *byte = value;
            }
        }
    }
}
