//! Doorbell pages (UARs): BlueFlame registers, each owned by one queue, and one non-cached page
//! that all queues may use.
//!
//! A UAR page has two BlueFlame registers for users, each with two alternating halves (PRM "UAR
//! Page Format"; rdma-core `verbs.c:mlx5_insert_dyn_uuars`). A register belongs to one queue, so
//! ringing takes no lock. The non-cached page has no state: an eight-byte store from any thread is
//! one bus transaction.
//!
//! # Safety
//!
//! The commands contain no address. The caller vouches for accesses of other devices to an exported
//! page.
#![allow(unsafe_code, reason = "ioctls; the blocks say why their payload carries no address")]

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use uverbs_core::Errno;
use uverbs_core::attr::DoorbellMode;
use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use uverbs_core::memory::pages::Pages;
use uverbs_core::objects::context::ContextCore;
use uverbs_kernel_abi::mlx5::{
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID,
    MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE,
    MLX5_IB_METHOD_UAR_OBJ_ALLOC, MLX5_IB_METHOD_UAR_OBJ_DESTROY, MLX5_IB_OBJECT_UAR,
    MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC,
};
use uverbs_mlx5_prm::ctrl::MLX5_SEND_WQE_BB;
use uverbs_mlx5_prm::doorbell::{
    MLX5_ADAPTER_PAGE_SIZE, MLX5_BF_OFFSET, MLX5_CQ_DOORBELL, NON_FP_BFREGS_PER_UAR, bfreg_offset,
};

use crate::send::doorbell::Doorbell;

const ALLOC: &str = "alloc_uar";

/// A mapped page with one UAR, or several on hosts with larger pages.
///
/// A context keeps its pages until it is closed, and closing the file returns them to the device.
/// Only if another process may have the file open, each page is freed by a command.
#[derive(Debug)]
pub(crate) struct UarPage {
    /// UAR number of the first UAR in the page, for commands.
    page_id: u32,
    memory: Pages,
    /// Offset at which the device's file maps it.
    offset: u64,
    /// Device and handle to free the page by a command: for an imported device, and for a program's
    /// page.
    give_back: Option<(Uverbs, u32)>,
}

impl UarPage {
    fn alloc(core: &Arc<ContextCore>, kind: u32) -> Result<Self, Error> {
        Self::of(core.uverbs(), kind, core.is_imported())
    }

    fn of(uverbs: &Uverbs, kind: u32, gives_back: bool) -> Result<Self, Error> {
        let (mut offset, mut length, mut page_id) = ([0; 8], [0; 4], [0; 4]);
        let command = uverbs
            .command(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC)
            .handle_new(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)
            .constant(MLX5_IB_ATTR_UAR_OBJ_ALLOC_TYPE, kind.into())
            .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &mut offset)
            .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &mut length)
            .output(MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &mut page_id);
        // SAFETY: the inputs are a constant and an attribute for a handle; the outputs are plain
        // numbers.
        let answer = unsafe { command.send(&**uverbs.door(), ALLOC) }?;
        let handle = answer.handle(MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE)?;
        let length = u32::from_ne_bytes(length) as usize;
        let offset = u64::from_ne_bytes(offset);
        let mapped = uverbs.door().mmap(length, offset);
        let mapped = match mapped {
            Ok(memory) if memory.len() >= MLX5_ADAPTER_PAGE_SIZE => Ok(memory),
            Ok(memory) => {
                let what = format!("a doorbell page of {} bytes", memory.len());
                Err(Error::Unsupported { verb: ALLOC, what })
            }
            Err(errno) => Err(Error::System { what: "mmap of a doorbell page", errno }),
        };
        match mapped {
            Ok(memory) => {
                let give_back = gives_back.then(|| (uverbs.clone(), handle));
                Ok(Self { page_id: u32::from_ne_bytes(page_id), memory, offset, give_back })
            }
            Err(error) => {
                release(uverbs, handle);
                Err(error)
            }
        }
    }

    /// UAR number of the first UAR in the page.
    pub(crate) fn page_id(&self) -> u32 {
        self.page_id
    }

    /// Doorbell register of completion queues. Valid while this lives.
    pub(crate) fn arm(&self) -> *mut u64 {
        self.memory.as_mut_ptr().wrapping_add(MLX5_CQ_DOORBELL).cast()
    }
}

impl Drop for UarPage {
    fn drop(&mut self) {
        if let Some((uverbs, handle)) = &self.give_back {
            release(uverbs, *handle);
        }
    }
}

/// Frees a page. A refusal is ignored: closing the file frees the page.
fn release(uverbs: &Uverbs, handle: u32) {
    let command = uverbs
        .command(MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY)
        .handle_in(MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE, handle);
    // SAFETY: the input is a handle.
    let _ = unsafe { command.send(&**uverbs.door(), "free_uar") };
}

/// A doorbell page of the program. Dropping it returns the page to the device.
#[derive(Debug)]
pub struct Uar(UarPage);

/// Allocates a doorbell page for the caller, with BlueFlame registers or non-cached.
///
/// # Errors
///
/// [`Error::Kernel`]: `ENOMEM` if the device has no more pages, `EOPNOTSUPP` on a host without
/// write-combining.
#[doc(alias = "mlx5dv_devx_alloc_uar")]
pub fn alloc_uar(uverbs: &Uverbs, blue_flame: bool) -> Result<Uar, Error> {
    let kinds = [MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC, MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF];
    UarPage::of(uverbs, kinds[usize::from(blue_flame)], true).map(Uar)
}

impl Uar {
    /// UAR number, for commands.
    #[must_use]
    pub fn page_id(&self) -> u32 {
        self.0.page_id
    }

    /// Address of the mapping, valid while this lives.
    #[must_use]
    pub fn as_ptr(&self) -> *mut u8 {
        self.0.memory.as_mut_ptr()
    }

    /// Address of the first register in the page.
    #[must_use]
    pub fn register(&self) -> *mut u8 {
        self.as_ptr().wrapping_add(MLX5_BF_OFFSET)
    }

    /// Exports the page as a dma-buf for other devices. Since Linux 7.
    ///
    /// # Errors
    ///
    /// The errors of [`Uverbs::export_dmabuf`].
    ///
    /// # Safety
    ///
    /// The contract of [`Uverbs::export_dmabuf`]: only queues of the caller ring on this page, and
    /// the caller vouches for what other devices write to its registers.
    #[doc(alias = "mlx5dv_devx_uar_export_dmabuf_fd")]
    pub unsafe fn export_dmabuf(&self) -> Result<OwnedFd, Error> {
        let (uverbs, _) =
            self.0.give_back.as_ref().ok_or_else(|| Error::kernel(ALLOC, Errno::EBADF))?;
        // SAFETY: contract of `export_dmabuf`.
        unsafe { uverbs.export_dmabuf(self.0.offset) }
    }

    /// Offset at which the device's file maps it.
    #[must_use]
    pub fn mmap_offset(&self) -> u64 {
        self.0.offset
    }
}

/// A free BlueFlame register.
#[derive(Debug)]
struct Free {
    page: Arc<UarPage>,
    /// Index of the UAR in the page.
    uar: u32,
    /// Offset of the register within the page.
    offset: usize,
    /// Offset of the next half to use.
    half: u32,
}

/// The doorbell pages of a context.
#[derive(Debug)]
pub(crate) struct Uars {
    core: Weak<ContextCore>,
    non_cached: Arc<UarPage>,
    /// Size of a BlueFlame register (both halves) in bytes; 0 without BlueFlame.
    register_bytes: u32,
    uars_per_page: u32,
    registers: Arc<Mutex<Registers>>,
}

/// The BlueFlame registers of a context.
#[derive(Debug, Default)]
struct Registers {
    /// First in, first out, as in rdma-core: a register stays unused as long as possible before
    /// another queue gets it.
    free: VecDeque<Free>,
    /// Number of registers, free or in use.
    count: usize,
}

/// Maximum BlueFlame registers of a context, rdma-core's default (`MLX5_TOTAL_UUARS`), because
/// pages are a limited resource of the device. Further queues share registers and locks in
/// rdma-core; here they ring on the non-cached page, without a lock.
const REGISTERS: usize = 16;

impl Uars {
    /// Allocates the non-cached page.
    pub(crate) fn open(
        core: &Arc<ContextCore>,
        register_bytes: u32,
        uars_per_page: u32,
    ) -> Result<Self, Error> {
        let non_cached = Arc::new(UarPage::alloc(core, MLX5_IB_UAPI_UAR_ALLOC_TYPE_NC)?);
        // All registers of a UAR lie in its upper half; an impossible size means no BlueFlame.
        let room = (MLX5_ADAPTER_PAGE_SIZE - MLX5_BF_OFFSET) / NON_FP_BFREGS_PER_UAR;
        let fits = register_bytes as usize <= room;
        let sane = register_bytes.is_power_of_two() && register_bytes >= 128 && fits;
        Ok(Self {
            core: Arc::downgrade(core),
            non_cached,
            register_bytes: if sane { register_bytes } else { 0 },
            uars_per_page: uars_per_page.max(1),
            registers: Arc::default(),
        })
    }

    /// The page that completion queues are armed through.
    pub(crate) fn non_cached(&self) -> &Arc<UarPage> {
        &self.non_cached
    }

    /// Allocates a register for one queue. Without BlueFlame, on a host without write-combining
    /// (`EOPNOTSUPP`), if all registers are in use, or if the device has no page left, returns the
    /// non-cached page for every mode (as rdma-core `verbs.c:mlx5_get_qp_uar` falls back).
    pub(crate) fn register(&self, mode: DoorbellMode) -> Result<Register, Error> {
        match mode {
            DoorbellMode::BlueFlame if self.register_bytes as usize >= 2 * MLX5_SEND_WQE_BB => {
                match self.blue_flame() {
                    Err(Error::Kernel { errno, .. }) if has_none_left(errno) => Ok(self.shared()),
                    other => other,
                }
            }
            _ => Ok(self.shared()),
        }
    }

    fn shared(&self) -> Register {
        Register { page: Arc::clone(&self.non_cached), kind: Kind::NonCached }
    }

    fn blue_flame(&self) -> Result<Register, Error> {
        let mut registers = self.registers.lock().unwrap_or_else(PoisonError::into_inner);
        if registers.free.is_empty() {
            if registers.count >= REGISTERS {
                return Ok(self.shared());
            }
            let core = self.core.upgrade().ok_or_else(|| Error::kernel(ALLOC, Errno::EBADF))?;
            let page = Arc::new(UarPage::alloc(&core, MLX5_IB_UAPI_UAR_ALLOC_TYPE_BF)?);
            let in_page = (page.memory.len() / MLX5_ADAPTER_PAGE_SIZE) as u32;
            for uar in 0..self.uars_per_page.min(in_page) {
                for register in 0..NON_FP_BFREGS_PER_UAR {
                    let offset = uar as usize * MLX5_ADAPTER_PAGE_SIZE
                        + bfreg_offset(register, self.register_bytes as usize);
                    registers.free.push_back(Free {
                        page: Arc::clone(&page),
                        uar,
                        offset,
                        half: 0,
                    });
                    registers.count += 1;
                }
            }
        }
        let Some(taken) = registers.free.pop_front() else {
            return Err(Error::kernel(ALLOC, Errno::ENOSPC));
        };
        let Free { page, uar, offset, half } = taken;
        Ok(Register {
            page,
            kind: Kind::BlueFlame {
                uar,
                offset,
                half_bytes: self.register_bytes / 2,
                half: Arc::new(AtomicU32::new(half)),
                home: Arc::clone(&self.registers),
            },
        })
    }
}

/// True for errnos of a device, or of a cgroup, that gives no BlueFlame page.
fn has_none_left(errno: Errno) -> bool {
    matches!(errno, Errno::EOPNOTSUPP | Errno::ENOMEM | Errno::ENOSPC | Errno::EAGAIN)
}

/// The register that a queue rings. Dropping it returns a BlueFlame register to the context.
#[derive(Debug)]
pub(crate) struct Register {
    page: Arc<UarPage>,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    BlueFlame {
        uar: u32,
        offset: usize,
        half_bytes: u32,
        /// Next half to use, stored when the queue is dropped, because it is a state of the
        /// register.
        half: Arc<AtomicU32>,
        home: Arc<Mutex<Registers>>,
    },
    NonCached,
}

impl Register {
    /// UAR number, for the kernel.
    pub(crate) fn page_id(&self) -> u32 {
        match self.kind {
            Kind::BlueFlame { uar, .. } => self.page.page_id.wrapping_add(uar),
            Kind::NonCached => self.page.page_id,
        }
    }

    /// Offset at which the device's file maps the page.
    pub(crate) fn mmap_offset(&self) -> u64 {
        self.page.offset
    }

    /// Doorbell of the register. Its addresses are valid while this lives.
    pub(crate) fn doorbell(&self) -> Doorbell {
        let page = self.page.memory.as_mut_ptr();
        match &self.kind {
            Kind::BlueFlame { offset, half_bytes, half, .. } => {
                Doorbell::blue_flame(page.wrapping_add(*offset), *half_bytes, Arc::clone(half))
            }
            Kind::NonCached => Doorbell::non_cached(page.wrapping_add(MLX5_BF_OFFSET).cast()),
        }
    }
}

impl Drop for Register {
    fn drop(&mut self) {
        if let Kind::BlueFlame { uar, offset, half, home, .. } = &self.kind {
            let free = Free {
                page: Arc::clone(&self.page),
                uar: *uar,
                offset: *offset,
                half: half.load(Ordering::Relaxed),
            };
            home.lock().unwrap_or_else(PoisonError::into_inner).free.push_back(free);
        }
    }
}
