//! Compares our control path with C's: every system call by phase, and the memory of queues. Ours
//! may make no more calls than libibverbs with libmlx5 in any phase. `docs/CONTROL-PATH.md` has the
//! counts.
//!
//! Both programs (`c/control.c`, `src/bin/control_path.rs`) run under a tracer on the preloaded
//! software HCA, whose calls are not counted. `UVERBS_BLESS=1` rewrites the document's tables.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use c_stack::CStack;
use c_stack::calls::names;
use c_stack::calls::table::{self, Compared, Row};
use c_stack::calls::trace::{self, Phase};

/// Number of further objects of each kind.
const FURTHER: u64 = 100;
/// Number of objects of each kind whose memory is counted.
const MANY: u64 = 1000;
/// Tolerance of the document's byte counts, as a share and in bytes: types change with the library
/// and with the compiler.
const TOLERANCE: (f64, f64) = (0.1, 64.0);

fn ours() -> Command {
    c_stack::preloaded(Path::new(env!("CARGO_BIN_EXE_control-path")))
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/CONTROL-PATH.md")
}

/// The document's part between the marks of this name. With `UVERBS_BLESS` it is first replaced by
/// `text`.
fn documented(name: &str, text: &str) -> String {
    let (begin, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    static DOCUMENT: Mutex<()> = Mutex::new(());
    let _one_at_a_time = DOCUMENT.lock();
    let document = std::fs::read_to_string(page()).unwrap();
    let (before, rest) = document.split_once(&begin).unwrap();
    let (present, behind) = rest.split_once(&end).unwrap();
    if std::env::var_os("UVERBS_BLESS").is_some() {
        std::fs::write(page(), format!("{before}{begin}{text}{end}{behind}")).unwrap();
        return text.to_owned();
    }
    present.to_owned()
}

/// Versions that the counts of files and memory depend on.
fn versions(stack: &CStack) -> String {
    let (arch, libc) = (std::env::consts::ARCH, names::libc_version());
    // If the directory exists, libibverbs reads it; otherwise it prints a warning.
    let configured = if Path::new("/etc/libibverbs.d").exists() { ", configured" } else { "" };
    format!("libibverbs and libmlx5 {}, glibc {libc}, {arch}{configured}", stack.version())
}

/// Removes the last columns of the table: how often a heap grows depends on its other contents.
fn without_memory(text: &str) -> String {
    let mut kept = String::new();
    for line in text.lines() {
        let cells: Vec<_> = line.split('|').collect();
        kept += &if cells.len() == CELLS { cells[..CELLS - 3].join("|") } else { line.to_owned() };
        kept.push('\n');
    }
    kept
}

/// True for a phase in which the sides make different numbers of calls. A few calls for memory are
/// no difference: how often a heap grows depends on its other contents.
fn is_unequal(row: &Row) -> bool {
    let [device, files, [c, ours]] = row.calls;
    device[0] != device[1] || files[0] != files[1] || c.abs_diff(ours) > 5
}

/// Parts of a row between bars, including an empty part at each end.
const CELLS: usize = 9;

/// Counts both sides' calls; `None` with a stated skip.
fn counted(stack: &CStack) -> Option<(Vec<Phase>, Vec<Phase>)> {
    let program = stack.compile("control")?;
    let further = FURTHER.to_string();
    let args = ["calls", &further];
    let both = [stack.command(&program).env_remove("IBV_SHOW_WARNINGS"), &mut ours()]
        .map(|command| trace::trace(command.args(args)));
    std::fs::remove_file(program).unwrap();
    let [theirs, ours] = both;
    match (theirs, ours) {
        (Ok(theirs), Ok(ours)) => Some((theirs, ours)),
        (Err(why), _) | (_, Err(why)) => {
            c_stack::skip(&why);
            None
        }
    }
}

#[test]
fn no_phase_makes_more_calls_than_c() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some((theirs, ours)) = counted(&stack) else { return };
    let names = |side: &[Phase]| side.iter().map(|phase| phase.name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&theirs), names(&ours));
    assert_eq!(names(&ours).last().unwrap(), "end");
    let Compared { rows, unequal_lists, more, .. } = table::compare(&theirs, &ours, FURTHER);
    assert!(rows.len() >= 19, "{}", rows.len());
    let unequal: Vec<_> = rows.into_iter().filter(is_unequal).collect();
    let table = format!("Counted with {}.\n\n{}", versions(&stack), table::calls(&unequal));
    assert!(more.is_empty(), "more calls than C:\n{}", more.join("\n"));
    // Checks that the tracer missed no call: both sides made the calls of the phases.
    let has = |phase: &str, call: &str, count: u64| {
        for side in [&theirs, &ours] {
            let phase = side.iter().find(|other| other.name == phase).unwrap();
            assert_eq!(phase.calls.get(call), Some(&count), "{phase:?}");
        }
    };
    has("open device", "device ioctl 0.3", 1);
    has("create CQ, further", "device ioctl 3.0", FURTHER);
    has("create QP, further", "device ioctl 4.0", FURTHER);
    has("connect QP", "device ioctl 0.0(0x1a)", 3);
    has("destroy QP, further", "device ioctl 4.1", FURTHER);
    has("dereg MR, further", "device ioctl 7.1", FURTHER);
    has("close device", "device close", 1);

    let text = format!("{table}\n```text\n{unequal_lists}```\n");
    let present = documented("calls", &text);
    // Other versions of glibc read files and grow heaps differently. The checks above hold for all.
    if present.contains(&format!("with {}.\n", versions(&stack))) {
        let (present, text) = (without_memory(&present), without_memory(&text));
        assert_eq!(
            present, text,
            "docs/CONTROL-PATH.md is not what was counted; UVERBS_BLESS=1 writes it anew"
        );
    } else {
        eprintln!("the document was written with other versions than {}", versions(&stack));
    }
}

/// Bytes per object.
#[derive(Clone, Copy, Debug)]
struct Bytes {
    pinned: f64,
    heap: f64,
}

/// Bytes of a completion queue and of a queue pair, parsed from the output of `c/heap.c`.
fn memory(command: &mut Command, heap: &Path) -> [Bytes; 2] {
    let device = c_stack::preload();
    let libraries = std::env::join_paths([heap, &device]).unwrap();
    command.env("LD_PRELOAD", libraries).env("UVERBS_SOFTHCA_STEPPED", "1");
    let run = c_stack::run(command.args(["memory", &MANY.to_string()])).ok();
    let at = |phase: &str| -> (f64, f64) {
        let line = run.stdout.lines().find_map(|line| line.strip_prefix(phase)?.strip_prefix(": "));
        let numbers = line
            .and_then(|line| line.split_once(' '))
            .unwrap_or_else(|| panic!("{phase}: {run:?}"));
        (numbers.0.parse().unwrap(), numbers.1.parse().unwrap())
    };
    let each = |from: &str, to: &str| {
        let ((heap, pinned), (heap_after, pinned_after)) = (at(from), at(to));
        let many = MANY as f64;
        Bytes { pinned: (pinned_after - pinned) / many, heap: (heap_after - heap) / many }
    };
    [each("create CQ, further", "create QP, further"), each("create QP, further", "end")]
}

#[test]
fn queues_take_no_more_memory_than_cs() {
    let Some(stack) = c_stack::unpacked() else { return };
    let (Some(program), Some(heap)) = (stack.compile("control"), stack.compile_library("heap"))
    else {
        return;
    };
    let theirs = memory(&mut stack.command(&program), &heap);
    let ours = memory(&mut ours(), &heap);
    std::fs::remove_file(program).unwrap();
    std::fs::remove_file(heap).unwrap();
    let rows = ["CQ for 255 completions", "QP for 128 sends and 128 receives"];
    let mut table = format!("Counted with {}.\n\n", versions(&stack));
    table += "| bytes of one | pinned: C | ours | heap: C | ours |\n|---|---|---|---|---|\n";
    let mut measured = Vec::new();
    for ((name, c), own) in rows.iter().zip(theirs).zip(ours) {
        assert!(own.pinned <= c.pinned && own.heap <= c.heap, "{name}: {c:?}, ours {own:?}");
        let row = [c.pinned, own.pinned, c.heap, own.heap];
        let cells = row.map(|bytes| format!("{bytes:.0}")).join(" | ");
        let _ = writeln!(table, "| {name} | {cells} |");
        measured.extend(row);
    }
    let present = documented("memory", &table);
    let cells =
        present.lines().filter(|line| line.contains(" for ")).flat_map(|line| line.split('|'));
    let written: Vec<f64> = cells.filter_map(|cell| cell.trim().parse().ok()).collect();
    assert_eq!(written.len(), measured.len(), "{present}");
    if !present.contains(&format!("with {}.\n", versions(&stack))) {
        eprintln!("the document was written with other versions than {}", versions(&stack));
        return;
    }
    for (written, measured) in written.iter().zip(&measured) {
        let off = (written - measured).abs();
        assert!(
            off / measured < TOLERANCE.0 || off < TOLERANCE.1,
            "docs/CONTROL-PATH.md says {written}, counted were {measured}; UVERBS_BLESS=1 writes it \
             anew"
        );
    }
}
