//! Completion counters: `COMP_CNTR_*`, `QP_ATTACH_COMP_CNTR`, `QUERY_COMP_CNTR_CAPS`.
//!
//! # Safety
//!
//! The payloads of these commands contain no addresses, except a counter's memory, for which the
//! caller vouches.
#![allow(unsafe_code, reason = "ioctls; each block says why no payload carries an address")]

use uverbs_kernel_abi::comp_cntr::{
    IB_UVERBS_COMP_CNTR_ENTRY_COMP, IB_UVERBS_COMP_CNTR_ENTRY_ERR,
    IB_UVERBS_COMP_CNTR_MODIFY_OP_INC, IB_UVERBS_COMP_CNTR_MODIFY_OP_SET, ib_uverbs_buffer_desc,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CREATE_COMP_CNTR_HANDLE, UVERBS_ATTR_DESTROY_COMP_CNTR_HANDLE,
    UVERBS_ATTR_MODIFY_COMP_CNTR_ENTRY, UVERBS_ATTR_MODIFY_COMP_CNTR_HANDLE,
    UVERBS_ATTR_MODIFY_COMP_CNTR_OP, UVERBS_ATTR_MODIFY_COMP_CNTR_VALUE,
    UVERBS_ATTR_QP_ATTACH_COMP_CNTR_CNTR_HANDLE, UVERBS_ATTR_QP_ATTACH_COMP_CNTR_HANDLE,
    UVERBS_ATTR_QP_ATTACH_COMP_CNTR_OP_MASK, UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_COUNTERS,
    UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_VALUE,
    UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_SUPPORTED_QP_ATTACH_OPS, UVERBS_METHOD_COMP_CNTR_CREATE,
    UVERBS_METHOD_COMP_CNTR_DESTROY, UVERBS_METHOD_COMP_CNTR_MODIFY,
    UVERBS_METHOD_QP_ATTACH_COMP_CNTR, UVERBS_METHOD_QUERY_COMP_CNTR_CAPS, UVERBS_OBJECT_COMP_CNTR,
    UVERBS_OBJECT_DEVICE, UVERBS_OBJECT_QP,
};
use zerocopy::IntoBytes;

use crate::attr::{CountedOps, CounterCaps};
use crate::commands::Uverbs;
use crate::error::Error;

/// Count of a completion counter, which has two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count {
    /// Operations that succeeded.
    Completed,
    /// Operations that failed.
    Failed,
}

/// Change of a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountChange {
    /// Sets the value.
    Set(u64),
    /// Adds a number.
    Add(u64),
}

impl Uverbs {
    /// Queries the completion counters that a device has.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EOPNOTSUPP` from a device without counters, `EPROTONOSUPPORT` before
    /// Linux 7.3.
    #[doc(alias = "ibv_query_comp_cntr_caps")]
    pub fn query_comp_cntr_caps(&self) -> Result<CounterCaps, Error> {
        let (mut count, mut value, mut ops) = ([0; 4], [0; 8], [0; 4]);
        let command = self
            .command(UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_COMP_CNTR_CAPS)
            .output(UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_COUNTERS, &mut count)
            .output(UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_MAX_VALUE, &mut value)
            .output(UVERBS_ATTR_QUERY_COMP_CNTR_CAPS_SUPPORTED_QP_ATTACH_OPS, &mut ops);
        // SAFETY: a query; the outputs are local variables of their size.
        unsafe { command.send(&**self.door(), "query_comp_cntr_caps") }?;
        Ok(CounterCaps {
            max_counters: u32::from_ne_bytes(count),
            max_value: u64::from_ne_bytes(value),
            ops: CountedOps::from_bits_retain(u32::from_ne_bytes(ops)),
        })
    }

    /// Creates a completion counter whose counts are in the driver's attributes: id and memory.
    /// Returns its handle.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` for memory that is not aligned to 8 bytes.
    ///
    /// # Safety
    ///
    /// The memory is valid for the device to write until the kernel confirmed the destruction.
    #[doc(alias = "ibv_create_comp_cntr")]
    pub unsafe fn create_comp_cntr(
        &self,
        memory: &[(u16, ib_uverbs_buffer_desc); 2],
    ) -> Result<u32, Error> {
        let [(first, completed), (second, failed)] = memory;
        let command = self
            .command(UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_CREATE)
            .handle_new(UVERBS_ATTR_CREATE_COMP_CNTR_HANDLE)
            .input(*first, completed.as_bytes())
            .input(*second, failed.as_bytes());
        // SAFETY: contract of `create_comp_cntr`.
        let answer = unsafe { command.send(&**self.door(), "create_comp_cntr") }?;
        answer.handle(UVERBS_ATTR_CREATE_COMP_CNTR_HANDLE)
    }

    /// Changes a count of a counter. The device may take a while to show it.
    ///
    /// # Errors
    ///
    /// The kernel's refusal.
    #[doc(alias = "ibv_set_comp_cntr")]
    #[doc(alias = "ibv_inc_comp_cntr")]
    pub fn modify_comp_cntr(
        &self,
        counter: u32,
        count: Count,
        change: CountChange,
    ) -> Result<(), Error> {
        let entry = match count {
            Count::Completed => IB_UVERBS_COMP_CNTR_ENTRY_COMP,
            Count::Failed => IB_UVERBS_COMP_CNTR_ENTRY_ERR,
        };
        let (op, value) = match change {
            CountChange::Set(value) => (IB_UVERBS_COMP_CNTR_MODIFY_OP_SET, value),
            CountChange::Add(value) => (IB_UVERBS_COMP_CNTR_MODIFY_OP_INC, value),
        };
        let command = self
            .command(UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_MODIFY)
            .handle_in(UVERBS_ATTR_MODIFY_COMP_CNTR_HANDLE, counter)
            .constant(UVERBS_ATTR_MODIFY_COMP_CNTR_ENTRY, entry.into())
            .constant(UVERBS_ATTR_MODIFY_COMP_CNTR_OP, op.into())
            .constant(UVERBS_ATTR_MODIFY_COMP_CNTR_VALUE, value);
        // SAFETY: the inputs are numbers.
        unsafe { command.send(&**self.door(), "modify_comp_cntr") }?;
        Ok(())
    }

    /// Attaches a counter to a queue pair until the queue pair's destruction.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EINVAL` without operations or beyond INIT; `EBUSY` if a counter of the
    /// queue pair counts one of the operations already; `EOPNOTSUPP` for an operation that the
    /// device does not count.
    #[doc(alias = "ibv_qp_attach_comp_cntr")]
    pub fn attach_comp_cntr(&self, qp: u32, counter: u32, ops: CountedOps) -> Result<(), Error> {
        let command = self
            .command(UVERBS_OBJECT_QP, UVERBS_METHOD_QP_ATTACH_COMP_CNTR)
            .handle_in(UVERBS_ATTR_QP_ATTACH_COMP_CNTR_HANDLE, qp)
            .handle_in(UVERBS_ATTR_QP_ATTACH_COMP_CNTR_CNTR_HANDLE, counter)
            .number(UVERBS_ATTR_QP_ATTACH_COMP_CNTR_OP_MASK, ops.bits());
        // SAFETY: the inputs are numbers.
        unsafe { command.send(&**self.door(), "qp_attach_comp_cntr") }?;
        Ok(())
    }

    /// Destroys a counter.
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`]: `EBUSY` while it is attached to a queue pair.
    ///
    /// # Safety
    ///
    /// The caller owns `counter`, and no other owner uses the handle afterwards: the kernel reuses
    /// it.
    #[doc(alias = "ibv_destroy_comp_cntr")]
    pub unsafe fn destroy_comp_cntr(&self, counter: u32) -> Result<(), Error> {
        let command = self
            .command(UVERBS_OBJECT_COMP_CNTR, UVERBS_METHOD_COMP_CNTR_DESTROY)
            .handle_in(UVERBS_ATTR_DESTROY_COMP_CNTR_HANDLE, counter);
        // SAFETY: the input is a handle.
        unsafe { command.send(&**self.door(), "destroy_comp_cntr") }?;
        Ok(())
    }
}
