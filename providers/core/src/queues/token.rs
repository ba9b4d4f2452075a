//! Token: the number that work requests of rxe and siw carry. It names queue and slot; the
//! program's own number is kept in the slot.
//!
//! The kernel returns the number unchanged. For a failed completion rxe reports only queue pair and
//! status, not even whether it was a send (kernel `rxe_comp.c:make_send_cqe`,
//! `rxe_resp.c:flush_recv_wqe`).

/// Queue pair, queue and slot of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token {
    /// User index of the queue pair, 24 bits.
    pub user_index: u32,
    /// Send or receive queue.
    pub queue: Queue,
    /// Free-running index of the element.
    pub index: u32,
}

/// A queue of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// Send queue.
    Send,
    /// Receive queue; also a shared one, which has its own user index.
    Recv,
}

const QUEUE_BIT: u32 = 32;
const USER_INDEX_SHIFT: u32 = 33;

impl Token {
    /// Packs the token into a `wr_id`.
    #[inline]
    #[must_use]
    pub fn pack(self) -> u64 {
        let queue = u64::from(self.queue == Queue::Recv);
        u64::from(self.user_index) << USER_INDEX_SHIFT | queue << QUEUE_BIT | u64::from(self.index)
    }

    /// Unpacks a `wr_id`. Every number is a token, even if its queue pair does not exist.
    #[inline]
    #[must_use]
    pub fn unpack(wr_id: u64) -> Self {
        let queue = if wr_id >> QUEUE_BIT & 1 == 0 { Queue::Send } else { Queue::Recv };
        Self { user_index: (wr_id >> USER_INDEX_SHIFT) as u32, queue, index: wr_id as u32 }
    }
}

/// True if a free-running index is before `limit`.
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
