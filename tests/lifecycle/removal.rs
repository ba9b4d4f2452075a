//! A device that goes in mid-traffic, of every transport at once: each wait and each verb of each
//! object ends in a typed error, and every frame comes back.
//!
//! In world A it is unplugged; on Linux's mlx5 drivers, which `tests/vm/unbind.sh` takes away, one
//! test at a time.

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::victim::Victim;
use common::{LIMIT, local};
use uverbs::dc::{DcDestination, DcTarget};
use uverbs::event::AsyncEventKind;
use uverbs::memory::WindowKind;
use uverbs::multicast::MulticastGroup;
use uverbs::transport::{Dci, Rc, Transport, Uc, Ud, XrcIni};
use uverbs::xrc::{ForXrc, XrcDomain, XrcTarget};
use uverbs::{
    AccessFlags, Any, Batch, CompletionQueue, Context, Destination, Device, Errno, Error, Frame,
    Gid, Local, Plain, ProtectionDomain, QueuePair, SharedReceiveQueue, Slab, Status, Unposted,
};

/// Frames of each end: half of them are in flight.
const FRAMES: usize = 8;
/// Rounds of each flow before the device goes.
const ROUNDS: usize = 20;
/// Time after which a flow counts as hung.
const HUNG: Duration = LIMIT;

/// A queue pair, with its completion queue and its frames.
struct End<T: Transport> {
    qp: QueuePair<Any, T>,
    cq: CompletionQueue,
    slab: Slab,
}

/// Parents of the objects of a flow.
struct Maker<'d> {
    context: Context,
    pd: ProtectionDomain,
    local: Local,
    /// True if the CQs have channels, so that waits sleep.
    sleeps: bool,
    device: &'d Device,
}

impl<'d> Maker<'d> {
    fn new(device: &'d Device, sleeps: bool) -> Self {
        let context = device.open().unwrap();
        let pd = context.alloc_pd().unwrap();
        Self { context, pd, local: local(), sleeps, device }
    }

    fn cq(&self) -> CompletionQueue {
        let cq = self.context.completion_queue(64);
        match self.sleeps {
            true => cq.channel(&self.context.create_comp_channel().unwrap()).build().unwrap(),
            false => cq.build().unwrap(),
        }
    }

    fn end<T: Transport>(&self, srq: Option<&SharedReceiveQueue>) -> End<T> {
        let cq = self.cq();
        let qp = self.context.queue_pair(&self.pd, &cq).max_send_wr(16).max_recv_wr(16);
        let qp = match srq {
            Some(srq) => qp.shared_receives(srq),
            None => qp,
        };
        let qp = qp.transport::<T>().build().unwrap();
        End { qp, cq, slab: self.slab() }
    }

    /// Room for a datagram's header in front.
    fn slab(&self) -> Slab {
        self.pd.slab(64 + uverbs::GRH_LEN, FRAMES).unwrap()
    }
}

/// All frames are in their slab again.
fn complete(name: &str, slab: &Slab) {
    let frames: Vec<Frame> = std::iter::from_fn(|| slab.take()).collect();
    assert_eq!(frames.len(), FRAMES, "{name}: frames");
}

/// Drains the completions that the device wrote; then a wait returns `DeviceGone` at once.
fn nothing_more(name: &str, cq: &mut CompletionQueue) {
    let started = Instant::now();
    let written = std::iter::from_fn(|| match cq.wait(LIMIT) {
        Ok(_) => Some(()),
        Err(error) => {
            assert!(matches!(error, Error::DeviceGone { verb: "poll_cq" }), "{name}: {error}");
            None
        }
    });
    assert!(written.count() <= FRAMES, "{name}");
    assert!(started.elapsed() < HUNG, "{name}");
}

impl<T: Transport> End<T> {
    fn receive(&mut self, round: u64) -> Result<(), Error> {
        Ok(self.qp.post_recv(round, self.slab.take().expect("a frame is free"))?)
    }

    fn send(
        &mut self,
        post: impl FnOnce(&mut Batch<'_, Any, T>, Frame) -> Result<(), Unposted<Frame>>,
    ) -> Result<(), Error> {
        let mut frame = self.slab.take().expect("a frame is free");
        frame.set_len(32);
        let mut batch = self.qp.batch();
        post(&mut batch, frame)?;
        batch.ring();
        Ok(())
    }

    /// Checks that every verb returns the error; then the queue pair counts as destroyed, and work
    /// requests in flight come back.
    fn end(self, name: &str) {
        let Self { mut qp, mut cq, slab } = self;
        eio(name, "query_qp", qp.query());
        eio(name, "modify_qp", qp.fail());
        eio(name, "resize_cq", cq.resize(128));
        eio(name, "modify_cq", cq.moderate(4, Duration::from_micros(4)));
        nothing_more(name, &mut cq);
        let gone = qp.destroy().unwrap_or_else(|refused| panic!("{name}: {refused}"));
        drop(cq.reclaim(&gone));
        complete(name, &slab);
    }
}

/// A verb that is refused, since the device is gone.
fn eio<R>(name: &str, verb: &str, result: Result<R, impl Into<Error>>) {
    let Err(error) = result else { panic!("{name}: {verb} of a device that is gone") };
    let error = error.into();
    assert!(error.to_string().contains(verb), "{name}: {error} doesn't name {verb}");
    assert_eq!(error.errno(), Some(Errno::EIO), "{name}: {error}");
}

fn wait(cq: &mut CompletionQueue) -> Result<(), Error> {
    cq.wait(HUNG)?.result?;
    Ok(())
}

/// Messages of one kind, back to back.
trait Flow: Send {
    /// One message.
    fn turn(&mut self, round: u64) -> Result<(), Error>;
    /// The device is gone.
    fn end(self: Box<Self>, name: &str);
}

/// Pair of RC or UC queue pairs, each with its receive queue.
struct Connected<T: Transport>(End<T>, End<T>);

macro_rules! connected {
    ($($transport:ty),+) => { $(
        impl Connected<$transport> {
            fn flow(make: &Maker<'_>) -> Box<dyn Flow> {
                let mut ends = [make.end::<$transport>(None), make.end(None)];
                let at = ends.each_mut().map(|end| end.qp.prepare(&make.local).unwrap());
                let [mut one, mut other] = ends;
                one.qp.connect(&at[1]).unwrap();
                other.qp.connect(&at[0]).unwrap();
                Box::new(Self(one, other))
            }
        }

        impl Flow for Connected<$transport> {
            fn turn(&mut self, round: u64) -> Result<(), Error> {
                self.1.receive(round)?;
                self.0.send(|batch, frame| batch.send(round, frame))?;
                wait(&mut self.0.cq)?;
                wait(&mut self.1.cq)
            }

            fn end(self: Box<Self>, name: &str) {
                self.0.end(name);
                self.1.end(name);
            }
        }
    )+ };
}

connected!(Rc, Uc);

/// Datagrams between two queue pairs, one of them in a multicast group.
struct Datagrams(End<Ud>, End<Ud>, Destination, Option<uverbs::multicast::MulticastMembership>);

impl Datagrams {
    fn flow(make: &Maker<'_>) -> Box<dyn Flow> {
        let mut ends = [make.end::<Ud>(None), make.end(None)];
        let at = ends.each_mut().map(|end| end.qp.bring_up(&make.local).unwrap());
        let [one, mut other] = ends;
        let to = one.qp.destination(&at[1]).unwrap();
        let gid: Gid = "ff12::9".parse().unwrap();
        let member = other.qp.attach(&MulticastGroup { gid, lid: 0xc009 }).unwrap();
        Box::new(Self(one, other, to, Some(member)))
    }
}

impl Flow for Datagrams {
    fn turn(&mut self, round: u64) -> Result<(), Error> {
        let Self(one, other, to, _) = self;
        other.receive(round)?;
        one.send(|batch, frame| batch.send_to(round, frame, to))?;
        wait(&mut one.cq)?;
        wait(&mut other.cq)
    }

    fn end(mut self: Box<Self>, name: &str) {
        let gid: Gid = "ff12::a".parse().unwrap();
        let group = MulticastGroup { gid, lid: 0xc00a };
        eio(name, "attach_mcast", self.1.qp.attach(&group));
        // The group is left with the queue pair.
        if let Err(refused) = self.3.take().unwrap().detach() {
            assert_eq!(refused.error.errno(), Some(Errno::EIO), "{name}: {refused}");
        }
        self.0.end(name);
        self.1.end(name);
    }
}

/// Connections to a queue pair that takes its receives from a shared queue.
struct Shared(End<Rc>, End<Rc>, SharedReceiveQueue<Any, Plain>, Slab);

impl Shared {
    fn flow(make: &Maker<'_>) -> Box<dyn Flow> {
        let srq = make.context.shared_receive_queue(&make.pd).max_wr(16).build().unwrap();
        let (mut one, mut other) = (make.end::<Rc>(None), make.end::<Rc>(Some(&srq)));
        let at = [&mut one, &mut other].map(|end| end.qp.prepare(&make.local).unwrap());
        one.qp.connect(&at[1]).unwrap();
        other.qp.connect(&at[0]).unwrap();
        Box::new(Self(one, other, srq, make.slab()))
    }
}

impl Flow for Shared {
    fn turn(&mut self, round: u64) -> Result<(), Error> {
        let Self(one, other, srq, slab) = self;
        srq.post(round, slab.take().expect("a frame is free"))?;
        one.send(|batch, frame| batch.send(round, frame))?;
        wait(&mut one.cq)?;
        wait(&mut other.cq)
    }

    fn end(mut self: Box<Self>, name: &str) {
        eio(name, "query_srq", self.2.query());
        eio(name, "modify_srq", self.2.set_limit(1));
        self.0.end(name);
        self.1.end(name);
        drop(self.2.destroy().unwrap_or_else(|refused| panic!("{name}: {refused}")));
        complete(name, &self.3);
    }
}

/// An initiator of XRC, and the queue that it sends to.
struct Xrc {
    from: End<XrcIni>,
    target: XrcTarget,
    srq: SharedReceiveQueue<Any, ForXrc>,
    domain: XrcDomain,
    cq: CompletionQueue,
    slab: Slab,
}

impl Xrc {
    fn flow(make: &Maker<'_>) -> Box<dyn Flow> {
        let (context, cq) = (&make.context, make.cq());
        let domain = context.xrc_domain().unwrap();
        let srq = context.shared_receive_queue(&make.pd).max_wr(16).xrc(&domain, &cq);
        let srq = srq.build().unwrap();
        let mut target = context.xrc_target(&domain).unwrap();
        let mut from = make.end::<XrcIni>(None);
        let here = from.qp.prepare(&make.local).unwrap();
        let there = target.prepare(&make.local).unwrap();
        from.qp.connect(&there).unwrap();
        target.connect(&here).unwrap();
        Box::new(Self { from, target, srq, domain, cq, slab: make.slab() })
    }
}

impl Flow for Xrc {
    fn turn(&mut self, round: u64) -> Result<(), Error> {
        self.srq.post(round, self.slab.take().expect("a frame is free"))?;
        let to = self.srq.remote();
        self.from.send(|batch, frame| batch.send_to(round, frame, &to))?;
        wait(&mut self.from.cq)?;
        wait(&mut self.cq)
    }

    fn end(mut self: Box<Self>, name: &str) {
        eio(name, "query_qp", self.target.query());
        eio(name, "modify_qp", self.target.fail());
        self.from.end(name);
        self.target.destroy().unwrap_or_else(|refused| panic!("{name}: {refused}"));
        drop(self.srq.destroy().unwrap_or_else(|refused| panic!("{name}: {refused}")));
        self.domain.close().unwrap_or_else(|refused| panic!("{name}: {refused}"));
        nothing_more(name, &mut self.cq);
        complete(name, &self.slab);
    }
}

/// An initiator of dynamic connections, and its target.
struct Dynamic {
    from: End<Dci>,
    to: DcDestination,
    target: DcTarget,
    srq: SharedReceiveQueue,
    cq: CompletionQueue,
    slab: Slab,
}

impl Dynamic {
    fn flow(make: &Maker<'_>) -> Box<dyn Flow> {
        let (context, cq) = (&make.context, make.cq());
        let srq = context.shared_receive_queue(&make.pd).max_wr(16).build().unwrap();
        let mut target = context.dc_target(&make.pd, &cq, &srq, 0xdc).unwrap();
        let at = target.bring_up(&make.local).unwrap();
        let mut from = make.end::<Dci>(None);
        from.qp.bring_up(&make.local).unwrap();
        let to = from.qp.destination(&at).unwrap();
        Box::new(Self { from, to, target, srq, cq, slab: make.slab() })
    }
}

impl Flow for Dynamic {
    fn turn(&mut self, round: u64) -> Result<(), Error> {
        self.srq.post(round, self.slab.take().expect("a frame is free"))?;
        let to = &self.to;
        self.from.send(|batch, frame| batch.send_to(round, frame, to))?;
        wait(&mut self.from.cq)?;
        wait(&mut self.cq)
    }

    fn end(self: Box<Self>, name: &str) {
        self.from.end(name);
        self.target.destroy().unwrap_or_else(|refused| panic!("{name}: {refused}"));
        drop(self.srq.destroy().unwrap_or_else(|refused| panic!("{name}: {refused}")));
        complete(name, &self.slab);
    }
}

type New = fn(&Maker<'_>) -> Box<dyn Flow>;

/// Each kind of flow, polling and asleep.
const FLOWS: [(&str, New); 6] = [
    ("RC", Connected::<Rc>::flow),
    ("UC", Connected::<Uc>::flow),
    ("UD", Datagrams::flow),
    ("SRQ", Shared::flow),
    ("XRC", Xrc::flow),
    ("DC", Dynamic::flow),
];

/// Statuses of work requests while the kernel destroys the objects of a context, newest first:
/// memory goes before the queues that use it, and one end before the other.
const HALF_GONE: [Status; 4] = [
    Status::LocalProtection,
    Status::RemoteOperation,
    Status::RemoteInvalidRequest,
    Status::Flushed,
];

/// True if a flow may end with this error: the device is gone, `EIO`, or a status of [`HALF_GONE`].
fn is_typed(error: &Error) -> bool {
    match error {
        Error::DeviceGone { .. } => true,
        Error::Failed(failure) => HALF_GONE.contains(&failure.status),
        other => other.errno() == Some(Errno::EIO),
    }
}

/// Open files are the process's.
fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// No more files are open than `before`. A device's thread closes its own.
fn closed(before: usize) {
    let started = Instant::now();
    while descriptors() > before {
        assert!(started.elapsed() < LIMIT, "{} open files, {before} before", descriptors());
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn every_transport_in_mid_traffic_ends_in_a_typed_error() {
    let _alone = crate::counting();
    // Files that stay open after the first use are no leak.
    drop(Victim::new().map(|victim| victim.device().open()));
    let open = descriptors();
    let Some(victim) = Victim::new() else { return };
    let device = victim.device();
    let mut flows = Vec::new();
    for sleeps in [false, true] {
        for (name, new) in FLOWS {
            let make = Maker::new(&device, sleeps);
            flows.push((format!("{name}{}", if sleeps { ", asleep" } else { "" }), new(&make)));
        }
    }
    let under_way = AtomicUsize::new(0);
    let count = flows.len();
    thread::scope(|scope| {
        let run = |(name, mut flow): (String, Box<dyn Flow>)| {
            let started = Instant::now();
            let mut round = 0;
            let error = loop {
                match flow.turn(round) {
                    Ok(()) => round += 1,
                    Err(error) => break error,
                }
                if round as usize == ROUNDS {
                    under_way.fetch_add(1, Ordering::Relaxed);
                }
                assert!(started.elapsed() < 3 * LIMIT, "{name}: it goes on without a device");
            };
            assert!(round as usize >= ROUNDS, "{name}: {error} in round {round}");
            assert!(is_typed(&error), "{name}: {error:?}");
            (name, flow)
        };
        let threads: Vec<_> = flows.drain(..).map(|flow| scope.spawn(move || run(flow))).collect();
        let started = Instant::now();
        while under_way.load(Ordering::Relaxed) < count && started.elapsed() < 2 * LIMIT {
            thread::sleep(Duration::from_millis(5));
        }
        victim.take();
        for thread in threads {
            let (name, flow) = thread.join().expect("it ended as it should");
            flow.end(&name);
        }
    });
    assert_eq!(victim.left(), (0, 0));
    drop((device, victim));
    closed(open);
}

/// Checks that each verb of a context that lost its device returns `EIO`.
fn refused(context: &Context, pd: &ProtectionDomain, region: u32) {
    eio("context", "query_device", context.query_device());
    eio("context", "query_port", context.query_port(1));
    eio("context", "query_gid_table", context.query_gid_table());
    eio("context", "alloc_pd", context.alloc_pd());
    eio("context", "create_comp_channel", context.create_comp_channel());
    eio("context", "create_cq", context.create_cq(16));
    eio("context", "create_srq", context.shared_receive_queue(pd).build());
    eio("context", "open_xrcd", context.xrc_domain());
    eio("context", "alloc_dm", context.alloc_device_memory(64, 0));
    eio("domain", "reg_mr", pd.slab(64, 1));
    eio("domain", "reg_mr", pd.expose(64, AccessFlags::REMOTE_READ));
    eio("domain", "alloc_mw", pd.alloc_window(WindowKind::Type1));
    eio("domain", "query_mr", pd.import_region(region));
}

#[test]
fn every_other_object_says_so_and_ends() {
    let _alone = crate::counting();
    // Files that stay open after the first use are no leak.
    drop(Victim::new().map(|victim| victim.device().open()));
    let open = descriptors();
    let Some(victim) = Victim::new() else { return };
    let device = victim.device();
    let make = Maker::new(&device, true);
    let Maker { context, pd, .. } = &make;
    let channel = context.create_comp_channel().unwrap();
    let mut quiet = context.completion_queue(16).channel(&channel).build().unwrap();
    quiet.arm(uverbs::Notify::Any).unwrap();
    let exposed = pd.expose(4096, AccessFlags::REMOTE_WRITE | AccessFlags::MW_BIND).unwrap();
    let window = pd.alloc_window(WindowKind::Type1).unwrap();
    let memory = context.alloc_device_memory(64, 0).unwrap();
    let access = AccessFlags::LOCAL_WRITE;
    let region = pd.register_device_memory(&memory, 0, 64, access).unwrap();
    let clock = context.clock();
    let mut shared = context.shared_receive_queue(pd).build().unwrap();
    let slab = make.slab();
    shared.post(1, slab.take().unwrap()).unwrap();
    let mut fresh = make.end::<Rc>(None);
    let handle = make.end::<Ud>(None);
    thread::scope(|scope| {
        // One thread waits for events of the channel, one for asynchronous events.
        let events = scope.spawn(|| {
            let error = channel.next_within(HUNG).expect_err("no queue has anything");
            assert!(matches!(error, Error::DeviceGone { .. }), "{error:?}");
        });
        let fatal = scope.spawn(|| {
            let events = std::iter::from_fn(|| context.async_event(LIMIT).unwrap());
            let mut kinds = events.map(|event| event.kind);
            assert!(kinds.any(|kind| kind == AsyncEventKind::DeviceFatal));
        });
        thread::sleep(Duration::from_millis(50));
        victim.take();
        events.join().unwrap();
        fatal.join().unwrap();
    });
    refused(context, pd, exposed.handle());
    eio("queue pair", "query_port", fresh.qp.prepare(&make.local));
    eio("queue", "modify_cq", quiet.moderate(4, Duration::from_micros(4)));
    eio("memory", "reg_dm_mr", pd.register_device_memory(&memory, 0, 64, access));
    assert!(make.device.open().is_err(), "there is nothing to open");
    // Mappings stay: reads and writes have no effect, and raise no signal.
    memory.write(0, &[7; 64]).unwrap();
    memory.read(0, &mut [0; 64]).unwrap();
    exposed.read(0, &mut [0; 16]).unwrap();
    if let Ok(clock) = clock {
        let _ = clock.read();
    }
    let frames = shared.destroy().unwrap_or_else(|refused| panic!("{refused}"));
    assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1]);
    drop(frames);
    complete("shared queue", &slab);
    region.deregister().unwrap_or_else(|refused| panic!("{refused}"));
    drop((fresh, handle, window, memory, exposed, quiet, channel, slab));
    drop(make);
    assert_eq!(victim.left(), (0, 0));
    drop((device, victim));
    closed(open);
}
