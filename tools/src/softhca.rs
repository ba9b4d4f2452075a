//! `uverbs softhca`: the software HCA as a device for others than this process.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use uverbs::softhca::LinkLayer;
use uverbs::softhca::pci::{PciOptions, Sink};
use uverbs::softhca::vfio_user::Server;

use crate::error::Error;
use crate::output;

/// From a client that could not be served to the next.
const PAUSE: Duration = Duration::from_millis(100);

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
/// QEMU 10.1 and newer plugs it into a guest, whose own mlx5_core and mlx5_ib bind to it. The guest's memory must be shared
/// (-object memory-backend-memfd,...,share=on). Nothing here needs privileges. Without --once, the next client is served when
/// one has left; the device is then as after power-on.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs softhca serve --socket /tmp/hca.sock --log /tmp/hca.log\n  \
    qemu-system-x86_64 ... -device '{\"driver\":\"vfio-user-pci\",\"socket\":{\"type\":\"unix\",\"path\":\"/tmp/hca.sock\"}}'\n\n\
    EXIT STATUS: 0 after --once, 1 when the socket can't be made or a client broke off.")]
struct Serve {
    /// The socket that QEMU connects to; one that is left over is replaced
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// The kind of its port
    #[arg(long, value_enum, default_value_t = Port::Ib)]
    port: Port,
    /// Makes its GUID and LID
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=0xbfff))]
    number: u16,
    /// Write a line for every command, doorbell and interrupt; - is standard error
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    /// Serve one client and end
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
    let options = PciOptions { number: args.number, link, ..PciOptions::default() };
    let mut server = Server::new(&options);
    if let Some(path) = &args.log {
        server.log_to(sink(path).map_err(|error| failed(path, error))?);
    }
    let listener = listen(&args.socket).map_err(|error| failed(&args.socket, error))?;
    loop {
        match server.serve_one(&listener) {
            Ok(()) if args.once => return Ok(()),
            Err(error) if args.once => return Err(failed(&args.socket, error)),
            Ok(()) => {}
            Err(error) => {
                output::complain(&failed(&args.socket, error));
                // What makes `accept` fail may last, and fails at once.
                std::thread::sleep(PAUSE);
            }
        }
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::File { path: path.to_owned(), error }
}

/// A socket file outlives its owner; one that somebody still listens on is not touched.
fn listen(path: &Path) -> io::Result<UnixListener> {
    use std::os::unix::fs::FileTypeExt;
    use std::os::unix::net::UnixStream;
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
            if !is_socket || UnixStream::connect(path).is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        other => other,
    }
}

fn sink(path: &Path) -> io::Result<Sink> {
    let mut out: Box<dyn Write + Send> = match path.as_os_str() == "-" {
        true => Box::new(io::stderr()),
        false => Box::new(File::create(path)?),
    };
    // A full disk must not stop the device.
    Ok(Box::new(move |line| drop(writeln!(out, "{line}"))))
}
