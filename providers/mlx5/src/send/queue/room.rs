//! Room in a send queue: whether a work request may be posted.

use uverbs_core::queues::slot::Reach;
use uverbs_core::queues::work::PostError;

use super::SendCursor;
use super::Sq;
use super::stretch::STRETCH;

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

    /// Whether a work request of so many WQEBBs is longer than what the queue was made for.
    #[inline(always)]
    pub(crate) fn is_long(&self, units: u32) -> bool {
        units > 1 && units > self.per_request.get()
    }

    /// Has the next post look at what is outstanding, so that it isn't posted the short way.
    pub(crate) fn look_first(&mut self) {
        self.stop = self.count;
    }

    /// Finds room for a work request of so many WQEBBs at the cursor.
    #[inline(always)]
    pub(crate) fn reserve(&mut self, at: &mut SendCursor, units: u32) -> Result<(), PostError> {
        if self.is_long(units) {
            at.stop = self.make_long_room(at.pi, (at.count, at.stop), units)?;
            return Ok(());
        }
        self.take(at, units)
    }

    /// [`reserve`](Self::reserve) for one of no more than `usual` WQEBBs.
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
        if at.count == at.stop {
            at.stop = self.make_room(at.pi, at.count, units)?;
        }
        Ok(())
    }

    /// Finds room for a work request that is longer than what the queue was made for, and so stands
    /// for several. Gives where `count` must stop behind it.
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

    /// Where `count` must stop behind a work request of `units` at the cursor, by what was looked
    /// up; `None` if that one has no room. No producer index wraps before that: a [`Run`] counts
    /// WQEBBs and work requests in one word.
    ///
    /// [`Run`]: super::Run
    fn stop_behind(&self, pi: u32, count: u32, units: u32) -> Option<u32> {
        let (end, wraps) = pi.overflowing_add(units);
        let room = self.limit.checked_sub(end.wrapping_sub(self.retired))?;
        let count = count.wrapping_add(1);
        let requests = self.count_limit.wrapping_sub(count);
        // No other one has room without a look: where this one wraps, since it may turn out to be
        // shorter and leave that to the next; and in a ring with less than `usual` for each, which
        // `size.rs` never makes.
        let each = wraps || self.per_request.get() < self.usual;
        let units = if each { 0 } else { room.min(u32::MAX - end) };
        let more = requests.min(units / self.per_request);
        (requests < self.max_wr).then_some(count.wrapping_add(more))
    }

    /// Looks up how far the polling side got, if it must. Gives where `count` must stop behind a
    /// work request of `units` at the cursor, whose parts it takes by value: it stays in registers.
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

    /// Where `count` must stop behind this position, for a run: right there if nothing has room,
    /// and where the producer index may wrap, which would count as a work request.
    #[cold]
    #[inline(never)]
    pub(super) fn look(&mut self, at: Reach) -> u32 {
        let (pi, count, longest) = (at.end(), at.posted(), self.longest());
        if pi.checked_add(longest).is_none() {
            return count;
        }
        self.make_room(pi, count, longest).unwrap_or(count)
    }

    /// How many work requests of `UNITS` WQEBBs there is a [`Stretch`] for behind this position.
    /// Looks up how far the polling side got if none is known to have room.
    ///
    /// [`Stretch`]: super::stretch::Stretch
    #[cold]
    #[inline(never)]
    pub(super) fn stretch<const UNITS: u32>(&mut self, at: Reach) -> u32 {
        let mut known = self.known_room::<UNITS>(at);
        if known == 0 {
            self.look_up();
            known = self.known_room::<UNITS>(at);
        }
        let end = (at.end() | self.slots.mask().min(STRETCH - 1)).wrapping_add(1);
        // The last piece before the index wraps has none: a wrap would count as a work request.
        known.min(end.saturating_sub(at.end()) / UNITS)
    }

    /// How many are known to have room behind this position.
    #[inline(always)]
    fn known_room<const UNITS: u32>(&self, at: Reach) -> u32 {
        let requests = self.count_limit.wrapping_sub(at.posted());
        // A device may complete what was written and not rung. Then both are ahead, and nothing is
        // free.
        requests.min(self.limit.saturating_sub(at.end().wrapping_sub(self.retired)) / UNITS)
    }

    /// Looks up how far the polling side got.
    #[inline(always)]
    fn look_up(&mut self) {
        let reached = self.shared.send.reached();
        self.retired = reached.end();
        self.count_limit = reached.posted().wrapping_add(self.max_wr);
    }
}
