//! Flow rules: the driver's part of creating one (rdma-core `verbs.c`, `mlx5_create_flow`).
//!
//! # Safety
//!
//! The request names the counter descriptions by address; they outlive the command.
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

/// Counters and their positions in the values read, in the order of
/// [`FlowCount`](uverbs_core::objects::counters::FlowCount).
const PLACES: [mlx5_ib_flow_counters_desc; 2] = [
    mlx5_ib_flow_counters_desc { description: IB_COUNTER_PACKETS, index: 0 },
    mlx5_ib_flow_counters_desc { description: IB_COUNTER_BYTES, index: 1 },
];

/// Creates a rule. The first rule of counters also describes what they count.
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
    // The counter data is sent with any counters, as in libmlx5.
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
                why: "rule, queue pair and counters must belong to the same open device",
            });
        }
        // SAFETY: `to` keeps the queue pair alive; `places` lives until the function ends.
        unsafe { core.uverbs().create_flow(rule, &request) }
    };
    // SAFETY: just created in the queue pair's context; only this object has its handle.
    unsafe { FlowCore::create(to, rule, counters, make) }
}
