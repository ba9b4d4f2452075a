//! DPDK's testpmd, unmodified, on our libraries: its poll-mode driver for ConnectX accesses the
//! rings of two software HCAs on one fabric.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use c_stack::CStack;

/// PCI addresses of the ports.
const PORTS: [&str; 2] = ["0000:01:00.0", "0000:02:00.0"];
/// Bursts of 32 packets that circulate, from each of 4 queues. All fit into one receive queue of
/// [`RING`] descriptors, so none may be lost.
const BURSTS: &str = "8";
const RING: &str = "--rxd=1024";
/// Limit without progress, for a busy machine and unoptimised code.
const LIMIT: Duration = Duration::from_secs(100);

/// Returns the folder of unpacked packages; `None` with a stated skip.
fn dpdk() -> Option<PathBuf> {
    let root = std::env::var_os("UVERBS_DPDK_ROOT").filter(|root| !root.is_empty());
    if root.is_none() {
        let why = std::env::var("UVERBS_NO_DPDK").ok().filter(|why| !why.is_empty());
        let unset = "UVERBS_DPDK_ROOT is not set (`cargo xtask testpmd` sets it)".to_owned();
        c_stack::skip(&why.unwrap_or(unset));
    }
    root.map(PathBuf::from)
}

/// Returns true if a user namespace can have the ports' interfaces; else states a skip.
fn has_interfaces() -> bool {
    let mut probe = in_namespace();
    probe.arg("true").stdin(Stdio::null()).stderr(Stdio::null());
    let has = probe.status().is_ok_and(|status| status.success());
    if !has {
        c_stack::skip("no network namespaces with veth here, or no unshare, or no ip");
    }
    has
}

fn in_namespace() -> Command {
    let mut command = Command::new("unshare");
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/sh/two_ports.sh");
    command.args(["--map-root-user", "--net", "sh", script]);
    command
}

/// Folder with a sysfs tree of two ConnectX, and our libraries. Removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = c_stack::our_folder().with_file_name(format!("dpdk-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        for (number, address) in PORTS.iter().enumerate() {
            let function = folder.join("pci").join(address);
            let interface = function.join(format!("net/port{number}"));
            fs::create_dir_all(&interface).unwrap();
            let write = |name: &str, text: &str| {
                fs::write(function.join(name), format!("{text}\n")).unwrap();
            };
            for (name, text) in [
                ("vendor", "0x15b3"),
                ("device", "0x101d"),
                ("subsystem_vendor", "0x15b3"),
                ("subsystem_device", "0x0000"),
                ("class", "0x020000"),
                ("numa_node", "0"),
                ("max_vfs", "0"),
                ("uevent", &format!("DRIVER=mlx5_core\nPCI_SLOT_NAME={address}")),
                ("resource", &["0x0 0x0 0x0"; 6].join("\n")),
            ] {
                write(name, text);
            }
            fs::write(interface.join("dev_port"), "0\n").unwrap();
            // DPDK reads the link's last part.
            symlink("../drivers/mlx5_core", function.join("driver")).unwrap();
            let device = folder.join(format!("class/infiniband/softhca{number}"));
            fs::create_dir_all(&device).unwrap();
            symlink(function, device.join("device")).unwrap();
        }
        let libraries = folder.join("lib");
        fs::create_dir(&libraries).unwrap();
        for name in ["libibverbs.so.1", "libmlx5.so.1"] {
            symlink(library(), libraries.join(name)).unwrap();
        }
        Self(folder)
    }
}

/// The library: an optimised one of `cargo xtask testpmd`, or the tests'.
fn library() -> PathBuf {
    std::env::var_os("UVERBS_OPTIMISED").map_or_else(c_stack::our_library, PathBuf::from)
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A running testpmd. Dropping it ends the program.
struct Testpmd {
    child: Child,
    input: ChildStdin,
    lines: Receiver<String>,
    /// All lines so far, for messages.
    seen: Vec<String>,
}

impl Testpmd {
    fn start(stack: &CStack, root: &Path, folder: &Folder, options: &str) -> Self {
        let [theirs, _] = stack.library_folders();
        let triplet = theirs.file_name().unwrap();
        let own = [root.join("usr/lib").join(triplet), root.join("lib").join(triplet)];
        let folders = [folder.0.join("lib")].into_iter().chain(own).chain(stack.library_folders());
        let libraries = std::env::join_paths(folders).unwrap();
        let mut command = in_namespace();
        // The output goes to a pipe.
        command.args(["stdbuf", "-oL"]).arg(root.join("usr/bin/dpdk-testpmd"));
        command.args(["--no-huge", "--no-shconf", "-m", "256", "--no-telemetry"]);
        // Two threads on whatever processors there are.
        command.arg("--lcores").arg(format!("0@({all}),1@({all})", all = processors()));
        command.arg("-d").arg(root.join("usr/lib").join(triplet).join("librte_mempool_ring.so.23"));
        for port in PORTS {
            command.arg("-a").arg(format!("{port},{options}"));
        }
        command.args(["--", "-i", "--rxq=2", "--txq=2", RING, "--txd=1024", "--nb-cores=1"]);
        command.args(["--total-num-mbufs=16384", "--no-lsc-interrupt", "--disable-link-check"]);
        command.args(["--forward-mode=io", "--txonly-multi-flow"]);
        command.env("LD_LIBRARY_PATH", libraries).env("UVERBS_DEVICE", "softhca0,softhca1");
        command.env("SYSFS_PATH", &folder.0).env("SYSFS_PCI_DEVICES", folder.0.join("pci"));
        command.env("RUNTIME_DIRECTORY", &folder.0).env("LC_ALL", "C");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (to, lines) = channel();
        std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.take_while(|line| to.send(line.clone()).is_ok()).for_each(drop);
        });
        Self { child, input, lines, seen: Vec::new() }
    }

    fn say(&mut self, command: &str) {
        writeln!(self.input, "{command}").unwrap();
    }

    /// Returns the next line with this part.
    fn line(&mut self, part: &str) -> String {
        let start = Instant::now();
        loop {
            let left = LIMIT.saturating_sub(start.elapsed());
            let Ok(line) = self.lines.recv_timeout(left) else {
                panic!("no line with {part:?}: {}", self.seen.join("\n"));
            };
            self.seen.push(line.clone());
            if line.contains(part) {
                return line;
            }
        }
    }

    /// Statistics of both ports: received and sent packets. No port has missed packets or errors.
    fn statistics(&mut self) -> [(u64, u64); 2] {
        self.say("show port stats all");
        [0, 1].map(|port| {
            self.line(&format!("NIC statistics for port {port}"));
            let received = self.line("RX-packets:");
            assert_eq!((number(&received, "RX-missed:"), self.errors("RX-errors:")), (0, 0));
            let sent = self.line("TX-packets:");
            assert_eq!(number(&sent, "TX-errors:"), 0);
            (number(&received, "RX-packets:"), number(&sent, "TX-packets:"))
        })
    }

    fn errors(&mut self, name: &str) -> u64 {
        number(&self.line(name), name)
    }
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Range of this machine's processors.
fn processors() -> String {
    let count = std::thread::available_parallelism().map_or(1, |count| count.get());
    format!("0-{}", count - 1)
}

/// The number after a name.
fn number(line: &str, name: &str) -> u64 {
    let rest = line.split_once(name).map_or("", |(_, rest)| rest);
    let number = rest.split_whitespace().next().and_then(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("{name} in {line:?}"))
}

/// Forwards packets in a circle until enough were received, then takes the rest from the rings.
/// Every packet that one port sent was received by the other, and RSS used all queues.
#[test]
fn packets_are_forwarded_without_loss() {
    let (Some(stack), Some(root)) = (c_stack::unpacked(), dpdk()) else { return };
    if !has_interfaces() {
        return;
    }
    let wanted: u64 =
        std::env::var("UVERBS_TESTPMD_PACKETS").map_or(100_000, |count| count.parse().unwrap());
    let folder = Folder::new();
    for options in ["dv_flow_en=1", "dv_flow_en=0,rxq_cqe_comp_en=0,rx_vec_en=0"] {
        let mut testpmd = Testpmd::start(&stack, &root, &folder, options);
        testpmd.say(&format!("start tx_first {BURSTS}"));
        let (mut last, mut moved) = (0, Instant::now());
        loop {
            let received = testpmd.statistics().iter().map(|(received, _)| received).sum();
            if received >= wanted {
                break;
            }
            if received > last {
                (last, moved) = (received, Instant::now());
            }
            assert!(moved.elapsed() < LIMIT, "{last} of {wanted} packets, and no more");
            std::thread::sleep(Duration::from_millis(100));
        }
        testpmd.say("stop");
        for port in [0, 1, 0, 1] {
            testpmd.line(&format!("Forward Stats for RX Port= {port}/Queue="));
            let line = testpmd.line("RX-packets:");
            assert!(number(&line, "RX-packets:") > wanted / 40, "{options}: {line}");
            assert_eq!(number(&line, "TX-dropped:"), 0, "{options}: {line}");
        }
        testpmd.say("set fwd rxonly");
        testpmd.say("start");
        let drained = Instant::now();
        let mut totals = testpmd.statistics();
        while totals[0].0 != totals[1].1 || totals[1].0 != totals[0].1 {
            assert!(drained.elapsed() < LIMIT, "{options}: lost packets: {totals:?}");
            std::thread::sleep(Duration::from_millis(100));
            totals = testpmd.statistics();
        }
        let [received, sent] = [totals[0].0 + totals[1].0, totals[0].1 + totals[1].1];
        assert!(received == sent && received >= wanted, "{options}: {totals:?}");
        testpmd.say("stop");
        testpmd.say("quit");
        testpmd.line("Bye...");
        assert!(testpmd.child.wait().unwrap().success(), "{options}");
        println!("{options}: {received} packets");
    }
}
