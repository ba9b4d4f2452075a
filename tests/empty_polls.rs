//! Polls that find nothing do the work of a device in this process.
//!
//! The device is stepped: only the polls of its queues run it.
//!
//! # Safety
//!
//! The door passes on its results and commands.
#![cfg(feature = "softhca")]
#![allow(unsafe_code, reason = "forwards an unsafe method of the door")]

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{Side, only_on_softhca};
use uverbs::softhca::SoftHca;
use uverbs::unstable::doors::{DeviceRecord, DeviceSource, UverbsDoor};
use uverbs::{CompletionQueue, Device, Errno, Local, Notify};
use uverbs_core::memory::pages::Pages;

/// Polls after which a message has surely come.
const MANY: u32 = 10_000;

/// Calls of the door's methods.
#[derive(Debug, Default)]
struct Calls {
    progress: AtomicU32,
    will_sleep: AtomicU32,
}

#[derive(Debug)]
struct Polled {
    hca: SoftHca,
    calls: Arc<Calls>,
}

#[derive(Debug)]
struct Door {
    door: Arc<dyn UverbsDoor>,
    hca: SoftHca,
    calls: Arc<Calls>,
}

impl DeviceSource for Polled {
    fn record(&self) -> &DeviceRecord {
        self.hca.record()
    }

    fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        let (hca, calls) = (self.hca.clone(), Arc::clone(&self.calls));
        Ok(Arc::new(Door { door: hca.open()?, hca, calls }))
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        self.hca.pkey(port, index)
    }
}

// SAFETY: passes on the results of the inner door, which keeps the contract.
unsafe impl UverbsDoor for Door {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        // SAFETY: by the contract of `ioctl`.
        unsafe { self.door.ioctl(command) }
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.door.mmap(len, offset)
    }

    fn export(&self) -> Result<OwnedFd, Errno> {
        self.door.export()
    }

    fn progress(&self) {
        self.calls.progress.fetch_add(1, Ordering::Relaxed);
        self.hca.step();
    }

    fn wants_progress(&self) -> bool {
        true
    }

    fn will_sleep(&self) {
        self.calls.will_sleep.fetch_add(1, Ordering::Relaxed);
    }
}

fn device() -> (Device, Arc<Calls>) {
    let calls = Arc::<Calls>::default();
    let hca = SoftHca::builder().stepped().build().unwrap();
    let source = Polled { hca, calls: Arc::clone(&calls) };
    (Device::from_source(Arc::new(source)), calls)
}

fn pair(device: &Device) -> [Side; 2] {
    let local = Local::default();
    let mut sides = [(); 2].map(|()| Side::new(device, &local, |builder| builder));
    let endpoints = [0, 1].map(|at| sides[at].endpoint);
    sides[0].qp.connect(&endpoints[1]).unwrap();
    sides[1].qp.connect(&endpoints[0]).unwrap();
    sides
}

fn send([client, server]: &mut [Side; 2], id: u64) {
    server.expect(id, 64);
    client.qp.post_send_inline(id, b"a message").unwrap();
}

/// Polls until there is a completion, in each way of a program.
fn polled(cq: &mut CompletionQueue) {
    let mut one = [Default::default()];
    let found = (0..MANY).any(|turn| match turn % 3 {
        0 => cq.poll_with(4, |_| ()) != 0,
        1 => cq.poll_into(&mut one) != 0,
        _ => cq.poll(1).next().is_some(),
    });
    assert!(found, "the device got no work done");
}

#[test]
fn a_busy_loop_needs_no_other_thread() {
    if !only_on_softhca("the device is stepped by its polls") {
        return;
    }
    let (device, calls) = device();
    let mut sides = pair(&device);
    for id in 0..20 {
        send(&mut sides, id);
        polled(&mut sides[1].cq);
        polled(&mut sides[0].cq);
        if id == 10 {
            sides.iter_mut().for_each(|side| side.cq.resize(600).unwrap());
        }
    }
    let before = calls.progress.load(Ordering::Relaxed);
    // A poll that finds something does no work, and neither do the first that find nothing.
    send(&mut sides, 20);
    polled(&mut sides[0].cq);
    let did = calls.progress.load(Ordering::Relaxed);
    assert!(did > before);
    polled(&mut sides[1].cq);
    assert_eq!(sides[1].cq.poll_with(1, |_| ()), 0);
    assert_eq!(calls.progress.load(Ordering::Relaxed), did);
}

#[test]
fn a_loop_over_events_needs_no_other_thread() {
    if !only_on_softhca("the device is stepped by its polls") {
        return;
    }
    let (device, calls) = device();
    let mut sides = pair(&device);
    let context = &sides[1].context;
    let channel = context.create_comp_channel().unwrap();
    let mut cq = context.completion_queue(512).channel(&channel).build().unwrap();
    let mut qp = context.queue_pair(&sides[1].pd, &cq).build().unwrap();
    let endpoint = qp.prepare(&Local::default()).unwrap();
    let mut client = Side::new(&device, &Local::default(), |builder| builder);
    client.qp.connect(&endpoint).unwrap();
    qp.connect(&client.endpoint).unwrap();
    for id in 0..20 {
        qp.post_recv(id, sides[1].slab(64, 1).take().unwrap()).unwrap();
        client.qp.post_send_inline(id, b"a message").unwrap();
        cq.arm(Notify::Any).unwrap();
        assert_eq!(calls.will_sleep.load(Ordering::Relaxed), id as u32 + 1);
        let before = calls.progress.load(Ordering::Relaxed);
        // The last poll before a program sleeps.
        assert_eq!(cq.poll_with(1, |_| ()), 0);
        assert_eq!(calls.progress.load(Ordering::Relaxed), before);
        let event = (0..MANY).find_map(|_| channel.try_next().unwrap());
        assert!(event.expect("the device got no work done").is_of(&cq));
        assert_eq!(cq.poll_with(1, |_| ()), 1);
        polled(&mut client.cq);
    }
    sides[0].cq.check().unwrap();
}
