//! `uverbs devices`: lists devices like `ibv_devices`, with more columns.

use serde::Serialize;
use uverbs::place::PortPlace;
use uverbs::{Device, PortAttr, PortState};
use uverbs_mlx5_vfio::discovery::PciFunction;

use crate::base::device_facts::DeviceFacts;
use crate::base::error::Error;
use crate::base::output;
use crate::base::select;
use crate::base::sysfs;
use crate::base::table::Table;
use crate::vfio::access;

/// List the RDMA devices.
///
/// One line for each port: the device's name and node GUID, as ibv_devices(1) prints them, the
/// kernel driver, the port, its state and its link layer. A second table tells where each device
/// is: PCI address, NUMA node, network interface; its speed and firmware; and if uverbs can use it,
/// with the reason on stderr if not. `*` marks the device that commands use without -d. A field
/// that the kernel doesn't tell is `-`.
///
/// ConnectX functions that are bound to vfio-pci have a third table, which says whether this user
/// can open them. If not, the reason goes to stderr; with --json it is in `why`. A usable function
/// with a node in /dev/vfio/devices may belong to a process of another user, which only root sees.
///
/// Where there is no RDMA device, a line on stderr says so, and the embedded software HCA is
/// listed, on which the other commands then work.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs devices\n  \
    uverbs devices --json | jq -r '.devices[] | select(.usable) | .name'\n\n\
    EXIT STATUS: 0, or 1 when the devices can't be listed.")]
pub(crate) struct Args {
    /// Print one JSON object: {"devices": [...], "functions": [...]}
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Serialize)]
struct Listing {
    devices: Vec<Row>,
    /// Functions that are bound to vfio-pci.
    functions: Vec<Function>,
}

#[derive(Debug, Serialize)]
struct Function {
    pci_address: String,
    /// PCI vendor and device number.
    part: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    iommu_group: Option<u32>,
    /// True if this user can open its nodes, and no process that this user sees has it.
    usable: bool,
    /// Reason that it can't be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// As hexadecimal digits, most significant byte first.
    node_guid: String,
    driver: String,
    /// True for a device of this program.
    embedded: bool,
    #[serde(flatten)]
    place: DeviceFacts,
    /// True if this program can open it.
    usable: bool,
    /// Reason that it can't be opened.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    /// True for the device that commands use without `-d`.
    default: bool,
    ports: Vec<Port>,
}

#[derive(Debug, Serialize)]
struct Port {
    port: u32,
    state: String,
    link_layer: String,
    interfaces: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gbps: Option<f64>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let (devices, embedded) = select::all()?;
    let mut rows: Vec<_> = devices.iter().map(|device| row(device, embedded)).collect();
    mark_default(&mut rows);
    let listing = Listing { devices: rows, functions: functions() };
    if args.json { output::json(&listing) } else { output::print(&listing.tables(output::width())) }
}

/// Functions that are bound to vfio-pci, with a message on stderr for what this user lacks.
fn functions() -> Vec<Function> {
    let functions = PciFunction::bound(&sysfs::root()).into_iter().map(|function| {
        let why = access::refusal(&function);
        if let Some(why) = &why {
            output::complain(&format!("vfio:{}: {why}", function.address));
        }
        Function {
            part: format!("15b3:{:04x}", function.part),
            iommu_group: function.group,
            pci_address: function.address,
            usable: why.is_none(),
            why,
        }
    });
    let functions: Vec<_> = functions.collect();
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(warning) = access::warning(&status).filter(|_| !functions.is_empty()) {
        output::complain(&warning);
    }
    functions
}

/// Marks the first device with an active port, else the first usable one, as [`uverbs::choose`].
fn mark_default(rows: &mut [Row]) {
    let active = |row: &Row| row.ports.iter().any(|port| port.state == "PORT_ACTIVE");
    let first = rows.iter().position(|row| row.usable && active(row));
    if let Some(at) = first.or_else(|| rows.iter().position(|row| row.usable)) {
        rows[at].default = true;
    }
}

fn row(device: &Device, embedded: bool) -> Row {
    let opened = device.open().and_then(|context| Ok((context.query_device()?, context)));
    let why = opened.as_ref().err().map(ToString::to_string);
    if let Some(why) = &why {
        output::complain(&format!("{}: {why}", device.name()));
    }
    let mut place = DeviceFacts::of(device);
    let mut ports: Vec<_> = device.source().ports().iter().map(Port::closed).collect();
    if let Ok((attr, context)) = &opened {
        place.firmware = Some(attr.firmware().to_owned()).filter(|text| !text.is_empty());
        for number in 1..=attr.phys_port_count {
            let Ok(open) = context.query_port(number) else { continue };
            match ports.iter_mut().find(|port| port.port == u32::from(number)) {
                Some(port) => port.fill(&open),
                None => {
                    let mut port = Port::closed(&PortPlace::new(number.into()));
                    port.fill(&open);
                    ports.push(port);
                }
            }
        }
    }
    Row {
        name: device.name().to_owned(),
        node_guid: format!("{:016x}", device.node_guid()),
        driver: select::driver(device),
        embedded,
        place,
        usable: why.is_none(),
        why,
        default: false,
        ports,
    }
}

impl Port {
    /// A port as it is known without opening the device.
    fn closed(place: &PortPlace) -> Self {
        let state = place.state.map(|raw| PortState::from_raw(raw).to_string());
        Self {
            port: place.port,
            state: state.unwrap_or_else(|| "?".to_owned()),
            link_layer: "?".to_owned(),
            interfaces: place.interfaces.clone(),
            gbps: None,
        }
    }

    fn fill(&mut self, attr: &PortAttr) {
        self.state = attr.state.to_string();
        self.link_layer = attr.link_layer.to_string();
        self.gbps = attr.gbps();
    }
}

impl Listing {
    /// Formats both tables: a line per port in each.
    fn tables(&self, width: usize) -> String {
        // Wide columns as in ibv_devices(1), if there is room.
        let wide = width >= 80;
        let link = if wide { "link layer" } else { "link" };
        let heads = ["device", "node GUID", "driver", "port", "state", link, ""];
        let mut names = Table::new(&heads, &[3]);
        let heads = ["device", "PCI address", "NUMA", "port", "interface", "Gb/s", "firmware", ""];
        let mut places = Table::new(&heads, &[2, 3, 5]);
        let dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        for row in &self.devices {
            let unknown = Port::closed(&PortPlace::new(1));
            let ports = if row.ports.is_empty() { &[unknown] } else { &row.ports[..] };
            for port in ports {
                let embedded = if row.embedded && wide { "(embedded)" } else { "" };
                names.row([
                    row.name.clone(),
                    row.node_guid.clone(),
                    row.driver.clone(),
                    port.port.to_string(),
                    port.state.clone(),
                    port.link_layer.clone(),
                    embedded.to_owned(),
                ]);
                let interfaces = Some(port.interfaces.join(",")).filter(|text| !text.is_empty());
                let usable = match (row.usable, row.default) {
                    (true, true) => "usable *",
                    (true, false) => "usable",
                    (false, _) => "not usable",
                };
                places.row([
                    row.name.clone(),
                    dash(row.place.pci_address.clone()),
                    dash(row.place.numa_node.map(|node| node.to_string())),
                    port.port.to_string(),
                    dash(interfaces),
                    dash(port.gbps.map(|gbps| gbps.to_string())),
                    dash(row.place.firmware.clone()),
                    usable.to_owned(),
                ]);
            }
        }
        let least: &[usize] = if wide { &[8, 16, 10, 4, 12, 10] } else { &[] };
        let (indent, gap) = if wide { ("    ", "  ") } else { ("", " ") };
        let names = names.text(indent, gap, least);
        let places = places.text(indent, gap, if wide { &[8] } else { &[] });
        if self.functions.is_empty() {
            return format!("{names}\n{places}");
        }
        let mut functions = Table::new(&["function", "part", "IOMMU group", "access"], &[2]);
        for function in &self.functions {
            let group = dash(function.iommu_group.map(|group| group.to_string()));
            let usable = if function.usable { "usable" } else { "not usable" };
            let name = format!("vfio:{}", function.pci_address);
            functions.row([name, function.part.clone(), group, usable.to_owned()]);
        }
        format!("{names}\n{places}\n{}", functions.text(indent, gap, &[]))
    }
}
