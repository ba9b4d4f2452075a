//! Devices that make trouble: softhca's vfio-user server, on a thread of this process.

use std::os::unix::net::UnixListener;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;
use uverbs_mlx5_vfio::transport::vfio_user::VfioUser;
use uverbs_mlx5_vfio::{Error, Function, Limits};
use uverbs_softhca::pci::{PciOptions, Trouble};
use uverbs_softhca::vfio_user::Server;

/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(60);

/// A server of `clients` clients.
struct Device {
    socket: std::path::PathBuf,
    server: JoinHandle<()>,
    _dir: tempfile::TempDir,
}

impl Device {
    fn new(trouble: Trouble, clients: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("hca.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let trouble = Trouble { strict: true, ..trouble };
        let options = PciOptions { trouble, ..PciOptions::default() };
        let server = std::thread::spawn(move || {
            let mut server = Server::new(&options).unwrap();
            for _ in 0..clients {
                server.serve_one(&listener).unwrap();
            }
        });
        Self { socket, server, _dir: dir }
    }

    fn open(&self, limits: Limits) -> Result<Function, Error> {
        Function::open(VfioUser::connect(&self.socket).unwrap(), limits)
    }

    /// The server's function was reset for each client, and none of them broke the protocol.
    fn end(self) {
        self.server.join().unwrap();
    }
}

/// Pages are asked for and offered back between any two commands.
#[test]
fn pages_come_and_go_at_any_time() {
    const SEEDS: u64 = 8;
    for seed in 1..=SEEDS {
        let device = Device::new(Trouble { pages: Some(seed), ..Trouble::default() }, 1);
        let function = device.open(Limits::default()).unwrap();
        let start = Instant::now();
        let mut counts = std::collections::BTreeSet::new();
        while counts.len() < 4 {
            assert!(start.elapsed() < LIMIT, "{seed}: {counts:?} {:?}", function.failure());
            let pd = function.alloc_pd().unwrap();
            let memory = function.buffer(8192).unwrap();
            let region = pd.register(memory).unwrap();
            drop(function.create_cq(6).unwrap());
            drop(region);
            drop(pd);
            counts.insert(function.pages());
        }
        assert_eq!(function.failure(), None, "{seed}");
        function.close().unwrap();
        device.end();
    }
}

/// Firmware that starts late, and firmware that never starts.
#[test]
fn a_function_waits_for_its_firmware() {
    let starting = Duration::from_millis(300);
    let device = Device::new(Trouble { starting, ..Trouble::default() }, 2);
    let start = Instant::now();
    device.open(Limits::default()).unwrap().close().unwrap();
    assert!(start.elapsed() >= starting);
    let mut limits = Limits::default();
    limits.initializing = starting / 10;
    match device.open(limits) {
        Err(Error::TimedOut { what, .. }) => assert!(what.contains("firmware"), "{what}"),
        other => panic!("{other:?}"),
    }
    device.end();
}

/// A command without an answer fails the function alone; the next owner gets a clean one.
#[test]
fn a_stuck_command_fails_the_function() {
    let trouble = Trouble { stuck: Some(CmdOpcode::CREATE_CQ.0), ..Trouble::default() };
    let device = Device::new(trouble, 2);
    let mut limits = Limits::default();
    limits.command = Duration::from_secs(2);
    for _ in 0..2 {
        let function = device.open(limits).unwrap();
        let pd = function.alloc_pd().unwrap();
        match function.create_cq(6) {
            Err(Error::TimedOut { what, .. }) => assert!(what.contains("CREATE_CQ"), "{what}"),
            other => panic!("{other:?}"),
        }
        assert!(function.failure().is_some());
        assert!(matches!(function.alloc_pd(), Err(Error::Fatal { .. })));
        drop(pd);
        assert!(matches!(function.close(), Err(Error::Fatal { .. })));
    }
    device.end();
}
