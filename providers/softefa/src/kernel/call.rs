//! A command: its attributes, inputs and outputs.

use nix::errno::Errno;
use uverbs_kernel_abi::driver_id::RDMA_DRIVER_EFA;
use uverbs_kernel_abi::ioctl::{
    UVERBS_ATTR_F_VALID_OUTPUT, UVERBS_ATTR_INLINE_MAX, ib_uverbs_attr, ib_uverbs_ioctl_hdr,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CORE_IN, UVERBS_ATTR_CORE_OUT, UVERBS_ATTR_UHW_IN, UVERBS_ATTR_UHW_OUT,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::device::memory;

const HEADER: usize = size_of::<ib_uverbs_ioctl_hdr>();
const ATTR: usize = size_of::<ib_uverbs_attr>();

/// A command in progress.
pub(crate) struct Call<'a> {
    words: &'a mut [u64],
    pub(crate) object: u16,
    pub(crate) method: u16,
    attrs: Vec<ib_uverbs_attr>,
}

impl<'a> Call<'a> {
    pub(crate) fn parse(words: &'a mut [u64]) -> Result<Self, Errno> {
        let bytes = words.as_bytes();
        let (header, rest) =
            ib_uverbs_ioctl_hdr::read_from_prefix(bytes).map_err(|_| Errno::EFAULT)?;
        let count = usize::from(header.num_attrs);
        let is_whole = usize::from(header.length) == HEADER + ATTR * count;
        if !is_whole || header.driver_id != RDMA_DRIVER_EFA {
            return Err(Errno::EINVAL);
        }
        let attrs = rest.chunks_exact(ATTR).take(count);
        let attrs: Vec<_> =
            attrs.filter_map(|attr| ib_uverbs_attr::read_from_bytes(attr).ok()).collect();
        if attrs.len() != count {
            return Err(Errno::EFAULT);
        }
        Ok(Self { words, object: header.object_id, method: header.method_id, attrs })
    }

    fn find(&self, id: u16) -> Option<(usize, ib_uverbs_attr)> {
        self.attrs.iter().copied().enumerate().find(|(_, attr)| attr.attr_id == id)
    }

    /// True if the attribute is there.
    pub(crate) fn has(&self, id: u16) -> bool {
        self.find(id).is_some()
    }

    /// Length of an attribute's payload.
    pub(crate) fn len(&self, id: u16) -> usize {
        self.find(id).map_or(0, |(_, attr)| attr.len.into())
    }

    /// A number, a handle or a descriptor in the attribute itself.
    ///
    /// # Errors
    ///
    /// `EINVAL` without the attribute.
    pub(crate) fn number(&self, id: u16) -> Result<u64, Errno> {
        let (_, attr) = self.find(id).ok_or(Errno::EINVAL)?;
        let mask = match attr.len {
            len @ 1..=7 => (1 << (8 * len)) - 1,
            _ => u64::MAX,
        };
        Ok(attr.data & mask)
    }

    /// A handle.
    ///
    /// # Errors
    ///
    /// `EINVAL` without the attribute.
    pub(crate) fn handle(&self, id: u16) -> Result<u32, Errno> {
        self.number(id).map(|number| number as u32)
    }

    /// Input of an attribute; empty without it.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(crate) fn bytes(&self, id: u16) -> Result<Vec<u8>, Errno> {
        let Some((_, attr)) = self.find(id) else { return Ok(Vec::new()) };
        let mut bytes = vec![0; attr.len.into()];
        if attr.len <= UVERBS_ATTR_INLINE_MAX {
            bytes.copy_from_slice(&attr.data.as_bytes()[..attr.len.into()]);
        } else {
            memory::read(attr.data, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Input as a struct; a shorter one is extended with zeros, and the rest of a longer one must
    /// be zero (`ib_copy_validate_udata_in`).
    ///
    /// # Errors
    ///
    /// `EFAULT`; `EINVAL` for a rest that is not zero.
    pub(crate) fn input<T: FromBytes + IntoBytes>(&self, id: u16) -> Result<T, Errno> {
        let bytes = self.bytes(id)?;
        let mut value = T::new_zeroed();
        let known = bytes.len().min(size_of::<T>());
        value.as_mut_bytes()[..known].copy_from_slice(&bytes[..known]);
        let is_clear = bytes[known..].iter().all(|byte| *byte == 0);
        if is_clear { Ok(value) } else { Err(Errno::EINVAL) }
    }

    /// Request of a write command.
    ///
    /// # Errors
    ///
    /// As [`input`](Self::input).
    pub(crate) fn request<T: FromBytes + IntoBytes>(&self) -> Result<T, Errno> {
        self.input(UVERBS_ATTR_CORE_IN)
    }

    /// The driver's part of the request.
    ///
    /// # Errors
    ///
    /// As [`input`](Self::input).
    pub(crate) fn driver<T: FromBytes + IntoBytes>(&self) -> Result<T, Errno> {
        self.input(UVERBS_ATTR_UHW_IN)
    }

    /// Writes an output, cut to its buffer; the rest of the buffer is cleared.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(crate) fn output(&mut self, id: u16, bytes: &[u8]) -> Result<(), Errno> {
        let Some((index, attr)) = self.find(id) else { return Ok(()) };
        let mut all = vec![0; attr.len.into()];
        let known = bytes.len().min(all.len());
        all[..known].copy_from_slice(&bytes[..known]);
        memory::write(attr.data, &all)?;
        let at = HEADER + ATTR * index + std::mem::offset_of!(ib_uverbs_attr, flags);
        let flags = (attr.flags | UVERBS_ATTR_F_VALID_OUTPUT).to_ne_bytes();
        self.words.as_mut_bytes()[at..at + 2].copy_from_slice(&flags);
        Ok(())
    }

    /// Answers a write command.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(crate) fn respond<T: IntoBytes + Immutable>(&mut self, answer: &T) -> Result<(), Errno> {
        self.output(UVERBS_ATTR_CORE_OUT, answer.as_bytes())
    }

    /// Writes the driver's part of the answer.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(crate) fn respond_driver<T: IntoBytes + Immutable>(
        &mut self,
        answer: &T,
    ) -> Result<(), Errno> {
        self.output(UVERBS_ATTR_UHW_OUT, answer.as_bytes())
    }

    /// Puts a handle or a descriptor into its attribute.
    pub(crate) fn set(&mut self, id: u16, value: u64) {
        if let Some((index, _)) = self.find(id) {
            let at = HEADER + ATTR * index + std::mem::offset_of!(ib_uverbs_attr, data);
            self.words.as_mut_bytes()[at..at + 8].copy_from_slice(&value.to_ne_bytes());
        }
    }
}
