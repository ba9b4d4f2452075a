//! Flow steering in the device's format: a matcher selects bits of a packet, and its rules give
//! their values and the actions (rdma-core `verbs.c`, `_mlx5dv_create_flow_matcher`,
//! `___mlx5dv_create_flow`).
//!
//! # Safety
//!
//! The caller owns the objects whose handles it passes. The kernel keeps an object alive while a
//! rule uses it.
#![allow(unsafe_code, reason = "sends commands that name objects by number")]

use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET,
    MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS, MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX,
    MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, MLX5_IB_ATTR_CREATE_FLOW_FLAGS,
    MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS, MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP,
    MLX5_IB_ATTR_CREATE_FLOW_HANDLE, MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE,
    MLX5_IB_ATTR_CREATE_FLOW_MATCHER, MLX5_IB_ATTR_CREATE_FLOW_TAG,
    MLX5_IB_ATTR_CREATE_MODIFY_HEADER_ACTIONS_PRM, MLX5_IB_ATTR_CREATE_MODIFY_HEADER_FT_TYPE,
    MLX5_IB_ATTR_CREATE_MODIFY_HEADER_HANDLE, MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE,
    MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE, MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS,
    MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE,
    MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK,
    MLX5_IB_METHOD_CREATE_FLOW, MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER,
    MLX5_IB_METHOD_FLOW_MATCHER_CREATE, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY,
    MLX5_IB_OBJECT_FLOW_MATCHER,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_DESTROY_FLOW_ACTION_HANDLE, UVERBS_METHOD_FLOW_ACTION_DESTROY, UVERBS_OBJECT_FLOW,
    UVERBS_OBJECT_FLOW_ACTION,
};

/// Parameters of a matcher.
#[derive(Clone, Copy, Debug)]
pub struct MatcherInit<'a> {
    /// Bits to compare (PRM "Flow Table Entry Match Param").
    pub mask: &'a [u8],
    /// Parts of the mask that contain such bits.
    pub criteria: u8,
    /// Priority; lower values are matched first.
    pub priority: u16,
    /// Flow table, `MLX5_IB_UAPI_FLOW_TABLE_TYPE_*`; `None`: received packets.
    pub table: Option<u32>,
    /// `IB_FLOW_ATTR_FLAGS_*`.
    pub flags: u32,
}

/// Creates a matcher, and returns its handle.
///
/// # Errors
///
/// [`Error::Kernel`]: `EOPNOTSUPP` for a table that the device lacks, `EINVAL` for an invalid mask.
#[doc(alias = "mlx5dv_create_flow_matcher")]
pub fn create(uverbs: &Uverbs, init: &MatcherInit<'_>) -> Result<u32, Error> {
    let (criteria, priority) = ([init.criteria], init.priority.to_ne_bytes());
    let mut command = uverbs
        .command(MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_CREATE)
        .handle_new(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE)
        .input(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_MASK, init.mask)
        .input(MLX5_IB_ATTR_FLOW_MATCHER_MATCH_CRITERIA, &criteria)
        // The flow type is `MLX5_IB_FLOW_TYPE_NORMAL`, whose number is 0.
        .input(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_TYPE, &priority);
    if let Some(table) = init.table {
        command = command.constant(MLX5_IB_ATTR_FLOW_MATCHER_FT_TYPE, table.into());
    }
    if init.flags != 0 {
        command = command.constant(MLX5_IB_ATTR_FLOW_MATCHER_FLOW_FLAGS, init.flags.into());
    }
    // SAFETY: bytes and numbers.
    let made = unsafe { command.send(&**uverbs.door(), "create_flow_matcher") }?;
    made.handle(MLX5_IB_ATTR_FLOW_MATCHER_CREATE_HANDLE)
}

/// Destroys a matcher.
///
/// # Errors
///
/// [`Error::Kernel`]: `EBUSY` while it has rules.
///
/// # Safety
///
/// The contract in the module's head.
#[doc(alias = "mlx5dv_destroy_flow_matcher")]
pub unsafe fn destroy(uverbs: &Uverbs, matcher: u32) -> Result<(), Error> {
    let command = uverbs
        .command(MLX5_IB_OBJECT_FLOW_MATCHER, MLX5_IB_METHOD_FLOW_MATCHER_DESTROY)
        .handle_in(MLX5_IB_ATTR_FLOW_MATCHER_DESTROY_HANDLE, matcher);
    // SAFETY: a handle that the caller owns.
    unsafe { command.send(&**uverbs.door(), "destroy_flow_matcher") }.map(drop)
}

/// Destination of matched packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    /// A queue pair, by its handle.
    QueuePair(u32),
    /// An object of [`devx`](crate::devx): a table or a TIR.
    Object(u32),
    /// The destination without the rule.
    Miss,
    /// Packets are dropped.
    Drop,
}

/// A packet counter: an object of [`devx`](crate::devx), and one of its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// Handle of the object.
    pub object: u32,
    /// Number of the counter, if the object has several.
    pub offset: Option<u32>,
}

/// Actions of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleActions {
    /// Destination.
    pub to: Option<Destination>,
    /// Tag that completions report.
    pub tag: Option<u32>,
    /// Counter.
    pub count: Option<Count>,
    /// Header modification: a handle from [`create_change`].
    pub change: Option<u32>,
}

/// Creates a rule of a matcher, and returns its handle. `value` holds the values of the bits in the
/// mask.
///
/// # Errors
///
/// [`Error::Kernel`]: `EINVAL` for contradictory parameters.
#[doc(alias = "mlx5dv_create_flow")]
pub fn create_rule(
    uverbs: &Uverbs,
    matcher: u32,
    value: &[u8],
    actions: &RuleActions,
) -> Result<u32, Error> {
    let count = actions.count.map(|count| count.object.to_ne_bytes());
    let offset = actions.count.and_then(|count| count.offset).map(u32::to_ne_bytes);
    let change = actions.change.map(u32::to_ne_bytes);
    let mut command = uverbs
        .command(UVERBS_OBJECT_FLOW, MLX5_IB_METHOD_CREATE_FLOW)
        .handle_new(MLX5_IB_ATTR_CREATE_FLOW_HANDLE)
        .input(MLX5_IB_ATTR_CREATE_FLOW_MATCH_VALUE, value)
        .handle_in(MLX5_IB_ATTR_CREATE_FLOW_MATCHER, matcher);
    let flags = MLX5_IB_ATTR_CREATE_FLOW_FLAGS;
    command = match actions.to {
        Some(Destination::QueuePair(qp)) => command.handle_in(MLX5_IB_ATTR_CREATE_FLOW_DEST_QP, qp),
        Some(Destination::Object(object)) => {
            command.handle_in(MLX5_IB_ATTR_CREATE_FLOW_DEST_DEVX, object)
        }
        Some(Destination::Miss) => {
            command.number(flags, MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DEFAULT_MISS)
        }
        Some(Destination::Drop) => command.number(flags, MLX5_IB_ATTR_CREATE_FLOW_FLAGS_DROP),
        None => command,
    };
    if let Some(tag) = actions.tag {
        command = command.number(MLX5_IB_ATTR_CREATE_FLOW_TAG, tag);
    }
    if let Some(count) = &count {
        command = command.input(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX, count);
    }
    if let Some(change) = &change {
        command = command.input(MLX5_IB_ATTR_CREATE_FLOW_ARR_FLOW_ACTIONS, change);
    }
    if let Some(offset) = &offset {
        command = command.input(MLX5_IB_ATTR_CREATE_FLOW_ARR_COUNTERS_DEVX_OFFSET, offset);
    }
    // SAFETY: bytes and handles.
    let made = unsafe { command.send(&**uverbs.door(), "create_flow") }?;
    made.handle(MLX5_IB_ATTR_CREATE_FLOW_HANDLE)
}

/// Creates a header modification (PRM "Modify Header Context"), for rules of a type of table
/// (`MLX5_IB_UAPI_FLOW_TABLE_TYPE_*`). Returns its handle.
///
/// # Errors
///
/// [`Error::Kernel`]: `EINVAL` for invalid changes, `EOPNOTSUPP` for changes that the device lacks.
#[doc(alias = "mlx5dv_create_flow_action_modify_header")]
pub fn create_change(uverbs: &Uverbs, changes: &[u8], table: u32) -> Result<u32, Error> {
    let command = uverbs
        .command(UVERBS_OBJECT_FLOW_ACTION, MLX5_IB_METHOD_FLOW_ACTION_CREATE_MODIFY_HEADER)
        .handle_new(MLX5_IB_ATTR_CREATE_MODIFY_HEADER_HANDLE)
        .input(MLX5_IB_ATTR_CREATE_MODIFY_HEADER_ACTIONS_PRM, changes)
        .constant(MLX5_IB_ATTR_CREATE_MODIFY_HEADER_FT_TYPE, table.into());
    // SAFETY: bytes and a number.
    let made = unsafe { command.send(&**uverbs.door(), "create_flow_action_modify_header") }?;
    made.handle(MLX5_IB_ATTR_CREATE_MODIFY_HEADER_HANDLE)
}

/// Destroys a header modification.
///
/// # Errors
///
/// [`Error::Kernel`]: `EBUSY` while a rule names it.
///
/// # Safety
///
/// The contract in the module's head.
#[doc(alias = "ibv_destroy_flow_action")]
pub unsafe fn destroy_change(uverbs: &Uverbs, change: u32) -> Result<(), Error> {
    let command = uverbs
        .command(UVERBS_OBJECT_FLOW_ACTION, UVERBS_METHOD_FLOW_ACTION_DESTROY)
        .handle_in(UVERBS_ATTR_DESTROY_FLOW_ACTION_HANDLE, change);
    // SAFETY: a handle that the caller owns.
    unsafe { command.send(&**uverbs.door(), "destroy_flow_action") }.map(drop)
}
