//! Calls after the cases, in the order of `c/bytes.c`: XRC domains by file, and imports as another
//! process makes them.
//!
//! # Safety
//!
//! A descriptor has one owner, and an imported domain exists until the end.
#![allow(unsafe_code, reason = "takes over a descriptor, and another context's domain")]

use std::fs::File;
use std::os::fd::{FromRawFd, OwnedFd};

use nix::fcntl::{FcntlArg, fcntl};
use uverbs::xrc::XrcFile;
use uverbs::{Context, Device, MemoryRegion, Mlx5, ProtectionDomain};

/// Opens an XRC domain that a file names. The descriptor's number is in the command.
pub(crate) fn open_by_file(context: &Context<Mlx5>, phase: &impl Fn(&str)) {
    let file = File::open("/proc/self/exe").unwrap();
    let number = fcntl(&file, FcntlArg::F_DUPFD(900)).unwrap();
    assert_eq!(number, 900);
    // SAFETY: a new descriptor.
    let file = unsafe { OwnedFd::from_raw_fd(number) };
    phase("open_shared_xrcd");
    let shared = context.shared_xrc_domain(&file, XrcFile::OrNew).unwrap();
    phase("close_shared_xrcd");
    shared.close().unwrap();
}

/// Imports the open device by its descriptor, and objects by their handles, as another process
/// would.
pub(crate) fn import(
    device: &Device,
    context: &Context<Mlx5>,
    pd: &ProtectionDomain,
    region: &MemoryRegion,
    phase: &impl Fn(&str),
) {
    phase("import_device");
    let guest = device.import::<Mlx5>(context.export().unwrap()).unwrap();
    phase("import_pd");
    // SAFETY: the domain outlives this function.
    let guests_pd = unsafe { guest.import_pd(pd.handle()) }.unwrap();
    phase("import_mr");
    let guests_region = guests_pd.import_region(region.handle()).unwrap();
    assert_eq!([guests_region.lkey(), guests_region.rkey()], [region.lkey(), region.rkey()]);
    phase("import_end");
    drop((guests_region, guests_pd));
    drop(guest);
}
