//! A software HCA with numbers that no device has: it is refused, or works, and its thread never
//! panics.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{LIMIT, impatient, only_on_softhca, pair_on, soft};
use uverbs::softhca::HcaConfig;
use uverbs::softhca::wire::{Address, Fabric, FaultControl, Faults, Faulty, Frame, Wire, WireFull};
use uverbs::softhca::{Idle, LinkLayer, Mtu, SoftHca};
use uverbs::{AccessFlags, QpState};

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Panics of devices' threads until now.
fn panics() -> usize {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let thread = std::thread::current();
            if thread.name().is_some_and(|name| name.starts_with("softhca")) {
                PANICS.fetch_add(1, Ordering::SeqCst);
            }
            before(info);
        }));
    });
    PANICS.load(Ordering::SeqCst)
}

/// Posts each kind of operation. Failures are errors.
fn use_it(one: &SoftHca, other: &SoftHca, name: &str) {
    let made = std::panic::catch_unwind(|| {
        let (mut client, mut server) =
            pair_on(&soft(one), &soft(other), &impatient(), |qp| qp.max_send_wr(8).max_recv_wr(8));
        let all = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let memory = server.pd.expose(1 << 16, all).unwrap();
        server.expect(1, 1 << 16);
        let slab = client.slab(1 << 16, 4);
        let mut batch = client.qp.batch();
        batch.send(1, slab.take().unwrap()).unwrap();
        batch.write(2, slab.take().unwrap(), memory.remote(0)).unwrap();
        batch.read(3, slab.take().unwrap(), memory.remote(0)).unwrap();
        batch.fetch_add(4, slab.take().unwrap(), memory.remote(0), 1).unwrap();
        batch.ring();
        for _ in 0..4 {
            if client.cq.wait(Duration::from_secs(1)).is_err() {
                break;
            }
        }
        let _ = client.qp.query().map(|attr| attr.state == QpState::ReadyToSend);
    });
    if let Err(panicked) = made {
        let why = panicked.downcast_ref::<String>().map_or("", String::as_str);
        println!("{name}: {why}");
    }
}

#[test]
fn no_configuration_breaks_the_devices_thread() {
    if !only_on_softhca("it makes devices") {
        return;
    }
    let before = panics();
    type Change = fn(&mut HcaConfig, u32);
    let changes: [(&str, Change); 20] = [
        ("max_qp", |config, n| config.max_qp = n),
        ("max_cq", |config, n| config.max_cq = n),
        ("max_srq", |config, n| config.max_srq = n),
        ("max_mcast_qp", |config, n| config.max_mcast_qp = n),
        ("max_mkey", |config, n| config.max_mkey = n),
        ("log_max_wqebbs", |config, n| config.log_max_wqebbs = n as u8),
        ("log_max_rq_entries", |config, n| config.log_max_rq_entries = n as u8),
        ("log_max_cqes", |config, n| config.log_max_cqes = n as u8),
        ("max_msg_size", |config, n| config.max_msg_size = n),
        ("max_copy", |config, n| config.max_copy = n),
        ("max_rd_atomic", |config, n| config.max_rd_atomic = n as u8),
        ("max_dest_rd_atomic", |config, n| config.max_dest_rd_atomic = n as u8),
        ("log_max_dci_streams", |config, n| config.log_max_dci_streams = n as u8),
        ("log_max_tags", |config, n| config.log_max_tags = n as u8),
        ("packet_window", |config, n| config.packet_window = n),
        ("read_window", |config, n| config.read_window = n),
        ("min_ack_timeout", |config, n| config.min_ack_timeout = n as u8),
        ("min_inline_header", |config, n| config.min_inline_header = n as u16),
        ("ece", |config, n| config.ece = n),
        ("pkeys", |config, n| config.pkeys = vec![0xffff; (n & 0xffff) as usize]),
    ];
    for (name, change) in changes {
        for n in [0, 1, 31, 64, 200, u32::MAX] {
            let name = format!("{name} = {n}");
            let made = std::panic::catch_unwind(|| {
                SoftHca::builder().hca(|config| change(config, n)).build().unwrap()
            });
            match made {
                Ok(hca) => use_it(&hca, &hca, &name),
                Err(_) => println!("{name}: a panic of the builder"),
            }
            assert_eq!(panics(), before, "{name}");
        }
    }
    for idle in [Duration::ZERO, Duration::MAX] {
        let set = |all: &mut Idle| {
            (all.spin, all.look, all.longest) = (Duration::ZERO, idle, idle);
        };
        let hca = SoftHca::builder().idle(set).build().unwrap();
        use_it(&hca, &hca, "idle");
    }
    let hca = SoftHca::builder().memlock_limit(0).max_qp(0).max_cq(0).max_mr(0).max_pd(0);
    let hca = hca.max_cqe(0).max_qp_wr(0).build().unwrap();
    use_it(&hca, &hca, "nothing");
    let hca = SoftHca::builder().gids(&[]).link(LinkLayer::InfiniBand).active_mtu(Mtu::B256);
    let hca = hca.build().unwrap();
    use_it(&hca, &hca, "no GIDs");
    assert_eq!(panics(), before);
}

#[test]
fn no_fault_breaks_the_devices_thread() {
    if !only_on_softhca("it makes devices") {
        return;
    }
    let before = panics();
    let none = Faults::default();
    for faults in [
        Faults { delay: Duration::MAX, ..none },
        Faults { jitter: Duration::MAX, ..none },
        Faults { delay: Duration::MAX, jitter: Duration::MAX, ..none },
        Faults { loss: f64::NAN, duplicate: f64::INFINITY, reorder: -1.0, ..none },
        Faults { duplicate: 1.0, reorder: 1.0, reorder_depth: u32::MAX, corrupt: 1.0, ..none },
        Faults { loss: 1.0, mark: 1.0, ..none },
    ] {
        let fabric = Fabric::with_queue_depth(0);
        let _ = fabric.attach(&[]);
        let fabric = Fabric::new();
        let mut controls: Vec<FaultControl> = Vec::new();
        let hcas = [1, 2].map(|number| {
            let port = fabric.attach(&[]);
            let wire = Faulty::new(port, 7, faults);
            controls.push(wire.control());
            let hca = SoftHca::builder().number(100 + number).wire(Box::new(wire));
            hca.build().unwrap()
        });
        use_it(&hcas[0], &hcas[1], &format!("{faults:?}"));
        controls.iter().for_each(|control| control.set_faults(none));
        assert_eq!(panics(), before, "{faults:?}");
    }
}

/// A stepped device works on after its clock jumps to the maximum.
#[test]
fn a_clock_at_its_end_breaks_nothing() {
    if !only_on_softhca("it makes devices") {
        return;
    }
    let hca = SoftHca::builder().stepped().build().unwrap();
    let (mut client, server) = pair_on(&soft(&hca), &soft(&hca), &impatient(), |qp| qp);
    let memory = server.pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let mut post = || {
        let mut batch = client.qp.batch();
        batch.write_inline(1, b"x", memory.remote(0)).unwrap();
        batch.ring();
    };
    for by in [Duration::from_secs(1), Duration::MAX, Duration::MAX] {
        post();
        hca.advance(by);
        hca.step_until_idle(1000);
        let _ = hca.next_deadline();
    }
    hca.link_down();
    hca.link_up();
    hca.unplug();
    hca.advance(Duration::MAX);
    hca.step_until_idle(1000);
}

/// Lies of a wire.
#[derive(Clone, Copy, Debug)]
enum Lie {
    Full,
    Swallows,
    Repeats,
    Garbage,
    Early,
    Readable,
}

/// A wire that leads nowhere, or back.
#[derive(Debug)]
struct Liar {
    lie: Lie,
    file: File,
    frames: Vec<Frame>,
    seed: u64,
}

impl Wire for Liar {
    fn transmit(&mut self, frame: Frame) -> Result<(), WireFull> {
        match self.lie {
            Lie::Full => return Err(WireFull(frame)),
            Lie::Swallows | Lie::Early => {}
            _ => self.frames.push(frame),
        }
        self.frames.truncate(64);
        Ok(())
    }

    fn receive(&mut self) -> Option<Frame> {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let at = (self.seed >> 33) as usize;
        let mut frame = self.frames.get(at % self.frames.len().max(1))?.clone();
        match self.lie {
            Lie::Garbage => {
                let len = frame.bytes.len();
                frame.bytes[at % len] ^= (self.seed >> 17) as u8;
                frame.bytes.truncate(len - at % 3);
            }
            Lie::Repeats => {}
            _ => drop(self.frames.remove(at % self.frames.len())),
        }
        Some(frame)
    }

    fn hear(&mut self) -> Option<Vec<u8>> {
        matches!(self.lie, Lie::Garbage).then(|| vec![self.seed as u8; (self.seed % 99) as usize])
    }

    fn lends(&self, _: Address) -> bool {
        true
    }

    fn is_past(&self, _: Address, _: u64) -> bool {
        false
    }

    fn mark(&self, _: Address) -> Option<u64> {
        Some(u64::MAX)
    }

    fn next_event(&self) -> Option<Duration> {
        matches!(self.lie, Lie::Early).then_some(Duration::ZERO)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        matches!(self.lie, Lie::Readable).then(|| self.file.as_fd())
    }
}

/// A device survives its wire: the thread goes on, waits end in time, and so does the device.
#[test]
fn a_wire_that_lies_breaks_no_device() {
    if !only_on_softhca("it makes devices") {
        return;
    }
    let before = panics();
    for lie in [Lie::Full, Lie::Swallows, Lie::Repeats, Lie::Garbage, Lie::Early, Lie::Readable] {
        let file = File::open("/dev/zero").unwrap();
        let wire = Liar { lie, file, frames: Vec::new(), seed: 1 };
        let hca = SoftHca::builder().wire(Box::new(wire)).build().unwrap();
        let started = Instant::now();
        use_it(&hca, &hca, &format!("{lie:?}"));
        hca.unplug();
        drop(hca);
        assert!(started.elapsed() < LIMIT, "{lie:?}");
        assert_eq!(panics(), before, "{lie:?}");
    }
}
