//! Sends, RDMA and atomics of a connection.

use uverbs::memory::{ExposedPart, IndirectPart, SharedFrame};
use uverbs::{Batch, Completed, Frame, PostError, Remote, Target as Writable, Unposted, Wr};

use crate::frames::{FRAME, Place};
use crate::keys::Target;
use crate::memory::{Reach, SLOT, Spot};
use crate::pair::{INLINE, PIECES};
use crate::work::{Arrival, Hold, Id, KeyUse, Message, Must, Work};
use crate::world::World;

/// Data of a post.
pub(crate) enum Data {
    Frame(Frame),
    Part(Frame, usize, usize),
    Chain(Frame),
    Shared(SharedFrame),
    Exposed(ExposedPart),
    Indirect(IndirectPart),
    Inline(Vec<u8>),
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Send,
    SendImm(u32),
    Write(Remote),
    WriteImm(Remote, u32),
    Read(Remote),
    FetchAdd(Remote, u64),
    CompareSwap(Remote, u64, u64),
}

struct Plan {
    /// Its data belongs to the other side's domain.
    is_foreign: bool,
    id: Id,
    work: Work,
    op: Op,
    data: Data,
}

type Refusal = (PostError, Option<Frame>);

impl World {
    /// Posts a batch, and rings it or not.
    pub(crate) fn send(&mut self, pair: usize, side: usize) -> String {
        let Some(_) = self.pairs[pair].ends[side].qp else { return "no end".to_owned() };
        let count = self.choices.within(1, 4);
        let plans: Vec<_> = (0..count).filter_map(|_| self.plan(pair, side)).collect();
        let Self { choices, pairs, frames, .. } = self;
        let end = &mut pairs[pair].ends[side];
        let qp = end.qp.as_mut().expect("just looked");
        frames.begin(end.sq);
        let mut batch = qp.batch();
        let (mut posted, mut refused) = (Vec::new(), Vec::new());
        let mut told = String::new();
        for Plan { is_foreign, id, work, op, data } in plans {
            let mut wr = Wr::new(id);
            if !work.signaled {
                wr = wr.unsignaled();
            }
            if choices.percent(10) {
                wr = wr.fenced();
            }
            let kind = kind(&data);
            match post(&mut batch, wr, op, data) {
                Ok(()) => {
                    assert!(!is_foreign, "{kind} of another domain is posted");
                    told.push_str(&format!(" {id} {op:x?} of {kind}"));
                    posted.push((id, work));
                }
                Err((error, frame)) => {
                    told.push_str(&format!(" ({id}: {error})"));
                    refused.push((work, is_foreign, error, frame));
                }
            }
        }
        let is_rung = choices.percent(80);
        if is_rung {
            batch.ring();
        }
        let scatters = end.scatters;
        let sq = end.sq;
        for (work, is_foreign, error, frame) in refused {
            let fits = match error {
                PostError::Full => self.works.count(sq) + posted.len() > 0,
                PostError::BadOperation => scatters,
                PostError::ForeignBuffer => is_foreign,
                PostError::TooManySges => work.used().len() > PIECES as usize,
                _ => false,
            };
            assert!(fits, "{error}");
            self.never(&work, None);
            if let Some(frame) = frame {
                self.frames.keep(if is_foreign { 1 - side } else { side }, frame);
            }
        }
        for (id, work) in posted {
            if is_rung {
                self.rung(pair, side, id, work);
            } else {
                self.never(&work, Some(Place::Unrung(sq)));
            }
        }
        format!("end {side} of pair {pair} posts, rung: {is_rung}:{told}")
    }

    fn rung(&mut self, pair: usize, side: usize, id: Id, work: Work) {
        self.frames.place(work.frames(), Place::Posted(id));
        let peer = 1 - side;
        if let Some(message) = &work.message {
            let queue = self.pairs[pair].ends[peer].rq;
            let len = message.bytes.len();
            self.pairs[pair].is_spoiled |= self.works.of(queue).any(|(_, recv)| recv.room < len);
            self.pairs[pair].sent[side].push_back(message.clone());
        }
        self.pairs[pair].is_spoiled |= work.must != Must::Succeed;
        self.works.add(id, work);
    }

    /// Undoes a plan that is not posted. A batch that is not rung keeps the frames for a while.
    pub(crate) fn never(&mut self, work: &Work, place: Option<Place>) {
        self.let_go(work);
        work.writes.iter().for_each(|spot| self.memories.never(*spot));
        if let Some(place) = place {
            self.frames.place(work.frames(), place);
        }
        if let Hold::Shared(address) = work.hold {
            self.frames.lent.returned(address, place.map(|_| work.queue));
        }
    }

    /// A slot of the peer's.
    fn target(&mut self, pair: usize, side: usize, to_write: bool) -> Option<Target> {
        let Self { choices, memories, keys, .. } = self;
        let owner = 1 - side;
        if choices.percent(50) {
            let by_key = keys.target(choices, memories, (pair, owner), to_write);
            if by_key.is_some() {
                return by_key;
            }
        }
        let reach = [Reach::ByItsKey, Reach::OnDevice];
        let spot = memories.pick(choices, owner, &reach, to_write)?;
        let remote = memories.remote(spot)?;
        Some(Target { spot, remote, must: Must::Succeed, by: None })
    }

    fn plan(&mut self, pair: usize, side: usize) -> Option<Plan> {
        let id = self.works.new_id();
        let mut work = Work::new(self.pairs[pair].ends[side].sq, side);
        // Now and then one that makes room for all before it.
        work.signaled = self.choices.percent(60) || id.is_multiple_of(4);
        let is_foreign = self.choices.percent(2);
        let (op, data) = match self.choices.below(10) {
            _ if is_foreign => self.plan_send(pair, 1 - side, &mut work)?,
            0..4 => self.plan_send(pair, side, &mut work)?,
            4..7 => self.plan_write(pair, side, &mut work)?,
            7..9 => self.plan_read(pair, side, &mut work)?,
            _ => self.plan_atomic(pair, side, &mut work)?,
        };
        let is_foreign = is_foreign && !matches!(data, Data::Inline(_));
        Some(Plan { is_foreign, id, work, op, data })
    }

    fn plan_send(&mut self, pair: usize, side: usize, work: &mut Work) -> Option<(Op, Data)> {
        let most = if self.choices.percent(8) { FRAME } else { SLOT };
        let (data, bytes) = self.source(pair, side, work, most)?;
        let imm = self.choices.percent(30).then(|| self.choices.word() as u32);
        work.completed = Some(Completed::Send);
        let (len, completed) = (bytes.len(), Completed::Recv);
        work.message = Some(Message { bytes, len, immediate: imm, completed });
        Some((imm.map_or(Op::Send, Op::SendImm), data))
    }

    fn plan_write(&mut self, pair: usize, side: usize, work: &mut Work) -> Option<(Op, Data)> {
        let Target { spot, remote, must, by } = self.target(pair, side, true)?;
        let (data, bytes) = self.source(pair, side, work, SLOT)?;
        self.aim(pair, work, (must, by), spot, &bytes);
        work.completed = Some(Completed::Write);
        if !self.choices.percent(20) {
            return Some((Op::Write(remote), data));
        }
        let imm = self.choices.word() as u32;
        let (len, completed) = (bytes.len(), Completed::RecvWriteImm);
        work.message = Some(Message { bytes: Vec::new(), len, immediate: Some(imm), completed });
        Some((Op::WriteImm(remote, imm), data))
    }

    /// The work request writes these bytes to a slot's beginning.
    fn aim(
        &mut self,
        pair: usize,
        work: &mut Work,
        (must, by): (Must, Option<KeyUse>),
        spot: Spot,
        bytes: &[u8],
    ) {
        let mut new = self.memories.bytes(spot);
        if must != Must::Fail {
            new[..bytes.len()].copy_from_slice(bytes);
        }
        self.memories.claim(spot, pair, Some(new));
        work.writes.push(spot);
        work.must = unless_empty(must, bytes.len());
        work.names = by.is_none().then_some(spot.memory);
        work.by = by;
    }

    fn plan_read(&mut self, pair: usize, side: usize, work: &mut Work) -> Option<(Op, Data)> {
        let Target { spot, remote, must, by } = self.target(pair, side, false)?;
        let found = self.memories.bytes(spot);
        let Self { choices, frames, memories, keys, .. } = self;
        let own = [Reach::ByItsKey, Reach::ByWindows, Reach::ByIndirectKeys];
        let data = match choices.below(6) {
            0 => {
                let into = memories.pick(choices, side, &own, true).filter(|into| *into != spot)?;
                let part = memories.part(into, 1)?;
                memories.claim(into, pair, Some(found));
                work.writes.push(into);
                Data::Exposed(part)
            }
            1 => {
                let (into, part, used) = keys.part(choices, memories, (pair, side), true)?;
                memories.claim(into, pair, Some(found));
                work.writes.push(into);
                work.own = Some(used);
                Data::Indirect(part)
            }
            2 => {
                let mut frame = frames.chain(choices, side, PIECES as usize)?;
                frames.fill(choices, &mut frame, SLOT / PIECES as usize);
                let len = frame.total_len();
                if len > SLOT {
                    frames.keep(side, frame);
                    return None;
                }
                work.arrival = Arrival::Answer(0, found[..len].to_vec());
                Data::Chain(frame)
            }
            3 => {
                let frame = frames.take(choices, side)?;
                let start = choices.below(frame.len());
                let end = choices.within(start, frame.len()).min(start + SLOT);
                work.arrival = Arrival::Answer(start, found[..end - start].to_vec());
                Data::Part(frame, start, end)
            }
            _ => {
                let mut frame = frames.take(choices, side)?;
                frames.fill(choices, &mut frame, SLOT);
                work.arrival = Arrival::Answer(0, found[..frame.len()].to_vec());
                Data::Frame(frame)
            }
        };
        hold(work, &data);
        self.memories.read_by(spot, true);
        work.reads.push(spot);
        let empty = matches!(&data, Data::Part(_, start, end) if start == end);
        work.must = unless_empty(must, usize::from(!empty));
        work.names = by.is_none().then_some(spot.memory);
        work.by = by;
        work.completed = Some(Completed::Read);
        Some((Op::Read(remote), data))
    }

    fn plan_atomic(&mut self, pair: usize, side: usize, work: &mut Work) -> Option<(Op, Data)> {
        let reach = [Reach::ByItsKey, Reach::OnDevice];
        let spot = self.memories.pick(&mut self.choices, 1 - side, &reach, true)?;
        let remote = self.memories.remote(spot)?;
        let old = self.memories.bytes(spot);
        let word = u64::from_ne_bytes(old[..8].try_into().expect("eight"));
        let mut frame = self.frames.take(&mut self.choices, side)?;
        self.frames.fill(&mut self.choices, &mut frame, FRAME);
        if frame.len() < 8 {
            self.frames.keep(side, frame);
            return None;
        }
        work.holds(&frame, false);
        work.arrival = Arrival::Answer(0, old[..8].to_vec());
        let operand = self.choices.word();
        let (op, new, completed) = if self.choices.percent(50) {
            let new = word.wrapping_add(operand);
            (Op::FetchAdd(remote, operand), new, Completed::FetchAdd)
        } else {
            let wrong = self.choices.percent(30);
            let compare = if wrong { !word } else { word };
            let new = if wrong { word } else { operand };
            (Op::CompareSwap(remote, compare, operand), new, Completed::CompareSwap)
        };
        work.completed = Some(completed);
        self.aim(pair, work, (Must::Succeed, None), spot, &new.to_ne_bytes());
        Some((op, Data::Frame(frame)))
    }

    /// Data of a message or a WRITE, and its bytes.
    pub(crate) fn source(
        &mut self,
        pair: usize,
        side: usize,
        work: &mut Work,
        most: usize,
    ) -> Option<(Data, Vec<u8>)> {
        let Self { choices, frames, memories, keys, .. } = self;
        let own = [Reach::ByItsKey, Reach::ByWindows, Reach::ByIndirectKeys];
        let (data, bytes) = match choices.below(12) {
            0 => {
                let spot = memories.pick(choices, side, &own, false)?;
                let part = memories.part(spot, 1)?;
                memories.read_by(spot, true);
                work.reads.push(spot);
                (Data::Exposed(part), memories.bytes(spot))
            }
            1 => {
                let (spot, part, used) = keys.part(choices, memories, (pair, side), false)?;
                memories.read_by(spot, true);
                work.reads.push(spot);
                work.own = Some(used);
                (Data::Indirect(part), memories.bytes(spot))
            }
            2 | 3 => {
                let (address, handle) = frames.lent.lend(choices, side)?;
                if handle.len() > most {
                    frames.lent.returned(address, None);
                    return None;
                }
                let bytes = handle.to_vec();
                work.hold = Hold::Shared(address);
                (Data::Shared(handle), bytes)
            }
            4 | 5 => {
                let len = choices.within(0, most.min(INLINE as usize));
                let bytes = choices.bytes(len);
                (Data::Inline(bytes.clone()), bytes)
            }
            6 => {
                let mut frame = frames.take(choices, side)?;
                let bytes = frames.fill(choices, &mut frame, most);
                let bytes = &bytes[..frame.len().min(bytes.len())];
                let start = choices.below(bytes.len());
                let end = choices.within(start, bytes.len());
                let bytes = bytes[start..end].to_vec();
                (Data::Part(frame, start, end), bytes)
            }
            7 | 8 => {
                let mut frame = frames.chain(choices, side, PIECES as usize)?;
                let bytes = frames.fill(choices, &mut frame, most / PIECES as usize);
                if bytes.len() > most {
                    frames.keep(side, frame);
                    return None;
                }
                (Data::Chain(frame), bytes)
            }
            _ => {
                let mut frame = frames.take(choices, side)?;
                let bytes = frames.fill(choices, &mut frame, most)[..frame.len()].to_vec();
                (Data::Frame(frame), bytes)
            }
        };
        hold(work, &data);
        Some((data, bytes))
    }
}

/// The device checks no key of an empty message (IBTA, section 9.7.4.1.3: a length of 0).
fn unless_empty(must: Must, len: usize) -> Must {
    if len == 0 { Must::Succeed } else { must }
}

/// Notes the frames that a work request takes along.
pub(crate) fn hold(work: &mut Work, data: &Data) {
    if let Data::Frame(frame) | Data::Part(frame, ..) | Data::Chain(frame) = data {
        work.holds(frame, matches!(data, Data::Chain(_)));
    }
}

fn kind(data: &Data) -> &'static str {
    match data {
        Data::Frame(_) => "a frame",
        Data::Part(..) => "a part",
        Data::Chain(_) => "a chain",
        Data::Shared(_) => "a shared frame",
        Data::Exposed(_) => "memory",
        Data::Indirect(_) => "an indirect key",
        Data::Inline(_) => "bytes",
    }
}

fn post(batch: &mut Batch<'_>, wr: Wr, op: Op, data: Data) -> Result<(), Refusal> {
    match data {
        Data::Frame(frame) => any(batch, wr, op, frame, Some),
        Data::Part(frame, start, end) => {
            any(batch, wr, op, frame.part(start..end), |part| Some(part.into_whole()))
        }
        Data::Chain(frame) => any(batch, wr, op, frame.chain(), |chain| Some(chain.of)),
        Data::Exposed(part) => any(batch, wr, op, part, |_| None),
        Data::Indirect(part) => any(batch, wr, op, part, |_| None),
        Data::Shared(handle) => {
            let done = match op {
                Op::Send => batch.send(wr, handle),
                Op::SendImm(imm) => batch.send_imm(wr, handle, imm),
                Op::Write(to) => batch.write(wr, handle, to),
                Op::WriteImm(to, imm) => batch.write_imm(wr, handle, to, imm),
                _ => unreachable!("shared frames are only read"),
            };
            done.map_err(|rejected| (rejected.error, None))
        }
        Data::Inline(bytes) => {
            let done = match op {
                Op::Send => batch.send_inline(wr, &bytes),
                Op::SendImm(imm) => batch.send_imm_inline(wr, &bytes, imm),
                Op::Write(to) => batch.write_inline(wr, &bytes, to),
                Op::WriteImm(to, imm) => batch.write_imm_inline(wr, &bytes, to, imm),
                _ => unreachable!("an answer needs memory"),
            };
            done.map_err(|error| (error, None))
        }
    }
}

fn any<D: Writable>(
    batch: &mut Batch<'_>,
    wr: Wr,
    op: Op,
    data: D,
    back: impl FnOnce(D) -> Option<Frame>,
) -> Result<(), Refusal> {
    let done = match op {
        Op::Send => batch.send(wr, data),
        Op::SendImm(imm) => batch.send_imm(wr, data, imm),
        Op::Write(to) => batch.write(wr, data, to),
        Op::WriteImm(to, imm) => batch.write_imm(wr, data, to, imm),
        Op::Read(from) => batch.read(wr, data, from),
        Op::FetchAdd(at, add) => batch.fetch_add(wr, data, at, add),
        Op::CompareSwap(at, compare, swap) => batch.compare_swap(wr, data, at, compare, swap),
    };
    done.map_err(|Unposted { error, data }| (error, back(data)))
}
