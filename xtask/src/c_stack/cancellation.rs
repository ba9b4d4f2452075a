//! Cancellation points in the library for C programs: a check of the file that the linker made
//! after optimisation over all crates.

use std::collections::BTreeMap;
use std::path::Path;

use goblin::elf::section_header::SHF_EXECINSTR;
use goblin::elf::{Elf, Reloc};

/// glibc's cancellation points that a Rust library might call: pthreads(7), both lists. `fcntl` is
/// one if it waits for a lock (`F_SETLKW`), which this library never does.
const POINTS: &str = include_str!("../../../tests/c-stack/cancellation_points.txt");
/// Build script that names the functions which `c-abi/src/base/cancel.rs` replaces.
const BUILD: &str = include_str!("../../../c-abi/build.rs");
/// Functions that the module `waits` of `c-abi/src/base/cancel.rs` calls, too.
const IN_WAITS: [&str; 3] = ["poll", "pthread_testcancel", "read"];

/// Checks that a library calls each cancellation point in one place, the function that replaces it,
/// or in the waits.
pub(crate) fn check(library: &Path) -> Result<(), String> {
    let bytes = std::fs::read(library).map_err(|error| format!("{library:?}: {error}"))?;
    let elf = Elf::parse(&bytes).map_err(|error| format!("{library:?}: {error}"))?;
    let replaced = replaced();
    let slots = slots(&elf);
    let is_known = |name: &str| replaced.contains(&name) || IN_WAITS.contains(&name);
    if let Some(name) = slots.values().find(|name| !is_known(name)) {
        return Err(format!(
            "{name} is a cancellation point: replace it in c-abi/build.rs and cancel.rs"
        ));
    }
    if slots.len() < replaced.len() / 2 {
        return Err(format!("{library:?} imports {} cancellation points", slots.len()));
    }
    if elf.header.e_machine != goblin::elf::header::EM_X86_64 {
        return Ok(());
    }
    match calls(&elf, &bytes, &slots)
        .iter()
        .find(|(name, count)| **count > 1 && !IN_WAITS.contains(name))
    {
        Some((name, count)) => Err(format!(
            "{name} is called in {count} places: --wrap did not replace it (c-abi/build.rs)"
        )),
        None => Ok(()),
    }
}

/// Names in the list of the build script.
fn replaced() -> Vec<&'static str> {
    let list = BUILD.split_once("REPLACED").and_then(|(_, rest)| rest.split_once("];"));
    list.map(|(list, _)| list.split('"').skip(1).step_by(2).collect()).unwrap_or_default()
}

/// Addresses that the loader fills with a cancellation point's, and its name.
fn slots<'a>(elf: &Elf<'a>) -> BTreeMap<u64, &'a str> {
    let named = |relocation: Reloc| {
        let symbol = elf.dynsyms.get(relocation.r_sym)?;
        Some((relocation.r_offset, elf.dynstrtab.get_at(symbol.st_name)?))
    };
    let all = elf.dynrelas.iter().chain(elf.pltrelocs.iter()).filter_map(named);
    all.filter(|(_, name)| POINTS.split_whitespace().any(|point| point == *name)).collect()
}

/// Calls, jumps and loads of x86-64 by slots of the global offset table, by the slot's name.
fn calls<'a>(
    elf: &Elf<'_>,
    bytes: &[u8],
    slots: &BTreeMap<u64, &'a str>,
) -> BTreeMap<&'a str, usize> {
    let mut found = BTreeMap::new();
    let sections = elf.section_headers.iter();
    for section in sections.filter(|section| section.sh_flags & u64::from(SHF_EXECINSTR) != 0) {
        let code = section.file_range().and_then(|range| bytes.get(range)).unwrap_or_default();
        for (at, window) in code.windows(7).enumerate() {
            // `call *slot(%rip)`, `jmp *slot(%rip)`, `mov slot(%rip), %register`.
            let from = match window {
                [0xff, 0x15 | 0x25, ..] => 2,
                [0x48 | 0x4c, 0x8b, modrm, ..] if modrm & 0xc7 == 0x05 => 3,
                _ => continue,
            };
            let offset = i32::from_le_bytes([0, 1, 2, 3].map(|byte| window[from + byte]));
            let next = section.sh_addr + (at + from + 4) as u64;
            if let Some(name) = slots.get(&next.wrapping_add_signed(offset.into())) {
                *found.entry(*name).or_default() += 1;
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A program that is linked without `--wrap`.
    fn program() -> (std::path::PathBuf, Vec<u8>) {
        let path = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        (path, bytes)
    }

    #[test]
    fn a_cancellation_point_that_is_not_replaced_is_seen() {
        let told = check(&program().0).unwrap_err();
        assert!(told.contains("is a cancellation point"), "{told}");
    }

    #[test]
    fn calls_past_a_replacement_are_seen() {
        if cfg!(not(target_arch = "x86_64")) {
            return;
        }
        let (_, bytes) = program();
        let elf = Elf::parse(&bytes).unwrap();
        let calls = calls(&elf, &bytes, &slots(&elf));
        let many = calls.iter().filter(|(_, count)| **count > 1).map(|(name, _)| *name);
        let many: Vec<_> = many.filter(|name| replaced().contains(name)).collect();
        assert!(many.contains(&"close") && many.contains(&"write"), "{calls:?}");
    }
}
