//! Unmodified frameworks on our libraries, by `uverbs run`: libfabric, UCX and Open MPI. Each runs
//! between two processes with a software HCA each, without privileges and without a kernel device.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use c_stack::both::{both, free_port};
use c_stack::{CStack, Run, run};

/// Files unpacked by `cargo xtask judge`.
struct Frameworks {
    stack: CStack,
    root: PathBuf,
    libraries: PathBuf,
    tool: PathBuf,
}

fn path(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).filter(|path| !path.is_empty()).map(PathBuf::from)
}

/// Returns the frameworks and our tool; `None` with a stated skip.
fn frameworks() -> Option<Frameworks> {
    let stack = c_stack::unpacked()?;
    let (Some(root), Some(tool)) = (path("UVERBS_FRAMEWORKS_ROOT"), path("UVERBS_TOOL")) else {
        let why = std::env::var("UVERBS_NO_FRAMEWORKS").ok().filter(|why| !why.is_empty());
        let unset = "UVERBS_FRAMEWORKS_ROOT is not set (`cargo xtask judge` sets it)".to_owned();
        c_stack::skip(&why.unwrap_or(unset));
        return None;
    };
    let [theirs, _] = stack.library_folders();
    let libraries = root.join("usr/lib").join(theirs.file_name().unwrap());
    Some(Frameworks { stack, root, libraries, tool })
}

/// Directory with libpsm_infinipath under the name that libfabric links to, which the package's
/// installation would create.
fn psm(root: &Path) -> PathBuf {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    let make = || {
        let folder = c_stack::our_folder().join("psm");
        std::fs::create_dir_all(&folder).unwrap();
        let files = root.join("usr/lib/libpsm1").read_dir().expect("libpsm1");
        let library = files.flatten().map(|file| file.path()).next().expect("its library");
        let name = "libpsm_infinipath.so.1";
        std::os::unix::fs::symlink(library, folder.join(name)).unwrap();
        folder
    };
    FOLDER.get_or_init(make).clone()
}

impl Frameworks {
    fn program(&self, name: &str) -> String {
        self.root.join("usr/bin").join(name).to_str().unwrap().to_owned()
    }

    /// Sets the environment of every program: the frameworks' libraries, and Open MPI's directory,
    /// which is not where it was built for.
    fn environment(&self, command: &mut Command) {
        let own = ["", "openmpi/lib", "pmix2/lib"].map(|folder| self.libraries.join(folder));
        let folders = own.into_iter().chain([psm(&self.root)]).chain(self.stack.library_folders());
        command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap());
        command.env("OPAL_PREFIX", self.root.join("usr"));
        // Microseconds between looks for connection events, see `is_cut_short`.
        command.env("FI_OFI_RXM_CM_PROGRESS_INTERVAL", "500000");
        command.env("LC_ALL", "C").env_remove("UVERBS_DEVICE");
    }

    /// Command of a program with these arguments, by `uverbs run`, on a device that other processes
    /// reach.
    fn on(&self, name: &str, words: &[&str], environment: &[(&str, &str)]) -> Command {
        let mut command = self.on_device("softhca", name, words);
        command.envs(environment.iter().copied());
        command
    }

    fn on_device(&self, device: &str, name: &str, words: &[&str]) -> Command {
        let mut command = Command::new(&self.tool);
        command.arg("run").arg("--libraries").arg(c_stack::our_folder());
        command.args(["-d", device, "--"]).arg(self.program(name)).args(words);
        self.environment(&mut command);
        command
    }

    /// Runs two shell lines in a namespace with two addresses that are not loopback, since
    /// libfabric leaves loopback interfaces out. `None` with a stated skip if there can be no such
    /// namespace.
    fn at_addresses(&self, server: &str, client: &str) -> Option<Run> {
        let unshared = |args: &[&str]| {
            let mut command = Command::new("unshare");
            command.args(["--map-root-user", "--net"]).args(args).stdin(Stdio::null());
            command
        };
        let may = unshared(&["ip", "link", "add", "near", "type", "veth", "peer", "name", "far"])
            .stderr(Stdio::null())
            .status();
        if !may.is_ok_and(|status| status.success()) {
            c_stack::skip("no network namespaces with veth here, or no unshare, or no ip");
            return None;
        }
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/sh/two_addresses.sh");
        let mut command = unshared(&["sh", script, server, client]);
        let ours = c_stack::our_folder();
        let tool = format!("{} run --libraries {}", self.tool.display(), ours.display());
        self.environment(command.env("RUN", tool));
        Some(run(&mut command))
    }
}

#[test]
fn libfabric_lists_the_device() {
    let Some(all) = frameworks() else { return };
    // libfabric lists connected endpoints only for devices with an interface's address.
    let datagrams = run(&mut all.on("fi_info", &["-p", "verbs", "-t", "FI_EP_DGRAM"], &[])).ok();
    assert!(datagrams.stdout.contains("domain: softhca_0-dgram"), "{datagrams:?}");
    let words = format!("{} -p verbs -t FI_EP_MSG", all.program("fi_info"));
    let Some(connected) = all.at_addresses(&words, "") else { return };
    let connected = connected.ok();
    for part in ["domain: softhca_0", "type: FI_EP_MSG", "protocol: FI_PROTO_RDMA_CM_IB_RC"] {
        assert!(connected.stdout.contains(part), "{connected:?}");
    }
}

/// Sysfs of an Elastic Fabric Adapter: libfabric's provider reads the ABI's version, PCI function
/// and driver (`prov/efa/src/efa_device.c`).
fn sysfs_of_efa(name: &str) -> PathBuf {
    use std::os::unix::fs::symlink;

    let root = c_stack::our_folder().join(format!("sysfs-{name}"));
    let function = root.join("devices/0000:00:06.0");
    let [class, driver] = ["class/infiniband", "bus/pci/drivers/efa"].map(|path| root.join(path));
    let device = function.join("infiniband").join(name);
    let verbs = root.join("class/infiniband_verbs");
    for folder in [&class, &driver, &device, &verbs] {
        std::fs::create_dir_all(folder).unwrap();
    }
    std::fs::write(verbs.join("abi_version"), "6\n").unwrap();
    symlink(&driver, function.join("driver")).unwrap();
    symlink(&function, device.join("device")).unwrap();
    symlink(&device, class.join(name)).unwrap();
    root
}

#[test]
fn libfabric_lists_an_elastic_fabric_adapter() {
    let Some(all) = frameworks() else { return };
    let mut command = all.on_device("softefa0", "fi_info", &["-p", "efa"]);
    let listed = run(command.env("SYSFS_PATH", sysfs_of_efa("softefa0"))).ok();
    for part in ["domain: softefa0-rdm", "domain: softefa0-dgrm", "protocol: FI_PROTO_EFA"] {
        assert!(listed.stdout.contains(part), "{listed:?}");
    }
}

/// libfabric's `efa` provider, which has SRD and UD: messages in one packet, in several, and by
/// READ. Each end compares the received bytes (`-c`). Its shared memory is switched off.
#[test]
fn libfabric_ping_pong_on_elastic_fabric_adapters() {
    let Some(all) = frameworks() else { return };
    // C programs know a device with an address by this name.
    let sysfs = sysfs_of_efa("softhca_0");
    let id = std::process::id() as u8;
    for (is_ours, endpoint, sizes) in [
        (true, "rdm", &["64 ", "4k ", "1m "][..]),
        (true, "dgram", &["64 ", "4k "]),
        (false, "rdm", &["64 ", "4k ", "1m "]),
        (false, "dgram", &["64 ", "4k "]),
    ] {
        let port = free_port();
        let end = |last: u8, words: &[&str]| {
            let at = format!("127.59.{id}.{last}");
            let mut command = match is_ours {
                true => all.on_device(&format!("softefa@{at}"), "fi_pingpong", &[]),
                false => {
                    let mut command = all.stack.command(Path::new(&all.program("fi_pingpong")));
                    all.stack.on_efa(&mut command);
                    all.environment(command.env("UVERBS_SOFTHCA_UDP", format!("{at}:4793,shm")));
                    command
                }
            };
            if is_ours {
                command.env("SYSFS_PATH", &sysfs);
            }
            command.env("FI_EFA_ENABLE_SHM_TRANSFER", "0");
            command.args(["-p", "efa", "-e", endpoint, "-c", "-I", "20"]).args(words);
            command
        };
        let (server, client) = (end(1, &["-B", &port]), end(2, &["-P", &port, "127.0.0.1"]));
        for run in both(server, client, &port).map(Run::ok) {
            for size in sizes {
                let is_line = |line: &str| line.starts_with(size) && line.contains(" =20 ");
                let found = run.stdout.lines().any(is_line);
                assert!(found, "{is_ours} {endpoint}: {size}: {run:?}");
            }
        }
    }
}

/// True if libfabric dropped the last completions of a run that had transferred everything.
///
/// `ofi_rxm` closes a connection as soon as it sees the peer's disconnection
/// (`prov/rxm/src/rxm_conn.c`, `rxm_process_shutdown`), and destroys the queue pair before it polls
/// the CQ (`prov/verbs/src/verbs_ep.c`, `vrb_ep_close`). libmlx5 and ours drop the completions of a
/// queue pair that is destroyed. A process that loses the processor between its looks at CQ and
/// events thus loses completions that had arrived: it reports them as flushed, or waits for them.
fn is_cut_short(run: &Run) -> bool {
    let lines = |text: &str| text.lines().filter(|line| line.contains(" =20 ")).count();
    let flushed = run.stderr.contains("Work Request Flushed Error");
    let waited = run.status == Some(124);
    // Six sizes at each end.
    (flushed || waited) && lines(&run.stdout) + lines(&run.stderr) == 2 * 6
}

/// Each end compares the received bytes (`-c`).
#[test]
fn libfabric_ping_pong() {
    let Some(all) = frameworks() else { return };
    let program = all.program("fi_pingpong");
    let to_a_mebibyte = ["64 ", "4k ", "1m "];
    for (endpoint, sizes) in [
        ("-p verbs -e msg", &to_a_mebibyte[..]),
        ("-p verbs;ofi_rxm -e rdm", &to_a_mebibyte),
        ("-p verbs;ofi_rxd -e rdm", &to_a_mebibyte),
        ("-p verbs -e dgram", &["64 ", "1k "]),
    ] {
        let server = format!("{program} {endpoint} -c -I 20");
        let client = format!("{server} 10.9.0.1");
        let mut attempts = (0..3).map(|_| all.at_addresses(&server, &client));
        let is_last = |run: &Option<Run>| !run.as_ref().is_some_and(is_cut_short);
        let Some(run) = attempts.find(is_last).expect("three runs cut short") else { return };
        let run = run.ok();
        for size in sizes {
            let is_line = |line: &str| line.starts_with(size) && line.contains(" =20 ");
            assert!(run.stdout.lines().any(is_line), "{endpoint}: {size}: {run:?}");
        }
    }
}

#[test]
fn ucx_lists_the_device() {
    let Some(all) = frameworks() else { return };
    let listed = run(&mut all.on("ucx_info", &["-d"], &[])).ok();
    for transport in ["rc_verbs", "ud_verbs", "rc_mlx5", "ud_mlx5"] {
        let found = listed.stdout.split("Transport: ").skip(1).any(|text| {
            let mut words = text.split_whitespace();
            words.next() == Some(transport) && text.contains("Device: softhca_0:1")
        });
        assert!(found, "{transport}: {listed:?}");
    }
    assert!(!listed.stdout.contains("ERROR") && !listed.stderr.contains("ERROR"), "{listed:?}");
}

/// Runs a test of `ucx_perftest` between two processes.
fn perftest(all: &Frameworks, transports: &str, words: &str) {
    let port = free_port();
    let environment = [("UCX_TLS", transports), ("UCX_NET_DEVICES", "softhca_0:1")];
    let words: Vec<_> = words.split(' ').chain(["-p", &port]).collect();
    let server = all.on("ucx_perftest", &words, &environment);
    let client = all.on("ucx_perftest", &[&["127.0.0.1"], &words[..]].concat(), &environment);
    let [client, server] = both(server, client, &port).map(Run::ok);
    assert!(client.stdout.contains("Final:"), "{transports} {words:?}: {client:?}");
    for run in [&client, &server] {
        assert!(!run.stderr.contains("ERROR"), "{transports} {words:?}: {run:?}");
    }
}

/// UCX connects queue pairs by datagrams, so UD is among the transports.
#[test]
fn ucx_perftest_over_connections() {
    let Some(all) = frameworks() else { return };
    for words in [
        "-t tag_lat -n 500",
        "-t tag_bw -n 50 -s 1000000",
        "-t ucp_put_bw -n 500 -s 4096",
        "-t ucp_get -n 100 -s 65536",
        "-t ucp_fadd -n 100 -s 8",
        "-t am_lat -n 500 -x rc_verbs -d softhca_0:1",
        "-t put_bw -n 500 -s 4096 -x rc_verbs -d softhca_0:1 -D zcopy",
    ] {
        perftest(&all, "rc_verbs,ud_verbs:aux", words);
    }
}

#[test]
fn ucx_perftest_over_datagrams() {
    let Some(all) = frameworks() else { return };
    for words in [
        "-t tag_lat -n 500",
        "-t tag_bw -n 50 -s 100000",
        "-t am_lat -n 500 -x ud_verbs -d softhca_0:1",
    ] {
        perftest(&all, "ud_verbs", words);
    }
}

/// UCX writes and polls a ConnectX's queues itself. Such a program never gives way to the device,
/// which is a thread of it, so each step may take a time slice of the scheduler.
#[test]
fn ucx_perftest_drives_queues_by_itself() {
    let Some(all) = frameworks() else { return };
    for words in
        ["-t tag_lat -n 10 -w 1", "-t tag_bw -n 5 -w 1 -s 100000", "-t ucp_fadd -n 5 -w 1 -s 8"]
    {
        perftest(&all, "rc_mlx5,ud_mlx5:aux", words);
    }
    perftest(&all, "ud_mlx5", "-t tag_lat -n 10 -w 1");
}

/// Runs two ranks over UCX: NetPIPE measures and compares the received bytes (`-i`).
#[test]
fn open_mpi_over_ucx() {
    let Some(all) = frameworks() else { return };
    // Few short messages with `mlx5` transports, where UCX drives the queues and never gives way.
    for (transports, sizes, least) in [
        ("rc_verbs,ud_verbs:aux", &["-u", "10000"][..], 20),
        ("ud_verbs", &["-u", "10000"], 20),
        ("rc_mlx5,ud_mlx5:aux", &["-l", "1000", "-u", "3000", "-n", "1"], 3),
    ] {
        let tls = format!("UCX_TLS={transports},self");
        let program = all.program("NPopenmpi");
        let words = [
            &["--allow-run-as-root", "--oversubscribe", "-np", "2", "-x", &tls][..],
            &["--mca", "pml", "ucx", "--mca", "opal_common_ucx_devices", "any"],
            &["--mca", "btl", "^openib", &program, "-i", "-o", "/dev/null"],
            sizes,
        ]
        .concat();
        let run = run(&mut all.on("mpirun.openmpi", &words, &[])).ok();
        let said = run.stdout + &run.stderr;
        let passed = said.lines().filter(|line| line.ends_with("Integrity check passed")).count();
        assert!(said.contains("1: ") && passed >= least, "{transports}: {said}");
    }
}
