//! Memory regions (`ib_uverbs_reg_mr`, `mlx5_ib_reg_user_mr`).

use nix::errno::Errno;
use uverbs_kernel_abi::ioctl::{ib_uverbs_attr, ib_uverbs_ioctl_hdr};
use uverbs_kernel_abi::mr::{
    IB_MR_REREG_ACCESS, IB_MR_REREG_PD, IB_MR_REREG_TRANS, IB_UVERBS_ACCESS_HUGETLB,
    IB_UVERBS_ACCESS_LOCAL_WRITE, IB_UVERBS_ACCESS_MW_BIND, IB_UVERBS_ACCESS_ON_DEMAND,
    IB_UVERBS_ACCESS_OPTIONAL_RANGE, IB_UVERBS_ACCESS_RELAXED_ORDERING,
    IB_UVERBS_ACCESS_REMOTE_ATOMIC, IB_UVERBS_ACCESS_REMOTE_READ, IB_UVERBS_ACCESS_REMOTE_WRITE,
    IB_UVERBS_ACCESS_ZERO_BASED, IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT,
    IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE, IB_UVERBS_ADVISE_MR_FLAG_FLUSH, ib_uverbs_reg_mr,
    ib_uverbs_reg_mr_resp, ib_uverbs_rereg_mr, ib_uverbs_rereg_mr_resp,
};
use uverbs_kernel_abi::objects::{
    UVERBS_ATTR_ADVISE_MR_ADVICE, UVERBS_ATTR_ADVISE_MR_FLAGS, UVERBS_ATTR_ADVISE_MR_PD_HANDLE,
    UVERBS_ATTR_ADVISE_MR_SGE_LIST, UVERBS_ATTR_CORE_IN, UVERBS_ATTR_QUERY_MR_HANDLE,
    UVERBS_ATTR_QUERY_MR_RESP_IOVA, UVERBS_ATTR_QUERY_MR_RESP_LENGTH,
    UVERBS_ATTR_QUERY_MR_RESP_LKEY, UVERBS_ATTR_QUERY_MR_RESP_RKEY, UVERBS_ATTR_WRITE_CMD,
    UVERBS_METHOD_INVOKE_WRITE, UVERBS_OBJECT_DEVICE, UVERBS_OBJECT_MR,
};
use uverbs_kernel_abi::wc::ib_uverbs_sge;
use uverbs_kernel_abi::write::{IB_USER_VERBS_CMD_REG_MR, IB_USER_VERBS_CMD_REREG_MR};
use zerocopy::{FromBytes, IntoBytes};

use crate::backend::config::Config;
use crate::backend::context::{Access, MkeyContext};
use crate::backend::error::errno;
use crate::backend::number::{Key, Pdn};
use crate::backend::region::Region;
use crate::kernel::call::{Call, Write};
use crate::kernel::state::device::Device;
use crate::kernel::state::objects::{Backing, Mr, Object};
use crate::kernel::user::{copy_from_user, page_size, probe};

/// REG_MR.
pub(crate) const REG_MR: Write = Write {
    command: IB_USER_VERBS_CMD_REG_MR,
    request: size_of::<ib_uverbs_reg_mr>(),
    response: size_of::<ib_uverbs_reg_mr_resp>(),
    handler: reg,
};

/// REREG_MR.
pub(crate) const REREG_MR: Write = Write {
    command: IB_USER_VERBS_CMD_REREG_MR,
    request: size_of::<ib_uverbs_rereg_mr>(),
    response: size_of::<ib_uverbs_rereg_mr_resp>(),
    handler: rereg,
};

/// `IB_ACCESS_FLUSH_GLOBAL` and `IB_ACCESS_FLUSH_PERSISTENT` (Linux 6.2), which mlx5 refuses.
const FLUSH_GLOBAL: u32 = 1 << 8;
const FLUSH_PERSISTENT: u32 = 1 << 9;

/// `IB_ACCESS_SUPPORTED`.
pub(crate) const SUPPORTED: u32 = IB_UVERBS_ACCESS_LOCAL_WRITE
    | IB_UVERBS_ACCESS_REMOTE_WRITE
    | IB_UVERBS_ACCESS_REMOTE_READ
    | IB_UVERBS_ACCESS_REMOTE_ATOMIC
    | IB_UVERBS_ACCESS_MW_BIND
    | IB_UVERBS_ACCESS_ZERO_BASED
    | IB_UVERBS_ACCESS_ON_DEMAND
    | IB_UVERBS_ACCESS_HUGETLB
    | FLUSH_GLOBAL
    | FLUSH_PERSISTENT
    | IB_UVERBS_ACCESS_OPTIONAL_RANGE;

/// Checks access flags (`ib_check_mr_access`) by the device's capabilities
/// (`IB_DEVICE_FLUSH_GLOBAL`).
pub(crate) fn check_access(flags: u32, config: &Config) -> Result<(), Errno> {
    let remote = IB_UVERBS_ACCESS_REMOTE_ATOMIC | IB_UVERBS_ACCESS_REMOTE_WRITE;
    if flags & remote != 0 && flags & IB_UVERBS_ACCESS_LOCAL_WRITE == 0 {
        return Err(Errno::EINVAL);
    }
    if flags & !SUPPORTED != 0 {
        return Err(Errno::EINVAL);
    }
    // This device cannot tell if memory is persistent.
    if flags & FLUSH_PERSISTENT != 0 || (flags & FLUSH_GLOBAL != 0 && !config.placement) {
        return Err(Errno::EOPNOTSUPP);
    }
    // Firmware refuses the key (BAD_PARAM).
    if config.relaxed_only && flags & IB_UVERBS_ACCESS_RELAXED_ORDERING == 0 {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// True if the rights need writable pages (`ib_access_writable`).
fn writable(flags: u32) -> bool {
    flags
        & (IB_UVERBS_ACCESS_LOCAL_WRITE
            | IB_UVERBS_ACCESS_REMOTE_WRITE
            | IB_UVERBS_ACCESS_REMOTE_ATOMIC
            | IB_UVERBS_ACCESS_MW_BIND)
        != 0
}

/// Converts access flags of a memory region, or of a QP, for the HCA.
pub(crate) fn rights(flags: u32) -> Access {
    let mut access = Access::empty();
    access.set(Access::LOCAL_WRITE, flags & IB_UVERBS_ACCESS_LOCAL_WRITE != 0);
    access.set(Access::REMOTE_WRITE, flags & IB_UVERBS_ACCESS_REMOTE_WRITE != 0);
    access.set(Access::REMOTE_READ, flags & IB_UVERBS_ACCESS_REMOTE_READ != 0);
    access.set(Access::REMOTE_ATOMIC, flags & IB_UVERBS_ACCESS_REMOTE_ATOMIC != 0);
    access.set(Access::FLUSH_GLOBAL, flags & FLUSH_GLOBAL != 0);
    access
}

/// Converts access flags of a QP. An mlx5 context has bits for three remote rights (`rre`, `rwe`,
/// `rae`); a device with memory placement keeps one more.
pub(crate) fn queue_rights(flags: u32, config: &Config) -> Access {
    let mut kept = Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    kept.set(Access::FLUSH_GLOBAL, config.placement);
    rights(flags) & kept
}

/// Converts rights back into access flags, for queries.
pub(crate) fn access_flags(access: Access) -> u32 {
    [
        (Access::LOCAL_WRITE, IB_UVERBS_ACCESS_LOCAL_WRITE),
        (Access::REMOTE_WRITE, IB_UVERBS_ACCESS_REMOTE_WRITE),
        (Access::REMOTE_READ, IB_UVERBS_ACCESS_REMOTE_READ),
        (Access::REMOTE_ATOMIC, IB_UVERBS_ACCESS_REMOTE_ATOMIC),
        (Access::FLUSH_GLOBAL, FLUSH_GLOBAL),
    ]
    .into_iter()
    .filter(|(right, _)| access.contains(*right))
    .fold(0, |flags, (_, flag)| flags | flag)
}

fn reg(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_reg_mr = call.request()?;
    check_offsets(request.start, request.hca_va)?;
    let handle = call.new_handle(UVERBS_OBJECT_MR)?;
    check_access(request.access_flags, &call.device.config)?;
    let mr = Mr {
        pd: request.pd_handle,
        key: Key::default(),
        backing: Backing::User,
        start: request.start,
        access_flags: request.access_flags,
        iova: request.hca_va,
        len: request.length,
        pinned: 0,
    };
    let key = install(call, handle, mr)?;
    call.respond(&ib_uverbs_reg_mr_resp { mr_handle: handle, lkey: key.0, rkey: key.0 })
}

/// Creates a region's key and puts the region behind its handle. Fills in `mr.key` and `mr.pinned`.
pub(crate) fn install(call: &mut Call<'_>, handle: u32, mut mr: Mr) -> Result<Key, Errno> {
    let pdn = call.file.objects.pd(mr.pd)?.pdn;
    let device = &mut *call.device;
    mr.pinned = take(device, &mr)?;
    let key = device.hca.create_mkey(mkey(&mr, pdn.0));
    mr.key = key.map_err(|error| {
        device.unpin(mr.pinned);
        errno(error)
    })?;
    call.file.objects.hold(mr.pd);
    if let Backing::DeviceMemory(dm) = mr.backing {
        call.file.objects.hold(dm);
    }
    let key = mr.key;
    call.put_object(handle, Object::Mr(mr));
    Ok(key)
}

/// Pins a region's memory, or checks it if it is paged on demand. Returns the bytes pinned.
fn take(device: &mut Device, mr: &Mr) -> Result<u64, Errno> {
    if !matches!(mr.backing, Backing::User) {
        return Ok(0);
    }
    if mr.access_flags & IB_UVERBS_ACCESS_ON_DEMAND != 0 {
        return device.demand(mr.start, mr.len, mr.iova).map(|()| 0);
    }
    device.pin(mr.start, mr.len, writable(mr.access_flags))
}

/// Checks that start and device address have the same offset in their pages.
pub(crate) fn check_offsets(start: u64, hca_va: u64) -> Result<(), Errno> {
    match start % page_size() == hca_va % page_size() {
        true => Ok(()),
        false => Err(Errno::EINVAL),
    }
}

fn mkey(mr: &Mr, pdn: u32) -> MkeyContext {
    MkeyContext {
        pd: Pdn(pdn),
        // mlx5_ib leaves zero-based addresses to the provider, which requests device address 0 for
        // them.
        iova: mr.iova,
        len: mr.len,
        access: rights(mr.access_flags),
        no_windows: mr.access_flags & IB_UVERBS_ACCESS_MW_BIND == 0,
        // mlx5_ib leaves remote_invalidate clear in the keys of user memory.
        region: match mr.access_flags & IB_UVERBS_ACCESS_ON_DEMAND {
            0 => Region::Flat { addr: mr.start, len: mr.len },
            _ => Region::OnDemand { addr: mr.start, len: mr.len },
        },
        device_memory: matches!(mr.backing, Backing::DeviceMemory(_)),
        ..MkeyContext::default()
    }
}

/// Re-registers a region (`ib_uverbs_rereg_mr` and `mlx5_ib_rereg_user_mr`). As with mlx5_ib, the
/// region may have another key afterwards.
fn rereg(call: &mut Call<'_>) -> Result<(), Errno> {
    let request: ib_uverbs_rereg_mr = call.request()?;
    if request.flags == 0 {
        return Err(Errno::EINVAL);
    }
    if request.flags & !(IB_MR_REREG_TRANS | IB_MR_REREG_PD | IB_MR_REREG_ACCESS) != 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let given = |flag: u32| request.flags & flag != 0;
    if given(IB_MR_REREG_TRANS) {
        check_offsets(request.start, request.hca_va)?;
    }
    let objects = &call.file.objects;
    objects.check(request.mr_handle, UVERBS_OBJECT_MR)?;
    let Some(Object::Mr(old)) = objects.get(request.mr_handle) else {
        return Err(Errno::ENOENT);
    };
    // `ib_uverbs_rereg_mr` refuses device memory.
    if matches!(old.backing, Backing::DeviceMemory(_)) {
        return Err(Errno::EINVAL);
    }
    let mut mr = old.clone();
    if given(IB_MR_REREG_ACCESS) {
        check_access(request.access_flags, &call.device.config)?;
        mr.access_flags = request.access_flags;
    }
    if given(IB_MR_REREG_PD) {
        mr.pd = request.pd_handle;
    }
    if given(IB_MR_REREG_TRANS) {
        (mr.start, mr.iova, mr.len) = (request.start, request.hca_va, request.length);
        mr.backing = Backing::User;
    }
    let pdn = objects.pd(mr.pd)?.pdn;
    let (old_pd, old_pinned) = (old.pd, old.pinned);
    // New rights may need writable pages, so the memory is checked in any case.
    let device = &mut *call.device;
    mr.pinned = take(device, &mr)?;
    let key = device.hca.modify_mkey(mr.key, mkey(&mr, pdn.0));
    mr.key = key.map_err(|error| {
        device.unpin(mr.pinned);
        errno(error)
    })?;
    device.unpin(old_pinned);
    call.file.objects.hold(mr.pd);
    call.file.objects.release(old_pd);
    let key = mr.key;
    call.put_object(request.mr_handle, Object::Mr(mr));
    call.respond(&ib_uverbs_rereg_mr_resp { lkey: key.0, rkey: key.0 })
}

/// Faults in the memory that a REG_MR or REREG_MR is about to pin, if `worth` returns true for its
/// size. It runs before the command takes the device's lock: faulting in a gigabyte takes longer
/// than peers wait for an ACK, and afterwards the probe under the lock is short. Errors are
/// ignored; the command's handler reports them.
pub(crate) fn fault_in(command: &[u64], worth: impl FnOnce(u64) -> bool) {
    if let Some((start, len, writable)) = announced(command)
        && len.checked_next_multiple_of(page_size()).is_some_and(worth)
    {
        let _ = probe(start, len, writable);
    }
}

/// Range that a command is about to pin: start, length, and true if writable.
fn announced(command: &[u64]) -> Option<(u64, u64, bool)> {
    let (header, rest) = ib_uverbs_ioctl_hdr::read_from_prefix(command.as_bytes()).ok()?;
    if (header.object_id, header.method_id) != (UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE) {
        return None;
    }
    let attr = |id: u16| {
        let attrs = rest.chunks_exact(size_of::<ib_uverbs_attr>()).take(header.num_attrs.into());
        let mut attrs = attrs.filter_map(|bytes| ib_uverbs_attr::read_from_bytes(bytes).ok());
        attrs.find(|attr| attr.attr_id == id)
    };
    let request = attr(UVERBS_ATTR_CORE_IN)?;
    match u32::try_from(attr(UVERBS_ATTR_WRITE_CMD)?.data).ok()? {
        IB_USER_VERBS_CMD_REG_MR => {
            let request: ib_uverbs_reg_mr = peek(&request)?;
            let pins = request.access_flags & IB_UVERBS_ACCESS_ON_DEMAND == 0;
            pins.then_some((request.start, request.length, writable(request.access_flags)))
        }
        IB_USER_VERBS_CMD_REREG_MR => {
            let request: ib_uverbs_rereg_mr = peek(&request)?;
            let given = |flag: u32| request.flags & flag != 0;
            // Unchanged rights are in the region, which is behind the lock. They count as read-only
            // here.
            let writable = given(IB_MR_REREG_ACCESS) && writable(request.access_flags);
            given(IB_MR_REREG_TRANS).then_some((request.start, request.length, writable))
        }
        _ => None,
    }
}

fn peek<T: FromBytes + IntoBytes>(attr: &ib_uverbs_attr) -> Option<T> {
    let mut request = T::new_zeroed();
    if usize::from(attr.len) < size_of::<T>() {
        return None;
    }
    copy_from_user(attr.data, request.as_mut_bytes()).ok()?;
    Some(request)
}

/// MR.ADVISE_MR (`uverbs_std_types_mr.c`; `mlx5_ib_advise_mr`). Pages are faulted in at once, even
/// if the caller does not wait for them.
pub(crate) fn advise(call: &mut Call<'_>) -> Result<(), Errno> {
    let pd = call.object(UVERBS_ATTR_ADVISE_MR_PD_HANDLE).ok_or(Errno::ENOENT)?;
    let advice = call.constant(UVERBS_ATTR_ADVISE_MR_ADVICE, u32::MAX.into())? as u32;
    call.flags(UVERBS_ATTR_ADVISE_MR_FLAGS, IB_UVERBS_ADVISE_MR_FLAG_FLUSH)?;
    let list = call.bytes(UVERBS_ATTR_ADVISE_MR_SGE_LIST)?.ok_or(Errno::ENOENT)?;
    let list = <[ib_uverbs_sge]>::ref_from_bytes(&list).map_err(|_| Errno::EINVAL)?;
    if advice > IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT {
        return Err(Errno::EOPNOTSUPP);
    }
    let pages = list.iter().map(|sge| advised(call, pd, advice, sge));
    // All are checked before any page is faulted in (`init_prefetch_work`).
    let pages = pages.collect::<Result<Vec<_>, _>>()?;
    if advice != IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT {
        let write = advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
        for (start, len) in pages.into_iter().filter(|(_, len)| *len != 0) {
            probe(start, len, write)?;
        }
    }
    Ok(())
}

/// Address and length of an advised range (`get_prefetchable_mr`).
fn advised(
    call: &Call<'_>,
    pd: u32,
    advice: u32,
    sge: &ib_uverbs_sge,
) -> Result<(u64, u64), Errno> {
    // Pinned regions aren't in the kernel's table (`odp_mkeys`).
    let paged = |mr: &&Mr| mr.access_flags & IB_UVERBS_ACCESS_ON_DEMAND != 0;
    let mut regions = call.file.objects.regions().filter(paged);
    let mr = regions.find(|mr| mr.key.0 == sge.lkey).ok_or(Errno::ENOENT)?;
    let writes = advice == IB_UVERBS_ADVISE_MR_ADVICE_PREFETCH_WRITE;
    if mr.pd != pd || writes && !writable(mr.access_flags) {
        return Err(Errno::EPERM);
    }
    let (offset, len) = (sge.addr.wrapping_sub(mr.iova), u64::from(sge.length));
    match offset.checked_add(len) {
        Some(end) if end <= mr.len => Ok((mr.start.wrapping_add(offset), len)),
        _ => Err(Errno::EFAULT),
    }
}

/// MR.QUERY_MR (`uverbs_std_types_mr.c`).
pub(crate) fn query(call: &mut Call<'_>) -> Result<(), Errno> {
    let handle = call.object(UVERBS_ATTR_QUERY_MR_HANDLE).ok_or(Errno::ENOENT)?;
    let Some(Object::Mr(mr)) = call.file.objects.get(handle) else {
        return Err(Errno::ENOENT);
    };
    let (key, len, iova) = (mr.key, mr.len, mr.iova);
    call.output(UVERBS_ATTR_QUERY_MR_RESP_LKEY, &key.0)?;
    call.output(UVERBS_ATTR_QUERY_MR_RESP_RKEY, &key.0)?;
    call.output(UVERBS_ATTR_QUERY_MR_RESP_LENGTH, &len)?;
    call.output_optional(UVERBS_ATTR_QUERY_MR_RESP_IOVA, &iova)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rights_and_flags() {
        let (mlx5, more) = (Config::default(), Config { placement: true, ..Config::default() });
        let check = |flags| check_access(flags, &mlx5);
        assert_eq!(check(IB_UVERBS_ACCESS_REMOTE_WRITE), Err(Errno::EINVAL));
        assert_eq!(check(IB_UVERBS_ACCESS_REMOTE_READ), Ok(()));
        assert_eq!(check(1 << 15), Err(Errno::EINVAL));
        assert_eq!(check(1 << 29), Ok(()));
        assert_eq!(check(IB_UVERBS_ACCESS_ON_DEMAND), Ok(()));
        assert_eq!(check(FLUSH_GLOBAL), Err(Errno::EOPNOTSUPP));
        assert_eq!(check_access(FLUSH_GLOBAL, &more), Ok(()));
        assert_eq!(check_access(FLUSH_PERSISTENT, &more), Err(Errno::EOPNOTSUPP));
        assert_eq!(queue_rights(0xfff, &mlx5).bits(), 0b1110);
        assert_eq!(queue_rights(0xfff, &more).bits(), 0b1_1110);
        assert_eq!(access_flags(rights(FLUSH_GLOBAL)), FLUSH_GLOBAL);
        for flags in 0..16 {
            assert_eq!(access_flags(rights(flags)), flags);
        }
    }
}
