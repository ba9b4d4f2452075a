//! Runs the C program on our libibverbs: rings, records, doorbells and completions equal libmlx5's.

use std::path::Path;
use std::process::Command;

use super::Side;
use super::compare::{self, Counts};
use super::driver::Output;
use super::record::BEFORE;
use super::script::Cases;

/// Runs the cases on our libibverbs, and compares them with libmlx5's. Commands are compared with
/// our provider's only.
pub(crate) fn is_the_same(
    stack: &c_stack::CStack,
    program: &Path,
    cases: &Cases,
    theirs: &Side,
) -> Counts {
    let mut own = cases.clone();
    // Our library duplicates descriptors by `fcntl`, which the preloaded library does not see.
    own.import = false;
    let sizes = Cases::sizes_of_library(&theirs.way);
    let own = by_program(stack.ours_on_preloaded(program), program, &own, (sizes, &theirs.way));
    let captured = own.cases.iter().filter(|case| case.name != BEFORE).count();
    assert_eq!(captured, cases.len(), "captures");
    let (differences, counts) =
        compare::captures(&theirs.cases, &own.cases, theirs.way == "post", theirs.service);
    let first = differences.first().map(|first| format!("{}: {}", first.key, first.detail));
    assert!(
        first.is_none(),
        "{} {} differ on our library, first {first:?}",
        cases.name,
        differences.len()
    );
    counts
}

/// Runs the C program on our libibverbs, with queues of these sizes.
pub(crate) fn by_program(
    mut command: Command,
    program: &Path,
    cases: &Cases,
    (sizes, way): (&str, &str),
) -> Side {
    let file = |kind: &str| program.with_extension(format!("{}-{way}.{kind}", cases.name));
    let (script, captures, log) = (file("script"), file("captures"), file("log"));
    std::fs::write(&script, cases.script(sizes)).unwrap();
    command.arg(&script).arg(way).envs(cases.env.iter().cloned());
    if !cases.scatter {
        // With data in CQEs, libmlx5 reads sender, path and GRH from the data.
        command.env("MLX5_SCATTER_TO_CQE", "0");
    }
    command.env("UVERBS_SOFTHCA_STEPPED", "1").env("UVERBS_SOFTHCA_OBLIGING", "1");
    if cases.headers {
        command.env("UVERBS_SOFTHCA_HEADERS", "1");
    }
    command.env("UVERBS_SOFTHCA_LINK", if cases.infiniband { "ib" } else { "eth" });
    command.env("UVERBS_SOFTHCA_CAPTURE", &captures).env("UVERBS_SOFTHCA_LOG", &log);
    c_stack::run(&mut command).ok();
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let output = Output { captures: read(&captures), commands: read(&log) };
    for path in [script, captures, log] {
        std::fs::remove_file(path).unwrap();
    }
    Side::new(way, cases, &output)
}
