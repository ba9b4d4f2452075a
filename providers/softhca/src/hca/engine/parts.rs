//! A WQE's segments, sorted by what they are for, in one walk.

use uverbs_mlx5_prm::eth::mlx5_wqe_eth_seg_min;
use uverbs_mlx5_prm::wqe::{Segment as Seg, Service, WqeError, WqeView};

use crate::hca::number::Key;
use crate::hca::state::keys::Segment;
use crate::hca::state::wqe::{Op, Pieces};

#[derive(Debug)]
pub(super) struct Parts<'a, 'p> {
    /// Behind the control segment: the address, where there is one.
    pub(super) first: Option<Seg<'a>>,
    /// Remote address and key.
    pub(super) raddr: Option<(u64, Key)>,
    /// What is swapped in or added, and what is compared.
    pub(super) atomic: Option<(u64, u64)>,
    /// The segment and the start of the frame.
    pub(super) ethernet: Option<(&'a mlx5_wqe_eth_seg_min, &'a [u8])>,
    /// Data, in order, and its bytes.
    pieces: &'p mut Pieces,
    total: u64,
    /// Some of it is in the WQE.
    has_inline: bool,
    /// There are segments that belong to no message.
    has_others: bool,
}

impl<'a, 'p> Parts<'a, 'p> {
    /// Finds them; `pieces` is empty and takes those of the payload.
    #[inline]
    pub(super) fn find(
        bytes: &'a [u8],
        service: Service,
        pieces: &'p mut Pieces,
    ) -> Result<(WqeView<'a>, Self), WqeError> {
        let mut parts = Self {
            first: None,
            raddr: None,
            atomic: None,
            ethernet: None,
            pieces,
            total: 0,
            has_inline: false,
            has_others: false,
        };
        let view = WqeView::parse_each(bytes, service, |segment| parts.add(segment))?;
        Ok((view, parts))
    }

    #[inline]
    fn add(&mut self, segment: Seg<'a>) {
        self.first.get_or_insert(segment);
        match segment {
            Seg::Av(_) | Seg::BaseAv(_) | Seg::Xrc(_) => {}
            Seg::Raddr(raddr) => {
                self.raddr.get_or_insert((raddr.raddr.get(), Key(raddr.rkey.get())));
            }
            Seg::Atomic(atomic) => {
                self.atomic.get_or_insert((atomic.swap_add.get(), atomic.compare.get()));
            }
            // The start of a frame, not of the payload.
            Seg::Eth(segment, header) => {
                self.ethernet.get_or_insert((segment, header));
            }
            // Where an engine that computes tells its result; a copy has none.
            Seg::MmoMetadata(_) => {}
            Seg::Data(data) => {
                let segment = Segment::from(data);
                self.total += segment.len;
                self.pieces.push(segment);
            }
            Seg::Inline(data) => {
                self.has_inline = true;
                self.total += data.len() as u64;
                self.pieces.push_inline(data);
            }
            _ => self.has_others = true,
        }
    }

    /// The payload's bytes, those of the pieces together; None if a segment does not belong there.
    #[inline]
    pub(super) fn payload(self, op: Op) -> Option<u64> {
        if matches!(op, Op::Nop | Op::Umr | Op::Tags) {
            self.pieces.clear();
            return Some(0);
        }
        // An answer cannot go into the WQE, nor can a copy come from there.
        let is_copy = matches!(op, Op::Copy);
        let may_be_inline = !is_copy && !op.is_fetching();
        if self.has_others || (self.has_inline && !may_be_inline) {
            return None;
        }
        if !is_copy {
            return Some(self.total);
        }
        let [from, to] = self.pieces.list() else { return None };
        let total = from.len();
        (total == to.len()).then_some(total)
    }
}
