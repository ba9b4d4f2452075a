//! Extended reliable connections (XRC): domains, targets, the peer's shared receive queues.

pub(crate) mod domain;
pub(crate) mod target;

pub use crate::recv::shared::ForXrc;
pub use domain::{RemoteSrq, XrcDomain};
pub use target::XrcTarget;
#[doc(inline)]
pub use uverbs_core::attr::{XrcFile, XrcTargetRtsAttr};
