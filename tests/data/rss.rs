//! Work queues, tables of them, and packets that are spread over a table by their hash.

use std::time::Instant;

use common::{LIMIT, device, is_rxe, not_on_rxe, only_on_softhca, skip, soft};
use uverbs::flow::{EthMatch, FlowRule, MacAddr, PortMatch};
use uverbs::packet::{Checksums, RawPacketQueuePair};
use uverbs::rss::{HashFields, IndirectionTable, RssHash, RssQueuePair, WorkQueue, WqState};
use uverbs::softhca::SoftHca;
use uverbs::{
    Completed, CompletionQueue, Context, Device, Errno, Error, Failure, LinkLayer, PostError,
    ProtectionDomain, Slab, Status,
};

const HERE: MacAddr = MacAddr([2, 0, 0, 0, 9, 1]);
const THERE: MacAddr = MacAddr([2, 0, 0, 0, 9, 2]);
const UDP: u8 = 17;
const TCP: u8 = 6;
/// Bytes of a receive.
const ROOM: usize = 2048;

/// Microsoft, "Verifying the RSS Hash Calculation": the key of its examples.
const KEY: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
    0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
    0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Toeplitz hash, as on that page: for each bit set in the input, the 32 bits of the key that begin
/// there.
fn toeplitz(input: &[u8]) -> u32 {
    let key = |bit: usize| u32::from(KEY[bit / 8] >> (7 - bit % 8) & 1);
    let window = |at: usize| (at..at + 32).fold(0, |word, bit| word << 1 | key(bit));
    let set = (0..input.len() * 8).filter(|bit| input[bit / 8] >> (7 - bit % 8) & 1 != 0);
    set.fold(0, |hash, bit| hash ^ window(bit))
}

/// Addresses and ports.
#[derive(Clone, Copy)]
struct Flow {
    src: [u8; 4],
    dst: [u8; 4],
    ports: (u16, u16),
    protocol: u8,
}

impl Flow {
    fn udp(src_port: u16) -> Self {
        let (src, dst) = ([10, 7, 0, 1], [10, 7, 0, 2]);
        Self { src, dst, ports: (src_port, 4791), protocol: UDP }
    }

    fn hash(&self) -> u32 {
        let (from, to) = (self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes());
        toeplitz(&[&self.src[..], &self.dst, &from, &to].concat())
    }

    /// A frame, with a VLAN tag if one is given. Its length is the hash's concern no more than the
    /// transport's header behind the ports.
    fn packet(&self, vlan: Option<u16>, data: &[u8]) -> Vec<u8> {
        let len = |head: usize| ((head + data.len()) as u16).to_be_bytes();
        let mut packet = [THERE.0, HERE.0].concat();
        if let Some(tag) = vlan {
            packet.extend([[0x81, 0x00], tag.to_be_bytes()].concat());
        }
        packet.extend([0x08, 0x00, 0x45, 0]);
        let rest = if self.protocol == UDP { 8 } else { 20 };
        packet.extend(len(20 + rest));
        packet.extend([0, 0, 0, 0, 64, self.protocol, 0, 0]);
        packet.extend([self.src, self.dst].concat());
        packet.extend([self.ports.0.to_be_bytes(), self.ports.1.to_be_bytes()].concat());
        match self.protocol {
            UDP => packet.extend([len(8), [0, 0]].concat()),
            _ => packet.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]),
        }
        packet.extend(data);
        packet
    }
}

/// True if the device supports work queues. Otherwise skips the test.
fn has_work_queues() -> bool {
    if not_on_rxe("soft-RoCE has no work queues") {
        return false;
    }
    let port = device().open().expect("open").query_port(1).expect("query_port");
    let ethernet = port.link_layer == LinkLayer::Ethernet;
    if !ethernet {
        skip("work queues need an Ethernet port");
    }
    ethernet
}

/// Sender, which opens the device separately.
struct Sender {
    qp: RawPacketQueuePair,
    cq: CompletionQueue,
}

impl Sender {
    fn new(device: &Device) -> Self {
        let context = device.open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let cq = context.create_cq(256).expect("create_cq");
        let qp = context.queue_pair(&pd, &cq).max_inline_data(200).raw_packet();
        let mut qp = qp.build().expect("create_qp");
        qp.bring_up(1).expect("bring_up");
        Self { qp, cq }
    }

    /// Sends a packet, and waits until it has left.
    fn send(&mut self, packet: &[u8]) {
        let mut batch = self.qp.batch();
        batch.send_packet_inline(1, packet, Checksums::Filled).expect("send_packet_inline");
        batch.ring();
        self.cq.wait(LIMIT).expect("a completion").result.expect("it left");
    }
}

/// A work queue and its completion queue.
struct Queue {
    wq: WorkQueue,
    cq: CompletionQueue,
}

/// Receiver: work queues behind an indirection table.
struct Receiver {
    queues: Vec<Queue>,
    table: IndirectionTable,
    slab: Slab,
    pd: ProtectionDomain,
    context: Context,
}

fn queue(context: &Context, pd: &ProtectionDomain) -> Queue {
    let cq = context.create_cq(64).expect("create_cq");
    let wq = context.work_queue(pd, &cq).max_wr(32).build().expect("create_wq");
    Queue { wq, cq }
}

impl Receiver {
    fn new(device: &Device, count: usize) -> Self {
        let context = device.open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let mut queues: Vec<_> = (0..count).map(|_| queue(&context, &pd)).collect();
        let refs: Vec<_> = queues.iter().map(|queue| &queue.wq).collect();
        let table = context.indirection_table(&refs).expect("create_rwq_ind_table");
        queues.iter_mut().for_each(|queue| queue.wq.start().expect("RESET to RDY"));
        let slab = pd.slab(ROOM, 64).expect("slab");
        Self { queues, table, slab, pd, context }
    }

    fn expect(&mut self, queue: usize, count: u64) {
        for id in 0..count {
            let frame = self.slab.take().expect("a frame");
            self.queues[queue].wq.post(id, frame).expect("post");
        }
    }

    fn spread(&self, fields: HashFields) -> RssQueuePair {
        let hash = RssHash { key: KEY, fields };
        self.context.rss_queue_pair(&self.pd, &self.table, &hash).expect("create_qp")
    }

    /// The next packet of a queue.
    fn next(&mut self, queue: usize) -> Vec<u8> {
        let done = self.queues[queue].cq.wait(LIMIT).expect("a completion");
        assert_eq!(done.result, Ok(Completed::Recv));
        done.frame.expect("a receive has one").to_vec()
    }
}

/// Makes the sender and the receiver on one device.
fn ends(queues: usize) -> (Sender, Receiver) {
    let device = device();
    (Sender::new(&device), Receiver::new(&device, queues))
}

/// Packets to this station.
fn to_there() -> FlowRule {
    FlowRule::new().eth(EthMatch { dst: Some(THERE.into()), ..Default::default() })
}

#[test]
fn each_flow_goes_to_the_queue_of_its_hash() {
    if !has_work_queues() {
        return;
    }
    let (mut sender, mut receiver) = ends(4);
    let spread = receiver.spread(HashFields::IPV4 | HashFields::UDP);
    let counters = receiver.context.flow_counters().expect("create_counters");
    let rule = to_there().tag(7);
    let _flow = spread.steer_counted(&rule, &counters).expect("create_flow");
    let mut seen = [0; 4];
    for port in 0..24 {
        let flow = Flow::udp(1000 + port);
        let queue = flow.hash() as usize % 4;
        receiver.expect(queue, 1);
        sender.send(&flow.packet(None, format!("of port {port}").as_bytes()));
        let packet = receiver.next(queue);
        assert_eq!(
            packet[42..].split(|byte| *byte == 0).next(),
            Some(format!("of port {port}").as_bytes())
        );
        seen[queue] += 1;
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}: each queue got some");
    // TCP packets are hashed by their addresses alone, packets other than IPv4 not at all.
    let tcp = Flow { protocol: TCP, ..Flow::udp(5) };
    let place = toeplitz(&[tcp.src, tcp.dst].concat()) as usize % 4;
    receiver.expect(place, 1);
    sender.send(&tcp.packet(None, b"of TCP"));
    assert_eq!(receiver.next(place)[54..60], *b"of TCP");
    receiver.expect(0, 1);
    sender.send(&[&THERE.0[..], &HERE.0, &[0x88, 0xb5], &[0x5a; 50]].concat());
    assert_eq!(receiver.next(0)[14..20], [0x5a; 6]);
    assert_eq!(counters.read().expect("read").packets, 26);
    for queue in &mut receiver.queues {
        assert!(queue.cq.poll(1).next().is_none(), "nothing else came");
    }
}

#[test]
fn completions_tell_tag_queue_and_vlan() {
    if !has_work_queues() {
        return;
    }
    let (mut sender, mut receiver) = ends(1);
    let context = receiver.context.clone();
    let stripping = {
        let wq = context.work_queue(&receiver.pd, &receiver.queues[0].cq).max_wr(8);
        wq.strip_vlan().build().expect("create_wq")
    };
    let before = std::mem::replace(&mut receiver.queues[0].wq, stripping);
    receiver.queues[0].wq.start().expect("start");
    let wqn = receiver.queues[0].wq.wqn();
    assert_ne!(wqn, before.wqn());
    receiver.table = context.indirection_table(&[&receiver.queues[0].wq]).expect("a table");
    assert_eq!(receiver.table.wqns().collect::<Vec<_>>(), [wqn]);
    // One place needs no hash.
    let spread = receiver.spread(HashFields::empty());
    let flow = spread.steer(&to_there().tag(0x54321)).expect("create_flow");
    receiver.expect(0, 1);
    sender.send(&Flow::udp(1).packet(Some(0x2123), b"tagged"));
    let began = Instant::now();
    let done = loop {
        assert!(began.elapsed() < LIMIT, "a completion");
        let mut burst = receiver.queues[0].cq.poll(1);
        if let Some(done) = burst.next() {
            break (done.packet().vlan_tag, done.flow_tag(), done.byte_len());
        }
    };
    // Padded to 60 bytes; the buffer lacks the tag's 4.
    assert_eq!(done, (Some(0x2123), 0x54321, 56));
    flow.destroy().expect("destroy_flow");
    spread.destroy().expect("destroy_qp");
}

#[test]
fn a_queue_may_have_several_places() {
    if !has_work_queues() {
        return;
    }
    let (mut sender, mut receiver) = ends(2);
    let refs = [0, 1, 1, 1, 0, 1, 0, 1].map(|queue: usize| &receiver.queues[queue].wq);
    receiver.table = receiver.context.indirection_table(&refs).expect("a table of 8");
    let spread = receiver.spread(HashFields::SRC_PORT_UDP);
    let _flow = spread.steer(&to_there()).expect("create_flow");
    for port in 1..9 {
        let place = toeplitz(&u16::to_be_bytes(port)) as usize % 8;
        let queue = [0, 1, 1, 1, 0, 1, 0, 1][place];
        receiver.expect(queue, 1);
        sender.send(&Flow::udp(port).packet(None, b"to one of two"));
        receiver.next(queue);
    }
}

#[test]
fn a_table_keeps_its_queues() {
    if !has_work_queues() {
        return;
    }
    let (mut sender, mut receiver) = ends(2);
    let spread = receiver.spread(HashFields::IPV4);
    let flow = spread.steer(&to_there()).expect("create_flow");
    receiver.expect(0, 2);
    receiver.expect(1, 2);
    let Receiver { mut queues, table, slab, .. } = receiver;
    drop(table);
    let Queue { wq: last, cq: mut last_cq } = queues.pop().expect("two");
    let Queue { wq: first, cq: mut first_cq } = queues.pop().expect("two");
    // The kernel refuses to destroy a queue that a table uses.
    let refused = first.destroy().expect_err("a table has it");
    assert_eq!(refused.error.errno(), Some(Errno::EBUSY));
    let first = refused.into_object();
    drop(last);
    // It is only the handle that is gone: the queue still receives.
    let flow_of_packet = Flow::udp(1);
    let place = toeplitz(&[flow_of_packet.src, flow_of_packet.dst].concat()) as usize % 2;
    sender.send(&flow_of_packet.packet(None, b"still"));
    let cq = [&mut first_cq, &mut last_cq].into_iter().nth(place).expect("two");
    assert_eq!(cq.wait(LIMIT).expect("a completion").result, Ok(Completed::Recv));
    // With rules there is no end of the queue pair.
    let refused = spread.destroy().expect_err("it has a rule");
    assert_eq!(refused.error.errno(), Some(Errno::EBUSY));
    drop(refused);
    drop(flow);
    let gone = first.destroy().expect("nobody has it");
    let back: Vec<_> = first_cq.reclaim(&gone).into_iter().map(|(id, _)| id).collect();
    let outstanding = if place == 0 { vec![1] } else { vec![0, 1] };
    assert_eq!(back, outstanding);
    drop(last_cq.poll(1));
    let free = std::iter::from_fn(|| slab.take()).collect::<Vec<_>>().len();
    assert_eq!(free, 64, "all frames are back");
}

#[test]
fn states_are_followed() {
    if !has_work_queues() {
        return;
    }
    let (mut sender, mut receiver) = ends(1);
    let spread = receiver.spread(HashFields::IPV4);
    let _flow = spread.steer(&to_there()).expect("create_flow");
    assert_eq!(receiver.queues[0].wq.state(), WqState::Ready);
    let again = receiver.queues[0].wq.start().expect_err("it is in RDY");
    assert_eq!(again.errno(), Some(Errno::EINVAL));
    receiver.expect(0, 3);
    sender.send(&Flow::udp(1).packet(None, b"one"));
    receiver.next(0);
    receiver.queues[0].wq.fail().expect("RDY to ERR");
    for id in 1..3 {
        let done = receiver.queues[0].cq.wait(LIMIT).expect("a completion");
        assert!(matches!(done.result, Err(Failure { status: Status::Flushed, .. })), "{done:?}");
        assert_eq!(done.id, id);
        assert!(done.frame.is_some());
    }
    let mut other = receiver.context.create_cq(1).expect("create_cq");
    let Queue { wq, cq } = &mut receiver.queues[0];
    assert!(matches!(wq.reset(&mut other), Err(Error::Invalid { .. })));
    assert!(wq.reset(cq).expect("ERR to RESET").is_empty());
    let frame = receiver.slab.take().expect("a frame");
    let rejected = receiver.queues[0].wq.post(1, frame).expect_err("in RESET");
    assert_eq!(rejected.error, PostError::State);
    drop(rejected);
    // All queues are stopped: a packet that arrives now is lost.
    sender.send(&Flow::udp(1).packet(None, b"lost"));
    receiver.queues[0].wq.start().expect("RESET to RDY");
    receiver.expect(0, 2);
    sender.send(&Flow::udp(1).packet(None, b"two"));
    assert_eq!(receiver.next(0)[42..45], *b"two");
    // From RDY a reset gives back what is outstanding, and the ring begins anew.
    let Queue { wq, cq } = &mut receiver.queues[0];
    let back = wq.reset(cq).expect("RDY to RESET");
    assert_eq!(back.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1]);
    drop(back);
    receiver.queues[0].wq.start().expect("RESET to RDY");
    for turn in 0..40 {
        receiver.expect(0, 1);
        sender.send(&Flow::udp(turn).packet(None, b"over the ring's end"));
        receiver.next(0);
    }
}

#[test]
fn wrong_input_is_named() {
    if !has_work_queues() {
        return;
    }
    let device = device();
    let receiver = Receiver::new(&device, 2);
    let (context, pd) = (&receiver.context, &receiver.pd);
    let wqs = [&receiver.queues[0].wq, &receiver.queues[1].wq];
    let three = context.indirection_table(&[wqs[0], wqs[1], wqs[0]]).expect_err("three");
    assert!(matches!(three, Error::Invalid { what: "queues", .. }), "{three}");
    let none = context.indirection_table(&[]).expect_err("none");
    assert!(matches!(none, Error::Invalid { what: "queues", .. }), "{none}");
    let most =
        context.query_device().expect("query_device").rss.max_rwq_indirection_table_size as usize;
    let many = context.indirection_table(&vec![wqs[0]; 2 * most]).expect_err("too many");
    let limit = most as u64;
    assert!(matches!(many, Error::Limit { what: "queues", limit: l, .. } if l == limit), "{many}");
    context.indirection_table(&vec![wqs[0]; most]).expect("the longest table");

    let hash = |fields| RssHash { key: KEY, fields };
    for fields in [
        HashFields::empty(),
        HashFields::SRC_IPV4 | HashFields::DST_IPV6,
        HashFields::TCP | HashFields::UDP,
    ] {
        let refused = context.rss_queue_pair(pd, &receiver.table, &hash(fields)).expect_err("no");
        assert!(matches!(refused, Error::Invalid { what: "hash fields", .. }), "{refused}");
    }

    let cq = &receiver.queues[0].cq;
    let build =
        |max_wr, max_sge| context.work_queue(pd, cq).max_wr(max_wr).max_sge(max_sge).build();
    for (max_wr, max_sge, named) in
        [(0, 1, "max_wr"), (200, 1, "max_wr of its completion queue"), (8, 1000, "max_sge")]
    {
        let refused = build(max_wr, max_sge).expect_err("out of range");
        assert!(matches!(refused, Error::Limit { what, .. } if what == named), "{refused}");
    }

    let other = device.open().expect("open");
    let foreign = [
        other.indirection_table(&wqs).expect_err("queues of another"),
        other.work_queue(pd, cq).max_wr(8).build().expect_err("objects of another"),
        context
            .rss_queue_pair(
                &other.alloc_pd().expect("alloc_pd"),
                &receiver.table,
                &hash(HashFields::IPV4),
            )
            .expect_err("a domain of another"),
    ];
    for error in foreign {
        assert!(matches!(&error, Error::Invalid { value, .. } if value == "of another context"));
    }
}

#[test]
fn a_flow_may_be_split_by_rules_too() {
    if !has_work_queues() {
        return;
    }
    let (mut sender, mut receiver) = ends(2);
    // Two queue pairs over one table: each hashes another kind of packet.
    let (udp, tcp) = (HashFields::SRC_PORT_UDP, HashFields::SRC_PORT_TCP);
    let (udp, tcp) = (receiver.spread(udp), receiver.spread(tcp));
    let any = PortMatch::default();
    let _flows = [
        udp.steer(&to_there().udp(any)).expect("create_flow"),
        tcp.steer(&to_there().tcp(any)).expect("create_flow"),
    ];
    for (protocol, port) in [(UDP, 1u16), (TCP, 1), (UDP, 2), (TCP, 2), (UDP, 77), (TCP, 78)] {
        let place = toeplitz(&port.to_be_bytes()) as usize % 2;
        receiver.expect(place, 1);
        sender.send(&Flow { protocol, ..Flow::udp(port) }.packet(None, b"by its kind"));
        receiver.next(place);
    }
}

#[test]
fn a_device_without_says_so() {
    let port = device().open().expect("open").query_port(1).expect("query_port");
    let has_none = is_rxe() || port.link_layer != LinkLayer::Ethernet;
    if !has_none && !only_on_softhca("the device has work queues") {
        return;
    }
    let lacking = match has_none {
        true => device(),
        false => {
            let hca = SoftHca::builder().link(uverbs::softhca::LinkLayer::InfiniBand);
            soft(&hca.build().expect("a software HCA"))
        }
    };
    let context = lacking.open().expect("open");
    let pd = context.alloc_pd().expect("alloc_pd");
    let cq = context.create_cq(128).expect("create_cq");
    let refused = context.work_queue(&pd, &cq).build().expect_err("it has none");
    assert!(matches!(refused, Error::Unsupported { verb: "create_wq", .. }), "{refused}");
}
