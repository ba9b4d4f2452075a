//! Server of the guest's devices: a process that speaks vfio-user.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Limit until a server listens.
const LISTEN: Duration = Duration::from_secs(10);
/// Sockets in the run's folder, one for each device. QEMU and the server run in that folder, since
/// a full path may be too long for a socket's address.
const SOCKETS: [&str; 2] = ["0.sock", "1.sock"];
/// Output of the server, in the run's folder.
pub(crate) const LOG: &str = "server.log";

/// Running server, which is killed on drop.
pub(crate) struct Server {
    child: Child,
}

impl Server {
    /// Starts a server with the sockets' paths as its last words, and waits until it listens on
    /// all of them.
    ///
    /// # Errors
    ///
    /// The reason why it does not listen.
    pub(crate) fn start(mut command: Command, folder: &Path) -> Result<Self, String> {
        let named = |error: std::io::Error| format!("{command:?}: {error}");
        let log = File::create(folder.join(LOG)).map_err(named)?;
        let again = log.try_clone().map_err(named)?;
        for socket in SOCKETS {
            let _ = std::fs::remove_file(folder.join(socket));
            command.args(["--socket", socket]);
        }
        command.current_dir(folder);
        command.stdin(Stdio::null()).stdout(log).stderr(again);
        let child = command.spawn().map_err(|error| format!("{command:?}: {error}"))?;
        let mut server = Self { child };
        let started = Instant::now();
        while !SOCKETS.iter().all(|socket| folder.join(socket).exists()) {
            if let Some(why) = server.ended() {
                return Err(why);
            }
            if started.elapsed() > LISTEN {
                return Err(format!("no socket after {} s", LISTEN.as_secs()));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// Exit status, if the server ended.
    pub(crate) fn ended(&mut self) -> Option<String> {
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("ended: {status}")),
            Err(error) => Some(error.to_string()),
        }
    }

    /// QEMU's words for each device (QEMU takes a socket's address only as JSON).
    pub(crate) fn devices(&self) -> impl Iterator<Item = String> {
        SOCKETS.iter().map(|socket| {
            format!(
                "{{\"driver\":\"vfio-user-pci\",\
                 \"socket\":{{\"type\":\"unix\",\"path\":\"{socket}\"}}}}"
            )
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
