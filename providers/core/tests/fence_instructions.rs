//! Compares the compiler's instructions for each fence with the table in docs/FENCES.md, and that
//! table with rdma-core's barriers.
//!
//! `order/fence.rs` and what it imports need nothing but the core library, so they are compiled
//! alone: for this machine, and for any other whose core library is installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::skip;

/// rdma-core, `util/udma_barrier.h`: name, x86-64, aarch64. An empty string is a barrier to the
/// compiler.
const RDMA_CORE: [(&str, &str, &str); 4] = [
    ("udma_to_device_barrier", "", "dmb oshst"),
    ("udma_from_device_barrier", "lfence", "dmb oshld"),
    ("mmio_wc_start", "sfence", "dsb st"),
    ("mmio_flush_writes", "sfence", "dsb st"),
];

/// Prefixes of the instructions that count as fences.
const FENCES: [&str; 8] = ["sfence", "lfence", "mfence", "lock", "xchg", "dmb", "dsb", "isb"];

/// A row of the table: the operation as the probe names it, rdma-core's macro, and the instructions
/// on x86-64 and on aarch64, without and with `conservative-fences`.
struct Row {
    name: String,
    macro_name: String,
    instructions: [[String; 2]; 2],
}

fn table() -> Vec<Row> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/FENCES.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let lines = page.lines().skip_while(|line| !line.starts_with("| operation |")).skip(2);
    let rows: Vec<Row> = lines
        .take_while(|line| line.starts_with('|'))
        .map(|line| {
            let line = line.replace(['`', ','], "");
            let cells: Vec<_> = line.trim_matches('|').split('|').map(str::trim).collect();
            let [name, theirs, x86, x86_more, arm, arm_more] = cells[..] else {
                panic!("a row of six cells: {line}");
            };
            let of = |cell: &str| cell.trim_matches('-').to_owned();
            Row {
                name: name.replace(" non-cached", "_nc").replace(" write-combining", "_wc"),
                macro_name: theirs.to_owned(),
                instructions: [[of(x86), of(x86_more)], [of(arm), of(arm_more)]],
            }
        })
        .collect();
    assert_eq!(rows.len(), 7, "rows of the table");
    rows
}

/// A compiler that has the core libraries of other machines may be named.
fn rustc() -> Command {
    let named = ["UVERBS_CROSS_RUSTC", "RUSTC"].into_iter().find_map(std::env::var_os);
    let mut command = Command::new(named.unwrap_or_else(|| "rustc".into()));
    // Cargo sets it to this toolchain's libraries, so a compiler would find this toolchain's core
    // libraries.
    command.env_remove("LD_LIBRARY_PATH");
    command
}

/// Compiles the probe to assembly. Gives each function's accesses and fences, in order.
fn compile(target: &str, conservative: bool) -> BTreeMap<String, Vec<String>> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fence_instructions/probe.rs");
    let out = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{target}-{conservative}.s"));
    let mut command = rustc();
    command.args(["--edition", "2024", "--crate-type", "lib", "-Copt-level=3", "--emit=asm"]);
    command.args(["--cap-lints", "allow", "--target", target, "-o"]).arg(&out).arg(&tests);
    if conservative {
        command.args(["--cfg", "feature=\"conservative-fences\""]);
    }
    let output = command.output().expect("rustc");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&out).expect("assembly");
    let mut functions = BTreeMap::new();
    let mut current = None;
    for line in text.lines() {
        let words = line.split(['#', '/']).next().unwrap_or_default();
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        if let Some(label) = words.strip_suffix(':')
            && !line.starts_with('.')
        {
            current = Some(label.to_owned());
            functions.insert(label.to_owned(), Vec::new());
        }
        let Some(body) = current.as_ref().and_then(|name| functions.get_mut(name)) else {
            continue;
        };
        if words.starts_with("ret") {
            current = None;
        } else if words.contains("(%rdi)") || words.contains("[x0]") {
            body.push("access".to_owned());
        } else if FENCES.iter().any(|fence| words.starts_with(fence)) {
            body.push(words);
        }
    }
    functions
}

fn check(target: &str, architecture: usize) {
    for (column, conservative) in [false, true].into_iter().enumerate() {
        let functions = compile(target, conservative);
        for Row { name, instructions, .. } in table() {
            let fence = &instructions[architecture][column];
            let access = "access".to_owned();
            let mut wanted = vec![access.clone(), access];
            if !fence.is_empty() {
                wanted.insert(1, fence.clone());
            }
            let found = functions.get(&name).unwrap_or_else(|| panic!("{name} in the probe"));
            assert_eq!(found, &wanted, "{name} on {target}, conservative: {conservative}");
        }
        assert_eq!(functions.len(), table().len(), "functions of the probe");
    }
}

#[test]
fn the_conservative_ones_are_rdma_cores() {
    for Row { name, macro_name, instructions: [[_, x86], [_, arm]] } in table() {
        let theirs = RDMA_CORE.iter().find(|(name, ..)| *name == macro_name);
        let (_, x86_theirs, arm_theirs) = theirs.expect("a macro of rdma-core's");
        assert_eq!((x86.as_str(), arm.as_str()), (*x86_theirs, *arm_theirs), "{name}");
    }
}

#[test]
fn on_x86_64_they_are_what_the_table_says() {
    check_if_installed("x86_64-unknown-linux-gnu", 0);
}

#[test]
fn on_aarch64_they_are_what_the_table_says() {
    check_if_installed("aarch64-unknown-linux-gnu", 1);
}

fn check_if_installed(target: &str, architecture: usize) {
    if is_installed(target) {
        check(target, architecture);
    } else {
        skip(&format!("no core library for {target} here (rustup target add {target})"));
    }
}

fn is_installed(target: &str) -> bool {
    let output = rustc().args(["--print", "target-libdir", "--target", target]).output();
    let folder = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    folder.is_ok_and(|folder| {
        let files = std::fs::read_dir(PathBuf::from(folder)).into_iter().flatten().flatten();
        files.into_iter().any(|file| file.file_name().to_string_lossy().starts_with("libcore-"))
    })
}
