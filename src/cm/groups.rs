//! Multicast groups that an id has joined.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uverbs_core::commands::cm::Ucma;
use uverbs_core::error::Error;

/// The channel of an id that has joined groups, for leaving them; `None` once the id is gone. The
/// kernel then left them, and may have given a membership's number to another.
#[derive(Clone, Debug)]
pub(super) struct Groups(Arc<Mutex<Option<Ucma>>>);

impl Groups {
    pub(super) fn of(channel: &Ucma) -> Self {
        Self(Arc::new(Mutex::new(Some(channel.clone()))))
    }

    /// Moves the id to another channel, while no group can be left.
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

    /// Ends the id, while no group is left.
    pub(super) fn end(&self, destroy: impl FnOnce()) {
        let mut channel = self.lock();
        destroy();
        *channel = None;
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Option<Ucma>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
