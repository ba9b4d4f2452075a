//! One open device file: its context, objects and event files, and their destruction.

use std::collections::BTreeMap;

use nix::errno::Errno;
use uverbs_kernel_abi::event as ib;
use uverbs_kernel_abi::event::ib_uverbs_comp_event_desc;
use uverbs_kernel_abi::qp::IB_UVERBS_QPT_XRC_TGT;

use crate::backend::error::{HcaError, Noun, errno};
use crate::backend::number::Queue;
use crate::kernel::state::device::Device;
use crate::kernel::state::events::{EventFiles, async_event};
use crate::kernel::state::objects::{Backing, Cq, Destroyed, Object, Objects, Qp, Srq, Wq};

/// Result of GET_CONTEXT.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Context {
    /// CQE version. 1: CQEs identify QPs by user index.
    pub(crate) cqe_version: u8,
    /// DEVX commands are allowed.
    pub(crate) devx: bool,
    /// Number of doorbell registers announced in static pages.
    pub(crate) tot_bfregs: u32,
}

/// One open device file (`struct ib_uverbs_file`).
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) id: u64,
    pub(crate) context: Option<Context>,
    pub(crate) objects: Objects,
    pub(crate) events: EventFiles,
    /// Handles of objects destroyed with the device: the client has yet to destroy them.
    pub(crate) dead: BTreeMap<u32, Destroyed>,
}

/// Async event types of a CQ, a QP and an SRQ.
const CQ_EVENTS: &[u32] = &[ib::IB_EVENT_CQ_ERR];
const QP_EVENTS: &[u32] = &[
    ib::IB_EVENT_QP_FATAL,
    ib::IB_EVENT_QP_REQ_ERR,
    ib::IB_EVENT_QP_ACCESS_ERR,
    ib::IB_EVENT_COMM_EST,
    ib::IB_EVENT_SQ_DRAINED,
    ib::IB_EVENT_QP_LAST_WQE_REACHED,
];

const WQ_EVENTS: &[u32] = &[ib::IB_EVENT_WQ_FATAL];
const SRQ_EVENTS: &[u32] = &[ib::IB_EVENT_SRQ_ERR, ib::IB_EVENT_SRQ_LIMIT_REACHED];

impl File {
    pub(crate) fn new(id: u64) -> Self {
        Self {
            id,
            context: None,
            objects: Objects::default(),
            events: EventFiles::default(),
            dead: BTreeMap::new(),
        }
    }

    /// True after GET_CONTEXT.
    pub(crate) fn has_context(&self) -> bool {
        self.context.is_some()
    }

    /// Destroys an object on the client's request (`uobj_destroy`).
    ///
    /// # Errors
    ///
    /// `EBUSY` while other objects use it, and for a QP in a multicast group (`uverbs_free_qp`);
    /// `EINVAL` for a region under a bound window (`rxe_verbs.c`, `rxe_dereg_mr`; IBTA 10.6.7.2.6);
    /// the device's errors, which keep the object and its memory pinned (`uverbs_destroy_uobject`).
    pub(crate) fn destroy(&mut self, device: &mut Device, handle: u32) -> Result<Destroyed, Errno> {
        if let Some(Object::Mr(mr)) = self.objects.get(handle)
            && device.hca.windows_on(mr.key) != 0
        {
            return Err(Errno::EINVAL);
        }
        let in_group = match self.objects.get(handle) {
            Some(Object::Qp(qp)) => !qp.groups.is_empty(),
            _ => false,
        };
        if in_group || self.objects.users(handle) > 0 {
            return Err(Errno::EBUSY);
        }
        if let Some(object) = self.objects.get(handle) {
            end(device, object).map_err(errno)?;
        }
        Ok(self.forget(device, handle))
    }

    /// Frees a handle and destroys the object behind it, if any. No later command could destroy an
    /// object that the device keeps, so that its memory is taken from the device.
    pub(crate) fn abandon(&mut self, device: &mut Device, handle: u32) -> Destroyed {
        if let Some(object) = self.objects.get(handle)
            && end(device, object).is_err()
            && let Some((noun, number)) = with_memory(object)
        {
            device.hca.forsake(noun, number);
        }
        self.forget(device, handle)
    }

    /// Frees a handle, and all that the destroyed object behind it had.
    fn forget(&mut self, device: &mut Device, handle: u32) -> Destroyed {
        let mut destroyed = Destroyed::default();
        match self.objects.remove(handle) {
            None | Some(Object::Uar(_) | Object::Matcher(_)) => {}
            Some(Object::Pd(pd)) => {
                device.pds.remove(&pd.pdn.0);
            }
            Some(Object::Xrcd(xrcd)) => device.xrc.close(xrcd.number),
            Some(Object::Ah(ah)) => {
                device.ahs = device.ahs.saturating_sub(1);
                self.objects.release(ah.pd);
            }
            Some(Object::Mr(mr)) => {
                device.unpin(mr.pinned);
                self.objects.release(mr.pd);
                if let Backing::DeviceMemory(dm) = mr.backing {
                    self.objects.release(dm);
                }
            }
            Some(Object::Dm(dm)) => {
                drop(dm);
                device.device_memory.free_unused(&mut device.hca);
            }
            Some(Object::Mw(mw)) => self.objects.release(mw.pd),
            Some(Object::Cq(cq)) => destroyed = self.abandon_cq(device, &cq),
            Some(Object::Dct(dct)) => {
                for held in dct.held {
                    self.objects.release(held);
                }
            }
            Some(Object::Wq(wq)) => destroyed.async_events = self.abandon_wq(device, wq),
            Some(Object::IndTable(table)) => {
                let _ = device.hca.steering().remove_spread(table.number);
                for queue in table.queues {
                    self.objects.release(queue);
                }
            }
            Some(Object::Flow(flow)) => {
                for placed in flow.placed {
                    device.flows.remove(device.hca.steering(), placed);
                }
                for held in flow.held {
                    self.objects.release(held);
                }
                if let Some(counters) = flow.counters {
                    self.objects.release(counters);
                    self.unbind_counters(counters);
                }
            }
            Some(Object::Counters(counters)) => {
                if let Some(number) = counters.number {
                    let _ = device.hca.steering().remove_counter(number);
                }
            }
            Some(Object::Qp(qp)) => destroyed.async_events = self.abandon_qp(device, handle, &qp),
            Some(Object::Srq(srq)) => destroyed.async_events = self.abandon_srq(device, &srq),
        }
        destroyed
    }

    fn abandon_cq(&mut self, device: &mut Device, cq: &Cq) -> Destroyed {
        if let Some(rings) = &mut device.rings {
            rings.forget_cq(cq.cqn);
        }
        device.cq_owners.remove(&cq.cqn);
        device.unpin(cq.pinned);
        let comp = self.events.retract_completions(cq.channel, cq.user_handle);
        let other = self.events.retract_async(cq.async_file, cq.user_handle, CQ_EVENTS);
        Destroyed {
            comp_events: cq.comp_events.saturating_sub(comp),
            async_events: cq.async_events.saturating_sub(other),
        }
    }

    /// Returns the number of asynchronous events, as for queue pairs and SRQs.
    fn abandon_wq(&mut self, device: &mut Device, wq: Wq) -> u32 {
        device.qp_owners.remove(&Queue::Rq(wq.rqn));
        device.unpin(wq.pinned);
        for held in wq.held {
            self.objects.release(held);
        }
        let other = self.events.retract_async(wq.async_file, wq.user_handle, WQ_EVENTS);
        wq.async_events.saturating_sub(other)
    }

    fn abandon_qp(&mut self, device: &mut Device, handle: u32, qp: &Qp) -> u32 {
        if let Some(raw) = &qp.raw {
            raw.destroy(device);
            for queue in raw.queues().into_iter().flatten() {
                device.qp_owners.remove(&queue);
            }
        } else if qp.kind != IB_UVERBS_QPT_XRC_TGT || device.xrc.close_target(qp.qpn) {
            if let Some(rings) = &mut device.rings {
                rings.forget_qp(qp.qpn);
            }
            device.qp_owners.remove(&Queue::Qp(qp.qpn));
        } else if let Some(owners) = device.qp_owners.get_mut(&Queue::Qp(qp.qpn)) {
            // Other handles refer to the XRC target, too.
            owners.retain(|owner| *owner != (self.id, handle));
        }
        self.let_go(device, qp)
    }

    fn abandon_srq(&mut self, device: &mut Device, srq: &Srq) -> u32 {
        if let Some(rings) = &mut device.rings {
            rings.forget_srq(srq.srqn);
        }
        device.srq_owners.remove(&srq.srqn);
        device.unpin(srq.pinned);
        for held in &srq.held {
            self.objects.release(*held);
        }
        let other = self.events.retract_async(srq.async_file, srq.user_handle, SRQ_EVENTS);
        srq.async_events.saturating_sub(other)
    }

    /// Removes one rule from the users of counters.
    pub(crate) fn unbind_counters(&mut self, handle: u32) {
        if let Some(Object::Counters(counters)) = self.objects.get_mut(handle) {
            counters.unbind();
        }
    }

    /// Releases the objects that a queue pair held. Returns the number of its reported events.
    fn let_go(&mut self, device: &mut Device, qp: &Qp) -> u32 {
        device.unpin(qp.pinned);
        for held in &qp.held {
            self.objects.release(*held);
        }
        let other = self.events.retract_async(qp.async_file, qp.user_handle, QP_EVENTS);
        qp.async_events.saturating_sub(other)
    }

    /// Destroys everything (`uverbs_destroy_ufile_hw`).
    pub(crate) fn close(mut self, device: &mut Device) {
        for handle in self.objects.teardown_order() {
            self.abandon(device, handle);
        }
    }

    /// Reports a completion on an armed CQ (`ib_uverbs_comp_handler`).
    pub(crate) fn completion(&mut self, handle: u32) {
        if let Some(Object::Cq(cq)) = self.objects.get_mut(handle) {
            let event = ib_uverbs_comp_event_desc { cq_handle: cq.user_handle };
            if self.events.report(cq.channel, &event) {
                cq.comp_events += 1;
            }
        }
    }

    /// Reports an async event of a CQ, QP or SRQ (`ib_uverbs_cq_event_handler`,
    /// `ib_uverbs_qp_event_handler`, `ib_uverbs_srq_event_handler`).
    pub(crate) fn async_event(&mut self, handle: u32, mut event_type: u32) {
        let (file, element, count) = match self.objects.get_mut(handle) {
            Some(Object::Cq(cq)) => (cq.async_file, cq.user_handle, &mut cq.async_events),
            Some(Object::Qp(qp)) => (qp.async_file, qp.user_handle, &mut qp.async_events),
            Some(Object::Srq(srq)) => (srq.async_file, srq.user_handle, &mut srq.async_events),
            // `mlx5_ib_wq_event` reports only this event.
            Some(Object::Wq(wq)) if event_type == ib::IB_EVENT_QP_FATAL => {
                event_type = ib::IB_EVENT_WQ_FATAL;
                (wq.async_file, wq.user_handle, &mut wq.async_events)
            }
            _ => return,
        };
        if self.events.report(file, &async_event(element, event_type)) {
            *count += 1;
        }
    }
}

/// Kind and number of an object that uses the program's memory. The queues of a raw packet QP are
/// forsaken with [`File::forget`].
fn with_memory(object: &Object) -> Option<(Noun, u32)> {
    match object {
        Object::Mr(mr) => Some((Noun::Mkey, mr.key.index())),
        Object::Cq(cq) => Some((Noun::Cq, cq.cqn.0)),
        Object::Srq(srq) => Some((Noun::Srq, srq.srqn.0)),
        Object::Wq(wq) => Some((Noun::Rq, wq.rqn.0)),
        Object::Qp(qp) => Some((Noun::Qp, qp.qpn.0)),
        _ => None,
    }
}

/// Destroys an object on the device. An XRC target ends with its last handle. The queues of a raw
/// packet QP, RQ tables, rules and counters end with [`File::forget`].
fn end(device: &mut Device, object: &Object) -> Result<(), HcaError> {
    let hca = &mut device.hca;
    match object {
        Object::Mr(mr) => hca.destroy_mkey(mr.key),
        Object::Mw(mw) => hca.destroy_mkey(mw.key),
        Object::Cq(cq) => hca.destroy_cq(cq.cqn),
        Object::Srq(srq) => hca.destroy_srq(srq.srqn),
        Object::Wq(wq) => hca.destroy_qp(Queue::Rq(wq.rqn)),
        Object::Dct(dct) => dct.dctn.map_or(Ok(()), |dctn| hca.abandon_dct(dctn)),
        Object::Qp(qp) if qp.raw.is_some() => Ok(()),
        Object::Qp(qp) if qp.kind == IB_UVERBS_QPT_XRC_TGT && !device.xrc.is_last(qp.qpn) => Ok(()),
        Object::Qp(qp) => hca.destroy_qp(Queue::Qp(qp.qpn)),
        _ => Ok(()),
    }
}
