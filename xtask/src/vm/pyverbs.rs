//! rdma-core's test suite in the guest (`cargo xtask vm --pyverbs`): runs it test by test, and
//! compares the outcomes with the noted ones. `--ours` runs it on our C libraries.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uverbs_vm_init::plan::Program;
use uverbs_vm_init::report::End;

use crate::c_stack::c_abi;
use crate::debian::apt::failed;
use crate::step::Outcome;
use crate::vm::Options;
use crate::vm::binaries::{self, stripped};
use crate::vm::boot::Boot;
use crate::vm::fetch::{sources, suite};
use crate::vm::kernels::Kernel;
use crate::vm::kit::{Kit, LIMITS};
use crate::vm::run::{judge, plan, scripts, server};
use crate::vm::skips::Noted;
use crate::vm::table::{Table, beside, judged};
use crate::vm::verdict::Limits;
use crate::vm::world::World;

/// Limit of the suite, which takes two minutes on an idle host.
const LIMIT: Duration = Duration::from_secs(2400);
const NAME: &str = "pyverbs";

/// Folders of the guest's Python: its library, Debian's packages for it, and the tests.
const PYTHON: [&str; 3] = ["usr/lib/python3", "usr/lib/python3.", "usr/share/doc/rdma-core/tests"];

/// Runs the suite in a world on a kernel.
pub(crate) fn run(kit: &Kit, name: &str, world: World, options: &Options) -> Outcome {
    match suite_run(kit, name, world, options) {
        Ok(outcome) | Err(outcome) => outcome,
    }
}

fn suite_run(kit: &Kit, name: &str, world: World, options: &Options) -> Result<Outcome, Outcome> {
    let root = suite()?;
    let kernel = Kernel::fetch(name)?;
    let binaries = binaries::build(&[].into(), &kit.guest)?;
    let version = version(&root)?;
    println!("vm: rdma-core {version}'s tests, world {} on {}", world.letter(), kernel.version);

    let mut image = kit.bare()?;
    image.add_debian(&root).map_err(Outcome::Failed)?;
    for folder in python(&root)? {
        image.add_tree(&root, &folder).map_err(Outcome::Failed)?;
    }
    scripts(&mut image)?;
    let mut plan = plan(&mut image, &[], (&kernel, world), &binaries, options)?;
    let mut words: Vec<String> = ["sh", "/vm/suite.sh"].map(str::to_owned).into();
    words.extend(options.test.clone());
    plan.programs.push(Program { name: NAME.to_owned(), seconds: LIMIT.as_secs(), words });
    if options.ours {
        let library = stripped(&c_abi::build_checked()?)?;
        image.substitute(&c_abi::SONAMES, &library).map_err(Outcome::Failed)?;
    }
    let which = if options.ours { "-ours" } else { "" };
    let boot = Boot {
        qemu: &kit.qemu,
        accel: kit.accel,
        processors: options.processors,
        kernel: &kernel.image,
        name: format!("{NAME}{which}-{}-{name}", world.letter()),
        image,
        plan,
        server: server(world, &binaries, options)?,
        iommu: world.has_iommu(),
        limits: Limits { total: LIMITS.total + LIMIT, ..LIMITS },
    };
    let folder = boot.folder();
    let showed = boot.run(|_| {})?;
    if !options.keep {
        let _ = fs::remove_file(folder.join("image.cpio"));
    }
    println!("vm: logs in {}", folder.display());
    let suite = showed.ran.iter().find(|ran| ran.name == NAME);
    let output = suite.map(|ran| ran.output.join("\n")).unwrap_or_default();
    if !suite.is_some_and(|ran| ran.end.is_some_and(|(end, _)| end == End::Exit(0))) {
        // The last lines have the reason.
        for line in output.lines().rev().take(20).collect::<Vec<_>>().into_iter().rev() {
            println!("    {line}");
        }
    }
    if let Outcome::Failed(why) = judge(&showed, &Noted::default()) {
        return Ok(Outcome::Failed(why));
    }
    let found = Table::of_run(&version, &kernel.version, &output).map_err(Outcome::Failed)?;
    let table = format!("{}-{name}.tsv", world.letter());
    let of_c = sources().join(NAME).join(&table);
    if !options.ours {
        return Ok(judged(&found, &of_c, "vm --pyverbs", options.bless, &options.test));
    }
    let path = sources().join(NAME).join("ours").join(table);
    let outcome = judged(&found, &path, "vm --pyverbs --ours", options.bless, &options.test);
    beside(&found, &of_c, &options.test).map_err(Outcome::Failed)?;
    Ok(outcome)
}

/// Version of rdma-core, from its library's name: `libibverbs.so.1.16.65.0` is of 65.0.
pub(crate) fn version(root: &Path) -> Result<String, Outcome> {
    let folder = root.join("usr/lib/x86_64-linux-gnu");
    let entries = fs::read_dir(&folder).map_err(|error| failed(&folder, &error))?;
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let version = names.filter_map(|name| {
        let mut numbers = name.strip_prefix("libibverbs.so.")?.splitn(3, '.');
        numbers.nth(2).map(str::to_owned)
    });
    version.max().ok_or_else(|| failed(&folder, &"no libibverbs"))
}

/// Folders of [`PYTHON`], for any version of Python.
fn python(root: &Path) -> Result<Vec<PathBuf>, Outcome> {
    let mut folders = Vec::new();
    for start in PYTHON {
        let path = root.join(start);
        let (folder, name) = (path.parent().unwrap_or(root), path.file_name().unwrap_or_default());
        let entries = fs::read_dir(folder).map_err(|error| failed(folder, &error))?;
        for entry in entries.flatten().map(|entry| entry.path()) {
            let found = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let name = name.to_string_lossy();
            let is_wanted = found == name || name.ends_with('.') && found.starts_with(&*name);
            if is_wanted && let Ok(folder) = entry.strip_prefix(root) {
                folders.push(folder.to_owned());
            }
        }
    }
    Ok(folders)
}
