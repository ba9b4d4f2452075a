//! Self-test of the harness: boots guests that misbehave, and checks each outcome.

use std::fs;
use std::time::Duration;

use uverbs_vm_init::plan::{Plan, Program};

use crate::step::Outcome;
use crate::vm::boot::Boot;
use crate::vm::kernels::Kernel;
use crate::vm::kit::{Kit, LIMITS};
use crate::vm::run::judge;
use crate::vm::skips::Noted;
use crate::vm::verdict::Limits;

/// Guest that runs `misbehave` with each word, and the expected beginning of the run's last line;
/// `None` if the run must pass.
struct Case {
    words: &'static [&'static str],
    last: Option<&'static str>,
}

const CASES: [Case; 9] = [
    Case { words: &["behave", "orphan"], last: None },
    Case {
        words: &["panic", "behave", "abort", "hang"],
        last: Some("3 of 4 programs: panic (exit 101), abort (signal 6), hang (limit)"),
    },
    Case {
        words: &["skip"],
        last: Some("skips that aren't noted: 1, first skip a::test: a reason"),
    },
    Case { words: &["crash"], last: Some("the kernel says: ") },
    Case { words: &["warn"], last: Some("the kernel says: ") },
    Case {
        words: &["behave", "no-verdict"],
        last: Some("no verdict: the guest stopped before it was done"),
    },
    Case { words: &["two-verdicts"], last: Some("two verdicts") },
    Case { words: &["noise"], last: Some("not a line of ours on the results port: ") },
    Case { words: &["silence"], last: Some("stalled: silent for 5 s") },
];

/// Boots each case.
pub(crate) fn run(kit: &Kit, name: &str) -> Outcome {
    match all(kit, name) {
        Ok(outcome) | Err(outcome) => outcome,
    }
}

fn all(kit: &Kit, name: &str) -> Result<Outcome, Outcome> {
    let kernel = Kernel::fetch(name)?;
    let mut wrong = Vec::new();
    for case in &CASES {
        let name = case.words.join(" ");
        let boot = boot(kit, &kernel, case)?;
        let folder = boot.folder();
        let told = match judge(&boot.run(|_| {})?, &Noted::default()) {
            Outcome::Failed(why) => Some(why),
            _ => None,
        };
        let right = match (&told, case.last) {
            (None, None) => true,
            (Some(told), Some(last)) => told.starts_with(last),
            _ => false,
        };
        println!("vm: {name}: {}", told.as_deref().unwrap_or("passed"));
        if right {
            let _ = fs::remove_dir_all(folder);
        } else {
            println!(
                "vm: that is wrong: {}; logs in {}",
                case.last.unwrap_or("passes"),
                folder.display()
            );
            wrong.push(name);
        }
    }
    Ok(match wrong.is_empty() {
        true => Outcome::Counted(format!("{} guests judged as they deserve", CASES.len())),
        false => Outcome::Failed(format!("misjudged: {}", wrong.join("; "))),
    })
}

fn boot<'a>(kit: &'a Kit, kernel: &'a Kernel, case: &Case) -> Result<Boot<'a>, Outcome> {
    let mut plan = Plan::default();
    for &word in case.words {
        let words = vec!["/vm/misbehave".to_owned(), word.to_owned()];
        // `hang` reaches its limit. The others end sooner, or end the run.
        let seconds = if word == "hang" { 2 } else { 30 };
        plan.programs.push(Program { name: word.to_owned(), seconds, words });
    }
    let limits = match case.words {
        ["silence"] => Limits { silence: Duration::from_secs(5), ..LIMITS },
        _ => LIMITS,
    };
    let name = format!("self-test-{}", case.words[0]);
    let image = kit.bare()?;
    Ok(Boot {
        qemu: &kit.qemu,
        accel: kit.accel,
        processors: 1,
        kernel: &kernel.image,
        name,
        image,
        plan,
        server: None,
        iommu: false,
        limits,
    })
}
