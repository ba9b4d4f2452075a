//! The data path beside the C stack's: one process, one core, one kind of device, in alternation.
//!
//! `cargo bench -p uverbs --bench side_by_side`, with `-- --quick` for a look, `-- --only poll` for
//! the cases with that in their name. `docs/PERFORMANCE.md` has the numbers and what they mean.
//!
//! The device is null: queues are mapped but never processed, and the harness writes completions
//! ahead. What is timed is what the processor spends in the library. The C half is Debian's
//! libibverbs and libmlx5 (`shim.c` has the loops) on a software HCA that is put under them by
//! `tests/c-stack`; ours is on one, too. So this program starts itself once more, under the
//! preloaded library, and a second time for libmlx5 without its locks.

mod abi;
mod c;
mod cases;
mod datagrams;
mod device;
mod measure;
mod ops;
mod ours;
mod prepare;
mod shared;

use std::collections::BTreeMap;
use std::path::Path;

use crate::cases::{CASES, Plan, Sample};
use crate::prepare::{CStack, SHIM};

/// Variants in the order they are printed.
const VARIANTS: [&str; 26] = [
    "c",
    "c_st",
    "c_wr",
    "c_wr_st",
    "c_ex",
    "c_ex_st",
    "abi",
    "abi_st",
    "abi_wr",
    "abi_wr_st",
    "abi_ex",
    "abi_ex_st",
    "raw",
    "any",
    "raw_stays",
    "any_stays",
    "raw_nc",
    "any_nc",
    "raw_kept",
    "any_kept",
    "owned",
    "any_owned",
    "burst",
    "any_burst",
    "into",
    "any_into",
];

type Table = BTreeMap<(String, String), [f64; 3]>;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).filter(|arg| arg != "--bench").collect();
    let plan = match Plan::parse(&args) {
        Ok(plan) => plan,
        Err(why) => {
            eprintln!("{why}");
            std::process::exit(2);
        }
    };
    if cfg!(any(feature = "any-efa", feature = "any-rdmavt", feature = "any-siw")) {
        eprintln!("Any has more providers than by default here, and is slower: -p uverbs");
    }
    if let Some(shim) = std::env::var_os(SHIM) {
        if std::env::var_os(abi::THREADS).is_some() {
            // It sleeps: to glibc the process has threads, and locks are needed.
            std::thread::spawn(|| {
                loop {
                    std::thread::park();
                }
            });
        }
        cases::run(&plan, Some(Path::new(&shim)), &mut print_sample);
        return;
    }
    let mut table = Table::new();
    let source = "benches/side_by_side/shim.c";
    let with_c = CStack::new(source, "libmlx5").and_then(|stack| {
        let mut text = stack.again(&args, &[])?;
        text.push_str(&stack.again(&args, &[("MLX5_SINGLE_THREADED", "1")])?);
        text.push_str(&abi::samples(&stack, &args)?);
        Ok(text)
    });
    match with_c {
        Ok(text) => {
            for line in text.lines() {
                if !read_sample(line, &mut table) {
                    println!("{line}");
                }
            }
        }
        Err(why) => {
            println!("the C half is skipped: {why}");
            cases::run(&plan, None, &mut |sample| {
                print_sample(sample);
            });
            return;
        }
    }
    print_table(&table);
    print_ratios(&table);
}

fn print_sample(sample: &Sample) {
    let Sample { case, variant, spread } = sample;
    println!("sample {case} {variant} {:.3} {:.3} {:.3}", spread.p5, spread.median, spread.p95);
}

fn read_sample(line: &str, table: &mut Table) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    let ["sample", case, variant, p5, median, p95] = words[..] else { return false };
    assert!(VARIANTS.contains(&variant), "{variant} has no place in the table");
    let numbers = [p5, median, p95].map(|word| word.parse().unwrap_or(f64::NAN));
    table.insert((case.to_owned(), variant.to_owned()), numbers);
    true
}

fn print_table(table: &Table) {
    println!("{:<24} {:<12} {:>8} {:>17}", "case", "variant", "ns/op", "p5 .. p95");
    for case in CASES {
        for variant in VARIANTS {
            let key = (case.to_owned(), variant.to_owned());
            if let Some([p5, median, p95]) = table.get(&key) {
                println!("{case:<24} {variant:<12} {median:>8.2} {p5:>7.2} .. {p95:>6.2}");
            }
        }
    }
}

fn print_ratios(table: &Table) {
    let median = |case: &str, variant: &str| {
        table.get(&(case.to_owned(), variant.to_owned())).map(|numbers| numbers[1])
    };
    let print = |name: &str, case: &str, over: &str, under: &str| {
        if let (Some(over), Some(under)) = (median(case, over), median(case, under)) {
            println!("{name} {case} {:.2}", over / under);
        }
    };
    for case in CASES {
        print("ratio", case, "c", "raw");
        print("ratio_into", case, "c", "into");
        print("ratio_stays", case, "c", "raw_stays");
        print("ratio_st", case, "c_st", "raw");
        print("ratio_kept", case, "raw_kept", "owned");
        for [name, c, abi] in [
            ["ratio_abi", "c", "abi"],
            ["ratio_abi_one_thread", "c", "abi_st"],
            ["ratio_abi_wr", "c_wr", "abi_wr"],
            ["ratio_abi_wr_one_thread", "c_wr", "abi_wr_st"],
            ["ratio_abi_ex", "c_ex", "abi_ex"],
            ["ratio_abi_ex_one_thread", "c_ex", "abi_ex_st"],
        ] {
            print(name, case, c, abi);
        }
        print("owned_over_raw", case, "owned", "raw");
        print("owned_over_kept", case, "owned", "raw_kept");
        print("any_over_mono", case, "any", "raw");
    }
    for variant in ["c", "raw"] {
        if let (Some(many), Some(one)) =
            (median("poll_qps_4096", variant), median("poll_qps_1", variant))
        {
            println!("qps_4096_over_1 {variant} {:.2}", many / one);
        }
    }
}
