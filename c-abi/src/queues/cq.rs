//! Completion queues: arming and destroying them.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use uverbs::provider::AnyCq;
use uverbs_core::Errno;
use uverbs_core::objects::cq::CqCore;
use uverbs_core::provider::{Armer, CqOps, Notify};
use uverbs_core::queues::shared::QpShared;

use crate::base::answer::{aside, code, refuse};
use crate::base::live::Kind;
use crate::base::lock::{Lock, Stays};
use crate::base::object::Acks;
use crate::device::context::Context;
use crate::memory::parent_domain::Parent;
use crate::poll::current::{PACKETS, SENT_KINDS, Shown, TIMESTAMP};
use crate::post::sent_kinds::{SentKinds, SentQueues};
use crate::queues::channel::Channel;
use crate::queues::direct::DirectCq;
use crate::sys::{ibv_cq, ibv_cq_ex, ibv_gid, ibv_modify_cq_attr};

impl Stays for AnyCq {}

/// Completions taken by a poll before it publishes the consumer index.
///
/// C's providers publish the consumer index when the poll ends. Here a long poll publishes in
/// steps: the queue's [lag](CqCore::lag), or a quarter of the queue if that is more.
///
/// With the lag, a thread may post one request per completion that another thread's poll has taken,
/// and the queue still has room. With the quarter the program must leave a quarter spare, as with
/// C's providers.
#[inline(always)]
pub(crate) fn step(core: &CqCore) -> c_int {
    core.lag().max(core.capacity() / 4) as c_int
}

#[repr(C)]
pub(crate) struct Cq {
    c: UnsafeCell<ibv_cq_ex>,
    /// Dropped before `core`, which owns the memory that the poller points into.
    poll: Lock<AnyCq>,
    /// Arms the queue without its lock, which `start_poll` may hold.
    arm: Armer,
    /// Current completion of an extended queue; guarded by `poll`.
    shown: UnsafeCell<Shown>,
    core: Arc<CqCore>,
    /// True if the device is a thread of this process.
    embedded: bool,
    /// Consumer index at the last empty poll of an embedded device's queue.
    taken: AtomicU32,
    comp_acks: Acks,
    async_acks: Acks,
    /// Parent domain of the queue, if any.
    parent: Option<Arc<Parent>>,
    /// Created by `ibv_create_cq_ex` or mlx5's function.
    is_extended: bool,
    /// Recorded opcodes of sends whose CQEs lack them.
    sent: SentQueues,
    /// Queue pairs whose receives are raw packets, by user index.
    packets: Mutex<Vec<(u32, Weak<QpShared>)>>,
    /// Members that the program asked for ([`TIMESTAMP`] and others), and marks: [`SENT_KINDS`],
    /// [`PACKETS`] and [`UNMATCHED`]. Each poll reads it.
    extras: AtomicU8,
    /// EFA's functions of an extended queue.
    efa: EfaCq,
    /// Ring for a data path of the program's own.
    direct: DirectCq,
}

/// `struct efadv_cq`. Programs call the functions that they asked for when they made the queue.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(crate) struct EfaCq {
    pub(crate) comp_mask: u64,
    pub(crate) wc_read_sgid: Option<unsafe extern "C" fn(*const Self, *mut ibv_gid) -> c_int>,
    pub(crate) wc_is_unsolicited: Option<unsafe extern "C" fn(*const Self) -> bool>,
}

/// Mark: completions were dropped, and the program was not told yet.
const UNMATCHED: u8 = 128;
/// Result of an empty poll after dropped completions (rdma-core `cq.c`, `CQ_POLL_ERR`).
pub(crate) const POLL_ERROR: c_int = -2;

impl Cq {
    pub(crate) fn new(c: ibv_cq_ex, core: Arc<CqCore>, poll: AnyCq, embedded: bool) -> Box<Self> {
        let shown = Shown { left: step(&core), step: step(&core), ..Shown::default() };
        let direct = DirectCq::of(&poll);
        Box::new(Self {
            c: UnsafeCell::new(c),
            arm: poll.armer(),
            poll: Lock::new(poll),
            shown: shown.into(),
            core,
            embedded,
            taken: AtomicU32::new(0),
            comp_acks: Acks::default(),
            async_acks: Acks::default(),
            parent: None,
            is_extended: false,
            sent: SentQueues::default(),
            packets: Mutex::default(),
            extras: AtomicU8::new(0),
            efa: EfaCq::default(),
            direct,
        })
    }

    pub(crate) fn direct(&self) -> &DirectCq {
        &self.direct
    }

    /// Forgets destroyed queue pairs if the program takes the completions itself: no poll does.
    pub(crate) fn settle_beside(&self) {
        if self.direct.is_taken()
            && let Some(mut poll) = self.poll.lock_unless_mine()
            && let AnyCq::Efa(poll) = &mut *poll
        {
            poll.settle_beside();
        }
    }

    /// EFA's functions of a queue.
    ///
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn efa(cq: *mut ibv_cq_ex) -> *mut EfaCq {
        // SAFETY: C's contract: a queue of this library.
        unsafe { &raw mut (*cq.cast::<Self>()).efa }
    }

    /// Returns the queue that contains this struct.
    ///
    /// # Safety
    ///
    /// C's contract: [`efa`](Self::efa) gave it.
    pub(crate) unsafe fn of_efa<'a>(efa: *const EfaCq) -> &'a Self {
        // SAFETY: by the contract of `of_efa`.
        unsafe { &*efa.byte_sub(offset_of!(Self, efa)).cast() }
    }

    /// # Safety
    ///
    /// C's contract.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(cq: *const ibv_cq) -> &'a Self {
        // SAFETY: by C's contract; C's struct is the first member of this object.
        unsafe { &*cq.cast() }
    }

    /// Makes the queue an extended one, which also reads these members out of completions.
    pub(crate) fn extend(&mut self, extras: u8) {
        self.is_extended = true;
        *self.extras.get_mut() = extras;
    }

    /// Sets the parent domain.
    pub(crate) fn set_parent(&mut self, parent: Option<Arc<Parent>>) {
        self.parent = parent;
    }

    pub(crate) fn sent(&self) -> &SentQueues {
        &self.sent
    }

    /// Adds the recorded opcodes of a queue pair that sends to this queue. Called before the
    /// doorbell of the first recorded send.
    pub(crate) fn attach_sent(&self, qpn: u32, kinds: &Arc<SentKinds>) {
        self.sent.attach(qpn, kinds);
        self.look_for(SENT_KINDS);
    }

    /// Adds a queue pair whose receives here are raw packets.
    pub(crate) fn attach_packets(&self, shared: &Arc<QpShared>) {
        let mut packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
        packets.retain(|(_, of)| of.strong_count() != 0);
        packets.push((shared.user_index.value(), Arc::downgrade(shared)));
        drop(packets);
        self.look_for(PACKETS);
    }

    /// Returns true if the queue pair with this user index receives raw packets.
    pub(crate) fn takes_packets(&self, user_index: u32) -> bool {
        let packets = self.packets.lock().unwrap_or_else(PoisonError::into_inner);
        packets.iter().any(|(index, of)| *index == user_index && of.strong_count() != 0)
    }

    /// Sets a mark for later polls. Waits for a poll of another thread, which may have read the
    /// marks.
    pub(crate) fn look_for(&self, extra: u8) {
        let _polls = self.poll.lock_unless_mine();
        self.extras.fetch_or(extra, Ordering::Relaxed);
    }

    /// Extra members of completions, and marks of completions that need a look.
    #[inline(always)]
    pub(crate) fn extras(&self) -> u8 {
        self.extras.load(Ordering::Relaxed)
    }

    /// Returns true if completions may need more than the members of
    /// [`ibv_wc`](crate::sys::ibv_wc).
    #[inline(always)]
    pub(crate) fn has_extras(&self) -> bool {
        self.extras() & (SENT_KINDS | PACKETS) != 0
    }

    /// Result of a poll that found `found` completions: [`POLL_ERROR`] if it found none and
    /// completions were dropped since the last report.
    ///
    /// # Safety
    ///
    /// This thread holds the lock. `strays` is the number of completions the queue dropped.
    #[inline(always)]
    pub(crate) unsafe fn checked(&self, strays: u64, found: c_int) -> c_int {
        // SAFETY: this thread holds the lock.
        let told = unsafe { &mut (*self.shown()).strays };
        if *told == strays {
            return found;
        }
        self.unmatched(told, strays, found)
    }

    #[cold]
    #[inline(never)]
    fn unmatched(&self, told: &mut u64, strays: u64, found: c_int) -> c_int {
        if found != 0 {
            // The next empty poll reports it.
            self.extras.fetch_or(UNMATCHED, Ordering::Relaxed);
            return found;
        }
        *told = strays;
        self.extras.fetch_and(!UNMATCHED, Ordering::Relaxed);
        POLL_ERROR
    }

    pub(crate) fn is_extended(&self) -> bool {
        self.is_extended
    }

    #[inline(always)]
    pub(crate) fn core(&self) -> &Arc<CqCore> {
        &self.core
    }

    #[inline(always)]
    pub(crate) fn poll(&self) -> &Lock<AnyCq> {
        &self.poll
    }

    #[inline(always)]
    pub(crate) fn shown(&self) -> *mut Shown {
        self.shown.get()
    }

    #[inline(always)]
    pub(crate) fn c(&self) -> *mut ibv_cq_ex {
        self.c.get()
    }

    /// Releases the lock after an empty poll, and returns its result. An embedded device does some
    /// work on the thread of a program that busy-polls.
    ///
    /// # Safety
    ///
    /// This thread holds the lock.
    #[inline(always)]
    pub(crate) unsafe fn found_nothing(&self, result: c_int) -> c_int {
        if self.embedded {
            // SAFETY: by the contract of `found_nothing`.
            return unsafe { self.help(result) };
        }
        self.poll.release();
        result
    }

    /// # Safety
    ///
    /// This thread holds the lock.
    #[inline(never)]
    unsafe extern "C" fn help(&self, result: c_int) -> c_int {
        // SAFETY: by the contract of `help`.
        let taken = match unsafe { self.poll.held() } {
            AnyCq::Mlx5(poll) => poll.raw_parts().consumer,
            _ => 0,
        };
        self.poll.release();
        if self.taken.swap(taken, Ordering::Relaxed) != taken {
            self.core.found();
        }
        aside(|| self.core.found_nothing());
        result
    }

    /// Tests for the fast path: no inbox messages, and no extras except the timestamp.
    #[inline(always)]
    pub(crate) fn is_usual(&self) -> bool {
        // The pace is 0 while the inbox has messages.
        self.core.pace() != 0 && self.extras() & !TIMESTAMP == 0
    }

    /// Capacity as programs see it: each poll publishes all its entries.
    pub(crate) fn entries(&self) -> c_int {
        (self.core.capacity() + self.core.lag() - 1) as c_int
    }

    pub(crate) fn comp_acks(&self) -> &Acks {
        &self.comp_acks
    }

    pub(crate) fn async_acks(&self) -> &Acks {
        &self.async_acks
    }
}

pub(crate) unsafe extern "C" fn destroy_cq(cq: *mut ibv_cq) -> c_int {
    // SAFETY: by C's contract.
    let (of, context, channel) = unsafe { (Cq::of(cq), Context::of((*cq).context), (*cq).channel) };
    // SAFETY: by C's contract; the program does not use the queue any more.
    if let Err(error) = unsafe { of.core.destroy() } {
        return code(Err(error));
    }
    context.names().remove(of.core.event_id());
    of.comp_acks.wait();
    of.async_acks.wait();
    // SAFETY: C's contract: a channel outlives its queues.
    unsafe { Channel::count(channel, -1) };
    // SAFETY: the object was kept as a box of this type, and is destroyed.
    drop(unsafe { context.left().take::<Cq>(Kind::Cq, cq.cast()) });
    0
}

pub(crate) unsafe extern "C" fn req_notify_cq(cq: *const ibv_cq, solicited_only: c_int) -> c_int {
    // SAFETY: by C's contract.
    let cq = unsafe { Cq::of(cq) };
    let notify = if solicited_only == 0 { Notify::Any } else { Notify::Solicited };
    if cq.core.events_to_arm().is_err() {
        // C's library writes the doorbell also of a queue without a channel.
        return 0;
    }
    let armed = (cq.arm)(notify);
    if cq.embedded {
        aside(|| cq.core.armed());
    }
    code(armed)
}

/// Resizes a queue to a power of two of entries, as C's provider does.
pub(crate) unsafe extern "C" fn resize_cq(cq: *mut ibv_cq, cqe: c_int) -> c_int {
    if cqe < 0 {
        return refuse(Errno::EINVAL);
    }
    // SAFETY: by C's contract.
    let of = unsafe { Cq::of(cq) };
    let mut poll = of.poll.lock();
    // A queue of more bytes than an `int` holds is refused (rdma-core `mlx5_resize_cq`).
    if i64::from(cqe) * 64 > i64::from(c_int::MAX) {
        return refuse(Errno::EINVAL);
    }
    let done = poll.resize(cqe as u32);
    // Updated on errors, too. SAFETY: the lock is held, which guards the value.
    let shown = unsafe { &mut *of.shown() };
    (shown.left, shown.step) = (step(&of.core), step(&of.core));
    if done.is_ok() {
        let entries = match &*poll {
            AnyCq::Mlx5(poll) => (poll.raw_parts().bytes / poll.raw_parts().stride) as c_int - 1,
            AnyCq::Rxe(_) => of.entries(),
            AnyCq::Siw(_) => of.entries(),
            AnyCq::Rdmavt(_) => of.entries(),
            AnyCq::Efa(_) => of.entries(),
        };
        // SAFETY: by C's contract; programs read it between their calls.
        unsafe { (*of.c()).base.cqe = entries };
    }
    code(done)
}

/// `IBV_CQ_ATTR_MODERATE`.
const MODERATE: u32 = 1;

pub(crate) unsafe extern "C" fn modify_cq(
    cq: *mut ibv_cq,
    attr: *const ibv_modify_cq_attr,
) -> c_int {
    // SAFETY: by C's contract.
    let (of, attr) = unsafe { (Cq::of(cq), &*attr) };
    if attr.attr_mask & !MODERATE != 0 {
        return refuse(Errno::EINVAL);
    }
    let (uverbs, moderate) = (of.core.context().uverbs(), attr.moderate);
    code(uverbs.moderate_cq(of.core.handle(), moderate.cq_count, moderate.cq_period))
}
