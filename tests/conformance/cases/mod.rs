//! Cases that no rule makes: what the handlers decide.

mod ah;
mod busy;
mod cq;
pub(crate) mod cq_change;
pub(crate) mod dc;
mod device;
pub(crate) mod devx;
pub(crate) mod dm;
mod ece;
mod events;
mod flow;
mod map;
mod mcast;
mod modify;
mod mr;
mod mw;
mod qp;
mod rss;
mod srq;
mod steps;
mod write;
pub(crate) mod xrc;

use crate::case::Case;
use crate::rig::Rig;
use crate::want::{Outcome, Want};

/// All of them.
pub(crate) fn all() -> Vec<Case> {
    [
        device::cases(),
        devx::cases(),
        mr::cases(),
        mw::cases(),
        dm::cases(),
        ah::cases(),
        cq::cases(),
        cq_change::cases(),
        qp::cases(),
        modify::cases(),
        ece::cases(),
        srq::cases(),
        mcast::cases(),
        flow::cases(),
        rss::cases(),
        steps::cases(),
        dc::cases(),
        xrc::cases(),
        busy::cases(),
        events::cases(),
        map::cases(),
        write::cases(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A case on an open file with a context.
fn case(
    group: &'static str,
    name: impl Into<String>,
    source: &'static str,
    want: Want,
    run: impl Fn(&Rig) -> Outcome + 'static,
) -> Case {
    Case::new(group, name, source, want, move |target| run(&Rig::new(target)?))
}

/// A case on an open file without a context.
fn bare(
    group: &'static str,
    name: impl Into<String>,
    source: &'static str,
    want: Want,
    run: impl Fn(&Rig) -> Outcome + 'static,
) -> Case {
    Case::new(group, name, source, want, move |target| run(&Rig::bare(target)?))
}
