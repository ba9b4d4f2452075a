//! Tag list of a tag-matching shared receive queue, and its changes: work requests of a queue pair
//! that is connected to itself and sends no messages (rdma-core `verbs.c:create_cmd_qp`,
//! `qp.c:mlx5_post_srq_ops`).
//!
//! The device uses the places of the list in the order in which they became free. Each work request
//! that adds a tag names the place of the next one, and [`TagTable`] keeps the places in that
//! order.
//!
//! # Safety
//!
//! This is the only poster of its queue pair. It writes WQEs for which the send queue has room, and
//! takes places from the front of the list of free places.
#![allow(unsafe_code, reason = "writes WQEs into a ring that the device reads")]

use std::fmt;
use std::sync::Arc;

use uverbs_core::attr::{LinkLayer, PortAttr, QpAttrMask, QpCap, QpState, QpType, RawQpAttr};
use uverbs_core::error::Error;
use uverbs_core::memory::registered::Held;
use uverbs_core::objects::qp::QpCore;
use uverbs_core::objects::srq::SrqCore;
use uverbs_core::provider::{NewQp, QpInit, SendOps, SrqInit, TagsInit};
use uverbs_core::queues::tag_changes::Changed;
use uverbs_core::queues::tag_table::TagTable;
use uverbs_core::queues::tag_work::{Tag, TagHandle, TagOp, TagWr};
use uverbs_core::queues::work::{PostError, SendFlags};
use uverbs_mlx5_prm::ctrl::DS_BYTES;
use uverbs_mlx5_prm::data::{DATA_SEG_MAX, mlx5_wqe_data_seg};
use uverbs_mlx5_prm::opcode::Opcode;
use uverbs_mlx5_prm::tag::{TmFlags, TmOpcode, mlx5_wqe_tm_seg};
use zerocopy::transmute;

use crate::create::qp::create_qp;
use crate::create::size::SendSize;
use crate::send::queue::SendCursor;
use crate::send::wqe::{Words, data_segment, raw_ctrl, store};
use crate::{Context, Sq};

const VERB: &str = "create_srq";
/// Port of the queue pair of changes; no packet leaves it.
const PORT: u8 = 1;
/// The smallest MTU, `IBV_MTU_256`.
const MTU: u8 = 1;
/// 16-byte units of a WQE: control segment and a tag segment of two units; a WQE that adds a tag
/// also has a data segment.
const CHANGE: u32 = 3;
const ADD: u32 = 4;

/// Poster of changes to the list.
pub(crate) struct TagQueue {
    sq: Sq,
    core: Arc<QpCore>,
    table: Arc<TagTable>,
    /// Cursor behind the last written change.
    at: SendCursor,
    /// Front of the list of free places: as written, and as rung; and the number of places between.
    head: u32,
    rung_head: u32,
    added: u32,
    /// Count of handled unexpected messages that the device was told: by rung changes, and by
    /// written ones.
    rung_told: u16,
    told: u16,
    /// Places whose removal is written and not rung: with a completion, and without. Their capacity
    /// never grows.
    removed: Vec<u32>,
    dropped: Vec<u32>,
    /// Number of tags that each place has had.
    turns: Box<[u32]>,
}

/// Granted sizes of a list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TagSize {
    pub(crate) tags: u32,
    /// WQEBBs of the queue of changes, the maximum number of outstanding changes.
    pub(crate) units: u32,
}

fn cap(tags: &TagsInit) -> QpCap {
    QpCap {
        max_send_wr: tags.max_changes,
        max_recv_wr: 0,
        max_send_sge: 1,
        max_recv_sge: 0,
        max_inline_data: 0,
    }
}

fn check(what: &'static str, value: u32, limit: u32) -> Result<(), Error> {
    match value {
        0 => Err(Error::Limit { verb: VERB, what, value: 0, limit: 1 }),
        _ => Error::limit(VERB, what, value, limit),
    }
}

impl TagQueue {
    /// Rejects sizes above the device's limits. `None` for a queue without tags.
    pub(crate) fn check(context: &Context, init: &SrqInit) -> Result<Option<TagSize>, Error> {
        let Some(tags) = &init.tags else { return Ok(None) };
        let refused = |what: &str| Error::Unsupported { verb: VERB, what: what.to_owned() };
        if init.xrc.is_some() {
            return Err(refused("a queue for XRC that matches tags"));
        }
        let most = context.attr().tm;
        if most.max_num_tags == 0 {
            return Err(refused("tag matching"));
        }
        // A place has 16 bits in WQEs and in CQEs.
        check("max_tags", tags.max_tags, most.max_num_tags.min(u16::MAX.into()))?;
        check("max_tag_changes", tags.max_changes, most.max_ops)?;
        let size = SendSize::new(QpType::Rc, None, &cap(tags), &context.limits)?;
        Ok(Some(TagSize { tags: tags.max_tags, units: size.units }))
    }

    /// Creates the queue pair of changes, and connects it.
    pub(crate) fn new(
        context: &Context,
        init: &SrqInit,
        srq: &Arc<SrqCore>,
        (tags, table): (&TagsInit, Arc<TagTable>),
    ) -> Result<Box<Self>, Error> {
        let PortAttr { lid, link_layer, .. } = context.core.uverbs().query_port(PORT)?;
        // On Ethernet Linux rejects the queue pair of changes, because its address has no GRH
        // (`rdma_check_ah_attr`).
        if link_layer == LinkLayer::Ethernet {
            let what = "tag matching on an Ethernet port".to_owned();
            return Err(Error::Unsupported { verb: VERB, what });
        }
        let cq = &tags.cq;
        let mut made = QpInit::new(Arc::clone(&init.pd), Arc::clone(cq), Arc::clone(cq));
        made.srq = Some(Arc::clone(srq));
        made.cap = cap(tags);
        made.allocator = init.allocator.clone();
        let NewQp { core, mut sq, .. } = create_qp(context, &made)?;
        connect(&core, lid)?;
        sq.enable(true);
        // SAFETY: only `change` posts to this queue pair.
        unsafe { table.commanded_by(Arc::clone(core.shared())) };
        let (at, places) = (sq.begin(), table.tags() as usize + 1);
        let [removed, dropped] = [(); 2].map(|()| Vec::with_capacity(sq.units() as usize));
        Ok(Box::new(Self {
            sq,
            core,
            table,
            at,
            head: 0,
            rung_head: 0,
            added: 0,
            rung_told: 0,
            told: 0,
            removed,
            dropped,
            turns: vec![0; places].into(),
        }))
    }

    /// Takes back changes that were written and not rung.
    pub(crate) fn begin(&mut self) {
        if self.at.pi() != self.sq.producer() {
            // SAFETY: not rung, so they are at the list's front, which the poster owns.
            unsafe { self.table.disown(self.rung_head, self.added) };
            for place in self.removed.drain(..) {
                // SAFETY: `will_remove` returned true when this change was written, which was never
                // rung.
                unsafe { self.table.wont_remove(place) };
            }
            self.dropped.clear();
            self.table.tell(self.rung_told);
            self.keep();
        }
        self.at = self.sq.begin();
    }

    /// Continues behind the rung changes.
    fn keep(&mut self) {
        (self.head, self.added) = (self.rung_head, 0);
        self.told = self.rung_told;
    }

    /// See [`SrqOps::change_tags`](uverbs_core::provider::SrqOps::change_tags).
    ///
    /// # Safety
    ///
    /// The contract of that method.
    pub(crate) unsafe fn change(&mut self, wr: TagWr, op: &TagOp) -> Result<TagHandle, PostError> {
        if self.core.shared().send.has_failed() {
            return Err(PostError::State);
        }
        match *op {
            // SAFETY: contract of `change`.
            TagOp::Add { tag, recv_id, into } => unsafe {
                self.add(wr, tag, recv_id, data_segment(&into), into.len)
            },
            TagOp::Remove(handle) => self.remove(wr, handle),
            TagOp::Sync => {
                self.sq.reserve(&mut self.at, 1)?;
                let segment = self.segment(wr, TmOpcode::NOP, 0);
                self.write(wr, (segment, None), (false, None));
                Ok(TagHandle::new(0, 0))
            }
        }
    }

    /// # Safety
    ///
    /// As for `change`.
    unsafe fn add(
        &mut self,
        wr: TagWr,
        tag: Tag,
        recv_id: u64,
        data: Words,
        len: u32,
    ) -> Result<TagHandle, PostError> {
        if len > DATA_SEG_MAX {
            return Err(PostError::MessageTooLong);
        }
        let place = self.head;
        let next = self.table.behind(place).ok_or(PostError::TagsFull)?;
        self.sq.reserve(&mut self.at, 1)?;
        let mut segment = self.segment(wr, TmOpcode::APPEND, next as u16);
        segment.append_tag.set(tag.value);
        segment.append_mask.set(tag.mask);
        let none: Words = transmute!(mlx5_wqe_data_seg::TERMINATOR);
        let data = if len == 0 { none } else { data };
        // SAFETY: at the list's front, and not the last, because another place follows; this is the
        // only poster.
        unsafe { self.table.put(place, recv_id, wr.signaled) };
        self.write(wr, (segment, Some(data)), (true, Some(place)));
        (self.head, self.added) = (next, self.added + 1);
        let turn = &mut self.turns[place as usize];
        *turn = turn.wrapping_add(1);
        Ok(TagHandle::new(place, *turn))
    }

    fn remove(&mut self, wr: TagWr, handle: TagHandle) -> Result<TagHandle, PostError> {
        let place = handle.place();
        if self.turns.get(place as usize) != Some(&handle.turn()) {
            return Err(PostError::UnknownTag);
        }
        self.sq.reserve(&mut self.at, 1)?;
        let waits = match wr.signaled {
            // SAFETY: the change completes, or `begin` takes it back.
            true => unsafe { self.table.will_remove(place) },
            false => self.table.is_waiting(place),
        };
        if !waits {
            return Err(PostError::UnknownTag);
        }
        if wr.signaled { &mut self.removed } else { &mut self.dropped }.push(place);
        let segment = self.segment(wr, TmOpcode::REMOVE, place as u16);
        self.write(wr, (segment, None), (false, Some(place)));
        Ok(handle)
    }

    /// Builds the segment of a change, and notes the count that it tells (rdma-core
    /// `qp.c:set_tm_seg`).
    fn segment(&mut self, wr: TagWr, op: u8, index: u16) -> mlx5_wqe_tm_seg {
        let opcode = TmOpcode::ZERO.with_op(op).0;
        let mut segment = mlx5_wqe_tm_seg { opcode, ..Default::default() };
        segment.index.set(index);
        let mut flags = TmFlags::ZERO.with_cqe_req(wr.signaled);
        if let Some(unexpected) = wr.unexpected {
            flags = flags.with_sw_cnt(true);
            segment.sw_cnt.set(unexpected);
            self.told = unexpected;
            self.table.tell(unexpected);
        }
        segment.flags = flags.0;
        segment
    }

    /// Writes the WQE, for which there is room, and notes its kind and its place.
    fn write(
        &mut self,
        wr: TagWr,
        (segment, data): (mlx5_wqe_tm_seg, Option<Words>),
        (adds, place): (bool, Option<u32>),
    ) {
        let ds = if data.is_some() { ADD } else { CHANGE };
        let first = self.at.pi();
        let opcode = Opcode::TAG_MATCHING.0;
        let ctrl = raw_ctrl(opcode, 0, first, self.sq.qpn_ds(ds), SendFlags::empty(), 0);
        let at = self.sq.ring_memory().unit(first);
        let halves: [Words; 2] = transmute!(segment);
        for (n, words) in [ctrl].into_iter().chain(halves).chain(data).enumerate() {
            // SAFETY: `reserve` found the WQEBB free, and it has room for four segments.
            unsafe { store(at.wrapping_add(n * DS_BYTES), words) };
        }
        // SAFETY: `reserve` found the WQEBB free; this is the only poster.
        unsafe { self.sq.note(&mut self.at, wr.id, (ds, 1)) };
        let change = Changed { at: first, place, adds, signaled: wr.signaled };
        // SAFETY: the work request just written. Each has one WQEBB, and the ring has no more
        // WQEBBs than the table has room for.
        unsafe { self.table.changes().note(change) };
    }

    /// See [`SrqOps::own_tag`](uverbs_core::provider::SrqOps::own_tag).
    ///
    /// # Safety
    ///
    /// The contract of that method.
    pub(crate) unsafe fn own(&mut self, tag: TagHandle, held: Held) {
        // SAFETY: the place of a tag just added, by the contract.
        unsafe { self.table.own(tag.place(), held) };
    }

    /// See [`SrqOps::ring_tags`](uverbs_core::provider::SrqOps::ring_tags).
    ///
    /// # Safety
    ///
    /// The contract of that method.
    pub(crate) unsafe fn ring(&mut self) {
        // SAFETY: `write` noted each change.
        unsafe { self.table.changes().ring(self.at.pi()) };
        // SAFETY: the queue pair lives, by the contract, and the cursor is of its last `begin`.
        unsafe { self.sq.ring(self.at) };
        (self.rung_head, self.rung_told) = (self.head, self.told);
        self.added = 0;
        self.removed.clear();
        for place in self.dropped.drain(..) {
            // No completion reports the removal, so the place is free at once: the device reuses it
            // after the removal.
            // SAFETY: no message will arrive for it, by the contract.
            drop(unsafe { self.table.take(place) });
        }
        self.at = self.sq.begin();
    }

    /// See [`SrqOps::close_tags`](uverbs_core::provider::SrqOps::close_tags).
    pub(crate) fn close(&mut self) -> Result<(), Error> {
        self.begin();
        // SAFETY: this is the poster, which posts no more.
        unsafe { self.core.destroy() }?;
        self.sq.enable(false);
        self.at = self.sq.begin();
        Ok(())
    }
}

/// Connects the queue pair of changes to itself (rdma-core `verbs.c:create_cmd_qp`).
fn connect(core: &QpCore, lid: u16) -> Result<(), Error> {
    use QpAttrMask as M;
    let mut attr = RawQpAttr::default();
    let base = &mut attr.base;
    base.port_num = PORT;
    let bring = |attr: &mut RawQpAttr, to: QpState, mask: QpAttrMask| {
        attr.base.qp_state = to.raw() as u8;
        // SAFETY: a new queue pair without posted work.
        unsafe { core.modify_by_mask(attr, mask | M::STATE) }
    };
    bring(&mut attr, QpState::Init, M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS)?;
    attr.base.path_mtu = MTU;
    attr.base.dest_qp_num = core.qpn();
    attr.base.dest.dlid = lid;
    attr.base.dest.port_num = PORT;
    let way = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
    bring(&mut attr, QpState::ReadyToReceive, way | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER)?;
    let times = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::SQ_PSN | M::MAX_QP_RD_ATOMIC;
    bring(&mut attr, QpState::ReadyToSend, times)
}

impl fmt::Debug for TagQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TagQueue").field("commands", &self.sq).field("table", &self.table).finish()
    }
}
