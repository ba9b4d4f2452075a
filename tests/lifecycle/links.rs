//! Devices that come, change and go: enumeration, GIDs, port events, removal in mid-traffic. On
//! Linux's own soft-RoCE, since that can be made at will: each test makes a pair of virtual
//! interfaces and a device on one end, and takes both away again.
//!
//! Needs root, `ip` and `rdma` (iproute2), and `UVERBS_TEST_DEVICE` to name a soft-RoCE device,
//! which says that this machine is one for such tests. That device itself is left alone.

use std::process::Command;
use std::sync::RwLockReadGuard;
use std::time::{Duration, Instant};

use common::{LIMIT, Side, is_rxe};
use uverbs::event::{AsyncElement, AsyncEventKind};
use uverbs::{
    AccessFlags, Context, Device, Errno, Frame, GidType, Local, PortState, WorkCompletion,
};

/// Runs a program of iproute2, and returns its output.
fn run(program: &str, arguments: &str) -> Result<String, String> {
    let done = Command::new(program).args(arguments.split(' ')).output();
    match done {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(error.to_string()),
    }
}

fn must(program: &str, arguments: &str) -> String {
    run(program, arguments).unwrap_or_else(|error| panic!("{program} {arguments}: {error}"))
}

/// A soft-RoCE device with a separate network interface.
struct Link {
    name: String,
    interface: String,
    address: String,
    _changing: RwLockReadGuard<'static, ()>,
}

impl Link {
    /// Returns `None`, and skips the test, if the device cannot be made. Each test has another
    /// number.
    fn new(number: u8) -> Option<Self> {
        if !is_rxe() {
            common::skip("UVERBS_TEST_DEVICE names no soft-RoCE device");
            return None;
        }
        if !nix::unistd::geteuid().is_root() {
            common::skip("only root changes links");
            return None;
        }
        let link = Self {
            name: format!("uvr{number}"),
            interface: format!("uvt{number}"),
            address: format!("10.77.{number}.1"),
            _changing: crate::changing(),
        };
        let Self { name, interface, address, .. } = &link;
        must("ip", &format!("link add {interface} type veth peer name {interface}p"));
        must("ip", &format!("addr add {address}/24 dev {interface}"));
        must("ip", &format!("link set {interface}p up"));
        must("ip", &format!("link set {interface} up"));
        must("rdma", &format!("link add {name} type rxe netdev {interface}"));
        let started = Instant::now();
        let gid = format!("::ffff:{}", link.address);
        while !link.has_gid(&gid) {
            assert!(started.elapsed() < LIMIT, "{gid} does not appear");
            std::thread::sleep(Duration::from_millis(10));
        }
        Some(link)
    }

    fn device(&self) -> Device {
        uverbs::device(&self.name).expect("the device just made")
    }

    /// True if discovery or opening says that there is no such device.
    fn is_refused_anew(&self) -> bool {
        uverbs::open(&self.name).is_err()
    }

    fn has_gid(&self, gid: &str) -> bool {
        let context = self.device().open().unwrap();
        context.query_gid_table().unwrap().iter().any(|entry| entry.gid.to_string() == gid)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // With the interface goes the device, if it is still there.
        let _ = run("ip", &format!("link del {}", self.interface));
    }
}

/// The next event of this kind at this context; others are passed over.
fn event(context: &Context, kind: AsyncEventKind) -> AsyncElement {
    let started = Instant::now();
    loop {
        let left = LIMIT.saturating_sub(started.elapsed());
        let event = context.async_event(left).unwrap();
        let event = event.unwrap_or_else(|| panic!("no {kind:?} within {LIMIT:?}"));
        if event.kind == kind {
            return event.element;
        }
    }
}

fn names() -> Vec<String> {
    let devices = uverbs::devices().unwrap();
    devices.iter().map(|device| device.name().to_owned()).collect()
}

/// Waits for something that takes the kernel a moment.
fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_new_device_is_found_by_netlink_and_by_sysfs_alike() {
    let Some(link) = Link::new(1) else { return };
    let device = link.device();
    let record = device.record();
    assert_eq!((record.driver_id, record.port_count), (14, 1));
    assert!(record.index.is_some(), "netlink told of it");
    let guid = std::fs::read_to_string(format!("/sys/class/infiniband/{}/node_guid", link.name));
    let guid = guid.unwrap().trim().replace(':', "");
    assert_eq!(format!("{:016x}", device.node_guid()), guid);
    let found = uverbs_core::discovery::sysfs::list(&uverbs_core::discovery::sysfs::root());
    let found = found.unwrap().into_iter().find(|found| found.record.name == link.name).unwrap();
    assert_eq!(found.record.uverbs_name, record.uverbs_name);
    assert_eq!(found.record.node_guid, record.node_guid);
    assert_eq!(found.record.abi_version, record.abi_version);
    must("rdma", &format!("link delete {}", link.name));
    assert!(!names().contains(&link.name));
    let error = device.open().unwrap_err();
    assert!(matches!(error.errno(), Some(Errno::ENOENT | Errno::ENODEV | Errno::ENXIO)), "{error}");
}

#[test]
fn an_address_that_comes_and_goes_is_a_gid_that_does_and_an_event() {
    let Some(link) = Link::new(2) else { return };
    let context = link.device().open().unwrap();
    let before = context.query_gid_table().unwrap();
    must("ip", &format!("addr add 10.77.2.200/24 dev {}", link.interface));
    assert_eq!(event(&context, AsyncEventKind::GidChange), AsyncElement::Port(1));
    let gid = "::ffff:10.77.2.200";
    eventually("the GID appears", || link.has_gid(gid));
    let table = context.query_gid_table().unwrap();
    let entry = table.iter().find(|entry| entry.gid.to_string() == gid).unwrap();
    assert_eq!((entry.kind, entry.port), (GidType::RoceV2, 1));
    assert_eq!(context.query_gid(1, entry.index).unwrap(), *entry);
    // A connection over the new address.
    let local = Local { gid_index: Some(entry.index), ..common::local() };
    let (device, index) = (link.device(), entry.index);
    let (mut client, mut server) = common::pair_on(&device, &device, &local, |qp| qp);
    assert_eq!(client.endpoint.gid.unwrap().to_string(), gid);
    exchange(&mut client, &mut server);
    drop((client, server));
    // Older events are drained, so that the next one is the change's.
    while context.async_event(Duration::from_millis(50)).unwrap().is_some() {}
    must("ip", &format!("addr del 10.77.2.200/24 dev {}", link.interface));
    assert_eq!(event(&context, AsyncEventKind::GidChange), AsyncElement::Port(1));
    eventually("the GID goes", || !link.has_gid(gid));
    assert!(context.query_gid(1, index).is_err());
    assert_eq!(context.query_gid_table().unwrap(), before);
}

#[test]
fn a_link_that_goes_down_and_up_is_told() {
    let Some(link) = Link::new(3) else { return };
    let context = link.device().open().unwrap();
    assert_eq!(context.query_port(1).unwrap().state, PortState::Active);
    while context.async_event(Duration::from_millis(50)).unwrap().is_some() {}
    must("ip", &format!("link set {} down", link.interface));
    assert_eq!(event(&context, AsyncEventKind::PortError), AsyncElement::Port(1));
    assert_eq!(context.query_port(1).unwrap().state, PortState::Down);
    must("ip", &format!("link set {} up", link.interface));
    assert_eq!(event(&context, AsyncEventKind::PortActive), AsyncElement::Port(1));
    assert_eq!(context.query_port(1).unwrap().state, PortState::Active);
}

/// One message, checked.
fn exchange(client: &mut Side, server: &mut Side) {
    server.expect(1, 64);
    let mut batch = client.qp.batch();
    batch.send_inline(2, b"still there").unwrap();
    batch.ring();
    assert_eq!(*server.done().frame.unwrap(), *b"still there");
    client.done();
}

/// True if rxe supports disassociation of open devices (`disassociate_ucontext`): 7.3.4 does, 7.2
/// and older kernels do not.
fn gives_up_open_devices() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split('.').map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next(), numbers.next()) >= (Some(7), Some(3))
}

/// One message, checked; or how far it came.
fn try_exchange(client: &mut Side, server: &mut Side, id: u64, frame: Frame) -> Result<(), String> {
    server.qp.post_recv(id, frame).map_err(|rejected| rejected.error.to_string())?;
    let mut batch = client.qp.batch();
    batch.send_inline(id, b"and on").map_err(|error| error.to_string())?;
    batch.ring();
    let next = |side: &mut Side| -> Result<WorkCompletion, String> {
        let completion = side.cq.wait(Duration::from_secs(5)).map_err(|error| error.to_string())?;
        completion.result.map_err(|failure| failure.to_string())?;
        Ok(completion)
    };
    next(client)?;
    assert_eq!(*next(server)?.frame.unwrap(), *b"and on");
    Ok(())
}

/// Up to Linux 7.2 rxe gives up no open device: `rdma link delete` waits until the last file of it
/// is closed, and until then everything goes on. Later kernels take it away, and everything ends in
/// a typed error, as with mlx5 (`tests/lifecycle/unbind.rs`).
#[test]
fn a_device_that_is_deleted_in_mid_traffic_is_let_go_with_its_last_file() {
    let Some(link) = Link::new(4) else { return };
    let device = link.device();
    let (mut client, mut server) = common::pair_on(&device, &device, &Local::default(), |qp| qp);
    let slab = server.slab(64, 8);
    exchange(&mut client, &mut server);
    let mut delete = Command::new("rdma").args(["link", "delete", &link.name]).spawn().unwrap();
    eventually("the device is no longer listed", || !names().contains(&link.name));
    let taken_away = gives_up_open_devices();
    let started = Instant::now();
    for round in 0.. {
        let frame = slab.take().unwrap();
        let done = try_exchange(&mut client, &mut server, round, frame);
        if taken_away {
            assert!(started.elapsed() < LIMIT, "traffic goes on without a device");
            if done.is_err() {
                break;
            }
        } else {
            assert_eq!(done, Ok(()));
            if round == 100 {
                break;
            }
        }
    }
    assert!(link.is_refused_anew(), "it can't be opened any more");
    if taken_away {
        assert_eq!(event(&client.context, AsyncEventKind::DeviceFatal), AsyncElement::Device);
        assert_eq!(client.context.query_port(1).unwrap_err().errno(), Some(Errno::EIO));
        drop((client, server, slab, device));
    } else {
        assert!(delete.try_wait().unwrap().is_none(), "it waits for the open files");
        assert_eq!(client.context.async_event(Duration::ZERO).unwrap(), None);
        // All work requests in flight come back.
        for frame in std::iter::from_fn(|| slab.take()) {
            server.qp.post_recv(7, frame).unwrap();
        }
        let Side { qp, mut cq, pd, context, .. } = server;
        let gone = qp.destroy().unwrap();
        assert_eq!(cq.reclaim(&gone).len(), 8);
        assert_eq!(std::iter::from_fn(|| slab.take()).collect::<Vec<Frame>>().len(), 8);
        drop((gone, slab, cq, pd, context));
        drop((client, device));
    }
    // Up to 7.2 the deletion waits for the last descriptor and mapping, so its end shows that all
    // are closed.
    eventually("the deletion is done", || delete.try_wait().unwrap().is_some());
    assert!(delete.wait().unwrap().success());
    assert!(!std::path::Path::new(&format!("/sys/class/infiniband/{}", link.name)).exists());
}

/// Packets over the cable in place of loopback: a device at each of its ends.
#[test]
fn two_devices_talk_over_a_cable() {
    let Some(link) = Link::new(5) else { return };
    let far = format!("{}p", link.name);
    must("rdma", &format!("link add {far} type rxe netdev {}p", link.interface));
    let devices = [link.device(), uverbs::device(&far).unwrap()];
    // Within one machine only link-local addresses lead over the cable; GID 0 has the address of
    // the interface's MAC.
    for (device, end) in devices.iter().zip(["", "p"]) {
        let settled = format!("-6 -o addr show dev {}{end} scope link -tentative", link.interface);
        eventually("the link-local address is settled", || !must("ip", &settled).is_empty());
        let context = device.open().unwrap();
        eventually("the link-local GID is there", || {
            context.query_gid(1, 0).is_ok_and(|entry| entry.kind == GidType::RoceV2)
        });
    }
    let local = Local { gid_index: Some(0), ..common::local() };
    let (mut client, mut server) = common::pair_on(&devices[0], &devices[1], &local, |qp| qp);
    assert_ne!(client.endpoint.gid, server.endpoint.gid);
    exchange(&mut client, &mut server);
    exchange(&mut server, &mut client);
    let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
    let memory = server.pd.expose(1 << 20, access).unwrap();
    let wanted = common::pattern(300_000, 9);
    let (there, back) = (client.filled(wanted.len(), 9), client.filled(wanted.len(), 0));
    let mut batch = client.qp.batch();
    batch.write(1, there, memory.remote(77)).unwrap();
    batch.read(2, back, memory.remote(77)).unwrap();
    batch.ring();
    client.done();
    assert_eq!(*client.done().frame.unwrap(), wanted[..]);
    let mut written = vec![0; wanted.len()];
    memory.read(77, &mut written).unwrap();
    assert_eq!(written, wanted);
}
