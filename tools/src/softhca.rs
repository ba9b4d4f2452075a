//! `uverbs softhca`: serves the software HCA as a device to other processes.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use nix::errno::Errno;
use uverbs::softhca::pci::{PciOptions, Sink, Trouble};
use uverbs::softhca::vfio_user::Server;
use uverbs::softhca::wire::Fabric;
use uverbs::softhca::{Card, LinkLayer};

use crate::base::error::Error;
use crate::base::output;

/// Pause after a client that could not be served.
const PAUSE: Duration = Duration::from_millis(100);
/// Largest number of a device: the largest unicast LID of a port (IBTA vol 1, 4.1.3).
const LAST: u16 = 0xbfff;

/// Serve the software HCA to a virtual machine.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Serve(Serve),
}

/// Serve the software HCA as a PCI device over vfio-user.
///
/// QEMU 10.1 and newer plugs it into a guest, whose own mlx5_core and mlx5_ib bind to it. The
/// guest's memory must be shared (-object memory-backend-memfd,...,share=on). Nothing here needs
/// privileges. Without --once, the next client is served when one has left; the device is then as
/// after power-on.
///
/// Several --socket are as many devices on one wire, in one guest or in several. Each is served,
/// reset and left separately, and its link is down without a client.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs softhca serve --socket /tmp/hca.sock --log /tmp/hca.log\n  \
    qemu-system-x86_64 ... -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/tmp/hca.sock\"}}'\n  \
    uverbs softhca serve --socket /tmp/one.sock --socket /tmp/two.sock\n\n\
    EXIT STATUS: 0 after --once, 1 when the socket can't be made or a client broke off.")]
struct Serve {
    /// Socket that QEMU connects to, one for each device; an existing stale socket is replaced
    #[arg(long, value_name = "PATH", required = true)]
    socket: Vec<PathBuf>,
    /// Link layer of the port
    #[arg(long, value_enum, default_value_t = Port::Ib)]
    port: Port,
    /// Number that determines the GUID, LID and MAC address; each further device has the next
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u16).range(1..=i64::from(LAST))
    )]
    number: u16,
    /// Card whose capabilities and PCI number it has: connectx-4, connectx-4lx, connectx-5,
    /// connectx-6dx, connectx-7, bluefield-2, vf, sf, future
    #[arg(long, value_name = "CARD", default_value_t = Card::ConnectX6Dx)]
    profile: Card,
    /// Write a line for every command, doorbell and interrupt to this file; - is standard error.
    /// With several devices each line begins with the device's number
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Refuse commands with reserved bits, which a driver must not set; the log names them
    #[arg(long)]
    strict: bool,
    /// How a guest rings doorbells
    #[arg(long, value_enum, value_name = "HOW", default_value_t = GuestDoorbells::Trapped)]
    guest_doorbells: GuestDoorbells,
    /// Serve one client of each device, then end
    #[arg(long)]
    once: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Port {
    /// InfiniBand
    Ib,
    /// Ethernet, with RoCE
    Eth,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum GuestDoorbells {
    /// QEMU sends a message for each
    Trapped,
    /// Stores into memory that the device looks at
    Mapped,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<(), Error> {
    match &args.command {
        Command::Serve(args) => serve(args),
    }
}

fn serve(args: &Serve) -> Result<(), Error> {
    let link = match args.port {
        Port::Ib => LinkLayer::InfiniBand,
        Port::Eth => LinkLayer::Ethernet,
    };
    let several = args.socket.len() > 1;
    if args.socket.len() > usize::from(LAST - args.number) + 1 {
        let why = format!("the last of {} devices would be above {LAST}", args.socket.len());
        return Err(Error::Argument { option: "--number", value: args.number.to_string(), why });
    }
    let log = args.log.as_ref().map(|path| log(path).map_err(|error| failed(path, error)));
    let log = log.transpose()?;
    let fabric = Fabric::default();
    let mut devices = Vec::new();
    for (number, path) in (args.number..).zip(&args.socket) {
        let trouble = Trouble { strict: args.strict, ..Trouble::default() };
        let card = args.profile;
        let options = PciOptions { number, link, card, trouble, ..PciOptions::default() };
        let server = Server::on(&fabric, &options);
        let mut server = server.map_err(|error| failed(path, error))?;
        if let Some(log) = &log {
            server.log_to(sink(log, several.then_some(number)));
        }
        if args.guest_doorbells == GuestDoorbells::Mapped {
            server.map_to_guests();
        }
        let listener = listen(path).map_err(|error| failed(path, error))?;
        devices.push((server, listener, path));
    }
    // A thread each, so that a client does not delay other devices.
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for (server, listener, path) in devices {
            threads.push(scope.spawn(move || serve_device(server, &listener, path, args.once)));
        }
        threads.into_iter().try_for_each(|thread| thread.join().expect("a server does not panic"))
    })
}

/// Serves a device's clients one after the other.
fn serve_device(
    mut server: Server,
    listener: &UnixListener,
    path: &Path,
    once: bool,
) -> Result<(), Error> {
    loop {
        let served = server.serve_one(listener).map_err(|error| failed(path, error));
        if once {
            return served;
        }
        if let Err(error) = served {
            output::complain(&error);
            // Errors of `accept` may last, and are returned at once.
            thread::sleep(PAUSE);
        }
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::File { path: path.to_owned(), error }
}

/// Binds a socket. The file of a dead owner is replaced; a socket in use is left alone.
///
/// The file appears under its name once it accepts connections: a client may wait for the file.
fn listen(path: &Path) -> io::Result<UnixListener> {
    use std::os::unix::fs::FileTypeExt;
    use std::os::unix::net::UnixStream;
    match std::fs::symlink_metadata(path) {
        Ok(file) if !file.file_type().is_socket() || UnixStream::connect(path).is_ok() => {
            return Err(Errno::EADDRINUSE.into());
        }
        Ok(_) => std::fs::remove_file(path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let hidden = folder.unwrap_or(Path::new(".")).join(format!(".{}", std::process::id()));
    // A process with this number may have been killed here.
    let _ = std::fs::remove_file(&hidden);
    let listener = UnixListener::bind(&hidden)?;
    // Another server may have taken the name since.
    let named = std::fs::hard_link(&hidden, path);
    std::fs::remove_file(&hidden)?;
    named.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Errno::EADDRINUSE.into(),
        _ => error,
    })?;
    Ok(listener)
}

/// Log of all devices.
type Log = Arc<Mutex<dyn Write + Send>>;

fn log(path: &Path) -> io::Result<Log> {
    Ok(match path.as_os_str() == "-" {
        true => Arc::new(Mutex::new(io::stderr())),
        false => Arc::new(Mutex::new(File::create(path)?)),
    })
}

fn sink(log: &Log, number: Option<u16>) -> Sink {
    let log = Arc::clone(log);
    let name = number.map(|number| format!("{number} ")).unwrap_or_default();
    Box::new(move |line| {
        // Written at once, for readers of the file. A full disk must not stop the device.
        let line = format!("{name}{line}\n");
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = log.write_all(line.as_bytes());
    })
}
