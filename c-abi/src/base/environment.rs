//! Devices that the environment names, and settings of C's provider there (`README.md`).
//!
//! # Safety
//!
//! The loader calls each function of `.init_array` once. C functions may ignore its arguments.
#![allow(unsafe_code, reason = "places a function where the loader calls it")]

use std::sync::Arc;

use uverbs::Device;
use uverbs::softhca::SoftHca;
use uverbs_core::Errno;
use uverbs_core::doors::cm::{CmDoor, KernelCmDoor};
use uverbs_core::doors::{DeviceRecord, DeviceSource};
use uverbs_core::environment::Variable;
use uverbs_core::error::Error;
use uverbs_core::provider::CqeSize;

use crate::device::list;

/// Reads the environment when the library is loaded: nginx clears its environment later.
#[cfg(not(any(test, fuzzing)))]
#[used]
// The section holds pointers to functions.
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

#[cfg(not(any(test, fuzzing)))]
extern "C" fn loaded() {
    uverbs_core::environment::remember();
}

/// Device names, separated by commas (`uverbs::device_names`). `None`: all devices of the kernel.
fn named() -> Option<String> {
    Variable::Device.text().filter(|names| !names.is_empty())
}

/// Names of the devices that programs see; empty if they are the kernel's.
pub(crate) fn names() -> Vec<String> {
    let list = named().unwrap_or_default();
    let names = uverbs::device_names(&list).into_iter().filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Software HCA that `UVERBS_DEVICE` names and that has this record.
pub(crate) fn software(record: &DeviceRecord) -> Option<SoftHca> {
    let names = names().into_iter().filter(|name| name.starts_with("softhca"));
    let mut devices = names.filter_map(|name| SoftHca::embedded(&name)?.ok());
    devices.find(|device| device.record() == record)
}

/// Devices that programs see.
pub(crate) fn devices() -> Result<Vec<Device>, Error> {
    if named().is_none() {
        return uverbs::devices();
    }
    names().iter().map(|name| uverbs::device(name)).collect()
}

/// Connection manager of these devices: an embedded device's, which knows that device only, or the
/// kernel's. Without named devices it is the kernel's, without a search: programs may open a
/// channel for each connection.
pub(crate) fn connection_manager() -> Result<Arc<dyn CmDoor>, Error> {
    let named = if named().is_some() { list::devices()? } else { Vec::new() };
    let opened = match named.first() {
        Some(device) => device.device().source().open_cm(),
        None => KernelCmDoor::open().map(|door| Arc::new(door) as Arc<dyn CmDoor>),
    };
    opened.map_err(|errno| Error::kernel("rdma_create_event_channel", errno))
}

/// Doorbells are written without BlueFlame (libmlx5 `mlx5.c:get_shut_up_bf`).
pub(crate) fn shuts_up_blue_flame() -> bool {
    is_on(Variable::ShutUpBlueFlame)
}

/// Short messages lie in their CQEs, unless the program decides (libmlx5
/// `verbs.c:use_scatter_to_cqe`, where the default is yes).
pub(crate) fn scatters() -> bool {
    is_on(Variable::ScatterToCqe)
}

/// Set, and not to `0`, as C's provider reads it.
fn is_on(variable: Variable) -> bool {
    variable.value().is_some_and(|value| value != "0")
}

/// CQE size, unless the program decides, read like C's provider (`verbs.c:get_cqe_size`): text that
/// is not a number is 0. `EINVAL` for a size other than 64 and 128.
pub(crate) fn cqe_size() -> Result<CqeSize, Errno> {
    let Some(text) = Variable::CqeSize.text() else { return Ok(CqeSize::Bytes64) };
    size_of_number(text.trim().parse().unwrap_or(0))
}

/// CQE size of so many bytes.
pub(crate) fn size_of_number(bytes: u16) -> Result<CqeSize, Errno> {
    match bytes {
        64 => Ok(CqeSize::Bytes64),
        128 => Ok(CqeSize::Bytes128),
        _ => Err(Errno::EINVAL),
    }
}
