//! Transports whose work requests each name a destination.
//!
//! # Safety
//!
//! A post passes on its caller's contract.
#![allow(unsafe_code, reason = "declares an unsafe method")]

use std::fmt::Debug;

use uverbs_core::provider::{Provider as Contract, SendOps};
use uverbs_core::queues::work::{Data, PostError, SendOp, Wr};

use super::Transport;
use crate::provider::Provider;

/// A position in a send queue of a provider.
pub(crate) type Cursor<P> = <<P as Contract>::Sq as SendOps>::Cursor;

/// A [`Directed`] transport that has atomics. Sealed, as [`Transport`] is.
pub trait Atomics: Directed {}

/// A reliable transport whose work requests each name a destination. Sealed, as [`Transport`] is.
pub trait Directed: Transport {
    /// Destination of a work request.
    type To<P: Provider>: Debug;

    /// Protection domain of the destination, if it has one.
    #[doc(hidden)]
    fn domain<P: Provider>(to: &Self::To<P>) -> Option<u64>;

    /// Writes one work request.
    ///
    /// # Safety
    ///
    /// The contract of [`SendOps::post`]. The destination's [`domain`](Self::domain), if any, is
    /// the queue pair's.
    #[doc(hidden)]
    unsafe fn post<P: Provider>(
        sq: &mut P::Sq,
        at: &mut Cursor<P>,
        wr: Wr,
        op: SendOp,
        to: &Self::To<P>,
        data: Data<'_>,
    ) -> Result<u32, PostError>;
}
