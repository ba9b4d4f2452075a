//! Run of a world on a kernel: builds the image, boots it, and judges the result.

use std::fs;
use std::process::Command;
use std::sync::PoisonError;
use std::time::Duration;

use uverbs_vm_init::plan::{Plan, Program};

use crate::debian::apt::failed;
use crate::step::Outcome;
use crate::vm::Options;
use crate::vm::binaries::{self, Binaries, stripped};
use crate::vm::boot::Boot;
use crate::vm::built;
use crate::vm::fetch::sources;
use crate::vm::image::Image;
use crate::vm::kernels::{Kernel, ONE_KERNEL};
use crate::vm::kit::{Kit, LIMITS};
use crate::vm::machine::Showed;
use crate::vm::order;
use crate::vm::programs::{self, Need, Row};
use crate::vm::skips::{self, Noted};
use crate::vm::strict;
use crate::vm::summary::Tally;
use crate::vm::verdict::{Limits, Ran};
use crate::vm::world::World;

/// Runs the table's programs for a world on a kernel.
pub(crate) fn world(kit: &Kit, name: &str, world: World, options: &Options) -> (Outcome, Tally) {
    match run(kit, name, world, options) {
        Ok((outcome, showed)) => (outcome, Tally::new(world, name, Some(&showed), "")),
        Err(outcome) => {
            let word = if matches!(outcome, Outcome::Skipped(_)) { "skipped" } else { "FAILED" };
            (outcome, Tally::new(world, name, None, word))
        }
    }
}

fn run(
    kit: &Kit,
    name: &str,
    world: World,
    options: &Options,
) -> Result<(Outcome, Showed), Outcome> {
    let preparing = kit.preparing.lock().unwrap_or_else(PoisonError::into_inner);
    let (kernel, rows, binaries) = build(kit, name, world, options)?;
    let noted = Noted::read(world, &kernel).map_err(Outcome::Failed)?;
    println!("vm: world {} on {}", world.letter(), kernel.version);

    let mut image = kit.bare()?;
    image.add_debian(&kit.guest).map_err(Outcome::Failed)?;
    scripts(&mut image)?;
    let plan = plan(&mut image, &rows, (&kernel, world), &binaries, options)?;
    let left_out = rows.len() - plan.programs.len();
    let seconds = plan.programs.iter().chain(&plan.setup).map(|program| program.seconds).sum();
    let boot = Boot {
        qemu: &kit.qemu,
        accel: kit.accel,
        processors: options.processors,
        kernel: &kernel.image,
        name: format!("{}-{name}", world.letter()),
        image,
        plan,
        server: server(world, &binaries, options)?,
        iommu: world.has_iommu(),
        // Every program ends at its limit. The rest is for cleaning up after programs.
        limits: Limits { total: LIMITS.total + Duration::from_secs(seconds), ..LIMITS },
    };
    let folder = boot.folder();
    drop(preparing);
    let label = if options.beside { format!("{} {name}", world.letter()) } else { String::new() };
    let showed = boot.run(|ran| tell(&label, ran))?;
    let mut outcome = judge(&showed, &noted);
    if world == World::V && matches!(outcome, Outcome::Counted(_)) {
        let log = folder.join(DEVICE_LOG);
        let ordered = if name == ONE_KERNEL { order::compare(&log) } else { Ok(()) };
        if let Err(why) = ordered.and_then(|()| strict::check(&log)) {
            outcome = Outcome::Failed(why);
        }
    }
    let outcome = match outcome {
        Outcome::Counted(what) if left_out > 0 => {
            Outcome::Counted(format!("{what} on {}, {left_out} left out", kernel.version))
        }
        Outcome::Counted(what) => Outcome::Counted(format!("{what} on {}", kernel.version)),
        other => other,
    };
    if !options.keep {
        let _ = fs::remove_file(folder.join("image.cpio"));
    }
    if options.keep || matches!(outcome, Outcome::Failed(_)) {
        println!("vm: logs in {}", folder.display());
        let mut ran = showed.ran.iter().skip(usize::from(showed.has_setup));
        if let Some(ran) = ran.find(|ran| !ran.is_success()) {
            let letter = world.letter();
            println!(
                "vm: again: cargo xtask vm --world {letter} --kernel {name} --test {}",
                ran.name
            );
        }
    } else {
        let _ = fs::remove_dir_all(&folder);
    }
    Ok((outcome, showed))
}

/// Downloads the kernel, and builds the programs of the table's rows.
pub(crate) fn build(
    kit: &Kit,
    name: &str,
    world: World,
    options: &Options,
) -> Result<(Kernel, Vec<Row>, Binaries), Outcome> {
    let mut kernel = Kernel::fetch(name)?;
    if let Some(source) = world.built() {
        kernel.modules.add(built::modules(source, &kernel)?);
    }
    let rows = rows(&kernel, world, options)?;
    let needs = rows.iter().flat_map(Row::needs).collect();
    let binaries = binaries::build(&needs, &kit.guest)?;
    Ok((kernel, rows, binaries))
}

/// Rows of the table that run.
fn rows(kernel: &Kernel, world: World, options: &Options) -> Result<Vec<Row>, Outcome> {
    let mut rows = programs::read().map_err(Outcome::Failed)?;
    rows.retain(|row| row.is_for(world, kernel) && options.wants(row));
    if rows.is_empty() && !options.shell {
        let why =
            format!("no program's name contains {} (--list names them)", options.test.join(" or "));
        // With several worlds, another world may have the program.
        let one = options.world.len() == 1;
        return Err(if one { Outcome::Failed(why) } else { Outcome::Skipped(why) });
    }
    for row in &mut rows {
        row.words.extend(options.words.iter().cloned());
    }
    Ok(rows)
}

/// Adds the scripts of the table's folder as /vm/NAME.
pub(crate) fn scripts(image: &mut Image) -> Result<(), Outcome> {
    let folder = sources();
    let entries = fs::read_dir(&folder).map_err(|error| failed(&folder, &error))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.extension().is_some_and(|end| end == "sh" || end == "py") {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            image.file(&format!("vm/{name}"), &path);
        }
    }
    Ok(())
}

/// Number of each object that `tests/lifecycle/life.rs` makes in a guest, and of the rarer ones: a
/// guest makes some two hundred in a second. The variable of this name overrides it.
const OBJECTS: (&str, &str) = ("UVERBS_TEST_OBJECTS", "2000,200");
/// Variable with the length of the long messages of `tests/wire/interop.rs`.
const BYTES: &str = "UVERBS_TEST_BYTES";
/// Minimum of each program's limit in seconds, if the variable is set.
const LONG: u64 = 7200;

/// Makes the guest's plan, and adds its files to the image.
pub(crate) fn plan(
    image: &mut Image,
    rows: &[Row],
    (kernel, world): (&Kernel, World),
    binaries: &Binaries,
    options: &Options,
) -> Result<Plan, Outcome> {
    let mut plan = Plan { shell: options.shell, ..Plan::default() };
    let objects = std::env::var(OBJECTS.0).unwrap_or_else(|_| OBJECTS.1.to_owned());
    for (key, value) in [
        ("HOME", "/root"),
        ("LD_LIBRARY_PATH", "/usr/lib/x86_64-linux-gnu"),
        ("PATH", "/usr/bin"),
        ("RUST_BACKTRACE", "1"),
        ("UVERBS_TEST_DEVICE", world.device()),
        (OBJECTS.0, &objects),
    ] {
        plan.environment.push((key.to_owned(), value.to_owned()));
    }
    if let Some(address) = world.address() {
        plan.environment.push(("UVERBS_TEST_ADDRESS".to_owned(), address.to_owned()));
    }
    let mut least = 0;
    if let Ok(bytes) = std::env::var(BYTES) {
        plan.environment.push((BYTES.to_owned(), bytes));
        least = LONG;
    }
    for module in kernel.modules.closure(world.modules()).map_err(Outcome::Failed)? {
        let path = format!("vm/modules/{}.ko", module.name);
        image.text(&path, module.bytes);
        plan.modules.push(format!("/{path}"));
    }
    let (script, seconds) = world.setup();
    let words = vec!["sh".to_owned(), format!("/vm/{script}")];
    plan.setup = Some(Program { name: "set-up".to_owned(), seconds, words });
    let tool = stripped(&binaries.program("uverbs")?)?;
    image.program("usr/bin/uverbs", &tool).map_err(Outcome::Failed)?;
    for row in rows {
        if row.needs().any(|need| matches!(need, Need::C(_)) && binaries.get(need).is_none()) {
            println!("vm: {} is left out: no gcc here", row.name);
            continue;
        }
        let mut words = row.words.clone();
        for word in &mut words {
            let Some(need) = Need::of(word) else {
                continue;
            };
            let built = binaries.get(need).ok_or_else(|| {
                Outcome::Failed(format!("programs.txt: {}: cargo builds no {word}", row.name))
            })?;
            let path = need.path();
            image.program(&path, &stripped(built)?).map_err(Outcome::Failed)?;
            *word = format!("/{path}");
        }
        let (name, seconds) = (row.name.clone(), row.seconds.max(least));
        plan.programs.push(Program { name, seconds, words });
    }
    Ok(plan)
}

/// Log of the device's commands, in the run's folder.
const DEVICE_LOG: &str = "device.log";

/// Command that serves the world's devices, if it needs one.
pub(crate) fn server(
    world: World,
    binaries: &Binaries,
    options: &Options,
) -> Result<Option<Command>, Outcome> {
    let Some(words) = world.server() else {
        return Ok(None);
    };
    let mut command = Command::new(binaries.program("uverbs")?);
    command.args(words);
    if let Some(card) = &options.card {
        command.args(["--profile", card]);
    }
    if options.mapped_doorbells {
        command.args(["--guest-doorbells", "mapped"]);
    }
    if options.keep || world == World::V {
        command.args(["--log", DEVICE_LOG]);
    }
    Ok(Some(command))
}

/// Prints a line for a program that ended, its output if it failed, and its skipped tests. The
/// label distinguishes two guests that run at once.
pub(crate) fn tell(label: &str, ran: &Ran) {
    let Some((end, ms)) = ran.end else {
        return;
    };
    let skips = ran.output.iter().filter(|line| skips::parse(line).is_some()).count();
    let word = match (end.is_success(), skips) {
        (false, _) => format!("FAILED: {end}"),
        (true, 0) => "ok".to_owned(),
        (true, _) => format!("ok, {skips} skipped"),
    };
    println!("{label}{:>8.1} s  {:<28} {word}", ms as f64 / 1000.0, ran.name);
    for line in &ran.output {
        let told = skips::parse(line).is_some() || line.starts_with("ratio ");
        if !end.is_success() || told {
            println!("{label}            {line}");
        }
    }
}

/// Reason of a failed run: the whole run's, or its programs'.
pub(crate) fn fault(showed: &Showed) -> Option<String> {
    if let Some(failure) = &showed.failure {
        let running = showed.ran.iter().rfind(|ran| ran.end.is_none());
        let running = running.map(|ran| format!(" (while {} ran)", ran.name)).unwrap_or_default();
        return Some(format!("{failure}{running}"));
    }
    let failed: Vec<String> = showed
        .ran
        .iter()
        .filter(|ran| !ran.is_success())
        .map(|ran| match ran.end {
            Some((end, _)) => format!("{} ({end})", ran.name),
            None => ran.name.clone(),
        })
        .collect();
    let count = showed.programs();
    (!failed.is_empty())
        .then(|| format!("{} of {count} programs: {}", failed.len(), failed.join(", ")))
}

/// Outcome of a run, in a line. `noted` are the expected skips.
pub(crate) fn judge(showed: &Showed, noted: &Noted) -> Outcome {
    if let Some(why) = fault(showed) {
        return Outcome::Failed(why);
    }
    if let Err(why) = noted.compare(&showed.ran) {
        return Outcome::Failed(why);
    }
    let (count, skips) = (showed.programs(), skips::of_run(&showed.ran).len());
    Outcome::Counted(format!("{count} of {count} programs, {skips} skips"))
}
