//! Many connections: a thousand one after the other, two hundred at once; all their objects are
//! freed.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use common::{LIMIT, address_of, done, is_siw, soft};
use uverbs::cm::{Connection, Connector, EventChannel, EventKind, Listener, Param, PortSpace};
use uverbs::softhca::SoftHca;
use uverbs::{CompletionQueue, Context, Device, ProtectionDomain, QueuePair};

const IN_A_ROW: usize = 1000;
const AT_ONCE: usize = 200;

/// The device under test, which no other test uses meanwhile, and its address. The software HCA is
/// there for its counts.
fn under_test() -> Option<(SoftHca, Device, IpAddr)> {
    let hca = SoftHca::builder().build().unwrap();
    let on_softhca = std::env::var_os("UVERBS_TEST_DEVICE").is_none();
    let device = if on_softhca { soft(&hca) } else { common::device() };
    let ip = address_of(&device)?;
    Some((hca, device, ip))
}

/// Objects in use, counted by the software HCA or the kernel (`rdma resource`), and open files.
#[derive(Clone, Debug, PartialEq)]
struct Left {
    softhca: (usize, usize, u64),
    kernel: Option<String>,
    files: usize,
}

impl Left {
    fn of(hca: &SoftHca, device: &Device) -> Self {
        let output = Command::new("rdma").args(["resource", "show"]).output();
        let text = output.map_or(String::new(), |it| String::from_utf8_lossy(&it.stdout).into());
        let name = format!(" {}: ", device.name());
        Self {
            softhca: (hca.objects().values().sum(), hca.cm_ids(), hca.pinned_bytes()),
            kernel: text.lines().find(|line| line.contains(&name)).map(str::to_owned),
            files: fs::read_dir("/proc/self/fd").unwrap().count(),
        }
    }
}

/// One side: a device, and a completion queue for all its queue pairs.
struct Side {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl Side {
    fn of(device: &Device, queue_pairs: u32) -> Self {
        let context = device.open().unwrap();
        let (pd, cq) = (context.alloc_pd().unwrap(), context.create_cq(8 * queue_pairs).unwrap());
        Self { context, pd, cq }
    }

    fn queue_pair(&self) -> QueuePair {
        self.context.queue_pair(&self.pd, &self.cq).max_send_wr(4).max_recv_wr(4).build().unwrap()
    }
}

fn listen(device: &Device, ip: IpAddr) -> (Listener, SocketAddr) {
    let builder = Listener::builder((ip, 0).into()).limit(LIMIT);
    let listener = builder.listen_on(EventChannel::of(device).unwrap()).unwrap();
    let addr = listener.local_addr().unwrap().unwrap();
    (listener, addr)
}

/// Opens each connection, sends a message, and closes it. On siw no message is sent: its kernel may
/// overlook the first one until there is another (`siw_cm.c`, `siw_accept`).
fn in_a_row(device: &Device, ip: IpAddr, count: usize) {
    let (listener, addr) = listen(device, ip);
    let talks = !is_siw();
    let there = device.clone();
    let server = thread::spawn(move || {
        let mut side = Side::of(&there, 1);
        let slab = side.pd.slab(16, 1).unwrap();
        for _ in 0..count {
            let request = listener.next(LIMIT).unwrap();
            let mut qp = side.queue_pair();
            request.init(&mut qp).unwrap();
            if talks {
                qp.post_recv(1, slab.take().expect("the last one came back")).unwrap();
            }
            // The client may be done before its word that the connection stands is heard: by Linux
            // its last message may come first (`cm.c`, `cm_dreq_handler`).
            let mut connection = request.begin_accept(qp, &Param::default()).unwrap();
            if talks {
                assert_eq!(&done(&mut side.cq).frame.unwrap()[..], b"one word");
            }
            assert!(connection.is_closed(LIMIT).unwrap());
        }
    });
    let mut side = Side::of(device, 1);
    for _ in 0..count {
        let channel = EventChannel::of(device).unwrap();
        let route = Connector::new(addr).limit(LIMIT).resolve_on(channel).unwrap();
        let mut connection = route.connect(side.queue_pair(), &Param::default()).unwrap();
        if talks {
            connection.queue_pair().post_send_inline(1, b"one word").unwrap();
            done(&mut side.cq).result.unwrap();
        }
        connection.disconnect(LIMIT).unwrap();
    }
    server.join().unwrap();
}

/// All ask before the first is answered, event by event on one channel.
fn at_once(device: &Device, ip: IpAddr, count: usize) {
    let (listener, addr) = listen(device, ip);
    let there = device.clone();
    let server = thread::spawn(move || {
        let side = Side::of(&there, count as u32);
        let mut accepted: Vec<Connection> = Vec::new();
        while accepted.len() < count {
            let request = listener.next(LIMIT).unwrap();
            accepted.push(request.begin_accept(side.queue_pair(), &Param::default()).unwrap());
        }
        for connection in &mut accepted {
            assert!(connection.is_closed(LIMIT).unwrap());
        }
    });
    let side = Side::of(device, count as u32);
    let channel = EventChannel::of(device).unwrap();
    let mut ids = BTreeMap::new();
    for _ in 0..count {
        let id = channel.create_id(PortSpace::Tcp).unwrap();
        id.resolve_addr(None, addr, LIMIT).unwrap();
        ids.insert(id.key(), (id, side.queue_pair()));
    }
    let mut connected = 0;
    while connected < count {
        let event = channel.next(LIMIT).unwrap();
        let (id, qp) = ids.get_mut(&event.key()).expect("an id of this channel");
        match event.kind() {
            EventKind::AddressResolved => id.resolve_route(LIMIT).unwrap(),
            EventKind::RouteResolved => id.connect(qp.qpn(), &Param::default()).unwrap(),
            EventKind::ConnectResponse => {
                id.ready(qp, 1, 1).unwrap();
                id.establish().unwrap();
                connected += 1;
            }
            // On iWARP the kernel has made the other transitions.
            EventKind::Established => {
                id.ready(qp, 1, 1).unwrap();
                connected += 1;
            }
            other => panic!("{other:?} with status {}", event.status()),
        }
    }
    drop(ids);
    server.join().unwrap();
}

#[test]
fn of_many_connections_nothing_is_left() {
    let _alone = crate::counting();
    let Some((hca, device, ip)) = under_test() else { return };
    let unused = Left::of(&hca, &device);
    // One connection beforehand: files that stay open after the first use are no leak. Objects of
    // this first connection are still being destroyed, so their counts are taken from the unused
    // device.
    in_a_row(&device, ip, 1);
    let before = settled(&hca, &device, |now| Left { files: now.files, ..unused.clone() });
    in_a_row(&device, ip, IN_A_ROW);
    at_once(&device, ip, AT_ONCE);
    settled(&hca, &device, |_| before.clone());
}

/// Waits until the objects in use are those wanted, and returns them.
fn settled(hca: &SoftHca, device: &Device, wanted: impl Fn(&Left) -> Left) -> Left {
    let start = Instant::now();
    loop {
        let now = Left::of(hca, device);
        let wanted = wanted(&now);
        if now == wanted {
            return now;
        }
        assert!(start.elapsed() < LIMIT, "{now:?}, not {wanted:?}");
        thread::sleep(Duration::from_millis(20));
    }
}
