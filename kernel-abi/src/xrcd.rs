//! XRC domains (`ib_user_verbs.h`).

#![expect(missing_docs, reason = "the kernel's names, described by struct and by group")]

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Request of `OPEN_XRCD`; `driver_data[]` left off.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_open_xrcd {
    /// Address of the response; unused in the ioctl form.
    pub response: u64,
    /// The file whose inode names the domain, or -1 as `u32`.
    pub fd: u32,
    /// `O_CREAT`, `O_EXCL`.
    pub oflags: u32,
}

/// Response of `OPEN_XRCD`; the provider's response follows at byte 4.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_open_xrcd_resp {
    pub xrcd_handle: u32,
}

/// Request of `CLOSE_XRCD`; no response.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
#[repr(C)]
pub struct ib_uverbs_close_xrcd {
    pub xrcd_handle: u32,
}
