//! Effects of the library on the process that uses it (docs/PROCESS.md).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(20);
/// Lines of proc(5)'s `status` that no library may change: masks of signals that are blocked,
/// ignored and caught, the mask of new files, locked memory, the thread's name.
const KEPT: [&str; 6] = ["SigBlk", "SigIgn", "SigCgt", "Umask", "VmLck", "Name"];
/// All signals but SIGKILL and SIGSTOP, which can't be blocked, and two of glibc's own.
const BLOCKED: u64 = !(1 << 8 | 1 << 18 | 3 << 31);

/// The lines of a `status`.
fn status(path: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    lines.map(|(name, value)| (name.to_owned(), value.trim().to_owned())).collect()
}

/// Facts that no step changes.
fn kept() -> Vec<String> {
    let status = status(Path::new("/proc/thread-self/status"));
    let mut all: Vec<_> = KEPT.iter().map(|name| format!("{name}: {}", status[*name])).collect();
    all.push(format!("folder: {}", std::env::current_dir().unwrap().display()));
    let mut variables: Vec<_> = std::env::vars_os().collect();
    variables.sort();
    all.push(format!("environment: {variables:?}"));
    let slack = nix::sys::prctl::get_timerslack().unwrap();
    all.push(format!("timer slack: {slack}"));
    all
}

/// Open descriptors, and the threads that the library made.
fn found() -> (BTreeSet<i32>, BTreeMap<String, BTreeMap<String, String>>) {
    let names = fs::read_dir("/proc/self/fd").unwrap().flatten();
    let numbers = names.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // The folder's own is closed then.
    let numbers: Vec<i32> = numbers.collect();
    let is_open = |fd: &i32| fs::read_link(format!("/proc/self/fd/{fd}")).is_ok();
    let files = numbers.into_iter().filter(is_open).collect();
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let tasks = tasks.map(|task| {
        (task.file_name().to_string_lossy().into_owned(), status(&task.path().join("status")))
    });
    let ours = |(_, status): &(String, BTreeMap<String, String>)| {
        let name = status.get("Name").map_or("", String::as_str);
        ["softhca", "keep-alive"].iter().any(|begin| name.starts_with(begin))
    };
    (files, tasks.filter(ours).collect())
}

/// One test at a time: each opens files.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_process_stays_as_it_was() {
    let _alone = ALONE.lock();
    let (before, (files, threads)) = (kept(), found());
    assert!(threads.is_empty(), "{threads:?}");
    let context = uverbs::device("softhca0").unwrap().open().unwrap();
    let pd = context.alloc_pd().unwrap();
    let mut cq = context.create_cq(256).unwrap();
    let mut qp = context.queue_pair(&pd, &cq).build().unwrap();
    qp.prepare(&Default::default()).unwrap();
    qp.connect_to_self().unwrap();
    assert_eq!(kept(), before, "opened");
    let (more, threads) = found();
    assert!(!threads.is_empty());
    for (task, status) in &threads {
        let blocked = u64::from_str_radix(&status["SigBlk"], 16).unwrap();
        assert_eq!(blocked & BLOCKED, BLOCKED, "{task} {}: {blocked:x}", status["Name"]);
    }
    let new: Vec<_> = more.difference(&files).copied().collect();
    assert!(!new.is_empty());
    for fd in new {
        assert!(fd > 2);
        let flags = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
        let octal = flags.lines().find_map(|line| line.strip_prefix("flags:"));
        let Some(octal) = octal else { continue };
        let flags = i32::from_str_radix(octal.trim(), 8).unwrap();
        assert_ne!(flags & libc::O_CLOEXEC, 0, "descriptor {fd}");
    }
    let slab = pd.slab(64, 1).unwrap();
    for _ in 0..100 {
        qp.post_recv(1, slab.take().unwrap()).unwrap();
        qp.post_send_inline(2, b"to itself").unwrap();
        for _ in 0..2 {
            let done = cq.wait(LIMIT).unwrap();
            assert!(done.result.is_ok());
        }
    }
    assert_eq!(kept(), before, "sent");
    drop((qp, cq, slab, pd, context));
    let start = Instant::now();
    while !found().1.is_empty() && start.elapsed() < LIMIT {
        std::thread::yield_now();
    }
    assert!(found().1.is_empty(), "threads are left: {:?}", found().1);
    let left: Vec<_> = found().0.difference(&files).copied().collect();
    assert!(left.is_empty(), "descriptors are left: {left:?}");
    assert_eq!(kept(), before, "closed");
}

/// Folders of code that runs in other people's processes.
const LIBRARIES: [&str; 4] = ["src", "providers", "c-abi", "adapters"];
/// File with the function that makes all threads; it blocks signals first.
const MAKER: &str = "providers/core/src/thread.rs";
/// Calls that make a thread.
const MAKERS: [&str; 4] = ["thread::spawn(", "thread::Builder", "thread::scope(", "pthread_create"];

/// Source files below a folder, without tests and fuzzers.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for path in fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let of_tests = ["test", "fuzz", "bench", "example", "interleavings"];
        if of_tests.iter().any(|word| name.contains(word)) {
            continue;
        }
        if path.is_dir() {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// A thread that is made otherwise would take the program's signals.
#[test]
fn all_threads_are_made_by_one_function() {
    let _alone = ALONE.lock();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    LIBRARIES.iter().for_each(|folder| sources(&root.join(folder), &mut files));
    assert!(files.len() > 200, "{}", files.len());
    let mut makers = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).unwrap();
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let mut lines = code.lines().filter(|line| !line.trim_start().starts_with("//"));
        if lines.any(|line| MAKERS.iter().any(|call| line.contains(call))) {
            makers.push(file.strip_prefix(root).unwrap().display().to_string());
        }
    }
    assert_eq!(makers, [MAKER]);
}
