//! Messages of the vfio-user protocol (QEMU `docs/interop/vfio-user.rst`), as a client sends them.
//! Numbers are in host byte order, since both ends are on one machine.

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
    /// Commands of `uverbs softhca serve`, without replies: the server asks the client to tell of
    /// the next store into its doorbell pages, and the client asks the server to look at them.
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

/// Client's capabilities in VERSION: it maps doorbell pages.
pub(super) const CAPABILITIES: &[u8] = b"{\"capabilities\":{\"uverbs_doorbells\":true}}\0";

/// Maximum bytes of a transfer by the server (the default of `max_data_xfer_size`).
pub(super) const MAX_TRANSFER: u64 = 1 << 20;
/// `flags` of a mapping: readable and writable.
pub(super) const DMA_READ_WRITE: u32 = 0b11;
/// `flags` of a mapping: readable.
pub(super) const DMA_READ_ONLY: u32 = 0b01;
/// `VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER`.
pub(super) const EVENTFD_TRIGGER: u32 = 1 << 2 | 1 << 5;
/// `VFIO_DEVICE_FLAGS_RESET`, `VFIO_DEVICE_FLAGS_PCI`.
pub(super) const DEVICE_RESETS: u32 = 1;
pub(super) const DEVICE_IS_PCI: u32 = 1 << 1;

/// `VFIO_REGION_INFO_FLAG_MMAP`, `VFIO_REGION_INFO_FLAG_CAPS`.
pub(super) const REGION_MAPS: u32 = 1 << 2;
pub(super) const REGION_HAS_CAPS: u32 = 1 << 3;
/// `VFIO_REGION_INFO_CAP_SPARSE_MMAP`.
pub(super) const CAP_SPARSE_MMAP: u16 = 1;

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

impl Header {
    /// Header of a message with this body.
    pub(super) fn new(id: u16, command: u16, flags: u32, body: &[u8]) -> Self {
        Self { id, command, size: (size_of::<Self>() + body.len()) as u32, flags, error: 0 }
    }
}

message! {
    /// VERSION; JSON text follows, which may be absent.
    Version { major: u16, minor: u16, }
}

message! {
    /// DMA_MAP, with the memory's file; without one the server asks for transfers.
    DmaMap { argsz: u32, flags: u32, offset: u64, address: u64, size: u64, }
}

message! {
    /// DMA_UNMAP.
    DmaUnmap { argsz: u32, flags: u32, address: u64, size: u64, }
}

message! {
    /// DEVICE_GET_INFO.
    DeviceInfo { argsz: u32, flags: u32, regions: u32, irqs: u32, }
}

message! {
    /// DEVICE_GET_REGION_INFO.
    RegionInfo { argsz: u32, flags: u32, index: u32, cap_offset: u32, size: u64, offset: u64, }
}

message! {
    /// Head of a region's capability; `next` is an offset in the message.
    CapHeader { id: u16, version: u16, next: u32, }
}

message! {
    /// Areas that can be mapped; the areas follow.
    SparseMmap { id: u16, version: u16, next: u32, count: u32, reserved: u32, }
}

message! {
    /// An area.
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
    /// DEVICE_SET_IRQS; the eventfds come with the message.
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
