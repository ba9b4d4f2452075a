//! Memory keys.

use crate::hca::device::Hca;
use uverbs_front::backend::context::MkeyContext;
use uverbs_front::backend::error::{HcaError, Noun};
use uverbs_front::backend::number::Key;

impl Hca {
    /// Creates a key. lkey and rkey are the same number, `index << 8 | variant`.
    ///
    /// # Errors
    /// [`HcaError::Limit`] over `max_mkey`; [`HcaError::BadParam`] for a region shorter than
    /// the key, or remote write or atomic rights without local write.
    pub(crate) fn create_mkey(&mut self, ctx: MkeyContext) -> Result<Key, HcaError> {
        let max = self.common.config.max_mkey;
        self.common.keys.create(ctx, None, max)
    }

    /// Creates a key with the caller's variant byte: with the command interface the driver chooses
    /// it (mkc.mkey_7_0).
    ///
    /// # Errors
    /// As [`Hca::create_mkey`].
    pub(crate) fn create_mkey_variant(
        &mut self,
        ctx: MkeyContext,
        variant: u8,
    ) -> Result<Key, HcaError> {
        let max = self.common.config.max_mkey;
        self.common.keys.create(ctx, Some(variant), max)
    }

    /// Changes a key in place (reregistration); the number stays.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`], and [`HcaError::BadParam`] as [`Hca::create_mkey`].
    pub(crate) fn modify_mkey(&mut self, key: Key, ctx: MkeyContext) -> Result<(), HcaError> {
        self.common.keys.modify(key, ctx)?;
        self.recall();
        Ok(())
    }

    /// Current context of a key, which work requests may have changed.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub(crate) fn query_mkey(&self, key: Key) -> Result<&MkeyContext, HcaError> {
        let missing = HcaError::BadHandle { noun: Noun::Mkey, number: key.0 };
        self.common.keys.key_at(key).map_err(|_| missing)
    }

    /// Number of memory windows that are bound to a key.
    pub(crate) fn windows_on(&self, key: Key) -> usize {
        self.common.keys.windows_on(key)
    }

    /// Destroys a key. Work in flight that uses it ends with an error.
    ///
    /// # Errors
    /// [`HcaError::BadHandle`].
    pub(crate) fn destroy_mkey(&mut self, key: Key) -> Result<(), HcaError> {
        self.common.keys.destroy(key)?;
        self.recall();
        Ok(())
    }
}
