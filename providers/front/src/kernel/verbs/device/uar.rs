//! UAR objects (`drivers/infiniband/hw/mlx5/main.c`:
//! `UVERBS_HANDLER(MLX5_IB_METHOD_UAR_OBJ_ALLOC)`).

use std::sync::Arc;

use nix::errno::Errno;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF,
    MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC,
};

use crate::backend::config::Config;
use crate::kernel::call::Call;
use crate::kernel::state::objects::{Object, Uar};
use crate::kernel::user::page_size;
use crate::kernel::verbs::device::map;

/// UAR.ALLOC.
pub(crate) fn alloc(call: &mut Call<'_>) -> Result<(), Errno> {
    let kind = call.constant(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, u64::from(u32::MAX))?;
    // On silicon both kinds differ in the client's mapping attribute.
    if kind != u64::from(MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF)
        && kind != u64::from(MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
    {
        return Err(Errno::EOPNOTSUPP);
    }
    let handle = call.object(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE).ok_or(Errno::ENOENT)?;
    let &Config { first_uar, max_uars, max_blue_flame, bf_reg_size, .. } = &call.device.config;
    let is_blue_flame = kind == u64::from(MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF);
    // A host without write combining (`wc_support`).
    if is_blue_flame && bf_reg_size == 0 {
        return Err(Errno::EOPNOTSUPP);
    }
    let blue_flame = &mut call.device.blue_flame;
    blue_flame.retain(|page| page.strong_count() > 0);
    if is_blue_flame && blue_flame.len() >= max_blue_flame as usize {
        return Err(Errno::ENOMEM);
    }
    let page = call.device.uars.alloc(first_uar, max_uars)?;
    if is_blue_flame {
        call.device.blue_flame.push(Arc::downgrade(&page));
    }
    let (index, len) = (page.index(), page.len());
    let taken = call.file.objects.uars().map(|uar| uar.mmap_page).collect::<Vec<_>>();
    let mmap_page =
        (0..).map(map::uar_page).find(|page| !taken.contains(page)).ok_or(Errno::ENOMEM)?;
    call.put_object(handle, Object::Uar(Uar { page, mmap_page }));
    call.output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &(mmap_page * page_size()))?;
    call.output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &(len as u32))?;
    call.output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &index)
}
