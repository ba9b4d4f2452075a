//! Work requests for tests, posted alone or in a list.
#![allow(unsafe_code, reason = "posts")]

use std::slice;

use uverbs_core::provider::{AhOps, Alike, Request, Requests, SendOps};
use uverbs_core::queues::work::{Data, Destination, PostError, SendFlags, SendOp, Wr};

use crate::Ah;
use crate::send::inline::is_small;
use crate::send::queue::{SendCursor, Sq};

/// Queue pair and Q_Key of the tests' datagrams.
pub(crate) const PEER: (u32, u32) = (0xab_cdef, 7);

/// A work request.
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

    const ALIKE: Alike = Alike::No;

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
        let ah = self.to.expect("only a datagram is asked");
        Some(ah.to(PEER.0, PEER.1))
    }

    fn data(&self) -> Data<'_> {
        self.data
    }
}

/// Posts one work request alone. No device reads the ring.
pub(crate) fn post_alone(sq: &mut Sq, asked: &Asked<'_>) -> bool {
    match asked.to {
        // SAFETY: no device reads the ring.
        Some(_) => unsafe { sq.post_alone::<true>(*asked) },
        // SAFETY: no device reads the ring.
        None => unsafe { sq.post_alone::<false>(*asked) },
    }
}

/// A work request whose type makes it alike: one operation, with short inline data if `INLINE`,
/// otherwise with one SGE.
#[derive(Clone, Copy, Debug)]
struct OfKind<'a, const INLINE: bool>(Asked<'a>);

// SAFETY: nothing changes, and `post_alike` makes them of such alone.
unsafe impl<const INLINE: bool> Request for OfKind<'_, INLINE> {
    type Ah = Ah;

    const ALIKE: Alike = if INLINE { Alike::Inline } else { Alike::Piece };

    fn id(&self) -> u64 {
        self.0.id()
    }

    fn flags(&self) -> SendFlags {
        self.0.flags()
    }

    fn op(&self) -> SendOp {
        self.0.op()
    }

    fn to(&self) -> Option<Destination<'_, Ah>> {
        self.0.to()
    }

    fn data(&self) -> Data<'_> {
        self.0.data
    }
}

/// Type under which it may be posted.
fn alike(asked: &Asked<'_>) -> Alike {
    match asked.data {
        Data::One(_) => Alike::Piece,
        Data::Inline(bytes) if is_small(bytes) => Alike::Inline,
        _ => Alike::No,
    }
}

/// A list of work requests.
struct Several<'a, F> {
    left: &'a [Asked<'a>],
    as_type: F,
}

impl<'a, T: Request, F: Fn(Asked<'a>) -> T> Requests for Several<'a, F> {
    type One = T;

    fn first(&self) -> Option<T> {
        self.left.first().map(|asked| (self.as_type)(*asked))
    }

    fn advance(&mut self) {
        self.left = self.left.get(1..).unwrap_or_default();
    }
}

/// A batch that is posted by lists, and by single posts of work requests that a list leaves.
#[derive(Debug)]
pub(crate) struct Row(SendCursor);

impl Row {
    pub(crate) fn begin(sq: &mut Sq) -> Self {
        Self(sq.begin())
    }

    /// Posts one more work request. Returns whether the list took it, if it had room.
    pub(crate) fn post<const TO: bool>(
        &mut self,
        sq: &mut Sq,
        asked: &Asked<'_>,
    ) -> Result<Option<bool>, PostError> {
        let Self(at) = self;
        if extend::<TO, _>(sq, at, slice::from_ref(asked), |asked| asked) == 1 {
            return Ok(Some(true));
        }
        let taken = at.has_room().then_some(false);
        let Asked { wr, op, data, .. } = *asked;
        let slot = match asked.to {
            // SAFETY: no device reads the ring, and the cursor is of the last `begin`.
            Some(_) => unsafe { sq.post_to(at, wr, op, asked.to().unwrap(), data) },
            // SAFETY: as above.
            None => unsafe { sq.post(at, wr, op, data) },
        };
        slot.map(|_| taken)
    }

    /// Posts work requests, grouped into lists of alike ones. Returns how many had room.
    pub(crate) fn post_alike<const TO: bool>(&mut self, sq: &mut Sq, all: &[Asked<'_>]) -> usize {
        let mut left = all;
        while let Some(first) = left.first() {
            let kind = alike(first);
            let same = left.iter().take_while(|one| alike(one) == kind).count();
            let Self(at) = self;
            let mut taken = extend_alike::<TO>(sq, at, &left[..same]);
            if taken == 0 {
                if self.post::<TO>(sq, first).is_err() {
                    break;
                }
                taken = 1;
            }
            left = &left[taken..];
        }
        all.len() - left.len()
    }

    pub(crate) fn ring(self, sq: &mut Sq) {
        // SAFETY: no device reads the ring; the cursor is of the last `begin`.
        unsafe { sq.ring(self.0) };
    }
}

/// Posts as many work requests, alike to the first, as the list takes. Returns their number.
pub(crate) fn extend_alike<'a, const TO: bool>(
    sq: &mut Sq,
    at: &mut SendCursor,
    all: &'a [Asked<'a>],
) -> usize {
    match all.first().map_or(Alike::No, alike) {
        Alike::No => 0,
        Alike::Piece => extend::<TO, _>(sq, at, all, OfKind::<false>),
        Alike::Inline => extend::<TO, _>(sq, at, all, OfKind::<true>),
    }
}

/// Posts as many work requests as the list takes, as type `T`. Returns their number.
fn extend<'a, const TO: bool, T: Request<Ah = Ah>>(
    sq: &mut Sq,
    at: &mut SendCursor,
    all: &'a [Asked<'a>],
    as_type: impl Fn(Asked<'a>) -> T,
) -> usize {
    let mut several = Several { left: all, as_type };
    // SAFETY: no device reads the ring, and the cursor is of the last `begin`.
    unsafe { sq.post_list::<TO, _>(at, &mut several) };
    all.len() - several.left.len()
}
