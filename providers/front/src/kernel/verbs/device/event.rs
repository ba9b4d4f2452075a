//! Creation of event files: ASYNC_EVENT.ALLOC and completion channels
//! (`drivers/infiniband/core/uverbs_std_types_async_fd.c`, `uverbs_cmd.c`).

use nix::errno::Errno;
use uverbs_kernel_abi::cq::{ib_uverbs_create_comp_channel, ib_uverbs_create_comp_channel_resp};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, UVERBS_OBJECT_COMP_CHANNEL,
};
use uverbs_kernel_abi::write::IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL;

use crate::kernel::call::{Call, Write};

/// ASYNC_EVENT.ALLOC: the check of the attribute has created the file.
pub(crate) fn alloc(call: &mut Call<'_>) -> Result<(), Errno> {
    match call.has(UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE) {
        true => Ok(()),
        false => Err(Errno::EINVAL),
    }
}

/// CREATE_COMP_CHANNEL (`ib_uverbs_create_comp_channel`).
pub(crate) const CREATE_COMP_CHANNEL: Write = Write {
    command: IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL,
    request: size_of::<ib_uverbs_create_comp_channel>(),
    response: size_of::<ib_uverbs_create_comp_channel_resp>(),
    handler: create_comp_channel,
};

fn create_comp_channel(call: &mut Call<'_>) -> Result<(), Errno> {
    let _request: ib_uverbs_create_comp_channel = call.request()?;
    if !call.file.has_context() {
        return Err(Errno::EINVAL);
    }
    let file = call.new_event_file(UVERBS_OBJECT_COMP_CHANNEL)?;
    let fd = call.file.events.fd(file).ok_or(Errno::EBADF)?;
    call.respond(&ib_uverbs_create_comp_channel_resp { fd: fd.cast_unsigned() })
}
