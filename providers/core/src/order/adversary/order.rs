//! Orders that can be removed, and the classes of stores that they order.

use crate::order::doorbell_memory::DoorbellMemory;

/// Kind of memory that a store goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// An entry of a ring, or a payload.
    Entry,
    /// A doorbell record.
    Record,
    /// A non-cached doorbell page.
    NonCached,
    /// A write-combining doorbell page.
    Combining,
}

/// Number of classes.
pub(super) const CLASSES: usize = 4;

/// An order that the provider asks for: a fence of [`crate::order::fence`], or the release store of
/// a consumer or producer index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// [`crate::order::fence::wqe_before_record`].
    WqeBeforeRecord,
    /// [`crate::order::fence::record_before_doorbell`].
    RecordBeforeDoorbell(DoorbellMemory),
    /// [`crate::order::fence::doorbell_flush`], behind a write-combining page.
    DoorbellFlush,
    /// [`crate::order::fence::copy_flush`].
    CopyFlush,
    /// [`crate::order::fence::cqe_owner_before_body`].
    CqeOwnerBeforeBody,
    /// [`crate::order::device_memory::release_record`].
    ConsumerRelease,
    /// [`crate::order::device_memory::store_record`].
    ProducerRelease,
}

impl Order {
    /// All orders.
    pub const ALL: [Self; 8] = [
        Self::WqeBeforeRecord,
        Self::RecordBeforeDoorbell(DoorbellMemory::NonCached),
        Self::RecordBeforeDoorbell(DoorbellMemory::WriteCombining),
        Self::DoorbellFlush,
        Self::CopyFlush,
        Self::CqeOwnerBeforeBody,
        Self::ConsumerRelease,
        Self::ProducerRelease,
    ];

    /// Classes of pending stores that it keeps before later stores of other classes, as the fence's
    /// comment says, and whether it drains write-combining buffers.
    pub(super) fn stores(self) -> (&'static [Class], &'static [Class], bool) {
        use Class::{Combining, Entry, NonCached, Record};
        match self {
            Self::WqeBeforeRecord => (&[Entry, Record], &[Record], false),
            Self::RecordBeforeDoorbell(DoorbellMemory::NonCached) => {
                (&[Entry, Record], &[NonCached], false)
            }
            Self::RecordBeforeDoorbell(DoorbellMemory::WriteCombining) => {
                (&[Entry, Record, NonCached, Combining], &[Combining], true)
            }
            Self::DoorbellFlush => (&[Combining], &[Entry, Record, NonCached, Combining], true),
            // These order whole blocks (`Pending::flush_whole_blocks`), loads, or one store
            // (`Pending::store`).
            Self::CopyFlush
            | Self::CqeOwnerBeforeBody
            | Self::ConsumerRelease
            | Self::ProducerRelease => (&[], &[], false),
        }
    }
}
