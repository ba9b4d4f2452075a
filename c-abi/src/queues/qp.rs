//! Queue pairs: struct, accessors and destruction.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::cell::UnsafeCell;
use std::ffi::c_int;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use uverbs_core::attr::{Gid, MulticastGroup, QpCap};
use uverbs_core::error::Error;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::objects::qp_object::QpObject;
use uverbs_core::objects::rss::RssCore;
use uverbs_core::objects::xrcd::XrcdCore;

use crate::base::answer::code;
use crate::base::convert;
use crate::base::live::Kind;
use crate::base::lock::Lock;
use crate::base::object::Acks;
use crate::device::context::Context;
use crate::memory::mkey::Building;
use crate::memory::parent_domain::Parent;
use crate::post::copies::Copies;
use crate::post::extended::{Ex, Extended, Mlx5QpEx};
use crate::post::posts::Posts;
use crate::post::recv_side::RecvSide;
use crate::post::send::{SendSide, Side};
use crate::post::sent_kinds::SentKinds;
use crate::queues::cq::Cq;
use crate::queues::direct::DirectQp;
use crate::sys::{IBV_SEND_SIGNALED, ibv_gid, ibv_qp, ibv_qp_cap, ibv_qp_ex};

/// Queues that accept posts in the queue pair's state.
#[derive(Default)]
pub(crate) struct Allows {
    pub(crate) send: AtomicBool,
    pub(crate) recv: AtomicBool,
}

/// An XRC target. It keeps its XRC domain.
pub(crate) struct Target {
    pub(crate) object: QpObject,
    pub(crate) _domain: Arc<XrcdCore>,
}

enum Core {
    Queues(Arc<QpCore>),
    Target(Target),
    /// Receives over an indirection table of work queues (RSS).
    Spread(Arc<RssCore>),
}

/// Functions of a queue pair that C programs call through it.
pub(crate) struct Functions {
    pub(crate) posts: &'static Posts,
    pub(crate) mlx5: Mlx5QpEx,
}

#[repr(C)]
pub(crate) struct Qp {
    c: UnsafeCell<ibv_qp_ex>,
    /// `IBV_SEND_SIGNALED` if every send is signaled, else 0.
    signal: u32,
    /// Functions that post its sends.
    posts: &'static Posts,
    send: Lock<SendSide>,
    recv: Lock<RecvSide>,
    core: Core,
    allows: Allows,
    /// True for an extended queue pair (`ibv_wr_*`).
    extended: bool,
    acks: Acks,
    /// True for a target of dynamic connections, whose number is known only in RTR.
    dc_target: bool,
    /// Parent domain of the queue pair, if any.
    parent: Option<Arc<Parent>>,
    /// mlx5's state of an extended queue pair.
    mlx5: Extended,
    /// Rings for a data path of the program's own.
    direct: Option<DirectQp>,
}

impl Qp {
    /// Creates a queue pair. `all` makes every send signaled; `extended` enables `ibv_wr_*`.
    pub(crate) fn new(
        c: ibv_qp_ex,
        core: Arc<QpCore>,
        send: SendSide,
        recv: RecvSide,
        functions: Functions,
        all: bool,
        extended: bool,
    ) -> Box<Self> {
        let direct = DirectQp::of(&send, &recv);
        Box::new(Self {
            posts: functions.posts,
            c: UnsafeCell::new(c),
            send: Lock::new(send),
            recv: Lock::new(recv),
            core: Core::Queues(core),
            allows: Allows::default(),
            signal: if all { IBV_SEND_SIGNALED } else { 0 },
            extended,
            acks: Acks::default(),
            dc_target: false,
            parent: None,
            mlx5: Extended::new(functions.mlx5),
            direct,
        })
    }

    /// Creates an XRC target.
    pub(crate) fn target(c: ibv_qp_ex, functions: Functions, target: Target) -> Box<Self> {
        Self::without_queues(c, functions, Core::Target(target))
    }

    /// Creates a queue pair over an indirection table.
    pub(crate) fn spread(c: ibv_qp_ex, functions: Functions, core: Arc<RssCore>) -> Box<Self> {
        Self::without_queues(c, functions, Core::Spread(core))
    }

    fn without_queues(c: ibv_qp_ex, functions: Functions, core: Core) -> Box<Self> {
        Box::new(Self {
            c: UnsafeCell::new(c),
            posts: functions.posts,
            send: Lock::new(SendSide::None),
            recv: Lock::new(RecvSide::None),
            core,
            allows: Allows::default(),
            signal: 0,
            extended: false,
            acks: Acks::default(),
            dc_target: false,
            parent: None,
            mlx5: Extended::new(functions.mlx5),
            direct: None,
        })
    }

    pub(crate) fn direct(&self) -> Option<&DirectQp> {
        self.direct.as_ref()
    }

    /// mlx5's state of an extended queue pair.
    ///
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn mlx5(qp: *mut ibv_qp) -> *mut Extended {
        // SAFETY: the struct is a member of a queue pair of this library.
        unsafe { &raw mut (*qp.cast::<Self>()).mlx5 }
    }

    /// State for memory copies, if created for them.
    pub(crate) fn copies(&self) -> Option<&Copies> {
        self.mlx5.copies.as_ref()
    }

    /// Returns true if it was created for raw WQEs.
    pub(crate) fn takes_raw_wqes(&self) -> bool {
        self.mlx5.takes_raw_wqes
    }

    /// Recorded opcodes of sends whose CQEs lack them.
    pub(crate) fn sent_kinds(&self) -> &SentKinds {
        &self.mlx5.sent_kinds
    }

    /// Records the opcode of the send at `index`, whose CQE lacks it. Called before the doorbell.
    #[cold]
    pub(crate) fn note_sent(&self, index: Option<u16>, opcode: u32) {
        let (kinds, Some(index)) = (&self.mlx5.sent_kinds, index) else { return };
        if !kinds.attach() {
            // SAFETY: C's contract: a queue that a queue pair completes to outlives it.
            let base = unsafe { &(*self.c()).qp_base };
            // SAFETY: C's contract: a completion queue outlives the queue pairs that use it.
            let (cq, qpn) = unsafe { (Cq::of(base.send_cq), base.qp_num) };
            cq.attach_sent(qpn, kinds);
        }
        kinds.push(index, opcode);
    }

    /// Enables copies and raw WQEs.
    pub(crate) fn set_operations(&mut self, copies: Option<Copies>, raw_wqes: bool) {
        (self.mlx5.copies, self.mlx5.takes_raw_wqes) = (copies, raw_wqes);
    }

    /// Discards what was built and not posted: an unfinished mkey layout, and the recorded opcodes.
    ///
    /// # Safety
    ///
    /// This thread holds the lock of the send queue.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn give_up(&self) {
        // SAFETY: by the contract of `give_up`.
        let side = unsafe {
            self.mlx5.forget();
            self.send().held()
        };
        if let SendSide::Mlx5(side) = side {
            self.sent_kinds().cut(side.sq.raw_parts().producer as u16);
        }
    }

    /// Returns the queue pair that contains this struct.
    ///
    /// # Safety
    ///
    /// C's contract: [`mlx5`](Self::mlx5) gave it.
    pub(crate) unsafe fn of_mlx5<'a>(extended: *const Extended) -> &'a Self {
        // SAFETY: by the contract of `of_mlx5`.
        unsafe { &*extended.byte_sub(offset_of!(Self, mlx5)).cast() }
    }

    /// Queue pair, send side and unfinished mkey layout; `None` after a failed post.
    ///
    /// # Safety
    ///
    /// C's contract: a post is being built, by this thread.
    pub(crate) unsafe fn of_extended<'a>(
        ex: Ex,
    ) -> Option<(&'a Self, &'a mut Side<uverbs_mlx5::Sq>, &'a mut Option<Building>)> {
        // SAFETY: C's contract.
        let qp = unsafe { Self::of_mlx5(ex.cast()) };
        // SAFETY: by C's contract this thread holds the lock.
        let (side, building) = unsafe { (qp.send().held(), &mut *qp.mlx5.building()) };
        let SendSide::Mlx5(side) = side else { return None };
        // Not rung at once: the batch has more than requests built by `wr_*`.
        side.build.open = Default::default();
        side.build.failed.is_none().then_some((qp, side, building))
    }

    /// Marks a target of dynamic connections.
    pub(crate) fn set_dc_target(&mut self, is_target: bool) {
        self.dc_target = is_target;
    }

    pub(crate) fn is_dc_target(&self) -> bool {
        self.dc_target
    }

    /// Sets the parent domain.
    pub(crate) fn set_parent(&mut self, parent: Option<Arc<Parent>>) {
        self.parent = parent;
    }

    /// # Safety
    ///
    /// C's contract.
    #[inline(always)]
    pub(crate) unsafe fn of<'a>(qp: *const ibv_qp) -> &'a Self {
        // SAFETY: by C's contract; C's struct is the first member of this object.
        unsafe { &*qp.cast() }
    }

    #[inline(always)]
    pub(crate) fn c(&self) -> *mut ibv_qp_ex {
        self.c.get()
    }

    #[inline(always)]
    pub(crate) fn send(&self) -> &Lock<SendSide> {
        &self.send
    }

    #[inline(always)]
    pub(crate) fn recv(&self) -> &Lock<RecvSide> {
        &self.recv
    }

    #[inline(always)]
    pub(crate) fn signal(&self) -> u32 {
        self.signal
    }

    #[inline(always)]
    pub(crate) fn posts(&self) -> &'static Posts {
        self.posts
    }

    /// Type of the queue pair (`IBV_QPT_*`).
    #[inline(always)]
    pub(crate) fn kind(&self) -> u32 {
        // SAFETY: the member is not changed after the creation.
        unsafe { (*self.c()).qp_base.qp_type }
    }

    /// Kernel object, number and state of the queue pair.
    pub(crate) fn object(&self) -> &QpObject {
        match &self.core {
            Core::Queues(core) => core,
            Core::Target(target) => &target.object,
            Core::Spread(core) => core.object(),
        }
    }

    /// Returns true for a queue pair over an indirection table.
    pub(crate) fn is_spread(&self) -> bool {
        matches!(self.core, Core::Spread(_))
    }

    /// Core of a queue pair; `None` without queues.
    pub(crate) fn core(&self) -> Option<&Arc<QpCore>> {
        if let Core::Queues(core) = &self.core { Some(core) } else { None }
    }

    /// Destroys the kernel's object.
    ///
    /// # Safety
    ///
    /// The program posts no more work requests.
    unsafe fn end(&self) -> Result<(), Error> {
        // SAFETY: by the contract of `end`.
        unsafe {
            match &self.core {
                Core::Queues(core) => core.destroy(),
                Core::Target(target) => target.object.destroy().map(drop),
                Core::Spread(core) => core.destroy(),
            }
        }
    }

    pub(crate) fn allows(&self) -> &Allows {
        &self.allows
    }

    pub(crate) fn acks(&self) -> &Acks {
        &self.acks
    }
}

/// `IBV_QPT_UC`, `IBV_QPT_UD`, `IBV_QPT_RAW_PACKET`, `IBV_QPT_XRC_SEND`, `IBV_QPT_XRC_RECV`,
/// `IBV_QPT_DRIVER` (vendor-specific).
pub(crate) const UC: u32 = 3;
pub(crate) const UD: u32 = 4;
pub(crate) const RAW_PACKET: u32 = 8;
pub(crate) const XRC_SEND: u32 = 9;
pub(crate) const XRC_RECV: u32 = 10;
pub(crate) const DRIVER: u32 = 0xff;

/// Granted sizes for programs: with a shared receive queue, receives are 0.
pub(crate) fn granted(cap: &QpCap, shared: bool) -> ibv_qp_cap {
    let mut granted = convert::cap_to(cap);
    if shared {
        (granted.max_recv_wr, granted.max_recv_sge) = (0, 0);
    }
    granted
}

pub(crate) unsafe extern "C" fn destroy_qp(qp: *mut ibv_qp) -> c_int {
    // SAFETY: by C's contract.
    let (of, context) = unsafe { (Qp::of(qp), Context::of((*qp).context)) };
    // SAFETY: by C's contract; the program posts no more work requests.
    if let Err(error) = unsafe { of.end() } {
        return code(Err(error));
    }
    // SAFETY: C's contract: completion queues outlive the queue pairs that complete to them.
    let cqs = unsafe { [(*qp).send_cq, (*qp).recv_cq] };
    for cq in cqs.into_iter().filter(|cq| !cq.is_null()) {
        // SAFETY: the same.
        unsafe { Cq::of(cq) }.settle_beside();
    }
    context.names().remove(of.object().event_id());
    of.acks.wait();
    of.send.end();
    // SAFETY: the object was kept as a box of this type, and is destroyed.
    drop(unsafe { context.left().take::<Qp>(Kind::Qp, qp.cast()) });
    0
}

/// # Safety
///
/// C's contract.
unsafe fn group(gid: *const ibv_gid, lid: u16) -> MulticastGroup {
    // SAFETY: by C's contract.
    MulticastGroup { gid: Gid(unsafe { *gid }.raw), lid }
}

pub(crate) unsafe extern "C" fn attach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    lid: u16,
) -> c_int {
    // SAFETY: by C's contract.
    let attached = unsafe { Qp::of(qp).object().attach(&group(gid, lid)) };
    code(match attached {
        // Repeated attach succeeds, as in the kernel (`ib_uverbs_attach_mcast`).
        Err(Error::Invalid { what: "group", .. }) => Ok(()),
        other => other,
    })
}

pub(crate) unsafe extern "C" fn detach_mcast(
    qp: *mut ibv_qp,
    gid: *const ibv_gid,
    lid: u16,
) -> c_int {
    // SAFETY: by C's contract.
    code(unsafe { Qp::of(qp).object().detach(&group(gid, lid)) })
}

/// Reports no in-order guarantees of data: no provider's device gives one.
pub(crate) unsafe extern "C" fn data_in_order(_: *mut ibv_qp, _: c_int, _: u32) -> c_int {
    0
}

pub(crate) unsafe extern "C" fn qp_to_qp_ex(qp: *mut ibv_qp) -> *mut ibv_qp_ex {
    // SAFETY: by C's contract.
    if unsafe { Qp::of(qp) }.extended { qp.cast() } else { std::ptr::null_mut() }
}
