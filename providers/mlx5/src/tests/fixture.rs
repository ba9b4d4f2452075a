//! Queues over heap memory.
#![allow(unsafe_code, reason = "allocates the memory that queues live in, and reads it back")]

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use uverbs_core::memory::frame::Slab;
use uverbs_core::memory::mapping::Mapping;
use uverbs_core::objects::cq::{CqCore, CqRoom, Message, Roles};
use uverbs_core::objects::mr::MrCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::RqOps;
use uverbs_core::provider::SendOps;
use uverbs_core::queues::shared::QpShared;
use uverbs_core::queues::slot::RingPosition;
use uverbs_core::queues::slots::SlotTable;
use uverbs_core::queues::srq::SrqShared;
use uverbs_core::queues::user_index::UserIndexes;
use uverbs_mlx5_prm::wqe::Service;

use crate::cq::{CqParts, UNWRITTEN, fill};
use crate::recv::queue::RqParts;
use crate::recv::srq::SrqParts;
use crate::send::doorbell::Doorbell;
use crate::send::packet::Packets;
use crate::send::queue::SqParts;
use crate::send::wqe::WqeLimits;
use crate::{Cq, Rq, Sq, Srq};

use super::door::Door;

/// Zeroed memory, aligned to 64 bytes.
#[derive(Debug)]
pub(crate) struct Heap {
    start: *mut u8,
    layout: Layout,
}

// SAFETY: plain memory, which the tests use from one thread at a time.
unsafe impl Send for Heap {}
// SAFETY: plain memory, which the tests use from one thread at a time.
unsafe impl Sync for Heap {}

impl Heap {
    pub(crate) fn new(bytes: usize) -> Self {
        let layout = Layout::from_size_align(bytes.max(64), 64).unwrap();
        // SAFETY: the size isn't 0.
        let start = unsafe { alloc_zeroed(layout) };
        assert!(!start.is_null());
        Self { start, layout }
    }

    pub(crate) fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.layout.size());
        self.start.wrapping_add(offset)
    }

    pub(crate) fn read(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= self.layout.size());
        // SAFETY: in bounds, and no one writes it meanwhile.
        unsafe { std::slice::from_raw_parts(self.at(offset), len) }.to_vec()
    }

    pub(crate) fn write(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.layout.size());
        // SAFETY: in bounds, and no one reads it meanwhile.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.at(offset), bytes.len()) };
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, freed once.
        unsafe { dealloc(self.start, self.layout) };
    }
}

pub(crate) const QPN: u32 = 0x12_3456;

/// Size of a half of the register, which has two.
pub(crate) const HALF: usize = 256;

/// Guard bytes around a ring, to detect stores outside it.
const GUARD: usize = 1024;
const GUARD_BYTE: u8 = 0x5a;
/// Byte that `come_to` fills the ring with.
const STAIN: u8 = 0xee;

thread_local! {
    /// User indexes, unique among the queue pairs of a completion queue.
    static INDEXES: UserIndexes = UserIndexes::default();
}

pub(crate) fn shared(units: u32, entries: u32) -> Arc<QpShared> {
    Arc::new(QpShared {
        user_index: INDEXES.with(|indexes| indexes.take("create_qp")).unwrap(),
        send: SlotTable::new(units),
        recv: SlotTable::new(entries),
        srq: None,
        qpn: QPN,
        special: None,
    })
}

/// A send queue of `units` WQEBBs in state RTS.
pub(crate) struct SendSide {
    pub(crate) sq: Sq,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) ring: Arc<Heap>,
    pub(crate) record: Arc<Heap>,
    pub(crate) register: Arc<Heap>,
    pub(crate) units: u32,
}

impl SendSide {
    pub(crate) fn new(units: u32, room: WqeLimits, blue_flame: bool) -> Self {
        Self::made(units, units, room, blue_flame, Service::Rc)
    }

    /// A queue created for fewer requests than WQEBBs.
    pub(crate) fn with_max_wr(units: u32, max_wr: u32, room: WqeLimits) -> Self {
        Self::made(units, max_wr, room, true, Service::Rc)
    }

    /// A queue for datagrams.
    pub(crate) fn of_datagrams(units: u32, room: WqeLimits) -> Self {
        Self::made(units, units, room, true, Service::Ud)
    }

    /// A queue for datagrams, created for fewer requests than WQEBBs.
    pub(crate) fn of_datagrams_with_max_wr(units: u32, max_wr: u32, room: WqeLimits) -> Self {
        Self::made(units, max_wr, room, true, Service::Ud)
    }

    pub(crate) fn of_initiators(units: u32, room: WqeLimits) -> Self {
        Self::made(units, units, room, true, Service::Dc)
    }

    /// A queue for raw packets.
    pub(crate) fn of_packets(units: u32, room: WqeLimits, packets: Packets) -> Self {
        Self::with_packets((units, units), room, true, Service::Raw, Some(packets))
    }

    fn made(units: u32, max_wr: u32, room: WqeLimits, blue_flame: bool, service: Service) -> Self {
        Self::with_packets((units, max_wr), room, blue_flame, service, None)
    }

    fn with_packets(
        (units, max_wr): (u32, u32),
        room: WqeLimits,
        blue_flame: bool,
        service: Service,
        packets: Option<Packets>,
    ) -> Self {
        let ring = Arc::new(Heap::new(units as usize * 64 + 2 * GUARD));
        ring.write(0, &[GUARD_BYTE; GUARD]);
        ring.write(GUARD + units as usize * 64, &[GUARD_BYTE; GUARD]);
        let (record, register) = (Arc::new(Heap::new(64)), Arc::new(Heap::new(2 * HALF)));
        let doorbell = if blue_flame {
            Doorbell::blue_flame(register.at(0), HALF as u32, Arc::new(AtomicU32::new(0)))
        } else {
            Doorbell::non_cached(register.at(0).cast())
        };
        let shared = shared(units, 0);
        let parts = SqParts {
            start: ring.at(GUARD),
            units,
            max_wr,
            record: record.at(0).cast(),
            doorbell,
            qpn: QPN,
            room,
            service,
            rekeys: service != Service::Ud,
            packets,
            shared: Arc::clone(&shared),
            page_offset: 0,
            memory: Arc::new((Arc::clone(&ring), Arc::clone(&record), Arc::clone(&register))),
        };
        // SAFETY: aligned to 64 bytes, as long as `units`, kept by `memory`; the first poster.
        let mut sq = unsafe { Sq::new(parts) };
        sq.enable(true);
        Self { sq, shared, ring, record, register, units }
    }

    /// Advances to ring position `start` and stains the ring. The next post is the queue's first,
    /// or with `post`, which posts one WQEBB that completes, a later one with known room.
    pub(crate) fn come_to(&mut self, start: u32, post: Option<impl FnOnce(&mut Self)>) {
        match post {
            Some(post) => {
                self.sq.start_at(start.wrapping_sub(1));
                post(self);
                self.retire(start);
            }
            None => self.sq.start_at(start),
        }
        self.stain(STAIN);
    }

    /// Asserts that a WQE at ring position `start` is published, and that bytes behind it are
    /// unchanged. `bytes` are the ring's bytes from there on.
    #[track_caller]
    pub(crate) fn assert_alone(&self, start: u32, bytes: &[u8], ds: u8) {
        let len = usize::from(ds) * 16;
        assert!(bytes[len..].iter().all(|&byte| byte == STAIN), "written behind the WQE");
        assert_eq!(self.send_record(), start + len.div_ceil(64) as u32);
        self.assert_guards();
    }

    /// Reads the ring from WQEBB `index` on, around the end.
    pub(crate) fn bytes(&self, index: u32, len: usize) -> Vec<u8> {
        let all = self.ring.read(GUARD, self.units as usize * 64);
        let start = (index % self.units) as usize * 64;
        all.iter().cycle().skip(start).take(len).copied().collect()
    }

    /// Return value of a post whose WQE begins at WQEBB `index`.
    pub(crate) fn place(&self, index: u32) -> u32 {
        index % self.units
    }

    pub(crate) fn assert_guards(&self) {
        for at in [0, GUARD + self.units as usize * 64] {
            assert_eq!(self.ring.read(at, GUARD), [GUARD_BYTE; GUARD], "a store missed the ring");
        }
    }

    /// Fills the ring with a byte that no test's WQE has in its padding.
    pub(crate) fn stain(&self, byte: u8) {
        self.ring.write(GUARD, &vec![byte; self.units as usize * 64]);
    }

    /// Content of both halves of the register, one after the other.
    pub(crate) fn rung(&self) -> Vec<u8> {
        let [first, second] = [0, HALF].map(|at| self.register.read(at, HALF));
        first.iter().zip(&second).map(|(a, b)| a | b).collect()
    }

    pub(crate) fn send_record(&self) -> u32 {
        u32::from_be_bytes(self.record.read(4, 4).try_into().unwrap())
    }

    /// Acts as the poller: retires everything before `end`.
    pub(crate) fn retire(&self, end: u32) {
        let mut position = self.shared.send.reached();
        while position.end() != end {
            // SAFETY: the test is poster and poller.
            let next = unsafe { self.shared.send.take(position.end()) }.position;
            if next.end().wrapping_sub(position.end()) > end.wrapping_sub(position.end()) {
                // Inside a work request, which no device does.
                position = RingPosition::new(end, position.posted());
                break;
            }
            position = next;
        }
        // SAFETY: the test is poster and poller.
        unsafe { self.shared.send.retire(position) };
    }
}

/// A receive queue in state INIT.
pub(crate) struct RecvSide {
    pub(crate) rq: Rq,
    pub(crate) shared: Arc<QpShared>,
    pub(crate) ring: Arc<Heap>,
    pub(crate) record: Arc<Heap>,
}

impl RecvSide {
    pub(crate) fn new(entries: u32, shift: u32, max_sge: u32) -> Self {
        Self::of_a_part((entries, entries), shift, max_sge)
    }

    /// A queue that may use `max_wr` of its `entries`.
    pub(crate) fn of_a_part((max_wr, entries): (u32, u32), shift: u32, max_sge: u32) -> Self {
        let ring = Arc::new(Heap::new((entries as usize) << shift));
        let record = Arc::new(Heap::new(64));
        let shared = shared(0, entries);
        let parts = RqParts {
            start: ring.at(0),
            entries,
            max_wr,
            shift,
            max_sge,
            record: record.at(0).cast(),
            qpn: QPN,
            shared: Arc::clone(&shared),
            memory: Arc::new((Arc::clone(&ring), Arc::clone(&record))),
        };
        // SAFETY: aligned to 64 bytes, as long as `entries`, kept by `memory`; the first poster.
        let mut rq = unsafe { Rq::new(parts) };
        rq.enable(true);
        Self { rq, shared, ring, record }
    }

    pub(crate) fn recv_record(&self) -> u32 {
        u32::from_be_bytes(self.record.read(0, 4).try_into().unwrap())
    }
}

/// A shared receive queue of `entries` WQEs, one of which can't be posted.
pub(crate) struct SharedSide {
    pub(crate) srq: Srq,
    pub(crate) shared: Arc<SrqShared>,
    pub(crate) ring: Arc<Heap>,
    record: Arc<Heap>,
}

impl SharedSide {
    /// Creates the queue in stained memory.
    pub(crate) fn new(entries: u32, shift: u32, max_sge: u32) -> Self {
        let ring = Arc::new(Heap::new((entries as usize) << shift));
        ring.write(0, &vec![0xee; (entries as usize) << shift]);
        let record = Arc::new(Heap::new(64));
        let shared = Arc::new(SrqShared::new(entries, None));
        let parts = SrqParts {
            start: ring.at(0),
            shift,
            max_sge,
            record: record.at(0).cast(),
            srqn: 0x99,
            shared: Arc::clone(&shared),
            memory: Arc::new((Arc::clone(&ring), Arc::clone(&record))),
            tags: None,
        };
        // SAFETY: aligned to 64 bytes, as long as `entries`, kept by `memory`; the first poster.
        let srq = unsafe { Srq::new(parts) };
        Self { srq, shared, ring, record }
    }

    /// Creates a queue pair that receives from it.
    pub(crate) fn user(&self) -> Arc<QpShared> {
        Arc::new(QpShared {
            user_index: UserIndexes::default().take("create_qp").unwrap(),
            send: SlotTable::new(0),
            recv: SlotTable::none(),
            srq: Some(Arc::clone(&self.shared)),
            qpn: QPN,
            special: None,
        })
    }

    pub(crate) fn record(&self) -> u32 {
        u32::from_be_bytes(self.record.read(0, 4).try_into().unwrap())
    }
}

/// A completion queue, and the device's side of it.
pub(crate) struct PollSide {
    pub(crate) cq: Cq,
    pub(crate) core: Arc<CqCore>,
    pub(crate) ring: Arc<Heap>,
    pub(crate) record: Arc<Heap>,
    entries: u32,
    stride: usize,
    /// The device's producer index.
    pub(crate) pi: u32,
}

impl PollSide {
    pub(crate) fn new(entries: u32, shift: u32) -> Self {
        Self::made(entries, shift, false)
    }

    /// A completion queue whose device may compress CQEs.
    pub(crate) fn compressed(entries: u32) -> Self {
        Self::made(entries, 6, true)
    }

    fn made(entries: u32, shift: u32, compressed: bool) -> Self {
        let ring = Arc::new(Heap::new((entries as usize) << shift));
        let record = Arc::new(Heap::new(64));
        let page = Arc::new(Heap::new(64));
        let memory = Box::new((Arc::clone(&ring), Arc::clone(&record), Arc::clone(&page)));
        let (of, room) = (Door::new().core(), CqRoom::new(entries - 1, entries));
        // SAFETY: behind the test's door there is no queue to take away from anybody.
        let core = unsafe { CqCore::new(of, 1, 0x777, room, 0, None, memory) };
        // SAFETY: as long as the ring.
        unsafe { fill(ring.at(0), entries, shift) };
        let parts = CqParts {
            start: ring.at(0),
            entries,
            shift,
            record: record.at(0).cast(),
            arm: page.at(32).cast(),
            core: Arc::clone(&core),
            resizing: None,
            compressed,
        };
        // SAFETY: aligned, filled, kept by `core`; the first poller.
        let cq = unsafe { Cq::new(parts) };
        assert!(
            (0..entries as usize)
                .all(|entry| { ring.read(((entry + 1) << shift) - 1, 1) == [UNWRITTEN] })
        );
        Self { cq, core, ring, record, entries, stride: 1 << shift, pi: 0 }
    }

    pub(crate) fn attach(&self, shared: &Arc<QpShared>) {
        let roles = Roles { send: true, recv: true };
        // SAFETY: of this test, once.
        unsafe { self.core.tell(Message::Attach(Arc::clone(shared), roles)) };
    }

    /// Writes a CQE like the device, with the ownership bit of its turn.
    pub(crate) fn complete(&mut self, mut cqe: [u8; 64]) {
        let turn = (self.pi / self.entries) as u8 & 1;
        cqe[63] = cqe[63] & !1 | turn;
        let end = ((self.pi % self.entries) as usize + 1) * self.stride;
        self.ring.write(end - 64, &cqe);
        self.pi = self.pi.wrapping_add(1);
    }

    pub(crate) fn consumer_record(&self) -> u32 {
        u32::from_be_bytes(self.record.read(0, 4).try_into().unwrap())
    }
}

/// Frames unknown to any device. Their memory is mapped, so Miri can't run this.
pub(crate) fn slab(frame_len: u32, count: u32) -> Slab {
    // SAFETY: behind the test's door there is nothing to take away from anybody.
    let pd = unsafe { PdCore::new(Door::new().core(), 1) };
    // SAFETY: behind the test's door there is nothing to take away from anybody.
    let region = unsafe { MrCore::new(pd, 1, 0x1100, 0x1100) };
    let memory = Mapping::new(frame_len as usize * count as usize).unwrap();
    // SAFETY: new and zeroed, and no device knows of it.
    unsafe { Slab::new(memory, region, frame_len, count) }
}

/// Number of free frames.
pub(crate) fn free(slab: &Slab) -> usize {
    std::iter::from_fn(|| slab.take()).collect::<Vec<_>>().len()
}
