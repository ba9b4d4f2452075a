//! Devices that make trouble: softhca's vfio-user server, on a thread of this process.

use std::os::unix::net::UnixListener;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use uverbs_mlx5_prm::cmd::cq::{cqc, create_cq_in, create_cq_out};
use uverbs_mlx5_prm::cmd::opcode::{CmdOpcode, CmdStatus};
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
    log: Arc<Mutex<Vec<String>>>,
    _dir: tempfile::TempDir,
}

impl Device {
    fn new(trouble: Trouble, clients: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("hca.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        let trouble = Trouble { strict: true, ..trouble };
        let options = PciOptions { trouble, ..PciOptions::default() };
        let log = Arc::new(Mutex::new(Vec::new()));
        let lines = Arc::clone(&log);
        let server = std::thread::spawn(move || {
            let mut server = Server::new(&options).unwrap();
            server.log_to(Box::new(move |line| lines.lock().unwrap().push(line.to_string())));
            for _ in 0..clients {
                server.serve_one(&listener).unwrap();
            }
        });
        Self { socket, server, log, _dir: dir }
    }

    fn open(&self, limits: Limits) -> Result<Function, Error> {
        Function::open(VfioUser::connect(&self.socket).unwrap(), limits)
    }

    /// Lines of the server's log that contain `text`.
    fn count(&self, text: &str) -> usize {
        self.log.lock().unwrap().iter().filter(|line| line.contains(text)).count()
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

/// `cargo xtask vm` finds refusals of strict mode by this word.
#[test]
fn the_log_marks_a_strict_refusal() {
    let device = Device::new(Trouble::strict(), 1);
    let function = device.open(Limits::default()).unwrap();
    assert_eq!(device.count(" strict: "), 0);
    for at in [4, 20] {
        let mut input = [0; 24];
        input[at] = 1;
        let refused = function.command(CmdOpcode::ALLOC_PD, 0, &input, 16);
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    }
    assert_eq!(device.count(" strict: a reserved bit of cmd_in is set"), 2);
    function.close().unwrap();
    device.end();
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

/// Firmware that reports a failure; the reset gives the next owner a healthy function.
#[test]
fn a_health_syndrome_fails_the_function() {
    let fails = Some((CmdOpcode::CREATE_CQ.0, 0x0f));
    let device = Device::new(Trouble { fails, ..Trouble::default() }, 2);
    let mut limits = Limits::default();
    limits.health = Duration::from_millis(20);
    for _ in 0..2 {
        let function = device.open(limits).unwrap();
        std::thread::sleep(5 * limits.health);
        assert_eq!(function.failure(), None);
        let cq = function.create_cq(6).unwrap();
        let start = Instant::now();
        while function.failure().is_none() {
            assert!(start.elapsed() < LIMIT);
            std::thread::sleep(limits.health);
        }
        assert!(
            function.failure().unwrap().contains("health syndrome"),
            "{:?}",
            function.failure()
        );
        assert!(matches!(function.alloc_pd(), Err(Error::Fatal { .. })));
        drop(cq);
        assert!(matches!(function.close(), Err(Error::Fatal { .. })));
    }
    device.end();
}

/// Objects that the firmware keeps end by the state of the interface, before the reset.
#[test]
fn objects_that_are_left_end_quickly() {
    let device = Device::new(Trouble::default(), 2);
    let function = device.open(Limits::default()).unwrap();
    let memory = function.buffer(8192).unwrap();
    let mut input = vec![0; create_cq_in::SIZE];
    let context = create_cq_in::CQ_CONTEXT.of_mut(&mut input);
    cqc::LOG_CQ_SIZE.set(context, 6);
    cqc::UAR_PAGE.set(context, function.uar().into());
    cqc::C_EQN_OR_APU_ELEMENT.set(context, function.eqn().into());
    cqc::DBR_ADDR.set(context, memory.iova() + 4096);
    input.extend(memory.iova().to_be_bytes());
    function.command(CmdOpcode::CREATE_CQ, 0, &input, create_cq_out::SIZE).unwrap();
    drop(memory);
    match function.close() {
        Err(Error::Refused { opcode, status, .. }) => {
            assert_eq!((opcode, status), (CmdOpcode::DESTROY_EQ, CmdStatus::RES_BUSY));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!((device.count("TEARDOWN_HCA"), device.count("interface disabled")), (1, 1));
    // An orderly end needs no other.
    device.open(Limits::default()).unwrap().close().unwrap();
    assert_eq!((device.count("TEARDOWN_HCA"), device.count("interface disabled")), (2, 1));
    device.end();
}
