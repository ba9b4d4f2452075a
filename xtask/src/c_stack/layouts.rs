//! `cargo xtask layouts`: makes the tables of layouts and constants from today's C headers, and
//! compares them with the fixtures of `kernel-abi` and `mlx5-prm`.

mod table;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::debian::{self, apt};
use crate::step::{Outcome, run};
use table::{Age, Report, Table, compare};

/// Limit of one generator.
const GENERATE: Duration = Duration::from_secs(60);

/// Origin of headers. [`Self::word`] names it in `versions.txt`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Linux,
    RdmaCore,
}

impl Source {
    const ALL: [Self; 2] = [Self::Linux, Self::RdmaCore];

    fn word(self) -> &'static str {
        match self {
            Self::Linux => "linux",
            Self::RdmaCore => "rdma-core",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Linux => "linux-libc-dev",
            Self::RdmaCore => "libibverbs-dev",
        }
    }

    /// Header that shows that the package is present.
    fn header(self) -> &'static str {
        match self {
            Self::Linux => "rdma/ib_user_ioctl_cmds.h",
            Self::RdmaCore => "infiniband/mlx5dv.h",
        }
    }
}

/// Table: folder and file of the fixture, origin of its headers, and the file of rows that the
/// headers need not have.
struct Compared {
    package: &'static str,
    file: &'static str,
    source: Source,
    besides: Option<&'static str>,
}

const KERNEL_ABI: &str = "kernel-abi";
const MLX5_PRM: &str = "providers/mlx5-prm";

const C_ABI: &str = "c-abi";
const PACKAGES: [&str; 3] = [KERNEL_ABI, MLX5_PRM, C_ABI];

const TABLES: [Compared; 7] = [
    Compared {
        package: KERNEL_ABI,
        file: "layout.tsv",
        source: Source::Linux,
        besides: Some("layout_later.tsv"),
    },
    Compared {
        package: KERNEL_ABI,
        file: "constants.tsv",
        source: Source::Linux,
        besides: Some("constants_uapi_later.tsv"),
    },
    Compared {
        package: KERNEL_ABI,
        file: "constants_verbs.tsv",
        source: Source::RdmaCore,
        besides: Some("constants_later.tsv"),
    },
    Compared {
        package: KERNEL_ABI,
        file: "functions.tsv",
        source: Source::RdmaCore,
        besides: Some("functions_later.tsv"),
    },
    Compared {
        package: MLX5_PRM,
        file: "layout.tsv",
        source: Source::RdmaCore,
        besides: Some("layout_internal.tsv"),
    },
    Compared {
        package: MLX5_PRM,
        file: "constants.tsv",
        source: Source::RdmaCore,
        besides: Some("constants_internal.tsv"),
    },
    Compared {
        package: C_ABI,
        file: "layout.tsv",
        source: Source::RdmaCore,
        besides: Some("layout_later.tsv"),
    },
];

/// Headers of one origin, with their version.
struct Headers {
    /// Folder above `usr`.
    root: PathBuf,
    version: String,
}

/// Makes the tables, and compares them with the fixtures.
pub(crate) fn check() -> Outcome {
    let made = match generate() {
        Ok(made) => made,
        Err(outcome) => return outcome,
    };
    match compare_all(&made) {
        Ok(total) if total.wrong.is_empty() => Outcome::Counted(format!(
            "{} structs, {} fields, {} constants compared",
            total.structs, total.fields, total.constants
        )),
        Ok(total) => Outcome::Failed(format!("{} rows differ", total.wrong.len())),
        Err(why) => Outcome::Failed(why),
    }
}

/// Makes the tables, and replaces the fixtures.
pub(crate) fn bless() -> Outcome {
    let made = match generate() {
        Ok(made) => made,
        Err(outcome) => return outcome,
    };
    match replace_all(&made) {
        Ok(()) => Outcome::Passed,
        Err(why) => Outcome::Failed(why),
    }
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn fixtures(package: &str) -> PathBuf {
    workspace().join(package).join("tests/fixtures")
}

/// Folder in which the tables of a package are made.
fn made_in(package: &str) -> PathBuf {
    debian::target().join("layouts").join(package)
}

fn read(path: &Path) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

/// Runs the generators. Returns their headers in the order of [`Source::ALL`].
fn generate() -> Result<[Headers; 2], Outcome> {
    for tool in ["python3", "gcc", "readelf"] {
        if !apt::is_there(tool) {
            return Err(Outcome::Skipped(format!(
                "no {tool} here; the fixtures stand as they are"
            )));
        }
    }
    let [linux, rdma_core] = find()?;
    let include = |headers: &Headers| headers.root.join("usr/include");
    for package in PACKAGES {
        let folder = made_in(package);
        fs::create_dir_all(&folder)
            .map_err(|error| Outcome::Failed(format!("{}: {error}", folder.display())))?;
    }
    let python = |script: &str, package: &str| {
        let mut command = Command::new("python3");
        command.arg(workspace().join("xtask/layouts").join(script));
        command.arg("--out").arg(made_in(package));
        command
    };
    let mut kernel_abi = python("kernel_abi.py", KERNEL_ABI);
    let mut mlx5_prm = python("mlx5_prm.py", MLX5_PRM);
    kernel_abi.arg("--verbs-include").arg(include(&rdma_core));
    mlx5_prm.arg("--include").arg(include(&rdma_core));
    let mut c_abi = python("c_abi.py", C_ABI);
    c_abi.arg("--verbs-include").arg(include(&rdma_core));
    for command in [&mut kernel_abi, &mut mlx5_prm, &mut c_abi] {
        for folder in [include(&linux)].into_iter().chain(of_this_machine(&include(&linux))) {
            command.arg("--include").arg(folder);
        }
    }
    for command in [kernel_abi, mlx5_prm, c_abi] {
        match run(command, GENERATE) {
            Outcome::Passed => {}
            other => return Err(other),
        }
    }
    Ok([linux, rdma_core])
}

/// Finds the headers: first in the unpacked Debian packages, then on the machine.
fn find() -> Result<[Headers; 2], Outcome> {
    let unpacked = match std::env::var_os("UVERBS_DEBIAN_ROOT") {
        Some(root) => Some(PathBuf::from(root)),
        None => debian::root().ok(),
    };
    let roots: Vec<PathBuf> = unpacked.into_iter().chain([PathBuf::from("/")]).collect();
    let one = |source: Source| {
        let has = |root: &&PathBuf| root.join("usr/include").join(source.header()).is_file();
        let Some(root) = roots.iter().find(has) else {
            let package = source.package();
            return Err(Outcome::Skipped(format!(
                "no {package} here; the fixtures stand as they are"
            )));
        };
        let version = match source {
            Source::Linux => linux_version(root),
            Source::RdmaCore => rdma_core_version(root),
        };
        match version {
            Some(version) => {
                let word = source.word();
                println!("layouts: {word} {version} in {}", root.display());
                Ok(Headers { root: root.clone(), version })
            }
            None => Err(Outcome::Failed(format!(
                "{}: no version of {}",
                root.display(),
                source.package()
            ))),
        }
    };
    Ok([one(Source::Linux)?, one(Source::RdmaCore)?])
}

/// Folder of the headers for this machine's architecture, which has `asm`.
fn of_this_machine(include: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(include).ok()?;
    let mut folders = entries.flatten().map(|entry| entry.path());
    folders.find(|path| path.join("asm/types.h").is_file())
}

/// Version such as `6.1.187`. Updates of one series differ, too: Debian's 6.1.192 has attributes
/// that 6.1.187 lacks.
fn linux_version(root: &Path) -> Option<String> {
    let text = fs::read_to_string(root.join("usr/include/linux/version.h")).ok()?;
    let number = |name: &str| {
        let line = text.lines().find(|line| line.split_whitespace().nth(1) == Some(name))?;
        line.split_whitespace().nth(2)
    };
    let [major, minor, update] =
        ["LINUX_VERSION_MAJOR", "LINUX_VERSION_PATCHLEVEL", "LINUX_VERSION_SUBLEVEL"].map(number);
    Some(format!("{}.{}.{}", major?, minor?, update?))
}

/// Version `44.0` of `Version: 1.14.44.0`: the ABI of the library comes first.
fn rdma_core_version(root: &Path) -> Option<String> {
    let lib = root.join("usr/lib");
    let folders = fs::read_dir(&lib).ok()?.flatten().map(|entry| entry.path());
    let mut places = folders.chain([lib, root.join("usr/lib64")]);
    let text =
        places.find_map(|path| fs::read_to_string(path.join("pkgconfig/libibverbs.pc")).ok())?;
    let line = text.lines().find_map(|line| line.strip_prefix("Version:"))?;
    line.trim().splitn(3, '.').nth(2).map(str::to_owned)
}

/// Version of the headers of a fixture, from `versions.txt`.
fn recorded(text: &str, source: Source) -> Result<&str, String> {
    let line = text.lines().find_map(|line| line.strip_prefix(source.word())?.strip_prefix(' '));
    line.ok_or_else(|| format!("versions.txt names no {}", source.word()))
}

fn age(recorded: &str, found: &str) -> Age {
    let numbers = |text: &str| -> Vec<u32> { text.split('.').flat_map(str::parse).collect() };
    match numbers(found).cmp(&numbers(recorded)) {
        std::cmp::Ordering::Less => Age::Older,
        std::cmp::Ordering::Equal => Age::Same,
        std::cmp::Ordering::Greater => Age::Newer,
    }
}

/// Compares all tables, prints the differences, and sums up.
fn compare_all(made: &[Headers; 2]) -> Result<Report, String> {
    let mut total = Report::default();
    for compared in &TABLES {
        let folder = fixtures(compared.package);
        let table = |path: PathBuf| {
            Table::parse(&read(&path)?).map_err(|why| format!("{}: {why}", path.display()))
        };
        let fixture = table(folder.join(compared.file))?;
        let headers = table(made_in(compared.package).join(compared.file))?;
        let besides = match compared.besides {
            Some(file) => table(folder.join(file))?,
            None => Table::default(),
        };
        let versions = read(&folder.join("versions.txt"))?;
        let before = recorded(&versions, compared.source)?;
        let word = compared.source.word();
        let found = &made[compared.source as usize].version;
        let extends = compared.source == Source::Linux;
        let report = compare(&fixture, &besides, &headers, age(before, found), extends);
        let name = format!("{}/{}", compared.package, compared.file);
        if !report.new.is_empty() {
            println!("{name}: new in {word} {found}: {}", report.new.join(", "));
        }
        for line in &report.explained {
            println!("{name}: {word} {found} is not {before}: {line}");
        }
        for line in &report.wrong {
            eprintln!("{name}: {line}");
        }
        total.structs += report.structs;
        total.fields += report.fields;
        total.constants += report.constants;
        total.wrong.extend(report.wrong);
    }
    Ok(total)
}

/// Copies the tables over the fixtures, and notes the versions.
fn replace_all(made: &[Headers; 2]) -> Result<(), String> {
    // All versions are checked before the first file changes.
    for package in PACKAGES {
        let versions = read(&fixtures(package).join("versions.txt"))?;
        for source in Source::ALL {
            let found = &made[source as usize].version;
            if let Ok(before) = recorded(&versions, source)
                && age(before, found) == Age::Older
            {
                let word = source.word();
                return Err(format!("{word} {found} is older than the fixtures' {before}"));
            }
        }
    }
    for compared in &TABLES {
        let text = read(&made_in(compared.package).join(compared.file))?;
        Table::parse(&text)?;
        let path = fixtures(compared.package).join(compared.file);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("{}/{}", compared.package, compared.file);
    }
    for package in PACKAGES {
        let path = fixtures(package).join("versions.txt");
        let mut text = read(&path)?;
        for source in Source::ALL {
            if let Ok(before) = recorded(&text, source) {
                let (word, found) = (source.word(), &made[source as usize].version);
                text = text.replace(&format!("{word} {before}\n"), &format!("{word} {found}\n"));
            }
        }
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixtures_say_what_they_were_made_from() {
        for compared in &TABLES {
            let text = read(&fixtures(compared.package).join("versions.txt")).unwrap();
            let version = recorded(&text, compared.source).unwrap();
            assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{version}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert_eq!(age("6.1.187", "6.12.5"), Age::Newer);
        assert_eq!(age("6.1.192", "6.1.187"), Age::Older);
        assert_eq!(age("44.0", "44.0"), Age::Same);
        assert_eq!(age("44.0", "9.0"), Age::Older);
    }
}
