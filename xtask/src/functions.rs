//! Steps that run the test tree on functions without a kernel driver, which another process serves.

use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use crate::cards::PROGRAMS;
use crate::step::{Named, Outcome, named, run, run_tests};
use crate::{debian, targets};

/// Link layers (`uverbs softhca serve --port`).
const PORTS: [&str; 2] = ["eth", "ib"];

/// Longest start of the server.
const START: Duration = Duration::from_secs(10);

const LIMIT: Duration = Duration::from_secs(5 * 60);

/// Process of a server, and its socket.
struct Server {
    process: Child,
    socket: PathBuf,
}

impl Server {
    fn start(port: &str) -> Result<Self, String> {
        let name = format!("uverbs-function-{port}-{}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let mut serve = Command::new(debian::target().join("debug/uverbs"));
        serve.args(["softhca", "serve", "--strict", "--port", port, "--socket"]).arg(&socket);
        let process = serve.spawn().map_err(|error| format!("{serve:?}: {error}"))?;
        let server = Self { process, socket };
        let start = Instant::now();
        while !server.socket.exists() {
            if start.elapsed() > START {
                return Err(format!("{serve:?} does not listen"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.socket);
    }
}

/// Steps, one for each link layer.
pub(crate) fn checks() -> Vec<Named<'static>> {
    PORTS.map(|port| named(format!("function, {port}"), move || check(port))).into()
}

/// Runs the library's test programs, one test at a time: all have one port and its flow rules.
fn check(port: &str) -> Outcome {
    match run(targets::of_workspace(&["build", "--quiet"], "--bin", ["uverbs"]), LIMIT) {
        Outcome::Passed => {}
        other => return other,
    }
    let server = match Server::start(port) {
        Ok(server) => server,
        Err(error) => return Outcome::Failed(error),
    };
    let mut test = targets::of_workspace(&["test", "--no-fail-fast"], "--test", PROGRAMS);
    test.env("UVERBS_TEST_DEVICE", format!("vfio-user:{}", server.socket.display()));
    test.env("RUST_TEST_THREADS", "1");
    run_tests(test, LIMIT)
}
