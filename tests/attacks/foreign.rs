//! Objects of one device given to functions of another, in all combinations.

use std::os::fd::AsFd;
use std::sync::Arc;

use common::{device, local, only_on_softhca, soft};
use uverbs::flow::{EthMatch, FlowRule, MacAddr};
use uverbs::memory::WindowKind;
use uverbs::packet::RawPacketQueuePair;
use uverbs::rss::{HashFields, RssHash};
use uverbs::softhca::{LinkLayer, SoftHca};
use uverbs::transport::{Dci, Ud, XrcIni};
use uverbs::unstable::doors::{DeviceRecord, DeviceSource, UverbsDoor};
use uverbs::xrc::RemoteSrq;
use uverbs::{
    AccessFlags, AhAttr, CompletionQueue, Context, Device, Errno, Error, Local, PostError,
    ProtectionDomain, QueuePair, Rxe, Siw,
};
use uverbs_kernel_abi::driver_id::{RDMA_DRIVER_RXE, RDMA_DRIVER_SIW};

/// An open device, with a domain and a completion queue.
struct Home {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl Home {
    fn new(device: &Device) -> Self {
        let context = device.open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(512).unwrap();
        Self { context, pd, cq }
    }
}

#[track_caller]
fn foreign<T>(told: Result<T, Error>) {
    match told {
        Err(Error::Invalid { .. }) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("taken, although it is of another device"),
    }
}

/// Two devices, and twice one device.
fn homes() -> [(Home, Home); 2] {
    let (one, other) = (device(), device());
    [(Home::new(&one), Home::new(&other)), (Home::new(&one), Home::new(&one))]
}

#[test]
fn no_object_is_made_of_anothers() {
    if !only_on_softhca("it makes each kind of object") {
        return;
    }
    for (one, other) in homes() {
        let Home { context, pd, cq } = &one;
        foreign(context.queue_pair(&other.pd, cq).build());
        foreign(context.queue_pair(pd, &other.cq).build());
        foreign(context.shared_receive_queue(&other.pd).build());
        let srq = other.context.shared_receive_queue(&other.pd).build().unwrap();
        foreign(context.queue_pair(pd, cq).shared_receives(&srq).build());
        foreign(context.dc_target(pd, cq, &srq, 1));
        let domain = other.context.xrc_domain().unwrap();
        foreign(context.shared_receive_queue(pd).xrc(&domain, cq).build());
        let own = context.xrc_domain().unwrap();
        foreign(context.shared_receive_queue(pd).xrc(&own, &other.cq).build());
        foreign(context.xrc_target(&domain));
        foreign(context.open_xrc_target(&domain, 1));
        let channel = other.context.create_comp_channel().unwrap();
        foreign(context.completion_queue(8).channel(&channel).build());
        foreign(context.work_queue(&other.pd, cq).build());
        foreign(context.work_queue(pd, &other.cq).build());
        let wq = other.context.work_queue(&other.pd, &other.cq).build().unwrap();
        foreign(context.indirection_table(&[&wq]));
        let table = other.context.indirection_table(&[&wq]).unwrap();
        let hash = RssHash { key: [1; 40], fields: HashFields::SRC_IPV4 };
        foreign(context.rss_queue_pair(pd, &table, &hash));
        let wq = context.work_queue(pd, cq).build().unwrap();
        let table = context.indirection_table(&[&wq]).unwrap();
        foreign(context.rss_queue_pair(&other.pd, &table, &hash));
        foreign(context.alloc_indirect_key(&other.pd, 4));
        let memory = other.context.alloc_device_memory(4096, 0).unwrap();
        foreign(pd.register_device_memory(&memory, 0, 4096, AccessFlags::LOCAL_WRITE));
    }
}

/// Address handles, destinations, flows and counters, which posts and rules take.
#[test]
fn no_post_or_rule_takes_anothers() {
    if !only_on_softhca("it makes each kind of object") {
        return;
    }
    for (one, other) in homes() {
        let Home { context, pd, cq } = &one;
        let make = |home: &Home| {
            let mut qp: QueuePair<uverbs::Any, Ud> =
                home.context.queue_pair(&home.pd, &home.cq).ud().build().unwrap();
            let at = qp.bring_up(&local()).unwrap();
            (qp, at)
        };
        let ((mut qp, at), (theirs, _)) = (make(&one), make(&other));
        let to = theirs.destination(&at).unwrap();
        let mut batch = qp.batch();
        assert_eq!(batch.send_inline_to(1, b"x", &to), Err(PostError::ForeignAddress));
        let frame = pd.slab(64, 1).unwrap().take().unwrap();
        let told = batch.send_to(1, frame, &to).unwrap_err().error;
        assert_eq!(told, PostError::ForeignAddress);
        drop(batch);
        let attr = AhAttr { port: 1, path: own_path(&one) };
        foreign(context.create_ah(&other.pd, &attr));
        // Dynamic connections.
        let mut dci = context.queue_pair(pd, cq).dci().max_inline_data(64).build().unwrap();
        dci.bring_up(&local()).unwrap();
        let foreign_ah = other.context.create_ah(&other.pd, &attr).unwrap();
        let mut batch = dci.batch();
        let to = foreign_ah.to_target(1, 2);
        assert_eq!(batch.send_inline_to(1, b"x", &to), Err(PostError::ForeignAddress));
        let frame = pd.slab(64, 1).unwrap().take().unwrap();
        let told = batch.send_to(1, frame, &to).unwrap_err().error;
        assert_eq!(told, PostError::ForeignAddress);
        drop(batch);
        // Counters of rules.
        let mut raw: RawPacketQueuePair = context.queue_pair(pd, cq).raw_packet().build().unwrap();
        raw.bring_up(1).unwrap();
        let eth = EthMatch { dst: Some(MacAddr([2, 0, 0, 0, 9, 1]).into()), ..EthMatch::default() };
        let counters = other.context.flow_counters().unwrap();
        foreign(raw.steer_counted(&FlowRule::new().eth(eth), &counters));
        // Ports.
        let port = other.context.local_port(&Local::default()).unwrap();
        foreign(qp.bring_up_on(&port));
        let mut rc = context.queue_pair(pd, cq).build().unwrap();
        foreign(rc.prepare_on(&port));
    }
}

fn own_path(home: &Home) -> uverbs::attr::Path {
    let own = home.context.best_gid(1).unwrap().unwrap();
    uverbs::attr::Path {
        dlid: 0,
        grh: Some(uverbs::attr::GlobalRoute {
            dgid: own.gid,
            sgid_index: own.index as u8,
            hop_limit: 1,
            traffic_class: 0,
            flow_label: 0,
        }),
        service_level: 0,
        src_path_bits: 0,
        static_rate: 0,
    }
}

#[test]
fn buffers_of_anothers_domain_come_back_from_each_post() {
    if !only_on_softhca("it makes each kind of object") {
        return;
    }
    let mut pairs: Vec<_> = homes().into();
    let home = Home::new(&device());
    let pd = home.context.alloc_pd().unwrap();
    pairs.push((Home { pd: home.pd.clone(), ..home }, Home { pd, ..Home::new(&device()) }));
    for (one, other) in pairs {
        let Home { context, pd, cq } = &one;
        let slab = other.pd.slab(64, 8).unwrap();
        let memory = other.pd.expose(64, AccessFlags::MW_BIND).unwrap();
        let own = pd.slab(64, 8).unwrap();
        let mut rc: QueuePair = context.queue_pair(pd, cq).max_send_sge(4).build().unwrap();
        rc.prepare(&local()).unwrap();
        rc.connect_to_self().unwrap();
        let no = PostError::ForeignBuffer;
        assert_eq!(rc.post_recv(1, slab.take().unwrap()).unwrap_err().error, no);
        let mut mixed = own.take().unwrap();
        mixed.append(slab.take().unwrap());
        let mut batch = rc.batch();
        let told = batch.send(1, mixed.chain()).unwrap_err();
        assert_eq!(told.error, no);
        let told = batch.read(1, told.data, memory.remote(0)).unwrap_err();
        assert_eq!(told.error, no);
        drop(batch);
        let told = rc.post_recv(1, told.data).unwrap_err();
        assert_eq!(told.error, no);
        let mut batch = rc.batch();
        let part = memory.part(0, 64).unwrap();
        assert_eq!(batch.write(1, part.clone(), memory.remote(0)).unwrap_err().error, no);
        let told = batch.fetch_add(1, slab.take().unwrap(), memory.remote(0), 1).unwrap_err();
        assert_eq!(told.error, no);
        let mut window = pd.alloc_window(WindowKind::Type2).unwrap();
        assert_eq!(batch.bind(1, &mut window, &part, AccessFlags::REMOTE_READ), Err(no));
        let mut theirs = other.pd.alloc_window(WindowKind::Type2).unwrap();
        let here = pd.expose(64, AccessFlags::MW_BIND).unwrap().part(0, 64).unwrap();
        assert_eq!(batch.bind(1, &mut theirs, &here, AccessFlags::REMOTE_READ), Err(no));
        assert_eq!(batch.unbind(1, &mut theirs), Err(no));
        let mut key = context.alloc_indirect_key(pd, 4).unwrap();
        let told = batch.map_list(1, &mut key, &[here, part], AccessFlags::REMOTE_READ);
        assert_eq!(told, Err(no));
        drop(batch);
        let mut srq = context.shared_receive_queue(pd).max_sge(2).build().unwrap();
        assert_eq!(srq.post(1, slab.take().unwrap()).unwrap_err().error, no);
        let mut wq = context.work_queue(pd, cq).build().unwrap();
        wq.start().unwrap();
        assert_eq!(wq.post(1, slab.take().unwrap()).unwrap_err().error, no);
        let mut xrc: QueuePair<uverbs::Any, XrcIni> =
            context.queue_pair(pd, cq).xrc().build().unwrap();
        let to = RemoteSrq::new(1).unwrap();
        let told = xrc.batch().send_to(1, slab.take().unwrap(), &to).unwrap_err();
        assert_eq!(told.error, no);
        let dci: QueuePair<uverbs::Any, Dci> = context.queue_pair(pd, cq).dci().build().unwrap();
        drop(dci);
    }
}

#[test]
fn tags_take_no_buffer_of_another_domain() {
    if !only_on_softhca("it makes a device that matches tags") {
        return;
    }
    let hca = SoftHca::builder().link(LinkLayer::InfiniBand).build().unwrap();
    let (one, other) = (Home::new(&soft(&hca)), Home::new(&soft(&hca)));
    let srq = one.context.shared_receive_queue(&one.pd).max_wr(15).tags(&one.cq, 8);
    let mut srq = srq.build().unwrap();
    foreign(one.context.shared_receive_queue(&one.pd).tags(&other.cq, 8).build());
    let slab = other.pd.slab(64, 2).unwrap();
    let told = srq.add_tag(1, 7, 2, slab.take().unwrap()).unwrap_err();
    assert_eq!(told.error, PostError::ForeignBuffer);
}

/// A provider opens devices of one driver, and a file is of the device that opened it.
#[test]
fn no_provider_opens_anothers_device() {
    if !only_on_softhca("it takes two devices") {
        return;
    }
    let (one, other) = (device(), device());
    let told = one.open_as::<Rxe>().expect_err("another driver's");
    assert!(matches!(told, Error::Unsupported { .. }), "{told}");
    let context = one.open().unwrap();
    let file = context.export().unwrap();
    let told = other.import::<uverbs::Any>(file.as_fd()).expect_err("another device's");
    assert_eq!(told.errno(), Some(Errno::ENODEV), "{told}");
    let told = one.import::<Rxe>(file.as_fd()).expect_err("another driver's");
    assert!(matches!(told, Error::Unsupported { .. }), "{told}");
    let again = uverbs::import(&file).unwrap();
    foreign(
        again.queue_pair(&context.alloc_pd().unwrap(), &context.create_cq(512).unwrap()).build(),
    );
}

/// A device that says it is of another driver.
#[derive(Debug)]
struct Disguised(SoftHca, DeviceRecord);

impl DeviceSource for Disguised {
    fn record(&self) -> &DeviceRecord {
        &self.1
    }

    fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        self.0.open()
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        self.0.pkey(port, index)
    }
}

/// Each command carries the driver's id, which the kernel compares.
#[test]
fn a_source_that_names_another_driver_is_refused() {
    if !only_on_softhca("the driver id is made up") {
        return;
    }
    let disguised = |driver| {
        let hca = SoftHca::builder().build().unwrap();
        Device::from_source(Arc::new(Disguised(hca, DeviceRecord::new("disguised", driver))))
    };
    let rxe = disguised(RDMA_DRIVER_RXE).open_as::<Rxe>().map(drop);
    let siw = disguised(RDMA_DRIVER_SIW).open_as::<Siw>().map(drop);
    for told in [rxe, siw] {
        assert_eq!(told.expect_err("another driver's").errno(), Some(Errno::EINVAL));
    }
}

#[test]
fn a_completion_queue_reclaims_nothing_of_another() {
    let (mut one, mut other) = (Home::new(&device()), Home::new(&device()));
    let slab = one.pd.slab(64, 2).unwrap();
    let mut qp: QueuePair = one.context.queue_pair(&one.pd, &one.cq).build().unwrap();
    qp.prepare(&local()).unwrap();
    qp.post_recv(1, slab.take().unwrap()).unwrap();
    qp.post_recv(2, slab.take().unwrap()).unwrap();
    let gone = qp.destroy().unwrap();
    assert!(other.cq.reclaim(&gone).is_empty());
    let mut third: CompletionQueue = one.context.create_cq(8).unwrap();
    assert!(third.reclaim(&gone).is_empty());
    let frames = one.cq.reclaim(&gone);
    assert_eq!(frames.len(), 2);
    assert!(one.cq.reclaim(&gone).is_empty());
    drop(frames);
}
