//! Insides, without a promise of stability: doors to the kernel, providers, fault injection.

/// The doors, for programs that bring their own, and wrappers that record or inject faults.
pub use uverbs_core::doors;
#[cfg(feature = "adversary")]
pub use uverbs_core::order::{adversary, doorbell_memory::DoorbellMemory};
#[doc(hidden)]
pub use uverbs_core::sentence_in_debug;
/// The provider for Amazon's adapter.
pub use uverbs_efa as efa;
/// The provider for ConnectX: raw queue parts, raw WQEs, dumps.
pub use uverbs_mlx5 as mlx5;
/// The provider for Omni-Path.
pub use uverbs_rdmavt as rdmavt;
/// The provider for Linux's soft-RoCE.
pub use uverbs_rxe as rxe;
pub use uverbs_siw as siw;
