//! Raw packets: queue pairs, the rules that steer to them, and counters.

use uverbs_kernel_abi::flow::*;
use uverbs_kernel_abi::mlx5::{
    MLX5_QP_FLAG_UAR_PAGE_INDEX, mlx5_ib_create_flow, mlx5_ib_create_qp,
};
use uverbs_kernel_abi::objects::*;
use uverbs_kernel_abi::qp::{
    IB_QP_PKEY_INDEX, IB_QP_PORT, IB_QP_STATE, IB_QPS_INIT, IB_QPS_RTR, IB_QPS_RTS,
    IB_UVERBS_QP_CREATE_CVLAN_STRIPPING, IB_UVERBS_QPT_RAW_PACKET, ib_uverbs_modify_qp,
};
use uverbs_kernel_abi::write::{IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_EX_CMD_CREATE_FLOW};
use zerocopy::IntoBytes;

use super::case;
use super::mr::NO_OBJECT;
use crate::case::{Case, World};
use crate::cmd::Cmd;
use crate::rig::Rig;
use crate::want::{EBUSY, EEXIST, EINVAL, ENOMEM, ENOSPC, EOPNOTSUPP, Outcome, Want};

const QP: &str = "hw/mlx5/qp.c:create_raw_packet_qp";
const MODIFY: &str = "hw/mlx5/qp.c:modify_raw_packet_qp; core/verbs.c:qp_state_table";
const CORE: &str = "core/uverbs_cmd.c:ib_uverbs_ex_create_flow";
const SPEC: &str = "core/uverbs_cmd.c:kern_spec_to_ib_spec";
const MLX5: &str = "hw/mlx5/fs.c:mlx5_ib_create_flow";
const TREE: &str = "mlx5_core fs_core.c:check_conflicting_ftes";
/// Linux 6.16 and later put the rule's head behind its specification, so that what is read as
/// specification is whatever lies behind the head (commit de748d531c52, "RDMA/mlx5: Avoid flexible
/// array warning").
const REST: &str = "hw/mlx5/fs.c:create_leftovers_rule";
const NO_REST: Want = Want::Since((6, 16), &Want::Ok, &EINVAL);
const COUNTERS: &str = "core/uverbs_std_types_counters.c; hw/mlx5/counters.c";

const NEXT: &str = "mlx5_core fs_core.c:fwd_next_prio_supported";
/// As a PCI device softhca lacks the capability (`nic_rx_multi_path_tirs`).
const GOES_ON: Want = Want::InProcess { here: &Want::Ok, there: &EOPNOTSUPP };

/// Outcome of a flow rule on InfiniBand, where no rule can steer to a raw packet queue pair.
const NO_PACKETS: Want = Want::Either(&EINVAL, &EOPNOTSUPP);

/// A port of InfiniBand can't take tags out.
const STRIPS: Want = Want::Link { ethernet: &Want::Ok, infiniband: &EOPNOTSUPP };

/// A rule in the making.
#[derive(Clone)]
struct Rule {
    head: ib_uverbs_create_flow,
    specs: Vec<u8>,
}

fn head<T>(kind: u32) -> ib_uverbs_flow_spec_hdr {
    ib_uverbs_flow_spec_hdr { r#type: kind, size: size_of::<T>() as u16, reserved: 0 }
}

/// Packets to a station.
fn eth(last: u8) -> ib_uverbs_flow_spec_eth {
    let filter = |dst_mac| ib_uverbs_flow_eth_filter { dst_mac, ..Default::default() };
    ib_uverbs_flow_spec_eth {
        hdr: head::<ib_uverbs_flow_spec_eth>(IB_FLOW_SPEC_ETH),
        val: filter([2, 0, 0, 0, 7, last]),
        mask: filter([0xff; 6]),
    }
}

fn tag(tag_id: u32) -> ib_uverbs_flow_spec_action_tag {
    let hdr = head::<ib_uverbs_flow_spec_action_tag>(IB_FLOW_SPEC_ACTION_TAG);
    ib_uverbs_flow_spec_action_tag { hdr, tag_id, reserved1: 0 }
}

impl Rule {
    fn new(qp_handle: u32) -> Self {
        let flow_attr = ib_uverbs_flow_attr { port: 1, ..Default::default() };
        let head = ib_uverbs_create_flow { qp_handle, flow_attr, ..Default::default() };
        Self { head, specs: Vec::new() }
    }

    fn with(mut self, spec: &impl AsBytes) -> Self {
        self.specs.extend(spec.bytes());
        self.head.flow_attr.num_of_specs += 1;
        self.head.flow_attr.size = self.specs.len() as u16;
        self
    }

    fn cmd(&self, rig: &Rig) -> Cmd {
        let command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_FLOW;
        let bytes = [self.head.as_bytes(), &self.specs].concat();
        rig.cmd(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE)
            .constant(UVERBS_ATTR_WRITE_CMD, command.into())
            .bytes(&rig.memory, UVERBS_ATTR_CORE_IN, &bytes)
            .output(&rig.memory, UVERBS_ATTR_CORE_OUT, 8)
            .input(&rig.memory, UVERBS_ATTR_UHW_IN, &mlx5_ib_create_flow::default())
    }

    fn run(&self, rig: &Rig) -> Outcome {
        rig.run(&self.cmd(rig))
    }

    /// Made; gives its handle.
    fn made(&self, rig: &Rig) -> Result<u32, nix::errno::Errno> {
        let cmd = self.cmd(rig);
        rig.send(&cmd)?;
        let answer: ib_uverbs_create_flow_resp = rig.answer(&cmd, UVERBS_ATTR_CORE_OUT);
        Ok(answer.flow_handle)
    }
}

/// Bytes of a specification.
trait AsBytes {
    fn bytes(&self) -> &[u8];
}

impl<T: IntoBytes + zerocopy::Immutable> AsBytes for T {
    fn bytes(&self) -> &[u8] {
        self.as_bytes()
    }
}

/// CREATE_QP of raw packets; the send queue has a separate page.
fn raw_qp(rig: &Rig, change: impl Fn(&mut mlx5_ib_create_qp)) -> Cmd {
    let mut request = mlx5_ib_create_qp {
        buf_addr: rig.memory.alloc(8 * 16, 4096),
        db_addr: rig.memory.alloc(8, 64),
        sq_wqe_count: 16,
        rq_wqe_count: 8,
        rq_wqe_shift: 4,
        flags: MLX5_QP_FLAG_UAR_PAGE_INDEX,
        uidx: 0x1234,
        bfreg_index: rig.uar().page,
        sq_buf_addr: rig.memory.alloc(16 * 64, 4096),
        ..Default::default()
    };
    change(&mut request);
    let kind = u64::from(IB_UVERBS_QPT_RAW_PACKET);
    rig.create_qp()
        .edit(UVERBS_ATTR_CREATE_QP_TYPE, |attr| attr.data = kind)
        .without(UVERBS_ATTR_UHW_IN)
        .input(&rig.memory, UVERBS_ATTR_UHW_IN, &request)
}

/// Makes one; gives its handle.
fn new_raw_qp(rig: &Rig) -> Result<u32, nix::errno::Errno> {
    Ok(rig.send(&raw_qp(rig, |_| ()))?[0].data as u32)
}

pub(super) fn cases() -> Vec<Case> {
    let mut all = queue_pairs();
    all.extend(rules());
    all.extend(specifications());
    all.extend(counters());
    all.into_iter().map(|case| case.only(World::Mlx5, "raw packets are ConnectX's")).collect()
}

/// A case with `want` on an Ethernet port, and a refusal on InfiniBand.
fn ethernet(
    name: &'static str,
    source: &'static str,
    want: &'static Want,
    run: impl Fn(&Rig) -> Outcome + 'static,
) -> Case {
    // InfiniBand may report the invalid argument first.
    let infiniband: &Want = match want {
        Want::Err(_) => Box::leak(Box::new(Want::Either(want, &NO_PACKETS))),
        _ => &NO_PACKETS,
    };
    case("raw packets", name, source, Want::Link { ethernet: want, infiniband }, run)
}

fn queue_pairs() -> Vec<Case> {
    let made = |name, want, change: fn(&mut mlx5_ib_create_qp)| {
        case("raw packets", name, QP, want, move |rig| rig.run(&raw_qp(rig, change)))
    };
    // RESET to INIT and on, by what each step is given.
    let steps = |name, want, masks: &'static [(u8, u32)]| {
        case("raw packets", name, MODIFY, want, move |rig| {
            let qp_handle = new_raw_qp(rig)?;
            let mut last = Ok(String::new());
            for &(state, mask) in masks {
                let attr_mask = IB_QP_STATE | mask;
                let (qp_state, port_num) = (state, 1);
                let request = ib_uverbs_modify_qp {
                    qp_handle,
                    attr_mask,
                    qp_state,
                    port_num,
                    ..Default::default()
                };
                last = rig.run(&rig.modify(&request));
            }
            last
        })
    };
    vec![
        made("a queue pair", Want::Ok, |_| ()),
        made("without receives", Want::Ok, |qp| qp.rq_wqe_count = 0),
        made("a send queue in the second half of a page", EINVAL, |qp| {
            // Invalid with pages of 4096 bytes, at any address of the send queue.
            qp.sq_buf_addr += 4096 - 16;
        }),
        case("raw packets", "with VLAN tags taken out", QP, STRIPS, |rig| {
            let flags = IB_UVERBS_QP_CREATE_CVLAN_STRIPPING;
            rig.run(&raw_qp(rig, |_| ()).input(&rig.memory, UVERBS_ATTR_CREATE_QP_FLAGS, &flags))
        }),
        steps("INIT", Want::Ok, &[(IB_QPS_INIT, IB_QP_PORT)]),
        steps("INIT without port", EINVAL, &[(IB_QPS_INIT, 0)]),
        steps("INIT with a P_Key", EINVAL, &[(IB_QPS_INIT, IB_QP_PORT | IB_QP_PKEY_INDEX)]),
        steps("RTS", Want::Ok, &[(IB_QPS_INIT, IB_QP_PORT), (IB_QPS_RTR, 0), (IB_QPS_RTS, 0)]),
        steps("RTR from RESET", EINVAL, &[(IB_QPS_RTR, 0)]),
    ]
}

fn rules() -> Vec<Case> {
    let with = |name, source, want, change: fn(&Rig, Rule) -> Rule| {
        ethernet(name, source, want, move |rig| {
            let rule = Rule::new(new_raw_qp(rig)?).with(&eth(1));
            change(rig, rule).run(rig)
        })
    };
    let attr = |name, source, want, change: fn(&mut ib_uverbs_flow_attr)| {
        ethernet(name, source, want, move |rig| {
            let mut rule = Rule::new(new_raw_qp(rig)?).with(&eth(1));
            change(&mut rule.head.flow_attr);
            rule.run(rig)
        })
    };
    // A second rule beside one for the same packets.
    let beside = |name, want, first: fn(Rule) -> Rule, second: fn(Rule) -> Rule| {
        ethernet(name, TREE, want, move |rig| {
            let [one, other] = [new_raw_qp(rig)?, new_raw_qp(rig)?];
            first(Rule::new(one).with(&eth(9))).made(rig)?;
            second(Rule::new(other).with(&eth(9))).run(rig)
        })
    };
    vec![
        with("a rule", CORE, &Want::Ok, |_, rule| rule),
        with("comp_mask", CORE, &EINVAL, |_, mut rule| {
            rule.head.comp_mask = 1;
            rule
        }),
        case("raw packets", "no queue pair", CORE, NO_OBJECT, |rig| {
            let mut rule = Rule::new(new_raw_qp(rig)?).with(&eth(1));
            rule.head.qp_handle = 999;
            rule.run(rig)
        }),
        with("a PD as queue pair", CORE, &EINVAL, |rig, mut rule| {
            rule.head.qp_handle = rig.pd();
            rule
        }),
        with("a queue pair of RC", CORE, &EINVAL, |rig, mut rule| {
            rule.head.qp_handle = rig.qp();
            rule
        }),
        attr("port 0", CORE, &EINVAL, |attr| attr.port = 0),
        attr("port 2", CORE, &EINVAL, |attr| attr.port = 2),
        attr("reserved", CORE, &EINVAL, |attr| attr.reserved[1] = 1),
        attr("a flag that isn't there", CORE, &EINVAL, |attr| attr.flags = 1 << 3),
        attr("eleven specifications", CORE, &EINVAL, |attr| attr.num_of_specs = 11),
        attr("two specifications, one there", CORE, &EINVAL, |attr| attr.num_of_specs = 2),
        attr("more bytes than there are", CORE, &ENOSPC, |attr| attr.size += 4),
        attr("priority 15", MLX5, &Want::Ok, |attr| attr.priority = 15),
        attr("priority 16", MLX5, &ENOMEM, |attr| attr.priority = 16),
        attr("it lets packets go on", NEXT, &GOES_ON, |attr| {
            attr.flags = IB_FLOW_ATTR_FLAGS_DONT_TRAP;
        }),
        attr("the rest, and goes on", CORE, &EINVAL, |attr| {
            attr.r#type = IB_FLOW_ATTR_ALL_DEFAULT;
            attr.flags = IB_FLOW_ATTR_FLAGS_DONT_TRAP;
        }),
        attr("the rest", REST, &NO_REST, |attr| attr.r#type = IB_FLOW_ATTR_ALL_DEFAULT),
        attr("the rest to groups", REST, &NO_REST, |attr| attr.r#type = IB_FLOW_ATTR_MC_DEFAULT),
        beside("the same rule twice", &Want::Ok, |rule| rule, |rule| rule),
        beside("with a tag, and none", &Want::Ok, |rule| rule.with(&tag(1)), |rule| rule),
        beside("with two tags", &EEXIST, |rule| rule.with(&tag(1)), |rule| rule.with(&tag(2))),
        ethernet("dropped", MLX5, &Want::Ok, |rig| dropping(rig)?.run(rig)),
        ethernet("dropped, and not", TREE, &EEXIST, |rig| {
            let rule = dropping(rig)?;
            rule.made(rig)?;
            Rule::new(rule.head.qp_handle).with(&eth(3)).run(rig)
        }),
        ethernet("a rule destroyed", CORE, &Want::Ok, |rig| {
            let flow = Rule::new(new_raw_qp(rig)?).with(&eth(1)).made(rig)?;
            rig.run(&rig.destroy(UVERBS_OBJECT_FLOW, flow))
        }),
        ethernet("a queue pair with a rule", "core/verbs.c:ib_destroy_qp_user", &EBUSY, |rig| {
            let qp = new_raw_qp(rig)?;
            Rule::new(qp).with(&eth(1)).made(rig)?;
            rig.run(&rig.destroy(UVERBS_OBJECT_QP, qp))
        }),
        ethernet("a queue pair whose rule is gone", CORE, &Want::Ok, |rig| {
            let qp = new_raw_qp(rig)?;
            let flow = Rule::new(qp).with(&eth(1)).made(rig)?;
            rig.send(&rig.destroy(UVERBS_OBJECT_FLOW, flow))?;
            rig.run(&rig.destroy(UVERBS_OBJECT_QP, qp))
        }),
    ]
}

/// A rule that drops packets.
fn dropping(rig: &Rig) -> Result<Rule, nix::errno::Errno> {
    let hdr = head::<ib_uverbs_flow_spec_action_drop>(IB_FLOW_SPEC_ACTION_DROP);
    let rule = Rule::new(new_raw_qp(rig)?).with(&eth(3));
    Ok(rule.with(&ib_uverbs_flow_spec_action_drop { hdr }))
}

fn specifications() -> Vec<Case> {
    let one = |name, source, want, make: fn(Rule) -> Rule| {
        ethernet(name, source, want, move |rig| make(Rule::new(new_raw_qp(rig)?)).run(rig))
    };
    vec![
        one("of no kind", SPEC, &EINVAL, |rule| {
            let mut spec = eth(1);
            spec.hdr.r#type = 0x21;
            rule.with(&spec)
        }),
        one("reserved in its head", SPEC, &EINVAL, |rule| {
            let mut spec = eth(1);
            spec.hdr.reserved = 1;
            rule.with(&spec)
        }),
        one("of no size", SPEC, &EINVAL, |rule| {
            let mut spec = eth(1);
            spec.hdr.size = 0;
            rule.with(&spec)
        }),
        one("a tag of 25 bits", MLX5, &EINVAL, |rule| rule.with(&eth(1)).with(&tag(1 << 24))),
        one("a TTL of IPv4", MLX5, &EOPNOTSUPP, |rule| rule.with(&ipv4(|mask| mask.ttl = 1))),
        one("an IPv4 header", MLX5, &Want::Ok, |rule| rule.with(&ipv4(|_| ()))),
        one("a hop limit of IPv6", MLX5, &EOPNOTSUPP, |rule| {
            rule.with(&ipv6(|mask| mask.hop_limit = 1))
        }),
        one("a flow label of 21 bits", SPEC, &EINVAL, |rule| {
            rule.with(&ipv6(|mask| mask.flow_label = (1 << 20).into()))
        }),
        one("IPv4 in a packet of IPv6", MLX5, &EINVAL, |rule| {
            let mut spec = eth(1);
            spec.val.ether_type = 0x86dd.into();
            spec.mask.ether_type = 0xffff.into();
            rule.with(&spec).with(&ipv4(|_| ()))
        }),
        one("UDP in a packet of TCP", MLX5, &EINVAL, |rule| {
            let mut spec = ipv4(|mask| mask.proto = 0xff);
            spec.val.proto = 6;
            let hdr = head::<ib_uverbs_flow_spec_tcp_udp>(IB_FLOW_SPEC_UDP);
            rule.with(&spec).with(&ib_uverbs_flow_spec_tcp_udp { hdr, ..Default::default() })
        }),
    ]
}

fn ipv4(change: fn(&mut ib_uverbs_flow_ipv4_filter)) -> ib_uverbs_flow_spec_ipv4 {
    let hdr = head::<ib_uverbs_flow_spec_ipv4>(IB_FLOW_SPEC_IPV4);
    let mut spec = ib_uverbs_flow_spec_ipv4 { hdr, ..Default::default() };
    change(&mut spec.mask);
    spec
}

fn ipv6(change: fn(&mut ib_uverbs_flow_ipv6_filter)) -> ib_uverbs_flow_spec_ipv6 {
    let hdr = head::<ib_uverbs_flow_spec_ipv6>(IB_FLOW_SPEC_IPV6);
    let mut spec = ib_uverbs_flow_spec_ipv6 { hdr, ..Default::default() };
    change(&mut spec.mask);
    spec
}

fn counters() -> Vec<Case> {
    let create = |rig: &Rig| {
        rig.cmd(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_CREATE)
            .handle(UVERBS_ATTR_CREATE_COUNTERS_HANDLE, 0u32)
    };
    let read = |rig: &Rig, handle: u32| {
        rig.cmd(UVERBS_OBJECT_COUNTERS, UVERBS_METHOD_COUNTERS_READ)
            .handle(UVERBS_ATTR_READ_COUNTERS_HANDLE, handle)
            .output(&rig.memory, UVERBS_ATTR_READ_COUNTERS_BUFF, 16)
            .input(&rig.memory, UVERBS_ATTR_READ_COUNTERS_FLAGS, &0u32)
    };
    vec![
        case("counters", "made", COUNTERS, Want::Ok, move |rig| rig.run(&create(rig))),
        case("counters", "read of no rule", COUNTERS, EINVAL, move |rig| {
            let handle = rig.send(&create(rig))?[0].data as u32;
            rig.run(&read(rig, handle))
        }),
        case("counters", "destroyed", COUNTERS, Want::Ok, move |rig| {
            let handle = rig.send(&create(rig))?[0].data as u32;
            rig.run(&rig.destroy(UVERBS_OBJECT_COUNTERS, handle))
        }),
        ethernet("counters that don't say what", COUNTERS, &EINVAL, move |rig| {
            let handle = rig.send(&create(rig))?[0].data as u32;
            let hdr = head::<ib_uverbs_flow_spec_action_count>(IB_FLOW_SPEC_ACTION_COUNT);
            let count = ib_uverbs_flow_spec_action_count { hdr, handle, reserved1: 0 };
            Rule::new(new_raw_qp(rig)?).with(&eth(1)).with(&count).run(rig)
        }),
    ]
}
