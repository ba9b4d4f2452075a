//! Executes a script through our provider on a stepped software HCA in this process. Counterpart
//! with the same calls in the same order: `c/bytes.c`.
//!
//! # Safety
//!
//! Work requests name the registered area, which is unmapped after all objects are destroyed. The
//! device works only between posts.
#![allow(unsafe_code, reason = "raw posts, and memory at a fixed address")]

mod posts;

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uverbs::attr::{GlobalRoute, Path, SendOpSet};
use uverbs::memory::WindowKind;
use uverbs::raw::Sge;
use uverbs::softhca::{LinkLayer, SoftHca};
use uverbs::transport::{Dci, RawPacket, Rc, Uc, Ud, XrcIni};
use uverbs::{
    AccessFlags, AddressHandle, CompletionChannel, CompletionQueue, CompletionQueueBuilder,
    CqeSize, Device, DoorbellMode, MemoryRegion, Mlx5, Notify, QueuePair,
};

use crate::area::{Area, MEMORY};
use crate::flows::Flows;
use crate::other_memory::Other;
use crate::receivers::{Kind, Peer, Receiver};
use crate::script::Cases;
use crate::spread::Spread;
use crate::tagged;
use crate::tap::Tapped;
use crate::transports::{RDMA, Spoken};
use crate::words::{address, number};
use c_stack::capture;

use crate::{completions, last};

const CQES: u32 = 511;
/// Maximum entries of the indirect key.
const KEY_PARTS: u32 = 32;

/// Results of a run: captures with completions, and commands.
pub(crate) struct Output {
    pub(crate) captures: String,
    pub(crate) commands: String,
}

/// A queue pair, and work requests that await their post.
struct Side<T: Spoken> {
    cq: CompletionQueue<Mlx5>,
    qp: QueuePair<Mlx5, T>,
    /// XRC, DC and shared queues: objects that receive.
    receiver: Option<Receiver>,
    peer: Peer,
    sends: Vec<posts::Send>,
    recvs: Vec<(u64, Vec<Sge>)>,
}

struct Driver<T: Spoken> {
    device: SoftHca,
    sides: Vec<Side<T>>,
    channel: Option<CompletionChannel>,
    addresses: Vec<AddressHandle<Mlx5>>,
    region: MemoryRegion,
    other: Option<Other>,
    /// Keys of each window: after all binds so far, and after the binds that were rung.
    keys: Vec<[u32; 2]>,
    /// Sends with immediate data; our completions do not report it.
    immediates: HashSet<u64>,
    /// Opcodes of binds and layouts; our completions do not tell them from invalidations.
    rekeys: HashMap<u64, u32>,
    /// The queues match tags.
    tags: bool,
    /// Number of cases so far.
    cases: u32,
    /// The indirect key as libmlx5 reports it: constant.
    key: u32,
    next_id: u64,
    /// Uses the list forms of [`Data`] also for one SGE.
    lists: bool,
    captures: String,
}

/// Runs the script of a case file for our provider. `lists`: posts single SGEs as lists of one.
pub(crate) fn run(cases: &Cases, lists: bool) -> Output {
    match cases.transport.as_str() {
        "rc" => run_as::<Rc>(cases, lists),
        "uc" => run_as::<Uc>(cases, lists),
        "ud" => run_as::<Ud>(cases, lists),
        "xrc" => run_as::<XrcIni>(cases, lists),
        "dc" => run_as::<Dci>(cases, lists),
        "raw" => run_as::<RawPacket>(cases, lists),
        other => panic!("{other}"),
    }
}

fn run_as<T: Spoken>(cases: &Cases, lists: bool) -> Output {
    let area = Area::new();
    let link = if cases.infiniband { LinkLayer::InfiniBand } else { LinkLayer::Ethernet };
    let builder = SoftHca::builder().name("softhca0").number(1).link(link).stepped();
    let builder = if cases.headers { builder.wants_headers() } else { builder };
    let hca = builder.build().unwrap();
    let lines = Arc::new(Mutex::new(String::new()));
    let tapped = Tapped { device: hca.clone(), lines: Arc::clone(&lines) };
    let phase = |name: &str| *lines.lock().unwrap() += &format!("# {name}\n");

    let script = cases.script("ours");
    let mut script = script.lines();
    let sizes: Vec<u32> = script
        .find_map(|line| line.strip_prefix("sizes "))
        .unwrap()
        .split(' ')
        .map(|size| size.parse().unwrap())
        .collect();
    let [send_wr, send_sge, inline, recv_wr, recv_sge] = sizes[..] else { panic!("{sizes:?}") };
    phase("open_device");
    let device = Device::from_source(Arc::new(tapped));
    let context = device.open_as::<Mlx5>().unwrap();
    phase("query_port");
    let port = context.query_port(1).unwrap();
    phase("query_gid");
    let gid = context.query_gid(1, 0).unwrap().gid;
    let mut attrs: Vec<_> = cases.addresses.iter().map(|words| address(words, port.lid)).collect();
    for grh in attrs.iter_mut().filter_map(|attr| attr.path.grh.as_mut()) {
        grh.dgid = context.query_gid(1, grh.sgid_index.into()).unwrap().gid;
    }
    phase("alloc_pd");
    let pd = context.alloc_pd().unwrap();
    phase("reg_mr");
    let mut access = RDMA | AccessFlags::LOCAL_WRITE;
    access.set(AccessFlags::MW_BIND, cases.windows);
    // SAFETY: the area outlives the region, and there are no references into it.
    let region = unsafe { pd.register(Area::byte(0), MEMORY, access) }.unwrap();
    let mut windows = Vec::new();
    for kind in [WindowKind::Type1, WindowKind::Type2].into_iter().filter(|_| cases.windows) {
        phase("alloc_mw");
        windows.push(pd.alloc_window(kind).unwrap());
    }
    let key = cases.keys.then(|| {
        phase("alloc_key");
        context.alloc_indirect_key(&pd, KEY_PARTS).unwrap()
    });
    let other = cases.memory.then(|| Other::new(&context, &pd, &phase));
    let channel = cases.channel.then(|| {
        phase("create_comp_channel");
        context.create_comp_channel().unwrap()
    });
    phase("create_cq");
    let cqs = [0, 1].map(|_| {
        let size = if cases.wide { CqeSize::Bytes128 } else { CqeSize::Bytes64 };
        let builder = context.completion_queue(CQES).entry_size(size);
        channel.iter().fold(builder, CompletionQueueBuilder::channel).build().unwrap()
    });
    let kind = if T::XRC {
        phase("open_xrcd");
        Some(Kind::Xrc(context.xrc_domain().unwrap()))
    } else if T::DYNAMIC {
        Some(Kind::Dynamic)
    } else {
        cases.tags().or(cases.shared.then_some(Kind::Shared))
    };
    let receivers = [0, 1].map(|side| {
        let sizes = (recv_wr, recv_sge);
        Some(Receiver::new(&context, &pd, kind.as_ref()?, &cqs[side], sizes, &phase))
    });
    let mut sides = Vec::new();
    for ((cq, name), receiver) in cqs.into_iter().zip(["A", "B"]).zip(receivers) {
        phase(&format!("create_qp {name}"));
        let doorbell = if cases.plain { DoorbellMode::NonCached } else { DoorbellMode::BlueFlame };
        let builder = context.queue_pair(&pd, &cq).max_send_wr(send_wr).max_send_sge(send_sge);
        let builder = builder.max_inline_data(inline).max_recv_wr(recv_wr).max_recv_sge(recv_sge);
        let builder = builder.transport::<T>().doorbell(doorbell).overcommit();
        let builder = match cases.windows || cases.keys {
            true => builder.send_ops(SendOpSet::of(T::TYPE) | SendOpSet::REKEY),
            false => builder,
        };
        let builder = if cases.scatter { builder.scatter_to_cqe() } else { builder };
        let builder = receiver.iter().fold(builder, |builder, receiver| receiver.serve(builder));
        let builder = if cases.streams { T::with_streams(builder) } else { builder };
        let qp = builder.build().unwrap();
        let peer = Peer::default();
        sides.push(Side { cq, qp, receiver, peer, sends: Vec::new(), recvs: Vec::new() });
    }
    let numbers = [sides[1].qp.qpn(), sides[0].qp.qpn()];
    let of = |side: &Side<T>| match &side.receiver {
        Some(receiver) => receiver.peer(side.qp.qpn()),
        None => Peer { qpn: side.qp.qpn(), ..Peer::default() },
    };
    let peers = [of(&sides[1]), of(&sides[0])];
    let grh = GlobalRoute {
        dgid: gid,
        sgid_index: 0,
        hop_limit: 64,
        traffic_class: 0x60,
        flow_label: 0x54321,
    };
    let path =
        Path { dlid: port.lid, grh: Some(grh), service_level: 3, src_path_bits: 0, static_rate: 0 };
    for ((side, peer), number) in sides.iter_mut().zip(peers).zip(numbers) {
        phase("init");
        side.qp.init(&T::init()).unwrap();
        phase("ready_to_receive");
        side.qp.ready_to_receive(&T::rtr(peer.qpn, path)).unwrap();
        phase("ready_to_send");
        side.qp.ready_to_send(&T::rts()).unwrap();
        if let Some(receiver) = &mut side.receiver {
            receiver.bring_up(number, path, &phase);
        }
    }
    // Before this transition DC targets have no numbers.
    (sides[0].peer, sides[1].peer) = (of(&sides[1]), of(&sides[0]));
    if let Some(receiver) = &sides[0].receiver {
        receiver.reopen(&context, &phase);
    }
    let flows = T::PACKETS.then(|| Flows::new(&context, &mut sides[0].qp, &phase));
    let spread = T::PACKETS.then(|| Spread::new(&context, &pd, &sides[0].cq, &region, &phase));
    if !attrs.is_empty() {
        phase("create_ah");
    }
    let addresses =
        attrs.iter().map(|attr| context.create_ah(&pd, attr).unwrap()).collect::<Vec<_>>();
    phase("query_qp");
    for side in &sides {
        side.qp.query().unwrap();
    }
    phase("cases");
    let captures = String::new();
    let keys = windows.iter().map(|window| [window.rkey(); 2]).collect();
    let key_number = key.as_ref().map_or(0, |key| key.rkey() & !0xff);
    let mut driver = Driver {
        device: hca,
        sides,
        channel,
        addresses,
        region,
        other,
        keys,
        key: key_number,
        immediates: HashSet::new(),
        rekeys: HashMap::new(),
        tags: cases.tags().is_some(),
        cases: 0,
        next_id: 1,
        lists,
        captures,
    };
    let mut name = "";
    for line in script {
        match line.strip_prefix("case ") {
            Some(text) => name = text,
            None => driver.statement(line, name),
        }
    }
    let Driver { sides, addresses, region, other, mut captures, .. } = driver;
    let mut sides = sides;
    for side in &mut sides {
        if let Some(receiver) = &mut side.receiver {
            receiver.limit(&phase);
        }
    }
    if T::XRC {
        last::open_by_file(&context, &phase);
    }
    if let Some(receiver) = &mut sides[0].receiver {
        receiver.change(path, &phase);
    }
    T::other_calls(&mut sides[0].qp, path, cases, &phase);
    if cases.import {
        last::import(&device, &context, &pd, &region, &phase);
    }
    phase("fail");
    for side in &mut sides {
        side.qp.fail().unwrap();
    }
    if let Some(spread) = spread {
        spread.end(&mut sides[0].cq, &phase);
    }
    if let Some(flows) = flows {
        flows.end(&phase);
    }
    if !attrs.is_empty() {
        phase("destroy_ah");
    }
    for handle in addresses {
        drop(handle);
    }
    phase("destroy_qp");
    let mut cqs = Vec::new();
    let mut receivers = Vec::new();
    for Side { cq, qp, receiver, .. } in sides {
        drop(qp.destroy().unwrap());
        cqs.push(cq);
        receivers.extend(receiver);
    }
    for receiver in receivers {
        receiver.destroy(&phase);
    }
    if let Some(Kind::Xrc(domain)) = kind {
        phase("close_xrcd");
        domain.close().unwrap();
    }
    phase("destroy_cq");
    drop(cqs);
    for window in windows {
        phase("dealloc_mw");
        drop(window);
    }
    if let Some(key) = key {
        phase("dealloc_key");
        drop(key);
    }
    if let Some(other) = other {
        other.end(&phase);
    }
    phase("dereg_mr");
    region.deregister().unwrap();
    phase("dealloc_pd");
    drop(pd);
    phase("close_device");
    drop(context);
    let _ = writeln!(captures, "memory {:016x}", area.hash());
    let commands = std::mem::take(&mut *lines.lock().unwrap());
    Output { captures, commands }
}

impl<T: Spoken> Driver<T> {
    fn statement(&mut self, line: &str, name: &str) {
        let mut words = line.split(' ');
        let verb = words.next().unwrap();
        if verb == "end" {
            self.captures += &capture::text(name, &self.device.pending());
            self.settle();
            self.take_events();
            self.cases += 1;
            return;
        }
        if verb == "work" {
            return capture::settle(&self.device);
        }
        if verb == "header" {
            return tagged::write_header(words, self.region.rkey());
        }
        let side = match words.next() {
            Some("A") => 0,
            Some("B") => 1,
            other => panic!("{other:?} in {line}"),
        };
        if verb == "arm" {
            let solicited = words.next() == Some("solicited");
            let notify = if solicited { Notify::Solicited } else { Notify::Any };
            self.sides[side].cq.arm(notify).unwrap();
            return;
        }
        let mut count = || number(words.next().unwrap()) as u32;
        match verb {
            "at" => {
                let qpn = self.sides[side].qp.qpn();
                let (ring, next) = capture::place(&self.device, qpn).unwrap();
                let left = count();
                self.fill(side, ring.wrapping_sub(left).wrapping_sub(next.into()) & (ring - 1));
            }
            "fill" => {
                let count = count();
                self.fill(side, count);
            }
            "resize" => {
                let entries = count();
                self.sides[side].cq.resize(entries).unwrap();
            }
            "moderate" => {
                let (events, period) = (count() as u16, Duration::from_micros(count().into()));
                self.sides[side].cq.moderate(events, period).unwrap();
            }
            "recv" => {
                let list = words.map(|piece| self.sge(piece)).collect();
                self.sides[side].recvs.push((self.next_id, list));
                self.next_id += 1;
            }
            "tag" => {
                let Self { sides, region, next_id, .. } = self;
                let Some(Receiver::Tags(tagged)) = &mut sides[side].receiver else {
                    panic!("{line}")
                };
                let sge = |piece: &str| {
                    let (offset, len) = piece.split_once(':').unwrap();
                    region.sge(number(offset), number(len) as u32)
                };
                tagged.add(*next_id, words, sge);
                *next_id += 1;
            }
            "send" => {
                let send = self.send(words);
                self.sides[side].sends.push(send);
            }
            "ring" => self.ring(side),
            "poll" => self.poll(side, false),
            _ => panic!("{line}"),
        }
    }

    fn sge(&self, piece: &str) -> Sge {
        if let Some(sge) = self.other.as_ref().and_then(|other| other.sge(piece)) {
            return sge;
        }
        let (offset, len) = piece.split_once(':').unwrap();
        if let Some(offset) = offset.strip_prefix('k') {
            return Sge { addr: number(offset), len: number(len) as u32, lkey: self.key };
        }
        self.region.sge(number(offset), number(len) as u32)
    }

    /// Reads pending events, so that the next arm of each queue has a new sequence number.
    fn take_events(&mut self) {
        let Some(channel) = &self.channel else { return };
        while let Some(event) = channel.try_next().unwrap() {
            let name = if event.is_of(&self.sides[0].cq) { "A" } else { "B" };
            let _ = writeln!(self.captures, "event {name}");
        }
    }

    fn settle(&mut self) {
        capture::settle(&self.device);
        for side in [0, 1] {
            self.poll(side, self.tags || self.lists && !self.cases.is_multiple_of(2));
        }
    }

    /// Polls and prints; `extended`: in the format of an extended queue's functions.
    fn poll(&mut self, side: usize, extended: bool) {
        let Self { sides, captures, immediates, rekeys, tags, .. } = self;
        while let Some(completion) = sides[side].cq.poll(1).next() {
            let besides = completions::Besides {
                sent_immediate: !extended && immediates.contains(&completion.id()),
                rekey: *rekeys.get(&completion.id()).unwrap_or(&completions::LOCAL_INV),
                pkey: (!extended).then_some(if T::DATAGRAMS { 0xffff } else { 0 }),
            };
            completions::print(captures, side, &completion, besides);
            if *tags {
                completions::print_tags(captures, &completion);
            } else if extended {
                completions::print_others(captures, &completion, T::PACKETS);
            }
            captures.push('\n');
        }
    }
}
