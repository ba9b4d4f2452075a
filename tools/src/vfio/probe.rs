//! `uverbs vfio probe`: brings a function up, prints it, and resets it.

use std::net::Ipv6Addr;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use uverbs::PortState;
use uverbs_mlx5_prm::cmd::Field;
use uverbs_mlx5_prm::cmd::caps::cmd_hca_cap;
use uverbs_mlx5_vfio::transport::vfio::Vfio;
use uverbs_mlx5_vfio::transport::vfio_user::VfioUser;
use uverbs_mlx5_vfio::{Function, Limits, LinkState, PAGE};

use crate::base::error::Error;
use crate::base::output;
use crate::base::sysfs;

/// Bring a function up, print it, and reset it.
///
/// Prints the firmware's version and board, the general capabilities, and the port with its
/// addresses. The function must have no other user: the probe resets it before and after.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs softhca serve --socket /tmp/hca.sock &\n  \
    uverbs vfio probe vfio-user:/tmp/hca.sock\n  \
    uverbs vfio probe vfio:0000:65:00.2\n\n\
    EXIT STATUS: 0, 1 when a step failed, 2 for a bad name.")]
pub(crate) struct Args {
    /// Function: vfio:ADDRESS, a PCI function that is bound to vfio-pci, or vfio-user:PATH, the
    /// socket of a vfio-user server
    #[arg(value_name = "FUNCTION")]
    function: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Time limit of a firmware command, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
        value_parser = clap::value_parser!(u64).range(1..=3600))]
    timeout: u64,
}

/// Capabilities of the report: numbers whose logarithm the device tells, and plain ones.
const POWERS: [(&str, Field); 6] = [
    ("max_qp", cmd_hca_cap::LOG_MAX_QP),
    ("max_cq", cmd_hca_cap::LOG_MAX_CQ),
    ("max_srq", cmd_hca_cap::LOG_MAX_SRQ),
    ("max_mkey", cmd_hca_cap::LOG_MAX_MKEY),
    ("max_pd", cmd_hca_cap::LOG_MAX_PD),
    ("max_qp_wqe", cmd_hca_cap::LOG_MAX_QP_SZ),
];
const NUMBERS: [(&str, Field); 3] = [
    ("max_send_wqe_bytes", cmd_hca_cap::MAX_WQE_SZ_SQ),
    ("max_receive_wqe_bytes", cmd_hca_cap::MAX_WQE_SZ_RQ),
    ("cqe_version", cmd_hca_cap::CQE_VERSION),
];
const FEATURES: [(&str, Field); 9] = [
    ("RC", cmd_hca_cap::RC),
    ("UC", cmd_hca_cap::UC),
    ("UD", cmd_hca_cap::UD),
    ("XRC", cmd_hca_cap::XRC),
    ("DCT", cmd_hca_cap::DCT),
    ("atomics", cmd_hca_cap::ATOMIC),
    ("RoCE", cmd_hca_cap::ROCE),
    ("tag matching", cmd_hca_cap::TAG_MATCHING),
    ("BlueFlame", cmd_hca_cap::BF),
];

#[derive(Debug, Serialize)]
struct Report {
    function: String,
    /// PCI vendor and device number.
    part: String,
    firmware: String,
    board: String,
    /// Pages of 4 KiB that the firmware has.
    pages: usize,
    capabilities: Vec<(&'static str, u64)>,
    features: Vec<&'static str>,
    port: Port,
}

#[derive(Debug, Serialize)]
struct Port {
    link_layer: &'static str,
    state: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    lid: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sm_lid: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mac: Option<String>,
    mtu: u32,
    node_guid: String,
    port_guid: String,
    pkeys: Vec<String>,
    /// Index and GID.
    gids: Vec<(u16, Ipv6Addr)>,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let mut limits = Limits::default();
    limits.command = Duration::from_secs(args.timeout);
    let function = open(&args.function, limits)?;
    let report = Report::of(&args.function, &function)?;
    // A function that can't be closed cleanly is worth knowing, after the report.
    let closed = function.close();
    match args.json {
        true => output::json(&report)?,
        false => output::print(&report.text())?,
    }
    Ok(closed?)
}

/// Opens the function of this name.
fn open(name: &str, limits: Limits) -> Result<Function, Error> {
    if let Some(path) = name.strip_prefix("vfio-user:") {
        return Ok(Function::open(VfioUser::connect(Path::new(path))?, limits)?);
    }
    if let Some(address) = name.strip_prefix("vfio:") {
        return Ok(Function::open(Vfio::open(&sysfs::root(), address)?, limits)?);
    }
    let why = "no such kind of function: vfio:ADDRESS or vfio-user:PATH".to_owned();
    Err(Error::Argument { option: "FUNCTION", value: name.to_owned(), why })
}

impl Report {
    fn of(name: &str, function: &Function) -> Result<Self, Error> {
        let (identity, caps) = (function.identity(), function.caps());
        let powers = POWERS.iter().map(|(name, field)| (*name, caps.power(*field).into()));
        let numbers = NUMBERS.iter().map(|(name, field)| (*name, caps.get(*field)));
        let features = FEATURES.iter().filter(|(_, field)| caps.get(*field) != 0);
        Ok(Self {
            function: name.to_owned(),
            part: format!("15b3:{:04x}", identity.part),
            firmware: identity.firmware.to_string(),
            board: identity.board.clone(),
            pages: function.pages(),
            capabilities: powers.chain(numbers).collect(),
            features: features.map(|(name, _)| *name).collect(),
            port: Port::of(&function.port()?),
        })
    }

    fn text(&self) -> String {
        let port = &self.port;
        let optional = |name: &str, value: Option<String>| match value {
            Some(value) => format!("  {name:<22}{value}\n"),
            None => String::new(),
        };
        let gids =
            port.gids.iter().map(|(index, gid)| format!("  {:<22}{gid}\n", gid_name(*index)));
        let caps = self.capabilities.iter().map(|(name, value)| format!("  {name:<22}{value}\n"));
        [
            format!("{:<24}{}\n", "function", self.function),
            format!("{:<24}{}\n", "part", self.part),
            format!("{:<24}{} ({})\n", "firmware", self.firmware, self.board),
            format!("{:<24}{} ({} KiB)\n", "pages", self.pages, self.pages * PAGE / 1024),
            format!("port 1: {}, {}\n", port.link_layer, port.state),
            optional("LID", port.lid.map(|lid| format!("{lid:#06x}"))),
            optional("subnet manager's LID", port.sm_lid.map(|lid| format!("{lid:#06x}"))),
            optional("MAC address", port.mac.clone()),
            format!("  {:<22}{}\n", "bytes of a packet", port.mtu),
            format!("  {:<22}{}\n", "node GUID", port.node_guid),
            format!("  {:<22}{}\n", "port GUID", port.port_guid),
            optional("P_Keys", (!port.pkeys.is_empty()).then(|| port.pkeys.join(" "))),
            gids.collect(),
            "capabilities\n".to_owned(),
            caps.collect(),
            format!("  {:<22}{}\n", "features", self.features.join(", ")),
        ]
        .concat()
    }
}

fn gid_name(index: u16) -> String {
    format!("GID {index}")
}

impl Port {
    fn of(port: &uverbs_mlx5_vfio::Port) -> Self {
        let mut of = Self {
            link_layer: "?",
            state: "?".to_owned(),
            lid: None,
            sm_lid: None,
            mac: None,
            mtu: port.mtu,
            node_guid: format!("{:016x}", port.node_guid),
            port_guid: format!("{:016x}", port.port_guid),
            pkeys: Vec::new(),
            gids: port.gids.iter().map(|(index, gid)| (*index, Ipv6Addr::from(*gid))).collect(),
        };
        match &port.link {
            LinkState::InfiniBand { state, lid, sm_lid, pkeys } => {
                of.link_layer = "InfiniBand";
                of.state = PortState::from_raw(*state).to_string();
                (of.lid, of.sm_lid) = (Some(*lid), Some(*sm_lid));
                of.pkeys = pkeys.iter().map(|pkey| format!("{pkey:#06x}")).collect();
            }
            LinkState::Ethernet { up, mac } => {
                of.link_layer = "Ethernet";
                of.state = if *up { "PORT_ACTIVE" } else { "PORT_DOWN" }.to_owned();
                let mac = mac.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>();
                of.mac = Some(mac.join(":"));
            }
            _ => {}
        }
        of
    }
}
