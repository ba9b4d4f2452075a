//! Driver whose rings are as rdmavt's (kernel `rvt-abi.h`): two indexes, then elements, whose
//! number is one more than asked for and no power of two. Sends go through a ring as receives do.
#![allow(unsafe_code, reason = "is a driver's provider")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use uverbs_core::attr::{AhAttr, QpType};
use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::ah::AhCore;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::objects::srq::SrqCore;
use uverbs_core::provider::{AhOps, Provider, View};
use uverbs_core::queues::completion::{Completed, Failure, Sender, Status};
use uverbs_core::queues::known::{Ended, Known};
use uverbs_core::queues::token::Token;
use uverbs_core::queues::work::{PostError, Sge};
use uverbs_kernel_abi::srq::{IB_SRQ_MAX_WR, ib_uverbs_modify_srq};
use zerocopy::IntoBytes;

use crate::elements::{ElementLimits, Size, check_data};
use crate::{
    ArmByCommand, CqMade, Driver, LateWork, Mapped, Opened, Post, QpMade, QpRings, Resize, SrqMade,
    SrqRing, map,
};

/// RDMA driver id of hfi1.
pub(super) const ID: u32 = 15;
/// Offset of the elements.
pub(super) const HEAD: usize = 8;
/// Bytes of a work request's element: token, and bytes of its data.
pub(super) const WQE: usize = 16;
/// Bytes of a completion.
pub(super) const WC: usize = 48;
/// Token of an entry that was swept.
const SWEPT: u64 = u64::MAX;

/// The provider.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lab;

// SAFETY: both sides of an object are made by `create`.
unsafe impl Provider for Lab {
    type Context = crate::Context<Self>;
    type Cq = crate::Cq<Self>;
    type Sq = crate::Sq<Self>;
    type Rq = crate::Rq<Self>;
    type Srq = crate::Srq<Self>;
    type Ah = NoAh;

    const NAME: &'static str = "lab";

    fn open(core: Arc<ContextCore>) -> Result<Self::Context, Error> {
        crate::Context::open(core)
    }
}

/// Address handle, without values.
#[derive(Clone, Debug)]
pub(crate) enum NoAh {}

// SAFETY: there is no value.
unsafe impl AhOps for NoAh {
    fn core(&self) -> &AhCore {
        match *self {}
    }

    fn peer(&self, _: u32, _: u32) -> [u64; 2] {
        match *self {}
    }
}

/// A mapped ring: the program produces at `head`, or consumes at `tail`.
#[derive(Debug)]
pub(crate) struct Ring {
    start: *mut u8,
    /// Number of elements, one of which stays empty.
    elements: u32,
    /// Bytes of an element.
    size: usize,
    /// Position of the published index.
    at: u32,
    /// Published index, free running.
    published: u32,
}

// SAFETY: the memory may be accessed from any thread.
unsafe impl Send for Ring {}

impl Ring {
    fn index(&self, word: usize) -> &AtomicU32 {
        // SAFETY: one of the two indexes, aligned, and accessed atomically.
        unsafe { AtomicU32::from_ptr(self.start.cast::<u32>().wrapping_add(word)) }
    }

    /// An index of the kernel's; any value is brought into the ring.
    fn load(&self, word: usize) -> u32 {
        self.index(word).load(Ordering::Acquire) % self.elements
    }

    /// Address of the element at a free-running index.
    fn element(&self, index: u32) -> *mut u8 {
        let at = (self.at + index.wrapping_sub(self.published)) % self.elements;
        self.start.wrapping_add(HEAD + at as usize * self.size)
    }

    fn publish(&mut self, word: usize, to: u32) {
        self.at = (self.at + to.wrapping_sub(self.published)) % self.elements;
        self.published = to;
        self.index(word).store(self.at, Ordering::Release);
    }

    fn free(&self) -> u32 {
        self.elements - 1 - (self.at + self.elements - self.load(1)) % self.elements
    }

    fn slots(&self) -> u32 {
        self.elements.next_power_of_two()
    }

    /// Begins at a free-running index, which is the first element.
    fn start_at(&mut self, index: u32) {
        self.published = index;
    }

    /// Writes an element.
    ///
    /// # Safety
    ///
    /// It is free.
    unsafe fn put(&self, index: u32, token: u64, bytes: u32) {
        let to = self.element(index);
        // SAFETY: an element of the ring, aligned to eight bytes.
        unsafe { to.cast::<[u64; 2]>().write([token, bytes.into()]) };
    }
}

/// Maps a ring of `elements` and one more.
fn ring(uverbs: &Uverbs, offset: u64, elements: u32, size: usize) -> Result<Mapped<Ring>, Error> {
    let elements = elements + 1;
    let memory = map(uverbs, HEAD + elements as usize * size, offset)?;
    let ring = Ring { start: memory.as_mut_ptr(), elements, size, at: 0, published: 0 };
    Ok(Mapped { ring, memory })
}

/// Ring of sends.
#[derive(Debug)]
pub(crate) struct Sends(Ring, ElementLimits);

impl Sends {
    pub(super) fn start_at(&mut self, index: u32) {
        self.0.start_at(index);
    }
}

// SAFETY: the kernel's index tells the elements that it left.
unsafe impl crate::SendRing for Sends {
    type Ah = NoAh;
    type Checked = Size;

    fn slots(&self) -> u32 {
        self.0.slots()
    }

    fn free(&self, _: u32) -> u32 {
        self.0.free()
    }

    fn check(&self, post: &Post<'_, NoAh>) -> Result<Size, PostError> {
        check_data(&post.data, self.1)
    }

    unsafe fn write(&mut self, post: &Post<'_, NoAh>, token: u64, size: Size) {
        // SAFETY: guaranteed by the contract of `write`.
        unsafe { self.0.put(post.index, token, size.bytes) };
    }

    fn publish(&mut self, _: u32, to: u32) -> bool {
        self.0.publish(0, to);
        true
    }
}

/// Ring of receives.
#[derive(Debug)]
pub(crate) struct Recvs(Option<Ring>);

impl Recvs {
    pub(super) fn start_at(&mut self, index: u32) {
        if let Some(ring) = &mut self.0 {
            ring.start_at(index);
        }
    }
}

// SAFETY: as for sends.
unsafe impl crate::RecvRing for Recvs {
    const TELLS_CONSUMER: bool = true;

    fn none() -> Self {
        Self(None)
    }

    fn slots(&self) -> u32 {
        self.0.as_ref().map_or(0, Ring::slots)
    }

    fn free(&self, _: u32) -> u32 {
        self.0.as_ref().map_or(0, Ring::free)
    }

    unsafe fn write(&mut self, index: u32, token: u64, _: &[Sge], size: Size) {
        if let Some(ring) = &self.0 {
            // SAFETY: guaranteed by the contract of `write`.
            unsafe { ring.put(index, token, size.bytes) };
        }
    }

    fn publish(&mut self, _: u32, to: u32) {
        if let Some(ring) = &mut self.0 {
            ring.publish(0, to);
        }
    }
}

/// Ring of completions.
#[derive(Debug)]
pub(crate) struct Completions(Ring);

/// Address of a completion: token, status, opcode, `vendor_err`, `byte_len`, key, queue pair.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wc(*mut u64, bool);

impl Wc {
    fn token(self) -> u64 {
        // SAFETY: an entry that the kernel filled.
        unsafe { self.0.read_volatile() }
    }

    fn word(self, at: usize) -> u32 {
        // SAFETY: as above; the offset is within the entry.
        unsafe { self.0.cast::<u32>().wrapping_add(at / 4).read_volatile() }
    }
}

impl View for Wc {
    fn result(&self) -> Result<Completed, Failure> {
        match self.word(8) {
            0 if self.1 => Ok(Completed::Recv),
            0 => Ok(Completed::Send),
            status => {
                Err(Failure { status: Status::General, syndrome: status as u8, vendor_syndrome: 0 })
            }
        }
    }

    fn is_recv(&self) -> bool {
        self.1
    }

    fn byte_len(&self) -> u32 {
        self.word(20)
    }

    fn immediate(&self) -> Option<u32> {
        None
    }

    fn timestamp(&self) -> Option<u64> {
        None
    }

    fn invalidated(&self) -> Option<u32> {
        None
    }

    fn qpn(&self) -> u32 {
        self.word(28)
    }

    fn sender(&self) -> Sender {
        Sender::default()
    }
}

// SAFETY: entries between tail and head are the program's.
unsafe impl crate::CqRing for Completions {
    type Entry = Wc;
    type View<'a> = Wc;
    type Arm = ArmByCommand;

    fn capacity(&self) -> u32 {
        self.0.elements - 1
    }

    fn consumer(&self) -> u32 {
        self.0.at
    }

    fn front(&mut self) -> Option<Wc> {
        let at = self.0.at;
        (self.0.load(0) != at).then(|| Wc(self.0.element(self.0.published).cast(), false))
    }

    fn advance(&mut self) {
        self.0.at = (self.0.at + 1) % self.0.elements;
    }

    fn token(&self, entry: Wc) -> Option<Token> {
        (entry.token() != SWEPT).then(|| Token::unpack(entry.token()))
    }

    fn ended(entry: Wc) -> Ended {
        match entry.word(8) {
            0 => Ended::Done { bytes: entry.word(20) },
            _ => Ended::Failed,
        }
    }

    unsafe fn view<'a>(entry: Wc, is_recv: bool) -> Self::View<'a> {
        Wc(entry.0, is_recv)
    }

    fn publish(&mut self, _: &CqCore) {
        self.0.index(1).store(self.0.at, Ordering::Release);
    }

    fn sweep(&mut self, known: &Known, user_index: u32) {
        let of_shared = known.shared_receives(user_index);
        let count = (self.0.load(0) + self.0.elements - self.0.at) % self.0.elements;
        for ahead in 0..count {
            let entry = Wc(self.0.element(self.0.published.wrapping_add(ahead)).cast(), false);
            let token = Token::unpack(entry.token());
            let is_shared = of_shared == Some((token.user_index, entry.word(28)));
            if is_shared {
                // SAFETY: this is the polling side, and the kernel completed it.
                drop(unsafe { known.take(token, || Ended::Failed) });
            }
            if is_shared || token.user_index == user_index {
                // SAFETY: the entry is the program's.
                unsafe { entry.0.write_volatile(SWEPT) };
            }
        }
    }

    fn arms(&self) -> ArmByCommand {
        ArmByCommand
    }

    fn resize(&mut self, core: &CqCore, entries: u32) -> Result<Pages, Error> {
        let (mut offset, uverbs) = (0u64, core.context().uverbs());
        // SAFETY: the request names no memory, and the handle is the queue's.
        unsafe { uverbs.resize_cq(core.handle(), entries, &[], offset.as_mut_bytes()) }?;
        let Mapped { ring, memory } = ring(uverbs, offset, entries, WC)?;
        self.0 = ring;
        Ok(memory)
    }
}

fn shared(mapped: Mapped<Ring>, max_sge: u32) -> SrqRing<Lab> {
    let Mapped { mut ring, memory } = mapped;
    let producer = ring.load(0);
    (ring.at, ring.published) = (producer, producer);
    let max_wr = ring.elements - 1;
    SrqRing { ring: Recvs(Some(ring)), memory, max_wr, max_sge, producer }
}

// SAFETY: each answer belongs to one object, whose ring has as many elements as were asked for.
unsafe impl Driver for Lab {
    const IDS: &'static [u32] = &[ID];
    const MODULE: &'static str = "lab";
    const TRANSPORTS: &'static [QpType] = &[QpType::Rc];
    const HAS_TRANSPORTS: &'static str = "the lab has RC";
    const MIN_SENDS: u32 = 1;
    const IGNORES_OVERRUN: bool = false;
    const RESIZES: bool = true;
    const SENDS_COMPLETE_IN_ORDER: bool = true;
    const LATE_WORK: LateWork = LateWork::FlushedInErr;

    type SendRing = Sends;
    type RecvRing = Recvs;
    type CqRing = Completions;

    type State = ();
    type CqAnswer = u64;
    type QpAnswer = [u64; 2];
    type SrqAnswer = u64;

    fn get_context(uverbs: &Uverbs) -> Result<Opened<()>, Error> {
        crate::open::<u64>(uverbs, ElementLimits { max_sge: 4, max_inline: 0 })
    }

    fn cq_ring(made: &CqMade<'_, Self>) -> Result<(Mapped<Completions>, u32), Error> {
        let Mapped { ring, memory } = ring(made.uverbs, made.answer, made.entries, WC)?;
        Ok((Mapped { ring: Completions(ring), memory }, made.created.handle))
    }

    fn qp_rings(made: &QpMade<'_, Self>) -> Result<QpRings<Self>, Error> {
        let (cap, [send, recv]) = (made.asked, made.answer);
        let send = ring(made.uverbs, send, cap.max_send_wr, WQE)?;
        let (recv, recv_memory) = match made.init.srq {
            Some(_) => (None, None),
            None => {
                let mapped = ring(made.uverbs, recv, cap.max_recv_wr, WQE)?;
                (Some(mapped.ring), Some(mapped.memory))
            }
        };
        let room = ElementLimits { max_sge: cap.max_send_sge, max_inline: cap.max_inline_data };
        let memory = Arc::new((send.memory, recv_memory));
        Ok(QpRings { send: Sends(send.ring, room), recv: Recvs(recv), cap, memory })
    }

    fn srq_ring(made: &SrqMade<'_, Self>) -> Result<(SrqRing<Self>, u32), Error> {
        let mapped = ring(made.uverbs, made.answer, made.init.max_wr, WQE)?;
        Ok((shared(mapped, made.init.max_sge), made.created.handle))
    }

    /// The driver's part of the request is the address of the new offset.
    fn resize_srq(core: &SrqCore, max_wr: u32, max_sge: u32) -> Result<SrqRing<Self>, Resize> {
        let mut offset = 0u64;
        let request = ((&raw mut offset).expose_provenance() as u64).to_ne_bytes();
        let attr = ib_uverbs_modify_srq {
            srq_handle: core.handle(),
            attr_mask: IB_SRQ_MAX_WR,
            max_wr,
            srq_limit: 0,
        };
        let uverbs = core.pd().context().uverbs();
        // SAFETY: the handle is the queue's, and `offset` a local.
        unsafe { uverbs.modify_srq(&attr, &request) }.map_err(Resize::Unchanged)?;
        let mapped = ring(uverbs, offset, max_wr, WQE).map_err(Resize::Lost)?;
        Ok(shared(mapped, max_sge))
    }

    fn create_ah(_: &Arc<ContextCore>, _: &Arc<PdCore>, _: &AhAttr) -> Result<NoAh, Error> {
        Err(Error::Unsupported { verb: "create_ah", what: "an address handle".to_owned() })
    }
}
