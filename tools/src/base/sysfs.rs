//! Linux's tree of devices.

use std::path::PathBuf;

/// Mount point of sysfs, as the library takes it.
pub(crate) fn root() -> PathBuf {
    let named = std::env::var_os("SYSFS_PATH").filter(|path| !path.is_empty());
    named.map_or_else(|| PathBuf::from("/sys"), PathBuf::from)
}
