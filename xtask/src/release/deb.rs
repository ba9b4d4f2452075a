//! `cargo xtask deb`: Debian packages of the command line and of the libraries for C programs, from
//! the control files in `packaging/debian`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::Args;
use goblin::elf::Elf;

use crate::c_stack::c_abi;
use crate::debian::apt::{create, failed, is_there};
use crate::debian::target;
use crate::release::installed::lay_out_texts;
use crate::step::{Outcome, Steps, output, run};
use crate::targets;

const MINUTES: Duration = Duration::from_secs(60);
/// Folder of the control files, in the workspace.
const SOURCES: &str = "packaging/debian";
/// Package of the command line.
pub(crate) const TOOLS: &str = "uverbs-tools";
/// Package of the libraries for C programs.
pub(crate) const LIBRARIES: &str = "uverbs-libibverbs";
/// Folder in which `/usr/bin/uverbs run` looks for the libraries.
pub(crate) const LIBRARY_FOLDER: &str = "usr/lib/uverbs";

/// Options of `cargo xtask deb`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Pack the dev profile's build, which takes less time.
    #[arg(long)]
    debug: bool,
    /// Then install the packages into a Debian root, and run the commands of
    /// packaging/Containerfile and docs/book/src/ci.md there.
    #[arg(long)]
    check: bool,
}

/// Runs the steps.
pub(crate) fn steps(steps: &mut Steps, options: &Options) {
    let mut packed = None;
    steps.step("Debian packages", || match pack(options.debug) {
        Ok(files) => {
            let shown: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
            packed = Some(files);
            Outcome::Counted(shown.join(" "))
        }
        Err(outcome) => outcome,
    });
    if let Some(files) = packed {
        steps.step("lintian", || lintian(&files));
        if options.check {
            steps.step("Debian packages, installed", || crate::release::container::install(&files));
            steps.step("container", || crate::release::container::replay(&files));
        }
    }
}

/// Builds and packs both packages.
fn pack(debug: bool) -> Result<[PathBuf; 2], Outcome> {
    let base = target().join("deb");
    let built = built(debug)?;
    let program = built.join("uverbs");

    let tools = fresh(&base.join(TOOLS))?;
    let into = place(&program, &tools.join("usr/bin/uverbs"), 0o755)?;
    strip(&into)?;
    lay_out_texts(&program, &tools.join("usr/share"))?;
    for page in files(&tools.join("usr/share/man"))? {
        gzip(&page)?;
    }

    let libraries = fresh(&base.join(LIBRARIES))?;
    let prefix = libraries.join(LIBRARY_FOLDER);
    let library = c_abi::copy(&built.join(c_abi::BUILT), &prefix)?;
    let nodes = c_abi::copy_nodes(&built, &prefix)?;
    for file in [&library, &nodes] {
        mode(file, 0o644)?;
        strip(file)?;
    }

    Ok([finish(&tools, TOOLS, &into)?, finish(&libraries, LIBRARIES, &library)?])
}

/// Builds the program and the libraries, and returns their folder.
fn built(debug: bool) -> Result<PathBuf, Outcome> {
    let (profile, folder) = if debug { ("dev", "debug") } else { ("release", "release") };
    let mut words = vec!["build", "--quiet", "--profile", profile];
    // The workspace's tests build the libraries with the same words.
    words.extend(debug.then_some("--lib"));
    let build = targets::of_workspace(&words, "--bin", ["uverbs"]);
    done(run(build, 30 * MINUTES))?;
    if !debug {
        done(c_abi::lay_out(None))?;
    }
    Ok(target().join(folder))
}

/// Writes the files that every package has, and packs the folder.
fn finish(stage: &Path, name: &str, binary: &Path) -> Result<PathBuf, Outcome> {
    let doc = stage.join("usr/share/doc").join(name);
    create(&doc)?;
    let licence = read("LICENSE-MIT")?;
    let copyright = read(&format!("{SOURCES}/copyright"))?.replace("@MIT@\n", &indented(&licence));
    write(&doc.join("copyright"), &copyright)?;
    let log = doc.join("changelog");
    write(&log, &changelog(name, &date()?))?;
    gzip(&log)?;

    let architecture = done_text("dpkg", &["--print-architecture"])?;
    let bytes = fs::read(binary).map_err(|error| failed(binary, &error))?;
    let depends = depends(&bytes).map_err(|why| failed(binary, &why))?;
    let control = stage.join("DEBIAN");
    create(&control)?;
    sums(stage, &control)?;
    let kib = |file: &PathBuf| file.symlink_metadata().map_or(0, |it| it.len().div_ceil(1024));
    let size: u64 = files(&stage.join("usr"))?.iter().map(kib).sum();
    let text = read(&format!("{SOURCES}/{name}.control"))?
        .replace("@VERSION@", VERSION)
        .replace("@ARCHITECTURE@", architecture.trim())
        .replace("@SIZE@", &size.to_string())
        .replace("@DEPENDS@", &depends);
    write(&control.join("control"), &text)?;
    folders(stage)?;

    let deb = stage.with_file_name(format!("{name}_{VERSION}_{}.deb", architecture.trim()));
    let mut build = Command::new("dpkg-deb");
    build.args(["--root-owner-group", "--build"]).arg(stage).arg(&deb);
    // Equal files give equal packages.
    build.env("SOURCE_DATE_EPOCH", done_text("git", &["log", "-1", "--format=%ct"])?.trim());
    done(run(build, 5 * MINUTES))?;
    Ok(deb)
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Dependencies of a binary: the C library's version of its newest symbol, and libgcc.
fn depends(binary: &[u8]) -> Result<String, String> {
    let elf = Elf::parse(binary).map_err(|error| error.to_string())?;
    let needs = elf.verneed.iter().flat_map(|needs| needs.iter());
    let names = needs.flat_map(|need| need.iter().collect::<Vec<_>>());
    let names: Vec<&str> = names.filter_map(|name| elf.dynstrtab.get_at(name.vna_name)).collect();
    let newest = newest(&names).ok_or("it asks for no version of the C library")?;
    let mut depends = format!("libc6 (>= {newest})");
    if elf.libraries.contains(&"libgcc_s.so.1") {
        depends.push_str(", libgcc-s1");
    }
    Ok(depends)
}

/// Newest version: `2.34` of `GLIBC_2.2.5` and `GLIBC_2.34`.
fn newest(names: &[&str]) -> Option<String> {
    let numbers =
        |text: &str| text.split('.').map(|it| it.parse().ok()).collect::<Option<Vec<u32>>>();
    let versions = names.iter().filter_map(|name| numbers(name.strip_prefix("GLIBC_")?));
    let newest: Vec<String> = versions.max()?.iter().map(u32::to_string).collect();
    Some(newest.join("."))
}

fn changelog(name: &str, date: &str) -> String {
    format!(
        "{name} ({VERSION}) unstable; urgency=medium\n\n  * What changed is in CHANGELOG.md of the \
         sources.\n\n -- The uverbs maintainers <maintainers@uverbs.invalid>  {date}\n"
    )
}

/// Date of the last commit, so that a package does not depend on the time of its build.
fn date() -> Result<String, Outcome> {
    Ok(done_text("git", &["log", "-1", "--format=%cD"])?.trim().to_owned())
}

/// Field of several lines: each begins with a blank, an empty line is a point.
fn indented(text: &str) -> String {
    text.lines().map(|line| format!(" {}\n", if line.is_empty() { "." } else { line })).collect()
}

/// Checks the packages with lintian.
fn lintian(debs: &[PathBuf]) -> Outcome {
    if !is_there("lintian") {
        return Outcome::Skipped("no lintian here (apt-get install lintian)".to_owned());
    }
    let mut lintian = Command::new("lintian");
    lintian.args(["--fail-on", "error,warning", "--allow-root"]).args(debs);
    run(lintian, 10 * MINUTES)
}

fn strip(binary: &Path) -> Result<(), Outcome> {
    let mut strip = Command::new("strip");
    strip.args(["--strip-unneeded", "--remove-section=.comment"]).arg(binary);
    done(run(strip, 5 * MINUTES))
}

/// Compresses a file without its time, so that equal files give equal results.
fn gzip(file: &Path) -> Result<(), Outcome> {
    let mut gzip = Command::new("gzip");
    gzip.args(["-9", "--no-name", "--force"]).arg(file);
    done(run(gzip, MINUTES))
}

/// Writes `md5sums`, which `dpkg --verify` reads.
fn sums(stage: &Path, control: &Path) -> Result<(), Outcome> {
    let mut names = Vec::new();
    for file in files(&stage.join("usr"))? {
        if file.symlink_metadata().is_ok_and(|it| it.is_file()) {
            names.push(file.strip_prefix(stage).unwrap_or(&file).to_owned());
        }
    }
    let mut md5sum = Command::new("md5sum");
    md5sum.current_dir(stage).args(names);
    write(&control.join("md5sums"), &output(md5sum, MINUTES)?)
}

/// Files below a folder, by name.
pub(crate) fn files(folder: &Path) -> Result<Vec<PathBuf>, Outcome> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| failed(folder, &error))?.flatten() {
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => found.extend(files(&entry.path())?),
            false => found.push(entry.path()),
        }
    }
    found.sort();
    Ok(found)
}

/// Sets the mode of all folders to 0755, whatever the umask.
fn folders(folder: &Path) -> Result<(), Outcome> {
    mode(folder, 0o755)?;
    for entry in fs::read_dir(folder).map_err(|error| failed(folder, &error))?.flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => folders(&entry.path())?,
            Ok(kind) if kind.is_file() && !entry.path().ends_with("bin/uverbs") => {
                mode(&entry.path(), 0o644)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn fresh(folder: &Path) -> Result<PathBuf, Outcome> {
    let _ = fs::remove_dir_all(folder);
    create(folder)?;
    Ok(folder.to_owned())
}

fn place(from: &Path, to: &Path, bits: u32) -> Result<PathBuf, Outcome> {
    create(to.parent().unwrap_or(to))?;
    fs::copy(from, to).map_err(|error| failed(from, &error))?;
    mode(to, bits)?;
    Ok(to.to_owned())
}

fn mode(path: &Path, bits: u32) -> Result<(), Outcome> {
    fs::set_permissions(path, fs::Permissions::from_mode(bits))
        .map_err(|error| failed(path, &error))
}

fn read(path: &str) -> Result<String, Outcome> {
    fs::read_to_string(path).map_err(|error| failed(Path::new(path), &error))
}

fn write(path: &Path, text: &str) -> Result<(), Outcome> {
    fs::write(path, text).map_err(|error| failed(path, &error))
}

fn done(outcome: Outcome) -> Result<(), Outcome> {
    match outcome {
        Outcome::Passed | Outcome::Counted(_) => Ok(()),
        other => Err(other),
    }
}

/// Output of a program of the machine; a skip without the program.
fn done_text(program: &str, words: &[&str]) -> Result<String, Outcome> {
    if !is_there(program) {
        return Err(Outcome::Skipped(format!("no {program} here")));
    }
    let mut command = Command::new(program);
    command.args(words);
    output(command, MINUTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_decides() {
        let names = ["GCC_4.2.0", "GLIBC_2.2.5", "GLIBC_2.34", "GLIBC_2.9", "GLIBC_PRIVATE"];
        assert_eq!(newest(&names).as_deref(), Some("2.34"));
        assert_eq!(newest(&["GCC_3.0"]), None);
    }

    #[test]
    fn this_program_needs_a_c_library() {
        let program = std::env::current_exe().and_then(fs::read).expect("readable");
        let depends = depends(&program).expect("an ELF file");
        assert!(depends.starts_with("libc6 (>= 2."), "{depends}");
        assert!(super::depends(b"no ELF").is_err());
    }

    #[test]
    fn a_licence_is_a_field_of_several_lines() {
        assert_eq!(indented("MIT\n\nPermission\n"), " MIT\n .\n Permission\n");
    }
}
