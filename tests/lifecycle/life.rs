//! Many objects, one after the other and from several threads: all are freed.
//!
//! `UVERBS_TEST_OBJECTS` is the number of each kind, and behind a comma of the rarer ones; the
//! default is ten thousand. If it is set, the time of each kind is printed.

use std::fs;
use std::io::Write as _;
use std::net::{IpAddr, Ipv6Addr};
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use common::{is_rxe, local, soft};
use uverbs::memory::WindowKind;
use uverbs::multicast::MulticastGroup;
use uverbs::softhca::SoftHca;
use uverbs::{
    AccessFlags, CompletionChannel, CompletionQueue, Context, DatagramEndpoint, Device, Gid,
    LocalPort, ProtectionDomain, QueuePairBuilder, SharedReceiveQueue, UdQueuePair,
};
use uverbs_kernel_abi::mlx5::MLX5_IB_OBJECT_UAR;

const THREADS: usize = 4;

/// Selection of objects by the environment, if it is set.
fn asked() -> Option<String> {
    std::env::var("UVERBS_TEST_OBJECTS").ok()
}

/// How many of each: of the usual ones, and of the others.
fn counts() -> [usize; 2] {
    let asked = asked().unwrap_or_else(|| "10000".to_owned());
    let counts: Vec<usize> = asked.split(',').map(|count| count.parse().unwrap()).collect();
    [counts[0], *counts.get(1).unwrap_or(&counts[0])]
}

/// Parents of the objects, on one open device.
struct Rig<'c> {
    context: &'c Context,
    pd: ProtectionDomain,
    port: LocalPort,
    channel: CompletionChannel,
    cq: CompletionQueue,
    srq: SharedReceiveQueue,
    datagrams: UdQueuePair,
    here: DatagramEndpoint,
}

impl<'c> Rig<'c> {
    fn new(context: &'c Context) -> Self {
        let pd = context.alloc_pd().unwrap();
        let channel = context.create_comp_channel().unwrap();
        let cq = context.completion_queue(512).channel(&channel).build().unwrap();
        let srq = context.shared_receive_queue(&pd).build().unwrap();
        let mut datagrams = context.queue_pair(&pd, &cq).ud().build().unwrap();
        let here = datagrams.bring_up(&local()).unwrap();
        let port = context.local_port(&local()).unwrap();
        Self { context, pd, port, channel, cq, srq, datagrams, here }
    }

    fn builder(&self) -> QueuePairBuilder {
        self.context.queue_pair(&self.pd, &self.cq).max_send_wr(4).max_recv_wr(4)
    }
}

/// Makes an object and drops it; the number says which one in the row it is.
type Make = fn(&mut Rig<'_>, usize);

/// Name of a kind of object, and its constructor.
type Kind = (&'static str, Make);

/// Objects that every program makes.
const USUAL: &[Kind] = &[
    ("protection domains", |rig, _| drop(rig.context.alloc_pd().unwrap())),
    ("completion channels", |rig, _| drop(rig.context.create_comp_channel().unwrap())),
    ("regions", |rig, _| drop(rig.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap())),
    ("completion queues", |rig, _| {
        drop(rig.context.completion_queue(4).channel(&rig.channel).build().unwrap());
    }),
    ("RC queue pairs", queue_pair),
];

/// Other objects that every device supports.
const OTHERS: &[Kind] = &[
    ("UC queue pairs", |rig, _| drop(rig.builder().uc().build().unwrap())),
    ("UD queue pairs", |rig, _| drop(rig.builder().ud().build().unwrap())),
    ("shared receive queues", shared_queue),
    ("memory windows", |rig, index| {
        let kinds = [WindowKind::Type1, WindowKind::Type2];
        drop(rig.pd.alloc_window(kinds[index % 2]).unwrap());
    }),
    ("address handles", |rig, _| drop(rig.datagrams.destination(&rig.here).unwrap())),
    ("memberships", |rig, index| {
        // Each thread has a separate group. Soft-RoCE can let a queue pair join a group that
        // another is just tearing down, and then neither lets it leave nor destroys it
        // (`rxe_mcast.c`: `rxe_get_mcg` and `rxe_attach_mcg` take the lock one after the other).
        let [number, index] = [rig.datagrams.qpn(), index as u32 + 1];
        let gid = Ipv6Addr::from(0xff12 << 112 | u128::from(number) << 32 | u128::from(index));
        let group = MulticastGroup { gid: Gid::from(IpAddr::V6(gid)), lid: 0xc001 };
        drop(rig.datagrams.attach(&group).unwrap());
    }),
    ("registered bytes", |rig, _| {
        drop(rig.pd.register_bytes(&Arc::from([7; 64])).unwrap());
    }),
];

/// Objects that only a ConnectX supports.
const CONNECTX: &[Kind] = &[
    ("XRC domains", |rig, _| drop(rig.context.xrc_domain().unwrap())),
    ("XRC queues and targets", xrc),
    ("DC targets", |rig, index| {
        let mut target = rig.context.dc_target(&rig.pd, &rig.cq, &rig.srq, 1).unwrap();
        if index % 2 == 1 {
            target.bring_up(&local()).unwrap();
        }
    }),
    ("DC initiators", |rig, _| drop(rig.builder().dci().build().unwrap())),
    ("device memory", |rig, _| {
        let memory = rig.context.alloc_device_memory(64, 0).unwrap();
        let access = AccessFlags::LOCAL_WRITE;
        let region = rig.pd.register_device_memory(&memory, 0, 64, access).unwrap();
        drop(memory);
        drop(region);
    }),
    ("imports, each of twenty", |rig, index| {
        // Each has pages and a file of events: more than the others.
        if index % 20 == 0 {
            let guest = uverbs::import(rig.context.export().unwrap()).unwrap();
            drop(guest.create_cq(4).unwrap());
        }
    }),
];

/// Dropped in RESET, after it was brought up, or destroyed by name with a receive in it.
fn queue_pair(rig: &mut Rig<'_>, index: usize) {
    let mut qp = rig.builder().build().unwrap();
    match index % 3 {
        0 => drop(qp),
        1 => {
            qp.prepare_on(&rig.port).unwrap();
            qp.connect_to_self().unwrap();
        }
        _ => {
            qp.prepare_on(&rig.port).unwrap();
            qp.post_recv(1, rig.pd.slab(64, 1).unwrap().take().unwrap()).unwrap();
            drop(qp.destroy().unwrap());
        }
    }
}

/// Shared receive queue: empty, with a receive, or with a queue pair that outlives it.
fn shared_queue(rig: &mut Rig<'_>, index: usize) {
    let mut srq = rig.context.shared_receive_queue(&rig.pd).max_wr(4).build().unwrap();
    match index % 3 {
        0 => drop(srq),
        1 => srq.post(1, rig.pd.slab(64, 1).unwrap().take().unwrap()).unwrap(),
        _ => {
            let qp = rig.builder().max_recv_wr(0).shared_receives(&srq).build().unwrap();
            drop(srq);
            drop(qp);
        }
    }
}

/// A domain with a queue in it, a target, a second handle of that, or an initiator.
fn xrc(rig: &mut Rig<'_>, index: usize) {
    let context = rig.context;
    let domain = context.xrc_domain().unwrap();
    match index % 4 {
        0 => {
            let srq = context.shared_receive_queue(&rig.pd).max_wr(4).xrc(&domain, &rig.cq);
            drop(srq.build().unwrap());
        }
        1 => drop(context.xrc_target(&domain).unwrap()),
        2 => {
            let target = context.xrc_target(&domain).unwrap();
            let again = context.open_xrc_target(&domain, target.qpn()).unwrap();
            drop(target);
            drop(again);
        }
        _ => drop(rig.builder().xrc().build().unwrap()),
    }
    domain.close().unwrap();
}

/// Makes and drops `count` of each object on one open device.
fn churn(context: &Context, kinds: &[&[Kind]], count: usize) {
    let mut rig = Rig::new(context);
    for (name, make) in kinds.iter().copied().flatten() {
        let start = Instant::now();
        for index in 0..count {
            make(&mut rig, index);
        }
        if asked().is_some() && count > THREADS {
            // Written to the file directly: the harness shows the output of failing tests only.
            let took = start.elapsed().as_secs_f64();
            let _ = writeln!(std::io::stderr(), "{count} {name} in {took:.1} s");
        }
    }
}

/// Objects and pinned bytes.
const NOTHING: (usize, u64) = (0, 0);

/// Objects and pinned bytes of a software HCA, without doorbell pages: queues take these on demand,
/// up to 16 registers and the shared page, and keep them until the device is closed.
fn left(hca: &SoftHca) -> (usize, u64) {
    let mut objects = hca.objects();
    let pages = objects.remove(&MLX5_IB_OBJECT_UAR).unwrap_or(0);
    assert!(pages <= 17, "{pages} doorbell pages");
    (objects.values().sum(), hca.pinned_bytes())
}

/// Objects of each kind that the kernel's resource tracking knows of the device.
fn tracked(device: &Device) -> Option<String> {
    let output = Command::new("rdma").args(["resource", "show"]).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let name = format!(" {}: ", device.name());
    text.lines().find(|line| line.contains(&name)).map(str::to_owned)
}

fn on_softhca() -> bool {
    std::env::var_os("UVERBS_TEST_DEVICE").is_none()
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn leaves_nothing(kinds: &[&[Kind]], count: usize) {
    let _alone = crate::counting();
    let hca = SoftHca::builder().build().unwrap();
    let device = if on_softhca() { soft(&hca) } else { common::device() };
    // One round beforehand: objects that this process or the kernel keeps after the first use are
    // no leak.
    churn(&device.open().unwrap(), kinds, THREADS);
    let open = descriptors();
    let before = tracked(&device);
    if before.is_none() {
        common::skip("its count by the kernel: no resource tracking of this device here");
    }
    let context = device.open().unwrap();
    churn(&context, kinds, count);
    assert_eq!(left(&hca), NOTHING, "one after the other");
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| churn(&context, kinds, count / THREADS));
        }
    });
    assert_eq!(left(&hca), NOTHING, "in parallel");
    drop(context);
    assert_eq!((hca.objects().len(), hca.pinned_bytes()), (0, 0), "the device is closed");
    assert_eq!(descriptors(), open, "open files");
    assert_eq!(tracked(&device), before, "the kernel's count");
}

#[test]
fn of_ten_thousand_of_each_nothing_is_left() {
    leaves_nothing(&[USUAL], counts()[0]);
}

#[test]
fn of_ten_thousand_of_the_others_nothing_is_left() {
    leaves_nothing(if is_rxe() { &[OTHERS] } else { &[OTHERS, CONNECTX] }, counts()[1]);
}

/// A doorbell makes all queue pairs of its page runnable. A stepped device serves some of them in a
/// step, and is not idle before it has served the one with work.
#[test]
fn a_device_of_many_queue_pairs_is_idle_when_each_was_served() {
    let _others = crate::changing();
    let hca = SoftHca::builder().stepped().build().unwrap();
    let context = Device::from(hca.clone()).open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(16).unwrap();
    let port = context.local_port(&local()).unwrap();
    let make = |_| {
        let mut qp = context.queue_pair(&pd, &cq).overcommit().max_send_wr(1).build().unwrap();
        qp.prepare_on(&port).unwrap();
        qp.connect_to_self().unwrap();
        qp
    };
    let mut qps: Vec<_> = (0..5000).map(make).collect();
    let memory = pd.expose(8, AccessFlags::REMOTE_WRITE).unwrap();
    qps.last_mut().unwrap().post_write_inline(7, &[1; 8], memory.remote(0)).unwrap();
    hca.step_until_idle(usize::MAX);
    let mut done = Vec::new();
    cq.poll_with(16, |completion| done.push((completion.id(), completion.result().is_ok())));
    assert_eq!(done, [(7, true)]);
}
