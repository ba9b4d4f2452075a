//! An open device of the software HCA, its objects, and their destruction.
#![allow(unsafe_code, reason = "calls functions of C")]

use std::cell::Cell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;

use uverbs::softhca::SoftHca;
use uverbs_core::memory::pages::Pages;

use super::feed::Feed;
use crate::device::counters;
use crate::device::devx;
use crate::device::list::Device;
use crate::device::open;
use crate::memory::dm;
use crate::memory::mr;
use crate::memory::mw;
use crate::memory::parent_domain;
use crate::memory::pd;
use crate::queues::ah;
use crate::queues::channel;
use crate::queues::cq;
use crate::queues::flow;
use crate::queues::qp;
use crate::queues::rss;
use crate::queues::srq;
use crate::queues::wq;
use crate::queues::xrcd;
use crate::sys::*;

/// Maximum objects of a kind.
const MOST: usize = 12;
/// Bytes of the program's memory.
const MEMORY: usize = 1 << 16;

thread_local! {
    /// Device of the last run, if that ended normally: the library keeps devices that it has seen.
    static DEVICE: Cell<Option<(SoftHca, Arc<Device>)>> = const { Cell::new(None) };
}

fn device() -> (SoftHca, Arc<Device>) {
    let hca = SoftHca::builder().stepped().build().expect("a software HCA");
    let device = Device::of_open(&uverbs::Device::from(hca.clone()));
    (hca, device)
}

/// Live objects of a kind.
pub(super) struct Of<T>(Vec<*mut T>);

impl<T> Of<T> {
    /// Keeps the object that a call returned. Null: an error, whose number is in `errno`.
    pub(super) fn keep(&mut self, made: *mut T) {
        if made.is_null() {
            assert_ne!(std::io::Error::last_os_error().raw_os_error(), Some(0));
        } else {
            self.0.push(made);
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.0.len() < MOST
    }

    /// Picks an object.
    pub(super) fn any(&self, feed: &mut Feed<'_>) -> Option<*mut T> {
        let at = feed.below(self.0.len());
        self.0.get(at).copied()
    }

    /// Picks an object or null.
    pub(super) fn any_or_null(&self, feed: &mut Feed<'_>) -> *mut T {
        if feed.u8() % 8 == 7 {
            return null_mut();
        }
        self.any(feed).unwrap_or(null_mut())
    }

    /// Destroys an object, which is kept if the call fails.
    pub(super) fn end(&mut self, feed: &mut Feed<'_>, end: unsafe extern "C" fn(*mut T) -> c_int) {
        let at = feed.below(self.0.len());
        if let Some(&object) = self.0.get(at)
            // SAFETY: the object exists.
            && super::checked("destroy", unsafe { end(object) })
        {
            self.0.swap_remove(at);
        }
    }

    /// Destroys all objects. A parent domain may keep others from being destroyed in the first
    /// round.
    fn end_all(&mut self, end: unsafe extern "C" fn(*mut T) -> c_int) {
        for _ in 0..self.0.len() {
            // SAFETY: the objects exist; each is destroyed once unless the call fails.
            self.0.retain(|&object| !super::checked("destroy", unsafe { end(object) }));
        }
        assert_eq!(self.0.len(), 0, "{} are left", std::any::type_name::<T>());
    }
}

/// See the [module](self).
pub(super) struct World {
    hca: SoftHca,
    device: Arc<Device>,
    pub(super) context: *mut ibv_context,
    memory: Pages,
    pub(super) pds: Of<ibv_pd>,
    pub(super) tds: Of<ibv_td>,
    pub(super) channels: Of<ibv_comp_channel>,
    pub(super) cqs: Of<ibv_cq>,
    pub(super) extended: Of<ibv_cq_ex>,
    pub(super) srqs: Of<ibv_srq>,
    pub(super) xrcds: Of<ibv_xrcd>,
    pub(super) qps: Of<ibv_qp>,
    pub(super) mrs: Of<ibv_mr>,
    pub(super) mws: Of<ibv_mw>,
    pub(super) dms: Of<ibv_dm>,
    pub(super) ahs: Of<ibv_ah>,
    pub(super) wqs: Of<ibv_wq>,
    pub(super) tables: Of<ibv_rwq_ind_table>,
    pub(super) flows: Of<ibv_flow>,
    pub(super) counters: Of<ibv_counters>,
    pub(super) objects: Of<devx::Object>,
    pub(super) umems: Of<devx::Umem>,
}

unsafe extern "C" fn destroy_cq_ex(queue: *mut ibv_cq_ex) -> c_int {
    // SAFETY: `ibv_cq` is the first member of the extended queue.
    unsafe { cq::destroy_cq(queue.cast()) }
}

impl World {
    pub(super) fn open() -> Self {
        let (hca, device) = DEVICE.take().unwrap_or_else(device);
        // SAFETY: a device of this library.
        let context = unsafe { open::open_device(device.c()) };
        assert!(!context.is_null());
        let memory = Pages::anonymous(MEMORY).expect("memory");
        macro_rules! none {
            ($($kind:ident),*) => {
                Self { hca, device, context, memory, $($kind: Of(Vec::new())),* }
            };
        }
        none!(
            pds, tds, channels, cqs, extended, srqs, xrcds, qps, mrs, mws, dms, ahs, wqs, tables,
            flows, counters, objects, umems
        )
    }

    /// Picks bytes of the program's memory: address and length.
    pub(super) fn bytes(&self, feed: &mut Feed<'_>) -> (*mut u8, usize) {
        let at = usize::from(feed.u16()) % MEMORY;
        let len = usize::from(feed.u16() >> (feed.u8() % 16));
        (self.memory.as_mut_ptr().wrapping_add(at), len.min(MEMORY - at))
    }

    /// Lets the device make progress.
    pub(super) fn step(&self) {
        self.hca.step_until_idle(64);
    }

    /// Destroys a random object.
    pub(super) fn end_one(&mut self, feed: &mut Feed<'_>) {
        match feed.below(17) {
            0 => self.pds.end(feed, pd::dealloc_pd),
            1 => self.tds.end(feed, parent_domain::dealloc_td),
            2 => self.channels.end(feed, channel::destroy_comp_channel),
            3 => self.cqs.end(feed, cq::destroy_cq),
            4 => self.extended.end(feed, destroy_cq_ex),
            5 => self.srqs.end(feed, srq::destroy_srq),
            6 => self.xrcds.end(feed, xrcd::close_xrcd),
            7 => self.qps.end(feed, qp::destroy_qp),
            8 => self.mrs.end(feed, mr::dereg_mr),
            9 => self.mws.end(feed, mw::dealloc_mw),
            10 => self.dms.end(feed, dm::free_dm),
            11 => self.wqs.end(feed, wq::destroy_wq),
            12 => self.tables.end(feed, rss::destroy_rwq_ind_table),
            13 => self.flows.end(feed, flow::destroy_flow),
            14 => self.counters.end(feed, counters::destroy_counters),
            15 => self.objects.end(feed, devx::obj_destroy),
            _ => self.umems.end(feed, devx::umem_dereg),
        }
    }

    /// Destroys all objects, users first, and checks that the device holds none.
    pub(super) fn close(mut self) {
        self.objects.end_all(devx::obj_destroy);
        self.flows.end_all(flow::destroy_flow);
        self.qps.end_all(qp::destroy_qp);
        self.tables.end_all(rss::destroy_rwq_ind_table);
        self.wqs.end_all(wq::destroy_wq);
        self.srqs.end_all(srq::destroy_srq);
        self.cqs.end_all(cq::destroy_cq);
        self.extended.end_all(destroy_cq_ex);
        self.mws.end_all(mw::dealloc_mw);
        self.mrs.end_all(mr::dereg_mr);
        self.dms.end_all(dm::free_dm);
        self.ahs.end_all(ah::destroy_ah);
        self.xrcds.end_all(xrcd::close_xrcd);
        self.pds.end_all(pd::dealloc_pd);
        self.tds.end_all(parent_domain::dealloc_td);
        self.counters.end_all(counters::destroy_counters);
        self.channels.end_all(channel::destroy_comp_channel);
        self.umems.end_all(devx::umem_dereg);
        // SAFETY: the context is not used any more.
        assert_eq!(unsafe { open::close_device(self.context) }, 0);
        assert_eq!(self.hca.objects().values().sum::<usize>(), 0, "{:?}", self.hca.objects());
        assert_eq!(self.hca.pinned_bytes(), 0);
        DEVICE.set(Some((self.hca, self.device)));
    }
}
