//! Room in a send queue: whether a work request may be posted.

use std::num::NonZeroU32;

use uverbs_core::queues::work::PostError;

use super::{SendCursor, Sq};

impl Sq {
    /// WQEBBs of the longest work request that the queue was made for.
    pub(crate) fn longest(&self) -> u32 {
        self.per_request.get().max(self.usual)
    }

    #[inline(always)]
    pub(crate) fn longest_list(&self) -> u32 {
        self.longest_list
    }

    pub(crate) fn usual(&self) -> u32 {
        self.usual
    }

    /// How many of `left` a work request of so many WQEBBs uses up: one, unless it is longer than
    /// what the queue was made for.
    #[inline(always)]
    pub(crate) fn charge(&self, units: u32) -> u32 {
        #[cold]
        #[inline(never)]
        fn long(units: u32, per_request: NonZeroU32) -> u32 {
            (units - 1) / per_request + 1
        }
        if self.is_long(units) { long(units, self.per_request) } else { 1 }
    }

    /// Whether a work request of so many WQEBBs is longer than what the queue was made for.
    #[inline(always)]
    pub(crate) fn is_long(&self, units: u32) -> bool {
        units > 1 && units > self.per_request.get()
    }

    /// Takes a work request of so many WQEBBs from what may follow the cursor, if there is room.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, at: &mut SendCursor, units: u32) -> Result<(), PostError> {
        self.take(at, self.charge(units), units)
    }

    /// [`reserve`](Self::reserve) for one of no more than `usual` WQEBBs, which uses up one.
    #[inline(always)]
    pub(super) fn reserve_usual(
        &mut self,
        at: &mut SendCursor,
        units: u32,
    ) -> Result<(), PostError> {
        debug_assert!(units <= self.usual, "{:?}", self.service);
        self.take(at, 1, units)
    }

    #[inline(always)]
    fn take(&mut self, at: &mut SendCursor, charge: u32, units: u32) -> Result<(), PostError> {
        at.left = match at.left.checked_sub(charge) {
            Some(left) => left,
            None => self.make_room(at.pi, at.count, units)?,
        };
        Ok(())
    }

    /// Work requests that may follow one that ends before `end`, by what was looked up; `None` if
    /// that one has no room.
    fn left_behind(&self, count: u32, end: u32) -> Option<u32> {
        let units = self.limit.checked_sub(end.wrapping_sub(self.retired))?;
        let requests = self.count_limit.wrapping_sub(count.wrapping_add(1));
        // A ring with less than `usual` for each, which `size.rs` never makes: each request looks.
        let units = if self.per_request.get() < self.usual { 0 } else { units };
        (requests < self.max_wr).then(|| requests.min(units / self.per_request))
    }

    /// Looks up how far the polling side got, if it must. Gives what is left behind a work request
    /// of `units` at the cursor, whose parts it takes by value: it stays in registers.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(&mut self, pi: u32, count: u32, units: u32) -> Result<u32, PostError> {
        if self.limit == 0 {
            return Err(PostError::State);
        }
        let end = pi.wrapping_add(units);
        if let Some(left) = self.left_behind(count, end) {
            return Ok(left);
        }
        let reached = self.shared.send.reached();
        self.retired = reached.end;
        self.count_limit = reached.posted.wrapping_add(self.max_wr);
        self.left_behind(count, end).ok_or(PostError::Full)
    }
}
