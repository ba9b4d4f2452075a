//! Devices, protection domains and regions that another part of the program, or another process,
//! made: by the device's file and the kernel's handles.
//!
//! # Safety
//!
//! Only the import of a protection domain is unsafe; its caller vouches for the handle.
#![allow(unsafe_code, reason = "another's domain is used on the caller's word")]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::commands::Uverbs;
use uverbs_core::commands::mr::MrFound;
use uverbs_core::doors::UverbsDoor;
use uverbs_core::error::Error;
use uverbs_core::objects::context::ContextCore;
use uverbs_core::objects::pd::PdCore;
use uverbs_core::provider::ContextOps;
use uverbs_core::queues::work::Sge;

use crate::provider::Provider;
use crate::{Context, Device, ProtectionDomain, devices};

const VERB: &str = "import_device";

/// Makes a context of the open device behind `file`, a descriptor from [`Context::export`], of this
/// process or of one that sent it (`SCM_RIGHTS`). Both contexts share one open file: each can name
/// the objects of both by handle ([`Context::import_pd`], [`ProtectionDomain::import_region`]). The
/// file closes with its last context and descriptor, which ends the remaining objects. `file` may
/// be closed at once.
///
/// Completion queues, queue pairs, channels and asynchronous events are each context's own.
/// ConnectX alone, since Linux 5.9. A software HCA is its process's own: its descriptor names the
/// device in this process, as long as a context of that opening is there.
///
/// # Errors
///
/// [`Error::Invalid`] for a descriptor of no device, [`Error::NoSuchDevice`] for a device that this
/// process doesn't see; [`Error::Unsupported`] for soft-RoCE, and for a context that a program
/// opened without dynamic doorbell pages; [`Error::Kernel`]: `EIO` of a device that is gone.
///
/// ```
/// let context = uverbs::device("softhca0")?.open()?;
/// let pd = context.alloc_pd()?;
///
/// let file = context.export()?; // sent to whoever is to share the device, with `pd.handle()`
/// let shared = uverbs::import(&file)?;
/// // SAFETY: `pd` is there until the end, and its owner sent its handle.
/// let shared_pd = unsafe { shared.import_pd(pd.handle()) }?;
/// let cq = shared.create_cq(256)?;
/// let qp = shared.queue_pair(&shared_pd, &cq).build()?; // reaches what `pd` has registered
/// # Ok::<(), uverbs::Error>(())
/// ```
#[doc(alias = "ibv_import_device")]
pub fn import(file: impl AsFd) -> Result<Context, Error> {
    let file = file.as_fd();
    let mut candidates = devices()?;
    candidates.extend(exported(file));
    candidates.extend(function(file));
    for device in &candidates {
        match device.source().import(file) {
            Err(Errno::ENODEV | Errno::EINVAL | Errno::EOPNOTSUPP) => {}
            Err(errno) => return Err(Error::kernel(VERB, errno)),
            Ok(door) => return device.imported(door),
        }
    }
    Err(unknown(file, &candidates))
}

/// The software HCA of this process that exported the descriptor.
#[cfg(feature = "softhca")]
fn exported(file: BorrowedFd<'_>) -> Option<Device> {
    uverbs_softhca::SoftHca::exported(file).map(Device::from)
}

#[cfg(not(feature = "softhca"))]
fn exported(_: BorrowedFd<'_>) -> Option<Device> {
    None
}

/// The function of this process that exported the descriptor.
#[cfg(feature = "vfio")]
fn function(file: BorrowedFd<'_>) -> Option<Device> {
    let hca = uverbs_mlx5_vfio::Hca::exported(file)?;
    Some(Device::from_source(Arc::new(hca)))
}

#[cfg(not(feature = "vfio"))]
fn function(_: BorrowedFd<'_>) -> Option<Device> {
    None
}

/// Error for a descriptor that isn't a file of any of `devices`.
fn unknown(file: BorrowedFd<'_>, devices: &[Device]) -> Error {
    let meta = file.try_clone_to_owned().and_then(|file| File::from(file).metadata());
    match meta {
        Ok(meta) if meta.file_type().is_char_device() => {
            let (major, minor) =
                (nix::sys::stat::major(meta.rdev()), nix::sys::stat::minor(meta.rdev()));
            Error::NoSuchDevice {
                name: format!("character device {major}:{minor}"),
                available: devices.iter().map(|device| device.name().to_owned()).collect(),
            }
        }
        _ => Error::Invalid {
            verb: VERB,
            what: "file descriptor",
            value: file.as_raw_fd().to_string(),
            why: "it is not the file of an open RDMA device; get one from `Context::export`",
        },
    }
}

impl Device {
    /// [`import`] on a known device, and on devices of [`from_source`](Self::from_source).
    ///
    /// # Errors
    ///
    /// [`Error::Kernel`] with `EINVAL` for a descriptor of no device, with `ENODEV` for one of
    /// another device; as for [`import`].
    #[doc(alias = "ibv_import_device")]
    pub fn import<P: Provider>(&self, file: impl AsFd) -> Result<Context<P>, Error> {
        let door = self.source().import(file.as_fd());
        self.imported(door.map_err(|errno| Error::kernel(VERB, errno))?)
    }

    fn imported<P: Provider>(&self, door: Arc<dyn UverbsDoor>) -> Result<Context<P>, Error> {
        let core = ContextCore::imported(Uverbs::new(door, self.record().driver_id));
        Context::new(self.clone(), P::import(core)?)
    }
}

impl<P: Provider> Context<P> {
    /// Returns a new close-on-exec descriptor of the open device, for [`import`] in this or another
    /// process. Its holder can create, use and destroy any object of this context by handle, and
    /// keeps the device open.
    ///
    /// # Errors
    ///
    /// [`Error::System`]: `EMFILE`; `EOPNOTSUPP` where a device has no file.
    #[doc(alias = "cmd_fd")]
    pub fn export(&self) -> Result<OwnedFd, Error> {
        let what = "a descriptor of the open device";
        self.door().export().map_err(|errno| Error::System { what, errno })
    }

    /// Imports the protection domain with this handle ([`ProtectionDomain::handle`]), made by
    /// another context of the same open file. Objects made in it by both contexts share its memory
    /// regions.
    ///
    /// Dropping the import deallocates nothing. The owner's deallocation fails with `EBUSY` while
    /// objects made here exist.
    ///
    /// # Safety
    ///
    /// The domain's owner agrees, and keeps the domain for as long as the import exists. A queue
    /// pair of the domain lets a peer reach all memory registered in it with remote rights,
    /// whatever keys its owner has given away. Raw posts can name the rest of its memory.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`] on soft-RoCE; [`Error::Invalid`] for an unknown handle, or a
    /// handle of another kind of object. Since Linux 5.9.
    #[doc(alias = "ibv_import_pd")]
    #[doc(alias = "ibv_unimport_pd")]
    pub unsafe fn import_pd(&self, handle: u32) -> Result<ProtectionDomain, Error> {
        // SAFETY: the caller upholds this function's contract.
        let core = unsafe { self.provider().import_pd(handle) };
        let core = core.map_err(|refused| no_such(refused, "import_pd", handle))?;
        Ok(ProtectionDomain::new(core))
    }
}

/// The kernel's refusal of a handle, with the handle.
fn no_such(refused: Error, verb: &'static str, handle: u32) -> Error {
    let why = match refused.errno() {
        Some(Errno::ENOENT) => "the open file has no object of this handle",
        Some(Errno::EINVAL) => "an object of another kind has this handle",
        _ => return refused,
    };
    Error::Invalid { verb, what: "handle", value: handle.to_string(), why }
}

/// A region that another context registered: its keys and its address range. Dropping it does not
/// deregister the region.
///
/// Peers use it by the remote key in WRITEs and READs. Local work requests use it in raw posts,
/// whose caller guarantees that it stays registered.
#[derive(Clone, Debug)]
#[doc(alias = "ibv_mr")]
pub struct ImportedRegion {
    found: MrFound,
    /// Keeps the device open.
    _pd: Arc<PdCore>,
}

impl ProtectionDomain {
    /// The region with this handle ([`MemoryRegion::handle`](crate::MemoryRegion::handle)), which
    /// another context of the same open file registered.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an unknown handle, or a handle of another kind of object. Since
    /// Linux 5.9.
    ///
    /// ```
    /// # let context = uverbs::device("softhca0")?.open()?;
    /// # let pd = context.alloc_pd()?;
    /// let page = Box::leak(vec![0u8; 4096].into_boxed_slice()).as_mut_ptr();
    /// // SAFETY: the memory is never freed, and nothing refers to it.
    /// let region = unsafe { pd.register(page, 4096, uverbs::AccessFlags::REMOTE_READ) }?;
    ///
    /// let again = pd.import_region(region.handle())?;
    /// assert_eq!((again.rkey(), again.addr(), again.len()), (region.rkey(), region.addr(), 4096));
    /// # Ok::<(), uverbs::Error>(())
    /// ```
    #[doc(alias = "ibv_import_mr")]
    #[doc(alias = "ibv_unimport_mr")]
    pub fn import_region(&self, handle: u32) -> Result<ImportedRegion, Error> {
        let found = self.core().context().uverbs().query_mr(handle);
        let found = found.map_err(|refused| no_such(refused, "import_mr", handle))?;
        Ok(ImportedRegion { found, _pd: Arc::clone(self.core()) })
    }
}

impl ImportedRegion {
    /// Local key.
    #[must_use]
    pub fn lkey(&self) -> u32 {
        self.found.keys.lkey
    }

    /// Remote key.
    #[must_use]
    pub fn rkey(&self) -> u32 {
        self.found.keys.rkey
    }

    /// First address in work requests (IOVA).
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.found.iova
    }

    /// Length in bytes.
    #[must_use]
    #[expect(
        clippy::len_without_is_empty,
        reason = "none is empty: registering nothing is refused"
    )]
    pub fn len(&self) -> u64 {
        self.found.len
    }

    /// `len` bytes from `offset`, as a work request names them; the device checks the range.
    #[must_use]
    pub fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { addr: self.addr().wrapping_add(offset), len, lkey: self.lkey() }
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.found.keys.handle
    }
}
