//! Frames: which are in hand, with which bytes, and where all others are.

use std::collections::BTreeMap;

use uverbs::{Frame, ProtectionDomain, Slab};

use crate::choices::Choices;
use crate::lent::LentFrames;
use crate::memory::SLOT;
use crate::work::{Arrival, Id, Queue, addresses};

/// Bytes of each frame.
pub(crate) const FRAME: usize = 256;

/// Holder of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Its slab.
    Free,
    Hand,
    Posted(Id),
    /// A queue pair that was dropped: the work request may still complete, or the frame is free
    /// when the completion queues were polled.
    Returning(Id),
    /// A shared receive queue of which a queue pair was ended: as above, or still posted.
    Maybe(Id),
    /// A batch that was not rung: free when the queue's next batch begins.
    Unrung(Queue),
    /// Lent out as shared handles.
    Shared,
    /// The program forgot it.
    Lost,
}

/// Knowledge of a frame, free or not.
struct Known {
    place: Place,
    /// All its bytes, beyond its length too; `None` after a truncated message.
    bytes: Option<Vec<u8>>,
    len: usize,
}

/// All frames of a world.
#[derive(Default)]
pub(crate) struct Frames {
    slabs: Vec<(usize, Slab)>,
    hand: Vec<(usize, Frame)>,
    known: BTreeMap<usize, Known>,
    pub(crate) lent: LentFrames,
}

impl Frames {
    pub(crate) fn new_slab(&mut self, pd: &ProtectionDomain, side: usize, count: usize) {
        self.slabs.push((side, pd.slab(FRAME, count).expect("slab")));
    }

    fn known(&mut self, address: usize) -> &mut Known {
        self.known.get_mut(&address).expect("a frame that no slab has given")
    }

    /// Takes a frame out of a slab: it is in no other place, and its bytes are those it was left
    /// with.
    fn take_of(&mut self, choices: &mut Choices, slab: usize) -> Option<Frame> {
        let mut frame = self.slabs[slab].1.take()?;
        let address = frame.as_ptr() as usize;
        assert_eq!(frame.len(), FRAME, "a free frame is of full length");
        let new = Known { place: Place::Free, bytes: Some(vec![0; FRAME]), len: FRAME };
        let known = self.known.entry(address).or_insert(new);
        let place = known.place;
        let fits = matches!(place, Place::Free | Place::Returning(_) | Place::Maybe(_));
        assert!(fits, "a slab hands out a frame that is {place:?}");
        if let (Place::Free, Some(bytes)) = (place, &known.bytes) {
            assert_eq!(*frame, bytes[..], "a free frame was written");
        }
        // Most times only, so that late writes show in old bytes, too.
        if choices.percent(80) {
            frame.copy_from_slice(&choices.bytes(FRAME));
        }
        *known = Known { place: Place::Hand, bytes: Some(frame.to_vec()), len: FRAME };
        Some(frame)
    }

    fn take_free(&mut self, choices: &mut Choices, side: usize) -> Option<Frame> {
        let mine: Vec<_> = (0..self.slabs.len()).filter(|&at| self.slabs[at].0 == side).collect();
        let slab = mine[choices.index(mine.len())?];
        self.take_of(choices, slab)
    }

    /// Takes a frame out of the hand, or of a slab.
    pub(crate) fn take(&mut self, choices: &mut Choices, side: usize) -> Option<Frame> {
        if choices.percent(50) {
            let mine: Vec<_> = (0..self.hand.len()).filter(|&at| self.hand[at].0 == side).collect();
            if let Some(at) = choices.index(mine.len()) {
                return Some(self.hand.swap_remove(mine[at]).1);
            }
        }
        self.take_free(choices, side)
    }

    /// A chain of up to `most` frames.
    pub(crate) fn chain(
        &mut self,
        choices: &mut Choices,
        side: usize,
        most: usize,
    ) -> Option<Frame> {
        let mut first = self.take(choices, side)?;
        for _ in 1..choices.within(1, most) {
            if let Some(next) = self.take(choices, side) {
                first.append(next);
            }
        }
        Some(first)
    }

    /// Sets the lengths and contents of a chain; gives its bytes.
    pub(crate) fn fill(
        &mut self,
        choices: &mut Choices,
        frame: &mut Frame,
        most: usize,
    ) -> Vec<u8> {
        let mut all = Vec::new();
        let mut next = Some(frame);
        while let Some(frame) = next {
            let len = choices.within(usize::from(all.is_empty()), most.min(FRAME));
            frame.set_len(len);
            let bytes = choices.bytes(len);
            frame.copy_from_slice(&bytes);
            let known = self.known(frame.as_ptr() as usize);
            known.len = len;
            if let Some(full) = &mut known.bytes {
                full[..len].copy_from_slice(&bytes);
            }
            all.extend(bytes);
            next = frame.rest_mut();
        }
        all
    }

    /// Writes bytes to a chain: `first` bytes to the first frame, and the rest to the others, if
    /// they fit.
    pub(crate) fn write(&mut self, frame: &mut Frame, bytes: &[u8], first: usize) {
        let (mut left, mut most) = (bytes, first);
        let mut next = Some(frame);
        while let Some(frame) = next {
            let (part, rest) = left.split_at(left.len().min(most).min(FRAME));
            frame.set_len(part.len());
            frame.copy_from_slice(part);
            let known = self.known(frame.as_ptr() as usize);
            known.len = part.len();
            if let Some(full) = &mut known.bytes {
                full[..part.len()].copy_from_slice(part);
            }
            (left, most) = (rest, FRAME);
            next = frame.rest_mut();
        }
    }

    /// Puts a frame, with all that follow it, into the hand.
    pub(crate) fn keep(&mut self, side: usize, frame: Frame) {
        for address in addresses(&frame) {
            assert_eq!(self.known(address).place, Place::Hand, "a frame in two places");
        }
        self.hand.push((side, frame));
    }

    /// Marks frames that a post took.
    pub(crate) fn place(&mut self, addresses: &[usize], place: Place) {
        for address in addresses {
            self.known(*address).place = place;
        }
    }

    pub(crate) fn place_of(&self, address: usize) -> Place {
        self.known[&address].place
    }

    /// A chain that a receive refused is of full length.
    pub(crate) fn open(&mut self, addresses: &[usize]) {
        addresses.iter().for_each(|address| self.known(*address).len = FRAME);
    }

    /// Notes the effect of a work request on its frames.
    pub(crate) fn arrive(&mut self, addresses: &[usize], arrival: &Arrival) {
        match arrival {
            Arrival::Same => {}
            Arrival::Received(message) => {
                let mut left = &message[..];
                for address in addresses {
                    let (part, rest) = left.split_at(left.len().min(FRAME));
                    let known = self.known(*address);
                    known.len = part.len();
                    if let Some(bytes) = &mut known.bytes {
                        bytes[..part.len()].copy_from_slice(part);
                    }
                    left = rest;
                }
            }
            Arrival::Answer(offset, answer) => {
                let (mut offset, mut left) = (*offset, &answer[..]);
                for address in addresses {
                    let known = self.known(*address);
                    let (part, rest) = left.split_at(left.len().min(known.len - offset));
                    if let Some(bytes) = &mut known.bytes {
                        bytes[offset..offset + part.len()].copy_from_slice(part);
                    }
                    (offset, left) = (0, rest);
                }
            }
            Arrival::Unknown => addresses.iter().for_each(|at| self.known(*at).bytes = None),
        }
    }

    /// Takes back a work request's frames. They must be the frames that were posted with it.
    pub(crate) fn back(&mut self, side: usize, mut frame: Frame, posted: &[usize], work: Id) {
        assert_eq!(addresses(&frame), posted, "other frames than {work} was posted with");
        let mut next = Some(&mut frame);
        while let Some(piece) = next {
            let known = self.known.get_mut(&(piece.as_ptr() as usize)).expect("posted");
            let places = [Place::Posted(work), Place::Returning(work), Place::Maybe(work)];
            assert!(
                places.contains(&known.place),
                "{work} gives a frame that is {:?}",
                known.place
            );
            known.place = Place::Hand;
            check(piece, known);
            next = piece.rest_mut();
        }
        self.keep(side, frame);
    }

    /// Notes that a work request's frames went back to the slab.
    pub(crate) fn free(&mut self, posted: &[usize], work: Id) {
        for address in posted {
            let places = [Place::Posted(work), Place::Returning(work), Place::Maybe(work)];
            assert!(places.contains(&self.known(*address).place), "{work} frees another's frame");
            self.known(*address).place = Place::Free;
        }
    }

    /// A batch of the queue begins: requests that an earlier batch wrote and did not ring are free.
    pub(crate) fn begin(&mut self, queue: Queue) {
        self.unrung(queue, Place::Free);
    }

    /// Moves the frames of a queue's last batch, which was not rung.
    pub(crate) fn unrung(&mut self, queue: Queue, place: Place) {
        for known in self.known.values_mut() {
            if known.place == Place::Unrung(queue) {
                known.place = place;
            }
        }
    }

    /// Does something to a frame in hand, or takes one.
    pub(crate) fn play(&mut self, choices: &mut Choices, side: usize) -> &'static str {
        let Some(mut frame) = self.take(choices, side) else { return "no frame" };
        match choices.below(12) {
            0..=4 => {
                self.keep(side, frame);
                "keep"
            }
            5..=8 => {
                self.place(&addresses(&frame), Place::Free);
                drop(frame);
                "drop"
            }
            9 => match frame.detach() {
                Some(rest) => {
                    self.keep(side, rest);
                    self.keep(side, frame);
                    "detach"
                }
                None => {
                    if let Some(other) = self.take(choices, side) {
                        frame.append(other);
                    }
                    self.keep(side, frame);
                    "append"
                }
            },
            10 if choices.percent(20) => {
                self.place(&addresses(&frame), Place::Lost);
                std::mem::forget(frame);
                "forget"
            }
            _ if frame.rest().is_none() => {
                self.fill(choices, &mut frame, SLOT);
                let address = frame.as_ptr() as usize;
                self.place(&[address], Place::Shared);
                self.lent.share(side, frame);
                "share"
            }
            _ => {
                self.keep(side, frame);
                "keep a chain"
            }
        }
    }

    /// A queue is the device's for good, with all its frames.
    pub(crate) fn forget(&mut self, queue: Queue) {
        self.unrung(queue, Place::Lost);
        self.lent.forget(queue);
    }

    /// Tries to get a shared frame back.
    pub(crate) fn unshare(&mut self, choices: &mut Choices) {
        if let Some((side, frame)) = self.lent.unshare(choices) {
            self.place(&addresses(&frame), Place::Hand);
            self.keep(side, frame);
        }
    }

    /// All frames in hand, and all shared ones, have the bytes that the model says.
    pub(crate) fn check(&mut self) {
        for (_, frame) in &mut self.hand {
            let mut next = Some(frame);
            while let Some(piece) = next {
                let known = self.known.get_mut(&(piece.as_ptr() as usize)).expect("in hand");
                assert_eq!(known.place, Place::Hand, "in hand, and in another place");
                check(piece, known);
                next = piece.rest_mut();
            }
        }
        for (address, found) in self.lent.bytes() {
            let known = &self.known[&address];
            let bytes = known.bytes.as_ref().expect("shared frames are known");
            assert_eq!(found, &bytes[..known.len], "a shared frame was written");
        }
    }

    /// Takes all free frames, compares them with the model, and puts them back. None is missing;
    /// with `settled`, none is still to come from a destroyed queue pair.
    pub(crate) fn audit(&mut self, choices: &mut Choices, settled: bool) {
        let mut free = Vec::new();
        for slab in 0..self.slabs.len() {
            free.extend(std::iter::from_fn(|| self.take_of(choices, slab)));
        }
        for (address, Known { place, .. }) in &self.known {
            let missing = *place == Place::Free || settled && matches!(place, Place::Returning(_));
            assert!(!missing, "frame {address:#x} is {place:?} and not in its slab");
        }
        let count: u32 = self.slabs.iter().map(|(_, slab)| slab.count()).sum();
        assert_eq!(self.known.len(), count as usize, "frames in all");
        for frame in free {
            self.place(&addresses(&frame), Place::Free);
        }
    }

    /// Drops all frames and handles in hand.
    pub(crate) fn let_go(&mut self) {
        for (_, frame) in std::mem::take(&mut self.hand) {
            self.place(&addresses(&frame), Place::Free);
        }
        for (address, is_lost) in self.lent.end() {
            self.place(&[address], if is_lost { Place::Maybe(0) } else { Place::Free });
        }
    }
}

/// Compares a frame with the model; unknown bytes become known.
fn check(frame: &mut Frame, known: &mut Known) {
    let Some(bytes) = &known.bytes else {
        known.len = frame.len();
        frame.set_len(FRAME);
        known.bytes = Some(frame.to_vec());
        return frame.set_len(known.len);
    };
    assert_eq!(frame.len(), known.len, "a frame's length");
    frame.set_len(FRAME);
    assert_eq!(**frame, bytes[..], "a frame's bytes");
    frame.set_len(known.len);
}
