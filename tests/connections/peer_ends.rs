//! A peer process that ends without a word, by SIGKILL or `exit`: the survivor is told at once, as
//! Linux's connection manager tells (`cm.c:cm_destroy_id`).
#![cfg(feature = "softhca")]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::{LIMIT, only_on_softhca};
use uverbs::cm::{Connection, Connector, EventChannel, Listener, Param};
use uverbs::softhca::{Carrier, SoftHca, Udp};
use uverbs::{CompletionQueue, Device, ProtectionDomain, QueuePair, Refused};

/// Variables that tell a child of this program its role, and the address.
const ROLE: &str = "UVERBS_TEST_ROLE";
const AT: &str = "UVERBS_TEST_AT";
/// Limit of the notice. Without one a connection would never end.
const SOON: Duration = Duration::from_secs(10);

fn device() -> Device {
    let udp = Udp::loopback().by(Carrier::SharedMemory);
    Device::from(SoftHca::builder().udp(udp).build().expect("on loopback"))
}

fn objects(device: &Device) -> (ProtectionDomain, CompletionQueue, QueuePair) {
    let context = device.open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(256).unwrap();
    let qp = context.queue_pair(&pd, &cq).build().unwrap();
    (pd, cq, qp)
}

fn listen(device: &Device) -> (Listener, SocketAddr) {
    let at = SocketAddr::new(device.addresses().unwrap()[0], 0);
    let channel = EventChannel::of(device).unwrap();
    let listener = Listener::builder(at).listen_on(channel).unwrap();
    let at = listener.local_addr().unwrap().unwrap();
    (listener, at)
}

fn accept(device: &Device, listener: &Listener) -> Connection {
    let request = listener.next(LIMIT).unwrap();
    let (_, _, qp) = objects(device);
    request.accept(qp, &Param::default()).map_err(Refused::into_error).unwrap()
}

fn connect(device: &Device, to: SocketAddr) -> Connection {
    let channel = EventChannel::of(device).unwrap();
    let route = Connector::new(to).limit(LIMIT).resolve_on(channel).unwrap();
    let (_, _, qp) = objects(device);
    route.connect(qp, &Param::default()).map_err(Refused::into_error).unwrap()
}

/// Body of the child: connects or accepts, and ends or is ended.
#[test]
fn ending_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let device = device();
    let connection = match std::env::var(AT) {
        Ok(at) => connect(&device, at.parse().unwrap()),
        Err(_) => {
            let (listener, at) = listen(&device);
            println!("said {at}");
            accept(&device, &listener)
        }
    };
    assert!(connection.is_established() || role == "exits");
    println!("said connected");
    if role == "exits" {
        std::process::exit(0);
    }
    std::thread::sleep(LIMIT);
    drop(connection);
}

/// A child of this program.
struct Other {
    child: Child,
    from: BufReader<std::process::ChildStdout>,
}

impl Other {
    fn start(role: &str, at: Option<SocketAddr>) -> Self {
        let mut command = common::this_program();
        command.args(["--exact", "peer_ends::ending_process", "--nocapture"]).env(ROLE, role);
        if let Some(at) = at {
            command.env(AT, at.to_string());
        }
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let from = BufReader::new(child.stdout.take().unwrap());
        Self { child, from }
    }

    fn hear(&mut self) -> String {
        let lines = self.from.by_ref().lines().map_while(Result::ok);
        let mut said = lines.filter_map(|line| Some(line.split_once("said ")?.1.to_owned()));
        said.next().expect("a line of the child's")
    }

    fn end(&mut self, role: &str) {
        if role == "is killed" {
            self.child.kill().unwrap();
        }
        self.child.wait().unwrap();
    }
}

#[test]
fn a_peer_that_ends_is_noticed_by_both_sides() {
    if !only_on_softhca("the processes meet by shared memory") {
        return;
    }
    let device = device();
    for role in ["is killed", "exits"] {
        // The survivor accepted.
        let (listener, at) = listen(&device);
        let mut other = Other::start(role, Some(at));
        let mut connection = accept(&device, &listener);
        assert_eq!(other.hear(), "connected");
        other.end(role);
        notices(&mut connection, role);
        // The survivor connected.
        let mut other = Other::start(role, None);
        let mut connection = connect(&device, other.hear().parse().unwrap());
        assert_eq!(other.hear(), "connected");
        other.end(role);
        notices(&mut connection, role);
    }
}

fn notices(connection: &mut Connection, role: &str) {
    let start = Instant::now();
    assert!(connection.is_closed(SOON).unwrap(), "a peer that {role} is not noticed");
    assert!(start.elapsed() < SOON);
}
