//! Unmodified C programs on our libraries and on functions without a kernel driver: two of another
//! process, `uverbs softhca serve`. No privileges.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use c_stack::both::{both, free_port, listens};
use c_stack::{CStack, run};
use support::processor_ticks;

/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(60);

/// A process that is killed on drop.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Two functions on one wire.
struct Functions {
    stack: CStack,
    tool: PathBuf,
    _server: Server,
    folder: PathBuf,
}

impl Functions {
    /// `None` with a stated skip. `port`: `ib` or `eth`.
    fn start(test: &str, port: &str) -> Option<Self> {
        let stack = c_stack::unpacked()?;
        let Some(tool) = std::env::var_os("UVERBS_TOOL").filter(|path| !path.is_empty()) else {
            c_stack::skip("UVERBS_TOOL is not set (`cargo xtask judge` sets it)");
            return None;
        };
        let tool = PathBuf::from(tool);
        let name = format!("uverbs-functions-{}-{test}-{port}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let mut server = Command::new(&tool);
        server.args(["softhca", "serve", "--port", port]);
        for name in ["a", "b"] {
            server.arg("--socket").arg(folder.join(name));
        }
        let server = Server(server.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let start = Instant::now();
        while ["a", "b"].iter().any(|name| !folder.join(name).exists()) {
            assert!(start.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_millis(5));
        }
        Some(Self { stack, tool, _server: server, folder })
    }

    fn device(&self, name: &str) -> String {
        format!("vfio-user:{}", self.folder.join(name).display())
    }

    /// Command of a distribution's program, with its arguments.
    fn program(&self, function: &str, words: &str) -> Command {
        let mut words = words.split_whitespace();
        let name = words.next().unwrap();
        let mut command = self.stack.program_on_ours(name, &self.device(function));
        command.args(words);
        command
    }

    /// [`Self::program`] below `uverbs run`.
    fn program_run(&self, function: &str, words: &str) -> Command {
        let program = self.program(function, words);
        let mut command = self.stack.program_on_ours(self.tool.to_str().unwrap(), "");
        command.env_remove("UVERBS_DEVICE");
        command.arg("run").arg("--libraries").arg(c_stack::our_folder());
        command.args(["-d", &self.device(function), "--"]).arg(program.get_program());
        command.args(program.get_args());
        command
    }

    /// Compiles a program of `c/`, and runs it on a function.
    fn checks(&self, name: &str, args: &[&str], least: usize) {
        let Some(program) = self.stack.compile(name) else { return };
        run(self.stack.on_ours(&program, &self.device("a")).args(args)).checks(least);
        std::fs::remove_file(program).unwrap();
    }

    /// Starts a program that listens at a TCP port. It is killed on drop.
    fn served(&self, function: &str, words: &str, port: &str) -> Server {
        let mut command = self.program(function, words);
        let child = Server(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        let start = Instant::now();
        while !listens(port) {
            assert!(start.elapsed() < LIMIT);
            std::thread::sleep(Duration::from_millis(5));
        }
        child
    }

    fn ping_pong(&self, words: &str) {
        let port = free_port();
        let words = format!("{words} -n 100 -p {port}");
        let [server, client] =
            [self.program("a", &words), self.program("b", &format!("{words} 127.0.0.1"))];
        for run in both(server, client, &port) {
            let text = run.ok().stdout;
            assert!(text.contains("100 iters in") || text.contains("success"), "{words}: {text}");
        }
    }
}

impl Drop for Functions {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

#[test]
fn functions_are_listed_and_have_one_owner() {
    let Some(functions) = Functions::start("listed", "ib") else { return };
    let both = format!("{},{}", functions.device("a"), functions.device("b"));
    let text = run(&mut functions.stack.program_on_ours("ibv_devices", &both)).ok().stdout;
    let rows: Vec<Vec<_>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    let listed = [["vfio_0", "00ca05fffe000001"], ["vfio_1", "00ca05fffe000002"]];
    assert_eq!(rows[2..], listed.map(Vec::from), "{text}");
    let text = run(&mut functions.program_run("b", "ibv_devinfo -v")).ok().stdout;
    for part in ["hca_id:\tvfio_0", "PORT_ACTIVE (4)", "InfiniBand", "vendor_part_id:\t\t\t4125"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let port = free_port();
    let owner = functions.served("a", &format!("ibv_rc_pingpong -p {port}"), &port);
    let second = run(&mut functions.program("a", "ibv_devinfo"));
    assert!(second.stderr.contains("Device or resource busy"), "{second:?}");
    drop(owner);
    run(&mut functions.program("a", "ibv_devinfo")).ok();
}

#[test]
fn ping_pong_between_two_functions() {
    for (link, gid) in [("ib", ""), ("eth", " -g 0")] {
        let Some(functions) = Functions::start("ping-pong", link) else { return };
        for words in [
            "ibv_rc_pingpong -s 100000",
            "ibv_rc_pingpong -e",
            "ibv_uc_pingpong",
            "ibv_ud_pingpong -s 1024",
            "ibv_ud_pingpong -s 512 -e",
            "ibv_srq_pingpong",
        ] {
            functions.ping_pong(&format!("{words}{gid}"));
        }
    }
    let Some(functions) = Functions::start("xrc", "ib") else { return };
    functions.ping_pong("ibv_xsrq_pingpong");
}

#[test]
fn perftest_between_two_functions() {
    for (link, gid) in [("ib", ""), ("eth", " -x 0")] {
        let Some(functions) = Functions::start("perftest", link) else { return };
        for words in [
            "ib_send_bw",
            "ib_send_bw -e",
            "ib_send_bw -c UD -s 1024",
            "ib_send_bw -r 64 --use-srq",
            "ib_send_lat",
            "ib_write_bw -b -q 4",
            "ib_write_lat",
            "ib_read_bw",
            "ib_atomic_bw",
        ] {
            let port = free_port();
            let words = format!("{words} -F -n 20 -u 18 -p {port}{gid}");
            let server = functions.program_run("a", &words);
            let client = functions.program_run("b", &format!("{words} 127.0.0.1"));
            let [client, server] = both(server, client, &port);
            server.ok();
            let text = client.ok().stdout;
            assert!(text.contains("#iterations"), "{link} {words}: {text}");
        }
    }
}

/// Programs that check each of their steps: data of all operations, tags, threads and signals,
/// objects that are left, imports.
#[test]
fn programs_that_check_themselves() {
    let Some(functions) = Functions::start("checks", "ib") else { return };
    functions.checks("pieces", &[], 5000);
    functions.checks("tags", &[], 200);
    let Some(functions) = Functions::start("checks", "eth") else { return };
    functions.checks("held", &[], 40);
    functions.checks("process", &["3", "0"], 150);
}

/// As on a software HCA in process.
#[test]
fn a_forked_child_is_refused() {
    let Some(functions) = Functions::start("forked", "ib") else { return };
    let stack = &functions.stack;
    let Some(program) = stack.compile("forked") else { return };
    let [embedded, ours] = ["softhca0".to_owned(), functions.device("a")]
        .map(|device| run(&mut stack.on_ours(&program, &device)).ok().stdout);
    let lines = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.contains("_dm"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(lines(&embedded), lines(&ours));
    std::fs::remove_file(program).unwrap();
}

/// A program that is killed in traffic leaves a clean function, and a peer whose sends fail.
#[test]
fn a_killed_program_leaves_a_clean_function() {
    let Some(functions) = Functions::start("killed", "ib") else { return };
    let port = free_port();
    // WRITEs are always outstanding: a ping-pong may wait for a receive, which no death ends.
    let words = format!("ib_write_bw -F -D 60 -u 14 -p {port}");
    let mut server = functions.served("a", &words, &port);
    let mut client = functions.program("b", &format!("{words} 127.0.0.1"));
    let mut client = client.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Perftest polls while its WRITEs are outstanding; before that it waits for the server by TCP.
    let start = Instant::now();
    while processor_ticks(client.id()) < 150 {
        let ended = client.try_wait().unwrap();
        if ended.is_some() || start.elapsed() > LIMIT {
            client.kill().unwrap();
            panic!("the client does not poll: {:?}", client.wait_with_output());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    server.0.kill().unwrap();
    server.0.wait().unwrap();
    let start = Instant::now();
    while client.try_wait().unwrap().is_none() {
        if start.elapsed() > 2 * LIMIT {
            client.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let client = client.wait_with_output().unwrap();
    assert_eq!(client.status.code(), Some(1), "{client:?}");
    // IBV_WC_RETRY_EXC_ERR; or IBV_WC_REM_OP_ERR of a responder whose memory is gone, before its
    // function is reset (IBTA 9.7.5.2.4).
    let told = String::from_utf8([client.stdout, client.stderr].concat()).unwrap();
    assert!(["status 12", "status 11"].iter().any(|status| told.contains(status)), "{told}");
    functions.ping_pong("ibv_rc_pingpong");
}
