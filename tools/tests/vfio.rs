//! `uverbs vfio` and the functions of `uverbs devices`, on softhca in another process and on a
//! sysfs of files.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::{command, run, uverbs};

/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(60);
const ADDRESS: &str = "0000:65:00.2";

/// `uverbs softhca serve`, killed at the end.
struct Server(Child);

impl Server {
    fn start(socket: &Path, port: &str) -> Self {
        let mut server = Command::new(env!("CARGO_BIN_EXE_uverbs"));
        server.args(["softhca", "serve", "--port", port, "--socket"]).arg(socket);
        let server = Self(server.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let start = Instant::now();
        while !socket.exists() {
            assert!(start.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_probe_prints_firmware_port_and_capabilities() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("ib.sock");
    let _server = Server::start(&socket, "ib");
    let name = format!("vfio-user:{}", socket.display());
    let text = uverbs(&["vfio", "probe", &name]).ok();
    for part in [
        "firmware                99.0.0001 (UVERBS_SOFTHCA)\n",
        "pages                   80 (320 KiB)\n",
        "port 1: InfiniBand, PORT_ACTIVE\n",
        "  GID 0                 fe80::ca:5ff:fe00:1\n",
        "  P_Keys                0xffff\n",
    ] {
        assert!(text.stdout.contains(part), "{part} {text:?}");
    }
    let json = uverbs(&["vfio", "probe", "--json", &name]).ok().json();
    assert_eq!((&json["part"], &json["port"]["lid"]), (&"15b3:101d".into(), &1.into()));
    assert_eq!(json["port"]["mtu"], 4096);
    let socket = dir.path().join("eth.sock");
    let _server = Server::start(&socket, "eth");
    let name = format!("vfio-user:{}", socket.display());
    let json = uverbs(&["vfio", "probe", "--json", &name]).ok().json();
    assert_eq!(json["port"]["mac"], "02:ca:05:00:00:01");
    assert_eq!(json["port"]["link_layer"], "Ethernet");
}

/// A program that is killed at any moment leaves a function that the next one brings up.
#[test]
fn a_killed_driver_leaves_a_clean_function() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("hca.sock");
    let _server = Server::start(&socket, "ib");
    let name = format!("vfio-user:{}", socket.display());
    let probe = || uverbs(&["vfio", "probe", "--json", &name]).ok().stdout;
    let clean = probe();
    // The shortest time of a whole run: other tests may slow one down.
    let mut whole = LIMIT;
    let mut timed = || {
        let start = Instant::now();
        let done = uverbs(&["vfio", "probe", &name]).ok();
        whole = whole.min(start.elapsed());
        (done, whole)
    };
    let (mut done, mut whole) = timed();
    let mut killed = 0;
    for round in 0..24 {
        let mut child = command(&["vfio", "probe", &name]).spawn().unwrap();
        std::thread::sleep(whole * round / 24);
        let _ = child.kill();
        killed += u32::from(child.wait().unwrap().code().is_none());
        if round % 6 == 5 {
            assert_eq!(probe(), clean);
            (done, whole) = timed();
        }
    }
    assert!(killed > 6, "{killed} of 24 were killed; {done:?}");
}

#[test]
fn a_function_that_is_not_there_is_a_complaint() {
    let run = uverbs(&["vfio", "probe", "vfio-user:/nonexistent/hca.sock"]);
    assert!(run.complaint(1).starts_with("connecting to the vfio-user socket: No such file"));
    let run = uverbs(&["vfio", "probe", "mlx5_0"]);
    assert!(run.complaint(2).contains("vfio:ADDRESS or vfio-user:PATH"));
    let run = uverbs(&["vfio", "probe", "vfio:0000:ff:1f.7"]);
    assert!(run.complaint(1).contains("no PCI function of Mellanox"));
}

/// sysfs with one function.
fn sysfs(driver: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let device = root.path().join("bus/pci/devices").join(ADDRESS);
    fs::create_dir_all(device.join("net/eth7")).unwrap();
    fs::create_dir_all(root.path().join("groups/17/devices").join(ADDRESS)).unwrap();
    for (name, text) in [("vendor", "0x15b3\n"), ("device", "0x101e\n"), ("driver_override", "")] {
        fs::write(device.join(name), text).unwrap();
    }
    for name in ["mlx5_core", "vfio-pci"] {
        let driver = root.path().join("bus/pci/drivers").join(name);
        fs::create_dir_all(&driver).unwrap();
        fs::write(driver.join("unbind"), "").unwrap();
    }
    let driver = root.path().join("bus/pci/drivers").join(driver);
    symlink(&driver, device.join("driver")).unwrap();
    symlink(&device, driver.join(ADDRESS)).unwrap();
    symlink(root.path().join("groups/17"), device.join("iommu_group")).unwrap();
    root
}

fn written(root: &Path, name: &str) -> String {
    fs::read_to_string(root.join("bus/pci").join(name)).unwrap_or_default()
}

#[test]
fn a_binding_is_printed_and_made_only_if_asked() {
    let root = sysfs("mlx5_core");
    let root = root.path();
    let vfio = |args: &[&str]| run(command(args).env("SYSFS_PATH", root));
    let device = format!("devices/{ADDRESS}");
    let printed = vfio(&["vfio", "bind", ADDRESS]).ok();
    let path = root.join("bus/pci").join(&device);
    let lines: Vec<_> = printed.stdout.lines().collect();
    assert_eq!(lines[0], format!("echo '{ADDRESS}' > {}/driver/unbind", path.display()));
    assert_eq!(lines[1], format!("echo 'vfio-pci' > {}/driver_override", path.display()));
    assert!(lines[2].ends_with("/bus/pci/drivers_probe"), "{lines:?}");
    assert!(printed.stdout.contains("takes away: eth7") && printed.stdout.contains("/dev/vfio/17"));
    assert_eq!(written(root, "drivers/mlx5_core/unbind"), "");
    // No kernel acts on the writes, so the check of the driver fails.
    let made = vfio(&["vfio", "bind", "--yes", ADDRESS]);
    assert!(made.stderr.contains("still with mlx5_core"), "{made:?}");
    assert_eq!(written(root, "drivers/mlx5_core/unbind"), format!("{ADDRESS}\n"));
    assert_eq!(written(root, &format!("{device}/driver_override")), "vfio-pci\n");
    assert_eq!(written(root, "drivers_probe"), format!("{ADDRESS}\n"));
    let refused = vfio(&["vfio", "unbind", ADDRESS]);
    assert!(refused.complaint(2).contains("is not bound to vfio-pci"));
    // A physical function with virtual ones.
    fs::write(path.join("sriov_numvfs"), "2\n").unwrap();
    assert!(vfio(&["vfio", "bind", ADDRESS]).complaint(2).contains("virtual functions"));
    fs::write(path.join("vendor"), "0x8086\n").unwrap();
    assert!(vfio(&["vfio", "bind", ADDRESS]).complaint(2).contains("no PCI function of Mellanox"));
}

#[test]
fn functions_of_vfio_pci_are_listed_and_given_back() {
    let root = sysfs("vfio-pci");
    let run_with = |args: &[&str]| run(command(args).env("SYSFS_PATH", root.path()));
    let listed = run_with(&["devices"]).ok();
    let rows: Vec<Vec<_>> =
        listed.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert!(
        rows.iter().any(|row| row[..] == ["vfio:0000:65:00.2", "15b3:101e", "17", "not", "usable"]),
        "{listed:?}"
    );
    // No kernel has this group.
    let missing = "vfio:0000:65:00.2: /dev/vfio/17: opening a node of VFIO: No such file";
    assert!(listed.stderr.contains(missing), "{listed:?}");
    let json = run_with(&["devices", "--json"]).ok().json();
    assert_eq!(json["functions"][0]["pci_address"], ADDRESS);
    let refused = run_with(&["vfio", "bind", ADDRESS]);
    assert!(refused.complaint(2).contains("already"));
    let printed = run_with(&["vfio", "unbind", ADDRESS]).ok();
    assert!(printed.stdout.lines().nth(1).unwrap().starts_with("echo '' > "), "{printed:?}");
}
