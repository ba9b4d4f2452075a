//! The control path in Rust, for a tracer (`tests/control_path`) that counts the calls between
//! phase marks. Counterpart with the same calls: `c/control.c`.
//!
//! `control-path calls N`: creates an object of each kind, then N more, and destroys all.
//! `control-path times N`: the same without marks; prints the nanoseconds of each phase.
//! `control-path memory N`: N objects of each kind, for `c/heap.c`. `UVERBS_TEST_DEVICE` names the
//! device, which may be a function of vfio-pci; default: the first.
//!
//! # Safety
//!
//! The registered area is leaked and never accessed, and no work request is posted.
#![allow(unsafe_code, reason = "a registration by address")]

use uverbs::{AccessFlags, CompletionQueue, Context, Local, MemoryRegion, ProtectionDomain};
use uverbs::{LocalPort, QueuePair};

use c_stack::phases::{phase, print_times, take_times};

const MOST: usize = 4096;
const PAGE: usize = 4096;

type Done = Result<(), Box<dyn std::error::Error>>;

struct Objects {
    context: Context,
    pd: ProtectionDomain,
    memory: *mut u8,
    regions: Vec<Option<MemoryRegion>>,
    cqs: Vec<Option<CompletionQueue>>,
    qps: Vec<Option<QueuePair>>,
}

impl Objects {
    fn reg_mr(&mut self, at: usize) -> Done {
        let rights = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        let page = self.memory.wrapping_add(at * PAGE);
        // SAFETY: the area is leaked, and never accessed.
        self.regions[at] = Some(unsafe { self.pd.register(page, PAGE, rights) }?);
        Ok(())
    }

    fn create_cq(&mut self, at: usize) -> Done {
        self.cqs[at] = Some(self.context.create_cq(255)?);
        Ok(())
    }

    fn create_qp(&mut self, at: usize) -> Done {
        let cq = self.cqs[at].as_ref().ok_or("no completion queue")?;
        let builder = self.context.queue_pair(&self.pd, cq).max_send_wr(128).max_recv_wr(128);
        let builder = builder.max_send_sge(1).max_recv_sge(1).max_inline_data(64);
        self.qps[at] = Some(builder.overcommit().build()?);
        Ok(())
    }

    fn connect(&mut self, at: usize, port: &LocalPort) -> Done {
        let qp = self.qps[at].as_mut().ok_or("no queue pair")?;
        qp.prepare_on(port)?;
        Ok(qp.connect_to_self()?)
    }

    fn destroy_qp(&mut self, at: usize) -> Done {
        drop(self.qps[at].take().ok_or("no queue pair")?.destroy()?);
        Ok(())
    }

    fn destroy_cq(&mut self, at: usize) -> Done {
        drop(self.cqs[at].take());
        Ok(())
    }

    fn dereg_mr(&mut self, at: usize) -> Done {
        Ok(self.regions[at].take().ok_or("no region")?.deregister()?)
    }

    fn all(&mut self, name: &str, call: fn(&mut Self, usize) -> Done, count: usize) -> Done {
        phase(name);
        (1..=count).try_for_each(|at| call(self, at))
    }

    fn one(&mut self, name: &str, call: fn(&mut Self, usize) -> Done) -> Done {
        phase(name);
        call(self, 0)
    }
}

fn main() -> Done {
    let args: Vec<String> = std::env::args().collect();
    let usage = "control-path calls|times|memory N";
    let [_, mode, count] = &args[..] else { return Err(usage.into()) };
    let count: usize = count.parse()?;
    if count == 0 || count >= MOST {
        return Err(usage.into());
    }
    if mode == "times" {
        take_times();
    }
    let wanted = std::env::var("UVERBS_TEST_DEVICE").ok();
    let area = Box::leak(vec![1u8; (MOST + 1) * PAGE].into_boxed_slice()).as_mut_ptr();
    let memory = area.wrapping_add(area.align_offset(PAGE));
    let none = |count: usize| 0..=count;
    let regions = none(count).map(|_| None).collect();
    let cqs = none(count).map(|_| None).collect();
    let qps = none(count).map(|_| None).collect();

    phase("list devices");
    let devices = uverbs::devices()?;
    phase("open device");
    let function = wanted.as_deref().filter(|name| name.starts_with("vfio:")).map(uverbs::device);
    let listed = || {
        let mut devices = devices.iter();
        devices.find(|device| wanted.as_ref().is_none_or(|name| device.name() == name)).cloned()
    };
    let context = function.transpose()?.or_else(listed).ok_or("no device")?.open()?;
    phase("alloc PD");
    let pd = context.alloc_pd()?;
    let mut all = Objects { context, pd, memory, regions, cqs, qps };
    all.one("reg MR", Objects::reg_mr)?;
    all.one("create CQ", Objects::create_cq)?;
    all.one("create QP", Objects::create_qp)?;
    phase("connect QP");
    let port = all.context.local_port(&Local::default())?;
    all.connect(0, &port)?;
    if mode != "memory" {
        all.all("reg MR, further", Objects::reg_mr, count)?;
    }
    all.all("create CQ, further", Objects::create_cq, count)?;
    all.all("create QP, further", Objects::create_qp, count)?;
    if mode == "memory" {
        phase("end");
        return Ok(());
    }
    phase("connect QP, further");
    (1..=count).try_for_each(|at| all.connect(at, &port))?;
    drop(port);
    all.all("destroy QP, further", Objects::destroy_qp, count)?;
    all.all("destroy CQ, further", Objects::destroy_cq, count)?;
    all.all("dereg MR, further", Objects::dereg_mr, count)?;
    all.one("destroy QP", Objects::destroy_qp)?;
    all.one("destroy CQ", Objects::destroy_cq)?;
    all.one("dereg MR", Objects::dereg_mr)?;
    let Objects { context, pd, .. } = all;
    phase("dealloc PD");
    drop(pd);
    phase("close device");
    drop(context);
    drop(devices);
    phase("end");
    print_times();
    Ok(())
}
