//! Counters of flow rules (`core/uverbs_std_types_counters.c`, `hw/mlx5/counters.c`).

use nix::errno::Errno;
use uverbs_kernel_abi::flow::{
    IB_COUNTER_BYTES, IB_COUNTER_PACKETS, IB_UVERBS_READ_COUNTERS_PREFER_CACHED,
};
use uverbs_kernel_abi::mlx5::{mlx5_ib_flow_counters_data, mlx5_ib_flow_counters_desc};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_CREATE_COUNTERS_HANDLE, UVERBS_ATTR_READ_COUNTERS_BUFF,
    UVERBS_ATTR_READ_COUNTERS_FLAGS, UVERBS_ATTR_READ_COUNTERS_HANDLE,
};
use zerocopy::{FromBytes, IntoBytes};

use crate::kernel::call::{Call, zero_extended};
use crate::kernel::state::flows;
use crate::kernel::state::objects::{Counters, Object};
use crate::kernel::user::copy_from_user;
use crate::kernel::verbs::packets::flow;

/// Maximum descriptions of one counters object (`MAX_COUNTERS_NUM`).
const MAX_PLACES: u32 = u16::MAX as u32 / (2 * size_of::<u32>() as u32);

/// Counted quantities, and their indexes in the result.
pub(crate) type Description = Vec<mlx5_ib_flow_counters_desc>;

/// COUNTERS.CREATE.
pub(crate) fn create(call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.object(UVERBS_ATTR_CREATE_COUNTERS_HANDLE).ok_or(Errno::ENOENT)?;
    call.put_object(handle, Object::Counters(Counters::default()));
    Ok(())
}

/// COUNTERS.READ.
pub(crate) fn read(call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.object(UVERBS_ATTR_READ_COUNTERS_HANDLE).ok_or(Errno::ENOENT)?;
    // Counters without a rule have no values.
    if call.file.objects.users(handle) == 0 {
        return Err(Errno::EINVAL);
    }
    call.flags(UVERBS_ATTR_READ_COUNTERS_FLAGS, IB_UVERBS_READ_COUNTERS_PREFER_CACHED)?;
    let room = call.len(UVERBS_ATTR_READ_COUNTERS_BUFF);
    let mut values = vec![0u64; room / size_of::<u64>()];
    let counters = call.file.objects.counters(handle)?;
    let number = counters.number.ok_or(Errno::EINVAL)?;
    let count = call.device.hca.steering().counter(number).map_err(flows::errno)?;
    for place in &counters.places {
        let value = values.get_mut(place.index as usize).ok_or(Errno::EINVAL)?;
        *value += if place.description == IB_COUNTER_BYTES { count.bytes } else { count.packets };
    }
    call.output_bytes(UVERBS_ATTR_READ_COUNTERS_BUFF, values.as_bytes())
}

/// Counter description of a CREATE_FLOW, if it has one.
pub(crate) fn description(call: &Call<'_>) -> Result<Option<Description>, Errno> {
    let Some((count, rest)) = flow::driver_request(call)? else { return Ok(None) };
    let len = match count {
        0 => 0,
        1 => size_of::<mlx5_ib_flow_counters_data>(),
        _ => return Err(Errno::EINVAL),
    };
    let (data, beyond) = rest.split_at_checked(len).ok_or(Errno::EFAULT)?;
    if beyond.iter().any(|byte| *byte != 0) {
        return Err(Errno::EOPNOTSUPP);
    }
    if count == 0 {
        return Ok(None);
    }
    let data: mlx5_ib_flow_counters_data = zero_extended(data);
    if data.ncounters > MAX_PLACES {
        return Err(Errno::EINVAL);
    }
    let each = size_of::<mlx5_ib_flow_counters_desc>();
    let mut bytes = vec![0; data.ncounters as usize * each];
    copy_from_user(data.counters_data, &mut bytes)?;
    let places = bytes.chunks_exact(each);
    Ok(Some(places.filter_map(|one| FromBytes::read_from_bytes(one).ok()).collect()))
}

/// Adds a rule to the users of counters. Returns the device's number
/// (`mlx5_ib_flow_counters_set_data`). The first rule sets the description.
pub(crate) fn bind(
    call: &mut Call<'_>,
    handle: u32,
    described: Option<Description>,
) -> Result<u32, Errno> {
    if let Some(places) = &described {
        let known = |place: &mlx5_ib_flow_counters_desc| {
            matches!(place.description, IB_COUNTER_PACKETS | IB_COUNTER_BYTES)
                && place.index < MAX_PLACES
        };
        if places.is_empty() || !places.iter().all(known) {
            return Err(Errno::EINVAL);
        }
    }
    let counters = call.file.objects.counters(handle)?;
    // Not described yet, or described already.
    if described.is_some() != counters.places.is_empty() {
        return Err(Errno::EINVAL);
    }
    let number = match counters.number {
        Some(number) => number,
        None => {
            let number = call.device.flows.number();
            call.device.hca.steering().add_counter(number).map_err(flows::errno)?;
            number
        }
    };
    if let Some(Object::Counters(counters)) = call.file.objects.get_mut(handle) {
        if let Some(places) = described {
            counters.places = places;
        }
        counters.number = Some(number);
        counters.rules += 1;
    }
    Ok(number)
}
