//! `uverbs run`: runs a C program for libibverbs on our library, or a pair of them.

mod group;
mod pair;

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use uverbs_mlx5_vfio::discovery::is_function;

use crate::base::error::Error;
use crate::base::output;
use crate::base::units::parse_timeout;
use crate::vfio::access;

/// Library that C programs link to.
const LIBRARY: &str = "libibverbs.so.1";
/// Library that turns a program's sockets into rsockets, below the library's folder.
const SOCKETS: &str = "rsocket/librspreload.so";
/// Library that shows the device node of a software HCA, below the library's directory. UCX ignores
/// devices without a node.
const NODES: &str = "nodes/libuverbs_nodes.so";
/// Variable of the loader: libraries that it loads first.
const PRELOAD: &str = "LD_PRELOAD";
/// Variable of our library: names of the devices to show.
const DEVICE: &str = "UVERBS_DEVICE";
/// Variable of the loader: directories that it searches first.
const LIBRARY_PATH: &str = "LD_LIBRARY_PATH";
/// Software HCA that other programs of this host reach.
const ON_LOOPBACK: &str = "softhca@loopback";
/// Folders of the library, relative to this program's: installed, and in a build folder.
const PLACES: [&str; 2] = ["../lib/uverbs", "../c-abi"];

/// Run a C program for RDMA on uverbs, unmodified.
///
/// The program's libibverbs.so.1 is ours, also if the program brings its own: it drives the
/// machine's RDMA devices with uverbs' providers. Without RDMA devices, or with --device softhca,
/// the program has a software HCA on a loopback address, which other programs of this host reach,
/// and needs neither hardware nor privileges.
///
/// With --pair, two commands run by a shell: the client's starts once the server's listens at a TCP
/// port, or sleeps for half a second. A line of output begins with its side's name. The first
/// failure ends both, as --limit and Ctrl-C do.
///
/// The loader ignores this for programs that are set-user-ID.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs run -- ibv_devinfo\n  \
    uverbs run -d softhca -- ib_write_bw -x 0                # one terminal\n  \
    uverbs run -d softhca -- ib_write_bw -x 0 127.0.0.1      # another one\n  \
    uverbs run --pair 'ib_write_bw -x 0' 'ib_write_bw -x 0 127.0.0.1'\n  \
    uverbs run --preload-sockets -d softhca@127.0.0.2 -- nc -l 127.0.0.2 7000\n  \
    uverbs run --preload-sockets -d softhca@127.0.0.3 -- nc 127.0.0.2 7000\n\n\
    ENVIRONMENT OF THE PROGRAM:\n  \
    UVERBS_DEVICE    the devices it sees, separated by commas\n  \
    LD_LIBRARY_PATH  begins with the folder of our library\n  \
    LD_PRELOAD       begins with librspreload.so (--preload-sockets),\n                   \
                     libuverbs_nodes.so where a device is a software HCA, and\n                   \
                     libibverbs.so.1\n\n\
    EXIT STATUS: the program's, or 1 when it or the library isn't there; of a pair 0 if both \
    succeeded, else 1.")]
pub(crate) struct Args {
    /// Device that the program sees: softhca, softhca@ADDRESS[=NAME] with ,udp ,shm or ,ib behind
    /// it, vfio:ADDRESS, vfio-user:PATH, or one of the machine's; several separated by commas
    /// [default: all of the machine's, or softhca]
    #[arg(short, long, visible_alias = "ib-dev", value_name = "NAME")]
    device: Option<String>,

    /// Directory of libibverbs.so.1, in the layout of `cargo xtask c-abi` [default: ../lib/uverbs
    /// beside this program's folder]
    #[arg(long, value_name = "DIR")]
    libraries: Option<PathBuf>,

    /// Put the program's sockets on RDMA streams, by rsocket/librspreload.so beside libibverbs.so.1
    #[arg(long)]
    preload_sockets: bool,

    /// Run a server and its client, each a shell's command
    #[arg(long, num_args = 2, value_names = ["SERVER", "CLIENT"], conflicts_with = "command")]
    pair: Vec<String>,

    /// Seconds after which a pair fails
    #[arg(long, default_value = "60", requires = "pair", value_parser = parse_timeout)]
    limit: Duration,

    /// The program and its arguments
    #[arg(last = true, required_unless_present = "pair", value_name = "PROGRAM")]
    command: Vec<OsString>,
}

/// Runs the pair, or replaces this process by the program, which gets its signals and exit status.
pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let folder = match &args.libraries {
        Some(folder) => with_library(folder)?,
        None => installed()?,
    };
    let device = device(args.device.as_deref())?;
    let prepare = |command: &mut Command| prepare(command, args, &folder, device.as_deref());
    let Some((program, words)) = args.command.split_first() else {
        return pair::run(&args.pair, args.limit, prepare);
    };
    let mut command = Command::new(program);
    command.args(words);
    prepare(&mut command)?;
    Err(Error::File { path: program.into(), error: command.exec() })
}

/// Sets the environment of a program.
fn prepare(
    command: &mut Command,
    args: &Args,
    folder: &Path,
    device: Option<&str>,
) -> Result<(), Error> {
    command.env(LIBRARY_PATH, path_with(folder, std::env::var_os(LIBRARY_PATH))?);
    let shown = match device {
        Some(device) => {
            command.env(DEVICE, device);
            device.to_owned()
        }
        None => std::env::var(DEVICE).unwrap_or_default(),
    };
    check_functions(&shown, !args.pair.is_empty())?;
    let libraries = preloads(folder, args.preload_sockets, &shown)?;
    command.env(PRELOAD, with_others(&libraries, std::env::var_os(PRELOAD)));
    Ok(())
}

/// Refuses functions that the program can't open, with the reason: the C program would see only an
/// errno.
fn check_functions(devices: &str, is_pair: bool) -> Result<(), Error> {
    for name in uverbs::device_names(devices) {
        let why = match is_function(name) && is_pair {
            true => Some("a function has one owner, and both sides would open it".to_owned()),
            false => access::refusal_of(name),
        };
        if let Some(why) = why {
            return Err(Error::Argument { option: "--device", value: name.to_owned(), why });
        }
    }
    Ok(())
}

/// Devices for the program; `None`: the library and its environment decide.
fn device(asked: Option<&str>) -> Result<Option<String>, Error> {
    match asked {
        Some(names) => Ok(Some(on_the_network(names))),
        None if std::env::var_os(DEVICE).is_some_and(|names| !names.is_empty()) => Ok(None),
        None if !uverbs::devices()?.is_empty() => Ok(None),
        None => {
            output::complain(&format_args!("no RDMA device here, the program has {ON_LOOPBACK}"));
            Ok(Some(ON_LOOPBACK.to_owned()))
        }
    }
}

/// Replaces `softhca` by a device that other programs reach.
fn on_the_network(names: &str) -> String {
    let name = |name| if name == "softhca" { ON_LOOPBACK } else { name };
    uverbs::device_names(names).into_iter().map(name).collect::<Vec<_>>().join(",")
}

/// Directory beside this program that contains the library.
fn installed() -> Result<PathBuf, Error> {
    let program =
        std::env::current_exe().map_err(|error| file(Path::new("/proc/self/exe"), error))?;
    let home = program.parent().unwrap_or(Path::new("/"));
    let found = PLACES.iter().find_map(|place| with_library(&home.join(place)).ok());
    found.ok_or_else(|| {
        let looked = PLACES.map(|place| home.join(place).display().to_string());
        Error::Argument {
            option: "--libraries",
            value: looked.join(", "),
            why: format!(
                "no {LIBRARY} there: `cargo xtask install` in a clone installs program and \
                 library, `cargo xtask c-abi` builds the library and prints the folder for \
                 --libraries"
            ),
        }
    })
}

/// Absolute path of the directory, since the program may have another working directory.
fn with_library(folder: &Path) -> Result<PathBuf, Error> {
    let library = folder.join(LIBRARY);
    library.metadata().map_err(|error| file(&library, error))?;
    folder.canonicalize().map_err(|error| file(folder, error))
}

fn file(path: &Path, error: io::Error) -> Error {
    Error::File { path: path.to_owned(), error }
}

/// Our libraries that the loader loads first.
fn preloads(folder: &Path, sockets: bool, devices: &str) -> Result<Vec<PathBuf>, Error> {
    let mut libraries = Vec::new();
    if sockets {
        let library = folder.join(SOCKETS);
        library.metadata().map_err(|error| file(&library, error))?;
        libraries.push(library);
    }
    let nodes = folder.join(NODES);
    // Preloaded only for software HCAs: few programs look for a node.
    let is_software = |name: &&str| name.starts_with("softhca");
    if uverbs::device_names(devices).iter().any(is_software) && nodes.exists() {
        libraries.push(nodes);
    }
    // The search path alone does not reach a program that brings its own libibverbs under another
    // name, as wheels of PyPI do. The loader looks for functions in preloaded libraries first.
    libraries.push(folder.join(LIBRARY));
    Ok(libraries)
}

/// Our libraries, followed by the previous value.
fn with_others(libraries: &[PathBuf], before: Option<OsString>) -> OsString {
    let ours = libraries.iter().map(|library| library.clone().into_os_string());
    let all: Vec<_> = ours.chain(before.filter(|before| !before.is_empty())).collect();
    all.join(OsStr::new(":"))
}

/// Our directory, followed by the previous value.
fn path_with(folder: &Path, before: Option<OsString>) -> Result<OsString, Error> {
    let before = before.unwrap_or_default();
    let others = std::env::split_paths(&before).filter(|other| other.as_os_str() != OsStr::new(""));
    std::env::join_paths([folder.to_owned()].into_iter().chain(others)).map_err(|error| {
        Error::Argument {
            option: "--libraries",
            value: folder.display().to_string(),
            why: error.to_string(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softhca_is_one_that_others_reach() {
        assert_eq!(on_the_network("softhca"), "softhca@loopback");
        assert_eq!(on_the_network("mlx5_0,softhca"), "mlx5_0,softhca@loopback");
        assert_eq!(on_the_network("softhca0,softhca@10.0.0.1"), "softhca0,softhca@10.0.0.1");
        assert_eq!(on_the_network("softhca@lo,udp,softhca"), "softhca@lo,udp,softhca@loopback");
    }

    #[test]
    fn a_function_that_can_t_be_had_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("hca.sock");
        let name = format!("vfio-user:{}", socket.display());
        let refused = |devices: &str, is_pair| {
            check_functions(devices, is_pair).map_err(|error| error.to_string())
        };
        assert!(refused(&name, false).unwrap_err().contains("uverbs softhca serve"));
        let _server = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        assert_eq!(refused(&format!("softhca0,{name}"), false), Ok(()));
        assert!(refused(&name, true).unwrap_err().contains("one owner"));
        assert_eq!(refused("softhca", true), Ok(()));
        assert!(
            refused("vfio:0000:ff:1f.7", false).unwrap_err().contains("no Mellanox PCI function")
        );
    }

    #[test]
    fn our_folder_comes_first_and_others_stay() {
        let path = |before: &str| path_with(Path::new("/ours"), Some(before.into())).unwrap();
        assert_eq!(path(""), "/ours");
        assert_eq!(path("/a::/b"), "/ours:/a:/b");
        assert_eq!(path_with(Path::new("/ours"), None).unwrap(), "/ours");
        assert!(path_with(Path::new("/a:b"), None).is_err());
    }

    #[test]
    fn our_library_for_sockets_comes_first_and_must_be_there() {
        let folder = tempfile::tempdir().unwrap();
        let ours = folder.path().join(SOCKETS);
        assert!(preloads(folder.path(), true, "").is_err());
        std::fs::create_dir(ours.parent().unwrap()).unwrap();
        std::fs::write(&ours, "").unwrap();
        let library = folder.path().join(LIBRARY);
        assert_eq!(preloads(folder.path(), true, "").unwrap(), [ours.clone(), library]);
        let before = with_others(std::slice::from_ref(&ours), Some("/a.so".into()));
        assert_eq!(before.to_str().unwrap(), format!("{}:/a.so", ours.display()));
        assert_eq!(with_others(std::slice::from_ref(&ours), Some("".into())), ours);
    }

    #[test]
    fn a_software_device_has_a_node_where_the_library_for_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let ours = folder.path().join(NODES);
        let with = |devices| preloads(folder.path(), false, devices).unwrap();
        let library = folder.path().join(LIBRARY);
        assert_eq!(with("softhca0"), std::slice::from_ref(&library));
        std::fs::create_dir(ours.parent().unwrap()).unwrap();
        std::fs::write(&ours, "").unwrap();
        assert_eq!(with("mlx5_0,softhca@127.0.0.2"), [ours, library.clone()]);
        for devices in ["mlx5_0", ""] {
            assert_eq!(with(devices), std::slice::from_ref(&library));
        }
    }
}
