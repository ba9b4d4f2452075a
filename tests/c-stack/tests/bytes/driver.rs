//! Executes a script through our provider on a stepped software HCA in this process. Counterpart
//! with the same calls in the same order: `c/bytes.c`.
//!
//! # Safety
//!
//! Work requests name the registered area. This file maps it, accesses it by raw pointers only, and
//! unmaps it after all objects are destroyed. The device works only between posts.
#![allow(unsafe_code, reason = "raw posts, and memory at a fixed address")]

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::with_exposed_provenance_mut;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use uverbs::attr::{GlobalRoute, Path, SendOpSet};
use uverbs::memory::{Block, KeyLayout, KeyParts, WindowKind};
use uverbs::packet::Checksums;
use uverbs::raw::{Data, Rekey, SendOp, Sge};
use uverbs::softhca::{LinkLayer, SoftHca};
use uverbs::transport::{Dci, RawPacket, Rc, Uc, Ud, XrcIni};
use uverbs::unstable::doors::Recorder;
use uverbs::unstable::doors::{DeviceRecord, DeviceSource, UverbsDoor};
use uverbs::xrc::RemoteSrq;
use uverbs::{
    AccessFlags, AddressHandle, AhAttr, CompletionChannel, CompletionQueue, CompletionQueueBuilder,
    CqeSize, Device, DoorbellMode, Gid, MemoryRegion, Mlx5, Notify, QueuePair, RecvBatch, Remote,
    SendFlags, Wr,
};
use uverbs_core::Errno;
use uverbs_core::memory::window::next_key;
use uverbs_core::provider::RecvOps;

use crate::flows::Flows;
use crate::obliging::Obliging;
use crate::other_memory::Other;
use crate::receivers::{Kind, Receiver};
use crate::script::Cases;
use crate::spread::Spread;
use crate::tagged;
use crate::transports::{QKEY, RDMA, Spoken, To};
use crate::{capture, completions, last, log};

const BASE: usize = 0x20_0000_0000;
const MEMORY: usize = 1 << 20;
const CQES: u32 = 511;
const CHUNK: u32 = 2;
/// Maximum entries of the indirect key.
const KEY_PARTS: u32 = 32;

/// Results of a run: captures with completions, and commands.
pub(crate) struct Output {
    pub(crate) captures: String,
    pub(crate) commands: String,
}

/// Device that logs its commands in the preloaded library's format.
#[derive(Debug)]
struct Tapped {
    device: SoftHca,
    lines: Arc<Mutex<String>>,
}

impl DeviceSource for Tapped {
    fn record(&self) -> &DeviceRecord {
        self.device.record()
    }

    fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        let recorder = Recorder::new(Arc::new(Obliging(self.device.open()?)));
        Ok(Arc::new(Tap { recorder, lines: Arc::clone(&self.lines) }))
    }

    fn import(&self, file: BorrowedFd<'_>) -> Result<Arc<dyn UverbsDoor>, Errno> {
        let recorder = Recorder::new(self.device.import(file)?);
        Ok(Arc::new(Tap { recorder, lines: Arc::clone(&self.lines) }))
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        self.device.pkey(port, index)
    }
}

#[derive(Debug)]
struct Tap {
    recorder: Recorder,
    lines: Arc<Mutex<String>>,
}

// SAFETY: passes on the results of the inner door, which keeps the contract.
unsafe impl UverbsDoor for Tap {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        // SAFETY: by the contract of `ioctl`.
        let result = unsafe { self.recorder.ioctl(command) };
        for recorded in self.recorder.take() {
            *self.lines.lock().unwrap() += &log::line(0, &recorded);
        }
        result
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<uverbs_core::memory::pages::Pages, Errno> {
        let result = self.recorder.mmap(len, offset);
        let errno = result.as_ref().err().map_or(0, |errno| errno.raw());
        *self.lines.lock().unwrap() += &format!("fd 0 mmap {len} {offset:#x} = {errno}\n");
        result
    }

    fn export(&self) -> Result<OwnedFd, Errno> {
        self.recorder.export()
    }
}

/// Registered memory at a fixed address.
pub(crate) struct Area;

impl Area {
    fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let place = with_exposed_provenance_mut(BASE);
        // SAFETY: maps memory at an address that was free.
        let at =
            unsafe { libc::mmap(place, MEMORY, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        assert_eq!(at.expose_provenance(), BASE, "{}", std::io::Error::last_os_error());
        for i in 0..MEMORY {
            let byte = (i * 7 + (i >> 8) * 13 + 1) as u8;
            // SAFETY: within the mapping just made.
            unsafe { Self::byte(i).write_volatile(byte) };
        }
        Self
    }

    pub(crate) fn byte(offset: usize) -> *mut u8 {
        with_exposed_provenance_mut(BASE + offset)
    }

    fn hash(&self) -> u64 {
        (0..MEMORY).fold(0xcbf2_9ce4_8422_2325, |hash: u64, i| {
            // SAFETY: within the mapping; the device is idle.
            let byte = unsafe { Self::byte(i).read_volatile() };
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; all objects that name it are destroyed.
        unsafe { libc::munmap(with_exposed_provenance_mut(BASE), MEMORY) };
    }
}

/// Operation of a send: a message to the peer, or a key operation of this side.
enum Op {
    Send(SendOp),
    /// Binds a window to the first SGE.
    Bind {
        window: usize,
        new: u32,
        access: AccessFlags,
    },
    Invalidate(u32),
    /// Lays out the indirect key over the SGEs; with `rounds`: blocks `stride` bytes apart.
    LayOut {
        rounds: u32,
        stride: u16,
        access: AccessFlags,
    },
}

/// A send that awaits its post.
struct Send {
    wr: Wr,
    op: Op,
    inline: bool,
    list: Vec<Sge>,
    /// UD: index of the address, and Q_Key.
    address: usize,
    qkey: u32,
    /// DC: stream of the initiator.
    stream: u16,
    /// Raw packets: checksums that the device fills in.
    checksums: Checksums,
}

struct Side<T: Spoken> {
    cq: CompletionQueue<Mlx5>,
    qp: QueuePair<Mlx5, T>,
    /// XRC, DC and shared queues: objects that receive.
    receiver: Option<Receiver>,
    peer: Peer,
    sends: Vec<Send>,
    recvs: Vec<(u64, Vec<Sge>)>,
}

/// Destination of a side's sends.
#[derive(Clone, Copy, Default)]
pub(crate) struct Peer {
    pub(crate) qpn: u32,
    pub(crate) srq: Option<RemoteSrq>,
    /// DC: number and key of the target.
    pub(crate) target: Option<(u32, u64)>,
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

/// Address of a case file. Without `index` it has no global route; the GID is filled in later.
fn address(words: &str, lid: u16) -> AhAttr {
    let mut grh = GlobalRoute {
        dgid: Gid::default(),
        sgid_index: 0,
        hop_limit: 0,
        traffic_class: 0,
        flow_label: 0,
    };
    let mut path =
        Path { dlid: lid, grh: None, service_level: 0, src_path_bits: 0, static_rate: 0 };
    let mut global = false;
    for word in words.split(' ') {
        let (name, value) = word.split_once('=').unwrap();
        let value = number(value);
        match name {
            "index" => (global, grh.sgid_index) = (true, value as u8),
            "flow" => grh.flow_label = value as u32,
            "hops" => grh.hop_limit = value as u8,
            "class" => grh.traffic_class = value as u8,
            "sl" => path.service_level = value as u8,
            "bits" => path.src_path_bits = value as u8,
            "rate" => path.static_rate = value as u8,
            _ => panic!("{word}"),
        }
    }
    path.grh = global.then_some(grh);
    AhAttr { port: 1, path }
}

pub(crate) fn number(text: &str) -> u64 {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.unwrap_or_else(|error| panic!("{text}: {error}"))
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

    fn send<'a>(&mut self, mut words: impl Iterator<Item = &'a str>) -> Send {
        let op = words.next().unwrap();
        let mut wr = Wr::new(self.next_id);
        self.next_id += 1;
        let mut remote = Remote { addr: BASE as u64, rkey: self.region.rkey() };
        let (mut imm, mut a, mut b, mut stride) = (0, 0, 0, 0);
        let (mut inline, mut list) = (false, Vec::new());
        let (mut address, mut qkey, mut window, mut stream) = (0, QKEY, 0, 0);
        let mut checksums = Checksums::AsTheyAre;
        while let Some(word) = words.next() {
            match word.split_once('=') {
                Some(("imm", value)) => imm = number(value) as u32,
                Some(("to", value)) => remote.addr = BASE as u64 + number(value),
                Some(("a", value)) => a = number(value),
                Some(("b", value)) => b = number(value),
                Some(("s", value)) => stride = number(value) as u16,
                Some(("ah", value)) => address = number(value) as usize,
                Some(("stream", value)) => stream = number(value) as u16,
                Some(("w", value)) => window = number(value) as usize - 1,
                Some(("qkey", value)) => qkey = number(value) as u32,
                _ => match word {
                    "unsignaled" => wr.flags.remove(SendFlags::SIGNALED),
                    "fence" => wr.flags.insert(SendFlags::FENCE),
                    "solicited" => wr.flags.insert(SendFlags::SOLICITED),
                    "csum" => checksums = Checksums::Filled,
                    "sge" | "inline" => {
                        inline = word == "inline";
                        list = words.by_ref().map(|piece| self.sge(piece)).collect();
                    }
                    _ => panic!("{word}"),
                },
            }
        }
        let op = match op {
            "send" | "packet" => Op::Send(SendOp::Send),
            "send_imm" => Op::Send(SendOp::SendImm(imm)),
            "send_inv" => Op::Send(SendOp::SendInvalidate(self.key_of(window))),
            "write" => Op::Send(SendOp::Write(remote)),
            "write_imm" => Op::Send(SendOp::WriteImm(remote, imm)),
            "read" => Op::Send(SendOp::Read(remote)),
            "cas" => Op::Send(SendOp::CompareSwap { remote, compare: a, swap: b }),
            "faa" => Op::Send(SendOp::FetchAdd { remote, add: a }),
            "inval" => Op::Invalidate(self.key_of(window)),
            "layout" => {
                let access = AccessFlags::from_bits_retain(a as u32);
                Op::LayOut { rounds: b as u32, stride, access }
            }
            "bind" => {
                let new = next_key(self.keys[window][0]);
                self.keys[window][0] = new;
                let access = AccessFlags::from_bits_retain(a as u32);
                Op::Bind { window, new, access }
            }
            _ => panic!("{op}"),
        };
        match op {
            Op::Send(SendOp::SendImm(_) | SendOp::WriteImm(..)) => {
                self.immediates.insert(wr.id);
            }
            Op::Bind { .. } => drop(self.rekeys.insert(wr.id, completions::BIND_MW)),
            Op::LayOut { .. } => drop(self.rekeys.insert(wr.id, completions::DRIVER1)),
            Op::Send(_) | Op::Invalidate(_) => {}
        }
        Send { wr, op, inline, list, address, qkey, stream, checksums }
    }

    /// Key of a window, or the indirect key.
    fn key_of(&self, window: usize) -> u32 {
        self.keys.get(window).map_or(self.key, |keys| keys[0])
    }

    /// Rings the collected sends and receives. A refusal is noted, so that it is compared with
    /// libmlx5's result.
    fn ring(&mut self, side: usize) {
        let Self { lists, captures, sides, addresses, keys, key, .. } = self;
        let side = &mut sides[side];
        if let Some(Receiver::Tags(tagged)) = &mut side.receiver {
            tagged.ring(captures);
        }
        if !side.recvs.is_empty() {
            let lists = side.recvs.drain(..);
            match &mut side.receiver {
                Some(receiver) => receive(receiver.batch(), lists, captures),
                None => receive(side.qp.recv_batch(), lists, captures),
            }
        }
        if !side.sends.is_empty() {
            let mut batch = side.qp.batch();
            for send in side.sends.drain(..) {
                let inline = send.list.iter().filter(|_| send.inline);
                let copied: Vec<Vec<u8>> = inline.map(bytes).collect();
                let copied: Vec<&[u8]> = copied.iter().map(Vec::as_slice).collect();
                let data = match (send.inline, &send.list[..], &copied[..]) {
                    (false, [one], _) if !*lists => Data::One(*one),
                    (false, list, _) => Data::List(list),
                    (true, _, [one]) if !*lists => Data::Inline(one),
                    (true, _, list) => Data::InlineList(list),
                };
                let Peer { qpn, srq, target } = side.peer;
                let handle = addresses.get(send.address);
                let destination = handle.map(|to| to.to(qpn, send.qkey));
                let target = target
                    .and_then(|(dctn, key)| Some(handle?.to_target(dctn, key)))
                    .map(|to| to.on_stream(send.stream));
                let to = To { destination, srq, target, checksums: send.checksums };
                let posted = match send.op {
                    // SAFETY: the area stays registered.
                    Op::Send(op) => unsafe { T::post(&mut batch, send.wr, op, data, &to) },
                    Op::Invalidate(key) => {
                        // SAFETY: no window is bound by it.
                        unsafe { T::rekey(&mut batch, send.wr, &Rekey::Invalidate { key }) }
                    }
                    Op::LayOut { rounds, stride, access } => {
                        let blocks = blocks(&send.list, stride);
                        let parts = match rounds {
                            0 => KeyParts::List(&send.list),
                            _ => KeyParts::Interleaved { rounds, blocks: &blocks },
                        };
                        let op = KeyLayout { old: *key, new: *key, access, parts };
                        // SAFETY: the area stays registered.
                        unsafe { T::lay_out(&mut batch, send.wr, &op) }
                    }
                    Op::Bind { window, new, access } => {
                        let kind = [WindowKind::Type1, WindowKind::Type2][window];
                        let (old, one) = (keys[window][1], send.list.first());
                        let Sge { addr, len, lkey } =
                            one.copied().unwrap_or(Sge { addr: 0, len: 0, lkey: 0 });
                        let len = len.into();
                        let op = Rekey::Bind { kind, old, new, lkey, addr, len, access };
                        // SAFETY: the area stays registered.
                        unsafe { T::rekey(&mut batch, send.wr, &op) }
                    }
                };
                if let Err(error) = posted {
                    let _ = writeln!(captures, "send {}: {error}", send.wr.id);
                }
            }
            batch.ring();
            for [said, rung] in keys {
                *rung = *said;
            }
        }
    }

    /// Posts empty WRITEs, a WQEBB each; for UD, empty datagrams that the peer drops because of a
    /// wrong Q_Key.
    fn fill(&mut self, side: usize, mut count: u32) {
        let remote = Remote { addr: BASE as u64, rkey: self.region.rkey() };
        if T::DYNAMIC {
            // Each takes two WQEBBs.
            count /= 2;
        }
        while count > 0 {
            for _ in 0..CHUNK.min(count) {
                let op = match T::DATAGRAMS || T::PACKETS {
                    true => Op::Send(SendOp::Send),
                    false => Op::Send(SendOp::Write(remote)),
                };
                // A raw packet needs headers.
                let list = T::PACKETS.then(|| self.region.sge(0, 60)).into_iter().collect();
                self.sides[side].sends.push(Send {
                    wr: Wr::new(0),
                    op,
                    inline: false,
                    list,
                    address: 0,
                    qkey: QKEY ^ 1,
                    stream: 0,
                    checksums: Checksums::AsTheyAre,
                });
                count -= 1;
            }
            self.ring(side);
            self.settle();
        }
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

/// Converts SGEs to blocks of an interleaved layout.
fn blocks(list: &[Sge], stride: u16) -> Vec<Block> {
    let block = |one: &Sge| Block { addr: one.addr, lkey: one.lkey, len: one.len as u16, stride };
    list.iter().map(block).collect()
}

/// Posts receives and rings. A refusal is noted.
fn receive<Q: RecvOps>(
    mut batch: RecvBatch<'_, Mlx5, Q>,
    lists: impl Iterator<Item = (u64, Vec<Sge>)>,
    captures: &mut String,
) {
    for (id, list) in lists {
        // SAFETY: the area stays registered.
        if let Err(error) = unsafe { batch.post_raw(id, &list) } {
            let _ = writeln!(captures, "receive {id}: {error}");
        }
    }
    batch.ring();
}

/// Bytes that an SGE names, for inline data.
fn bytes(sge: &Sge) -> Vec<u8> {
    let offset = sge.addr as usize - BASE;
    // SAFETY: within the area; the device is idle.
    let read = |at| unsafe { Area::byte(at).read_volatile() };
    (offset..offset + sge.len as usize).map(read).collect()
}
