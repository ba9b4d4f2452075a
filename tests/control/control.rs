//! The control path: device attributes, registration, events, and the ways around the library.
#![allow(unsafe_code, reason = "raw posts and registrations are part of what is tested")]

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use common::{
    LIMIT, Side, impatient, is_plain, is_rxe, not_on_linux_rdmavt, not_on_rxe, only_on_softhca,
    page_size, pair, pair_with, pattern,
};
use uverbs::Errno;
use uverbs::event::{AsyncElement, AsyncEventKind};
use uverbs::raw::{Data, Sge};
use uverbs::unstable::doors::{DeviceRecord, DeviceSource, UverbsDoor};
use uverbs::unstable::doors::{Faulty, Recorded, Recorder};
use uverbs::{
    AccessFlags, Device, Endpoint, Error, GidType, LinkLayer, Local, Mlx5, PortState, QpState,
    Remote, Rxe, Status, WorkCompletion,
};

#[test]
fn a_device_tells_of_itself() {
    let device = common::device();
    assert!(!device.name().is_empty());
    assert_eq!(device.is_iwarp(), common::is_siw());
    let context = device.open().unwrap();
    let attr = context.query_device().unwrap();
    assert_eq!(attr.node_guid, device.node_guid());
    assert!(attr.max_qp > 0 && attr.max_cqe > 0 && attr.max_mr_size > 0 && attr.max_sge > 0);
    for port in 1..=attr.phys_port_count {
        let attr = context.query_port(port).unwrap();
        assert!(attr.active_mtu.bytes() <= attr.max_mtu.bytes());
        assert!(attr.max_message_size >= 1 << 20);
        assert_eq!(context.query_pkey(port, 0).unwrap() & 0x7fff, 0x7fff, "the default partition");
    }
}

#[test]
fn the_gid_table_agrees_with_its_entries() {
    let context = common::device().open().unwrap();
    let table = context.query_gid_table().unwrap();
    assert!(!table.is_empty());
    for entry in &table {
        let one = context.query_gid(u8::try_from(entry.port).unwrap(), entry.index).unwrap();
        assert_eq!((one.gid, one.kind, one.index), (entry.gid, entry.kind, entry.index));
    }
    let port = context.query_port(1).unwrap();
    let best = context.best_gid(1).unwrap();
    if port.link_layer == LinkLayer::Ethernet && port.state == PortState::Active {
        assert_eq!(best.unwrap().kind, GidType::RoceV2);
    }
}

#[test]
fn an_infiniband_port_needs_no_gid() {
    if !only_on_softhca("the link layer is the device's") {
        return;
    }
    let link = uverbs::softhca::LinkLayer::InfiniBand;
    let hca = uverbs::softhca::SoftHca::builder().link(link).build().unwrap();
    let device = common::soft(&hca);
    let (mut client, mut server) = common::pair_on(&device, &device, &common::local(), |qp| qp);
    assert_eq!(client.endpoint.gid, None);
    assert_ne!(client.endpoint.lid, 0);
    server.expect(1, 5000);
    let frame = client.filled(5000, 3);
    let mut batch = client.qp.batch();
    batch.send(1, frame).unwrap();
    batch.ring();
    assert!(*server.done().frame.unwrap() == pattern(5000, 3)[..]);
    client.done();
}

#[test]
fn a_region_with_an_iova_is_addressed_by_it() {
    let (mut client, server) = pair();
    // Page-aligned, as iova and address must agree within a page.
    let mut memory = vec![0u8; 3 * page_size()];
    let start = memory.as_mut_ptr().wrapping_add(memory.as_ptr().align_offset(page_size()));
    let access =
        AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE | AccessFlags::RELAXED_ORDERING;
    // SAFETY: `memory` outlives the region, and is looked at through `start` only, between posts.
    let region = unsafe { server.pd.register_at(start, 4096, 0x7000_0000, access) }.unwrap();
    assert_eq!((region.addr(), region.len()), (0x7000_0000, 4096));
    let mut batch = client.qp.batch();
    let to = Remote { addr: 0x7000_0010, rkey: region.rkey() };
    batch.write_inline(1, b"by iova", to).unwrap();
    batch.ring();
    client.done();
    let mut got = [0; 7];
    for (index, byte) in got.iter_mut().enumerate() {
        // SAFETY: in `memory`; the WRITE is complete.
        *byte = unsafe { start.wrapping_add(16 + index).read_volatile() };
    }
    assert_eq!(&got, b"by iova");
    region.deregister().unwrap();
    // The key is dead now.
    let mut batch = client.qp.batch();
    batch.write_inline(2, b"too late", to).unwrap();
    batch.ring();
    assert_eq!(client.wait().result.unwrap_err().status, Status::RemoteAccess);
}

#[test]
fn remote_rights_without_local_write_are_refused() {
    let pd = common::device().open().unwrap().alloc_pd().unwrap();
    let mut byte = [0u8; 64];
    // SAFETY: nothing is registered, or at once deregistered.
    let error =
        unsafe { pd.register(byte.as_mut_ptr(), 64, AccessFlags::REMOTE_WRITE) }.unwrap_err();
    assert_eq!((error.verb(), error.errno()), (Some("reg_mr"), Some(Errno::EINVAL)));
}

#[test]
fn a_queue_pair_tells_what_it_was_set_to() {
    let local = Local {
        rd_atomic: 4,
        retry_count: 5,
        rnr_retry: 3,
        psn: Some(0x12_3456),
        ..common::local()
    };
    let (client, server) = pair_with(&local, |qp| qp);
    let attr = client.qp.query().unwrap();
    assert_eq!(attr.state, QpState::ReadyToSend);
    assert_eq!(attr.dest_qpn, server.qp.qpn());
    assert_eq!((attr.sq_psn, attr.rq_psn), (0x12_3456, 0x12_3456));
    assert_eq!((attr.retry_count, attr.rnr_retry), (5, 3));
    assert_eq!((attr.max_rd_atomic, attr.max_dest_rd_atomic), (4, 4));
    assert_eq!((attr.port, attr.pkey_index), (1, 0));
    assert_eq!(attr.access, local.access);
    assert_eq!((attr.timeout, attr.min_rnr_timer), (local.timeout, local.min_rnr_timer));
    assert_eq!(attr.path_mtu, client.endpoint.mtu);
    assert_eq!(attr.path.grh.map(|grh| grh.dgid), server.endpoint.gid);
    assert_eq!(&attr.cap, client.qp.cap());
}

#[test]
fn an_access_violation_raises_an_event_at_the_queue_pair_that_suffered_it() {
    let (mut client, server) = pair_with(&impatient(), |qp| qp);
    let mut batch = client.qp.batch();
    batch.write_inline(1, b"x", Remote { addr: 0, rkey: 0xdead_0000 }).unwrap();
    batch.ring();
    assert_eq!(client.wait().result.unwrap_err().status, Status::RemoteAccess);
    let mut kinds = Vec::new();
    while let Some(event) =
        server.context.async_event(std::time::Duration::from_millis(500)).unwrap()
    {
        if let AsyncElement::Qp(id) = event.element {
            assert_eq!(id, server.qp.event_id());
        }
        kinds.push(event.kind);
    }
    let lacks = || {
        not_on_rxe("kernels up to 6.12 at least raise no such event")
            || not_on_linux_rdmavt("it raises no such event")
    };
    if kinds.is_empty() && lacks() {
        return;
    }
    assert!(kinds.contains(&AsyncEventKind::QpAccessError), "{kinds:?}");
    let _ = server.context.async_events().as_fd();
}

#[test]
fn a_link_that_goes_down_and_up_is_told() {
    if !only_on_softhca("the test unplugs a cable") {
        return;
    }
    let hca = uverbs::softhca::SoftHca::builder().build().unwrap();
    let context = common::soft(&hca).open().unwrap();
    hca.link_down();
    let event = context.async_event(LIMIT).unwrap().unwrap();
    assert_eq!((event.kind, event.element), (AsyncEventKind::PortError, AsyncElement::Port(1)));
    assert_ne!(context.query_port(1).unwrap().state, PortState::Active);
    hca.link_up();
    let event = context.async_event(LIMIT).unwrap().unwrap();
    assert_eq!(event.kind, AsyncEventKind::PortActive);
    assert_eq!(context.query_port(1).unwrap().state, PortState::Active);
}

/// A device whose doors are wrapped.
#[derive(Debug)]
struct Wrapped<W> {
    device: Device,
    wrap: fn(Arc<dyn UverbsDoor>) -> W,
    last: Mutex<Option<Arc<W>>>,
}

impl<W: UverbsDoor + 'static> Wrapped<W> {
    fn new(device: Device, wrap: fn(Arc<dyn UverbsDoor>) -> W) -> Arc<Self> {
        Arc::new(Self { device, wrap, last: Mutex::default() })
    }

    /// The door that was opened last.
    fn door(&self) -> Arc<W> {
        self.last.lock().unwrap().take().expect("opened")
    }
}

impl<W: UverbsDoor + 'static> DeviceSource for Wrapped<W> {
    fn record(&self) -> &DeviceRecord {
        self.device.record()
    }

    fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        let door = Arc::new((self.wrap)(self.device.source().open()?));
        *self.last.lock().unwrap() = Some(Arc::clone(&door));
        Ok(door)
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        self.device.source().pkey(port, index)
    }
}

/// Takes the next completion, a success, by polling alone: a long wait would ask the kernel if the
/// device is still there.
fn polled(side: &mut Side) {
    let (start, mut place) = (Instant::now(), [WorkCompletion::default()]);
    while side.cq.poll_into(&mut place) == 0 {
        assert!(start.elapsed() < LIMIT, "no completion");
        std::thread::yield_now();
    }
    let [completion] = place;
    assert!(completion.result.is_ok(), "{:?}", completion.result);
}

#[test]
fn posting_and_polling_pass_no_door() {
    let wrapped = Wrapped::new(common::device(), Recorder::new);
    let device = Device::from_source(wrapped.clone());
    let mut server = Side::new(&device, &common::local(), |qp| qp);
    drop(wrapped.door());
    let mut client = Side::new(&device, &common::local(), |qp| qp);
    let recorder = wrapped.door();
    client.qp.connect(&server.endpoint).unwrap();
    server.qp.connect(&client.endpoint).unwrap();
    let slab = client.slab(64, 1);
    assert!(!recorder.take().is_empty(), "setting up passes it");
    for id in 0..100 {
        server.expect(id, 64);
        let frame = slab.take().unwrap();
        let mut batch = client.qp.batch();
        batch.send(id, frame).unwrap();
        batch.ring();
        polled(&mut client);
        polled(&mut server);
    }
    let calls: Vec<Recorded> = recorder.take();
    if is_plain() {
        // Its doorbell is a command, once for each batch of sends. Posting receives and polling are
        // not.
        let commands: Vec<_> = calls.iter().map(|call| call.write_command).collect();
        assert_eq!(commands, [Some(uverbs_kernel_abi::write::IB_USER_VERBS_CMD_POST_SEND); 100]);
        return;
    }
    assert!(calls.is_empty(), "{calls:?}");
}

#[test]
fn connecting_asks_the_kernel_no_more_than_it_must() {
    /// `rdma/ib_user_ioctl_verbs.h`.
    const RDMA_DRIVER_MLX5: u32 = 1;
    let wrapped = Wrapped::new(common::device(), Recorder::new);
    let context = Device::from_source(wrapped.clone()).open().unwrap();
    if context.device().record().driver_id != RDMA_DRIVER_MLX5 {
        common::skip("the calls counted are those of a ConnectX");
        return;
    }
    let recorder = wrapped.door();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    let mut qps = [0; 3].map(|_| context.queue_pair(&pd, &cq).build().unwrap());
    let link = context.query_port(1).unwrap().link_layer;
    // Object and method of each call, and an INVOKE_WRITE's command (rdma/ib_user_ioctl_cmds.h,
    // ib_user_verbs.h).
    let calls = || {
        let calls = recorder.take();
        let name = |call: &Recorded| (call.object, call.method, call.write_command);
        calls.iter().map(name).collect::<Vec<_>>()
    };
    const MODIFY_QP: (u16, u16, Option<u32>) = (0, 0, Some(26));
    const QUERY_PORT: (u16, u16, Option<u32>) = (0, 2, None);
    const QUERY_GID_TABLE: (u16, u16, Option<u32>) = (0, 5, None);
    const QUERY_GID_ENTRY: (u16, u16, Option<u32>) = (0, 6, None);
    let looked = |table| match link {
        LinkLayer::Ethernet => vec![QUERY_PORT, table],
        _ => vec![QUERY_PORT],
    };
    calls();
    qps[0].prepare(&common::local()).unwrap();
    assert_eq!(calls(), [looked(QUERY_GID_TABLE), vec![MODIFY_QP]].concat());
    qps[0].connect_to_self().unwrap();
    assert_eq!(calls(), [MODIFY_QP; 2]);
    // A port that was looked at before serves any number of queue pairs.
    let gid_index = (link == LinkLayer::Ethernet).then_some(0);
    let local = Local { gid_index, ..common::local() };
    let port = context.local_port(&local).unwrap();
    assert_eq!(calls(), looked(QUERY_GID_ENTRY));
    assert_eq!(port.gid().map(|entry| entry.index), gid_index);
    for qp in &mut qps[1..] {
        qp.prepare_on(&port).unwrap();
        qp.connect_to_self().unwrap();
        assert_eq!(calls(), [MODIFY_QP; 3]);
    }
}

#[test]
fn a_port_of_another_open_device_is_refused() {
    let device = common::device();
    let (one, other) = (device.open().unwrap(), device.open().unwrap());
    let pd = one.alloc_pd().unwrap();
    let cq = one.create_cq(256).unwrap();
    let mut qp = one.queue_pair(&pd, &cq).build().unwrap();
    let error = qp.prepare_on(&other.local_port(&common::local()).unwrap()).unwrap_err();
    assert!(matches!(error, Error::Invalid { what: "port", .. }), "{error}");
    assert_eq!(qp.state(), QpState::Reset);
    let none = Local { port: 200, ..common::local() };
    assert_eq!(one.local_port(&none).unwrap_err().verb(), Some("query_port"));
}

#[test]
fn a_destruction_that_the_kernel_refuses_keeps_the_memory() {
    // UVERBS_OBJECT_QP and its destroy method, of rdma/ib_user_ioctl_cmds.h.
    const QP: u16 = 4;
    const DESTROY: u16 = 1;
    let wrapped = Wrapped::new(common::device(), Faulty::new);
    let device = Device::from_source(wrapped.clone());
    let Side { mut qp, mut cq, pd, context, .. } = Side::new(&device, &common::local(), |qp| qp);
    let faulty = wrapped.door();
    let slab = pd.slab(64, 2).unwrap();
    qp.post_recv(1, slab.take().unwrap()).unwrap();
    faulty.fail(QP, DESTROY, 1, Errno::EIO);
    faulty.fail(QP, DESTROY, 2, Errno::EIO);
    let error = qp.destroy().unwrap_err().into_error();
    assert_eq!((error.verb(), error.errno()), (Some("destroy_qp"), Some(Errno::EIO)));
    assert_eq!(cq.poll_with(8, |_| ()), 0);
    drop(cq);
    let frames = [slab.take(), slab.take()];
    assert_eq!(frames.iter().flatten().count(), 1, "the one in flight stays with the device");
    drop((pd, context));
}

#[test]
fn what_is_refused_is_given_back_and_goes_on() {
    if common::not_on_rdmavt("a queue pair's own region takes the injected error") {
        return;
    }
    // UVERBS_OBJECT_QP and UVERBS_OBJECT_MR, and their destroy methods, of
    // rdma/ib_user_ioctl_cmds.h.
    const OBJECTS: [u16; 2] = [4, 7];
    const DESTROY: u16 = 1;
    let wrapped = Wrapped::new(common::device(), Faulty::new);
    let device = Device::from_source(wrapped.clone());
    let (mut client, server) = common::pair_on(&device, &device, &common::local(), |qp| qp);
    let faulty = wrapped.door();
    for object in OBJECTS {
        faulty.fail(object, DESTROY, 1, Errno::EBUSY);
    }
    let Side { qp, mut cq, pd, .. } = server;
    let refused = qp.destroy().unwrap_err();
    assert_eq!(refused.error.errno(), Some(Errno::EBUSY));
    assert!(refused.to_string().starts_with("destroy_qp"), "{refused}");
    let mut qp = refused.into_object();
    let slab = pd.slab(64, 2).unwrap();
    qp.post_recv(1, slab.take().unwrap()).unwrap();
    qp.post_recv(2, slab.take().unwrap()).unwrap();
    let mut batch = client.qp.batch();
    batch.send_inline(1, b"after all").unwrap();
    batch.ring();
    assert_eq!(*cq.wait(LIMIT).unwrap().frame.unwrap(), *b"after all");
    client.done();
    let gone = qp.destroy().unwrap();
    let ids: Vec<_> = cq.reclaim(&gone).iter().map(|(id, _)| *id).collect();
    assert_eq!(ids, [2]);
    let mut page = vec![0u8; 4096];
    // SAFETY: no work request names it, and it lives until the region is gone.
    let region = unsafe { pd.register(page.as_mut_ptr(), 4096, AccessFlags::LOCAL_WRITE) };
    let refused = region.unwrap().deregister().unwrap_err();
    assert_eq!(refused.error.errno(), Some(Errno::EBUSY));
    refused.into_object().deregister().unwrap();
    assert_eq!(faulty.pending(), 0);
}

#[test]
fn creation_that_fails_half_way_leaves_nothing_behind() {
    if !only_on_softhca("it counts what the device has pinned") {
        return;
    }
    let hca = uverbs::softhca::SoftHca::builder().build().unwrap();
    let wrapped = Wrapped::new(common::soft(&hca), Faulty::new);
    let device = Device::from_source(wrapped.clone());
    let context = device.open().unwrap();
    let faulty = wrapped.door();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    let pinned = hca.pinned_bytes();
    for round in 0..50 {
        // QP CREATE, then CQ CREATE.
        faulty.fail(4, 0, 1, Errno::ENOMEM);
        let error = context.queue_pair(&pd, &cq).build().unwrap_err();
        assert_eq!(error.verb(), Some("create_qp"), "round {round}");
        faulty.fail(3, 0, 1, Errno::ENOMEM);
        assert_eq!(context.create_cq(16).unwrap_err().verb(), Some("create_cq"));
    }
    assert_eq!(faulty.pending(), 0);
    assert_eq!(hca.pinned_bytes(), pinned);
    drop(context.queue_pair(&pd, &cq).build().unwrap());
}

#[test]
fn a_door_page_that_cant_be_mapped_is_an_error() {
    let wrapped = Wrapped::new(common::device(), |door| {
        let faulty = Faulty::new(door);
        faulty.fail_mmap(1, Errno::ENOMEM);
        faulty
    });
    let error = Device::from_source(wrapped)
        .open()
        .and_then(|context| context.create_cq(1).map(|_| ()))
        .unwrap_err();
    assert_eq!(error.errno(), Some(Errno::ENOMEM), "{error}");
}

#[test]
fn one_providers_types_have_its_raw_parts_and_print_wqes() {
    if common::not_on_rdmavt("the raw parts are mlx5's and rxe's") {
        return;
    }
    if not_on_rxe("the raw parts are the mlx5 provider's") {
        return;
    }
    let device = common::device();
    let context = device.open_as::<Mlx5>().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    let side = || {
        let mut qp = context.queue_pair(&pd, &cq).build().unwrap();
        let endpoint = qp.prepare(&common::local()).unwrap();
        (qp, endpoint)
    };
    let ((mut one, here), (mut other, there)) = (side(), side());
    one.connect(&there).unwrap();
    other.connect(&here).unwrap();
    let memory = pd.expose(64, AccessFlags::REMOTE_WRITE).unwrap();
    let mut batch = one.batch();
    batch.write_inline(7, b"seen from below", memory.remote(0)).unwrap();
    batch.ring();
    let sq = one.send_queue().provider();
    let raw = sq.raw_parts();
    assert_eq!((raw.qpn, raw.stride), (one.qpn(), 64));
    let sq = one.send_queue().provider();
    let text = sq.dump(0);
    for part in ["RDMA_WRITE", "opmod_idx_opcode", "rkey"] {
        assert!(text.contains(part), "{part} is missing in:\n{text}");
    }
}

#[test]
fn another_drivers_provider_refuses_the_device() {
    let device = common::device();
    let error = match is_rxe() {
        true => device.open_as::<Mlx5>().map(drop).unwrap_err(),
        false => device.open_as::<Rxe>().map(drop).unwrap_err(),
    };
    assert!(matches!(error, Error::Unsupported { verb: "open_device", .. }), "{error}");
}

#[test]
fn raw_posts_take_any_operation() {
    let (mut client, mut server) = pair();
    let memory = server.pd.expose(64, AccessFlags::REMOTE_READ).unwrap();
    memory.write(0, b"read me").unwrap();
    let target = client.pd.expose(64, AccessFlags::empty()).unwrap();
    let into: Sge = target.sge(8, 7);
    let mut batch = client.qp.batch();
    let op = uverbs::raw::SendOp::Read(memory.remote(0));
    // SAFETY: `target` outlives the queue pair, and is looked at through copies only.
    unsafe { batch.raw().post(1, op, Data::One(into)) }.unwrap();
    batch.ring();
    client.done();
    let mut got = [0; 9];
    target.read(7, &mut got).unwrap();
    assert_eq!(&got, b"\0read me\0");
    assert_eq!(server.cq.poll_with(1, |_| ()), 0);
}

#[test]
fn errors_become_io_errors() {
    let error: std::io::Error = uverbs::open("none_such").unwrap_err().into();
    assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    let error: std::io::Error = Error::PermissionDenied { path: "x".into() }.into();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}

/// Two processes whose hermetic devices are alike would each send to itself.
#[test]
fn a_queue_pairs_own_endpoint_is_refused_unless_asked_for() {
    let context = common::device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(512).unwrap();
    let [mut qp, mut peer] = [(); 2].map(|()| context.queue_pair(&pd, &cq).build().unwrap());
    let here = qp.prepare(&common::local()).unwrap();
    let there = peer.prepare(&common::local()).unwrap();
    // Another process's text has another PSN.
    let own = Endpoint { psn: here.psn ^ 1, ..here };
    let refused = qp.connect(&own).unwrap_err();
    assert!(matches!(refused, Error::Invalid { verb: "connect", .. }), "{refused:?}");
    assert!(refused.to_string().contains("connect_to_self"), "{refused}");
    assert_eq!(qp.state(), QpState::Init);
    qp.connect(&there).unwrap();
    qp.reset(&mut [&mut cq]).unwrap();
    qp.prepare(&common::local()).unwrap();
    qp.connect_to_self().unwrap();
    assert_eq!(qp.state(), QpState::ReadyToSend);
}
