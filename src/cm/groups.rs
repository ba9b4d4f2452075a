//! Multicast groups that an id has joined.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uverbs_core::commands::cm::Ucma;
use uverbs_core::error::Error;

/// Channel of an id, for leaving its groups; `None` once the id is destroyed. The kernel leaves the
/// groups of a destroyed id, and may reuse their membership numbers.
#[derive(Clone, Debug)]
pub(super) struct Groups(Arc<Mutex<Option<Ucma>>>);

impl Groups {
    pub(super) fn of(channel: &Ucma) -> Self {
        Self(Arc::new(Mutex::new(Some(channel.clone()))))
    }

    /// Moves the id to another channel. Leaving a group waits until this is done.
    ///
    /// # Errors
    ///
    /// The error of `migrate`.
    pub(super) fn migrate(
        &self,
        to: &Ucma,
        migrate: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut channel = self.lock();
        migrate()?;
        *channel = Some(to.clone());
        Ok(())
    }

    /// Destroys the id. Leaving a group waits until this is done.
    pub(super) fn end(&self, destroy: impl FnOnce()) {
        let mut channel = self.lock();
        destroy();
        *channel = None;
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Ucma>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
