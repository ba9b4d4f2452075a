//! `uverbs devinfo`: attributes of devices and ports, under the names of `ibv_devinfo`.

use std::fmt::{Display, Write};

use serde_json::{Map, Value, json};
use uverbs::provider::AnyContext;
use uverbs::softhca::SoftHca;
use uverbs::unstable::efa::{Limits, limits};
use uverbs::{Context, Device, DeviceAttr, PortAttr};

use crate::base::device_facts::DeviceFacts;
use crate::base::error::{BecauseOf, Error};
use crate::base::output;
use crate::base::select;

/// Show what devices and their ports are and can do.
///
/// Fields have the names that ibv_devinfo(1) gives them. Without -d, all devices are shown; where
/// there is no RDMA device, the embedded software HCA.
///
/// Units: max_mr_size, max_msg_sz, MTUs and device memory are bytes; hca_core_clock is kHz;
/// page_size_cap is a mask whose bit n stands for pages of 2^n bytes; local_ca_ack_delay and
/// subnet_timeout are exponents of two times 4.096 microseconds.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "EXAMPLES:\n  \
    uverbs devinfo\n  \
    uverbs devinfo -d mlx5_0 -i 1 -v\n  \
    uverbs devinfo --json | jq '.devices[0].ports[0].state'\n\n\
    EXIT STATUS: 0, 1 when a device can't be opened or asked, 2 for a device or port that isn't \
    there.")]
pub(crate) struct Args {
    /// Device [default: all]
    #[arg(short = 'd', long, value_name = "NAME")]
    device: Option<String>,
    /// Port, from 1 [default: all]
    #[arg(short = 'i', long, visible_alias = "port", value_name = "PORT")]
    ib_port: Option<u8>,
    /// Print everything: all limits, the GID table with its types, the P_Key table; for a software
    /// HCA also the counters of transport and wire
    #[arg(short, long)]
    verbose: bool,
    /// Print one JSON object: {"devices": [...]}. Numbers stay numbers, GUIDs are hexadecimal text
    #[arg(long)]
    json: bool,
}

/// A line: name, value for people, value for programs.
struct Field {
    name: &'static str,
    text: String,
    json: Value,
}

/// All printed attributes of a device.
struct Info {
    name: String,
    fields: Vec<Field>,
    ports: Vec<PortInfo>,
}

struct PortInfo {
    number: u8,
    fields: Vec<Field>,
    gids: Vec<Gid>,
    pkeys: Vec<(u16, u16)>,
    /// Groups of counters, by name.
    counters: Vec<(&'static str, Vec<Counter>)>,
}

type Counter = (&'static str, u64);

struct Gid {
    index: u32,
    gid: String,
    kind: String,
    ifindex: u32,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let devices = select::named_or_all(args.device.as_deref())?;
    let mut failed = Ok(());
    let mut infos = Vec::new();
    for device in &devices {
        match info(device, args.ib_port, args.verbose) {
            Ok(info) => infos.push(info),
            // A device that is named must be shown whole. Of all devices, the rest goes on.
            Err(error) if args.device.is_some() => return Err(error),
            Err(error) => {
                infos.push(Info::unusable(device, &error));
                failed = failed.and(Err(error));
            }
        }
    }
    if args.json {
        output::json(&json!({ "devices": infos.iter().map(Info::json).collect::<Vec<_>>() }))?;
    } else {
        output::print(&infos.iter().map(Info::text).collect::<String>())?;
    }
    failed
}

/// Text that `uverbs devinfo -v` prints of a device and one of its ports.
pub(crate) fn text_of(device: &Device, port: u8) -> Result<String, Error> {
    info(device, Some(port), true).map(|info| info.text())
}

/// All that `uverbs devinfo -v --json` has of a device.
pub(crate) fn json_of(device: &Device) -> Result<Value, Error> {
    info(device, None, true).map(|info| info.json())
}

fn info(device: &Device, port: Option<u8>, verbose: bool) -> Result<Info, Error> {
    let context = device.open()?;
    let attr = context.query_device()?;
    let wanted = match port {
        Some(port) if port == 0 || port > attr.phys_port_count => {
            return Err(Error::Argument {
                option: "--port",
                value: port.to_string(),
                why: format!("{} has ports 1 to {}", device.name(), attr.phys_port_count),
            });
        }
        Some(port) => port..=port,
        None => 1..=attr.phys_port_count,
    };
    let mut fields = device_fields(device, &attr);
    if verbose {
        fields.extend(device_limits(&attr));
        if let AnyContext::Efa(efa) = context.provider() {
            fields.extend(efa_limits(&limits(efa)));
        }
        if let Ok(caps) = context.counter_caps() {
            fields.push(plain("max_comp_cntr", caps.max_counters));
            let ops: Vec<_> = caps.ops.iter_names().map(|(name, _)| name).collect();
            fields.push(plain("comp_cntr_caps", ops.join(" ")));
        }
    }
    let ports = wanted.map(|number| port_info(&context, number, verbose));
    let mut ports = ports.collect::<Result<Vec<_>, _>>()?;
    if verbose && let Some(device) = select::software(device) {
        ports.iter_mut().for_each(|port| port.counters = counters(&device));
    }
    Ok(Info { name: device.name().to_owned(), fields, ports })
}

/// Limits of an Elastic Fabric Adapter.
fn efa_limits(efa: &Limits) -> Vec<Field> {
    vec![
        plain("efa_max_sq_wr", efa.max_sq_wr),
        plain("efa_max_rq_wr", efa.max_rq_wr),
        plain("efa_max_sq_sge", u32::from(efa.max_sq_sge)),
        plain("efa_max_rq_sge", u32::from(efa.max_rq_sge)),
        plain("efa_inline_buf_size", u32::from(efa.inline)),
        plain("efa_inline_buf_size_ex", u32::from(efa.inline_long)),
        plain("efa_max_rdma_size", efa.max_rdma_size),
        plain("efa_max_llq_size", efa.max_llq_size),
        plain("efa_max_tx_batch", u32::from(efa.max_tx_batch)),
        plain("efa_min_sq_wr", u32::from(efa.min_sq_wr)),
        plain("efa_sub_cqs_per_cq", u32::from(efa.sub_cqs)),
        plain("efa_rdma_read", efa.read),
        plain("efa_rdma_write", efa.write),
        plain("efa_rnr_retry", efa.rnr_retry),
        plain("efa_cq_notifications", efa.notifications),
        plain("efa_sender_gids", efa.sender_gids),
        plain("efa_unsolicited_writes", efa.unsolicited_writes),
        plain("efa_in_order_128", efa.in_order_128),
    ]
}

/// Counters since the device's creation.
fn counters(device: &SoftHca) -> Vec<(&'static str, Vec<Counter>)> {
    let mut all = vec![("transport", device.stats().transport())];
    all.extend(device.udp_stats().map(|stats| ("udp", stats.by_name())));
    all.extend(device.shared_stats().map(|stats| ("shared_memory", stats.by_name())));
    all
}

fn port_info(context: &Context, number: u8, verbose: bool) -> Result<PortInfo, Error> {
    let attr = context.query_port(number).because_of("--port", number)?;
    let (gids, pkeys, counters) = (Vec::new(), Vec::new(), Vec::new());
    let mut info = PortInfo { number, fields: port_fields(&attr), gids, pkeys, counters };
    if !verbose {
        return Ok(info);
    }
    info.fields.extend(port_limits(&attr));
    for entry in context.query_gid_table()? {
        if entry.port == u32::from(number) && !entry.gid.is_zero() {
            info.gids.push(Gid {
                index: entry.index,
                gid: entry.gid.to_string(),
                kind: entry.kind.to_string(),
                ifindex: entry.netdev_ifindex,
            });
        }
    }
    for index in 0..attr.pkey_table_len {
        match context.query_pkey(number, index)? {
            0 => {}
            pkey => info.pkeys.push((index, pkey)),
        }
    }
    Ok(info)
}

/// Field with the same value for people and programs.
fn plain(name: &'static str, value: impl Display + Into<Value>) -> Field {
    Field { name, text: value.to_string(), json: value.into() }
}

/// A number in hexadecimal.
fn hex(name: &'static str, value: impl Into<u64>) -> Field {
    let value = value.into();
    Field { name, text: format!("{value:#x}"), json: value.into() }
}

/// GUID in the format of ibv_devinfo: four digits and a colon.
fn guid(name: &'static str, value: u64) -> Field {
    let quarter = |shift: u32| format!("{:04x}", value >> shift & 0xffff);
    let text = [48, 32, 16, 0].map(quarter).join(":");
    Field { name, json: text.clone().into(), text }
}

/// A name, followed by its number.
fn named(name: &'static str, value: impl Display, number: impl Display) -> Field {
    let text = value.to_string();
    Field { name, text: format!("{text} ({number})"), json: text.into() }
}

/// A mask with the names of its bits.
fn flags(name: &'static str, bits: u64, names: Vec<&'static str>) -> Field {
    let mut text = format!("{bits:#010x}");
    for name in &names {
        text.push('\n');
        text.push_str(name);
    }
    Field { name, text, json: json!({ "bits": bits, "names": names }) }
}

/// Names of the set bits of a `bitflags` type.
macro_rules! bit_names {
    ($flags:expr) => {
        $flags.iter_names().map(|(name, _)| name).collect::<Vec<_>>()
    };
}

fn device_fields(device: &Device, attr: &DeviceAttr) -> Vec<Field> {
    // The kernel's InfiniBand includes RoCE.
    let (transport, number) = if device.is_iwarp() { ("iWARP", 1) } else { ("InfiniBand", 0) };
    let mut fields = vec![plain("driver", select::driver(device))];
    fields.push(Field { json: true.into(), ..plain("usable", "yes") });
    fields.extend(place_fields(device));
    fields.extend([
        named("transport", transport, number),
        plain("fw_ver", attr.firmware()),
        guid("node_guid", attr.node_guid),
        guid("sys_image_guid", attr.sys_image_guid),
        Field { text: format!("{:#06x}", attr.vendor_id), ..hex("vendor_id", attr.vendor_id) },
        plain("vendor_part_id", attr.vendor_part_id),
        hex("hw_ver", attr.hw_ver),
        plain("phys_port_cnt", attr.phys_port_count),
    ]);
    fields
}

/// Place of the device in the machine; fields that the kernel doesn't tell are left out.
fn place_fields(device: &Device) -> Vec<Field> {
    let place = DeviceFacts::of(device);
    let mut fields = Vec::new();
    fields.extend(place.pci_address.map(|address| plain("pci_address", address)));
    fields.extend(place.numa_node.map(|node| plain("numa_node", node)));
    let interfaces = device.net_interfaces();
    if !interfaces.is_empty() {
        let text = interfaces.join(", ");
        fields.push(Field { json: interfaces.into(), ..plain("interfaces", text) });
    }
    fields
}

fn device_limits(attr: &DeviceAttr) -> Vec<Field> {
    let mut fields = vec![
        hex("max_mr_size", attr.max_mr_size),
        hex("page_size_cap", attr.page_size_cap),
        plain("max_qp", attr.max_qp),
        plain("max_qp_wr", attr.max_qp_wr),
        flags("device_cap_flags", attr.caps.bits(), bit_names!(attr.caps)),
        plain("max_sge", attr.max_sge),
        plain("max_sge_rd", attr.max_sge_rd),
        plain("max_cq", attr.max_cq),
        plain("max_cqe", attr.max_cqe),
        plain("max_mr", attr.max_mr),
        plain("max_pd", attr.max_pd),
        plain("max_qp_rd_atom", attr.max_qp_rd_atom),
        plain("max_ee_rd_atom", attr.max_ee_rd_atom),
        plain("max_res_rd_atom", attr.max_res_rd_atom),
        plain("max_qp_init_rd_atom", attr.max_qp_init_rd_atom),
        plain("max_ee_init_rd_atom", attr.max_ee_init_rd_atom),
        named("atomic_cap", attr.atomic_cap, attr.atomic_cap.raw()),
        plain("max_ee", attr.max_ee),
        plain("max_rdd", attr.max_rdd),
        plain("max_mw", attr.max_mw),
        plain("max_raw_ipv6_qp", attr.max_raw_ipv6_qp),
        plain("max_raw_ethy_qp", attr.max_raw_ethy_qp),
        plain("max_mcast_grp", attr.max_mcast_grp),
        plain("max_mcast_qp_attach", attr.max_mcast_qp_attach),
        plain("max_total_mcast_qp_attach", attr.max_total_mcast_qp_attach),
        plain("max_ah", attr.max_ah),
        plain("max_fmr", attr.max_fmr),
        plain("max_srq", attr.max_srq),
        plain("max_srq_wr", attr.max_srq_wr),
        plain("max_srq_sge", attr.max_srq_sge),
        plain("max_pkeys", attr.max_pkeys),
        plain("local_ca_ack_delay", attr.local_ca_ack_delay),
        plain("odp_supported", attr.odp.supported),
        plain("odp_implicit", attr.odp.implicit),
        flags("rc_odp_caps", attr.odp.rc.bits().into(), bit_names!(attr.odp.rc)),
        flags("uc_odp_caps", attr.odp.uc.bits().into(), bit_names!(attr.odp.uc)),
        flags("ud_odp_caps", attr.odp.ud.bits().into(), bit_names!(attr.odp.ud)),
        flags("xrc_odp_caps", attr.odp.xrc.bits().into(), bit_names!(attr.odp.xrc)),
        hex("completion_timestamp_mask", attr.completion_timestamp_mask),
        plain("hca_core_clock", attr.hca_core_clock),
        flags("device_cap_flags_ex", attr.caps_ex.bits(), bit_names!(attr.caps_ex)),
        hex("rss_supported_qpts", attr.rss.supported_qpts),
        plain("max_rwq_indirection_tables", attr.rss.max_rwq_indirection_tables),
        plain("max_rwq_indirection_table_size", attr.rss.max_rwq_indirection_table_size),
        plain("max_wq_type_rq", attr.max_wq_type_rq),
    ];
    fields.extend([
        flags(
            "raw_packet_caps",
            attr.raw_packet_caps.bits().into(),
            bit_names!(attr.raw_packet_caps),
        ),
        plain("tm_max_rndv_hdr_size", attr.tm.max_rndv_hdr_size),
        plain("tm_max_num_tags", attr.tm.max_num_tags),
        plain("tm_max_ops", attr.tm.max_ops),
        plain("tm_max_sge", attr.tm.max_sge),
        plain("max_cq_count", attr.max_cq_moderation_count),
        plain("max_cq_period", attr.max_cq_moderation_period),
        plain("max_dm_size", attr.max_dm_size),
    ]);
    fields
}

fn port_fields(attr: &PortAttr) -> Vec<Field> {
    vec![
        named("state", attr.state, attr.state.raw()),
        mtu("max_mtu", attr.max_mtu),
        mtu("active_mtu", attr.active_mtu),
        plain("sm_lid", attr.sm_lid),
        plain("port_lid", attr.lid),
        Field { text: format!("{:#04x}", attr.lmc), ..hex("port_lmc", attr.lmc) },
        plain("link_layer", attr.link_layer.to_string()),
        match attr.gbps() {
            Some(gbps) => Field { text: format!("{gbps} Gb/s"), ..plain("speed", gbps) },
            None => Field { json: Value::Null, ..plain("speed", "unknown") },
        },
    ]
}

fn mtu(name: &'static str, mtu: uverbs::Mtu) -> Field {
    let json = mtu.bytes().map_or(Value::Null, Value::from);
    Field { json, ..named(name, mtu, mtu.raw()) }
}

fn port_limits(attr: &PortAttr) -> Vec<Field> {
    vec![
        hex("max_msg_sz", attr.max_message_size),
        flags("port_cap_flags", attr.caps.bits().into(), bit_names!(attr.caps)),
        hex("port_cap_flags2", attr.caps2),
        plain("max_vl_num", attr.max_vl_num),
        plain("bad_pkey_cntr", attr.bad_pkey_count),
        plain("qkey_viol_cntr", attr.qkey_violation_count),
        plain("sm_sl", attr.sm_sl),
        plain("pkey_tbl_len", attr.pkey_table_len),
        plain("gid_tbl_len", attr.gid_table_len),
        plain("subnet_timeout", attr.subnet_timeout),
        plain("init_type_reply", attr.init_type_reply),
        named("active_width", attr.active_width, attr.active_width.0),
        named("active_speed", attr.active_speed, attr.active_speed.0),
        named("phys_state", attr.phys_state_name(), attr.phys_state),
        plain("grh_required", attr.grh_required),
    ]
}

impl Info {
    /// Fields of a device that can't be opened or asked.
    fn unusable(device: &Device, error: &Error) -> Self {
        let why = Field { json: false.into(), ..plain("usable", format!("no: {error}")) };
        let mut fields = vec![plain("driver", select::driver(device)), why];
        fields.extend(place_fields(device));
        fields.extend(DeviceFacts::of(device).firmware.map(|firmware| plain("fw_ver", firmware)));
        Self { name: device.name().to_owned(), fields, ports: Vec::new() }
    }

    fn text(&self) -> String {
        let mut text = format!("hca_id:\t{}\n", self.name);
        lines(&mut text, "\t", &self.fields);
        for port in &self.ports {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\t\tport:\t{}", port.number);
            lines(&mut text, "\t\t\t", &port.fields);
            for Gid { index, gid, kind, ifindex } in &port.gids {
                let device =
                    if *ifindex == 0 { String::new() } else { format!(", netdev {ifindex}") };
                let _ = writeln!(text, "\t\t\tGID[{index:3}]:\t\t{gid}, {kind}{device}");
            }
            for (index, pkey) in &port.pkeys {
                let _ = writeln!(text, "\t\t\tP_Key[{index:3}]:\t\t{pkey:#06x}");
            }
            for (group, counters) in &port.counters {
                let _ = writeln!(text, "\t\t\tcounters, {group}:");
                let fields = counters.iter().map(|(name, value)| plain(name, *value));
                lines(&mut text, "\t\t\t\t", &fields.collect::<Vec<_>>());
            }
        }
        text.push('\n');
        text
    }

    fn json(&self) -> Value {
        let mut map = Map::from_iter([("hca_id".to_owned(), self.name.as_str().into())]);
        insert(&mut map, &self.fields);
        map.insert("ports".to_owned(), self.ports.iter().map(PortInfo::json).collect());
        map.into()
    }
}

impl PortInfo {
    fn json(&self) -> Value {
        let mut map = Map::from_iter([("port".to_owned(), self.number.into())]);
        insert(&mut map, &self.fields);
        if !self.gids.is_empty() || !self.pkeys.is_empty() {
            let gid = |entry: &Gid| {
                json!({
                    "index": entry.index, "gid": entry.gid, "type": entry.kind,
                    "netdev_ifindex": entry.ifindex
                })
            };
            map.insert("gids".to_owned(), self.gids.iter().map(gid).collect());
            let pkey = |&(index, pkey): &(u16, u16)| json!({ "index": index, "pkey": pkey });
            map.insert("pkeys".to_owned(), self.pkeys.iter().map(pkey).collect());
        }
        if !self.counters.is_empty() {
            let group = |(group, counters): &(&str, Vec<Counter>)| {
                let counters = counters.iter().map(|(name, n)| ((*name).to_owned(), (*n).into()));
                ((*group).to_owned(), Value::Object(counters.collect()))
            };
            let groups = self.counters.iter().map(group);
            map.insert("counters".to_owned(), Value::Object(groups.collect()));
        }
        map.into()
    }
}

/// Formats lines with their values in one column.
fn lines(text: &mut String, indent: &str, fields: &[Field]) {
    for field in fields {
        let name = format!("{}:", field.name);
        let value = field.text.replace('\n', &format!("\n{indent}{:32}", ""));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{indent}{name:<32}{value}");
    }
}

fn insert(map: &mut Map<String, Value>, fields: &[Field]) {
    for field in fields {
        map.insert(field.name.to_owned(), field.json.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms() {
        assert_eq!(guid("node_guid", 0x0c42_a103_0065_9a5e).text, "0c42:a103:0065:9a5e");
        assert_eq!(hex("hw_ver", 0u32).text, "0x0");
        assert_eq!(named("state", "PORT_ACTIVE", 4).text, "PORT_ACTIVE (4)");
        let flags = flags("caps", 3, vec!["A", "B"]);
        assert_eq!(flags.text, "0x00000003\nA\nB");
        let mut text = String::new();
        lines(&mut text, "\t", std::slice::from_ref(&flags));
        let indent = " ".repeat(32);
        assert_eq!(
            text,
            format!("\tcaps:{}0x00000003\n\t{indent}A\n\t{indent}B\n", " ".repeat(27))
        );
        assert_eq!(flags.json, json!({ "bits": 3, "names": ["A", "B"] }));
    }
}
