//! Work requests that are asked what they say, and posted alone or in a run.
#![allow(unsafe_code, reason = "posts")]

use uverbs_core::provider::{AhOps, Request, RunOps, SendOps};
use uverbs_core::queues::work::{Data, Destination, PostError, SendFlags, SendOp, Wr};

use crate::Ah;
use crate::sq::{Run, SendCursor, Sq};

/// The queue pair and the key that datagrams of the tests go to.
pub(crate) const PEER: (u32, u32) = (0xab_cdef, 7);

/// What one says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked<'a> {
    pub(crate) wr: Wr,
    pub(crate) op: SendOp,
    pub(crate) data: Data<'a>,
    pub(crate) to: Option<&'a Ah>,
}

// SAFETY: nothing changes.
unsafe impl Request for Asked<'_> {
    type Ah = Ah;

    fn id(&self) -> u64 {
        self.wr.id
    }

    fn flags(&self) -> SendFlags {
        self.wr.flags
    }

    fn op(&self) -> SendOp {
        self.op
    }

    fn to(&self) -> Option<Destination<'_, Ah>> {
        self.to.map(|ah| ah.to(PEER.0, PEER.1))
    }

    fn data(&self) -> Data<'_> {
        self.data
    }
}

/// Posts one alone. No device reads the ring.
pub(crate) fn post_alone(sq: &mut Sq, asked: &Asked<'_>) -> bool {
    match asked.to {
        // SAFETY: no device reads the ring.
        Some(_) => unsafe { sq.post_alone::<true>(asked) },
        // SAFETY: as above.
        None => unsafe { sq.post_alone::<false>(asked) },
    }
}

/// A batch that is a run as long as nothing is rare.
#[derive(Debug)]
pub(crate) enum Row {
    Run(Run),
    Cursor(SendCursor),
}

impl Row {
    pub(crate) fn begin<const TO: bool>(sq: &mut Sq) -> Self {
        Self::Run(sq.begin_run::<TO>())
    }

    /// Posts one more. Says whether the run took it, if it had room.
    pub(crate) fn post<const TO: bool>(
        &mut self,
        sq: &mut Sq,
        asked: &Asked<'_>,
    ) -> Result<Option<bool>, PostError> {
        let mut taken = None;
        if let Self::Run(run) = self {
            // SAFETY: no device reads the ring, and the run is of the last `begin_run`.
            if unsafe { sq.extend::<TO>(run, asked) } {
                return Ok(Some(true));
            }
            taken = run.has_room().then_some(false);
            *self = Self::Cursor(sq.cursor_of(*run));
        }
        let Self::Cursor(at) = self else { return Ok(None) };
        let Asked { wr, op, data, .. } = *asked;
        let slot = match asked.to() {
            // SAFETY: as above.
            Some(to) => unsafe { sq.post_to(at, wr, op, to, data) },
            // SAFETY: as above.
            None => unsafe { sq.post(at, wr, op, data) },
        };
        slot.map(|_| taken)
    }

    pub(crate) fn ring(self, sq: &mut Sq) {
        let at = match self {
            Self::Run(run) => sq.cursor_of(run),
            Self::Cursor(at) => at,
        };
        // SAFETY: no device reads the ring; it is of the last `begin` or `begin_run`.
        unsafe { sq.ring(at) };
    }
}
