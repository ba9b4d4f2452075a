//! Our libibverbs and libmlx5 in the C stack's place, under the same loops.

use crate::prepare::{CStack, cargo, run, target};

/// Environment variable that tells the process that the C stack is our library.
pub(crate) const OURS: &str = "UVERBS_SIDE_BY_SIDE_OURS";

/// Environment variable that has the process start a second thread.
pub(crate) const THREADS: &str = "UVERBS_SIDE_BY_SIDE_THREADS";

/// Builds our libraries and runs this program on them, with locks and without. Gives the samples,
/// by the names that they have there.
pub(crate) fn samples(stack: &CStack, args: &[String]) -> Result<String, String> {
    let target = target()?;
    let folder = target.join("side_by_side_c_abi");
    let words = ["run", "--quiet", "--package", "xtask", "--", "c-abi", "--prefix"];
    run(cargo(&target).args(words).arg(&folder))?;
    let folder = folder.to_str().ok_or("a target folder whose name isn't UTF-8")?;
    let mut text = String::new();
    // Our library detects if it needs locks; the C variable only names the run.
    for mode in [THREADS, "MLX5_SINGLE_THREADED"] {
        let env = [(mode, "1"), (OURS, "1"), ("LD_LIBRARY_PATH", folder)];
        text.extend(stack.again(args, &env)?.lines().filter_map(renamed));
    }
    Ok(text)
}

/// A sample of the C loops; `None` for any other line.
fn renamed(line: &str) -> Option<String> {
    let mut words: Vec<&str> = line.split(' ').collect();
    let name = format!("abi{}", words.get(2)?.strip_prefix('c')?);
    words[2] = &name;
    Some(words.join(" ") + "\n")
}
