//! The objects of one open device file and their handles (`drivers/infiniband/core/rdma_core.c`).
//!
//! All kinds share one space of handles. The lowest free handle is allocated, from 0, including
//! freed ones: `alloc_begin_idr_uobject` uses an xarray (`XA_FLAGS_ALLOC`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use nix::errno::Errno;
use uverbs_core::memory::pages::Pages;
use uverbs_kernel_abi::mlx5::mlx5_ib_flow_counters_desc;
use uverbs_kernel_abi::qp::{ib_uverbs_qp_cap, ib_uverbs_qp_dest};

use crate::backend::context::{DctContext, QpState};
use crate::backend::number::{Cqn, Key, Pdn, Qpn, Queue, Srqn};
use crate::kernel::state::device_memory::{Allocation, Operation};
use crate::kernel::state::flows::Placed;
use crate::kernel::state::raw_queues::RawQueues;
use crate::uar::UarPage;

/// A protection domain.
#[derive(Debug)]
pub(crate) struct Pd {
    pub(crate) pdn: Pdn,
}

/// Memory of a memory region.
#[derive(Clone, Debug)]
pub(crate) enum Backing {
    /// The caller's memory.
    User,
    /// A dma-buf, which the region keeps mapped.
    DmaBuf { _map: Arc<Pages> },
    /// Device memory, by its handle.
    DeviceMemory(u32),
}

/// A memory region.
#[derive(Clone, Debug)]
pub(crate) struct Mr {
    pub(crate) pd: u32,
    pub(crate) key: Key,
    pub(crate) backing: Backing,
    pub(crate) start: u64,
    pub(crate) access_flags: u32,
    pub(crate) iova: u64,
    pub(crate) len: u64,
    pub(crate) pinned: u64,
}

/// A memory window, or a key that a program created by DEVX.
#[derive(Debug)]
pub(crate) struct Mw {
    pub(crate) pd: u32,
    pub(crate) key: Key,
}

/// Device memory (`struct ib_dm`).
#[derive(Debug)]
pub(crate) struct Dm {
    pub(crate) allocation: Arc<Allocation>,
    /// Requested bytes.
    pub(crate) asked: u64,
    /// Index for mmap.
    pub(crate) index: u16,
    /// Operations with addresses, by their indexes for mmap.
    pub(crate) operations: BTreeMap<u16, Arc<Operation>>,
}

impl Dm {
    /// True for an index of the memory, or of an operation on it.
    pub(crate) fn has_index(&self, index: u16) -> bool {
        self.index == index || self.operations.contains_key(&index)
    }
}

/// A completion queue.
#[derive(Debug)]
pub(crate) struct Cq {
    pub(crate) cqn: Cqn,
    /// CQEs of the ring.
    pub(crate) entries: u32,
    pub(crate) user_handle: u64,
    pub(crate) channel: Option<u32>,
    pub(crate) async_file: Option<u32>,
    pub(crate) comp_events: u32,
    pub(crate) async_events: u32,
    pub(crate) pinned: u64,
    /// Keeps the UAR page with the CQ's arm doorbell.
    pub(crate) _uar: Option<Arc<UarPage>>,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) qpn: Qpn,
    /// `IB_UVERBS_QPT_*`.
    pub(crate) kind: u8,
    /// Handles of the objects that it uses.
    pub(crate) held: Vec<u32>,
    pub(crate) user_handle: u64,
    pub(crate) async_file: Option<u32>,
    pub(crate) async_events: u32,
    pub(crate) cap: ib_uverbs_qp_cap,
    pub(crate) sq_sig_all: bool,
    /// Multicast groups of the QP: GID and LID (`mcast_list`).
    pub(crate) groups: BTreeSet<([u8; 16], u16)>,
    pub(crate) pinned: u64,
    /// Port of bonded ports, from 1.
    pub(crate) lag_port: u8,
    /// Keeps the UAR page of the QP's doorbell, if there is one.
    pub(crate) _uar: Option<Arc<UarPage>>,
    /// Queues of a raw packet QP.
    pub(crate) raw: Option<RawQueues>,
}

impl Qp {
    /// Queue of the device that commands and events name; `None` for a QP that spreads packets over
    /// work queues.
    pub(crate) fn queue(&self) -> Option<Queue> {
        match &self.raw {
            None => Some(Queue::Qp(self.qpn)),
            Some(raw) => raw.sqn.map(Queue::Sq).or(raw.rqn.map(Queue::Rq)),
        }
    }
}

/// A flow rule.
#[derive(Debug)]
pub(crate) struct Flow {
    /// Handles of the queue pair and the matcher.
    pub(crate) held: Vec<u32>,
    pub(crate) counters: Option<u32>,
    pub(crate) placed: Vec<Placed>,
}

/// A flow matcher (`struct mlx5_ib_flow_matcher`).
#[derive(Debug)]
pub(crate) struct Matcher {
    /// Enabled parts of `criteria` (`match_criteria_enable`).
    pub(crate) enable: u8,
    pub(crate) criteria: Vec<u8>,
    pub(crate) priority: u16,
    /// True if it matches received packets.
    pub(crate) receives: bool,
}

/// Counters of flow rules.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// The device's number, once a rule has used it.
    pub(crate) number: Option<u32>,
    /// Description: counted quantities and their indexes in the result; empty while unused.
    pub(crate) places: Vec<mlx5_ib_flow_counters_desc>,
    /// Number of rules that use it.
    pub(crate) rules: u32,
}

impl Counters {
    /// Removes one rule. After the last one, the counters may be described again
    /// (`mlx5_ib_counters_clear_description`).
    pub(crate) fn unbind(&mut self) {
        self.rules -= 1;
        if self.rules == 0 {
            self.places.clear();
        }
    }
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct Srq {
    pub(crate) srqn: Srqn,
    /// Handles of the objects that it uses.
    pub(crate) held: Vec<u32>,
    /// True if XRC targets receive from it, instead of queue pairs created with it.
    pub(crate) is_xrc: bool,
    pub(crate) user_handle: u64,
    pub(crate) async_file: Option<u32>,
    pub(crate) async_events: u32,
    pub(crate) max_wr: u32,
    pub(crate) max_sge: u32,
    pub(crate) pinned: u64,
}

/// A work queue (WQ): a receive queue without queue pair.
#[derive(Debug)]
pub(crate) struct Wq {
    pub(crate) rqn: Qpn,
    /// Handles of the objects that it uses.
    pub(crate) held: [u32; 2],
    pub(crate) user_handle: u64,
    pub(crate) async_file: Option<u32>,
    pub(crate) async_events: u32,
    /// State set by MODIFY_WQ, `IB_WQS_*`.
    pub(crate) state: u32,
    pub(crate) pinned: u64,
}

/// A table of work queues (RWQ indirection table).
#[derive(Debug)]
pub(crate) struct IndTable {
    /// The device's number.
    pub(crate) number: u32,
    /// Work queue of each entry.
    pub(crate) queues: Vec<u32>,
}

/// A target of dynamic connections.
#[derive(Debug)]
pub(crate) struct Dct {
    /// Parameters of the target, which is created at the transition to RTR.
    pub(crate) context: DctContext,
    /// Handles of the objects that it uses.
    pub(crate) held: [u32; 4],
    /// DCTN, from RTR on.
    pub(crate) dctn: Option<Qpn>,
    pub(crate) state: QpState,
    pub(crate) port: u8,
    /// Requested ECE options.
    pub(crate) ece: u32,
}

/// A file's reference to an XRC domain.
#[derive(Debug)]
pub(crate) struct Xrcd {
    /// The device's number.
    pub(crate) number: u32,
}

/// An address handle.
#[derive(Debug)]
pub(crate) struct Ah {
    pub(crate) pd: u32,
    /// Path to the peer.
    pub(crate) dest: ib_uverbs_qp_dest,
}

/// A UAR page.
#[derive(Debug)]
pub(crate) struct Uar {
    pub(crate) page: Arc<UarPage>,
    /// Offset for mmap, in pages.
    pub(crate) mmap_page: u64,
}

/// The object behind a handle.
#[derive(Debug)]
pub(crate) enum Object {
    Pd(Pd),
    Mr(Mr),
    Mw(Mw),
    Dm(Dm),
    Cq(Cq),
    Qp(Box<Qp>),
    Dct(Box<Dct>),
    Srq(Srq),
    Wq(Wq),
    IndTable(IndTable),
    Xrcd(Xrcd),
    Ah(Ah),
    Uar(Uar),
    Flow(Flow),
    Matcher(Matcher),
    Counters(Counters),
}

/// Response of a destruction: numbers of reported events, which the owner must acknowledge.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Destroyed {
    pub(crate) comp_events: u32,
    pub(crate) async_events: u32,
}

#[derive(Debug)]
struct Slot {
    kind: u16,
    /// `None` until the command that allocated the handle is finished.
    object: Option<Object>,
    /// Number of objects that refer to this one (`usecnt`).
    users: u32,
}

/// Table of objects.
#[derive(Debug, Default)]
pub(crate) struct Objects {
    slots: BTreeMap<u32, Slot>,
    /// Handles that were in use. Those from `next` on never were.
    free: BTreeSet<u32>,
    next: u32,
}

impl Objects {
    /// Allocates a handle.
    ///
    /// # Errors
    ///
    /// `ENOSPC` when all handles are in use (`xa_alloc` returns `EBUSY`; neither is reached in
    /// practice).
    pub(crate) fn reserve(&mut self, kind: u16) -> Result<u32, Errno> {
        let handle = match self.free.pop_first() {
            Some(handle) => handle,
            None => {
                let handle = self.next;
                self.next = handle.checked_add(1).ok_or(Errno::ENOSPC)?;
                handle
            }
        };
        let slot = Slot { kind, object: None, users: 0 };
        self.slots.insert(handle, slot);
        Ok(handle)
    }

    /// Puts the object behind a reserved handle.
    pub(crate) fn fill(&mut self, handle: u32, object: Object) {
        if let Some(slot) = self.slots.get_mut(&handle) {
            slot.object = Some(object);
        }
    }

    /// Checks that a handle names an object of a kind.
    ///
    /// # Errors
    ///
    /// `ENOENT` for an unknown handle, `EINVAL` for another kind (`rdma_lookup_get_uobject`).
    pub(crate) fn check(&self, handle: u32, kind: u16) -> Result<(), Errno> {
        match self.slots.get(&handle) {
            Some(slot) if slot.object.is_none() => Err(Errno::ENOENT),
            Some(slot) if slot.kind == kind => Ok(()),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::ENOENT),
        }
    }

    pub(crate) fn get(&self, handle: u32) -> Option<&Object> {
        self.slots.get(&handle)?.object.as_ref()
    }

    pub(crate) fn get_mut(&mut self, handle: u32) -> Option<&mut Object> {
        self.slots.get_mut(&handle)?.object.as_mut()
    }

    /// Number of users of an object.
    pub(crate) fn users(&self, handle: u32) -> u32 {
        self.slots.get(&handle).map_or(0, |slot| slot.users)
    }

    /// Adds one user.
    pub(crate) fn hold(&mut self, handle: u32) {
        if let Some(slot) = self.slots.get_mut(&handle) {
            slot.users += 1;
        }
    }

    /// Removes one user.
    pub(crate) fn release(&mut self, handle: u32) {
        if let Some(slot) = self.slots.get_mut(&handle) {
            slot.users = slot.users.saturating_sub(1);
        }
    }

    /// Frees a handle and returns its object.
    pub(crate) fn remove(&mut self, handle: u32) -> Option<Object> {
        let slot = self.slots.remove(&handle)?;
        self.free.insert(handle);
        slot.object
    }

    /// The kind of each object.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = u16> + '_ {
        self.slots.values().map(|slot| slot.kind)
    }

    /// All handles in order of destruction: users before the objects that they use.
    pub(crate) fn teardown_order(&self) -> Vec<u32> {
        let mut handles =
            self.slots
                .iter()
                .map(|(handle, slot)| {
                    let rank = match slot.object {
                        Some(Object::Flow(_)) => 0,
                        Some(Object::Qp(_) | Object::Dct(_) | Object::Ah(_) | Object::Mw(_))
                        | None => 1,
                        // After the windows that are bound to it.
                        Some(Object::Mr(_)) => 2,
                        Some(
                            Object::Srq(_)
                            | Object::Dm(_)
                            | Object::Counters(_)
                            | Object::IndTable(_)
                            | Object::Matcher(_),
                        ) => 3,
                        Some(Object::Wq(_)) => 4,
                        Some(Object::Cq(_)) => 5,
                        Some(Object::Uar(_)) => 6,
                        Some(Object::Pd(_) | Object::Xrcd(_)) => 7,
                    };
                    (rank, *handle)
                })
                .collect::<Vec<_>>();
        handles.sort_unstable();
        handles.into_iter().map(|(_, handle)| handle).collect()
    }

    /// The PD of a write command's handle.
    ///
    /// # Errors
    ///
    /// The errors of [`Objects::check`]: since Linux 6.15, and in the stable series since mid-2025,
    /// `uobj_get_obj_read` returns the error of `rdma_lookup_get_uobject`. Older kernels return
    /// `EINVAL` for all.
    pub(crate) fn pd(&self, handle: u32) -> Result<&Pd, Errno> {
        match self.get(handle) {
            Some(Object::Pd(pd)) => Ok(pd),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::ENOENT),
        }
    }

    /// The handle of the PD with this number.
    pub(crate) fn pd_of(&self, number: u32) -> Option<u32> {
        let is = |slot: &Slot| matches!(&slot.object, Some(Object::Pd(pd)) if pd.pdn.0 == number);
        self.slots.iter().find(|(_, slot)| is(slot)).map(|(handle, _)| *handle)
    }

    /// The CQ behind a handle; errors as [`Objects::pd`].
    pub(crate) fn cq(&self, handle: u32) -> Result<&Cq, Errno> {
        match self.get(handle) {
            Some(Object::Cq(cq)) => Ok(cq),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::ENOENT),
        }
    }

    /// The QP behind a handle; errors as [`Objects::pd`].
    pub(crate) fn qp(&self, handle: u32) -> Result<&Qp, Errno> {
        match self.get(handle) {
            Some(Object::Qp(qp)) => Ok(qp),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::ENOENT),
        }
    }

    /// The counters behind a handle; errors as [`Objects::pd`].
    pub(crate) fn counters(&self, handle: u32) -> Result<&Counters, Errno> {
        match self.get(handle) {
            Some(Object::Counters(counters)) => Ok(counters),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::ENOENT),
        }
    }

    /// The SRQ behind a handle; errors as [`Objects::pd`].
    pub(crate) fn srq(&self, handle: u32) -> Result<&Srq, Errno> {
        match self.get(handle) {
            Some(Object::Srq(srq)) => Ok(srq),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::ENOENT),
        }
    }

    /// The work queue behind a handle; errors as [`Objects::pd`].
    pub(crate) fn wq(&self, handle: u32) -> Result<&Wq, Errno> {
        match self.get(handle) {
            Some(Object::Wq(wq)) => Ok(wq),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::ENOENT),
        }
    }

    /// The XRC domain behind a handle; errors as [`Objects::pd`].
    pub(crate) fn xrcd(&self, handle: u32) -> Result<&Xrcd, Errno> {
        match self.get(handle) {
            Some(Object::Xrcd(xrcd)) => Ok(xrcd),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::ENOENT),
        }
    }

    /// All objects.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Object> {
        self.slots.values().filter_map(|slot| slot.object.as_ref())
    }

    /// All memory regions.
    pub(crate) fn regions(&self) -> impl Iterator<Item = &Mr> {
        self.slots.values().filter_map(|slot| match &slot.object {
            Some(Object::Mr(mr)) => Some(mr),
            _ => None,
        })
    }

    /// All device memory.
    pub(crate) fn device_memory(&self) -> impl Iterator<Item = &Dm> {
        self.slots.values().filter_map(|slot| match &slot.object {
            Some(Object::Dm(dm)) => Some(dm),
            _ => None,
        })
    }

    /// Index for mmap that no device memory, and no operation on one, has.
    pub(crate) fn free_memory_index(&self) -> Option<u16> {
        let taken = |index| self.device_memory().any(|dm| dm.has_index(index));
        (0..u16::MAX).find(|index| !taken(*index))
    }

    /// The DCT behind a handle; errors as [`Objects::pd`].
    pub(crate) fn dct(&self, handle: u32) -> Result<&Dct, Errno> {
        match self.get(handle) {
            Some(Object::Dct(dct)) => Ok(dct),
            Some(_) => Err(Errno::EINVAL),
            None => Err(Errno::ENOENT),
        }
    }

    /// UAR page that CREATE_CQ or CREATE_QP named.
    pub(crate) fn uar_page(&self, index: u32) -> Option<Arc<UarPage>> {
        self.uars().find(|uar| uar.page.has(index)).map(|uar| Arc::clone(&uar.page))
    }

    /// All UAR objects.
    pub(crate) fn uars(&self) -> impl Iterator<Item = &Uar> {
        self.slots.values().filter_map(|slot| match &slot.object {
            Some(Object::Uar(uar)) => Some(uar),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handles_start_at_zero_and_the_lowest_is_used_again() {
        let mut objects = Objects::default();
        let handles = (0..4).map(|_| objects.reserve(1).unwrap()).collect::<Vec<_>>();
        assert_eq!(handles, [0, 1, 2, 3]);
        objects.remove(2);
        objects.remove(1);
        assert_eq!(objects.reserve(1), Ok(1));
        assert_eq!(objects.reserve(1), Ok(2));
        assert_eq!(objects.reserve(1), Ok(4));
    }

    /// Firmware refuses to destroy a region under a bound window.
    #[test]
    fn windows_end_before_regions_and_both_before_their_domain() {
        let mut objects = Objects::default();
        let mut add = |object| {
            let handle = objects.reserve(1).unwrap();
            objects.fill(handle, object);
            handle
        };
        let pd = add(Object::Pd(Pd { pdn: Pdn(1) }));
        let key = Key(0x100);
        let (backing, start, access_flags) = (Backing::User, 0, 0);
        let (iova, len, pinned) = (0, 4096, 0);
        let mr = add(Object::Mr(Mr { pd, key, backing, start, access_flags, iova, len, pinned }));
        let mw = add(Object::Mw(Mw { pd, key }));
        assert_eq!(objects.teardown_order(), [mw, mr, pd]);
    }

    #[test]
    fn a_handle_names_one_kind() {
        let mut objects = Objects::default();
        let handle = objects.reserve(1).unwrap();
        assert_eq!(objects.check(handle, 1), Err(Errno::ENOENT));
        objects.fill(handle, Object::Pd(Pd { pdn: Pdn(1) }));
        assert_eq!(objects.check(handle, 1), Ok(()));
        assert_eq!(objects.check(handle, 3), Err(Errno::EINVAL));
        assert_eq!(objects.check(handle + 1, 1), Err(Errno::ENOENT));
    }
}
