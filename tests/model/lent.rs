//! Shared frames: one handle of each in hand, and others with work requests.

use uverbs::Frame;
use uverbs::memory::SharedFrame;

use crate::choices::Choices;
use crate::work::Queue;

struct Lent {
    side: usize,
    address: usize,
    handle: SharedFrame,
    /// Handles with work requests that are outstanding, or end without a completion.
    posted: u32,
    /// Queues that may have dropped such a handle: with a batch that was not rung, or when their
    /// queue pair was dropped.
    unsure: Vec<Queue>,
    /// A queue pair that was forgotten may keep a handle for good.
    is_lost: bool,
}

impl Lent {
    fn may_be_last(&self) -> bool {
        self.posted == 0 || !self.unsure.is_empty()
    }
}

/// All of a world.
#[derive(Default)]
pub(crate) struct LentFrames {
    all: Vec<Lent>,
}

impl LentFrames {
    pub(crate) fn share(&mut self, side: usize, frame: Frame) {
        let address = frame.as_ptr() as usize;
        let handle = frame.share();
        self.all.push(Lent { side, address, handle, posted: 0, unsure: vec![], is_lost: false });
    }

    /// Handle to be posted, with the frame's address.
    pub(crate) fn lend(
        &mut self,
        choices: &mut Choices,
        side: usize,
    ) -> Option<(usize, SharedFrame)> {
        let mine: Vec<_> = (0..self.all.len()).filter(|&at| self.all[at].side == side).collect();
        let lent = &mut self.all[mine[choices.index(mine.len())?]];
        lent.posted += 1;
        Some((lent.address, lent.handle.clone()))
    }

    /// A posted handle is gone; or may be, now or later, with the queue that it was posted to.
    pub(crate) fn returned(&mut self, address: usize, unsure: Option<Queue>) {
        let lent = self.all.iter_mut().find(|lent| lent.address == address).expect("it is lent");
        match unsure {
            None => lent.posted -= 1,
            Some(queue) => lent.unsure.push(queue),
        }
    }

    /// A queue is the device's for good, with all its handles.
    pub(crate) fn forget(&mut self, queue: Queue) {
        for lent in &mut self.all {
            lent.is_lost |= lent.unsure.contains(&queue);
        }
    }

    /// Tries to get a frame back, which works if the handle is the only one.
    pub(crate) fn unshare(&mut self, choices: &mut Choices) -> Option<(usize, Frame)> {
        let lent = self.all.swap_remove(choices.index(self.all.len())?);
        let may_be_last = lent.may_be_last();
        match lent.handle.try_into_frame() {
            Ok(frame) => {
                assert!(may_be_last, "writable while it is posted");
                Some((lent.side, frame))
            }
            Err(handle) => {
                assert!(lent.posted > 0, "all other handles are gone");
                self.all.push(Lent { handle, ..lent });
                None
            }
        }
    }

    /// Address and bytes of each.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.all.iter().map(|lent| (lent.address, &*lent.handle))
    }

    /// Drops all handles. Gives the addresses, and if the frame may stay with a forgotten queue
    /// pair.
    pub(crate) fn end(&mut self) -> Vec<(usize, bool)> {
        let all = std::mem::take(&mut self.all).into_iter();
        all.map(|lent| {
            assert!(lent.may_be_last(), "no queue has a handle");
            (lent.address, lent.is_lost)
        })
        .collect()
    }
}
