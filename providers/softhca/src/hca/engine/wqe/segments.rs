//! Sorts a WQE's segments by purpose, in one walk.

use uverbs_mlx5_prm::eth::mlx5_wqe_eth_seg_min;
use uverbs_mlx5_prm::wqe::{Segment as Seg, Service, WqeError, WqeView};

use crate::hca::state::keys::Segment;
use crate::hca::state::wqe::{Op, Pieces};
use uverbs_front::backend::number::Key;

#[derive(Debug)]
pub(crate) struct Parts<'a, 'p> {
    /// Segment behind the control segment: the address, if there is one.
    pub(crate) first: Option<Seg<'a>>,
    /// Remote address and key.
    pub(crate) raddr: Option<(u64, Key)>,
    /// Operand (swap or add) and compare value.
    pub(crate) atomic: Option<(u64, u64)>,
    /// Ethernet segment, and the inline start of the frame.
    pub(crate) ethernet: Option<(&'a mlx5_wqe_eth_seg_min, &'a [u8])>,
    /// SGEs and inline data in order, and their total length.
    pieces: &'p mut Pieces,
    total: u64,
    /// Some data is inline in the WQE.
    has_inline: bool,
    /// Segments are present that belong to no message.
    has_others: bool,
}

impl<'a, 'p> Parts<'a, 'p> {
    /// Parses the WQE. `pieces` must be empty and receives the payload's SGEs and inline data.
    #[inline]
    pub(crate) fn find(
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
            // The inline header is no payload.
            Seg::Eth(segment, header) => {
                self.ethernet.get_or_insert((segment, header));
            }
            // Result address of an engine that computes. A copy has no result.
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

    /// Length of the payload, the sum of all pieces. None if a segment does not fit the operation.
    #[inline]
    pub(crate) fn payload(self, op: Op) -> Option<u64> {
        if matches!(op, Op::Nop | Op::Umr | Op::Tags) {
            self.pieces.clear();
            return Some(0);
        }
        // An answer cannot be written into the WQE, and a copy cannot read from it.
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
