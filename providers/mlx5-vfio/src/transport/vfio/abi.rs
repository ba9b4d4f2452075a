//! Structures of the kernel's VFIO and iommufd (`linux/vfio.h`, `linux/iommufd.h`).

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Version of the interface (`VFIO_API_VERSION`).
pub(super) const API_VERSION: i32 = 0;
/// `VFIO_TYPE1v2_IOMMU`.
pub(super) const TYPE1V2: u64 = 3;
/// `VFIO_GROUP_FLAGS_VIABLE`.
pub(super) const VIABLE: u32 = 1;
/// `VFIO_DEVICE_FLAGS_RESET`, `VFIO_DEVICE_FLAGS_PCI`.
pub(super) const DEVICE_RESETS: u32 = 1;
pub(super) const DEVICE_IS_PCI: u32 = 1 << 1;
/// `VFIO_REGION_INFO_FLAG_MMAP`.
pub(super) const REGION_MAPS: u32 = 1 << 2;
/// `VFIO_PCI_BAR0_REGION_INDEX`, `VFIO_PCI_CONFIG_REGION_INDEX`, `VFIO_PCI_MSIX_IRQ_INDEX`.
pub(super) const BAR0_INDEX: u32 = 0;
pub(super) const CONFIG_INDEX: u32 = 7;
pub(super) const MSIX_INDEX: u32 = 2;
/// `VFIO_IRQ_SET_DATA_EVENTFD | VFIO_IRQ_SET_ACTION_TRIGGER`.
pub(super) const EVENTFD_TRIGGER: u32 = 1 << 2 | 1 << 5;
/// Readable and writable: `VFIO_DMA_MAP_FLAG_*`.
pub(super) const READ_WRITE: u32 = 0b11;
/// `IOMMU_IOAS_MAP_FIXED_IOVA`, `_WRITEABLE`, `_READABLE`.
pub(super) const FIXED_READ_WRITE: u32 = 0b111;
/// The right to store, of both (`VFIO_DMA_MAP_FLAG_WRITE`, `IOMMU_IOAS_MAP_WRITEABLE`).
pub(super) const WRITE: u32 = 0b10;
/// `VFIO_IOMMU_INFO_CAPS`, and the capability with the usable addresses.
pub(super) const INFO_CAPS: u32 = 1 << 1;
pub(super) const CAP_IOVA_RANGE: u16 = 1;

/// Requests with a number, or without an argument.
pub(super) mod request {
    pub(crate) const GET_API_VERSION: u32 = 0x3b64;
    pub(crate) const CHECK_EXTENSION: u32 = 0x3b65;
    pub(crate) const SET_IOMMU: u32 = 0x3b66;
    pub(crate) const DEVICE_SET_IRQS: u32 = 0x3b6e;
    pub(crate) const DEVICE_RESET: u32 = 0x3b6f;
    pub(crate) const IOMMU_GET_INFO: u32 = 0x3b70;
    pub(crate) const IOMMU_MAP_DMA: u32 = 0x3b71;
    pub(crate) const IOAS_IOVA_RANGES: u32 = 0x3b84;
    pub(crate) const IOAS_MAP: u32 = 0x3b85;
}

macro_rules! structure {
    (
        $(#[$meta:meta])*
        $name:ident[$size:literal] $(= $number:literal, $c:literal)?
        { $($field:ident: $ty:ty,)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[derive(FromBytes, IntoBytes, KnownLayout, Immutable)]
        #[repr(C)]
        pub(super) struct $name { $(pub(super) $field: $ty,)* }

        const _: () = assert!(size_of::<$name>() == $size);

        $(impl Plain for $name {
            const NUMBER: u32 = $number;
            const NAME: &'static str = $c;
        })?
    };
}

/// Argument of a request that contains no address.
pub(super) trait Plain: FromBytes + IntoBytes {
    const NUMBER: u32;
    const NAME: &'static str;
}

structure! {
    /// `vfio_group_status`.
    GroupStatus[8] = 0x3b67, "VFIO_GROUP_GET_STATUS" { argsz: u32, flags: u32, }
}

structure! {
    /// Descriptor of the container.
    Container[4] = 0x3b68, "VFIO_GROUP_SET_CONTAINER" { fd: i32, }
}

structure! {
    /// Name of a device in its group, ended by a zero.
    DeviceName[64] = 0x3b6a, "VFIO_GROUP_GET_DEVICE_FD" { low: [u8; 32], high: [u8; 32], }
}

structure! {
    /// `vfio_device_info`, up to `num_irqs`.
    DeviceInfo[16] = 0x3b6b, "VFIO_DEVICE_GET_INFO" {
        argsz: u32, flags: u32, regions: u32, irqs: u32,
    }
}

structure! {
    /// `vfio_region_info`.
    RegionInfo[32] = 0x3b6c, "VFIO_DEVICE_GET_REGION_INFO" {
        argsz: u32, flags: u32, index: u32, cap_offset: u32, size: u64, offset: u64,
    }
}

structure! {
    /// `vfio_irq_info`.
    IrqInfo[16] = 0x3b6d, "VFIO_DEVICE_GET_IRQ_INFO" {
        argsz: u32, flags: u32, index: u32, count: u32,
    }
}

structure! {
    /// `vfio_irq_set`; descriptors follow.
    IrqSet[20] { argsz: u32, flags: u32, index: u32, start: u32, count: u32, }
}

structure! {
    /// `vfio_iommu_type1_info`; capabilities follow.
    Type1Info[24] { argsz: u32, flags: u32, page_sizes: u64, cap_offset: u32, pad: u32, }
}

structure! {
    /// `vfio_iommu_type1_dma_map`.
    Type1Map[32] { argsz: u32, flags: u32, vaddr: u64, iova: u64, size: u64, }
}

structure! {
    /// `vfio_iommu_type1_dma_unmap`.
    Type1Unmap[24] = 0x3b72, "VFIO_IOMMU_UNMAP_DMA" {
        argsz: u32, flags: u32, iova: u64, size: u64,
    }
}

structure! {
    /// `vfio_device_bind_iommufd`.
    BindIommufd[16] = 0x3b76, "VFIO_DEVICE_BIND_IOMMUFD" {
        argsz: u32, flags: u32, iommufd: i32, out_devid: u32,
    }
}

structure! {
    /// `vfio_device_attach_iommufd_pt`, up to `pt_id`.
    AttachIoas[12] = 0x3b77, "VFIO_DEVICE_ATTACH_IOMMUFD_PT" {
        argsz: u32, flags: u32, ioas: u32,
    }
}

structure! {
    /// `iommu_ioas_alloc`.
    IoasAlloc[12] = 0x3b81, "IOMMU_IOAS_ALLOC" { size: u32, flags: u32, out_ioas: u32, }
}

structure! {
    /// `iommu_ioas_iova_ranges`.
    IoasRanges[32] {
        size: u32, ioas: u32, count: u32, reserved: u32, ranges: u64, out_alignment: u64,
    }
}

structure! {
    /// `iommu_ioas_map`.
    IoasMap[40] {
        size: u32, flags: u32, ioas: u32, reserved: u32, vaddr: u64, length: u64, iova: u64,
    }
}

structure! {
    /// `iommu_ioas_unmap`.
    IoasUnmap[24] = 0x3b86, "IOMMU_IOAS_UNMAP" {
        size: u32, ioas: u32, iova: u64, length: u64,
    }
}

structure! {
    /// `vfio_iova_range`, `iommu_iova_range`: first and last address.
    IovaRange[16] { start: u64, last: u64, }
}
