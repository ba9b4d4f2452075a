//! The GID table: `QUERY_GID_ENTRY`, `QUERY_GID_TABLE` (kernel 5.10 and later).
//!
//! # Safety
//!
//! The payloads of these commands contain no address.
#![allow(unsafe_code, reason = "ioctls; each block says why no payload carries an address")]

use uverbs_kernel_abi::gid::ib_uverbs_gid_entry;
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX,
    UVERBS_ATTR_QUERY_GID_ENTRY_PORT, UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY,
    UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, UVERBS_ATTR_QUERY_GID_TABLE_FLAGS,
    UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES,
    UVERBS_METHOD_QUERY_GID_ENTRY, UVERBS_METHOD_QUERY_GID_TABLE, UVERBS_OBJECT_DEVICE,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::Errno;
use crate::attr::GidEntry;
use crate::commands::Uverbs;
use crate::error::Error;

/// Entries that fit the 65,535 bytes of one attribute.
const MAX_ENTRIES: usize = u16::MAX as usize / size_of::<ib_uverbs_gid_entry>();

impl Uverbs {
    /// Returns true if the device is gone: the kernel then answers every query about it with `EIO`
    /// (`ib_uverbs_get_ucontext_file`). This queries a GID, which the kernel reads from its own
    /// table without asking the device; any other result means that the device exists.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.query_gid_entry(1, 0).is_err_and(|error| error.errno() == Some(Errno::EIO))
    }

    /// Queries entry `index` of `port`'s GID table.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `ENODATA` when the entry is empty, `EINVAL` when port or index is out of
    /// range.
    #[doc(alias = "ibv_query_gid_ex")]
    pub fn query_gid_entry(&self, port: u8, index: u32) -> Result<GidEntry, Error> {
        let mut entry = ib_uverbs_gid_entry::new_zeroed();
        let command = self
            .command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY)
            .constant(UVERBS_ATTR_QUERY_GID_ENTRY_PORT, u64::from(port))
            .constant(UVERBS_ATTR_QUERY_GID_ENTRY_GID_INDEX, u64::from(index))
            .number(UVERBS_ATTR_QUERY_GID_ENTRY_FLAGS, 0)
            .output(UVERBS_ATTR_QUERY_GID_ENTRY_RESP_ENTRY, entry.as_mut_bytes());
        // SAFETY: the inputs are a port, an index and flags.
        unsafe { command.send(&**self.door(), "query_gid") }?;
        Ok(GidEntry::from_abi(&entry))
    }

    /// Queries the filled entries of all ports, up to `max` (at most 2,047, which fill one
    /// attribute).
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` when there are more than `max`.
    #[doc(alias = "ibv_query_gid_table")]
    pub fn query_gid_table(&self, max: usize) -> Result<Vec<GidEntry>, Error> {
        let max = max.min(MAX_ENTRIES);
        if max == 0 {
            return Ok(Vec::new());
        }
        let mut entries = vec![ib_uverbs_gid_entry::new_zeroed(); max];
        let mut count = [0; 8];
        let size = size_of::<ib_uverbs_gid_entry>() as u64;
        let command = self
            .command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE)
            .constant(UVERBS_ATTR_QUERY_GID_TABLE_ENTRY_SIZE, size)
            .number(UVERBS_ATTR_QUERY_GID_TABLE_FLAGS, 0)
            .output(UVERBS_ATTR_QUERY_GID_TABLE_RESP_ENTRIES, entries.as_mut_bytes())
            .output(UVERBS_ATTR_QUERY_GID_TABLE_RESP_NUM_ENTRIES, &mut count);
        // SAFETY: the inputs are a size and flags.
        unsafe { command.send(&**self.door(), "query_gid_table") }?;
        let count = usize::try_from(u64::from_ne_bytes(count)).unwrap_or(max);
        Ok(entries.iter().take(count).map(GidEntry::from_abi).collect())
    }
}
