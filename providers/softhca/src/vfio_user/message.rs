//! Messages of the vfio-user protocol (QEMU `docs/interop/vfio-user.rst`). Numbers are in host byte
//! order, since both ends are on one machine.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Commands.
pub(super) mod command {
    pub(crate) const VERSION: u16 = 1;
    pub(crate) const DMA_MAP: u16 = 2;
    pub(crate) const DMA_UNMAP: u16 = 3;
    pub(crate) const DEVICE_GET_INFO: u16 = 4;
    pub(crate) const DEVICE_GET_REGION_INFO: u16 = 5;
    pub(crate) const DEVICE_GET_IRQ_INFO: u16 = 7;
    pub(crate) const DEVICE_SET_IRQS: u16 = 8;
    pub(crate) const REGION_READ: u16 = 9;
    pub(crate) const REGION_WRITE: u16 = 10;
    pub(crate) const DMA_READ: u16 = 11;
    pub(crate) const DMA_WRITE: u16 = 12;
    pub(crate) const DEVICE_RESET: u16 = 13;
    /// Commands of this project, without replies: the server asks a client to tell of the next
    /// store into its doorbell pages, and the client asks the server to look at them.
    pub(crate) const ARM: u16 = 0x8000;
    pub(crate) const LOOK: u16 = 0x8001;
}

/// Flags of a header.
pub(super) mod flag {
    pub(crate) const TYPE: u32 = 0xf;
    pub(crate) const COMMAND: u32 = 0;
    pub(crate) const REPLY: u32 = 1;
    pub(crate) const NO_REPLY: u32 = 1 << 4;
    pub(crate) const ERROR: u32 = 1 << 5;
}

/// Maximum bytes of a transfer by the client (the default of `max_data_xfer_size`).
pub(super) const MAX_TRANSFER: u32 = 1 << 20;

/// Maximum bytes of a message: headers and a transfer.
pub(super) const MAX_MESSAGE: usize = MAX_TRANSFER as usize + 4096;

macro_rules! message {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $ty:ty,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $ty,)* }
    };
}

message! {
    /// Header of every message.
    Header { id: u16, command: u16, size: u32, flags: u32, error: u32, }
}

message! {
    /// VERSION; text follows.
    Version { major: u16, minor: u16, }
}

message! {
    /// DMA_MAP.
    DmaMap { argsz: u32, flags: u32, offset: u64, address: u64, size: u64, }
}

/// `flags` of [`DmaMap`]: the device may store.
pub(super) const MAP_WRITE: u32 = 1 << 1;

message! {
    /// DMA_UNMAP.
    DmaUnmap { argsz: u32, flags: u32, address: u64, size: u64, }
}

/// `flags` of [`DmaUnmap`]: unmap everything.
pub(super) const UNMAP_ALL: u32 = 1 << 1;

message! {
    /// DEVICE_GET_INFO.
    DeviceInfo { argsz: u32, flags: u32, regions: u32, irqs: u32, }
}

message! {
    /// DEVICE_GET_REGION_INFO.
    RegionInfo { argsz: u32, flags: u32, index: u32, cap_offset: u32, size: u64, offset: u64, }
}

/// `VFIO_REGION_INFO_CAP_SPARSE_MMAP`.
pub(super) const CAP_SPARSE_MMAP: u16 = 1;

message! {
    /// Capability of a region: areas that can be mapped follow.
    SparseMmap { id: u16, version: u16, next: u32, count: u32, reserved: u32, }
}

message! {
    /// Area of a [`SparseMmap`].
    Area { offset: u64, size: u64, }
}

message! {
    /// LOOK: a store was made, or the pages are armed.
    Look { stored: u32, }
}

message! {
    /// DEVICE_GET_IRQ_INFO.
    IrqInfo { argsz: u32, flags: u32, index: u32, count: u32, }
}

message! {
    /// DEVICE_SET_IRQS; data or descriptors follow.
    IrqSet { argsz: u32, flags: u32, index: u32, start: u32, count: u32, }
}

message! {
    /// REGION_READ and REGION_WRITE; data follow.
    Region { offset: u64, index: u32, count: u32, }
}

message! {
    /// DMA_READ and DMA_WRITE, by the server; data follow.
    Transfer { address: u64, count: u64, }
}

impl Header {
    /// Bytes of the body; `None` for an invalid length or type.
    pub(super) fn body(&self) -> Option<usize> {
        let size = usize::try_from(self.size).ok()?;
        let body = size.checked_sub(size_of::<Self>())?;
        let known = matches!(self.flags & flag::TYPE, flag::COMMAND | flag::REPLY);
        (size <= MAX_MESSAGE && known).then_some(body)
    }

    /// True for a command, false for a reply.
    pub(super) fn is_command(&self) -> bool {
        self.flags & flag::TYPE == flag::COMMAND
    }
}

/// Splits a body into its fixed part and the rest.
pub(super) fn split<T: FromBytes>(body: &[u8]) -> Option<(T, &[u8])> {
    T::read_from_prefix(body).ok()
}
