//! `uverbs devices`: lists devices like `ibv_devices`, with more columns.

use std::fmt::Write;

use serde::Serialize;
use uverbs::Device;

use crate::base::error::Error;
use crate::base::output;
use crate::base::select;

/// List the RDMA devices.
///
/// One line for each port: the device's name and node GUID, as ibv_devices(1) prints them, the
/// kernel driver, the port, its state and its link layer. State and link layer are `?` for a device
/// that can't be opened, with the reason on stderr.
///
/// Where there is no RDMA device, a line on stderr says so, and the embedded software HCA is
/// listed, on which the other commands then work.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs devices\n  \
    uverbs devices --json | jq -r '.devices[].name'\n\n\
    EXIT STATUS: 0, or 1 when the devices can't be listed.")]
pub(crate) struct Args {
    /// Print one JSON object: {"devices": [...]}
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Listing {
    devices: Vec<Row>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// As hexadecimal digits, most significant byte first.
    node_guid: String,
    driver: String,
    /// True for a device of this program.
    embedded: bool,
    ports: Vec<Port>,
}

#[derive(Debug, Serialize)]
struct Port {
    port: u8,
    state: String,
    link_layer: String,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let (devices, embedded) = select::all()?;
    let devices = devices.iter().map(|device| row(device, embedded)).collect();
    let listing = Listing { devices };
    if args.json { output::json(&listing) } else { output::print(&listing.table(output::width())) }
}

fn row(device: &Device, embedded: bool) -> Row {
    let ports = ports(device).unwrap_or_else(|error| {
        output::complain(&format!("{}: {error}", device.name()));
        Vec::new()
    });
    Row {
        name: device.name().to_owned(),
        node_guid: format!("{:016x}", device.node_guid()),
        driver: select::driver(device),
        embedded,
        ports,
    }
}

fn ports(device: &Device) -> Result<Vec<Port>, uverbs::Error> {
    let context = device.open()?;
    let count = context.query_device()?.phys_port_count;
    let port = |port| {
        let attr = context.query_port(port)?;
        Ok(Port { port, state: attr.state.to_string(), link_layer: attr.link_layer.to_string() })
    };
    (1..=count).map(port).collect()
}

impl Listing {
    /// Formats a line per port. On a narrow terminal, columns are as wide as their contents.
    fn table(&self, width: usize) -> String {
        // Wide columns as in ibv_devices(1), if there is room.
        let wide = width >= 80;
        let link = if wide { "link layer" } else { "link" };
        let heads = ["device", "node GUID", "driver", "port", "state", link, ""];
        let mut rows = vec![heads.map(str::to_owned)];
        for row in &self.devices {
            let unknown = Port { port: 1, state: "?".to_owned(), link_layer: "?".to_owned() };
            let ports = if row.ports.is_empty() { &[unknown] } else { &row.ports[..] };
            let embedded = if row.embedded && wide { "(embedded)" } else { "" };
            rows.extend(ports.iter().map(|port| {
                let Port { port, state, link_layer } = port;
                let (name, guid, driver) =
                    (row.name.clone(), row.node_guid.clone(), row.driver.clone());
                let (state, link_layer) = (state.clone(), link_layer.clone());
                [name, guid, driver, port.to_string(), state, link_layer, embedded.to_owned()]
            }));
        }
        let (indent, gap, least) = match wide {
            false => ("", " ", [0; 7]),
            true => ("    ", "  ", [8, 16, 10, 4, 12, 10, 0]),
        };
        let longest = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
        let widths: [usize; 7] = std::array::from_fn(|column| longest(column).max(least[column]));
        let rule: [String; 7] = std::array::from_fn(|column| match column {
            6 => String::new(),
            _ => "-".repeat(widths[column]),
        });
        rows.insert(1, rule);
        let mut text = String::new();
        for row in &rows {
            let mut line = indent.to_owned();
            for (column, (cell, width)) in row.iter().zip(widths).enumerate() {
                // Writing to a string cannot fail, here and below.
                let _ = match column {
                    3 => write!(line, "{cell:>width$}{gap}"),
                    _ => write!(line, "{cell:width$}{gap}"),
                };
            }
            let _ = writeln!(text, "{}", line.trim_end());
        }
        text
    }
}
