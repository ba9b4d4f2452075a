//! Transport interface receive (TIR): the end of the flow tables, which leads to one queue or to
//! several.

use super::headers::Headers;
use super::rss::FIELDS;
use uverbs_front::backend::steering::{TirContext, Wrong};

/// Checks a TIR.
///
/// # Errors
///
/// [`Wrong::Param`] for a field that this device can't hash.
pub(super) fn check(tir: &TirContext) -> Result<(), Wrong> {
    match tir.hash.selector.fields & !FIELDS {
        0 => Ok(()),
        _ => Err(Wrong::Param("no such hash field")),
    }
}

/// True if the TIR takes a frame from a queue of `domain`.
pub(super) fn hears(tir: &TirContext, domain: Option<u32>, headers: &Headers) -> bool {
    domain != Some(tir.domain)
        || if headers.is_unicast() { tir.hears_own_unicast } else { tir.hears_own_multicast }
}
