//! Flow rules (`ib_uverbs_ex_create_flow` in `core/uverbs_cmd.c`, `mlx5_ib_create_flow` in
//! `hw/mlx5/fs.c`).

use nix::errno::Errno;
use uverbs_kernel_abi::flow::{
    IB_FLOW_ATTR_ALL_DEFAULT, IB_FLOW_ATTR_FLAGS_DONT_TRAP, IB_FLOW_ATTR_FLAGS_EGRESS,
    IB_FLOW_ATTR_MC_DEFAULT, IB_FLOW_ATTR_NORMAL, IB_FLOW_ATTR_SNIFFER, ib_uverbs_create_flow,
    ib_uverbs_create_flow_resp, ib_uverbs_flow_attr,
};
use uverbs_kernel_abi::mlx5::mlx5_ib_create_flow;
use uverbs_kernel_abi::objects::{UVERBS_ATTR_CORE_IN, UVERBS_OBJECT_FLOW};
use uverbs_kernel_abi::qp::{IB_UVERBS_QPT_RAW_PACKET, IB_UVERBS_QPT_UD};
use uverbs_kernel_abi::write::{IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_EX_CMD_CREATE_FLOW};
use zerocopy::FromBytes;

use crate::kernel::call::{Call, Write};
use crate::kernel::state::flows::{MULTICAST, PRIORITIES, Placed, REST, Rule, SNIFFERS};
use crate::kernel::state::objects::{Flow, Object};
use crate::kernel::verbs::packets::counters;
use crate::kernel::verbs::packets::flow_spec::Specs;

/// Extended CREATE_FLOW.
pub(crate) const EX_CREATE_FLOW: Write = Write {
    command: IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_FLOW,
    request: 0,
    response: 0,
    handler: create,
};

/// `IB_FLOW_SPEC_SUPPORT_LAYERS`.
const MAX_SPECS: u8 = 10;
/// Bytes of the longest specification (`struct ib_uverbs_flow_spec`, by its IPv6 form).
const MAX_SPEC: usize = 88;
/// Bits of `flags` that the core passes on (`IB_FLOW_ATTR_FLAGS_RESERVED`).
const FLAGS_RESERVED: u32 = 1 << 3;

fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    let bytes = call.bytes(UVERBS_ATTR_CORE_IN)?.unwrap_or_default();
    let (request, rest) =
        ib_uverbs_create_flow::read_from_prefix(&bytes).map_err(|_| Errno::ENOSPC)?;
    let attr = request.flow_attr;
    check(&request)?;
    let size = usize::from(attr.size);
    let specs = match attr.num_of_specs {
        0 => &[],
        _ => rest.get(..size).ok_or(Errno::ENOSPC)?,
    };
    let beyond = rest.get(specs.len()..).unwrap_or_default();
    if beyond.iter().any(|byte| *byte != 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    let handle = call.new_handle(UVERBS_OBJECT_FLOW)?;
    if attr.port != 1 {
        return Err(Errno::EINVAL);
    }
    let qp = call.file.objects.qp(request.qp_handle)?;
    if !matches!(qp.kind, IB_UVERBS_QPT_UD | IB_UVERBS_QPT_RAW_PACKET) {
        return Err(Errno::EINVAL);
    }
    // A UD queue pair has no TIR; firmware refuses it.
    let tir = qp.raw.as_ref().and_then(|raw| raw.tir);
    let specs = Specs::parse(specs, attr.num_of_specs)?;
    if let Some(counters) = specs.counters {
        call.file.objects.counters(counters)?;
    }
    let described = counters::description(call)?;
    let table = table(&attr, &specs)?;
    if !call.device.config.is_ethernet() {
        // InfiniBand ports have no flow tables (`mlx5_get_flow_namespace`).
        return Err(Errno::EOPNOTSUPP);
    }
    let rules = rules(call, &attr, specs, table, tir.ok_or(Errno::EINVAL)?, described)?;
    let (placed, counters) = rules;
    call.file.objects.hold(request.qp_handle);
    counters.iter().for_each(|counters| call.file.objects.hold(*counters));
    call.put_object(handle, Object::Flow(Flow { held: vec![request.qp_handle], counters, placed }));
    call.respond(&ib_uverbs_create_flow_resp { comp_mask: 0, flow_handle: handle })
}

/// Checks the head as the core does. CAP_NET_RAW is not required, since the device is the
/// program's.
fn check(request: &ib_uverbs_create_flow) -> Result<(), Errno> {
    let attr = &request.flow_attr;
    let rest = matches!(attr.r#type, IB_FLOW_ATTR_ALL_DEFAULT | IB_FLOW_ATTR_MC_DEFAULT);
    let ok = request.comp_mask == 0
        && attr.flags < FLAGS_RESERVED
        && !(attr.flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP != 0 && rest)
        && attr.num_of_specs <= MAX_SPECS
        && usize::from(attr.size) <= usize::from(attr.num_of_specs) * MAX_SPEC
        && attr.reserved == [0; 2];
    if ok { Ok(()) } else { Err(Errno::EINVAL) }
}

/// Table of a rule (`mlx5_ib_create_flow`, `get_flow_table`).
fn table(attr: &ib_uverbs_flow_attr, specs: &Specs) -> Result<u8, Errno> {
    let known = IB_FLOW_ATTR_FLAGS_DONT_TRAP | IB_FLOW_ATTR_FLAGS_EGRESS;
    let priority = u8::try_from(attr.priority).ok().filter(|priority| *priority < PRIORITIES);
    let priority = priority.ok_or(Errno::ENOMEM)?;
    if attr.flags & !known != 0 {
        return Err(Errno::EINVAL);
    }
    let goes_on = attr.flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP != 0;
    match attr.r#type {
        // The device has no egress tables for rules.
        _ if attr.flags & IB_FLOW_ATTR_FLAGS_EGRESS != 0 => match attr.r#type {
            IB_FLOW_ATTR_ALL_DEFAULT | IB_FLOW_ATTR_MC_DEFAULT => Err(Errno::EINVAL),
            _ => Err(Errno::EOPNOTSUPP),
        },
        IB_FLOW_ATTR_NORMAL if specs.multicast_only && !goes_on => Ok(MULTICAST),
        IB_FLOW_ATTR_NORMAL => Ok(2 * priority + u8::from(!goes_on)),
        IB_FLOW_ATTR_ALL_DEFAULT | IB_FLOW_ATTR_MC_DEFAULT => Ok(REST),
        IB_FLOW_ATTR_SNIFFER => Ok(SNIFFERS),
        _ => Err(Errno::EOPNOTSUPP),
    }
}

/// Adds the rules of a request. Returns them and the counters that they use.
fn rules(
    call: &mut Call<'_>,
    attr: &ib_uverbs_flow_attr,
    specs: Specs,
    table: u8,
    tir: u32,
    described: Option<counters::Description>,
) -> Result<(Vec<Placed>, Option<u32>), Errno> {
    let all = match attr.r#type {
        IB_FLOW_ATTR_ALL_DEFAULT => vec![Specs::rest(true), Specs::rest(false)],
        IB_FLOW_ATTR_MC_DEFAULT => vec![Specs::rest(true)],
        // Without its specifications (`create_sniffer_rule`).
        IB_FLOW_ATTR_SNIFFER => vec![Specs::parse(&[], 0)?],
        _ => vec![specs],
    };
    let counters = all.first().and_then(|specs| specs.counters);
    let counter = counters.map(|handle| counters::bind(call, handle, described)).transpose()?;
    let mut placed = Vec::new();
    for specs in all {
        let rule = Rule {
            table,
            enable: specs.enable(),
            criteria: specs.criteria,
            value: specs.value,
            tag: specs.tag,
            drops: specs.drops,
            next: (attr.flags & IB_FLOW_ATTR_FLAGS_DONT_TRAP != 0).then_some(table + 1),
            tir: (!specs.drops).then_some(tir),
            counter,
        };
        let device = &mut *call.device;
        match device.flows.add(device.hca.steering(), &rule) {
            Ok(one) => placed.push(one),
            Err(errno) => {
                for one in placed {
                    device.flows.remove(device.hca.steering(), one);
                }
                counters.iter().for_each(|handle| call.file.unbind_counters(*handle));
                return Err(errno);
            }
        }
    }
    Ok((placed, counters))
}

/// The driver's request (`mlx5_ib_create_flow`): its head, and the data behind it.
pub(crate) fn driver_request(call: &Call<'_>) -> Result<Option<(u32, Vec<u8>)>, Errno> {
    let bytes = call.driver_input()?;
    if bytes.is_empty() {
        return Ok(None);
    }
    let (head, rest) =
        mlx5_ib_create_flow::read_from_prefix(&bytes).map_err(|_| Errno::EOPNOTSUPP)?;
    Ok(Some((head.ncounters_data, rest.to_vec())))
}
