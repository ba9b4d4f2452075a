//! Counterpart of `c/efa.c`, through our provider.
//!
//! # Safety
//!
//! Posts name the mapped memory of [`memory`] alone, which stays registered and mapped until the
//! queue pairs are gone; no reference points into it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;

use c_stack::tapped::Tapped;
use uverbs::raw::{Data, SendOp, Sge};
use uverbs::transport::Srd;
use uverbs::{
    AccessFlags, Completed, CompletionQueue, Destination, Device, Efa, Local, Notify, QueuePair,
    Remote, Status, Ud, Wr,
};
use uverbs_core::doors::Recorded;
use uverbs_core::provider::RecvOps;
use uverbs_softefa::SoftEfa;

use crate::script::{IMM, READ, SEND, Send, Shape, Step, WRITE};

/// As in `c/efa.c`.
const MEMORY: usize = 0x6100_0000_0000;
const LENGTH: usize = 1 << 18;
const QKEY: u32 = 0x1111_1111;
const BLOCK: usize = 64;
const RING: usize = 16384;
const NAMES: [&str; 6] = ["llq", "sq-doorbell", "rq", "rq-doorbell", "cq", "cq-doorbell"];
/// Distance of elements with a number of a request, and its place, as in `c/efa.c`. Numbers differ
/// by intent: each library numbers its slots in another order, and ours adds bits of the queue
/// pair (`providers/efa/src/wqe.rs:req_id`).
const NUMBERED: [(&str, usize, usize); 3] = [("llq", 64, 0), ("rq", 16, 8), ("cq", 32, 0)];
const LIMIT: Duration = Duration::from_secs(20);

/// Queue pair of either transport.
enum Either {
    Srd(QueuePair<Efa, Srd>),
    Ud(QueuePair<Efa, Ud>),
}

/// Does the same with a queue pair of either transport.
macro_rules! either {
    ($of:expr, $qp:ident => $what:expr) => {
        match $of {
            Either::Srd($qp) => $what,
            Either::Ud($qp) => $what,
        }
    };
}

/// A queue pair with its completion queue and the way to itself.
struct Queue {
    qp: Either,
    cq: CompletionQueue<Efa>,
    to: Destination<Efa>,
}

/// Maps the memory, and fills it as `c/efa.c` does.
fn memory() -> *mut u8 {
    let at = std::ptr::without_provenance_mut(MEMORY);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: new memory, where none was.
    let memory = unsafe { libc::mmap(at, LENGTH, rights, flags, -1, 0) }.cast::<u8>();
    assert_eq!(memory.addr(), MEMORY);
    for index in 0..LENGTH {
        let byte = (index as u8).wrapping_mul(7).wrapping_add((index / 256) as u8);
        // SAFETY: in the memory.
        unsafe { memory.wrapping_add(index).write(byte) };
    }
    memory
}

/// Blocks of the device's mappings as they were at the last dump.
#[derive(Default)]
struct Dumps(BTreeMap<&'static str, Vec<u8>>);

impl Dumps {
    /// Prints changed blocks of each mapping of the device.
    fn dump(&mut self, name: &str, to: &mut String, entry: usize) {
        let maps = fs::read_to_string("/proc/self/maps").unwrap();
        let memory = File::open("/proc/self/mem").unwrap();
        writeln!(to, "case {name}").unwrap();
        for line in maps.lines() {
            let Some((_, part)) = line.split_once("memfd:softefa-") else { continue };
            let part = part.split(' ').next().unwrap();
            let name = NAMES.into_iter().find(|name| *name == part).expect("a known part");
            let (start, rest) = line.split_once('-').unwrap();
            let [start, end] = [start, rest.split(' ').next().unwrap()]
                .map(|hex| usize::from_str_radix(hex, 16).unwrap());
            let mut now = vec![0; (end - start).min(RING)];
            memory.read_exact_at(&mut now, start as u64).unwrap();
            if let Some((_, step, at)) = NUMBERED.into_iter().find(|(part, ..)| *part == name) {
                let step = if name == "cq" { entry } else { step };
                now.chunks_mut(step).for_each(|element| element[at..at + 2].fill(0));
            }
            let before = self.0.entry(name).or_default();
            before.resize(now.len(), 0);
            for (at, (new, old)) in now.chunks(BLOCK).zip(before.chunks(BLOCK)).enumerate() {
                if new != old {
                    let hex: String = new.iter().map(|byte| format!("{byte:02x}")).collect();
                    writeln!(to, "{name} {:x} {hex}", at * BLOCK).unwrap();
                }
            }
            *before = now;
        }
    }
}

/// Prints completions.
fn poll(cq: &mut CompletionQueue<Efa>, to: &mut String) {
    cq.poll_with(usize::MAX, |done| {
        let id = done.id();
        let _ = match done.result() {
            Err(failure) => {
                assert_eq!(failure.status, Status::Flushed);
                writeln!(to, "done {id} 5 {}", failure.vendor_syndrome)
            }
            Ok(kind) if done.is_recv() => {
                let kind = 128 + u8::from(kind == Completed::RecvWriteImm);
                let (sender, imm) = (done.sender(), done.immediate().unwrap_or(0));
                let (len, qpn, lid) = (done.byte_len(), sender.qpn(), sender.lid());
                writeln!(to, "done {id} 0 {kind} {len} {qpn} {lid} {imm}")
            }
            // libefa calls a READ a SEND (`verbs.c:efa_wc_read_opcode`).
            Ok(kind) => writeln!(to, "done {id} 0 {}", u8::from(kind == Completed::Write)),
        };
    });
}

/// Runs a script, on a device with or without WRITEs. Returns the text that the C program prints,
/// and the commands.
pub(crate) fn run(steps: &[Step], writes: bool) -> (String, Vec<Recorded>) {
    let memory = memory();
    let builder = SoftEfa::builder().name("softhca0").number(0).stepped();
    let device = if writes { builder } else { builder.without_write() }.build().unwrap();
    let entry = if writes { 32 } else { 16 };
    let tapped = Arc::new(Tapped::new(device));
    let context = Device::from_source(Arc::clone(&tapped) as _).open_as::<Efa>().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ;
    if writes {
        rights |= AccessFlags::REMOTE_WRITE;
    }
    // SAFETY: the memory is mapped until the process ends.
    let region = unsafe { pd.register(memory, LENGTH, rights) }.unwrap();
    let channel = context.create_comp_channel().unwrap();
    let sges = |list: &[(u32, u32)]| -> Vec<Sge> {
        let sge = |&(offset, len): &(u32, u32)| Sge {
            addr: (MEMORY + offset as usize) as u64,
            len,
            lkey: region.lkey(),
        };
        list.iter().map(sge).collect()
    };
    let remote =
        |offset: u32| Remote { addr: (MEMORY + offset as usize) as u64, rkey: region.rkey() };
    let make = |shape: Shape| {
        let Shape { is_srd, sends, recvs, sges, inline } = shape;
        let cq = context.completion_queue(sends + recvs).channel(&channel).build().unwrap();
        let local = Local { qkey: QKEY, psn: Some(0), rnr_retry: 6, ..Local::default() };
        let builder = context.queue_pair(&pd, &cq).max_send_wr(sends).max_recv_wr(recvs);
        let builder = builder.max_send_sge(sges).max_recv_sge(sges).max_inline_data(inline);
        let (qp, to) = if is_srd {
            let mut qp = builder.srd().build().unwrap();
            let at = qp.bring_up(&local).unwrap();
            let to = qp.destination(&at).unwrap();
            (Either::Srd(qp), to)
        } else {
            let mut qp = builder.ud().build().unwrap();
            let at = qp.bring_up(&local).unwrap();
            let to = qp.destination(&at).unwrap();
            (Either::Ud(qp), to)
        };
        Queue { qp, cq, to }
    };

    let (mut text, mut dumps) = (String::new(), Dumps::default());
    let (mut queue, mut recvs, mut sends) = (None::<Queue>, Vec::new(), Vec::<Send>::new());
    for step in steps {
        match step {
            Step::Queue(shape) => {
                dumps = Dumps::default();
                queue = Some(make(*shape));
                continue;
            }
            Step::Recv(id, list) => recvs.push((*id, sges(list))),
            Step::Send(send) => sends.push(send.clone()),
            Step::Dump(name) => dumps.dump(name, &mut text, entry),
            Step::Settle => while tapped.device().step() {},
            Step::Event => {
                channel.next_within(LIMIT).unwrap();
            }
            Step::Gone => {
                let Queue { qp, cq, to } = queue.take().unwrap();
                either!(qp, qp => drop(qp.destroy().unwrap()));
                drop((to, cq));
            }
            Step::Give | Step::Post(_) | Step::Poll | Step::Arm | Step::Fail => {}
        }
        let Some(Queue { qp, cq, to }) = &mut queue else { continue };
        match step {
            Step::Give => {
                // SAFETY: the queue is used as its contract says.
                let queue = unsafe { either!(qp, qp => qp.recv_queue().provider_mut()) };
                let mut at = queue.begin();
                for (id, list) in recvs.drain(..) {
                    // SAFETY: the memory stays registered.
                    unsafe { queue.post(&mut at, id, &list) }.unwrap();
                }
                // SAFETY: the queue pair lives.
                unsafe { queue.ring(at) };
            }
            Step::Post(how) => either!(qp, qp => {
                let mut batch = qp.batch();
                for send in sends.drain(..) {
                    let op = op(&send, remote(send.remote));
                    let list = sges(&send.list);
                    let bytes = if send.is_inline { copies(&send.list) } else { Vec::new() };
                    let pieces: Vec<&[u8]> = bytes.iter().map(|bytes| &bytes[..]).collect();
                    let data = match send.is_inline {
                        true => Data::InlineList(&pieces),
                        false => Data::List(&list),
                    };
                    // SAFETY: the memory stays registered.
                    unsafe { batch.raw().post_to(Wr::new(send.id), op, data, to) }.unwrap();
                }
                match *how {
                    "abort" => drop(batch),
                    _ => batch.ring(),
                }
            }),
            Step::Poll => {
                poll(cq, &mut text);
            }
            Step::Arm => cq.arm(Notify::Any).unwrap(),
            Step::Fail => either!(qp, qp => qp.fail().unwrap()),
            _ => {}
        }
    }
    drop((channel, region, pd));
    drop(context);
    // SAFETY: mapped by `memory`; the region is gone.
    unsafe { libc::munmap(memory.cast(), LENGTH) };
    (text, tapped.take())
}

/// Bytes of pieces of the memory.
fn copies(list: &[(u32, u32)]) -> Vec<Vec<u8>> {
    let piece = |&(offset, len): &(u32, u32)| {
        let from = std::ptr::with_exposed_provenance::<u8>(MEMORY + offset as usize);
        // SAFETY: in the memory, which the device does not write meanwhile: it is stepped.
        (0..len as usize).map(|at| unsafe { from.wrapping_add(at).read() }).collect()
    };
    list.iter().map(piece).collect()
}

fn op(send: &Send, remote: Remote) -> SendOp {
    match send.op {
        SEND => SendOp::Send,
        READ => SendOp::Read(remote),
        WRITE => SendOp::Write(remote),
        op if op == SEND | IMM => SendOp::SendImm(send.imm),
        _ => SendOp::WriteImm(remote, send.imm),
    }
}
