//! Tells the linker of the shared object's name and of its version nodes.

use std::path::Path;

fn main() {
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("libibverbs.map");
    println!("cargo::rerun-if-changed={}", map.display());
    for arg in [
        "-soname,libibverbs.so.1".to_owned(),
        format!("--version-script={}", map.display()),
        // Its threads and their destructors don't survive an unloading.
        "-z,nodelete".to_owned(),
    ] {
        println!("cargo::rustc-cdylib-link-arg=-Wl,{arg}");
    }
}
