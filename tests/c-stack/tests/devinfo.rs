//! Compares `ibv_devices` and `ibv_devinfo` on the preloaded device with our library's attributes
//! of the same device, field by field.

use std::sync::Arc;

use uverbs::packet::RawPacketCaps;
use uverbs::softhca::{LinkLayer, SoftHca};
use uverbs::tags::TmCaps;
use uverbs::{Context, Device, DeviceAttr, Gid, GidType, PortAttr};
use uverbs_kernel_abi::qp::IB_UVERBS_QPT_RAW_PACKET;

/// Lines of `ibv_devinfo -v` without a field in our library: values that mlx5's provider derives
/// from its driver's response, which softhca leaves at 0, and GET_CONTEXT's number of completion
/// vectors.
const ELSEWHERE: &[(&str, &str)] = &[
    ("tso_caps", ""),
    ("max_tso", "0"),
    ("rss_caps", ""),
    ("packet_pacing_caps", ""),
    ("qp_rate_limit_min", "0kbps"),
    ("qp_rate_limit_max", "0kbps"),
    ("num_comp_vectors", "8"),
];

/// Parses lines into names and values. A line without a colon belongs to the value before.
fn fields(text: &str) -> Vec<(String, String)> {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match (line.split_once(':'), fields.last_mut()) {
            (Some((name, value)), _) => fields.push((name.to_owned(), value.trim().to_owned())),
            (None, _) if line.ends_with("not supported") => {
                fields.push((line.to_owned(), String::new()));
            }
            (None, Some((_, value))) => {
                value.push_str(if value.is_empty() { "" } else { " " });
                value.push_str(line);
            }
            (None, None) => panic!("{line}"),
        }
    }
    fields
}

struct Expected(Vec<(String, String)>);

impl Expected {
    fn add(&mut self, name: &str, value: impl ToString) {
        self.0.push((name.to_owned(), value.to_string()));
    }

    fn flags(&mut self, name: &str, head: String, names: Vec<&str>) {
        let words: Vec<_> =
            [head.as_str()].into_iter().chain(names).filter(|word| !word.is_empty()).collect();
        self.add(name, words.join(" "));
    }
}

fn guid(value: u64) -> String {
    [48, 32, 16, 0].map(|shift| format!("{:04x}", value >> shift & 0xffff)).join(":")
}

fn device_fields(expected: &mut Expected, attr: &DeviceAttr) {
    expected.add("hca_id", "softhca0");
    expected.add("transport", "InfiniBand (0)");
    expected.add("fw_ver", attr.firmware());
    expected.add("node_guid", guid(attr.node_guid));
    expected.add("sys_image_guid", guid(attr.sys_image_guid));
    expected.add("vendor_id", format!("0x{:04x}", attr.vendor_id));
    expected.add("vendor_part_id", attr.vendor_part_id);
    expected.add("hw_ver", format!("0x{:X}", attr.hw_ver));
    expected.add("phys_port_cnt", attr.phys_port_count);
}

fn limit_fields(expected: &mut Expected, attr: &DeviceAttr) {
    expected.add("max_mr_size", format!("{:#x}", attr.max_mr_size));
    expected.add("page_size_cap", format!("{:#x}", attr.page_size_cap));
    expected.add("max_qp", attr.max_qp);
    expected.add("max_qp_wr", attr.max_qp_wr);
    let names = attr.caps.iter_names().map(|(name, _)| name).collect();
    expected.flags("device_cap_flags", format!("{:#010x}", attr.caps.bits() as u32), names);
    for (name, value) in [
        ("max_sge", attr.max_sge),
        ("max_sge_rd", attr.max_sge_rd),
        ("max_cq", attr.max_cq),
        ("max_cqe", attr.max_cqe),
        ("max_mr", attr.max_mr),
        ("max_pd", attr.max_pd),
        ("max_qp_rd_atom", attr.max_qp_rd_atom),
        ("max_ee_rd_atom", attr.max_ee_rd_atom),
        ("max_res_rd_atom", attr.max_res_rd_atom),
        ("max_qp_init_rd_atom", attr.max_qp_init_rd_atom),
        ("max_ee_init_rd_atom", attr.max_ee_init_rd_atom),
    ] {
        expected.add(name, value);
    }
    expected.add("atomic_cap", format!("{} ({})", attr.atomic_cap, attr.atomic_cap.raw()));
    for (name, value) in [
        ("max_ee", attr.max_ee),
        ("max_rdd", attr.max_rdd),
        ("max_mw", attr.max_mw),
        ("max_raw_ipv6_qp", attr.max_raw_ipv6_qp),
        ("max_raw_ethy_qp", attr.max_raw_ethy_qp),
        ("max_mcast_grp", attr.max_mcast_grp),
        ("max_mcast_qp_attach", attr.max_mcast_qp_attach),
        ("max_total_mcast_qp_attach", attr.max_total_mcast_qp_attach),
        ("max_ah", attr.max_ah),
        ("max_fmr", attr.max_fmr),
        ("max_srq", attr.max_srq),
    ] {
        expected.add(name, value);
    }
    // Printed only if it is not 0.
    if attr.max_fmr != 0 {
        expected.add("max_map_per_fmr", attr.max_map_per_fmr);
    }
    if attr.max_srq != 0 {
        expected.add("max_srq_wr", attr.max_srq_wr);
        expected.add("max_srq_sge", attr.max_srq_sge);
    }
    expected.add("max_pkeys", attr.max_pkeys);
    expected.add("local_ca_ack_delay", attr.local_ca_ack_delay);
    let odp = &attr.odp;
    let mut general = vec![];
    if odp.supported {
        general.push("ODP_SUPPORT");
    }
    if odp.implicit {
        general.push("ODP_SUPPORT_IMPLICIT");
    }
    expected.add("general_odp_caps", general.join(" "));
    for (name, caps) in [
        ("rc_odp_caps", odp.rc),
        ("uc_odp_caps", odp.uc),
        ("ud_odp_caps", odp.ud),
        ("xrc_odp_caps", odp.xrc),
    ] {
        let names: Vec<_> = caps.iter_names().map(|(name, _)| format!("SUPPORT_{name}")).collect();
        expected.add(name, if caps.is_empty() { "NO SUPPORT".to_owned() } else { names.join(" ") });
    }
    match attr.completion_timestamp_mask {
        0 => expected.add("completion_timestamp_mask not supported", ""),
        mask => expected.add("completion timestamp_mask", format!("{mask:#018x}")),
    }
    match attr.hca_core_clock {
        0 => expected.add("core clock not supported", ""),
        clock => expected.add("hca_core_clock", format!("{clock}kHZ")),
    }
    expected.add("device_cap_flags_ex", format!("0x{:X}", attr.caps_ex.bits()));
    expected.add("max_rwq_indirection_tables", attr.rss.max_rwq_indirection_tables);
    expected.add("max_rwq_indirection_table_size", attr.rss.max_rwq_indirection_table_size);
    // mlx5_ib reports Toeplitz and all fields for every device that hashes.
    let (function, fields) = match attr.rss.supported_qpts {
        0 => ("0x0", "0x0"),
        _ => ("0x1", "0x800000FF"),
    };
    expected.add("rx_hash_function", function);
    expected.add("rx_hash_fields_mask", fields);
    if attr.rss.supported_qpts == 1 << IB_UVERBS_QPT_RAW_PACKET {
        expected.add("supported_qp", "SUPPORT_RAW_PACKET");
    }
    expected.add("max_wq_type_rq", attr.max_wq_type_rq);
    let names = [
        (RawPacketCaps::CVLAN_STRIPPING, "C-VLAN stripping offload"),
        (RawPacketCaps::SCATTER_FCS, "Scatter FCS offload"),
        (RawPacketCaps::IP_CSUM, "IP csum offload"),
        (RawPacketCaps::DELAY_DROP, "Delay drop"),
    ];
    let has = names.iter().filter(|(cap, _)| attr.raw_packet_caps.contains(*cap));
    let has: Vec<_> = has.map(|(_, name)| *name).collect();
    if !has.is_empty() {
        expected.add("raw packet caps", has.join(" "));
    }
    let (count, period) = (attr.max_cq_moderation_count, attr.max_cq_moderation_period);
    if count != 0 && period != 0 {
        expected.add("cq moderation caps", "");
        expected.add("max_cq_count", count);
        expected.add("max_cq_period", format!("{period} us"));
    }
    if attr.max_dm_size != 0 {
        expected.add("maximum available device memory", format!("{}Bytes", attr.max_dm_size));
    }
    match attr.tm.max_num_tags {
        0 => expected.add("tag matching not supported", ""),
        tags => {
            let TmCaps { max_rndv_hdr_size, max_ops, max_sge, .. } = attr.tm;
            let rc = "IBV_TM_CAP_RC".to_owned();
            expected.add("max_num_tags", tags);
            expected.add("max_rndv_hdr_size", max_rndv_hdr_size);
            expected.add("flags", if attr.tm.flags == 1 { rc } else { String::new() });
            expected.add("max_ops", max_ops);
            expected.add("max_sge", max_sge);
        }
    }
}

/// Text of `ibv_devinfo` for a number of virtual lanes.
fn lanes(code: u8) -> &'static str {
    ["invalid value", "1", "2", "4", "8", "15"].get(usize::from(code)).unwrap_or(&"invalid value")
}

fn port_fields(expected: &mut Expected, number: u8, attr: &PortAttr, verbose: bool) {
    let mtu = |mtu: uverbs::Mtu| format!("{mtu} ({})", mtu.raw());
    expected.add("port", number);
    expected.add("state", format!("{} ({})", attr.state, attr.state.raw()));
    expected.add("max_mtu", mtu(attr.max_mtu));
    expected.add("active_mtu", mtu(attr.active_mtu));
    expected.add("sm_lid", attr.sm_lid);
    expected.add("port_lid", attr.lid);
    expected.add("port_lmc", format!("{:#04x}", attr.lmc));
    expected.add("link_layer", attr.link_layer);
    if !verbose {
        return;
    }
    expected.add("max_msg_sz", format!("{:#x}", attr.max_message_size));
    expected.add("port_cap_flags", format!("{:#010x}", attr.caps.bits()));
    expected.add("port_cap_flags2", format!("{:#06x}", attr.caps2));
    expected.add("max_vl_num", format!("{} ({})", lanes(attr.max_vl_num), attr.max_vl_num));
    expected.add("bad_pkey_cntr", format!("{:#x}", attr.bad_pkey_count));
    expected.add("qkey_viol_cntr", format!("{:#x}", attr.qkey_violation_count));
    expected.add("sm_sl", attr.sm_sl);
    expected.add("pkey_tbl_len", attr.pkey_table_len);
    expected.add("gid_tbl_len", attr.gid_table_len);
    expected.add("subnet_timeout", attr.subnet_timeout);
    expected.add("init_type_reply", attr.init_type_reply);
    let lanes = attr.active_width.lanes().unwrap();
    expected.add("active_width", format!("{lanes}X ({})", attr.active_width.0));
    // Our text ends with the name of the generation.
    let speed = attr.active_speed.to_string();
    let (rate, _) = speed.split_once(" Gb/s").unwrap();
    expected.add("active_speed", format!("{rate} Gbps ({})", attr.active_speed.0));
    expected.add("phys_state", format!("{} ({})", attr.phys_state_name(), attr.phys_state));
}

/// `fe80:0000:…`, as RoCE v1 and InfiniBand GIDs are printed.
fn groups(gid: Gid) -> String {
    let pair = |pair: &[u8]| format!("{:02x}{:02x}", pair[0], pair[1]);
    gid.0.chunks(2).map(pair).collect::<Vec<_>>().join(":")
}

fn gid_fields(expected: &mut Expected, context: &Context) {
    for entry in context.query_gid_table().unwrap() {
        let value = match entry.kind {
            GidType::Ib => groups(entry.gid),
            GidType::RoceV1 => format!("{}, RoCE v1", groups(entry.gid)),
            _ => format!("{}, {}", entry.gid, entry.kind),
        };
        expected.add(&format!("GID[{:3}]", entry.index), value);
    }
}

/// Our library's attributes, in the words of `ibv_devinfo`. The device is made like the preloaded
/// one, with number 1.
fn expected(link: LinkLayer, verbose: bool) -> Vec<(String, String)> {
    let device = SoftHca::builder().name("softhca0").number(1).link(link).build().unwrap();
    let context = Device::from_source(Arc::new(device)).open().unwrap();
    let attr = context.query_device().unwrap();
    let mut expected = Expected(Vec::new());
    device_fields(&mut expected, &attr);
    if verbose {
        limit_fields(&mut expected, &attr);
        for (name, value) in ELSEWHERE {
            expected.add(name, value);
        }
    }
    for number in 1..=attr.phys_port_count {
        let port = context.query_port(number).unwrap();
        port_fields(&mut expected, number, &port, verbose);
        if verbose {
            gid_fields(&mut expected, &context);
        }
    }
    expected.0
}

const LINKS: [(&str, LinkLayer); 2] = [("eth", LinkLayer::Ethernet), ("ib", LinkLayer::InfiniBand)];

#[test]
fn ibv_devinfo_says_what_we_say() {
    let Some(stack) = c_stack::unpacked() else { return };
    for (name, link) in LINKS {
        for args in [&[][..], &["-v"]] {
            let run = c_stack::run(
                stack.program("ibv_devinfo").args(args).env("UVERBS_SOFTHCA_LINK", name),
            );
            // Each program has its order of sections.
            let mut theirs = fields(&run.ok().stdout);
            let mut ours = expected(link, !args.is_empty());
            theirs.sort();
            ours.sort();
            assert_eq!(theirs, ours, "{name} {args:?}");
        }
    }
}

#[test]
fn ibv_devices_lists_the_device() {
    let Some(stack) = c_stack::unpacked() else { return };
    for (name, link) in LINKS {
        let run = c_stack::run(stack.program("ibv_devices").env("UVERBS_SOFTHCA_LINK", name)).ok();
        let rows: Vec<Vec<_>> =
            run.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
        let device = SoftHca::builder().number(1).link(link).stepped().build().unwrap();
        let guid = Device::from_source(Arc::new(device)).node_guid();
        assert_eq!(rows.len(), 3, "{run:?}");
        assert_eq!(rows[2], ["softhca0", &format!("{guid:016x}")]);
    }
}

#[test]
fn the_sysfs_tree_is_gone_afterwards() {
    let Some(stack) = c_stack::unpacked() else { return };
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("tree-check");
    std::fs::create_dir_all(&folder).unwrap();
    c_stack::run(stack.program("ibv_devices").env("UVERBS_SOFTHCA_DIR", &folder)).ok();
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 0);
    std::fs::remove_dir(&folder).unwrap();
}

#[test]
fn a_wrong_environment_is_refused() {
    let Some(stack) = c_stack::unpacked() else { return };
    for (name, value) in [("UVERBS_SOFTHCA_LINK", "token-ring"), ("UVERBS_SOFTHCA_NUMBER", "0")] {
        let run = c_stack::run(stack.program("ibv_devices").env(name, value));
        assert_eq!(run.status, Some(2), "{run:?}");
        assert!(run.stderr.contains(value), "{run:?}");
    }
}
