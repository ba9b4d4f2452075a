//! Completions of tag-matching queues: messages, and changes of the tag list (rdma-core
//! `cq.c:handle_tag_matching`).
//!
//! # Safety
//!
//! A CQE names the place of its tag, or the receive of its message. The tables check that one is
//! outstanding there before they return its buffer.
#![allow(unsafe_code, reason = "takes places and slots that an entry names")]

use uverbs_core::memory::frame::Frame;
use uverbs_core::provider::Polled;
use uverbs_core::queues::slots::Taken;
use uverbs_core::queues::srq::SrqShared;
use uverbs_core::queues::tag_table::TagTable;
use uverbs_mlx5_prm::cqe::CqeOpcode;
use uverbs_mlx5_prm::tag::{MLX5_CQE_APP_TAG_MATCHING, TmAppOp};

use super::Cq;
use crate::cqe::{Cqe, OwnedCqe};

/// A CQE that matches no outstanding tag, receive or change. It was skipped and counted.
pub(super) struct Stray;

/// Result of a CQE.
struct Told {
    taken: Taken,
    wants_sync: bool,
}

impl From<Taken> for Told {
    fn from(taken: Taken) -> Self {
        Self { taken, wants_sync: false }
    }
}

/// True for a tag-matching CQE. CQEs of failures have other fields there.
pub(super) fn is_of_tags(entry: OwnedCqe, opcode: CqeOpcode) -> bool {
    let failed = opcode == CqeOpcode::REQ_ERR || opcode == CqeOpcode::RESP_ERR;
    !failed && entry.app() == MLX5_CQE_APP_TAG_MATCHING
}

/// True for a tag-matching CQE that completes a receive, because its message matched no tag.
pub(super) fn is_of_receive(entry: OwnedCqe) -> bool {
    matches!(entry.app_op(), TmAppOp::UNEXPECTED | TmAppOp::NO_TAG)
}

impl Cq {
    /// Takes the next CQE if it is a tag-matching one; otherwise `None`.
    ///
    /// # Safety
    ///
    /// Software owns the entry, and the queue that it names is in the second table.
    #[inline(never)]
    pub(super) unsafe fn next_of_tags<'a>(
        &mut self,
        entry: OwnedCqe,
        opcode: CqeOpcode,
    ) -> Option<Result<Polled<Cqe<'a>>, Stray>> {
        if !is_of_tags(entry, opcode) {
            return None;
        }
        let (tags, srq) = self.tags_of(entry)?;
        // SAFETY: contract of this function; this is the only poller.
        let told = unsafe { take(tags, srq, entry) };
        self.step();
        let Some(Told { taken: Taken { wr_id, mut frame, .. }, wants_sync }) = told else {
            self.strays = self.strays.saturating_add(1);
            return Some(Err(Stray));
        };
        if entry.app_op() != TmAppOp::REMOVE
            && let Some(frame) = &mut frame
        {
            frame.arrived(entry.byte_count());
        }
        // SAFETY: as in `succeed`.
        let view = unsafe { Cqe::of_tags(entry, wants_sync) };
        Some(Ok(Polled { view, wr_id, frame }))
    }

    /// If a failed send is a change that was to add a tag, returns the buffer of that tag. The list
    /// accepts no further changes, because the queue pair of the changes failed.
    ///
    /// # Safety
    ///
    /// Software owns the entry, a failed send of the last queue pair, and its WQEBB is not free
    /// yet.
    #[cold]
    pub(super) unsafe fn refused_change(&self, entry: OwnedCqe) -> Option<Frame> {
        let tags = self.special.as_ref()?.tags_commanded_by(self.last)?;
        let at = entry.wqe_counter().into();
        if !tags.changes().is_under_way(at) {
            return None;
        }
        tags.commands()?.send.fail();
        // SAFETY: contract of this function; this is the only poller.
        unsafe { tags.refused(at) }?.frame
    }
}

/// # Safety
///
/// Software owns the entry, which belongs to this queue; the caller is the only poller.
#[inline(never)]
unsafe fn take(tags: &TagTable, srq: &SrqShared, entry: OwnedCqe) -> Option<Told> {
    let place = u32::from(entry.app_info());
    match entry.app_op() {
        TmAppOp::CONSUMED | TmAppOp::CONSUMED_SW_RDNV => {
            let wr_id = tags.expected(place)?;
            Some(Taken { wr_id, position: place.into(), frame: None }.into())
        }
        TmAppOp::CONSUMED_MSG
        | TmAppOp::CONSUMED_MSG_SW_RDNV
        | TmAppOp::EXPECTED
        | TmAppOp::MSG_COMPLETION_CANCELED => {
            // SAFETY: the device is done with the place, as the entry says.
            Some(unsafe { tags.take(place) }?.into())
        }
        // SAFETY: contract of `take`.
        TmAppOp::APPEND | TmAppOp::REMOVE | TmAppOp::NOOP => unsafe { change(tags, entry) },
        TmAppOp::UNEXPECTED => {
            // SAFETY: the device completed the receive, as the entry says.
            let taken = unsafe { srq.take(entry.wqe_counter().into()) }?;
            Some(Told { taken, wants_sync: tags.unexpected() })
        }
        // SAFETY: the device completed the receive, as the entry says.
        TmAppOp::NO_TAG => Some(unsafe { srq.take(entry.wqe_counter().into()) }?.into()),
        _ => None,
    }
}

/// Takes a completed change of the list. Changes complete in order.
///
/// # Safety
///
/// As for [`take`].
unsafe fn change(tags: &TagTable, entry: OwnedCqe) -> Option<Told> {
    let commands = tags.commands()?;
    // SAFETY: contract of `change`.
    let changed = unsafe { tags.changes().next() }?;
    // SAFETY: the device completed it, as the entry says.
    let Taken { wr_id, position, .. } = unsafe { commands.send.take_ahead(changed.at as u16) }?;
    // SAFETY: it was just taken.
    unsafe { commands.send.retire(position) };
    let mut told = Told::from(Taken { wr_id, position, frame: None });
    let Some(place) = changed.place else { return Some(told) };
    // Checked before the place becomes free and gets another tag.
    told.wants_sync = !tags.is_in_step(place, entry.tag_count());
    if entry.app_op() == TmAppOp::REMOVE && entry.tag_was_changed() {
        // SAFETY: the device removed the tag, as the entry says.
        told.taken.frame = unsafe { tags.removed(place) }.and_then(|taken| taken.frame);
    } else {
        // SAFETY: the device completed it, and `next` returns each change once.
        unsafe { tags.changed(place) };
    }
    Some(told)
}
