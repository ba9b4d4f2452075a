//! Providers, as a user of the library sees them: something to be generic over, and the data
//! path's own traits.
//!
//! Safe posts and polls lean on a provider's word, so giving it is `unsafe`: a poller that answers
//! with another queue's completions would hand out buffers that the device still has.
//!
//! ```compile_fail,E0200
//! #[derive(Debug)]
//! struct Liar(uverbs_mlx5::Cq);
//! impl uverbs_core::provider::CqOps for Liar {
//!     type View<'a> = uverbs_mlx5::Cqe<'a>;
//!     fn next(&mut self) -> Option<uverbs_core::provider::Polled<uverbs_mlx5::Cqe<'_>>> {
//!         self.0.next()
//!     }
//!     fn publish(&mut self) {}
//!     fn settle(&mut self) {}
//!     fn sweep(&mut self, _: u32) {}
//! }
//! ```

use std::fmt::Debug;

use uverbs_core::provider::Provider as Contract;

pub use crate::any::{AnyAh, AnyContext, AnyCq, AnyRq, AnySq, AnySrq, AnyView};
/// Traits of the data path, for the values that
/// [`SendQueue::provider_mut`](crate::SendQueue::provider_mut) and other `provider_mut` methods
/// return. No promise of stability.
pub use uverbs_core::provider::{AhOps, CqInit, CqOps, RecvOps, RqOps, SendOps, SrqOps, View};

/// A family of devices with one hardware interface: something to be generic over.
///
/// [`Any`](crate::Any) is the provider that is whichever the device needs. One of the program's own
/// is opened by [`Device::open_as`](crate::Device::open_as): the example `toy_provider` is one.
pub trait Provider: Contract + Debug {}

impl<P: Contract> Provider for P {}
