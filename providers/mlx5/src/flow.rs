//! Rules that steer packets: the driver's part of making one (rdma-core `verbs.c`,
//! `mlx5_create_flow`).
//!
//! # Safety
//!
//! The request names counters' places by address, of memory that outlives the command.
#![allow(unsafe_code, reason = "a command that names memory by address")]

use std::sync::Arc;

use uverbs_core::attr::FlowRule;
use uverbs_core::error::Error;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::counters::CountersCore;
use uverbs_core::objects::flow::{FlowCore, Steered};
use uverbs_core::objects::qp_object::QpObject;
use uverbs_kernel_abi::flow::{IB_COUNTER_BYTES, IB_COUNTER_PACKETS};
use uverbs_kernel_abi::mlx5::{
    mlx5_ib_create_flow, mlx5_ib_flow_counters_data, mlx5_ib_flow_counters_desc,
};
use zerocopy::IntoBytes;

/// What is counted, and where it stands in what is read: as
/// [`FlowCount`](uverbs_core::objects::counters::FlowCount) has it.
const PLACES: [mlx5_ib_flow_counters_desc; 2] = [
    mlx5_ib_flow_counters_desc { description: IB_COUNTER_PACKETS, index: 0 },
    mlx5_ib_flow_counters_desc { description: IB_COUNTER_BYTES, index: 1 },
];

/// Makes a rule. What its counters count is said with their first one.
pub(crate) fn create(
    core: &Arc<ContextCore>,
    to: Steered,
    rule: &FlowRule,
    counters: Option<Arc<CountersCore>>,
) -> Result<FlowCore, Error> {
    let places = PLACES;
    let first = counters.as_ref().is_some_and(|counters| counters.rules() == 0);
    let head = mlx5_ib_create_flow { ncounters_data: first.into(), reserved: 0 };
    let data = match first {
        true => mlx5_ib_flow_counters_data {
            counters_data: places.as_ptr().expose_provenance() as u64,
            ncounters: places.len() as u32,
            reserved: 0,
        },
        false => mlx5_ib_flow_counters_data::default(),
    };
    // Room for the data goes out with any counters, as in libmlx5.
    let request = match counters {
        Some(_) => [head.as_bytes(), data.as_bytes()].concat(),
        None => head.as_bytes().to_vec(),
    };
    let make = |object: &QpObject, rule: &[u8]| {
        if !Arc::ptr_eq(object.context(), core) {
            return Err(Error::Invalid {
                verb: "create_flow",
                what: "queue pair",
                value: "of another context".to_owned(),
                why: "rule, queue pair and counters are of one open device",
            });
        }
        // SAFETY: the queue pair is alive, since `to` keeps it; `places` lives until the end.
        unsafe { core.uverbs().create_flow(rule, &request) }
    };
    // SAFETY: just made in the queue pair's context; its handle goes nowhere else.
    unsafe { FlowCore::create(to, rule, counters, make) }
}
