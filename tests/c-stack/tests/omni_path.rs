//! Debian's libhfi1verbs on a software device of Omni-Path: it maps the device's rings, and posts
//! sends by commands.
#![allow(unsafe_code, reason = "posts by address, to compare with C's posts")]

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use c_stack::both::{both, free_port};
use c_stack::tapped::Tapped;
use uverbs::raw::{Data, SendOp, Sge};
use uverbs::softhca::SoftHca;
use uverbs::{AccessFlags, Device, Local, Rdmavt, Remote, Wr};
use uverbs_core::doors::Recorded;
use uverbs_core::memory::pages::Pages;
use uverbs_core::provider::RecvOps;

#[test]
fn ping_pong_through_rings_of_rdmavt() {
    let Some(stack) = c_stack::unpacked() else { return };
    for (name, sizes) in [
        ("ibv_rc_pingpong", &["1", "4096", "100000"][..]),
        ("ibv_uc_pingpong", &["1", "4096"]),
        ("ibv_ud_pingpong", &["1", "2048"]),
        ("ibv_srq_pingpong", &["1", "4096"]),
    ] {
        for (size, events) in sizes.iter().flat_map(|size| [(size, false), (size, true)]) {
            let port = free_port();
            let end = |address: &str, host: &[&str]| {
                let mut command = stack.program(name);
                stack.on_omni_path(&mut command);
                command.env("UVERBS_SOFTHCA_UDP", address);
                command.args(["-n", "50", "-s", size, "-p", &port]).args(host);
                if events {
                    command.arg("-e");
                }
                command
            };
            // The last 16 bits are a LID, at most 0xbfff.
            let id = std::process::id() as u8 % 128;
            let addresses = [1, 2].map(|last| format!("127.56.{id}.{last}"));
            let server = end(&addresses[0], &[]);
            let client = end(&addresses[1], &["127.0.0.1"]);
            for run in both(server, client, &port) {
                let text = run.ok().stdout;
                assert!(text.contains("50 iters in"), "{name} {size} {events}: {text}");
            }
        }
    }
}

#[test]
fn the_device_says_that_it_is_omni_path() {
    let Some(stack) = c_stack::unpacked() else { return };
    let mut command = stack.program("ibv_devinfo");
    stack.on_omni_path(&mut command);
    let text = c_stack::run(command.arg("-v")).ok().stdout;
    for wanted in ["0x1175", "9456", "ATOMIC_GLOB", "InfiniBand", "max_mw:\t\t\t\t0"] {
        assert!(text.contains(wanted), "{wanted} in {text}");
    }
}

/// Number of bytes of a ring that is compared.
const DUMPED: usize = 600;

/// Rings in this process's memory, each once, whose first bytes are not all zero.
fn rings() -> Vec<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let memory = std::fs::File::open("/proc/self/mem").unwrap();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for line in maps.lines().filter(|line| line.contains("uverbs-ring")) {
        let words: Vec<_> = line.split_whitespace().collect();
        let start = words[0].split('-').next().unwrap();
        if seen.insert(words[4].to_owned()) {
            let mut bytes = vec![0; DUMPED];
            memory.read_exact_at(&mut bytes, u64::from_str_radix(start, 16).unwrap()).unwrap();
            found.push(bytes);
        }
    }
    found.retain(|bytes| bytes.iter().any(|byte| *byte != 0));
    found
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Hides what differs by intent: numbers of work requests at `numbers`, and the place of the page
/// in words.
fn comparable(bytes: &[u8], numbers: &[usize], base: u64) -> Vec<u64> {
    (0..bytes.len() / 8 * 8)
        .step_by(8)
        .map(|at| match word(bytes, at) {
            _ if numbers.contains(&at) => 0,
            address if (base..base + 4096).contains(&address) => address - base,
            other => other,
        })
        .collect()
}

/// Posts that `c/rings.c` makes, through our provider. Returns rings after the receives and at the
/// end, and the POST_SENDs.
fn ours(page: *mut u8) -> ([Vec<Vec<u8>>; 2], Vec<Vec<u8>>) {
    let hca = SoftHca::builder().omni_path().number(1).build().unwrap();
    let tapped = Arc::new(Tapped::new(hca));
    let device = Device::from_source(Arc::clone(&tapped) as _);
    let context = device.open_as::<Rdmavt>().unwrap();
    let pd = context.alloc_pd().unwrap();
    let all = AccessFlags::LOCAL_WRITE
        | AccessFlags::REMOTE_WRITE
        | AccessFlags::REMOTE_READ
        | AccessFlags::REMOTE_ATOMIC;
    // SAFETY: the page is the test's, and stays mapped until the region is gone.
    let region = unsafe { pd.register(page, 4096, all) }.unwrap();
    let mut cq = context.create_cq(20).unwrap();
    let shape = context.queue_pair(&pd, &cq).max_send_wr(8).max_recv_wr(8).max_inline_data(0);
    let mut qp = shape.max_send_sge(3).max_recv_sge(3).build().unwrap();
    qp.prepare(&Local { access: all, ..Local::default() }).unwrap();
    let sge = |at, len| Sge { addr: page.addr() as u64 + at, len, lkey: region.lkey() };
    let two = [sge(0, 64), sge(256, 32)];
    // SAFETY: the queue is used as its contract says.
    let queue = unsafe { qp.recv_queue().provider_mut() };
    let mut at = queue.begin();
    for (id, list) in [(1, &two[..]), (2, &two[..1]), (3, &two[..])] {
        // SAFETY: the page stays registered until all has completed.
        unsafe { queue.post(&mut at, id, list) }.unwrap();
    }
    // SAFETY: the queue pair lives, and the page stays registered until all has completed.
    unsafe { queue.ring(at) };
    let posted = rings();
    qp.connect_to_self().unwrap();
    let to = Remote { addr: page.addr() as u64 + 1024, rkey: region.rkey() };
    let eight = [sge(512, 8)];
    let mut batch = qp.batch();
    for (wr, op, list) in [
        (Wr::new(10).fenced().solicited(), SendOp::Send, &two[..]),
        (Wr::new(11), SendOp::SendImm(0x0102_0304), &[]),
        (Wr::new(12), SendOp::Write(to), &two[..1]),
        (Wr::new(13), SendOp::WriteImm(to, 0x0506_0708), &two),
        (Wr::new(14), SendOp::Read(to), &two),
        (Wr::new(15), SendOp::CompareSwap { remote: to, compare: 7, swap: 8 }, &eight),
        (Wr::new(16), SendOp::FetchAdd { remote: to, add: 9 }, &eight),
    ] {
        // SAFETY: the page stays registered until all has completed.
        unsafe { batch.raw().post(wr, op, Data::List(list)) }.unwrap();
    }
    batch.ring();
    let done = (0..10).map(|_| cq.wait(Duration::from_secs(20)).unwrap());
    let done: Vec<_> = done.map(|done| (done.id, done.result)).collect();
    assert!(done.iter().all(|(_, result)| result.is_ok()), "{done:?}");
    // Gives the last entry back, as every poll of the C library does.
    assert!(cq.poll(1).next().is_none());
    let ended = rings();
    let _ = qp.destroy().unwrap();
    let commands = tapped.take().into_iter();
    let sends = commands.filter(|command| command.write_command == Some(POST_SEND));
    let payload = |command: Recorded| {
        let mut attrs = command.attrs.into_iter();
        attrs.find(|attr| attr.before.attr_id == CORE_IN).and_then(|attr| attr.sent).unwrap()
    };
    ([posted, ended], sends.map(payload).collect())
}

const POST_SEND: u32 = 28;
const CORE_IN: u16 = 0;

/// Numbers of work requests in a receive ring of eight elements with three SGEs, in a completion
/// ring, and in a POST_SEND.
fn receives() -> Vec<usize> {
    (0..9).map(|at| 8 + at * 64).collect()
}

fn completions() -> Vec<usize> {
    (0..22).map(|at| 8 + at * 48).collect()
}

/// Clears the bytes of a POST_SEND's work requests that their opcode does not use, which libibverbs
/// leaves as its stack had them (`cmd.c:ibv_cmd_post_send`).
fn used(mut request: Vec<u8>) -> Vec<u8> {
    for wr in request[24..][..7 * 56].chunks_mut(56) {
        let end = match wr[12] {
            // WRITE, READ; SEND; atomics.
            0 | 1 | 4 => 36,
            2 | 3 => 24,
            _ => 52,
        };
        wr[end..].fill(0);
        if !matches!(wr[12], 1 | 3) {
            wr[20..24].fill(0);
        }
    }
    request
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits = (0..hex.len()).step_by(2);
    digits.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// POST_SENDs in the preloaded device's log.
fn logged(log: &Path) -> Vec<Vec<u8>> {
    let log = std::fs::read_to_string(log).unwrap();
    log.lines()
        .filter(|line| line.contains("(0x1c)"))
        .filter_map(|line| line.split(' ').find_map(|word| word.strip_prefix("0:in")))
        .map(|word| bytes(word.split_once('=').unwrap().1))
        .collect()
}

#[test]
fn rings_and_commands_are_those_of_libhfi1verbs() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("rings") else { return };
    let log = program.with_extension("log");
    let _ = std::fs::remove_file(&log);
    let mut command = stack.command(&program);
    stack.on_omni_path(&mut command);
    let text = c_stack::run(command.env("UVERBS_SOFTHCA_LOG", &log)).ok().stdout;
    assert!(text.ends_with("ok\n"), "{text}");
    let base = text.lines().find_map(|line| line.strip_prefix("base ")).unwrap();
    let base = u64::from_str_radix(base, 16).unwrap();
    let theirs: Vec<_> =
        text.lines().filter_map(|line| line.strip_prefix("ring ")).map(bytes).collect();
    let sends = logged(&log);

    let memory = Pages::anonymous(4096).unwrap();
    let ([posted, ended], ours) = ours(memory.as_mut_ptr());
    let own = memory.as_ptr().addr() as u64;
    // The receives alone, then these and the completions.
    assert_eq!((posted.len(), ended.len(), theirs.len()), (1, 2, 3));
    assert_eq!(
        comparable(&posted[0], &receives(), own),
        comparable(&theirs[0], &receives(), base),
        "receives"
    );
    for numbers in [receives(), completions()] {
        let set = |rings: &[Vec<u8>], base| -> BTreeSet<Vec<u64>> {
            rings.iter().map(|ring| comparable(ring, &numbers, base)).collect()
        };
        let (own, other) = (set(&ended, own), set(&theirs[1..], base));
        assert!(own.intersection(&other).next().is_some(), "{own:x?}\n{other:x?}");
    }
    assert_eq!((ours.len(), sends.len()), (1, 1), "one command each");
    let numbers: Vec<_> = (0..7).map(|at| 24 + at * 56).chain([0]).collect();
    assert_eq!(
        comparable(&used(ours[0].clone()), &numbers, own),
        comparable(&used(sends[0].clone()), &numbers, base),
        "POST_SEND"
    );
}

/// A list that the kernel refuses half way: the same answers by our library and by libhfi1verbs.
#[test]
fn a_list_that_is_refused_half_way_ends_at_bad_wr() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("refused") else { return };
    let mut theirs = stack.command(&program);
    stack.on_omni_path(&mut theirs);
    let theirs = c_stack::run(&mut theirs);
    let ours = c_stack::run(&mut stack.on_ours(&program, "softhfi0"));
    for run in [&theirs, &ours] {
        assert!(run.status == Some(0) && !run.stdout.contains("FAILED"), "{run:?}");
    }
    assert_eq!(ours.stdout, theirs.stdout);
}

/// Steps of `c/sizes.c`, each with its rings in order, and the work requests with their SGEs.
#[derive(Debug, PartialEq)]
struct Observed {
    steps: Vec<(String, Vec<Vec<u64>>)>,
    sends: Vec<(Vec<u8>, Vec<u64>)>,
    commands: usize,
}

/// Number of sends before the datagrams.
const CONNECTED: usize = 9 + 30 + 10;

impl Observed {
    fn run(mut command: Command, log: &Path) -> Self {
        let _ = std::fs::remove_file(log);
        let text = c_stack::run(command.env("UVERBS_SOFTHCA_LOG", log)).ok().stdout;
        assert!(text.ends_with("ok\n"), "{text}");
        let (mut base, mut steps) = (0, Vec::<(String, Vec<_>)>::new());
        // Elements of all rings have 48 bytes.
        let numbers: Vec<_> = (0..100).map(|at| 8 + at * 48).collect();
        for line in text.lines() {
            match line.split_once(' ') {
                Some(("base", hex)) => base = u64::from_str_radix(hex, 16).unwrap(),
                Some(("step", name)) => steps.push((name.to_owned(), Vec::new())),
                Some(("ring", hex)) => {
                    let ring = comparable(&bytes(hex), &numbers, base);
                    steps.last_mut().unwrap().1.push(ring);
                }
                _ => {}
            }
        }
        steps.iter_mut().for_each(|(_, rings)| rings.sort_unstable());
        let commands = logged(log);
        let mut sends = Vec::new();
        for command in &commands {
            let count = u32::from_ne_bytes(command[12..16].try_into().unwrap()) as usize;
            let (wrs, mut sges) = command[24..].split_at(count * 56);
            for wr in wrs.chunks(56) {
                let (own, rest) = sges.split_at(usize::from(wr[8]) * 16);
                sges = rest;
                // The rest is as the C library's stack had it.
                let mut wr = wr[8..][..if sends.len() < CONNECTED { 16 } else { 28 }].to_vec();
                let has_imm = wr[4] == 3;
                wr[12..16].iter_mut().for_each(|byte| *byte *= u8::from(has_imm));
                sends.push((wr, comparable(own, &[], base)));
            }
        }
        Self { steps, sends, commands: commands.len() }
    }
}

/// Queues that change their size, datagrams and long lists by our library and by libhfi1verbs.
#[test]
fn sizes_and_datagrams_are_those_of_libhfi1verbs() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("sizes") else { return };
    let mut theirs = stack.command(&program);
    stack.on_omni_path(&mut theirs);
    let theirs = Observed::run(theirs, &program.with_extension("theirs"));
    let mut ours = stack.ours_on_preloaded(&program);
    stack.on_omni_path(&mut ours);
    let ours = Observed::run(ours, &program.with_extension("ours"));
    // One command for a list. libhfi1verbs: 9; 11 and then three each, of 30; 10; 11 and 1; 4.
    assert_eq!((ours.commands, theirs.commands), (5, 13));
    assert_eq!((ours.steps.len(), ours.sends.len()), (9, CONNECTED + 16));
    for (own, other) in ours.steps.iter().zip(&theirs.steps) {
        assert_eq!(own, other, "rings");
    }
    assert_eq!(ours.steps.len(), theirs.steps.len());
    assert_eq!(ours.sends, theirs.sends, "work requests");
}
