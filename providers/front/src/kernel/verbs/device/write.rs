//! Write commands: commands without ioctl method, sent through DEVICE.INVOKE_WRITE.

use nix::errno::Errno;
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CORE_IN, UVERBS_ATTR_CORE_OUT, UVERBS_ATTR_WRITE_CMD,
};
use uverbs_kernel_abi::write::{IB_USER_VERBS_CMD_COMMAND_MASK, IB_USER_VERBS_CMD_FLAG_EXTENDED};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::kernel::call::{Call, zero_extended};
use crate::kernel::verbs::queues::{rss, wq};

/// Handler of INVOKE_WRITE (`uverbs_std_types_device.c`, `uapi_get_method`).
pub(crate) fn invoke(call: &mut Call<'_>) -> Result<(), Errno> {
    let command = call.constant(UVERBS_ATTR_WRITE_CMD, u64::from(u32::MAX))?;
    let command = u32::try_from(command).map_err(|_| Errno::EINVAL)?;
    if command & !(IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_CMD_COMMAND_MASK) != 0 {
        return Err(Errno::EINVAL);
    }
    let write =
        call.table.writes.iter().find(|write| write.command == command).ok_or(Errno::EOPNOTSUPP)?;
    // Refused on InfiniBand, as the methods of these objects (`kernel/call.rs`).
    let of_packets = [wq::EX_MODIFY_WQ.command, rss::EX_CREATE_RWQ_IND_TBL.command];
    if of_packets.contains(&command) && !call.device.config.is_ethernet() {
        return Err(Errno::EOPNOTSUPP);
    }
    if call.len(UVERBS_ATTR_CORE_IN) < write.request
        || call.len(UVERBS_ATTR_CORE_OUT) < write.response
    {
        return Err(Errno::ENOSPC);
    }
    (write.handler)(call)
}

impl Call<'_> {
    /// Reads the request (`uverbs_request`): a shorter one is extended with zeros, a longer one
    /// must end in zeros.
    ///
    /// # Errors
    ///
    /// `EFAULT`, `EOPNOTSUPP`.
    pub(crate) fn request<T: FromBytes + IntoBytes>(&self) -> Result<T, Errno> {
        let bytes = self.bytes(UVERBS_ATTR_CORE_IN)?.unwrap_or_default();
        match bytes.get(size_of::<T>()..) {
            Some(tail) if tail.iter().any(|byte| *byte != 0) => Err(Errno::EOPNOTSUPP),
            _ => Ok(zero_extended(&bytes)),
        }
    }

    /// Writes the response (`uverbs_response`), cut to its buffer, and clears the rest of the
    /// buffer.
    ///
    /// # Errors
    ///
    /// `EFAULT`.
    pub(crate) fn respond<T: IntoBytes + Immutable>(&mut self, response: &T) -> Result<(), Errno> {
        match self.output_or_zero(UVERBS_ATTR_CORE_OUT, response) {
            Err(Errno::ENOENT) => Ok(()),
            other => other,
        }
    }

    /// Bytes of a response of type `T` that fit the buffer (`uverbs_response_length`).
    pub(crate) fn response_length<T>(&self) -> u32 {
        self.len(UVERBS_ATTR_CORE_OUT).min(size_of::<T>()) as u32
    }
}
