//! Payload that one process copies out of another's memory: the kernel forbids it, or the other
//! process is killed meanwhile.
#![cfg(feature = "softhca")]
#![allow(
    unsafe_code,
    reason = "prctl(2) says who may read a process's memory; the program's own is registered"
)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::Ipv4Addr;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use common::{LIMIT, Side, impatient, only_on_softhca, pattern, skip, soft};
use uverbs::softhca::wire::SharedStats;
use uverbs::softhca::{Carrier, SoftHca, Udp};
use uverbs::{AccessFlags, AckTimeout, Local, MemoryRegion, Remote, Status};

/// Variable that tells a child of this program its role.
const ROLE: &str = "UVERBS_TEST_ROLE";
/// Bytes that are moved at once, and the memory of each side.
const LEN: usize = 1 << 20;
/// Capability to read any process's memory (capability.h, `CAP_SYS_PTRACE`).
const SYS_PTRACE: libc::c_ulong = 19;

fn skipped() -> bool {
    !only_on_softhca("the way through shared memory is the software HCA's own")
}

/// A software HCA on shared memory, and one side of a connection.
struct Place {
    hca: SoftHca,
    side: Side,
    /// The program's own, which no other process can map; the frames are the library's.
    memory: MemoryRegion,
}

impl Place {
    fn on(hca: &SoftHca, local: &Local) -> Self {
        let side = Side::new(&soft(hca), local, |builder| builder);
        let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE;
        let access = access | AccessFlags::LOCAL_WRITE;
        let memory = Box::leak(vec![0_u8; LEN].into_boxed_slice());
        // SAFETY: there for good, and reached by devices alone from here on.
        let memory = unsafe { side.pd.register(memory.as_mut_ptr(), LEN, access) }.unwrap();
        Self { hca: hca.clone(), side, memory }
    }

    /// Address, key and endpoint that the other side needs.
    fn card(&self) -> String {
        format!("{} {} {}", self.memory.addr(), self.memory.rkey(), self.side.endpoint)
    }

    /// Connects to the side of that card.
    fn connect(&mut self, card: &str) -> Remote {
        let mut words = card.splitn(3, ' ');
        let mut word = || words.next().expect("three words");
        let remote = Remote { addr: word().parse().unwrap(), rkey: word().parse().unwrap() };
        self.side.qp.connect(&word().parse().unwrap()).unwrap();
        remote
    }

    /// Writes a MiB there, and reads it back.
    fn exchange(&mut self, remote: Remote, seed: u8) {
        let frame = self.side.filled(LEN, seed);
        let mut batch = self.side.qp.batch();
        batch.write(1, frame, remote).unwrap();
        batch.ring();
        let mut frame = self.side.done().frame.unwrap();
        frame.fill(0);
        let mut batch = self.side.qp.batch();
        batch.read(2, frame, remote).unwrap();
        batch.ring();
        let frame = self.side.done().frame.unwrap();
        assert!(frame[..] == pattern(LEN, seed)[..], "what was written isn't there");
    }

    fn stats(&self) -> SharedStats {
        self.hca.shared_stats().unwrap()
    }
}

fn on_shared_memory() -> SoftHca {
    on(Udp::loopback())
}

fn on(udp: Udp) -> SoftHca {
    let udp = udp.by(Carrier::SharedMemory);
    SoftHca::builder().udp(udp).build().expect("on loopback")
}

/// From here on no other process without [`SYS_PTRACE`] may read this one (prctl(2)).
fn hide() {
    // SAFETY: changes a flag of this process's.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) }, 0);
}

fn say(line: impl std::fmt::Display) {
    println!("said {line}");
}

/// Body of the child: carries out the lines of its standard input.
#[test]
fn other_process() {
    let Ok(role) = std::env::var(ROLE) else { return };
    if role == "hidden" {
        hide();
    }
    // An address that no later process has: a survivor may connect to it again.
    let [_, high, mid, low] = std::process::id().to_be_bytes();
    let hca = on(Udp::at(Ipv4Addr::new(127, 64 + high, mid, low).into()));
    let mut place = Place::on(&hca, &impatient());
    say(place.card());
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    let remote = place.connect(&lines.next().expect("a card"));
    say("connected");
    for (line, seed) in lines.zip(1..) {
        match line.as_str() {
            "exchange" => {
                place.exchange(remote, seed);
                say("exchanged");
            }
            "hide" => {
                hide();
                say("hidden");
            }
            "stats" => {
                let SharedStats { lent, taken, unread, .. } = place.stats();
                say(format_args!("{lent} {taken} {unread}"));
            }
            "write" => write_for_ever(&mut place, remote),
            line => panic!("{line:?}"),
        }
    }
}

/// Until this process is killed, or the other one is gone.
fn write_for_ever(place: &mut Place, remote: Remote) {
    let mut frames = vec![place.side.filled(LEN, 1), place.side.filled(LEN, 2)];
    loop {
        while let Some(frame) = frames.pop() {
            let mut batch = place.side.qp.batch();
            batch.write(1, frame, remote).unwrap();
            batch.ring();
        }
        let done = place.side.wait();
        if done.result.is_err() {
            return;
        }
        frames.extend(done.frame);
    }
}

/// A child of this program.
struct Other {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    card: String,
}

impl Other {
    fn start(role: &str) -> Self {
        let mut child = common::this_program()
            .args(["--exact", "other_process", "--nocapture"])
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut other = Self { child, to, from: BufReader::new(from), card: String::new() };
        other.card = other.hear();
        other
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.to, "{line}").unwrap();
    }

    fn hear(&mut self) -> String {
        for line in self.from.by_ref().lines() {
            if let Some((_, said)) = line.unwrap().split_once("said ") {
                return said.to_owned();
            }
        }
        panic!("the other process ended");
    }

    fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear()
    }

    /// Counters of the device: messages lent, taken, and unreadable.
    fn stats(&mut self) -> [u64; 3] {
        let said = self.ask("stats");
        let mut words = said.split(' ').map(|word| word.parse().unwrap());
        [(); 3].map(|()| words.next().unwrap())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts and connects two processes. Neither has the right to read any process.
fn two(roles: [&str; 2]) -> [Other; 2] {
    // SAFETY: takes a capability from processes that this thread starts from here on
    // (capabilities(7)). The call fails harmlessly if the thread lacks the right.
    unsafe { libc::prctl(libc::PR_CAPBSET_DROP, SYS_PTRACE) };
    let [mut one, mut other] = roles.map(Other::start);
    let cards = [one.card.clone(), other.card.clone()];
    one.tell(&cards[1]);
    other.tell(&cards[0]);
    assert_eq!([one.hear(), other.hear()], ["connected"; 2]);
    [one, other]
}

/// The first process WRITEs and READs a MiB. Returns the messages that each lent for it.
fn exchange([one, other]: &mut [Other; 2]) -> [u64; 2] {
    let before = [one.stats()[0], other.stats()[0]];
    assert_eq!(one.ask("exchange"), "exchanged");
    [one.stats()[0] - before[0], other.stats()[0] - before[1]]
}

/// True if processes may read each other's memory on this machine.
fn may_read() -> bool {
    let mut pair = two(["open", "open"]);
    // A device lends once it has met the peer by a first packet.
    exchange(&mut pair);
    let lent = exchange(&mut pair);
    let may = lent[0] > 0;
    if !may {
        skip("a process may not read another one's memory here (ptrace(2))");
    }
    may
}

#[test]
fn a_process_that_may_not_be_read_sends_bytes() {
    if skipped() || !may_read() {
        return;
    }
    let whole = (LEN >> 16) as u64;
    for (roles, lent) in [
        (["open", "open"], [whole, whole]),
        (["hidden", "open"], [0, whole]),
        (["open", "hidden"], [whole, 0]),
        (["hidden", "hidden"], [0, 0]),
    ] {
        let mut pair = two(roles);
        exchange(&mut pair);
        assert_eq!(exchange(&mut pair), lent, "{roles:?}");
        for other in &mut pair {
            assert_eq!(other.stats()[2], 0, "{roles:?}: nobody tries");
        }
    }
}

/// A message that is lent when the kernel begins to refuse goes as bytes, and so do all later ones.
#[test]
fn a_process_that_hides_sends_bytes_from_then_on() {
    if skipped() || !may_read() {
        return;
    }
    for who in [0, 1] {
        let mut pair = two(["open", "open"]);
        exchange(&mut pair);
        assert!(exchange(&mut pair).iter().all(|lent| *lent > 0));
        assert_eq!(pair[who].ask("hide"), "hidden");
        let lent = exchange(&mut pair);
        assert!(lent[who] > 0 && pair[1 - who].stats()[2] > 0, "{who}: {lent:?}");
        let after = exchange(&mut pair);
        let (lent, other) = (after[who], after[1 - who]);
        assert!(lent == 0 && other > 0, "{who}: {lent}, {other}");
        assert_eq!(pair[1 - who].stats()[2], 1, "it is tried once");
    }
}

/// Processes that are killed, each at another time.
const ROUNDS: u64 = 8;

/// A dead peer is noticed in little more than a second: for so long its address isn't asked again,
/// and the next one may have the same.
fn patient() -> Local {
    Local { timeout: AckTimeout::from_code(15).unwrap(), retry_count: 7, ..impatient() }
}

/// Posts a READ, or a WRITE, of a MiB, with a new frame.
fn post(place: &mut Place, remote: Remote, reads: bool) {
    let frame = place.side.filled(LEN, 9);
    let mut batch = place.side.qp.batch();
    match reads {
        true => batch.read(1, frame, remote).unwrap(),
        false => batch.write(2, frame, remote).unwrap(),
    }
    batch.ring();
}

/// The surviving process has READs and WRITEs in flight, and is written to.
#[test]
fn a_process_killed_amid_copies_is_a_dead_link() {
    if skipped() {
        return;
    }
    let hca = on_shared_memory();
    for round in 0..ROUNDS {
        let mut other = Other::start("open");
        let mut place = Place::on(&hca, &patient());
        let remote = place.connect(&other.card.clone());
        let card = place.card();
        assert_eq!(other.ask(&card), "connected");
        // The others' memory is as good as before.
        place.exchange(remote, round as u8);
        other.tell("write");
        for count in 0..4 {
            post(&mut place, remote, count % 2 == 0);
        }
        let until = Instant::now() + Duration::from_micros(round * 1000);
        while Instant::now() < until {
            let done = place.side.done();
            post(&mut place, remote, done.id == 1);
        }
        let killed = thread::spawn(move || drop(other));
        let start = Instant::now();
        let mut failures = Vec::new();
        while failures.len() < 4 {
            assert!(start.elapsed() < LIMIT, "{failures:?}");
            let done = place.side.wait();
            match done.result {
                Ok(_) if failures.is_empty() => post(&mut place, remote, done.id == 1),
                Ok(_) => panic!("a success behind {failures:?}"),
                Err(failure) => failures.push(failure.status),
            }
        }
        killed.join().unwrap();
        let flushed = Status::Flushed;
        assert_eq!(failures, [Status::RetryExceeded, flushed, flushed, flushed]);
    }
    // Each process was met, came, and went, both ways.
    let start = Instant::now();
    while hca.shared_stats().unwrap().left < 2 * ROUNDS && start.elapsed() < LIMIT {
        thread::sleep(Duration::from_millis(1));
    }
    let stats = hca.shared_stats().unwrap();
    assert_eq!((stats.met, stats.joined, stats.left), (ROUNDS, ROUNDS, 2 * ROUNDS), "{stats:?}");
    assert_eq!(stats.broken, 0, "{stats:?}");
}
