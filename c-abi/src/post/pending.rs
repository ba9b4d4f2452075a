//! Sends of `ibv_wr_*` that wait for their destination or their data.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. Posts are made between
//! `wr_start` and `wr_complete` by one thread, as in `wr.rs`.
#![allow(unsafe_code, reason = "what is posted is the program's promise")]

use uverbs_core::provider::AhOps;
use uverbs_core::queues::work::{self, Data, DcDestination, PostError, SendOp, Wr};

use crate::post::send::{Build, Datagram, Kept, Sends, Side, Target, To};
use crate::queues::ah::Ah;

/// Sets the destination of a send, and posts it if its data is set.
///
/// # Safety
///
/// C's contract.
#[inline(always)]
pub(crate) unsafe fn direct<S: Sends>(side: &mut Side<S>, to: To) {
    // Written here, where its parts are in registers.
    side.build.to = Some(to);
    if side.build.kept.is_some() {
        // SAFETY: by C's contract.
        unsafe { post_kept(side) };
    }
}

/// Posts a send whose data was set before its destination.
///
/// # Safety
///
/// C's contract.
#[cold]
#[inline(never)]
unsafe fn post_kept<S: Sends>(side: &mut Side<S>) {
    match side.build.kept.take() {
        // SAFETY: by C's contract.
        Some(Kept::Pieces(list)) => unsafe { post_waiting(side, Data::List(&list)) },
        // SAFETY: by C's contract.
        Some(Kept::Bytes(bytes)) => unsafe { post_waiting(side, Data::Inline(&bytes)) },
        None => {}
    }
}

impl<S: Sends> Build<S> {
    /// Discards an unfinished send.
    #[inline(always)]
    pub(crate) fn forget(&mut self) {
        (self.waits, self.to) = (None, None);
        if self.kept.is_some() {
            self.drop_kept();
        }
    }

    #[cold]
    #[inline(never)]
    fn drop_kept(&mut self) {
        self.kept = None;
    }

    /// Keeps the data of a send until its destination is set.
    #[cold]
    pub(crate) fn keep(&mut self, data: Data<'_>) {
        self.kept = Some(match data {
            Data::One(one) => Kept::Pieces(vec![one]),
            Data::List(list) => Kept::Pieces(list.to_vec()),
            Data::Inline(bytes) => Kept::Bytes(bytes.to_vec()),
            Data::InlineList(list) => Kept::Bytes(list.concat()),
        });
    }
}

/// Posts the waiting send, unless its destination is missing.
///
/// # Safety
///
/// C's contract.
#[inline(never)]
pub(crate) unsafe fn post_waiting<S: Sends>(side: &mut Side<S>, data: Data<'_>) {
    let Some((wr, op)) = side.build.waits else { return };
    let Some(to) = side.build.to else { return side.build.keep(data) };
    side.build.waits = None;
    // SAFETY: by C's contract; the cursor is of this queue's last `start`.
    side.post(|sq, at| unsafe {
        match to {
            To::Peer => sq.post(at, wr, op, data).map(drop),
            To::Datagram(to) => post_to(sq, at, wr, op, &to, data),
            To::Srq(srqn) => sq.post_to_target(at, wr, op, work::Target::Srq(srqn), data).map(drop),
            To::Target(to) => post_dc(sq, at, wr, op, &to, data),
            To::Wire(checksums) if op == SendOp::Send => {
                sq.post_packet(at, wr, checksums, data).map(drop)
            }
            To::Wire(_) => Err(PostError::BadOperation),
        }
    });
}

/// Posts a UD send.
///
/// # Safety
///
/// C's contract; the cursor is of this queue's last `begin`.
#[inline(always)]
unsafe fn post_to<S: Sends>(
    sq: &mut S,
    at: &mut S::Cursor,
    wr: Wr,
    op: SendOp,
    &Datagram { ah, qpn, qkey }: &Datagram,
    data: Data<'_>,
) -> Result<(), PostError> {
    // SAFETY: C's contract: a handle of the queue pair's domain.
    let ah = S::own_ah(unsafe { Ah::of(ah) }.any()).ok_or(PostError::ForeignAddress)?;
    // SAFETY: by the contract of `post_to`.
    unsafe { sq.post_to(at, wr, op, ah.to(qpn, qkey), data) }.map(drop)
}

/// Posts a send to a target of dynamic connections.
///
/// # Safety
///
/// As for [`post_to`].
unsafe fn post_dc<S: Sends>(
    sq: &mut S,
    at: &mut S::Cursor,
    wr: Wr,
    op: SendOp,
    &Target { ah, dctn, key, stream }: &Target,
    data: Data<'_>,
) -> Result<(), PostError> {
    // SAFETY: C's contract: a handle of the queue pair's domain.
    let ah = S::own_ah(unsafe { Ah::of(ah) }.any()).ok_or(PostError::ForeignAddress)?;
    let to = work::Target::Dc(DcDestination { ah, dctn, key, stream });
    // SAFETY: by the contract of `post_dc`.
    unsafe { sq.post_to_target(at, wr, op, to, data) }.map(drop)
}
