//! Room in a send queue: the check whether a work request fits.

use uverbs_core::queues::slot::RingPosition;
use uverbs_core::queues::work::PostError;

use super::SendCursor;
use super::Sq;
use super::stretch::STRETCH;

impl Sq {
    /// WQEBBs of the longest work request that the queue was created for.
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

    /// True if a work request of `units` WQEBBs is longer than the queue was created for.
    #[inline(always)]
    pub(crate) fn is_long(&self, units: u32) -> bool {
        units > 1 && units > self.per_request.get()
    }

    /// Makes the next post check for room, so that it takes the slow path.
    pub(crate) fn look_first(&mut self) {
        self.stop = self.published.posted();
    }

    /// Finds room for a work request of `units` WQEBBs at the cursor.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, at: &mut SendCursor, units: u32) -> Result<(), PostError> {
        if self.is_long(units) {
            at.stop = self.make_long_room(at.pi(), (at.count(), at.stop), units)?;
            at.position = at.position.ready_for(units);
            return Ok(());
        }
        self.take(at, units)
    }

    /// [`reserve`](Self::reserve) for at most `usual` WQEBBs.
    #[inline(always)]
    pub(super) fn reserve_usual(
        &mut self,
        at: &mut SendCursor,
        units: u32,
    ) -> Result<(), PostError> {
        debug_assert!(units <= self.usual, "{:?}", self.service);
        self.take(at, units)
    }

    #[inline(always)]
    fn take(&mut self, at: &mut SendCursor, units: u32) -> Result<(), PostError> {
        if !at.has_room() {
            at.stop = self.make_room(at.pi(), at.count(), units)?;
            at.position = at.position.ready_for(units);
        }
        Ok(())
    }

    /// Finds room for a work request that is longer than the queue was created for, and so counts
    /// as several. Returns the count up to which posts after it need no new check.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_long_room(
        &mut self,
        pi: u32,
        (count, stop): (u32, u32),
        units: u32,
    ) -> Result<u32, PostError> {
        let more = (units - 1) / self.per_request;
        if stop.wrapping_sub(count) > more {
            return Ok(stop.wrapping_sub(more));
        }
        self.make_room(pi, count, units)
    }

    /// Count up to which posts need no new check after a WQE of `units`; `None` if the WQE does not
    /// fit. The producer index does not wrap before that count, because a cursor has index and
    /// count in one word.
    fn stop_behind(&self, pi: u32, count: u32, units: u32) -> Option<u32> {
        let (end, wraps) = pi.overflowing_add(units);
        let room = self.limit.checked_sub(end.wrapping_sub(self.retired))?;
        let count = count.wrapping_add(1);
        let requests = self.count_limit.wrapping_sub(count);
        // Later posts must check again in two cases: if the index wraps behind this WQE, which may
        // turn out shorter and leave the wrap to the next one; and in a ring with fewer than
        // `usual` WQEBBs for each work request, which `size.rs` never creates.
        let each = wraps || self.per_request.get() < self.usual;
        let units = if each { 0 } else { room.min(u32::MAX - end) };
        let more = requests.min(units / self.per_request);
        (requests < self.max_wr).then_some(count.wrapping_add(more))
    }

    /// Checks for room, and reads the consumer index if necessary. Returns the count up to which
    /// posts need no new check after a WQE of `units`. Takes the cursor's parts by value, so that
    /// it stays in registers.
    #[cold]
    #[inline(never)]
    pub(crate) fn make_room(&mut self, pi: u32, count: u32, units: u32) -> Result<u32, PostError> {
        if self.limit == 0 {
            return Err(PostError::State);
        }
        if let Some(stop) = self.stop_behind(pi, count, units) {
            return Ok(stop);
        }
        self.look_up();
        self.stop_behind(pi, count, units).ok_or(PostError::Full)
    }

    /// Count up to which posts from this position on need no new check. Equal to the position's
    /// count if there is no room, or if the producer index may wrap, which would count as a work
    /// request.
    #[cold]
    #[inline(never)]
    pub(crate) fn look(&mut self, at: RingPosition) -> u32 {
        let (pi, count, longest) = (at.end(), at.posted(), self.longest());
        if pi.checked_add(longest).is_none() {
            return count;
        }
        self.make_room(pi, count, longest).unwrap_or(count)
    }

    /// Number of work requests of `UNITS` WQEBBs that fit a [`Stretch`] at this position. Reads the
    /// consumer index if the known room is 0.
    ///
    /// [`Stretch`]: super::stretch::Stretch
    #[cold]
    #[inline(never)]
    pub(super) fn stretch<const UNITS: u32>(&mut self, at: RingPosition) -> u32 {
        let mut known = self.known_room::<UNITS>(at);
        if known == 0 {
            self.look_up();
            known = self.known_room::<UNITS>(at);
        }
        let end = (at.end() | self.slots.mask().min(STRETCH - 1)).wrapping_add(1);
        // 0 in the last stretch before the index wraps: a wrap would count as a work request.
        known.min(end.saturating_sub(at.end()) / UNITS)
    }

    /// Number of work requests that are known to fit at this position.
    #[inline(always)]
    fn known_room<const UNITS: u32>(&self, at: RingPosition) -> u32 {
        let requests = self.count_limit.wrapping_sub(at.posted());
        // A wrong device may complete WQEs that were not rung. Then the consumer index is ahead,
        // and there is no room.
        requests.min(self.limit.saturating_sub(at.end().wrapping_sub(self.retired)) / UNITS)
    }

    /// Reads the consumer index.
    #[inline(always)]
    fn look_up(&mut self) {
        let reached = self.shared.send.reached();
        self.retired = reached.end();
        self.count_limit = reached.posted().wrapping_add(self.max_wr);
    }
}
