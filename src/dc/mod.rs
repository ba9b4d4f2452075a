//! Dynamic connections (DC) of ConnectX: initiators that reach any target, and the targets.

pub(crate) mod destination;
pub(crate) mod target;

pub use crate::qp::endpoint::DcEndpoint;
pub use destination::DcDestination;
pub use target::DcTarget;
#[doc(inline)]
pub use uverbs_core::attr::{
    DciChange, DciInitAttr, DciRtrAttr, DciStreams, DctInitAttr, DctRtrAttr,
};
