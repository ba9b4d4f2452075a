//! Protection domains and registered memory: frames, exposed memory, regions, windows, keys.

pub(crate) mod device_memory;
pub(crate) mod dmabuf;
pub(crate) mod indirect;
pub(crate) mod mr;
pub(crate) mod null_region;
pub(crate) mod pd;
pub(crate) mod registration_cache;
pub(crate) mod window;

pub use crate::device::import::ImportedRegion;
pub use crate::device::paging::Prefetch;
pub use device_memory::DeviceMemory;
pub use mr::Reregistration;
pub use null_region::NullRegion;
pub use registration_cache::{CacheCounts, RegistrationCache};
#[doc(inline)]
pub use uverbs_core::memory::bytes::RegisteredBytes;
#[doc(inline)]
pub use uverbs_core::memory::exposed::ExposedPart;
#[doc(inline)]
pub use uverbs_core::memory::indirect::{ExposedBlocks, IndirectKey, IndirectPart};
#[doc(inline)]
pub use uverbs_core::memory::shared::SharedFrame;
#[doc(inline)]
pub use uverbs_core::memory::window::MemoryWindow;
#[doc(inline)]
pub use uverbs_core::objects::dm_operation::{DmOp, DmOperation};
#[doc(inline)]
pub use uverbs_core::queues::layout::{Block, KeyLayout, KeyParts};
#[doc(inline)]
pub use uverbs_core::queues::work::WindowKind;
