//! Post functions of a queue pair, by opcode and shape of a list's first work request.

use std::ffi::c_int;

use crate::queues::qp::Qp;
use crate::sys::{IBV_SEND_INLINE, IBV_WR_ATOMIC_FETCH_AND_ADD, ibv_send_wr};

/// Opcodes with a function: `IBV_WR_*` below this. The table has each opcode twice, for SGEs and
/// for inline data. The number equals the inline flag, so `opcode | flag` is the index.
const OPCODES: u32 = 8;
const _: () = assert!(IBV_WR_ATOMIC_FETCH_AND_ADD < OPCODES && IBV_SEND_INLINE == OPCODES);

pub(crate) type Post =
    unsafe extern "C" fn(&Qp, *const ibv_send_wr, *mut *const ibv_send_wr) -> c_int;

/// Post functions of a queue pair.
#[derive(Debug)]
pub(crate) struct Posts {
    /// Indexed by the first work request's opcode and inline flag.
    by_kind: [Post; 2 * OPCODES as usize],
    slow: Post,
}

impl Posts {
    pub(crate) const fn all_of(slow: Post) -> Self {
        Self { by_kind: [slow; 2 * OPCODES as usize], slow }
    }

    /// Sets the functions of an opcode, for SGEs and for inline data.
    pub(crate) const fn with(mut self, opcode: u32, pieces: Post, inline: Option<Post>) -> Self {
        self.by_kind[opcode as usize] = pieces;
        if let Some(inline) = inline {
            self.by_kind[(opcode | IBV_SEND_INLINE) as usize] = inline;
        }
        self
    }

    /// Function for a list that begins with `first`; `None` for an opcode outside the table. Not a
    /// choice of two addresses, so that a post needs one load.
    #[inline(always)]
    pub(crate) fn of(&self, first: &ibv_send_wr) -> Option<Post> {
        let in_table = first.opcode < OPCODES;
        let kind = first.opcode | first.send_flags & IBV_SEND_INLINE;
        if in_table { self.by_kind.get(kind as usize).copied() } else { None }
    }

    /// The function for any list.
    pub(crate) fn slow(&self) -> Post {
        self.slow
    }
}
