//! `cargo xtask vm`: runs the tests and the C stack's programs on real kernels in QEMU
//! (`tests/vm/README.md`).

pub(crate) mod binaries;
pub(crate) mod board;
pub(crate) mod boot;
mod built;
mod cpio;
pub(crate) mod fetch;
pub(crate) mod image;
pub(crate) mod kernels;
pub(crate) mod kit;
mod libraries;
pub(crate) mod machine;
mod modules;
mod order;
mod programs;
pub(crate) mod pyverbs;
pub(crate) mod run;
mod self_test;
mod server;
pub(crate) mod skips;
mod strict;
mod summary;
pub(crate) mod table;
pub(crate) mod verdict;
pub(crate) mod world;

use std::process::ExitCode;
use std::sync::OnceLock;

use clap::Args;

use crate::step::{Named, Outcome, Steps, named};
use kernels::{ONE_KERNEL, USUAL};
use kit::Kit;
use programs::Row;
use summary::Tally;
use world::World;

const EXAMPLES: &str = "\
Examples:
  cargo xtask vm                                        every world on every kernel
  cargo xtask vm --world b --kernel 6.12                one world on one kernel
  cargo xtask vm --list --world b                       what would run there
  cargo xtask vm --world e --kernel 6.12 --test rping   programs by name
  cargo xtask vm --pyverbs --ours                       rdma-core's own tests on our libraries
  cargo xtask vm --world b --kernel newest --shell --test devinfo
                                                        a shell in the guest, with the devices

tests/vm/README.md tells how it works, and how to add a program.
";

/// Options of `cargo xtask vm`.
#[derive(Debug, Args)]
#[command(about = "Run tests in virtual machines with real kernels", after_help = EXAMPLES)]
pub(crate) struct Options {
    /// Devices of the machine; may be repeated [default: every world in turn].
    #[arg(long, value_enum)]
    world: Vec<World>,
    /// 6.1, 6.12, newest, or the VERSION of a package linux-image-VERSION; may be repeated
    /// [default: 6.1, 6.12 and newest].
    #[arg(long, value_parser = kernels::named)]
    kernel: Vec<String>,
    /// Run only programs of tests/vm/programs.txt (with --pyverbs, tests) whose name contains this;
    /// may be repeated.
    #[arg(long, value_name = "NAME")]
    test: Vec<String>,
    /// Processors of the machine.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    processors: u8,
    /// Card whose capabilities the devices of worlds B and E have, as `uverbs softhca serve
    /// --profile` takes it [default: connectx-6dx].
    #[arg(long, value_name = "NAME")]
    card: Option<String>,
    /// Let guests of worlds B, E and V map the doorbell pages.
    #[arg(long)]
    mapped_doorbells: bool,
    /// List the programs, and run nothing.
    #[arg(long)]
    list: bool,
    /// Keep the image and the logs (target/vm/runs) of a passed run, and the device's log of
    /// commands. The logs of a failed run are always kept.
    #[arg(long)]
    keep: bool,
    /// Start a shell in the guest after the programs, on this terminal. `exit` ends it.
    #[arg(long)]
    shell: bool,
    /// Test the harness instead: boot guests that misbehave. The harness must notice each.
    #[arg(long)]
    self_test: bool,
    /// Run rdma-core's test suite instead, and compare with tests/vm/pyverbs [default: world E on
    /// 6.12].
    #[arg(long, conflicts_with_all = ["self_test", "shell", "list"])]
    pyverbs: bool,
    /// Replace Debian's libibverbs, libmlx5 and librdmacm by ours. The tables are in
    /// tests/vm/pyverbs/ours.
    #[arg(long, requires = "pyverbs")]
    ours: bool,
    /// Write the suite's outcomes to tests/vm/pyverbs instead of comparing them.
    #[arg(long, requires = "pyverbs", conflicts_with = "test")]
    bless: bool,
    /// True if another guest runs at the same time.
    #[arg(skip)]
    beside: bool,
    /// More arguments for each program.
    #[arg(last = true)]
    words: Vec<String>,
}

/// Runs the chore.
pub(crate) fn chore(options: Options) -> ExitCode {
    if options.list {
        return list(&options);
    }
    let mut steps = Steps::default();
    let tallies = add(&mut steps, options);
    let code = steps.summary();
    let table = summary::table(&tallies);
    if !table.is_empty() {
        println!("\n{table}");
    }
    code
}

/// Prints the rows that would run.
fn list(options: &Options) -> ExitCode {
    let worlds = options.worlds();
    let rows = match programs::read() {
        Ok(rows) => rows,
        Err(why) => {
            eprintln!("vm: {why}");
            return ExitCode::FAILURE;
        }
    };
    for world in worlds {
        println!("world {}, {}:", world.letter(), world.words());
        for row in rows.iter().filter(|row| row.is_of(world) && options.wants(row)) {
            println!("  {:<24} {}", row.name, row.words.join(" "));
        }
    }
    ExitCode::SUCCESS
}

impl Options {
    /// Options of the test command's runs.
    fn usual(world: World, processors: u8) -> Self {
        Self {
            world: vec![world],
            kernel: Vec::new(),
            test: Vec::new(),
            processors,
            // The one other card whose rows are the same.
            card: (world == World::B).then(|| "connectx-7".to_owned()),
            mapped_doorbells: false,
            list: false,
            keep: false,
            shell: false,
            self_test: false,
            pyverbs: false,
            ours: false,
            bless: false,
            beside: true,
            words: Vec::new(),
        }
    }

    fn worlds(&self) -> Vec<World> {
        match &self.world[..] {
            [] if self.pyverbs => vec![World::E],
            [] => World::ALL.to_vec(),
            named => named.to_vec(),
        }
    }

    /// Returns true if `--test` selects the row.
    fn wants(&self, row: &Row) -> bool {
        self.test.is_empty() && (!row.on_demand || self.list)
            || self.test.iter().any(|part| row.name.contains(part))
    }
}

/// Adds the steps of `cargo xtask test`: the self-test, world C on every kernel, and worlds B, E
/// and V, which take longer, on one kernel. Two guests run at a time.
///
/// World B has two processors, worlds E and V one. A virtual processor spins while it waits for
/// another processor of its guest. Four virtual processors on two cores keep each other from
/// running: both guests take three times as long as one after the other.
///
/// Adds no step without the kit of [`make_ready`].
pub(crate) fn add_usual(steps: &mut Steps, kit: Option<&Kit>) {
    let Some(kit) = kit else { return };
    let job = |world: World, kernel: &'static str, processors: u8| -> Named<'_> {
        let options = Options::usual(world, processors);
        named(step_name(world, kernel), move || run::world(kit, kernel, world, &options).0)
    };
    let mut jobs: Vec<Named<'_>> = vec![
        job(World::B, ONE_KERNEL, 2),
        job(World::E, ONE_KERNEL, 1),
        job(World::V, ONE_KERNEL, 1),
    ];
    // Since 6.5 soft-RoCE acknowledges in a thread. On one processor a client may get its message
    // and exit before the acknowledgement, for which the server then waits.
    jobs.extend(USUAL.map(|kernel| job(World::C, kernel, if kernel == USUAL[0] { 1 } else { 2 })));
    // Second to last, so that the last two guests with two processors don't run at once.
    let self_test = move || self_test::run(kit, ONE_KERNEL);
    jobs.insert(jobs.len() - 1, named(self_test_name(ONE_KERNEL), self_test));
    steps.two_at_a_time(jobs);
}

/// Prepares the kit of [`add_usual`]. A processor is idle for most of a minute, so other steps may
/// run beside it.
pub(crate) fn make_ready(kit: &OnceLock<Kit>) -> Outcome {
    ready(kit, ONE_KERNEL, &[World::B, World::E, World::V])
}

/// Downloads and builds the kit, and the programs of these worlds.
fn ready(kit: &OnceLock<Kit>, kernel: &str, worlds: &[World]) -> Outcome {
    let made = Kit::new(kernel).and_then(|made| {
        for &world in worlds {
            run::build(&made, kernel, world, &Options::usual(world, 1))?;
        }
        Ok(made)
    });
    match made {
        Ok(made) => Outcome::Counted(format!("{:?}", kit.get_or_init(|| made).accel)),
        Err(outcome) => outcome,
    }
}

fn self_test_name(kernel: &str) -> String {
    format!("vm, self-test, {kernel}")
}

fn step_name(world: World, kernel: &str) -> String {
    format!("vm, world {}, {kernel}", world.letter())
}

/// Runs the steps, and returns the counts of each world on each kernel.
fn add(steps: &mut Steps, options: Options) -> Vec<Tally> {
    let mut tallies = Vec::new();
    let worlds = options.worlds();
    let kernels = match &options.kernel[..] {
        [] if options.self_test || options.pyverbs => vec![ONE_KERNEL.to_owned()],
        [] => USUAL.map(str::to_owned).to_vec(),
        named => named.to_vec(),
    };
    let kit = OnceLock::new();
    steps.step("vm, made ready", || ready(&kit, &kernels[0], &[]));
    let Some(kit) = kit.get() else { return tallies };
    if options.self_test {
        for kernel in kernels {
            steps.step(self_test_name(&kernel), || self_test::run(kit, &kernel));
        }
        return tallies;
    }
    for world in worlds {
        for kernel in &kernels {
            if options.pyverbs {
                let ours = if options.ours { " on ours" } else { "" };
                let name = format!("vm, pyverbs{ours}, world {}, {kernel}", world.letter());
                steps.step(name, || pyverbs::run(kit, kernel, world, &options));
                continue;
            }
            steps.step(step_name(world, kernel), || {
                let (outcome, tally) = run::world(kit, kernel, world, &options);
                tallies.push(tally);
                outcome
            });
        }
    }
    tallies
}
