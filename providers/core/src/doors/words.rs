//! Parser of ioctl commands, the words that pass through a door.

use uverbs_kernel_abi::ioctl::{ib_uverbs_attr, ib_uverbs_ioctl_hdr};
use zerocopy::transmute;

/// Words of an `ib_uverbs_ioctl_hdr`.
pub(crate) const HEADER_WORDS: usize = 3;
/// Words of an `ib_uverbs_attr`.
pub(crate) const ATTR_WORDS: usize = 2;
/// Parses a whole command into header and attributes; `None` if the words are truncated or
/// contradictory.
///
/// `length` must be exactly header plus attributes, as the kernel requires (`ib_uverbs_ioctl`).
#[must_use]
pub fn parse(
    words: &[u64],
) -> Option<(ib_uverbs_ioctl_hdr, impl ExactSizeIterator<Item = ib_uverbs_attr> + '_)> {
    let head: [u64; HEADER_WORDS] = words.get(..HEADER_WORDS)?.try_into().ok()?;
    let header: ib_uverbs_ioctl_hdr = transmute!(head);
    let end = HEADER_WORDS + ATTR_WORDS * usize::from(header.num_attrs);
    if usize::from(header.length) != end * size_of::<u64>() {
        return None;
    }
    Some((header, attrs_of(words.get(HEADER_WORDS..end)?)))
}

pub(crate) fn attrs_of(words: &[u64]) -> impl ExactSizeIterator<Item = ib_uverbs_attr> + '_ {
    words.chunks_exact(ATTR_WORDS).map(|pair| transmute!([pair[0], pair[1]]))
}
