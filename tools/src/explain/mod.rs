//! `uverbs explain`: prints bytes of the interfaces below verbs field by field, with the manual's
//! names.

pub(crate) mod hex;
mod ioctl;
mod mailbox;
mod mlx5;
mod names;
mod packet;
mod report;

use std::path::PathBuf;

use clap::Subcommand;
use uverbs_mlx5_prm::cmd::opcode::CmdOpcode;

use crate::base::error::Error;
use crate::base::output;

pub(crate) use mlx5::Transport;
pub(crate) use report::Explained;

/// Print a WQE, a completion, a packet, or a command of the kernel or the firmware, field by field.
///
/// Structures and fields have the names of mlx5dv.h, of the InfiniBand specification and of the
/// kernel's headers; a field's line begins with its offset in its structure. `uverbs trace -v`
/// explains what a running program does in the same way.
///
/// Bytes are hexadecimal digits, in as many words as you like: `0a00 0x2b 0c:0d`. Lines of xxd(1)
/// and `hexdump -C` are understood. Without words they come from standard input.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs explain wqe 0000070a 00004802 00000008 00000000 00000040 00001000 00007f00 00000000\n  \
    uverbs explain --json cqe < entry.hex\n  \
    xxd -s 14 frame.bin | uverbs explain packet\n  \
    uverbs explain ioctl --file command.bin\n  \
    uverbs explain mailbox --answer CREATE_QP 00000000 00000000 00000042 00000000\n\n\
    EXIT STATUS: 0, 1 for a file that can't be read, 2 for bytes that are not what they should \
    be.")]
pub(crate) struct Args {
    /// Print one JSON object: {"what": ..., "structures": [{"name": ..., "fields": [...]}]}
    #[arg(long)]
    json: bool,

    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A work request in a send queue of mlx5
    Wqe {
        /// Transport of the queue pair; it determines the segments behind the control segment
        #[arg(short = 'c', long = "connection", value_name = "TYPE", value_enum)]
        #[arg(default_value_t = Transport::Rc, ignore_case = true)]
        transport: Transport,
        #[command(flatten)]
        input: Input,
    },
    /// A work request in a receive queue of mlx5, as long as its stride
    Recv {
        /// The bytes are a WQE of a shared receive queue, which begins with its link in the free
        /// list
        #[arg(long)]
        srq: bool,
        #[command(flatten)]
        input: Input,
    },
    /// An entry of a completion queue of mlx5, 64 or 128 bytes
    Cqe {
        #[command(flatten)]
        input: Input,
    },
    /// A packet, from its Ethernet, IP, UDP or base transport header on
    Packet {
        #[command(flatten)]
        input: Input,
    },
    /// A command to /dev/infiniband/uverbsN, as RDMA_VERBS_IOCTL takes it: header and attributes
    Ioctl {
        #[command(flatten)]
        input: Input,
    },
    /// A command of mlx5's firmware, what its mailboxes hold joined: the input, from the opcode on
    Mailbox {
        /// The bytes are the output of this command: CREATE_QP, or 0x500
        #[arg(long, value_name = "COMMAND", value_parser = mailbox::opcode)]
        answer: Option<CmdOpcode>,
        #[command(flatten)]
        input: Input,
    },
}

/// Source of the bytes.
#[derive(Debug, clap::Args)]
struct Input {
    /// Hexadecimal digits
    #[arg(value_name = "HEX")]
    words: Vec<String>,
    /// Read the bytes from a file, as raw binary
    #[arg(long, value_name = "FILE", conflicts_with = "words")]
    file: Option<PathBuf>,
}

impl Input {
    fn bytes(&self) -> Result<Vec<u8>, Error> {
        if let Some(path) = &self.file {
            let failed = |error| Error::File { path: path.clone(), error };
            return std::fs::read(path).map_err(failed);
        }
        let text = match &self.words[..] {
            [] => std::io::read_to_string(std::io::stdin())
                .map_err(|error| Error::File { path: "standard input".into(), error })?,
            words => words.join(" "),
        };
        hex::parse(&text).map_err(|(value, why)| Error::Argument { option: "HEX", value, why })
    }
}

/// A command of the uverbs ioctl. `None` for malformed bytes, as in the functions below.
pub(crate) fn ioctl(bytes: &[u8]) -> Option<Explained> {
    ioctl::explain(bytes).ok()
}

/// A send WQE.
pub(crate) fn wqe(bytes: &[u8], transport: Transport) -> Option<Explained> {
    mlx5::wqe(bytes, transport).ok()
}

/// A receive WQE, as long as its stride.
pub(crate) fn recv(bytes: &[u8], srq: bool) -> Option<Explained> {
    mlx5::recv(bytes, srq).ok()
}

/// A completion.
pub(crate) fn cqe(bytes: &[u8]) -> Option<Explained> {
    mlx5::cqe(bytes).ok()
}

/// A packet, from any header on.
pub(crate) fn packet(bytes: &[u8]) -> Option<Explained> {
    packet::explain(bytes).ok()
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let (option, explained) = match &args.what {
        What::Wqe { transport, input } => ("WQE", mlx5::wqe(&input.bytes()?, *transport)),
        What::Recv { srq, input } => ("receive", mlx5::recv(&input.bytes()?, *srq)),
        What::Cqe { input } => ("CQE", mlx5::cqe(&input.bytes()?)),
        What::Packet { input } => ("packet", packet::explain(&input.bytes()?)),
        What::Ioctl { input } => ("command", ioctl::explain(&input.bytes()?)),
        What::Mailbox { answer, input } => ("command", mailbox::explain(&input.bytes()?, *answer)),
    };
    let explained: Explained = explained.map_err(|(len, why)| Error::Argument {
        option,
        value: format!("of {len} bytes"),
        why,
    })?;
    if args.json { output::json(&explained) } else { output::print(&explained.to_string()) }
}
