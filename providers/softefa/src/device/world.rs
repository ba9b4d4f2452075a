//! State of a fabric: its devices, their objects, and the messages on the way.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::time::{Duration, Instant};

use nix::errno::Errno;

use super::area::Area;
use super::channel::Channel;
use super::message::{Late, Message, Outstanding};
use super::objects::{Ah, Cq, Mr, Object, Qp};
use super::parcel::Read;
use super::port::Port;
use crate::random::Random;
use crate::srd::Gid;

/// Number of a device's first queue pair.
const FIRST_QPN: u16 = 1;

/// A device.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) gid: Gid,
    /// Port to devices that are not on the fabric.
    pub(crate) port: Option<Port>,
    /// `EFA_QUERY_DEVICE_CAPS_*`.
    pub(crate) caps: u32,
    pub(crate) sub_cqs: u16,
    pub(crate) max_tx_batch: u16,
    pub(crate) min_sq_wr: u16,
    /// Programs poll after they armed, and say nothing before they sleep: a store hides the one
    /// before it.
    pub(crate) assumes_arms: bool,
    /// Longest silence of a device on the wire whose answer is outstanding, and a second more for
    /// each MiB of the request.
    pub(crate) patience: Duration,
    /// Time of the last answer of each device; empty while none is outstanding.
    pub(crate) heard: BTreeMap<Gid, Instant>,
}

/// Owner of an object: an open file of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    pub(crate) file: u32,
    pub(crate) board: usize,
}

/// Memory of an object that can be mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    CqRing,
    CqRegister,
    Llq,
    SqRegister,
    RqRing,
    RqRegister,
}

impl Part {
    const ALL: [Self; 6] = [
        Self::CqRing,
        Self::CqRegister,
        Self::Llq,
        Self::SqRegister,
        Self::RqRing,
        Self::RqRegister,
    ];

    /// Key for mmap: object and part, as multiples of a large page.
    pub(crate) fn key(self, handle: u32) -> u64 {
        (u64::from(handle) << 3 | self as u64) << 16
    }
}

/// Devices, objects, messages.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) boards: Vec<Board>,
    /// By handle, which is unique in the fabric.
    pub(crate) objects: BTreeMap<u32, (Owner, Object)>,
    pub(crate) messages: Vec<Message>,
    /// Messages on a wire whose answer is outstanding, by number.
    pub(crate) outstanding: BTreeMap<u64, Outstanding>,
    /// READs of devices on wires.
    pub(crate) reads: VecDeque<Read>,
    /// Messages sent on wires.
    pub(crate) posted: u64,
    /// Completions of receives that are still to be written.
    pub(crate) late: Vec<Late>,
    /// Each completion comes twice, and with a forged one.
    pub(crate) repeats: bool,
    next: u32,
    random: Random,
}

/// State of a fabric behind its lock.
#[derive(Debug)]
pub(crate) struct Shared(Mutex<World>);

/// Network between software devices of this process. Clones are the same fabric.
#[derive(Clone, Debug)]
pub struct Fabric(Arc<Shared>);

impl From<Arc<Shared>> for Fabric {
    fn from(shared: Arc<Shared>) -> Self {
        Self(shared)
    }
}

impl Fabric {
    pub(crate) fn new(seed: u64) -> Self {
        let world = World {
            boards: Vec::new(),
            objects: BTreeMap::new(),
            messages: Vec::new(),
            outstanding: BTreeMap::new(),
            reads: VecDeque::new(),
            posted: 0,
            late: Vec::new(),
            repeats: false,
            next: 1,
            random: Random::new(seed),
        };
        Self(Arc::new(Shared(Mutex::new(world))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, World>> {
        match self.0.0.try_lock() {
            Ok(world) => Some(world),
            Err(TryLockError::Poisoned(world)) => Some(world.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn downgrade(&self) -> Weak<Shared> {
        Arc::downgrade(&self.0)
    }
}

impl World {
    /// Adds a device.
    pub(crate) fn add(&mut self, board: Board) -> usize {
        self.boards.push(board);
        self.boards.len() - 1
    }

    /// A number that nothing has: a handle, a file. Keys and queue pairs use its lower bits.
    pub(crate) fn new_number(&mut self) -> u32 {
        self.next += 1;
        self.next
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn random(&mut self, limit: usize) -> usize {
        self.random.below(limit)
    }

    /// Object of an open file.
    ///
    /// # Errors
    ///
    /// `ENOENT`.
    pub(crate) fn of(&self, file: u32, handle: u32) -> Result<&Object, Errno> {
        match self.objects.get(&handle) {
            Some((owner, object)) if owner.file == file => Ok(object),
            _ => Err(Errno::ENOENT),
        }
    }

    /// Device of an object.
    pub(crate) fn board_of(&self, handle: u32) -> Option<usize> {
        self.objects.get(&handle).map(|(owner, _)| owner.board)
    }

    pub(crate) fn qp(&self, handle: u32) -> Option<&Qp> {
        match &self.objects.get(&handle)?.1 {
            Object::Qp(qp) => Some(qp),
            _ => None,
        }
    }

    pub(crate) fn qp_mut(&mut self, handle: u32) -> Option<&mut Qp> {
        match &mut self.objects.get_mut(&handle)?.1 {
            Object::Qp(qp) => Some(qp),
            _ => None,
        }
    }

    /// Number of address handles of a device.
    pub(crate) fn address_handles(&self, board: usize) -> usize {
        let is_ah = |owner: &Owner, object: &Object| {
            owner.board == board && matches!(object, Object::Ah(_))
        };
        self.objects.values().filter(|(owner, object)| is_ah(owner, object)).count()
    }

    /// Smallest number that no queue pair of a device has.
    pub(crate) fn free_qpn(&self, board: usize) -> Option<u16> {
        let used: BTreeSet<_> = self
            .objects
            .values()
            .filter_map(|(owner, object)| match object {
                Object::Qp(qp) if owner.board == board => Some(qp.qpn),
                _ => None,
            })
            .collect();
        (FIRST_QPN..u16::MAX).find(|qpn| !used.contains(qpn))
    }

    pub(crate) fn cq_mut(&mut self, handle: u32) -> Option<&mut Cq> {
        match &mut self.objects.get_mut(&handle)?.1 {
            Object::Cq(cq) => Some(cq),
            _ => None,
        }
    }

    pub(crate) fn channel_mut(&mut self, handle: u32) -> Option<&mut Channel> {
        match &mut self.objects.get_mut(&handle)?.1 {
            Object::Channel(channel) => Some(channel),
            _ => None,
        }
    }

    /// Region of a device by key.
    pub(crate) fn mr(&self, board: usize, key: u32) -> Option<Mr> {
        self.objects.values().find_map(|(owner, object)| match object {
            Object::Mr(mr) if owner.board == board && mr.key == key => Some(*mr),
            _ => None,
        })
    }

    /// An address handle of a device.
    pub(crate) fn ah(&self, board: usize, fits: impl Fn(&Ah) -> bool) -> Option<Ah> {
        self.objects.values().find_map(|(owner, object)| match object {
            Object::Ah(ah) if owner.board == board && fits(ah) => Some(*ah),
            _ => None,
        })
    }

    /// Memory behind a key of mmap.
    pub(crate) fn area(&self, file: u32, key: u64) -> Option<&Area> {
        let handle = u32::try_from(key >> 19).ok()?;
        let part = Part::ALL.into_iter().find(|part| part.key(handle) == key)?;
        match (self.of(file, handle).ok()?, part) {
            (Object::Cq(cq), Part::CqRing) => Some(&cq.ring),
            (Object::Cq(cq), Part::CqRegister) => Some(&cq.register),
            (Object::Qp(qp), Part::Llq) => Some(&qp.sq.llq),
            (Object::Qp(qp), Part::SqRegister) => Some(&qp.sq.register),
            (Object::Qp(qp), Part::RqRing) => Some(&qp.rq.ring),
            (Object::Qp(qp), Part::RqRegister) => Some(&qp.rq.register),
            _ => None,
        }
    }

    /// Handles of the objects that `fits`.
    pub(crate) fn handles(&self, fits: impl Fn(&Object) -> bool) -> Vec<u32> {
        let all = self.objects.iter().filter(|(_, (_, object))| fits(object));
        all.map(|(handle, _)| *handle).collect()
    }

    /// Ends an object, and the messages of a queue pair.
    pub(crate) fn remove(&mut self, handle: u32) {
        self.objects.remove(&handle);
        self.forget(handle);
    }

    /// Drops the messages and late completions of a queue pair.
    pub(crate) fn forget(&mut self, handle: u32) {
        self.messages.retain(|message| message.from != handle);
        self.outstanding.retain(|_, waiting| waiting.message.from != handle);
        self.late.retain(|late| late.qp != handle);
    }

    /// Ends everything of an open file.
    pub(crate) fn close(&mut self, file: u32) {
        let all = self.objects.iter().filter(|(_, (owner, _))| owner.file == file);
        for handle in all.map(|(handle, _)| *handle).collect::<Vec<_>>() {
            self.remove(handle);
        }
    }

    /// Takes what was rung, delivers a message or writes a completion, and raises events. False if
    /// idle.
    pub(crate) fn step(&mut self) -> bool {
        let took = self.take_sends() | self.exchange();
        let worked = match self.random(2) {
            0 => self.deliver_one() || self.release_one(),
            _ => self.release_one() || self.deliver_one(),
        };
        self.raise_events();
        took || worked
    }
}
