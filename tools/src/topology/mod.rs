//! `uverbs topology`: RDMA devices, NUMA nodes, GPUs and NVMe by PCI distance.

mod draw;
mod machine;

use std::path::PathBuf;

use self::machine::Machine;
use crate::base::error::Error;
use crate::base::output;
use crate::base::select;

/// Print the RDMA devices among NUMA nodes, GPUs and NVMe.
///
/// A tree of NUMA nodes, PCI host bridges, switches and devices, then the distance from each RDMA
/// device to each GPU and NVMe: one card, one PCI switch, one host bridge, one NUMA node, other
/// NUMA node. Data between devices below one switch don't pass the processor. Software devices have
/// no PCI function.
///
/// `-d near:PLACE` of other commands takes the device nearest to an interface, a processor, a node
/// or a PCI function.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs topology\n  \
    uverbs topology --svg machine.svg\n  \
    uverbs pingpong -d near:0000:17:00.0\n\n\
    EXIT STATUS: 0, or 1 when the devices can't be listed.")]
pub(crate) struct Args {
    /// Print one JSON object: {"nodes": [...], "devices": [...]}
    #[arg(long)]
    json: bool,
    /// Write the tree as a picture to this file
    #[arg(long, value_name = "FILE", conflicts_with = "json")]
    svg: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let (devices, _) = select::all()?;
    let machine = Machine::read(&devices);
    if let Some(path) = &args.svg {
        let written = std::fs::write(path, draw::svg(&machine));
        return written.map_err(|error| Error::File { path: path.clone(), error });
    }
    if args.json {
        return output::json(&machine.json());
    }
    output::print(&draw::text(&machine, output::is_utf8()))
}
