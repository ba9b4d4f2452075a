//! Transport interface receive (TIR): the end of the flow tables, which leads to one queue or to
//! several.

use super::headers::Headers;
use super::rss::{FIELDS, Hash, HashContext};
use super::wrong::Wrong;

/// Destination of a TIR's frames (`disp_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    Queue(u32),
    /// Number of an RQ table.
    Table(u32),
}

/// Context of CREATE_TIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TirContext {
    pub(crate) spread: Spread,
    pub(crate) hash: HashContext,
    pub(crate) domain: u32,
    /// True if the TIR receives unicast, or multicast, frames from queues in its transport domain
    /// (`self_lb_block`). A set bit allows them: mlx5e sets it to test its loopback, mlx5_ib for
    /// `MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_*`. Linux modifies a TIR with zeros there to block them
    /// (`core/en_common.c`).
    pub(crate) hears_own_unicast: bool,
    pub(crate) hears_own_multicast: bool,
}

impl TirContext {
    pub(crate) fn check(&self) -> Result<(), Wrong> {
        match self.hash.selector.fields & !FIELDS {
            0 => Ok(()),
            _ => Err(Wrong::Param("no such hash field")),
        }
    }

    /// True if the TIR takes a frame from a queue of `domain`.
    pub(crate) fn hears(&self, domain: Option<u32>, headers: &Headers) -> bool {
        domain != Some(self.domain)
            || if headers.is_unicast() { self.hears_own_unicast } else { self.hears_own_multicast }
    }

    pub(crate) fn hash(&self, headers: &Headers) -> Hash {
        self.hash.of(headers)
    }
}
