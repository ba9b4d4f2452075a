//! A device that refuses commands: the client gets the errno, and keeps what it had.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::rig::*;
use crate::SoftHca;
use crate::board::profile::Profile;
use crate::hca::{Hca, HcaConfig};
use crate::memory::ProcessDma;
use crate::model;
use crate::wire::Fabric;
use uverbs_core::Errno;
use uverbs_front::backend::address::Address;
use uverbs_front::backend::context::*;
use uverbs_front::backend::error::{HcaError, HcaEvent, Noun};
use uverbs_front::backend::number::{Cqn, Key, Qpn, Queue, Srqn, UarNumber};
use uverbs_front::backend::region::Region;
use uverbs_front::backend::steering::Steering;
use uverbs_front::backend::{Backend, Mad};
use uverbs_front::door::{Door, Runner};
use uverbs_front::{Device, Kernel};
use uverbs_kernel_abi::mr::ib_uverbs_reg_mr;
use uverbs_kernel_abi::objects::*;

/// A device that refuses creations, changes and destructions while `refuses` is set.
#[derive(Debug)]
struct Refusing {
    hca: Hca,
    refuses: Arc<AtomicBool>,
}

impl Refusing {
    /// The device, unless it refuses.
    fn hca(&mut self) -> Result<&mut Hca, HcaError> {
        match self.refuses.load(Ordering::Relaxed) {
            true => Err(HcaError::Busy { noun: Noun::Qp, number: 0, users: 1 }),
            false => Ok(&mut self.hca),
        }
    }
}

impl Backend for Refusing {
    fn create_mkey(&mut self, context: MkeyContext) -> Result<Key, HcaError> {
        self.hca()?.create_mkey(context)
    }
    fn modify_mkey(&mut self, key: Key, context: MkeyContext) -> Result<Key, HcaError> {
        Backend::modify_mkey(self.hca()?, key, context)
    }
    fn destroy_mkey(&mut self, key: Key) -> Result<(), HcaError> {
        self.hca()?.destroy_mkey(key)
    }
    fn windows_on(&self, key: Key) -> usize {
        self.hca.windows_on(key)
    }
    fn create_cq(&mut self, context: CqContext) -> Result<Cqn, HcaError> {
        self.hca()?.create_cq(context)
    }
    fn resize_cq(&mut self, cqn: Cqn, ring: Region, log: u8, size: u32) -> Result<(), HcaError> {
        self.hca()?.resize_cq(cqn, ring, log, size)
    }
    fn moderate_cq(&mut self, cqn: Cqn, moderation: Moderation) -> Result<(), HcaError> {
        self.hca()?.moderate_cq(cqn, moderation)
    }
    fn cqe_size(&self, cqn: Cqn) -> Result<u32, HcaError> {
        self.hca.cqe_size(cqn)
    }
    fn destroy_cq(&mut self, cqn: Cqn) -> Result<(), HcaError> {
        self.hca()?.destroy_cq(cqn)
    }
    fn create_qp(&mut self, context: QpContext) -> Result<Queue, HcaError> {
        Backend::create_qp(self.hca()?, context)
    }
    fn modify_qp(
        &mut self,
        queue: Queue,
        to: QpTransition,
        attrs: &QpAttrs,
    ) -> Result<(), HcaError> {
        Backend::modify_qp(self.hca()?, queue, to, attrs)
    }
    fn query_qp(&self, queue: Queue) -> Result<(QpState, QpAttrs), HcaError> {
        Backend::query_qp(&self.hca, queue)
    }
    fn destroy_qp(&mut self, queue: Queue) -> Result<(), HcaError> {
        Backend::destroy_qp(self.hca()?, queue)
    }
    fn create_srq(&mut self, context: SrqContext) -> Result<Srqn, HcaError> {
        self.hca()?.create_srq(context)
    }
    fn modify_srq(&mut self, srqn: Srqn, limit: u16) -> Result<(), HcaError> {
        self.hca()?.modify_srq(srqn, limit)
    }
    fn query_srq(&self, srqn: Srqn) -> Result<u16, HcaError> {
        self.hca.query_srq(srqn)
    }
    fn destroy_srq(&mut self, srqn: Srqn) -> Result<(), HcaError> {
        self.hca()?.destroy_srq(srqn)
    }
    fn create_dct(&mut self, context: DctContext) -> Result<Qpn, HcaError> {
        self.hca()?.create_dct(context)
    }
    fn abandon_dct(&mut self, dctn: Qpn) -> Result<(), HcaError> {
        self.hca()?.abandon_dct(dctn)
    }
    fn command(&mut self, input: &[u8], output: &mut [u8]) {
        Backend::command(&mut self.hca, input, output);
    }
    fn steering(&mut self) -> &mut dyn Steering {
        &mut self.hca
    }
    fn doorbell(&mut self, uar: UarNumber, offset: u32, value: u64) {
        self.hca.doorbell(uar, offset, value);
    }
    fn next_event(&mut self) -> Option<HcaEvent> {
        self.hca.next_event()
    }
    fn resolve(&self, gid: [u8; 16]) -> [u8; 16] {
        self.hca.resolve(gid)
    }
    fn mac(&mut self, gid: &[u8; 16]) -> Result<[u8; 6], HcaError> {
        self.hca.mac(gid)
    }
    fn next_mad(&mut self) -> Option<Mad> {
        self.hca.next_mad()
    }
    fn next_left(&mut self) -> Option<Address> {
        self.hca.next_left()
    }
    fn send_mad(&mut self, src: Address, dst: Address, bytes: &[u8]) {
        self.hca.send_mad(src, dst, bytes);
    }
    fn flush_mads(&mut self) {
        self.hca.flush_mads();
    }
    fn set_client_slice(&mut self, is_client_slice: bool) {
        self.hca.set_client_slice(is_client_slice);
    }
    fn step(&mut self, now: Duration) -> bool {
        self.hca.step(now)
    }
    fn needs_looks(&self) -> bool {
        self.hca.needs_looks()
    }
    fn next_deadline(&self) -> Option<Duration> {
        self.hca.next_deadline()
    }
    fn leave(&mut self) {
        self.hca.leave();
    }
    fn produced(&self, cqn: Cqn) -> u32 {
        self.hca.produced(cqn)
    }
    fn may_send(&self, qpn: Qpn, key: Key, range: (u64, u64), writes: bool) -> bool {
        self.hca.may_send(qpn, key, range, writes)
    }
}

/// Front of a refusing device, which is never stepped.
struct Idle(Mutex<Kernel<Refusing>>);

impl Runner for Idle {
    type Device = Refusing;

    fn change<T>(&self, act: impl FnOnce(&mut Kernel<Refusing>) -> T) -> T {
        act(&mut self.0.lock().unwrap())
    }

    fn look<T>(&self, act: impl FnOnce(&Kernel<Refusing>) -> T) -> T {
        act(&self.0.lock().unwrap())
    }

    fn leave(&self) {}
}

/// Bytes pinned.
fn pinned(door: &Door<Idle>) -> u64 {
    door.runner().look(|kernel| kernel.device.pinned())
}

/// A client of a refusing device, its door, and the switch.
fn rig() -> (Rig, Arc<Door<Idle>>, Arc<AtomicBool>) {
    let profile = Profile::new(1, HcaConfig::default());
    let wire = Box::new(Fabric::default().attach(&[]));
    let hca = Hca::new(profile.hca.clone(), Box::new(ProcessDma), wire);
    let refuses = Arc::new(AtomicBool::new(false));
    let Device { config, cm, hca, .. } = model::device(&profile, hca);
    let refusing = Refusing { hca, refuses: Arc::clone(&refuses) };
    let kernel = Kernel::new(Device::new(config, cm, refusing));
    // SAFETY: a stepped device, which no test here steps, uses no memory.
    let door = unsafe { Door::open(Idle(Mutex::new(kernel))) }.unwrap();
    // The rig's device is another one, which is not opened.
    let hca = SoftHca::builder().stepped().build().unwrap();
    let rig = Rig { hca, door: Arc::<Door<Idle>>::clone(&door), arena: Arena::new(4 << 20) };
    rig.get_context().send(rig.door()).unwrap();
    (rig, door, refuses)
}

#[test]
fn a_refused_creation_leaves_nothing() {
    let (rig, door, refuses) = rig();
    let (pd, uar) = (rig.pd(), rig.uar().page_id);
    let addr = rig.arena.alloc(4096, page_size() as u64);
    let request = ib_uverbs_reg_mr {
        start: addr,
        hca_va: addr,
        length: 4096,
        pd_handle: pd,
        access_flags: DATA_RIGHTS,
        ..Default::default()
    };
    refuses.store(true, Ordering::Relaxed);
    assert_eq!(rig.reg_mr(request).map(drop), Err(Errno::EBUSY));
    assert_eq!(rig.cq_cmd(uar, 7).0.errno(rig.door()), Errno::EBUSY);
    assert_eq!(pinned(&door), 0);
    refuses.store(false, Ordering::Relaxed);
    let cq = rig.cq(uar, 7);
    let before = pinned(&door);
    refuses.store(true, Ordering::Relaxed);
    assert_eq!(rig.qp_cmd(uar, pd, cq.handle).0.errno(rig.door()), Errno::EBUSY);
    assert_eq!(pinned(&door), before);
    refuses.store(false, Ordering::Relaxed);
    // Neither of them holds the domain.
    assert_eq!(rig.destroy(UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, cq.handle), Ok(()));
    assert_eq!(rig.destroy(UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, pd), Ok(()));
}

#[test]
fn a_refused_destruction_keeps_object_and_memory() {
    let (rig, door, refuses) = rig();
    let (pd, uar) = (rig.pd(), rig.uar().page_id);
    let mr = rig.mr(pd, rig.arena.alloc(4096, page_size() as u64), 4096);
    let cq = rig.cq(uar, 7);
    let qp = rig.qp(uar, pd, cq.handle);
    for (object, method, handle) in [
        (UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, qp.handle),
        (UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, cq.handle),
        (UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, mr.mr_handle),
    ] {
        let before = pinned(&door);
        refuses.store(true, Ordering::Relaxed);
        assert_eq!(rig.destroy(object, method, handle), Err(Errno::EBUSY), "{object}");
        assert_eq!(pinned(&door), before, "{object}");
        refuses.store(false, Ordering::Relaxed);
        assert_eq!(rig.destroy(object, method, handle), Ok(()), "{object}");
        assert!(pinned(&door) < before, "{object}");
    }
    assert_eq!(pinned(&door), 0);
}
