//! Objects and data on softhca's vfio-user server in another process, without privileges.

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use uverbs_mlx5_prm::cqe::{CqeOpcode, OpOwn, mlx5_cqe64};
use uverbs_mlx5_vfio::transport::vfio_user::VfioUser;
use uverbs_mlx5_vfio::{
    CompletionQueue, Function, Limits, LinkState, PAGE, Peer, ProtectionDomain, Region, Sge,
};
use uverbs_softhca::pci::{PciOptions, Trouble};
use uverbs_softhca::vfio_user::Server;

/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(60);
/// Variable with the server's socket, set for the server's process.
const SOCKET: &str = "UVERBS_TEST_VFIO_SOCKET";

/// The server's process: this program with this test.
#[test]
#[ignore = "the server of the other tests, which start it in a process"]
fn serve() {
    let socket = PathBuf::from(std::env::var_os(SOCKET).unwrap());
    let hidden = socket.with_extension("hidden");
    let listener = UnixListener::bind(&hidden).unwrap();
    // The tests wait for the file of a socket that listens.
    std::fs::rename(&hidden, &socket).unwrap();
    let trouble = Trouble::strict();
    let mut server = Server::new(&PciOptions { trouble, ..PciOptions::default() }).unwrap();
    while server.serve_one(&listener).is_ok() {}
}

/// A server in another process, killed at the end.
struct Device {
    process: Child,
    socket: PathBuf,
    _dir: tempfile::TempDir,
}

impl Device {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("hca.sock");
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--ignored", "--exact", "serve"]).env(SOCKET, &socket);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while !socket.exists() {
            assert!(start.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_millis(2));
        }
        Self { process, socket, _dir: dir }
    }

    fn open(&self) -> Function {
        open(&self.socket)
    }
}

fn open(socket: &Path) -> Function {
    Function::open(VfioUser::connect(socket).unwrap(), Limits::default()).unwrap()
}

impl Drop for Device {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn lid(function: &Function) -> u16 {
    match function.port().unwrap().link {
        LinkState::InfiniBand { lid, .. } => lid,
        other => panic!("{other:?}"),
    }
}

/// Waits for `count` completions. Returns them in order.
fn completions(cq: &mut CompletionQueue<'_>, count: usize) -> Vec<mlx5_cqe64> {
    let (start, mut done) = (Instant::now(), Vec::new());
    while done.len() < count {
        assert!(start.elapsed() < LIMIT, "{done:?}");
        match cq.poll().unwrap() {
            Some(cqe) => done.push(cqe),
            None => std::thread::sleep(Duration::from_micros(50)),
        }
    }
    done
}

fn kinds(cqes: &[mlx5_cqe64]) -> Vec<u8> {
    let mut kinds: Vec<_> = cqes.iter().map(|cqe| OpOwn(cqe.op_own).opcode()).collect();
    kinds.sort_unstable();
    kinds
}

fn region<'d>(function: &Function, pd: &'d ProtectionDomain<'d>, len: usize) -> Region<'d> {
    pd.register(function.buffer(len).unwrap()).unwrap()
}

fn all(region: &Region<'_>, len: u32) -> Sge {
    Sge::new(region.key(), region.buffer().iova(), len)
}

#[test]
fn messages_arrive_between_two_queue_pairs() {
    let device = Device::start();
    let function = device.open();
    let pd = function.alloc_pd().unwrap();
    let mut cq = function.create_cq(4).unwrap();
    let mut one = pd.create_qp(&cq, 3).unwrap();
    let mut two = pd.create_qp(&cq, 3).unwrap();
    let lid = lid(&function);
    one.connect(Peer::new(two.number(), lid)).unwrap();
    two.connect(Peer::new(one.number(), lid)).unwrap();
    let (from, to) = (region(&function, &pd, 3 * PAGE), region(&function, &pd, 3 * PAGE));
    // More than the rings hold, over page boundaries.
    for round in 0..40u32 {
        let data: Vec<u8> = (0..10_000).map(|at| (at + round) as u8).collect();
        from.buffer().write(0, &data).unwrap();
        two.post_recv(all(&to, 12_000)).unwrap();
        one.post_send(all(&from, 10_000)).unwrap();
        let cqes = completions(&mut cq, 2);
        assert_eq!(kinds(&cqes), [CqeOpcode::REQ.0, CqeOpcode::RESP_SEND.0]);
        let received = cqes.iter().find(|cqe| OpOwn(cqe.op_own).opcode() == CqeOpcode::RESP_SEND.0);
        assert_eq!(received.unwrap().byte_cnt.get(), 10_000);
        let mut back = vec![0; 10_000];
        to.buffer().read(0, &mut back).unwrap();
        assert_eq!(back, data);
        // A WRITE back, which the receiver does not see.
        two.post_write(all(&to, 100), from.buffer().iova() + 5000, from.key()).unwrap();
        assert_eq!(kinds(&completions(&mut cq, 1)), [CqeOpcode::REQ.0]);
        from.buffer().read(5000, &mut back[..100]).unwrap();
        assert_eq!(back[..100], data[..100]);
    }
    drop((one, two, from, to));
    drop((cq, pd));
    assert_eq!((function.failure(), function.pages()), (None, 80));
    function.close().unwrap();
}

/// A key of a region that is gone, and of another domain, are refused by the device.
#[test]
fn keys_hold_within_their_region_and_domain() {
    let device = Device::start();
    let function = device.open();
    let (pd, other) = (function.alloc_pd().unwrap(), function.alloc_pd().unwrap());
    let mut cq = function.create_cq(6).unwrap();
    let lid = lid(&function);
    let (memory, gone) = (region(&function, &pd, PAGE), region(&function, &pd, PAGE));
    let foreign = region(&function, &other, PAGE);
    let old = all(&gone, 8);
    drop(gone);
    for wrong in [
        old,
        all(&foreign, 8),
        Sge::new(memory.key(), memory.buffer().iova() + PAGE as u64 - 4, 8),
        Sge::new(memory.key() ^ 1, memory.buffer().iova(), 8),
    ] {
        let mut one = pd.create_qp(&cq, 2).unwrap();
        one.connect(Peer::new(one.number(), lid)).unwrap();
        one.post_recv(all(&memory, 64)).unwrap();
        one.post_send(wrong).unwrap();
        let cqes = completions(&mut cq, 2);
        assert_eq!(kinds(&cqes), [CqeOpcode::REQ_ERR.0, CqeOpcode::RESP_ERR.0]);
    }
    drop((memory, foreign, cq));
    drop((pd, other));
    function.close().unwrap();
}

/// A hundred lives of a function, with objects: the server has the same number of everything.
#[test]
fn functions_come_and_go() {
    let device = Device::start();
    let mut numbers = Vec::new();
    for _ in 0..100 {
        let function = device.open();
        let pd = function.alloc_pd().unwrap();
        let cq = function.create_cq(2).unwrap();
        let qp = pd.create_qp(&cq, 2).unwrap();
        let memory = region(&function, &pd, PAGE);
        numbers.push((pd.number(), cq.number(), qp.number(), memory.key() >> 8));
        // Objects may be left to the reset.
        drop(memory);
    }
    assert!(numbers.iter().all(|of| *of == numbers[0]), "{numbers:?}");
}

/// The server's end is a failure of the function, and no wait hangs.
#[test]
fn a_server_that_is_killed_is_a_failure() {
    let mut device = Device::start();
    let function = device.open();
    let pd = function.alloc_pd().unwrap();
    let mut cq = function.create_cq(2).unwrap();
    device.process.kill().unwrap();
    let start = Instant::now();
    while cq.poll().is_ok() {
        assert!(start.elapsed() < LIMIT, "the driver's thread has seen nothing");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(function.alloc_pd().is_err() && function.failure().is_some());
    drop((cq, pd));
    assert!(function.close().is_err());
}
