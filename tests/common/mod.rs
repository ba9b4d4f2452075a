//! The world that the tests run in: the embedded software HCA, or whatever device
//! `UVERBS_TEST_DEVICE` names.
//!
//! The same tests run in every world where the device has the feature; [`skip`] states why one
//! doesn't.
#![allow(missing_debug_implementations, missing_docs, reason = "helpers of tests")]

pub mod operations;
pub mod placing;
pub mod victim;

use std::net::IpAddr;
use std::process::Command;
use std::time::Duration;

pub use support::skip;
use uverbs::softhca::SoftHca;
use uverbs::transport::{Transport, Uc};
use uverbs::{
    AccessFlags, AckTimeout, Any, CompletionQueue, Context, Device, Endpoint, Frame, Local,
    ProtectionDomain, QueuePair, QueuePairBuilder, RnrTimer, Slab, WorkCompletion,
};

/// Limit of each wait in a test.
pub const LIMIT: Duration = Duration::from_secs(20);

/// Bytes of a page of this machine: a registration's address and its place in memory must agree
/// within one.
pub fn page_size() -> usize {
    uverbs_core::memory::pages::page_size()
}

/// The device under test. Each call gives a new software HCA, or the same real device.
pub fn device() -> Device {
    match std::env::var("UVERBS_TEST_DEVICE") {
        Ok(name) => uverbs::device(&name).expect("the device that UVERBS_TEST_DEVICE names"),
        Err(_) => soft(&SoftHca::builder().build().expect("a software HCA")),
    }
}

/// The device under test, and its address; without one the test is skipped. One for a whole test: a
/// software HCA is known to its own connection manager alone.
pub fn device_with_address() -> Option<(Device, IpAddr)> {
    let device = device();
    let ip = address_of(&device)?;
    Some((device, ip))
}

/// An IPv4 address of the device, by which rdma_cm finds it; without one the test is skipped.
/// iWARP's GIDs have none: there `UVERBS_TEST_ADDRESS` names it.
pub fn address_of(device: &Device) -> Option<IpAddr> {
    if let Ok(address) = std::env::var("UVERBS_TEST_ADDRESS") {
        return Some(address.parse().expect("UVERBS_TEST_ADDRESS is an address"));
    }
    let found = device.addresses().unwrap().into_iter().find(IpAddr::is_ipv4);
    if found.is_none() {
        skip("the device has no IP address");
    }
    found
}

/// A software HCA as a device.
pub fn soft(hca: &SoftHca) -> Device {
    Device::from(hca.clone())
}

/// Returns true, and skips the test, if `UVERBS_SOFTHCA_PROFILE` names one of these cards.
pub fn card_lacks(what: &str, cards: &[&str]) -> bool {
    let card = std::env::var("UVERBS_SOFTHCA_PROFILE").unwrap_or_default();
    let lacks = cards.contains(&card.as_str());
    if lacks {
        skip(&format!("{card} lacks {what}"));
    }
    lacks
}

/// Returns true on a software HCA of this process. Otherwise skips the test, with this reason.
pub fn only_on_softhca(why: &str) -> bool {
    let real = std::env::var_os("UVERBS_TEST_DEVICE").is_some();
    if real {
        skip(why);
    }
    !real
}

/// Returns true if the device under test is a function without a kernel driver.
pub fn is_function() -> bool {
    std::env::var("UVERBS_TEST_DEVICE").is_ok_and(|name| name.starts_with("vfio"))
}

/// Returns true if the device under test is Linux's soft-RoCE (`RDMA_DRIVER_RXE` of
/// `rdma/ib_user_ioctl_verbs.h`).
pub fn is_rxe() -> bool {
    std::env::var_os("UVERBS_TEST_DEVICE").is_some() && device().record().driver_id == 14
}

/// Returns false on soft-RoCE, and skips the test or its rest, with this reason.
pub fn not_on_rxe(why: &str) -> bool {
    let rxe = is_rxe();
    if rxe {
        skip(why);
    }
    rxe
}

/// Returns true if the device under test is Linux's software iWARP (`RDMA_DRIVER_SIW`).
pub fn is_siw() -> bool {
    std::env::var_os("UVERBS_TEST_DEVICE").is_some() && device().record().driver_id == 18
}

/// Returns false on software iWARP, and skips the test, with this reason.
pub fn not_on_siw(why: &str) -> bool {
    let siw = is_siw();
    if siw {
        skip(why);
    }
    siw
}

/// Returns true if the device under test is one of Omni-Path (`RDMA_DRIVER_HFI1`).
pub fn is_rdmavt() -> bool {
    std::env::var_os("UVERBS_TEST_DEVICE").is_some() && device().record().driver_id == 15
}

/// Returns true if the device under test lacks ConnectX's extensions: soft-RoCE, Omni-Path.
pub fn is_plain() -> bool {
    is_rxe() || is_rdmavt()
}

/// Returns false on Omni-Path, and skips the test or its rest, with this reason.
pub fn not_on_rdmavt(why: &str) -> bool {
    let rdmavt = is_rdmavt();
    if rdmavt {
        skip(why);
    }
    rdmavt
}

/// Returns false on the kernel's own rdmavt, and skips the test or its rest, with this reason.
pub fn not_on_linux_rdmavt(why: &str) -> bool {
    let linux = is_rdmavt() && !device().name().starts_with("soft");
    if linux {
        skip(why);
    }
    linux
}

/// Command that runs this test program as a new process, under the runner that `UVERBS_TEST_RUNNER`
/// names if the machine cannot run it directly.
pub fn this_program() -> Command {
    let program = std::env::current_exe().unwrap();
    let runner = std::env::var("UVERBS_TEST_RUNNER").unwrap_or_default();
    let mut words = runner.split_whitespace();
    let Some(emulator) = words.next() else { return Command::new(program) };
    let mut command = Command::new(emulator);
    command.args(words).arg(program);
    command
}

/// True if the private data is `wanted`. InfiniBand and RoCE pad it with zeros, iWARP does not.
pub fn is_private_data(data: &[u8], wanted: &[u8]) -> bool {
    let rest = data.strip_prefix(wanted);
    rest.is_some_and(|rest| if is_siw() { rest.is_empty() } else { rest.first() == Some(&0) })
}

/// One side of a connection.
pub struct Side {
    pub qp: QueuePair,
    pub cq: CompletionQueue,
    pub pd: ProtectionDomain,
    pub context: Context,
    pub endpoint: Endpoint,
}

impl Side {
    /// A queue pair in INIT on a newly opened context.
    pub fn new(
        device: &Device,
        local: &Local,
        shape: impl FnOnce(QueuePairBuilder) -> QueuePairBuilder,
    ) -> Self {
        let context = device.open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let cq = context.create_cq(512).expect("create_cq");
        let mut qp = shape(context.queue_pair(&pd, &cq)).build().expect("create_qp");
        let endpoint = qp.prepare(local).expect("prepare");
        Self { qp, cq, pd, context, endpoint }
    }

    /// A slab of this side's domain.
    pub fn slab(&self, frame_len: usize, count: usize) -> Slab {
        self.pd.slab(frame_len, count).expect("slab")
    }

    /// A frame of a new slab, filled from `seed`.
    pub fn filled(&self, len: usize, seed: u8) -> Frame {
        filled(&self.pd, len, seed)
    }

    /// Posts a receive for `len` bytes.
    pub fn expect(&mut self, id: u64, len: usize) {
        let frame = self.slab(len.max(1), 1).take().expect("a frame");
        self.qp.post_recv(id, frame).expect("post_recv");
    }

    /// The next completion.
    pub fn wait(&mut self) -> WorkCompletion {
        self.cq.wait(LIMIT).expect("a completion")
    }

    /// The next completion, which must be a success.
    pub fn done(&mut self) -> WorkCompletion {
        done(&mut self.cq)
    }
}

/// A queue pair of any transport with all that is its own, in RESET.
pub struct End<T: Transport> {
    pub qp: QueuePair<Any, T>,
    pub cq: CompletionQueue,
    pub pd: ProtectionDomain,
    pub context: Context,
}

impl<T: Transport> End<T> {
    pub fn new(device: &Device) -> Self {
        let context = device.open().expect("open");
        let pd = context.alloc_pd().expect("alloc_pd");
        let cq = context.create_cq(512).expect("create_cq");
        let qp = context.queue_pair(&pd, &cq).transport::<T>().max_inline_data(100);
        let qp = qp.build().expect("create_qp");
        Self { qp, cq, pd, context }
    }

    /// A frame of a new slab, filled from `seed`.
    pub fn filled(&self, len: usize, seed: u8) -> Frame {
        filled(&self.pd, len, seed)
    }

    /// Posts a receive for `len` bytes.
    pub fn expect(&mut self, id: u64, len: usize) {
        let slab = self.pd.slab(len.max(1), 1).expect("slab");
        self.qp.post_recv(id, slab.take().expect("a frame")).expect("post_recv");
    }

    /// The next completion, which must be a success.
    pub fn done(&mut self) -> WorkCompletion {
        done(&mut self.cq)
    }
}

/// Two queue pairs of an unreliable connection, on one device.
pub fn uc_pair(local: &Local) -> (End<Uc>, End<Uc>) {
    let device = device();
    let (mut one, mut other) = (End::<Uc>::new(&device), End::<Uc>::new(&device));
    let at = [&mut one, &mut other].map(|end| end.qp.prepare(local).expect("prepare"));
    one.qp.connect(&at[1]).expect("connect");
    other.qp.connect(&at[0]).expect("connect");
    (one, other)
}

/// A frame of a new slab, filled from `seed`.
pub fn filled(pd: &ProtectionDomain, len: usize, seed: u8) -> Frame {
    let mut frame = pd.slab(len.max(1), 1).expect("slab").take().expect("a frame");
    frame.set_len(len);
    frame.copy_from_slice(&pattern(len, seed));
    frame
}

/// The next completion, which must be a success.
pub fn done(cq: &mut CompletionQueue) -> WorkCompletion {
    let completion = cq.wait(LIMIT).expect("a completion");
    completion.result.unwrap_or_else(|failure| panic!("work request {}: {failure}", completion.id));
    completion
}

/// A peer that may do everything, and is waited for.
pub fn local() -> Local {
    Local {
        access: AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC,
        min_rnr_timer: RnrTimer::DEFAULT,
        rnr_retry: 7,
        ..Local::default()
    }
}

/// Impatient: a dead peer is noticed within a second.
pub fn impatient() -> Local {
    Local {
        timeout: AckTimeout::from_code(12).expect("a legal code"),
        retry_count: 2,
        rnr_retry: 2,
        ..local()
    }
}

/// Two connected sides of default shape.
pub fn pair() -> (Side, Side) {
    pair_with(&local(), |builder| builder)
}

/// Two connected sides on one device.
pub fn pair_with(
    local: &Local,
    shape: impl Fn(QueuePairBuilder) -> QueuePairBuilder,
) -> (Side, Side) {
    let device = device();
    pair_on(&device, &device, local, shape)
}

/// Two connected sides on two devices.
pub fn pair_on(
    one: &Device,
    other: &Device,
    local: &Local,
    shape: impl Fn(QueuePairBuilder) -> QueuePairBuilder,
) -> (Side, Side) {
    let mut client = Side::new(one, local, &shape);
    let mut server = Side::new(other, local, &shape);
    client.qp.connect(&server.endpoint).expect("connect the client");
    server.qp.connect(&client.endpoint).expect("connect the server");
    (client, server)
}

/// Bytes that depend on place and seed, so that a byte in the wrong place shows.
pub fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u8) ^ (at >> 8) as u8 ^ (at >> 16) as u8 ^ seed).collect()
}
