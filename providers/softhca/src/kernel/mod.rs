//! The kernel side: answers the ioctl bytes that ib_uverbs and mlx5_ib answer, with the same
//! errnos.
//!
//! | file | what | in Linux |
//! |---|---|---|
//! | `methods` | the table of methods and write commands | `core/uverbs_std_types_*.c` |
//! | `verbs` | the commands, one noun each | `core/`, `hw/mlx5/` |
//! | `call` | one command, checked against the table | `core/uverbs_ioctl.c` |
//! | `attr` | what an attribute may be | `include/rdma/uverbs_ioctl.h` |
//! | `transition` | which changes of a QP are allowed | `core/verbs.c` |
//! | `state` | device, open files, handles, event files | `core/rdma_core.c`, `uverbs_main.c` |
//! | `user` | copies from and to the caller, and pinning | `include/linux/uaccess.h` |
//!
//! Top to bottom; each uses only those below it. Where kernel versions differ the answers are those
//! of Linux 6.15 and of the stable series since mid-2025. `tests/conformance` of the workspace
//! compares them with the kernel's own.

use std::collections::BTreeMap;
use std::slice;
use std::time::Duration;

use nix::errno::Errno;
use uverbs_core::doors::cm::CmCommand;
use uverbs_kernel_abi::event as ib;

mod attr;
mod call;
mod methods;
mod state;
mod transition;
pub(crate) mod user;
mod verbs;

pub(crate) use self::state::device::Device;
pub(crate) use self::verbs::{mr, port};
pub(crate) use crate::board::profile;

use self::state::device::Owner;
use self::state::file::File;
use crate::hca::HcaEvent;
use crate::hca::number::UarNumber;

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

    /// How many objects of each kind there are.
    pub(crate) fn objects(&self) -> BTreeMap<u16, usize> {
        let mut counts = BTreeMap::new();
        for kind in self.files.values().flat_map(|file| file.objects.kinds()) {
            *counts.entry(kind).or_default() += 1;
        }
        counts
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
        call::ioctl(&mut self.device, file, &methods::TABLE, words)
    }

    /// One mmap.
    pub(crate) fn mmap(
        &mut self,
        id: u64,
        len: usize,
        offset: u64,
    ) -> Result<uverbs_core::memory::pages::Pages, Errno> {
        let file = self.files.get(&id).ok_or(Errno::EBADF)?;
        if self.device.gone {
            return Err(Errno::EIO);
        }
        verbs::map::mmap(&self.device, file, len, offset)
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
            hca.doorbell(UarNumber(uar), offset, value);
        });
        busy |= self.device.hca.step(now);
        busy |= self.deliver();
        busy |= self.manage(now);
        busy
    }

    /// One command of the connection manager's door `file`.
    pub(crate) fn connection_manager(
        &mut self,
        file: u64,
        command: CmCommand<'_>,
    ) -> Result<(), uverbs_core::Errno> {
        let result = self.device.cm.command(file, command);
        self.send_mads();
        result
    }

    /// Closes a door of the connection manager.
    pub(crate) fn close_connection_manager(&mut self, file: u64) {
        self.device.cm.close(file);
        self.send_mads();
    }

    /// The connection manager's part of a slice. True if anything was done.
    fn manage(&mut self, now: Duration) -> bool {
        let Device { hca, cm, .. } = &mut self.device;
        let mut busy = cm.advance(now);
        while let Some(mad) = hca.next_mad() {
            busy = true;
            cm.receive(mad.from, mad.to, &mad.bytes);
        }
        self.send_mads();
        busy
    }

    /// Sends what the connection manager has to say, before the call that made it say so returns:
    /// the program may end then, and with it the device's thread.
    fn send_mads(&mut self) {
        let Device { hca, cm, gone, .. } = &mut self.device;
        let mads = cm.take_outgoing();
        if *gone || mads.is_empty() {
            return;
        }
        for mad in mads {
            hca.send_mad(mad.src, mad.dst, &mad.bytes);
        }
        hca.flush_mads();
    }

    fn deliver(&mut self) -> bool {
        let mut any = false;
        while let Some(event) = self.device.hca.next_event() {
            any = true;
            let (owners, event_type) = told(&self.device, &event);
            for &(id, handle) in owners {
                let Some(file) = self.files.get_mut(&id) else {
                    continue;
                };
                match event_type {
                    None => file.completion(handle),
                    Some(event_type) => file.async_event(handle, event_type),
                }
            }
        }
        any
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
        let Device { hca, cm, gone, .. } = &self.device;
        if *gone { None } else { hca.next_deadline().into_iter().chain(cm.next_deadline()).min() }
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

    /// The device is pulled out (`ib_uverbs_remove_one`): all objects go, each async file gets
    /// DEVICE_FATAL.
    pub(crate) fn unplug(&mut self) {
        if self.device.gone {
            return;
        }
        self.device.gone = true;
        self.device.cm.remove_device();
        for file in self.files.values_mut() {
            for handle in file.objects.teardown_order() {
                let destroyed = file.abandon(&mut self.device, handle);
                file.dead.insert(handle, destroyed);
            }
            file.events.report_all(0, ib::IB_EVENT_DEVICE_FATAL);
            file.events.hang_up();
        }
    }
}

/// Who hears of an event, and its kind; no kind is a completion's.
fn told<'d>(device: &'d Device, event: &HcaEvent) -> (&'d [Owner], Option<u32>) {
    let cq = |cqn| device.cq_owners.get(cqn).map_or(&[][..], slice::from_ref);
    let srq = |srqn| device.srq_owners.get(srqn).map_or(&[][..], slice::from_ref);
    let qp = |qpn| device.qp_owners.get(qpn).map_or(&[][..], Vec::as_slice);
    match event {
        HcaEvent::CqCompletion { cqn } => (cq(cqn), None),
        HcaEvent::CqError { cqn } => (cq(cqn), Some(ib::IB_EVENT_CQ_ERR)),
        HcaEvent::QpFatal { qpn } => (qp(qpn), Some(ib::IB_EVENT_QP_FATAL)),
        HcaEvent::QpRequestError { qpn } => (qp(qpn), Some(ib::IB_EVENT_QP_REQ_ERR)),
        HcaEvent::QpAccessError { qpn } => (qp(qpn), Some(ib::IB_EVENT_QP_ACCESS_ERR)),
        HcaEvent::CommEstablished { qpn } => (qp(qpn), Some(ib::IB_EVENT_COMM_EST)),
        HcaEvent::SqDrained { qpn } => (qp(qpn), Some(ib::IB_EVENT_SQ_DRAINED)),
        HcaEvent::LastWqeReached { qpn } => (qp(qpn), Some(ib::IB_EVENT_QP_LAST_WQE_REACHED)),
        HcaEvent::SrqLimit { srqn } => (srq(srqn), Some(ib::IB_EVENT_SRQ_LIMIT_REACHED)),
        HcaEvent::SrqError { srqn } => (srq(srqn), Some(ib::IB_EVENT_SRQ_ERR)),
        // mlx5_ib tells nobody of these.
        HcaEvent::DctDrained { .. }
        | HcaEvent::DctKeyViolation { .. }
        // Pages are brought when they are needed: none is ever missing.
        | HcaEvent::PageFault { .. } => (&[], None),
    }
}
