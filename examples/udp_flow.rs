//! Receives UDP flows without the network stack: rules steer packets to queue pairs, tag and count
//! them, and a hash spreads flows over queues. The two ends open the device separately. They run on
//! the machine's RDMA device or on two software HCAs.
//!
//! `cargo run --example udp_flow`

mod common;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use common::{Outcome, PATIENCE, Table, shown};
use uverbs::flow::{EthMatch, FlowCounters, FlowRule, Ipv4Match, MacAddr, Masked, PortMatch};
use uverbs::packet::{Checksums, RawPacketQueuePair};
use uverbs::rss::{HashFields, RssHash, WorkQueue};
use uverbs::softhca::SoftHca;
use uverbs::softhca::wire::Fabric;
use uverbs::{CompletionQueue, Context, Device, Slab};

/// Stations of the two ends. Their second bit marks locally administered addresses, so no station
/// on the network has them.
const SENDER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const RECEIVER: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
const TO: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 2);
/// Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;

/// One end: a queue pair for whole packets.
struct End {
    qp: RawPacketQueuePair,
    cq: CompletionQueue,
    slab: Slab,
}

impl End {
    fn new(context: &Context) -> Outcome<Self> {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(256)?);
        let mut qp = context.queue_pair(&pd, &cq).max_inline_data(128).raw_packet().build()?;
        qp.bring_up(1)?;
        Ok(Self { qp, cq, slab: pd.slab(2048, 32)? })
    }

    /// Sends a datagram, whose checksums the device fills in.
    fn send(&mut self, packet: &[u8]) -> Outcome {
        let mut batch = self.qp.batch();
        batch.send_packet_inline(1, packet, Checksums::Filled)?;
        batch.ring();
        Ok(self.cq.wait(PATIENCE)?.result.map(drop)?)
    }

    /// The packet that has arrived, and the tag of its rule.
    fn heard(&mut self) -> Outcome<Option<(String, u32)>> {
        let Ok(done) = self.cq.wait(Duration::from_millis(100)) else { return Ok(None) };
        done.result?;
        let packet = done.frame.ok_or("a receive gives its frame back")?;
        // Behind the data a short packet is padded: UDP says how long it is.
        let len = packet.get(HEADERS - 4..HEADERS - 2).ok_or("a short packet")?;
        let end = HEADERS - 8 + usize::from(u16::from_be_bytes([len[0], len[1]]));
        let data = packet.get(HEADERS..end).ok_or("a short packet")?;
        Ok(Some((shown(data), done.qpn)))
    }
}

/// A datagram with all its headers. Checksums are 0: they are the device's.
fn datagram(from: (Ipv4Addr, u16), port: u16, text: &str) -> Vec<u8> {
    let len = |head: usize| ((head + text.len()) as u16).to_be_bytes();
    let [a, b] = len(28);
    let ip = [0x45, 0, a, b, 0, 0, 0, 0, 64, 17, 0, 0];
    let udp = [from.1.to_be_bytes(), port.to_be_bytes(), len(8), [0, 0]].concat();
    let eth = [&RECEIVER.0[..], &SENDER.0, &[0x08, 0x00]].concat();
    [&eth[..], &ip, &from.0.octets(), &TO.octets(), &udp, text.as_bytes()].concat()
}

/// Two devices on one wire, or the machine's own one twice.
fn devices() -> Outcome<[Device; 2]> {
    if let Ok(device) = uverbs::default_device() {
        return Ok([device.clone(), device]);
    }
    let fabric = Fabric::new();
    let soft = || SoftHca::builder().fabric(&fabric).build().map(Device::from);
    Ok([soft()?, soft()?])
}

fn main() -> Outcome {
    let [one, other] = devices()?;
    let (mut sender, context) = (End::new(&one.open()?)?, other.open()?);
    let mut receiver = End::new(&context)?;
    while let Some(frame) = receiver.slab.take() {
        receiver.qp.post_recv(0, frame)?;
    }

    let mine = EthMatch { dst: Some(RECEIVER.into()), ..Default::default() };
    let flow = FlowRule::new().eth(mine).ipv4(Ipv4Match::default());
    let port = |number: u16| PortMatch { dst: Some(number.into()), src: None };
    let lan = Masked { value: Ipv4Addr::new(10, 1, 0, 0), mask: Ipv4Addr::new(255, 255, 0, 0) };
    let local = Ipv4Match { src: Some(lan), ..Default::default() };
    let rules = [
        ("port 5000", flow.clone().udp(port(5000)).tag(1).priority(1)),
        ("port 5001, from 10.1.0.0/16", flow.ipv4(local).udp(port(5001)).tag(2).priority(1)),
        ("port 5002, dropped", FlowRule::new().udp(port(5002)).dropped()),
    ];
    let counters = (0..rules.len()).map(|_| context.flow_counters());
    let counters = counters.collect::<Result<Vec<FlowCounters>, _>>()?;
    let mut flows = Vec::new();
    for ((_, rule), counters) in rules.iter().zip(&counters) {
        flows.push(receiver.qp.steer_counted(rule, counters)?);
    }

    let mut table = Table::new("from | to port | sent | received | tag");
    let (near, far) = (Ipv4Addr::new(10, 1, 0, 1), Ipv4Addr::new(192, 0, 2, 1));
    for (from, port, text) in [
        (near, 5000, "first"),
        (far, 5000, "second"),
        (near, 5001, "third"),
        (far, 5001, "fourth"),
        (near, 5002, "fifth"),
        (near, 9, "sixth"),
    ] {
        sender.send(&datagram((from, 0xc000), port, text))?;
        let (got, tag) = match receiver.heard()? {
            Some((got, tag)) => (got, tag.to_string()),
            None => ("-".to_owned(), "-".to_owned()),
        };
        table.row(&[&from, &port, &text, &got, &tag]);
    }
    table.print();

    let mut table = Table::new("rule | packets | bytes");
    for ((name, _), counters) in rules.iter().zip(&counters) {
        let count = counters.read()?;
        table.row(&[name, &count.packets, &count.bytes]);
    }
    table.print();
    spread(&mut sender, &context)
}

/// Spreads the flows to one port over two queues, which two threads could have.
fn spread(sender: &mut End, context: &Context) -> Outcome {
    let pd = context.alloc_pd()?;
    let slab = pd.slab(2048, 32)?;
    let mut queues = Vec::new();
    for _ in 0..2 {
        let cq = context.create_cq(16)?;
        let mut wq = context.work_queue(&pd, &cq).max_wr(16).build()?;
        wq.start()?;
        for _ in 0..8 {
            wq.post(0, slab.take().ok_or("a frame for each receive")?)?;
        }
        queues.push((wq, cq));
    }
    let wqs: Vec<&WorkQueue> = queues.iter().map(|(wq, _)| wq).collect();
    let table = context.indirection_table(&wqs)?;
    let key = std::array::from_fn(|at| (at * at + 77) as u8);
    let hash = RssHash { key, fields: HashFields::IPV4 | HashFields::UDP };
    let spread = context.rss_queue_pair(&pd, &table, &hash)?;
    let port = PortMatch { dst: Some(5003.into()), src: None };
    let _flow = spread.steer(&FlowRule::new().udp(port))?;

    let mut table = Table::new("from port | queue 0 | queue 1");
    let from = Ipv4Addr::new(10, 1, 0, 1);
    for source in 49152..49156 {
        for _ in 0..2 {
            sender.send(&datagram((from, source), 5003, "one of a flow"))?;
        }
        // Both packets arrive in one queue: packets of a flow have the same hash.
        let mut got = [0; 2];
        let began = Instant::now();
        while got[0] + got[1] < 2 && began.elapsed() < PATIENCE {
            for ((_, cq), got) in queues.iter_mut().zip(&mut got) {
                while let Some(completion) = cq.poll(1).next() {
                    completion.result()?;
                    *got += 1;
                }
            }
        }
        table.row(&[&source, &got[0], &got[1]]);
    }
    table.print();
    Ok(())
}
