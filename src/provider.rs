//! Providers, as far as a user of the library sees them: something to be generic over.

use std::fmt::Debug;

use uverbs_core::provider::Provider as Contract;

/// A family of devices with one hardware interface. Sealed: bound on it, don't implement it.
///
/// [`Any`](crate::Any) is the provider that is whichever the device needs.
pub trait Provider: Contract + Debug {}

impl<P: Contract> Provider for P {}
