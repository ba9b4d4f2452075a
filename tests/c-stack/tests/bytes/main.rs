//! Compares our provider with libmlx5 byte for byte: the same verbs calls through libibverbs and
//! through our provider, on stepped software HCAs. Compared are rings, doorbell records, doorbell
//! pages, completions and commands.
//!
//! Intended differences are in `differences.txt` with their reasons; the comparison accepts no
//! others.
//!
//! The order of stores is not compared, since memory does not show it; `providers/mlx5` has tests
//! for it.

mod area;
mod changes;
mod commands;
mod compare;
mod completions;
mod differences;
mod driver;
mod flows;
mod last;
mod mutations;
mod other_memory;
mod own;
mod receivers;
mod record;
mod script;
mod spread;
mod tagged;
mod tap;
mod transports;
mod words;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use compare::{Counts, Difference};
use differences::Table;
use driver::Output;
use record::Case;
use script::Cases;
use uverbs_mlx5_prm::wqe::Service;

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn case_files() -> Vec<Cases> {
    let entries = std::fs::read_dir(folder().join("cases")).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "txt"));
    paths.sort();
    paths.iter().map(|path| Cases::read(path)).collect()
}

/// Results of one side's run.
struct Side {
    way: String,
    service: Service,
    cases: Vec<Case>,
    commands: Vec<commands::Phase>,
}

impl Side {
    fn new(way: &str, cases: &Cases, output: &Output) -> Self {
        let service = match cases.transport.as_str() {
            "uc" => Service::Uc,
            "ud" => Service::Ud,
            "xrc" => Service::Xrc,
            "dc" => Service::Dc,
            "raw" => Service::Raw,
            _ => Service::Rc,
        };
        Self {
            way: way.to_owned(),
            service,
            cases: record::read(&output.captures),
            commands: commands::read(&output.commands),
        }
    }
}

/// Runs the C program on libmlx5.
fn theirs(stack: &c_stack::CStack, program: &Path, cases: &Cases, way: &str) -> Side {
    own::by_program(stack.command(program), program, cases, (way, way))
}

fn ours(cases: &Cases, way: &str) -> Side {
    Side::new(way, cases, &driver::run(cases, way == "wr"))
}

fn compared(theirs: &Side, ours: &Side) -> (Vec<Difference>, Counts) {
    let immediates = theirs.way == "post";
    let (mut all, mut counts) =
        compare::captures(&theirs.cases, &ours.cases, immediates, theirs.service);
    let (more, of_commands) = commands::compare(&theirs.commands, &ours.commands);
    all.extend(more);
    counts += of_commands;
    (all, counts)
}

/// Runs all cases. One test, since the scripts' memory is at a fixed address.
#[test]
fn our_bytes_are_libmlx5s_bytes() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(program) = stack.compile("bytes") else { return };
    let mut table = Table::read(&folder().join("differences.txt"));
    let mut total = Counts::default();
    let mut unexpected = Vec::new();
    let mut allowed = 0;
    let mut sides = Vec::new();
    let mut of_library = Counts::default();
    for cases in case_files() {
        for way in cases.ways() {
            let (theirs, ours) = (theirs(&stack, &program, &cases, way), ours(&cases, way));
            of_library += own::is_the_same(&stack, &program, &cases, &theirs);
            let captured = ours.cases.iter().filter(|case| case.name != record::BEFORE).count();
            assert_eq!(captured, cases.len(), "captures");
            let (differences, counts) = compared(&theirs, &ours);
            let (known, unknown) = table.sort(differences);
            println!(
                "{} {way}: {counts} compared; differences: {known} allowed, {} unexpected",
                cases.name,
                unknown.len()
            );
            total += counts;
            allowed += known;
            unexpected.extend(unknown.into_iter().map(|difference| Difference {
                detail: format!("in {} {way}, {}", cases.name, difference.detail),
                ..difference
            }));
            match cases.name.as_str() {
                "arm" => mutations::of_arms(&mut table, &theirs, &ours),
                "srq" => mutations::of_lists(&mut table, &theirs, &ours),
                "mid" | "ud" | "xrc" | "dc" | "raw_packets" => sides.push((theirs, ours)),
                _ => {}
            }
        }
    }
    std::fs::remove_file(program).unwrap();
    let counted = format!(
        "{total} compared; differences: {allowed} allowed, {} unexpected",
        unexpected.len()
    );
    let counted = format!("{counted}; by our libibverbs {of_library}");
    // Written past the harness, which prints the output of failing tests only.
    let _ = writeln!(std::io::stderr(), "byte for byte: {counted}");
    if let Some(path) = std::env::var_os("UVERBS_JUDGE_COUNTS") {
        std::fs::write(path, counted).unwrap();
    }
    let mut keys = BTreeMap::new();
    for difference in &unexpected {
        let (count, _) = keys.entry(&difference.key).or_insert((0, &difference.detail));
        *count += 1;
    }
    for (key, (count, first)) in &keys {
        println!("\n{key}: {count} times, first\n{first}");
    }
    let keys: Vec<_> = keys.keys().collect();
    assert!(keys.is_empty(), "unexpected differences: {keys:#?}");
    let unused = table.unused();
    assert!(unused.is_empty(), "differences.txt has what is no difference: {unused:#?}");
    for (theirs, ours) in sides {
        match ours.service {
            Service::Ud | Service::Dc => mutations::of_address_vectors(&mut table, &theirs, &ours),
            Service::Xrc => mutations::of_peers_queues(&mut table, &theirs, &ours),
            Service::Raw => {}
            _ => mutations::are_all_found(&mut table, &theirs, &ours),
        }
        mutations::of_commands(&mut table, &theirs, &ours);
    }
    // A change that drops cases must lower this number.
    assert!(total.cases >= 19_000, "{total:?}");
    assert!(of_library.cases >= 19_000, "{of_library:?}");
}
