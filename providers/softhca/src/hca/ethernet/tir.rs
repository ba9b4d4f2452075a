//! Transport interface receive (TIR): the end of the flow tables, which leads to one queue or to
//! many.

use super::headers::Headers;
use super::rss::{FIELDS, Hash, HashContext};
use super::wrong::Wrong;

/// Where a TIR's frames go (`disp_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spread {
    Queue(u32),
    /// A table of queues.
    Table(u32),
}

/// CREATE_TIR.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TirContext {
    pub(crate) spread: Spread,
    pub(crate) hash: HashContext,
    pub(crate) domain: u32,
    /// Whether it gets frames, to one station or to many, from the queues of its own domain
    /// (`self_lb_block`: whoever wants these sets the bit; mlx5e does to test its loopback, mlx5_ib
    /// for `MLX5_QP_FLAG_TIR_ALLOW_SELF_LB_*`, and a TIR that is modified with zeros there is one
    /// that doesn't hear itself, Linux `core/en_common.c`).
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

    /// Whether it takes a frame from a queue of `domain`.
    pub(crate) fn hears(&self, domain: Option<u32>, headers: &Headers) -> bool {
        domain != Some(self.domain)
            || if headers.is_unicast() { self.hears_own_unicast } else { self.hears_own_multicast }
    }

    pub(crate) fn hash(&self, headers: &Headers) -> Hash {
        self.hash.of(headers)
    }
}
