//! Flow rules: `CREATE_FLOW`, `FLOW_DESTROY`.
//!
//! # Safety
//!
//! The bytes of a rule contain no address. The driver's part may; [`Uverbs::create_flow`] states
//! the contract.
#![allow(unsafe_code, reason = "ioctls that steer packets to a queue pair by its number")]

use uverbs_kernel_abi::flow::ib_uverbs_create_flow_resp;
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_DESTROY_FLOW_HANDLE, UVERBS_METHOD_FLOW_DESTROY, UVERBS_OBJECT_FLOW,
};
use uverbs_kernel_abi::write::{IB_USER_VERBS_CMD_FLAG_EXTENDED, IB_USER_VERBS_EX_CMD_CREATE_FLOW};
use zerocopy::{FromZeros, IntoBytes};

use crate::Errno;
use crate::commands::Uverbs;
use crate::error::Error;

const VERB: &str = "create_flow";

impl Uverbs {
    /// Creates a flow rule from the bytes of `rule`
    /// ([`FlowRule::command`](crate::attr::FlowRule::command)). Returns its handle.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EPERM` without `CAP_NET_RAW`; `EINVAL` for a queue pair or a rule that
    /// the device can't steer; `EEXIST` if the same packets have a rule with another tag, or a rule
    /// that drops them; `ENOMEM` for a priority that the device lacks; `EOPNOTSUPP` for a field
    /// that it can't match.
    ///
    /// # Safety
    ///
    /// The caller owns the queue pair in `rule`: the kernel reuses the handles of destroyed queue
    /// pairs. Memory that `uhw_in` names is valid during the call.
    #[doc(alias = "ibv_create_flow")]
    pub unsafe fn create_flow(&self, rule: &[u8], uhw_in: &[u8]) -> Result<u32, Error> {
        let mut answer = ib_uverbs_create_flow_resp::new_zeroed();
        let command = IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_CREATE_FLOW;
        let out = answer.as_mut_bytes();
        // SAFETY: contract of `create_flow`.
        unsafe { self.invoke_write(VERB, command, rule, out, uhw_in, &mut []) }.map_err(explain)?;
        Ok(answer.flow_handle)
    }

    /// Destroys a rule.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`].
    ///
    /// # Safety
    ///
    /// The caller owns `flow`, and no other owner uses the handle afterwards: the kernel reuses it.
    #[doc(alias = "ibv_destroy_flow")]
    pub unsafe fn destroy_flow(&self, flow: u32) -> Result<(), Error> {
        let command = self
            .command(UVERBS_OBJECT_FLOW, UVERBS_METHOD_FLOW_DESTROY)
            .handle_in(UVERBS_ATTR_DESTROY_FLOW_HANDLE, flow);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "destroy_flow") }?;
        Ok(())
    }
}

/// Adds the usual cause of a refusal, which differs from that for other objects.
fn explain(error: Error) -> Error {
    let Error::Kernel { verb, errno, hint } = error else { return error };
    let hint = match errno {
        Errno::EPERM => Some("steering packets needs CAP_NET_RAW".into()),
        Errno::EEXIST => Some(
            "it overlaps: a rule for the same packets has another tag, or one of the two drops \
             them"
                .into(),
        ),
        Errno::ENOMEM => {
            Some("the device has no such priority (mlx5: 0 to 15), or no more room".into())
        }
        Errno::EOPNOTSUPP => {
            Some("the device has no rules, or doesn't look at one of the fields".into())
        }
        _ => hint,
    };
    Error::Kernel { verb, errno, hint }
}
