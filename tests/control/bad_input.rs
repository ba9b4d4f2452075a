//! Wrong input to the control path: each ends in a typed error that names the fault.
#![allow(unsafe_code, reason = "registers invalid memory")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{LIMIT, Side, not_on_rxe, only_on_softhca, pair, soft};
use uverbs::Errno;
use uverbs::attr::{GlobalRoute, InitAttr, Path, RtrAttr};
use uverbs::softhca::SoftHca;
use uverbs::{AccessFlags, Device, Error, Local, Mtu, PostError, QpState, RnrTimer};

#[test]
fn an_unknown_device_is_named_with_those_there_are() {
    let error = uverbs::open("mlx5_77").unwrap_err();
    let Error::NoSuchDevice { name, available } = &error else { panic!("{error:?}") };
    assert_eq!(name, "mlx5_77");
    for name in available {
        assert!(error.to_string().contains(name), "{error}");
    }
    assert!(error.to_string().contains("mlx5_77"), "{error}");
}

#[test]
fn without_a_device_there_is_advice_and_no_simulation() {
    let devices = uverbs::devices().unwrap();
    let taken = uverbs::default_device().map(|device| device.name().to_owned());
    let or_else = uverbs::device_or_softhca().unwrap();
    match uverbs::choose_among(&devices) {
        Ok(choice) => {
            assert_eq!(taken.as_deref(), Ok(choice.device.name()));
            assert_eq!(or_else.name(), choice.device.name());
        }
        Err(error) => {
            assert_eq!(taken, Err(error.clone()));
            let expected = Error::NoSuchDevice { name: String::new(), available: Vec::new() };
            assert_eq!(error, expected);
            assert!(error.to_string().contains("/dev/infiniband"), "{error}");
            assert_eq!(or_else.name(), "softhca");
        }
    }
    assert_eq!(uverbs::device("softhca0").unwrap().name(), "softhca0");
    assert!(uverbs::open("softhca0").is_ok());
}

/// A device whose node this process may not open.
#[derive(Debug)]
struct Forbidden(uverbs::unstable::doors::DeviceRecord);

impl uverbs::unstable::doors::DeviceSource for Forbidden {
    fn record(&self) -> &uverbs::unstable::doors::DeviceRecord {
        &self.0
    }

    fn open(&self) -> Result<Arc<dyn uverbs::unstable::doors::UverbsDoor>, Errno> {
        Err(Errno::EACCES)
    }

    fn pkey(&self, _port: u8, _index: u16) -> Result<u16, Errno> {
        Err(Errno::EACCES)
    }
}

#[test]
fn no_permission_names_the_device_node() {
    let mut record = uverbs::unstable::doors::DeviceRecord::new("mlx5_0", 1);
    record.uverbs_name = "uverbs3".to_owned();
    let error = Device::from_source(Arc::new(Forbidden(record))).open().unwrap_err();
    assert_eq!(error, Error::PermissionDenied { path: "/dev/infiniband/uverbs3".to_owned() });
    assert_eq!(error.errno(), Some(Errno::EACCES));
}

#[test]
fn a_device_of_an_unknown_driver_is_unsupported() {
    if !only_on_softhca("the driver id is made up") {
        return;
    }
    let hca = SoftHca::builder().build().unwrap();
    #[derive(Debug)]
    struct Disguised(SoftHca, uverbs::unstable::doors::DeviceRecord);
    impl uverbs::unstable::doors::DeviceSource for Disguised {
        fn record(&self) -> &uverbs::unstable::doors::DeviceRecord {
            &self.1
        }
        fn open(&self) -> Result<Arc<dyn uverbs::unstable::doors::UverbsDoor>, Errno> {
            uverbs::unstable::doors::DeviceSource::open(&self.0)
        }
        fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
            self.0.pkey(port, index)
        }
    }
    let record = uverbs::unstable::doors::DeviceRecord::new("hns_0", 12);
    let error = Device::from_source(Arc::new(Disguised(hca, record))).open().unwrap_err();
    assert!(matches!(error, Error::Unsupported { .. }), "{error:?}");
}

#[test]
fn ports_gids_and_partitions_out_of_range() {
    let context = common::device().open().unwrap();
    let no_port = |verb, what, value| Error::Limit { verb, what, value, limit: 1 };
    for port in [0, 99] {
        let error = context.query_port(port).unwrap_err();
        assert_eq!(error, no_port("query_port", "port", port.into()));
        assert_eq!(error.to_errno(), Errno::EINVAL);
    }
    let len = context.query_port(1).unwrap().gid_table_len;
    let error = context.query_gid(1, 40_000).unwrap_err();
    let Error::Limit { what: "GID index", value: 40_000, limit, .. } = error else {
        panic!("{error:?}")
    };
    assert_eq!(limit, u64::from(len) - 1);
    assert!(context.query_pkey(1, 60_000).is_err());
    assert!(context.query_pkey(9, 0).is_err());

    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    let mut qp = context.queue_pair(&pd, &cq).build().unwrap();
    let local = Local { gid_index: Some(40_000), ..common::local() };
    assert!(matches!(qp.prepare(&local), Err(Error::Limit { what: "GID index", .. })));
    let local = Local { port: 3, ..common::local() };
    assert_eq!(qp.prepare(&local).unwrap_err(), no_port("query_port", "port", 3));
    let init = |port, pkey_index| InitAttr { port, pkey_index, access: AccessFlags::empty() };
    let error = qp.init(&init(7, 0)).unwrap_err();
    assert_eq!(error, no_port("modify_qp", "port", 7));
    assert_eq!(qp.state(), QpState::Reset);
    if not_on_rxe("it has one partition, and takes any index for it") {
        return;
    }
    let limit = u64::from(context.query_port(1).unwrap().pkey_table_len) - 1;
    let (verb, what) = ("modify_qp", "P_Key index");
    let error = qp.init(&init(1, 60_000)).unwrap_err();
    assert_eq!(error, Error::Limit { verb, what, value: 60_000, limit });
    assert_eq!(qp.state(), QpState::Reset);
}

#[test]
fn buffers_of_no_size_or_of_too_much() {
    let context = common::device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    for error in [
        pd.slab(0, 1).unwrap_err(),
        pd.slab(1, 0).unwrap_err(),
        pd.slab(1 << 31, 1).unwrap_err(),
        pd.expose(0, AccessFlags::empty()).unwrap_err(),
        // SAFETY: zero bytes are registered.
        unsafe { pd.register(std::ptr::dangling_mut(), 0, AccessFlags::empty()) }.unwrap_err(),
    ] {
        assert!(matches!(error, Error::Limit { verb: "reg_mr", .. }), "{error:?}");
    }
    assert!(pd.expose(1 << 60, AccessFlags::empty()).is_err());
    // SAFETY: the address is in no mapping, which the kernel finds out.
    let error = unsafe {
        pd.register(std::ptr::without_provenance_mut(0x1000), 4096, AccessFlags::empty())
    };
    assert_eq!(error.unwrap_err().errno(), Some(Errno::EFAULT));
}

#[test]
fn a_low_memlock_is_told_from_a_want_of_memory() {
    if !only_on_softhca("the limit of a real machine is not the test's to lower") {
        return;
    }
    let hca = SoftHca::builder().memlock_limit(1 << 20).build().unwrap();
    let pd = soft(&hca).open().unwrap().alloc_pd().unwrap();
    let error = pd.slab(1 << 21, 1).unwrap_err();
    assert_eq!(error, Error::Memlock { verb: "reg_mr", wanted: 1 << 21, limit: 1 << 20 });
    assert_eq!(error.errno(), Some(Errno::ENOMEM));
    // A refused registration does not count: allowed ones succeed again and again.
    for _ in 0..10 {
        drop(pd.slab(1 << 19, 1).unwrap());
    }
}

#[test]
fn queues_of_no_size_or_of_too_much() {
    let context = common::device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    assert!(matches!(context.create_cq(0), Err(Error::Limit { verb: "create_cq", .. })));
    assert!(matches!(context.create_cq(u32::MAX), Err(Error::Limit { verb: "create_cq", .. })));
    let cq = context.create_cq(256).unwrap();
    let build = |shape: &dyn Fn(uverbs::QueuePairBuilder) -> uverbs::QueuePairBuilder| {
        shape(context.queue_pair(&pd, &cq)).overcommit().build().unwrap_err()
    };
    for error in [
        build(&|qp| qp.max_send_wr(u32::MAX)),
        build(&|qp| qp.max_recv_wr(1 << 30)),
        build(&|qp| qp.max_send_sge(10_000)),
        build(&|qp| qp.max_recv_sge(10_000)),
        build(&|qp| qp.max_inline_data(1 << 20)),
    ] {
        let Error::Limit { verb: "create_qp", value, limit, .. } = error else {
            panic!("{error:?}")
        };
        assert!(value > limit);
    }
}

#[test]
fn a_completion_queue_too_small_for_the_work_is_refused_unless_asked_for() {
    let context = common::device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let (small, large) = (context.create_cq(3).unwrap(), context.create_cq(128).unwrap());
    let room = small.capacity();
    let refused = |builder: uverbs::QueuePairBuilder, asked: u32| {
        let error = builder.build().unwrap_err();
        let Error::Limit { verb: "create_qp", value, limit, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!((value, limit), (u64::from(asked), u64::from(room)));
        assert!(error.to_string().contains("completion queue"), "{error}");
    };
    refused(context.queue_pair(&pd, &small), 256);
    refused(context.queue_pair(&pd, &small).max_send_wr(room).max_recv_wr(1), room + 1);
    refused(context.queue_pair(&pd, &large).recv_cq(&small), 128);
    refused(context.queue_pair(&pd, &small).recv_cq(&large), 128);
    let fits = context.queue_pair(&pd, &small).max_send_wr(room - 1).max_recv_wr(1);
    fits.build().unwrap();
    // Each fits into the one queue alone; that both together don't is the program's to know.
    context.queue_pair(&pd, &small).max_send_wr(room).max_recv_wr(0).build().unwrap();
    context.queue_pair(&pd, &small).overcommit().build().unwrap();
}

#[test]
fn a_wait_in_vain_says_what_is_wrong() {
    let (mut client, server) = pair();
    let none = Duration::from_millis(1);
    let why = |error: Error| match error {
        Error::TimedOut { verb: "poll_cq", why, .. } => why,
        other => panic!("{other:?}"),
    };
    let said = why(client.cq.wait(none).unwrap_err()).unwrap();
    let ready = format!("Ready: queue pair {:#x}", client.qp.qpn());
    assert!(said.contains("posted") && said.ends_with(&ready), "{said}");
    client.qp.fail().unwrap();
    let said = why(client.cq.wait(none).unwrap_err()).unwrap();
    let qpn = format!("{:#x}", client.qp.qpn());
    assert!(said.contains("ERR") && said.contains(&qpn), "{said}");
    drop(server);

    let mut small = client.context.create_cq(3).unwrap();
    let said = why(small.wait(none).unwrap_err()).unwrap();
    assert!(said.contains("no queue pair"), "{said}");
    let qp = client.context.queue_pair(&client.pd, &small).overcommit().build().unwrap();
    let most = qp.cap().max_send_wr + qp.cap().max_recv_wr;
    let said = why(small.wait(none).unwrap_err()).unwrap();
    assert!(said.contains("overrun") && said.contains(&most.to_string()), "{said}");
    assert!(said.contains(&format!("not connected: queue pair {:#x}", qp.qpn())), "{said}");
    drop(qp);
    let said = why(small.wait(none).unwrap_err()).unwrap();
    assert!(said.contains("no queue pair"), "the last one is gone: {said}");
}

#[test]
fn an_empty_gid_entry_names_those_in_use() {
    let context = common::device().open().unwrap();
    let used: Vec<u32> = context.query_gid_table().unwrap().iter().map(|gid| gid.index).collect();
    let len = context.query_port(1).unwrap().gid_table_len;
    let Some(index) = (0..len).rev().find(|index| !used.contains(index)) else {
        common::skip("every entry of the GID table is in use");
        return;
    };
    let error = context.query_gid(1, index).unwrap_err();
    assert_eq!(error, Error::EmptyGid { port: 1, index, used: used.clone() });
    assert_eq!(error.errno(), Some(Errno::ENODATA));
    assert!(used.iter().all(|used| error.to_string().contains(&used.to_string())), "{error}");
    let local = Local { gid_index: Some(index), ..Local::default() };
    assert_eq!(context.local_port(&local).map(drop), Err(error));
}

#[test]
fn objects_of_two_contexts_dont_mix() {
    let device = common::device();
    let (one, other) = (device.open().unwrap(), device.open().unwrap());
    let cq = one.create_cq(256).unwrap();
    let foreign = other.alloc_pd().unwrap();
    let error = one.queue_pair(&foreign, &cq).build().unwrap_err();
    assert!(matches!(error, Error::Invalid { what: "protection domain", .. }), "{error:?}");
    let pd = one.alloc_pd().unwrap();
    let foreign = other.create_cq(256).unwrap();
    let error = one.queue_pair(&pd, &cq).recv_cq(&foreign).build().unwrap_err();
    assert!(matches!(error, Error::Invalid { what: "receive completion queue", .. }), "{error:?}");
}

#[test]
fn posting_in_the_wrong_state() {
    let context = common::device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    let slab = pd.slab(64, 1).unwrap();
    let mut qp = context.queue_pair(&pd, &cq).build().unwrap();
    assert_eq!(qp.batch().send_inline(1, b"x"), Err(PostError::State));
    let rejected = qp.post_recv(1, slab.take().unwrap()).unwrap_err();
    assert_eq!(rejected.error, PostError::State);
    drop(rejected);
    qp.prepare(&common::local()).unwrap();
    assert_eq!(qp.batch().send_inline(1, b"x"), Err(PostError::State), "sends need RTS");
    qp.post_recv(1, slab.take().unwrap()).unwrap();
}

#[test]
fn transitions_out_of_order_name_both_states() {
    let context = common::device().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    let mut qp = context.queue_pair(&pd, &cq).build().unwrap();
    let attr = RtrAttr {
        dest_qpn: 1,
        rq_psn: 0,
        path_mtu: Mtu::from_bytes(1024).unwrap(),
        path: Path { dlid: 0, grh: None, service_level: 0, src_path_bits: 0, static_rate: 0 },
        max_dest_rd_atomic: 1,
        min_rnr_timer: RnrTimer::DEFAULT,
    };
    let error = qp.ready_to_receive(&attr).unwrap_err();
    let expected = Error::State { verb: "modify_qp", state: QpState::Reset, needs: QpState::Init };
    assert_eq!(error, expected);
    let endpoint = qp.prepare(&common::local()).unwrap();
    let error = qp.ready_to_receive(&RtrAttr { dest_qpn: 1 << 24, ..attr }).unwrap_err();
    assert!(matches!(error, Error::Limit { what: "destination QPN", .. }), "{error:?}");
    if endpoint.gid.is_some() {
        let error = qp.ready_to_receive(&attr).unwrap_err();
        assert_eq!(error.errno(), Some(Errno::EINVAL), "RoCE needs a GRH");
        let mut peer = endpoint;
        peer.gid = None;
        assert!(matches!(qp.connect(&peer), Err(Error::MissingAttribute { .. })));
        // An address of the other family than the port's GID.
        let own = endpoint.gid.map(|gid| gid.0);
        let is_ipv4 =
            own.is_some_and(|gid| gid[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff]);
        let other = if is_ipv4 { "2001:db8::1" } else { "::ffff:192.0.2.1" };
        peer.gid = Some(other.parse().unwrap());
        let error = qp.connect(&peer).unwrap_err();
        assert!(matches!(error, Error::Invalid { what: "the peer's GID", .. }), "{error:?}");
    }
    assert_eq!(qp.state(), QpState::Init, "refused transitions change nothing");
    let mut second = context.queue_pair(&pd, &cq).build().unwrap();
    let error = second.connect(&endpoint).unwrap_err();
    assert!(matches!(error, Error::Invalid { verb: "connect", .. }), "{error:?}");
    assert!(error.to_string().contains("call `prepare` first"), "{error}");
}

#[test]
fn an_mtu_over_the_ports_is_refused_and_the_smaller_of_two_is_used() {
    let small = Local { mtu: Mtu::from_bytes(256), ..common::local() };
    let device = common::device();
    let mut one = Side::new(&device, &small, |qp| qp);
    let mut other = Side::new(&device, &common::local(), |qp| qp);
    one.qp.connect(&other.endpoint).unwrap();
    other.qp.connect(&one.endpoint).unwrap();
    other.expect(1, 5000);
    let frame = one.filled(5000, 1);
    let mut batch = one.qp.batch();
    batch.send(1, frame).unwrap();
    batch.ring();
    assert_eq!(other.done().byte_len, 5000);

    if only_on_softhca("the MTU of a real port is not the test's to lower") {
        let hca = SoftHca::builder().active_mtu(uverbs::softhca::Mtu::B1024).build().unwrap();
        let context = soft(&hca).open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(256).unwrap();
        let mut qp = context.queue_pair(&pd, &cq).build().unwrap();
        let error = qp.prepare(&Local { mtu: Mtu::from_bytes(4096), ..common::local() });
        let expected =
            Error::Limit { verb: "modify_qp", what: "path MTU", value: 4096, limit: 1024 };
        assert_eq!(error, Err(expected));
    }
}

#[test]
fn a_wait_ends_when_its_time_is_over() {
    let (mut client, _server) = pair();
    let started = Instant::now();
    let error = client.cq.wait(Duration::from_millis(30)).unwrap_err();
    assert!(matches!(error, Error::TimedOut { verb: "poll_cq", .. }), "{error:?}");
    assert!(started.elapsed() >= Duration::from_millis(30) && started.elapsed() < LIMIT);
    assert_eq!(client.context.async_event(Duration::from_millis(10)), Ok(None));
}

#[test]
fn a_device_that_is_removed_ends_in_errors_and_leaves_nothing_hanging() {
    if !only_on_softhca("the test removes the device") {
        return;
    }
    let hca = SoftHca::builder().build().unwrap();
    let device = soft(&hca);
    let (mut client, server) = common::pair_on(&device, &device, &common::local(), |qp| qp);
    let slab = client.slab(64, 2);
    client.qp.post_recv(1, slab.take().unwrap()).unwrap();
    let waiter = std::thread::spawn({
        let mut cq = server.cq;
        move || {
            let started = Instant::now();
            (cq.wait(20 * LIMIT).unwrap_err(), started.elapsed())
        }
    });
    std::thread::sleep(Duration::from_millis(50));
    hca.unplug();
    let (error, waited) = waiter.join().unwrap();
    assert_eq!(error, Error::DeviceGone { verb: "poll_cq" });
    assert!(waited < LIMIT, "{waited:?}");
    let error = client.context.alloc_pd().unwrap_err();
    assert_eq!(error.errno(), Some(Errno::EIO));
    let event = client.context.async_event(LIMIT).unwrap().expect("an event tells of it");
    assert!(format!("{event:?}").contains("DeviceFatal"), "{event:?}");
    // Sends in flight come back: the kernel confirms that the queue pair is gone.
    let Side { qp, mut cq, .. } = client;
    let gone = qp.destroy().unwrap();
    let frames = cq.reclaim(&gone);
    assert_eq!(frames.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1]);
    drop(frames);
    assert_eq!(std::iter::from_fn(|| slab.take()).collect::<Vec<_>>().len(), 2);
    drop(server.qp);
}

#[test]
fn a_grh_with_everything_set_is_accepted() {
    let device = common::device();
    let (one, mut other) = {
        let local =
            Local { traffic_class: 0xb8, hop_limit: 3, service_level: 2, ..common::local() };
        let side = || Side::new(&device, &local, |qp| qp);
        (side(), side())
    };
    let Some(dgid) = one.endpoint.gid else {
        common::skip("the port has no GID");
        return;
    };
    let sgid_index = other.context.best_gid(1).unwrap().unwrap().index as u8;
    let route =
        GlobalRoute { dgid, sgid_index, hop_limit: 3, traffic_class: 0xb8, flow_label: 0xf_ffff };
    let attr = RtrAttr {
        dest_qpn: one.endpoint.qpn,
        rq_psn: one.endpoint.psn,
        path_mtu: one.endpoint.mtu,
        path: Path {
            dlid: 0,
            grh: Some(route),
            service_level: 2,
            src_path_bits: 0,
            static_rate: 0,
        },
        max_dest_rd_atomic: 4,
        min_rnr_timer: RnrTimer::DEFAULT,
    };
    other.qp.ready_to_receive(&attr).unwrap();
    assert_eq!(other.qp.query().unwrap().state, QpState::ReadyToReceive);
}

#[test]
fn exposed_memory_promises_order_and_takes_no_flag_that_breaks_it() {
    let (client, _server) = pair();
    let access = AccessFlags::REMOTE_WRITE | AccessFlags::RELAXED_ORDERING;
    let error = client.pd.expose(64, access).unwrap_err();
    assert!(matches!(error, Error::Invalid { verb: "reg_mr", what: "access", .. }), "{error}");
}
