//! The kernel side: answers ioctl commands as ib_uverbs and mlx5_ib do, with the same bytes and
//! errnos.
//!
//! | file | contents | in Linux |
//! |---|---|---|
//! | `methods` | the table of methods and write commands | `core/uverbs_std_types_*.c` |
//! | `report` | list of objects | `core/nldev.c` |
//! | `rdmavt` | the front of another device, over the same HCA | `sw/rdmavt/` |
//! | `verbs` | the commands, a file for each kind of object | `core/`, `hw/mlx5/` |
//! | `call` | one command, checked against the table | `core/uverbs_ioctl.c` |
//! | `attr` | specifications of attributes | `include/rdma/uverbs_ioctl.h` |
//! | `transition` | allowed state changes of a QP | `core/verbs.c` |
//! | `state` | device, open files, handles, event files | `core/rdma_core.c`, `uverbs_main.c` |
//! | `user` | copies from and to the caller, and pinning | `include/linux/uaccess.h` |
//!
//! Each row uses only the rows below it. If kernel versions differ, the answers follow Linux 6.15
//! and the stable series since mid-2025. `tests/conformance` of the workspace compares them with a
//! real kernel's answers.

use std::collections::BTreeMap;
use std::slice;
use std::time::Duration;

use nix::errno::Errno;
use uverbs_core::doors::cm::CmCommand;
use uverbs_core::report::resources::Resources;
use uverbs_kernel_abi::event as ib;

mod attr;
mod call;
mod methods;
pub(crate) mod rdmavt;
mod report;
mod state;
mod transition;
pub(crate) mod user;
mod verbs;

pub use self::state::device::Device;
pub use self::user::probe;
pub use self::verbs::device::context::attributes as device_attributes;
pub use self::verbs::device::port::attributes as port_attributes;
pub(crate) use self::verbs::memory::mr;

use self::state::device::Owner;
use self::state::file::File;
use self::state::objects::{Object, Objects};
use crate::backend::Backend;
use crate::backend::config::PortState;
use crate::backend::error::HcaEvent;
use crate::backend::number::{Qpn, Queue, UarNumber};

/// Datagrams of one slice; the rest waits for the next.
const MADS_PER_SLICE: usize = 64;

/// The device and its open files.
#[derive(Debug)]
pub struct Kernel<H> {
    /// The device.
    pub device: Device<H>,
    files: BTreeMap<u64, File>,
    next_file: u64,
}

impl<H: Backend + 'static> Kernel<H> {
    /// Begins to serve a device, without open files.
    pub fn new(device: Device<H>) -> Self {
        Self { device, files: BTreeMap::new(), next_file: 0 }
    }

    /// Objects of all open files.
    pub fn resources(&self) -> Resources {
        report::resources(self)
    }

    /// Number of objects of each kind.
    pub fn objects(&self) -> BTreeMap<u16, usize> {
        let mut counts = BTreeMap::new();
        for kind in self.files.values().flat_map(|file| file.objects.kinds()) {
            *counts.entry(kind).or_default() += 1;
        }
        counts
    }

    /// Numbers of the open files that have a context.
    pub fn contexts(&self) -> impl Iterator<Item = u64> {
        self.files.iter().filter(|(_, file)| file.context.is_some()).map(|(id, _)| *id)
    }

    /// Objects of all open files, each with the objects of its file.
    pub(crate) fn held(&self) -> impl Iterator<Item = (&Objects, &Object)> {
        self.files
            .values()
            .flat_map(|file| file.objects.all().map(|object| (&file.objects, object)))
    }

    /// Opens the device file.
    ///
    /// # Errors
    ///
    /// `ENOENT` if the device, and its node with it, is gone.
    pub(crate) fn open(&mut self) -> Result<u64, Errno> {
        if self.device.gone {
            return Err(Errno::ENOENT);
        }
        let id = self.next_file;
        self.next_file += 1;
        self.files.insert(id, File::new(id));
        Ok(id)
    }

    /// Closes the device file, and destroys all of its objects.
    pub(crate) fn close(&mut self, id: u64) {
        self.take_doorbells();
        if let Some(file) = self.files.remove(&id) {
            file.close(&mut self.device);
        }
        self.device.uars.free_unused();
    }

    /// Executes one `RDMA_VERBS_IOCTL`.
    pub(crate) fn ioctl(&mut self, id: u64, words: &mut [u64]) -> Result<(), Errno> {
        self.take_doorbells();
        front(&mut self.device).pump();
        let table =
            if self.device.rings.is_some() { &rdmavt::verbs::TABLE } else { &methods::TABLE };
        let file = self.files.get_mut(&id).ok_or(Errno::EBADF)?;
        let answer = call::ioctl(&mut self.device, file, table, words);
        self.collect();
        answer
    }

    /// Executes one mmap.
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
        if let Some(rings) = &mut self.device.rings {
            return rings.map(id, len, offset);
        }
        verbs::device::map::mmap(&self.device, file, len, offset)
    }

    /// True, once, if the last command sent a lone work request, which rdmavt carries out in the
    /// caller's context (`rvt_post_send`).
    pub(crate) fn takes_lone_send(&mut self) -> bool {
        self.device.rings.as_mut().is_some_and(|rings| std::mem::take(&mut rings.lone_send))
    }

    /// Hands out what the HCA completed in rings of rdmavt. True if that raised an event.
    fn collect(&mut self) -> bool {
        let Device { hca, rings: Some(rings), cq_owners, .. } = &mut self.device else {
            return false;
        };
        let events = rings.collect(hca);
        for (cqn, event) in &events {
            let Some(&(id, handle)) = cq_owners.get(cqn) else { continue };
            let Some(file) = self.files.get_mut(&id) else { continue };
            match event {
                rdmavt::Event::Completion => file.completion(handle),
                rdmavt::Event::Overrun => file.async_event(handle, ib::IB_EVENT_CQ_ERR),
            }
        }
        !events.is_empty()
    }

    /// Runs one slice of the device's work: doorbells, HCA, events. True if anything was done.
    /// `is_client_slice`: on the thread of a polling client.
    pub fn step(&mut self, now: Duration, is_client_slice: bool) -> bool {
        if self.device.gone {
            return false;
        }
        self.device.hca.set_client_slice(is_client_slice);
        let mut busy = self.take_doorbells();
        busy |= front(&mut self.device).pump();
        busy |= self.device.hca.step(now);
        busy |= self.collect();
        busy |= self.deliver();
        busy |= self.manage(now);
        busy
    }

    /// Takes the doorbells that were rung. A store into a doorbell page reaches a device before a
    /// later command does. True if there was one.
    fn take_doorbells(&mut self) -> bool {
        let mut rung = false;
        let Device { hca, uars, gone, .. } = &mut self.device;
        if !*gone {
            uars.scan(|uar, offset, value| {
                rung = true;
                hca.doorbell(UarNumber(uar), offset, value);
            });
        }
        rung
    }

    /// Executes one command of the connection manager's door `file`.
    pub fn connection_manager(
        &mut self,
        file: u64,
        command: CmCommand<'_>,
    ) -> Result<(), uverbs_core::Errno> {
        let result = self.device.cm.command(file, command);
        self.find_peers();
        self.send_mads();
        result
    }

    /// Closes a door of the connection manager.
    pub fn close_connection_manager(&mut self, file: u64) {
        self.device.cm.close(file);
        self.send_mads();
    }

    /// Runs the connection manager's part of a slice. True if anything was done.
    fn manage(&mut self, now: Duration) -> bool {
        self.find_peers();
        let Device { hca, cm, .. } = &mut self.device;
        let mut busy = cm.advance(now);
        // First: a message may come from a successor at the address.
        while let Some(peer) = hca.next_left() {
            busy = true;
            cm.peer_left(peer);
        }
        for _ in 0..MADS_PER_SLICE {
            let Some(mad) = hca.next_mad() else { break };
            busy = true;
            cm.receive(mad.from, mad.to, &mad.bytes);
        }
        self.send_mads();
        busy
    }

    /// Asks the device for the peers of new ids.
    fn find_peers(&mut self) {
        let Device { hca, cm, gone, .. } = &mut self.device;
        if !*gone {
            for (number, gid) in cm.asked() {
                cm.answered(number, hca.mac(&gid).map(drop).map_err(uverbs_core::Errno::from));
            }
        }
    }

    /// Sends the connection manager's messages before the call that caused them returns: the
    /// program may exit then, and with it the device's thread.
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
            if event == HcaEvent::Dead {
                self.unplug();
                break;
            }
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

    /// Retries events that did not fit their sockets.
    pub fn flush_events(&mut self) {
        for file in self.files.values_mut() {
            file.events.flush();
        }
    }

    /// True if work may come without notice: events that did not fit their sockets, receives of
    /// queue pairs in ERR.
    pub fn needs_looks(&self) -> bool {
        let full = self.files.values().any(|file| file.events.has_backlog());
        !self.device.gone && (full || self.device.hca.needs_looks())
    }

    /// Time of the device's next timer.
    pub fn next_deadline(&self) -> Option<Duration> {
        let Device { hca, cm, gone, .. } = &self.device;
        if *gone { None } else { hca.next_deadline().into_iter().chain(cm.next_deadline()).min() }
    }

    /// Sets the link up or down.
    pub fn set_link(&mut self, up: bool) {
        if self.device.port_up == up || self.device.gone {
            return;
        }
        self.device.port_up = up;
        self.device.link_downs += u64::from(!up);
        let event_type = if up { ib::IB_EVENT_PORT_ACTIVE } else { ib::IB_EVENT_PORT_ERR };
        for file in self.files.values_mut() {
            file.events.report_all(1, event_type);
        }
    }

    /// Tells each async file DEVICE_FATAL, once, and wakes who waits for completions. The objects
    /// stay: the device may still use their memory.
    pub fn report_fatal(&mut self) {
        if std::mem::replace(&mut self.device.fatal, true) {
            return;
        }
        for file in self.files.values_mut() {
            file.events.report_all(0, ib::IB_EVENT_DEVICE_FATAL);
            file.events.hang_up();
        }
    }

    /// Sets the port's attributes, and reports each change (`handle_port_change` of mlx5_ib).
    pub fn set_port(&mut self, state: PortState) {
        if self.device.gone {
            return;
        }
        let config = &mut self.device.config;
        let changes = [
            (config.lid != state.lid, ib::IB_EVENT_LID_CHANGE),
            (config.sm_lid != state.sm_lid, ib::IB_EVENT_SM_CHANGE),
            (config.gids != state.gids, ib::IB_EVENT_GID_CHANGE),
            (config.pkeys != state.pkeys, ib::IB_EVENT_PKEY_CHANGE),
        ];
        let PortState { up, lid, sm_lid, gids, pkeys, active_mtu } = state;
        (config.lid, config.sm_lid, config.active_mtu) = (lid, sm_lid, active_mtu);
        (config.gids, config.pkeys) = (gids, pkeys);
        for (_, event_type) in changes.into_iter().filter(|(changed, _)| *changed) {
            self.files.values_mut().for_each(|file| file.events.report_all(1, event_type));
        }
        self.set_link(up);
    }

    /// Removes the device (`ib_uverbs_remove_one`): all objects are destroyed, and each async file
    /// gets DEVICE_FATAL.
    pub fn unplug(&mut self) {
        if self.device.gone {
            return;
        }
        self.device.gone = true;
        // A wire forgets the port, on which a peer would otherwise wait.
        self.device.hca.leave();
        self.device.cm.remove_device();
        for file in self.files.values_mut() {
            for handle in file.objects.teardown_order() {
                let destroyed = file.abandon(&mut self.device, handle);
                file.dead.insert(handle, destroyed);
            }
        }
        self.report_fatal();
    }
}

/// A device as its handlers see it.
fn front<H: Backend + 'static>(device: &mut Device<H>) -> &mut Device {
    device
}

/// Owners to whom an event is reported, and its type. None: a completion event.
fn told<'d>(device: &'d Device, event: &HcaEvent) -> (&'d [Owner], Option<u32>) {
    let cq = |cqn| device.cq_owners.get(cqn).map_or(&[][..], slice::from_ref);
    let srq = |srqn| device.srq_owners.get(srqn).map_or(&[][..], slice::from_ref);
    let queue = |queue: Queue| device.qp_owners.get(&queue).map_or(&[][..], Vec::as_slice);
    let qp = |qpn: &Qpn| queue(Queue::Qp(*qpn));
    match event {
        HcaEvent::CqCompletion { cqn } => (cq(cqn), None),
        HcaEvent::CqError { cqn } => (cq(cqn), Some(ib::IB_EVENT_CQ_ERR)),
        HcaEvent::QpFatal { queue: of } => (queue(*of), Some(ib::IB_EVENT_QP_FATAL)),
        HcaEvent::QpRequestError { qpn } => (qp(qpn), Some(ib::IB_EVENT_QP_REQ_ERR)),
        HcaEvent::QpAccessError { qpn } => (qp(qpn), Some(ib::IB_EVENT_QP_ACCESS_ERR)),
        HcaEvent::CommEstablished { qpn } => (qp(qpn), Some(ib::IB_EVENT_COMM_EST)),
        HcaEvent::SqDrained { qpn } => (qp(qpn), Some(ib::IB_EVENT_SQ_DRAINED)),
        HcaEvent::LastWqeReached { qpn } => (qp(qpn), Some(ib::IB_EVENT_QP_LAST_WQE_REACHED)),
        HcaEvent::SrqLimit { srqn } => (srq(srqn), Some(ib::IB_EVENT_SRQ_LIMIT_REACHED)),
        HcaEvent::SrqError { srqn } => (srq(srqn), Some(ib::IB_EVENT_SRQ_ERR)),
        // mlx5_ib reports these events to no one.
        HcaEvent::DctDrained { .. }
        | HcaEvent::DctKeyViolation { .. }
        // The in-process device pages in on demand, so no page is ever missing.
        | HcaEvent::PageFault { .. }
        // `deliver` removes the device.
        | HcaEvent::Dead => (&[], None),
    }
}
