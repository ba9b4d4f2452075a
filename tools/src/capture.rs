//! `uverbs capture`: runs a program, and captures the packets of its software HCAs.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::base::error::{Error, FAILED};
use crate::base::output;

/// Variable that names the capture file for the software HCAs of a process.
const VARIABLE: &str = "UVERBS_CAPTURE";
/// An enhanced packet block of pcapng.
const PACKET: u32 = 6;

/// Run a program, and capture the packets of its software HCAs.
///
/// The file is pcapng, for Wireshark and tshark: RoCEv2 in Ethernet, IP and UDP, whatever carries
/// the packets (UDP, shared memory, the fabric inside of a process); headers that a wire doesn't
/// have are made up. Each device is an interface, and each packet is marked as sent or received. A
/// second process of the program writes to FILE with its process number behind, and so on.
///
/// Any program will do that uses this library, or that runs on a preloaded software HCA: the
/// variable UVERBS_CAPTURE tells it. Real devices are not captured.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs capture -w pingpong.pcapng -- uverbs pingpong -n 10\n  \
    uverbs capture -w client.pcapng -- uverbs perf write bw -d softhca@loopback 127.0.0.1\n  \
    tshark -r pingpong.pcapng\n\n\
    EXIT STATUS: the program's; 1 when it can't be run or no packet was captured, 2 for bad \
    arguments.")]
pub(crate) struct Args {
    /// File to write; it must not exist yet
    #[arg(short, long, value_name = "FILE")]
    write: PathBuf,
    /// The program and its arguments
    #[arg(required = true, last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let file = |error| Error::File { path: args.write.clone(), error };
    let path = std::path::absolute(&args.write).map_err(file)?;
    if !packets_of(&path).map_err(file)?.is_empty() {
        return Err(file(io::ErrorKind::AlreadyExists.into()));
    }
    let [program, words @ ..] = &args.command[..] else { return Ok(()) };
    // Replaces the name `uverbs` by this program's path, so that it need not be in PATH.
    let own = std::env::current_exe().ok().filter(|_| program == "uverbs");
    let program = own.as_deref().map_or(program.as_os_str(), Path::as_os_str);
    let status = Command::new(program).args(words).env(VARIABLE, &path).status();
    let status = status.map_err(|error| Error::File { path: program.into(), error })?;
    let files = packets_of(&path).map_err(file)?;
    for (path, packets) in &files {
        output::complain(&format!("{packets} packets in {}", path.display()));
    }
    let captured = files.iter().any(|(_, packets)| *packets > 0);
    match status.code() {
        Some(0) if captured => Ok(()),
        Some(0) => Err(Error::Record {
            path: args.write.clone(),
            why: "the program sent nothing through a software HCA".to_owned(),
        }),
        code => std::process::exit(code.unwrap_or(FAILED.into())),
    }
}

/// Files of a capture, with their numbers of packets.
fn packets_of(path: &Path) -> io::Result<Vec<(PathBuf, usize)>> {
    let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
        return Err(io::ErrorKind::IsADirectory.into());
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(path.parent().unwrap_or(Path::new("/")))? {
        let entry = entry?;
        let found = entry.file_name().to_string_lossy().into_owned();
        let number = found.strip_prefix(&name).map(|rest| rest.strip_prefix('.').unwrap_or(rest));
        if number.is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit())) {
            files.push((entry.path(), packets(&fs::read(entry.path())?)));
        }
    }
    files.sort();
    Ok(files)
}

/// Number of packets in a sequence of blocks, up to an incomplete block.
fn packets(mut bytes: &[u8]) -> usize {
    let mut count = 0;
    while let Some((head, _)) = bytes.split_first_chunk::<8>() {
        let [kind, len] = [0, 4]
            .map(|at| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
        let Some(rest) = bytes.get(len.max(8) as usize..) else { break };
        count += usize::from(kind == PACKET);
        bytes = rest;
    }
    count
}
