//! Scratch memory of copies that the device makes.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use uverbs_core::error::Error;
use uverbs_mlx5::CopyScratch;

/// Scratch memory shared by the queue pairs of a domain. It lives as long as a queue pair uses it,
/// so it does not keep the domain from being destroyed.
#[derive(Debug, Default)]
pub(crate) struct Scratch(Mutex<Weak<CopyScratch>>);

impl Scratch {
    pub(crate) fn of(
        &self,
        make: impl FnOnce() -> Result<CopyScratch, Error>,
    ) -> Result<Arc<CopyScratch>, Error> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = known.upgrade() {
            return Ok(there);
        }
        let made = Arc::new(make()?);
        *known = Arc::downgrade(&made);
        Ok(made)
    }
}
