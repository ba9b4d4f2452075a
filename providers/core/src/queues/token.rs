//! The number that work requests of rxe and siw carry: which slot of which queue it is, in place of
//! the program's own number.
//!
//! The kernel hands the number through untouched. Of a failed completion rxe says nothing else than
//! queue pair and status: not even whether it is of a send (kernel `rxe_comp.c:make_send_cqe`,
//! `rxe_resp.c:flush_recv_wqe`). The program's own number waits in the slot.

/// Queue pair, queue and slot of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// The queue pair's user index: 24 bits.
    pub user_index: u32,
    /// Which of its queues.
    pub queue: Queue,
    /// Free-running index of the element.
    pub index: u32,
}

/// One of a queue pair's two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Of sends.
    Send,
    /// Of receives; also a shared one, which has a user index of its own.
    Recv,
}

const QUEUE_BIT: u32 = 32;
const USER_INDEX_SHIFT: u32 = 33;

impl Token {
    /// As a `wr_id`.
    #[inline]
    #[must_use]
    pub fn pack(self) -> u64 {
        let queue = u64::from(self.queue == Queue::Recv);
        u64::from(self.user_index) << USER_INDEX_SHIFT | queue << QUEUE_BIT | u64::from(self.index)
    }

    /// From a `wr_id`: any number is a token, whether or not there is such a queue pair.
    #[inline]
    #[must_use]
    pub fn unpack(wr_id: u64) -> Self {
        let queue = if wr_id >> QUEUE_BIT & 1 == 0 { Queue::Send } else { Queue::Recv };
        Self { user_index: (wr_id >> USER_INDEX_SHIFT) as u32, queue, index: wr_id as u32 }
    }
}

/// Whether a free-running index is before another.
#[inline(always)]
#[must_use]
pub fn is_before(at: u32, limit: u32) -> bool {
    (at.wrapping_sub(limit) as i32) < 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn tokens_come_back(user_index in 0u32..1 << 24, recv: bool, index: u32) {
            let queue = if recv { Queue::Recv } else { Queue::Send };
            let token = Token { user_index, queue, index };
            prop_assert_eq!(Token::unpack(token.pack()), token);
        }

        #[test]
        fn any_number_is_one_token(wr_id: u64) {
            prop_assert_eq!(Token::unpack(wr_id).pack(), wr_id);
        }
    }
}
