//! Functions on softhca's vfio-user server in another process.
//!
//! # Safety
//!
//! The door of [`Elsewhere`] passes on its results and commands.
#![allow(unsafe_code, reason = "forwards an unsafe method of the door")]

use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use uverbs::unstable::doors::{DeviceRecord, DeviceSource, UverbsDoor};
use uverbs::{Device, Errno};
use uverbs_core::memory::pages::Pages;
use uverbs_softhca::LinkLayer;
use uverbs_softhca::pci::{PciOptions, Trouble};
use uverbs_softhca::vfio_user::Server;
use uverbs_softhca::wire::Fabric;

use common::{LIMIT, this_program};

/// Folder of the server's sockets, set for its process.
const SERVER: &str = "UVERBS_TEST_VFIO_SERVER";
/// Set if the server's ports are Ethernet.
const ETHERNET: &str = "UVERBS_TEST_VFIO_ETHERNET";
/// Names of the two sockets.
pub(crate) const SOCKETS: [&str; 2] = ["a", "b"];

/// Serves two functions on one fabric, if this process is the server: a test of the name `server`
/// calls it.
pub(crate) fn serve() {
    let Some(folder) = std::env::var_os(SERVER).map(PathBuf::from) else { return };
    let is_ethernet = std::env::var_os(ETHERNET).is_some();
    let link = if is_ethernet { LinkLayer::Ethernet } else { LinkLayer::InfiniBand };
    let fabric = Fabric::default();
    std::thread::scope(|scope| {
        for (number, name) in (1..).zip(SOCKETS) {
            let hidden = folder.join("hidden").join(name);
            let listener = UnixListener::bind(&hidden).unwrap();
            let trouble = Trouble::strict();
            let options = PciOptions { number, link, trouble, ..PciOptions::default() };
            let mut server = Server::on(&fabric, &options).unwrap();
            // The tests wait for the file of a socket that listens.
            std::fs::rename(&hidden, folder.join(name)).unwrap();
            // A client that is killed while it is answered is an error of its session.
            scope.spawn(move || {
                loop {
                    let _ = server.serve_one(&listener);
                }
            });
        }
    });
}

/// Two functions, served by another process that ends with this value.
pub(crate) struct Machine {
    pub(crate) process: Child,
    folder: tempfile::TempDir,
}

impl Machine {
    /// Two functions with a port of this kind.
    pub(crate) fn of(link: LinkLayer) -> Self {
        Self::with(|server| {
            if link == LinkLayer::Ethernet {
                server.env(ETHERNET, "1");
            }
        })
    }

    fn with(change: impl FnOnce(&mut Command)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("hidden")).unwrap();
        let mut command = role("server", SERVER, folder.path());
        change(&mut command);
        let process = command.stdout(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while SOCKETS.iter().any(|name| !folder.path().join(name).exists()) {
            assert!(start.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_millis(2));
        }
        Self { process, folder }
    }

    pub(crate) fn socket(&self, at: usize) -> PathBuf {
        self.folder.path().join(SOCKETS[at])
    }

    /// A function with options behind its path.
    #[allow(dead_code, reason = "not each program of tests has addresses")]
    pub(crate) fn with_options(&self, at: usize, options: &str) -> Result<Device, uverbs::Error> {
        uverbs::device(&format!("vfio-user:{}{options}", self.socket(at).display()))
    }

    pub(crate) fn device(&self, at: usize) -> Device {
        device(&self.socket(at))
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Command that runs one test of this program, in a role.
pub(crate) fn role(test: &str, variable: &str, value: &Path) -> Command {
    let mut command = this_program();
    command.args(["--exact", test, "--nocapture"]).env(variable, value).stdin(Stdio::null());
    command
}

pub(crate) fn device(socket: &Path) -> Device {
    uverbs::device(&format!("vfio-user:{}", socket.display())).unwrap()
}

/// A function that has no memory for programs.
#[derive(Debug)]
#[allow(dead_code, reason = "not each program of tests needs it")]
pub(crate) struct Elsewhere(pub(crate) Arc<dyn DeviceSource>);

#[derive(Debug)]
struct Door(Arc<dyn UverbsDoor>);

impl DeviceSource for Elsewhere {
    fn record(&self) -> &DeviceRecord {
        self.0.record()
    }

    fn open(&self) -> Result<Arc<dyn UverbsDoor>, Errno> {
        Ok(Arc::new(Door(self.0.open()?)))
    }

    fn pkey(&self, port: u8, index: u16) -> Result<u16, Errno> {
        self.0.pkey(port, index)
    }
}

// SAFETY: passes on the results of the inner door, which keeps the contract.
unsafe impl UverbsDoor for Door {
    unsafe fn ioctl(&self, command: &mut [u64]) -> Result<(), Errno> {
        // SAFETY: by the contract of `ioctl`.
        unsafe { self.0.ioctl(command) }
    }

    fn mmap(&self, len: usize, offset: u64) -> Result<Pages, Errno> {
        self.0.mmap(len, offset)
    }

    fn progress(&self) {
        self.0.progress();
    }

    fn wants_progress(&self) -> bool {
        self.0.wants_progress()
    }
}
