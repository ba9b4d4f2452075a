//! The data path is free of hidden work: after setup, posting and polling make no system call,
//! allocate no memory and meet no page fault.
//!
//! Each test runs as a child process under a seccomp filter, which kills it at any system call
//! except exit.
#![allow(unsafe_code, reason = "installs a seccomp filter, and counts allocations")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use common::{Side, device, is_rxe, pair_on, soft};
use uverbs::softhca::{Idle, SoftHca};
use uverbs::{AccessFlags, ExposedMemory, Frame, Wr};

/// Exit status of a child that succeeded.
const WELL: i32 = 42;
/// Polls until it gives up: no clock here, that could be a system call.
const PATIENCE: u64 = 4_000_000_000;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// Counts the allocations of each thread.
struct Counting;

// SAFETY: hands everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: guaranteed by the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: guaranteed by the contract of `dealloc`.
        unsafe { System.dealloc(pointer, layout) };
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One round of everything: a SEND that is received, a WRITE, a READ, an atomic, unsignaled and
/// inline ones among them; the three ways of polling.
fn round(
    client: &mut Side,
    server: &mut Side,
    memory: &ExposedMemory,
    frames: &mut [Option<Frame>; 4],
) {
    let [sent, read, added, received] = frames;
    server.qp.post_recv(1, received.take().unwrap()).unwrap();
    let mut batch = client.qp.batch();
    batch.send(2, sent.take().unwrap()).unwrap();
    batch.write_inline(Wr::new(3).unsignaled(), b"inline", memory.remote(64)).unwrap();
    batch.read(4, read.take().unwrap(), memory.remote(0)).unwrap();
    batch.fetch_add(5, added.take().unwrap(), memory.remote(8), 1).unwrap();
    batch.ring();
    let mut left = PATIENCE;
    let mut seen = 0;
    while seen < 3 && left > 0 {
        left -= 1;
        client.cq.poll_with(1, |mut completion| {
            completion.result().unwrap();
            let place = match completion.id() {
                2 => &mut *sent,
                4 => &mut *read,
                _ => &mut *added,
            };
            *place = completion.take_frame();
            seen += 1;
        });
    }
    while received.is_none() && left > 0 {
        left -= 1;
        let mut burst = server.cq.poll(4);
        while let Some(mut completion) = burst.next() {
            completion.result().unwrap();
            *received = completion.take_frame();
        }
    }
    assert!(left > 0, "stuck");
}

/// Two sides on the test's device, or on a software HCA with these settings.
fn pair_of(change: impl FnOnce(&mut Idle)) -> (Side, Side) {
    let device = match std::env::var_os("UVERBS_TEST_DEVICE") {
        Some(_) => device(),
        None => soft(&SoftHca::builder().idle(change).build().expect("a device")),
    };
    pair_on(&device, &device, &common::local(), |builder| builder)
}

fn work(checked: impl FnOnce(&mut dyn FnMut())) {
    // An empty poll of a software HCA does the device's work, which isn't the library's.
    work_on(pair_of(|idle| idle.client_progress = false), checked);
}

fn work_on((mut client, mut server): (Side, Side), checked: impl FnOnce(&mut dyn FnMut())) {
    let access = AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
    let memory = server.pd.expose(4096, access).unwrap();
    let (near, far) = (client.slab(64, 3), server.slab(64, 1));
    let mut frames = [near.take(), near.take(), near.take(), far.take()];
    let mut rounds = |count| {
        for _ in 0..count {
            round(&mut client, &mut server, &memory, &mut frames);
        }
    };
    // Warm: every page touched, every table grown, the rings' ends passed.
    rounds(300);
    checked(&mut || rounds(300));
}

/// Kills the process at any system call of this thread but `exit_group`, and on soft-RoCE `ioctl`,
/// which is how a send queue rings there. False where the system has no seccomp.
fn forbid_system_calls() -> bool {
    const fn statement(code: u32, k: u32) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt: 0, jf: 0, k }
    }
    /// Continues after `skip` more statements if the number is this one, else after the next.
    const fn equal(number: libc::c_long, skip: u8) -> libc::sock_filter {
        let jf = if skip == 0 { 1 } else { 0 };
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        libc::sock_filter { code, jt: skip, jf, k: number as u32 }
    }
    let allowed = if is_rxe() { libc::SYS_ioctl } else { libc::SYS_exit_group };
    let mut program = [
        // The number of the system call (offset 0 of `seccomp_data`).
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        equal(libc::SYS_exit_group, 1),
        equal(allowed, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: no memory is involved.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
        return false;
    }
    let mode = libc::SECCOMP_MODE_FILTER;
    // SAFETY: the program is valid for the call, which copies it.
    unsafe { libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter) == 0 }
}

/// Runs a test of this file in a child process. The child does the work, which the parent does not.
fn child(test: &str) -> ExitStatus {
    common::this_program()
        .args(["--exact", test, "--test-threads=1"])
        .env("UVERBS_TEST_CHILD", "1")
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap()
}

fn is_child() -> bool {
    std::env::var_os("UVERBS_TEST_CHILD").is_some()
}

/// Ends the process without a destructor: those make system calls.
fn end(code: i32) -> ! {
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(code) }
}

#[test]
fn posting_and_polling_make_no_system_call() {
    if !is_child() {
        let status = child("posting_and_polling_make_no_system_call");
        if status.code() == Some(WELL + 1) {
            common::skip("no seccomp on this system");
            return;
        }
        assert_eq!(status.code(), Some(WELL), "{status}");
        return;
    }
    work(|rounds| {
        if !forbid_system_calls() {
            end(WELL + 1);
        }
        rounds();
        end(WELL);
    });
}

#[test]
fn the_filter_kills_at_a_system_call() {
    if !is_child() {
        let status = child("the_filter_kills_at_a_system_call");
        if status.code() == Some(WELL + 1) {
            common::skip("no seccomp on this system");
            return;
        }
        assert_eq!(status.signal(), Some(libc::SIGSYS), "{status}");
        return;
    }
    work(|_| {
        if !forbid_system_calls() {
            end(WELL + 1);
        }
        std::thread::yield_now();
        end(WELL);
    });
}

#[test]
fn posting_and_polling_allocate_and_free_nothing() {
    work(|rounds| {
        let before = ALLOCATIONS.get();
        rounds();
        assert_eq!(ALLOCATIONS.get() - before, 0);
        // Not left out by the optimiser.
        drop(std::hint::black_box(Box::new(1)));
        assert!(ALLOCATIONS.get() > before, "the allocator counts");
    });
}

/// Page faults of this thread so far, those that read from a disk included.
fn page_faults() -> i64 {
    // SAFETY: a usage is plain numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a usage that lives over the call.
    assert_eq!(unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) }, 0);
    usage.ru_minflt + usage.ru_majflt
}

#[test]
fn posting_and_polling_meet_no_page_fault() {
    // The software HCA's thread sleeps when a busy machine leaves no work for it, and the doorbell
    // that wakes it is a fault by intent. Faults of the library's own making are counted here, so
    // the device stays awake.
    let awake = |idle: &mut Idle| (idle.protect, idle.client_progress) = (false, false);
    work_on(pair_of(awake), |rounds| {
        // The system may take a page away at any time (NUMA balancing, reclaim). A fault of the
        // library itself would occur in each run.
        let mut faults = || {
            let before = page_faults();
            rounds();
            page_faults() - before
        };
        let windows: [i64; 5] = std::array::from_fn(|_| faults());
        assert!(windows.contains(&0), "{windows:?}");
        let before = page_faults();
        let mut fresh = vec![0u8; 1 << 22];
        for page in fresh.chunks_mut(4096) {
            page[0] = 1;
        }
        std::hint::black_box(&fresh);
        assert!(page_faults() > before, "the system counts");
    });
}
