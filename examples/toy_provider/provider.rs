//! The provider: its name, and the types of its parts. Only context and send queue are new.
//!
//! # Safety
//!
//! Safe posts rely on a provider's answers, so its traits are unsafe. This provider hands
//! everything to the provider below and returns its answers, or refuses: most of the optional
//! methods.
#![allow(unsafe_code, reason = "promises that the parts belong together")]

use std::sync::Arc;

use uverbs::{Error, Mlx5};
use uverbs_core::objects::context::ContextCore;
use uverbs_core::provider::Provider;

use crate::context::CountingContext;
use crate::send_queue::CountingSq;

/// It has no values: it is named as a type.
#[derive(Debug)]
pub(crate) enum Counting {}

// SAFETY: the parts of a ConnectX's provider, which belong together; ours hand on or refuse.
unsafe impl Provider for Counting {
    type Context = CountingContext;
    type Cq = <Mlx5 as Provider>::Cq;
    type Sq = CountingSq;
    type Rq = <Mlx5 as Provider>::Rq;
    type Srq = <Mlx5 as Provider>::Srq;
    type Ah = <Mlx5 as Provider>::Ah;

    const NAME: &'static str = "counting";

    fn open(core: Arc<ContextCore>) -> Result<CountingContext, Error> {
        Ok(CountingContext { below: Mlx5::open(core)? })
    }
}
