//! UAR objects and their mmap (`drivers/infiniband/hw/mlx5/main.c`: `UVERBS_HANDLER(MLX5_IB_METHOD_UAR_OBJ_ALLOC)`).

use nix::errno::Errno;
use uverbs_core::memory::pages::Pages;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF,
    MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC,
};

use crate::board::profile::MAX_UARS;
use crate::kernel::call::Call;
use crate::kernel::state::file::File;
use crate::kernel::state::objects::{Object, Uar};
use crate::kernel::user::PAGE_SIZE;
use crate::uar::UAR_SIZE;

/// First mmap command of the entries that the kernel numbers itself (`MLX5_IB_MMAP_OFFSET_START`).
const MMAP_COMMAND: u64 = 9;

/// Page offset of the `index`th entry: index bits 0-7, command in 8-15, the rest of the index above
/// (`mlx5_entry_to_mmap_offset`).
fn mmap_page(index: u64) -> u64 {
    (index >> 8) << 16 | MMAP_COMMAND << 8 | index & 0xff
}

/// UAR.ALLOC.
pub(crate) fn alloc(call: &mut Call<'_>) -> Result<(), Errno> {
    let kind = call.constant(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, u64::from(u32::MAX))?;
    // Both kinds are plain memory here; the difference is the client's mapping attribute on silicon.
    if kind != u64::from(MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF)
        && kind != u64::from(MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)
    {
        return Err(Errno::EOPNOTSUPP);
    }
    let handle = call.object(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE).ok_or(Errno::ENOENT)?;
    let page = call.device.uars.alloc(MAX_UARS)?;
    let index = page.index();
    let taken = call.file.objects.uars().map(|uar| uar.mmap_page).collect::<Vec<_>>();
    let mmap_page = (0..).map(mmap_page).find(|page| !taken.contains(page)).ok_or(Errno::ENOMEM)?;
    call.put_object(handle, Object::Uar(Uar { page, mmap_page }));
    call.output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &(mmap_page * PAGE_SIZE))?;
    call.output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &(UAR_SIZE as u32))?;
    call.output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &index)
}

/// mmap of the device file (`mlx5_ib_mmap`, `rdma_user_mmap_entry_get_pgoff`).
///
/// # Errors
///
/// `EINVAL` for an offset that no entry has, or another length than the entry's.
pub(crate) fn mmap(file: &File, len: usize, offset: u64) -> Result<Pages, Errno> {
    if !file.has_context() || !offset.is_multiple_of(PAGE_SIZE) || len == 0 {
        return Err(Errno::EINVAL);
    }
    let mut uars = file.objects.uars();
    let uar = uars.find(|uar| uar.mmap_page == offset / PAGE_SIZE).ok_or(Errno::EINVAL)?;
    // The kernel compares pages: a shorter length is rounded up by mmap itself.
    if len > UAR_SIZE {
        return Err(Errno::EINVAL);
    }
    uar.page.map()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mmap_offsets() {
        assert_eq!(mmap_page(0), 0x900);
        assert_eq!(mmap_page(255), 0x9ff);
        assert_eq!(mmap_page(256), 0x1_0900);
    }
}
