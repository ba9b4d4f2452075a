//! The kernel side: answers the ioctl bytes that ib_uverbs and mlx5_ib answer, with the same errnos.
//!
//! | file | what | in Linux |
//! |---|---|---|
//! | `ioctl` | header and attributes, checked against a table | `core/uverbs_ioctl.c` |
//! | `methods` | the table: every method and write command of this device | `core/uverbs_std_types_*.c` |
//! | `write` | write() commands through INVOKE_WRITE | `core/uverbs_cmd.c` |
//! | `objects` | handles, users | `core/rdma_core.c` |
//! | `event` | completion channels, async event files | `core/uverbs_main.c` |
//! | `user` | copies from and to the caller | `include/linux/uaccess.h` |
//! | `device`, `port`, `pd`, `mr`, `uar`, `cq`, `qp`, `qp_modify`, `transition`, `ah`, `devx` | one noun each | `core/`, `hw/mlx5/` |
//! | `profile` | what the device says of itself | |
//!
//! Where kernel versions differ the answers are those of Linux 6.15 and of the stable series since mid-2025.
//! `tests/conformance` of the workspace compares them with the kernel's own.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use nix::errno::Errno;

pub(crate) mod ah;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod devx;
pub(crate) mod event;
pub(crate) mod ioctl;
pub(crate) mod methods;
pub(crate) mod mr;
pub(crate) mod objects;
pub(crate) mod pd;
pub(crate) mod port;
pub(crate) mod profile;
pub(crate) mod qp;
pub(crate) mod qp_modify;
pub(crate) mod transition;
pub(crate) mod uar;
pub(crate) mod user;
pub(crate) mod write;

use uverbs_kernel_abi::event as ib;
use uverbs_kernel_abi::event::ib_uverbs_comp_event_desc;

use self::device::Context;
use self::event::{EventFiles, async_event};
use self::objects::{Destroyed, Object, Objects};
use self::profile::Profile;
use crate::hca::{Hca, HcaError, HcaEvent};
use crate::uar::UarSet;

/// Who made a QP or CQ: file and handle.
type Owner = (u64, u32);

/// The device: what all open files share.
#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) profile: Profile,
    pub(crate) hca: Hca,
    pub(crate) uars: UarSet,
    pub(crate) pds: BTreeSet<u32>,
    pub(crate) ahs: u32,
    /// Bytes pinned, against `Profile::memlock`.
    pub(crate) pinned: u64,
    pub(crate) port_up: bool,
    /// Removed: every command gets EIO.
    pub(crate) gone: bool,
    pub(crate) cq_owners: HashMap<u32, Owner>,
    pub(crate) qp_owners: HashMap<u32, Owner>,
}

impl Device {
    pub(crate) fn new(profile: Profile, hca: Hca) -> Self {
        Self {
            profile,
            hca,
            uars: UarSet::default(),
            pds: BTreeSet::new(),
            ahs: 0,
            pinned: 0,
            port_up: true,
            gone: false,
            cq_owners: HashMap::new(),
            qp_owners: HashMap::new(),
        }
    }

    /// Pins client memory (`ib_umem_get`): probes it, then counts it. Gives the bytes counted.
    ///
    /// # Errors
    ///
    /// Those of [`crate::memory::probe`]; `ENOMEM` over the memlock limit.
    pub(crate) fn pin(&mut self, addr: u64, len: u64, writable: bool) -> Result<u64, Errno> {
        // The limit is looked at first, as in the kernel; a wild length is not worth faulting in.
        let count = len.div_ceil(user::PAGE_SIZE);
        let pages = count.saturating_mul(user::PAGE_SIZE);
        if count > u64::from(u32::MAX) {
            return Err(Errno::EINVAL);
        }
        if self.over_memlock(pages).is_some() {
            // What `ib_umem_get` checks before the limit stays before it.
            return Err(match addr.checked_add(len) {
                Some(_) => Errno::ENOMEM,
                None => Errno::EINVAL,
            });
        }
        // A device's registers can't be pinned (`pin_user_pages` refuses VM_IO). Here the device
        // itself would stop at its first store into a page that it protects.
        if self.uars.is_mapped_in(addr, len) {
            return Err(Errno::EFAULT);
        }
        let bytes = crate::memory::probe(addr, len, writable)?;
        if self.over_memlock(bytes).is_some() {
            return Err(Errno::ENOMEM);
        }
        self.pinned += bytes;
        Ok(bytes)
    }

    /// The memlock limit, if pinning `wanted` more bytes goes over it.
    pub(crate) fn over_memlock(&self, wanted: u64) -> Option<u64> {
        let limit = self.profile.memlock;
        (self.pinned.saturating_add(wanted) > limit).then_some(limit)
    }

    /// Gives back what [`Device::pin`] counted.
    pub(crate) fn unpin(&mut self, bytes: u64) {
        self.pinned = self.pinned.saturating_sub(bytes);
    }

    /// Checks a doorbell record: 8 aligned bytes (`mlx5_ib_db_map_user` pins the page).
    ///
    /// # Errors
    ///
    /// `EINVAL` when misaligned (firmware's answer), `EFAULT` when not mapped.
    pub(crate) fn check_doorbell_record(&self, addr: u64) -> Result<(), Errno> {
        if !addr.is_multiple_of(8) {
            return Err(Errno::EINVAL);
        }
        crate::memory::probe(addr, 8, false).map(drop)
    }
}

/// The errno of a firmware command that failed (`mlx5_cmd_check`, `cmd_status_to_err`): LIM_ERR is `ENOMEM`,
/// RES_BUSY `EBUSY`, the others `EINVAL`.
pub(crate) fn errno(error: HcaError) -> Errno {
    match error {
        HcaError::Limit { .. } => Errno::ENOMEM,
        HcaError::Busy { .. } => Errno::EBUSY,
        _ => Errno::EINVAL,
    }
}

/// One open device file (`struct ib_uverbs_file`).
#[derive(Debug)]
pub(crate) struct File {
    pub(crate) id: u64,
    pub(crate) context: Option<Context>,
    pub(crate) objects: Objects,
    pub(crate) events: EventFiles,
}

/// Async events that name a CQ, and those that name a QP.
const CQ_EVENTS: &[u32] = &[ib::IB_EVENT_CQ_ERR];
const QP_EVENTS: &[u32] = &[
    ib::IB_EVENT_QP_FATAL,
    ib::IB_EVENT_QP_REQ_ERR,
    ib::IB_EVENT_QP_ACCESS_ERR,
    ib::IB_EVENT_COMM_EST,
    ib::IB_EVENT_SQ_DRAINED,
    ib::IB_EVENT_QP_LAST_WQE_REACHED,
];

impl File {
    pub(crate) fn new(id: u64) -> Self {
        Self { id, context: None, objects: Objects::default(), events: EventFiles::default() }
    }

    /// Whether GET_CONTEXT was done.
    pub(crate) fn has_context(&self) -> bool {
        self.context.is_some()
    }

    /// Destroys an object on the client's request (`uobj_destroy`).
    ///
    /// # Errors
    ///
    /// `EBUSY` while others use it.
    pub(crate) fn destroy(&mut self, device: &mut Device, handle: u32) -> Result<Destroyed, Errno> {
        if self.objects.users(handle) > 0 {
            return Err(Errno::EBUSY);
        }
        Ok(self.abandon(device, handle))
    }

    /// Frees a handle and destroys what is behind it, if anything.
    pub(crate) fn abandon(&mut self, device: &mut Device, handle: u32) -> Destroyed {
        let mut destroyed = Destroyed::default();
        // The HCA's refusals are not looked at: it does not know of an object that the table has just given up.
        match self.objects.remove(handle) {
            None | Some(Object::Uar(_)) => {}
            Some(Object::Pd(pd)) => {
                device.pds.remove(&pd.pdn);
            }
            Some(Object::Ah(ah)) => {
                device.ahs = device.ahs.saturating_sub(1);
                self.objects.release(ah.pd);
            }
            Some(Object::Mr(mr)) => {
                let _ = device.hca.destroy_mkey(mr.key);
                device.unpin(mr.pinned);
                self.objects.release(mr.pd);
            }
            Some(Object::Cq(cq)) => {
                let _ = device.hca.destroy_cq(cq.cqn);
                device.cq_owners.remove(&cq.cqn);
                device.unpin(cq.pinned);
                let comp = self.events.retract_completions(cq.channel, cq.user_handle);
                let other = self.events.retract_async(cq.async_file, cq.user_handle, CQ_EVENTS);
                destroyed.comp_events = cq.comp_events.saturating_sub(comp);
                destroyed.async_events = cq.async_events.saturating_sub(other);
            }
            Some(Object::Qp(qp)) => {
                let _ = device.hca.destroy_qp(qp.qpn);
                device.qp_owners.remove(&qp.qpn);
                device.unpin(qp.pinned);
                for held in [qp.pd, qp.send_cq, qp.recv_cq] {
                    self.objects.release(held);
                }
                let other = self.events.retract_async(qp.async_file, qp.user_handle, QP_EVENTS);
                destroyed.async_events = qp.async_events.saturating_sub(other);
            }
        }
        destroyed
    }

    /// Frees everything (`uverbs_destroy_ufile_hw`).
    fn close(mut self, device: &mut Device) {
        for handle in self.objects.teardown_order() {
            self.abandon(device, handle);
        }
    }

    /// An armed CQ got a completion (`ib_uverbs_comp_handler`).
    fn completion(&mut self, handle: u32) {
        if let Some(Object::Cq(cq)) = self.objects.get_mut(handle) {
            let event = ib_uverbs_comp_event_desc { cq_handle: cq.user_handle };
            if self.events.report(cq.channel, &event) {
                cq.comp_events += 1;
            }
        }
    }

    /// Something happened to a CQ or QP (`ib_uverbs_cq_event_handler`, `ib_uverbs_qp_event_handler`).
    fn async_event(&mut self, handle: u32, event_type: u32) {
        let (file, element, count) = match self.objects.get_mut(handle) {
            Some(Object::Cq(cq)) => (cq.async_file, cq.user_handle, &mut cq.async_events),
            Some(Object::Qp(qp)) => (qp.async_file, qp.user_handle, &mut qp.async_events),
            _ => return,
        };
        if self.events.report(file, &async_event(element, event_type)) {
            *count += 1;
        }
    }
}

/// The device and its open files.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) device: Device,
    files: BTreeMap<u64, File>,
    next_file: u64,
}

impl Kernel {
    pub(crate) fn new(device: Device) -> Self {
        Self { device, files: BTreeMap::new(), next_file: 0 }
    }

    /// Opens the device file.
    ///
    /// # Errors
    ///
    /// `ENOENT` when the device is gone, and its node with it.
    pub(crate) fn open(&mut self) -> Result<u64, Errno> {
        if self.device.gone {
            return Err(Errno::ENOENT);
        }
        let id = self.next_file;
        self.next_file += 1;
        self.files.insert(id, File::new(id));
        Ok(id)
    }

    /// Closes it: everything made through it goes.
    pub(crate) fn close(&mut self, id: u64) {
        if let Some(file) = self.files.remove(&id) {
            file.close(&mut self.device);
        }
    }

    /// One `RDMA_VERBS_IOCTL`.
    pub(crate) fn ioctl(&mut self, id: u64, words: &mut [u64]) -> Result<(), Errno> {
        let file = self.files.get_mut(&id).ok_or(Errno::EBADF)?;
        ioctl::ioctl(&mut self.device, file, words)
    }

    /// One mmap.
    pub(crate) fn mmap(
        &mut self,
        id: u64,
        len: usize,
        offset: u64,
    ) -> Result<memmap2::MmapRaw, Errno> {
        let file = self.files.get(&id).ok_or(Errno::EBADF)?;
        if self.device.gone {
            return Err(Errno::EIO);
        }
        uar::mmap(file, len, offset)
    }

    /// One slice of the device's work: doorbells, HCA, events. True if anything was done.
    pub(crate) fn step(&mut self, now: Duration) -> bool {
        if self.device.gone {
            return false;
        }
        let mut busy = false;
        let Device { hca, uars, .. } = &mut self.device;
        uars.scan(|uar, offset, value| {
            busy = true;
            hca.doorbell(uar, offset, value);
        });
        busy |= self.device.hca.step(now);
        busy |= self.deliver();
        busy
    }

    fn deliver(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.device.hca.next_event() {
            any = true;
            let (owner, event_type) = match event {
                HcaEvent::CqCompletion { cqn } => (self.device.cq_owners.get(&cqn), None),
                HcaEvent::CqError { cqn } => {
                    (self.device.cq_owners.get(&cqn), Some(ib::IB_EVENT_CQ_ERR))
                }
                HcaEvent::QpFatal { qpn } => self.qp_event(qpn, ib::IB_EVENT_QP_FATAL),
                HcaEvent::QpRequestError { qpn } => self.qp_event(qpn, ib::IB_EVENT_QP_REQ_ERR),
                HcaEvent::QpAccessError { qpn } => self.qp_event(qpn, ib::IB_EVENT_QP_ACCESS_ERR),
                HcaEvent::CommEstablished { qpn } => self.qp_event(qpn, ib::IB_EVENT_COMM_EST),
                HcaEvent::SqDrained { qpn } => self.qp_event(qpn, ib::IB_EVENT_SQ_DRAINED),
                // This side makes neither SRQs nor targets of dynamic connections.
                HcaEvent::SrqLimit { .. }
                | HcaEvent::SrqError { .. }
                | HcaEvent::DctDrained { .. }
                | HcaEvent::DctKeyViolation { .. } => (None, None),
                HcaEvent::LastWqeReached { qpn } => {
                    self.qp_event(qpn, ib::IB_EVENT_QP_LAST_WQE_REACHED)
                }
            };
            let Some(&(id, handle)) = owner else { continue };
            let Some(file) = self.files.get_mut(&id) else {
                continue;
            };
            match event_type {
                None => file.completion(handle),
                Some(event_type) => file.async_event(handle, event_type),
            }
        }
        any
    }

    fn qp_event(&self, qpn: u32, event_type: u32) -> (Option<&Owner>, Option<u32>) {
        (self.device.qp_owners.get(&qpn), Some(event_type))
    }

    /// Tries again to hand over events that did not fit their sockets.
    pub(crate) fn flush_events(&mut self) {
        for file in self.files.values_mut() {
            file.events.flush();
        }
    }

    /// Whether something may have to be done of which nothing tells: events that didn't fit their
    /// sockets, receives of queue pairs in ERR.
    pub(crate) fn needs_looks(&self) -> bool {
        let full = self.files.values().any(|file| file.events.has_backlog());
        !self.device.gone && (full || self.device.hca.needs_looks())
    }

    /// When the device has something to do by itself.
    pub(crate) fn next_deadline(&self) -> Option<Duration> {
        if self.device.gone { None } else { self.device.hca.next_deadline() }
    }

    /// The link went up or down.
    pub(crate) fn set_link(&mut self, up: bool) {
        if self.device.port_up == up || self.device.gone {
            return;
        }
        self.device.port_up = up;
        let event_type = if up { ib::IB_EVENT_PORT_ACTIVE } else { ib::IB_EVENT_PORT_ERR };
        for file in self.files.values_mut() {
            file.events.report_all(1, event_type);
        }
    }

    /// The device is pulled out (`ib_uverbs_remove_one`): all objects go, each async file gets DEVICE_FATAL.
    pub(crate) fn unplug(&mut self) {
        if self.device.gone {
            return;
        }
        self.device.gone = true;
        for file in self.files.values_mut() {
            for handle in file.objects.teardown_order() {
                file.abandon(&mut self.device, handle);
            }
            file.events.report_all(0, ib::IB_EVENT_DEVICE_FATAL);
            file.events.hang_up();
        }
    }
}
