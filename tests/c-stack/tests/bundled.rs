//! Programs that bring their own libibverbs, as wheels of PyPI do: a copy under another name in a
//! folder of the program's search path.

use std::path::{Path, PathBuf};
use std::process::Command;

use c_stack::{CStack, run};

const NAME: &[u8] = b"libibverbs.so.1\0";
/// Name of the same length.
const RENAMED: &str = "libibverb5.so.1";

/// Copies the distribution's libibverbs into a folder of a wheel's shape. Like auditwheel, it
/// changes the name in the file, so that a program needs this copy.
fn bundle(stack: &CStack, folder: &Path) {
    let mut bytes = std::fs::read(stack.their_library()).unwrap();
    let places = bytes.windows(NAME.len()).enumerate().filter(|(_, part)| *part == NAME);
    let [(place, _)] = places.collect::<Vec<_>>()[..] else { panic!("not one {NAME:?}") };
    bytes[place..][..RENAMED.len()].copy_from_slice(RENAMED.as_bytes());
    std::fs::create_dir_all(folder).unwrap();
    std::fs::write(folder.join(RENAMED), bytes).unwrap();
}

#[test]
fn ours_serves_a_program_with_its_own_libibverbs() {
    let Some(stack) = c_stack::unpacked() else { return };
    let Some(tool) = std::env::var_os("UVERBS_TOOL").filter(|path| !path.is_empty()) else {
        c_stack::skip("UVERBS_TOOL is not set (`cargo xtask judge` sets it)");
        return;
    };
    let folder: PathBuf = c_stack::our_folder().join("wheel.libs");
    bundle(&stack, &folder);
    let text = folder.to_str().unwrap();
    let (library, path) = (format!("-l:{RENAMED}"), format!("-Wl,-rpath,{text}"));
    // wheels have the older tag, which precedes LD_LIBRARY_PATH.
    let words = ["-L", text, &library, &path, "-Wl,--disable-new-dtags,--allow-shlib-undefined"];
    let Some(program) = stack.compile_with("first_device", &words) else { return };
    let others = std::env::join_paths(stack.library_folders()).unwrap();
    // Its own library finds no device here.
    let alone = run(Command::new(&program).env("LD_LIBRARY_PATH", &others));
    assert_eq!(alone.status, Some(3), "{alone:?}");
    let mut command = Command::new(tool);
    command.arg("run").arg("--libraries").arg(c_stack::our_folder());
    command.args(["-d", "softhca0", "--"]).arg(&program).env("LD_LIBRARY_PATH", &others);
    let ours = run(command.env_remove("UVERBS_DEVICE")).ok();
    assert_eq!(ours.stdout, "softhca0\n");
}
