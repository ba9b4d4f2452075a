//! Reading of sysfs files for programs (`ibv_read_sysfs_file`).
//!
//! # Safety
//!
//! Names are C strings, and results are written to the caller's buffers.
#![allow(unsafe_code, reason = "functions of C")]

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use uverbs_core::Errno;
use uverbs_core::environment::Variable;

use crate::base::answer::minus_one;

/// Mount point of sysfs: `SYSFS_PATH` without trailing slashes, or `/sys`.
pub(crate) fn mount() -> &'static str {
    static MOUNT: OnceLock<String> = OnceLock::new();
    MOUNT.get_or_init(|| {
        let path = Variable::SysfsPath.text().filter(|path| !path.is_empty());
        path.map_or("/sys".to_owned(), |path| path.trim_end_matches('/').to_owned())
    })
}

/// Stand-in sysfs directory for devices without one, in the library's directory. Programs recognise
/// a ConnectX by its PCI files.
const EMBEDDED: &str = "sysfs/softhca/infiniband/softhca";

/// Stand-in directory, if installed.
pub(crate) fn embedded() -> Option<PathBuf> {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    let own: unsafe extern "C" fn() -> *const c_char = get_sysfs_path;
    // SAFETY: `dladdr` accepts any address and writes to a local struct.
    if unsafe { libc::dladdr(own as *const libc::c_void, found.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: the call above filled in the struct, and the name lives as long as the library.
    let library = unsafe { CStr::from_ptr(found.assume_init().dli_fname) };
    let folder = Path::new(OsStr::from_bytes(library.to_bytes())).with_file_name(EMBEDDED);
    folder.is_dir().then_some(folder)
}

pub(crate) unsafe extern "C" fn get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<CString> = OnceLock::new();
    PATH.get_or_init(|| CString::new(mount()).unwrap_or_default()).as_ptr()
}

/// Reads a file of a directory into `buf`, truncated to its size, without the final newline.
/// Returns the length, or -1.
pub(crate) unsafe extern "C" fn read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    if dir.is_null() || file.is_null() {
        return minus_one(Errno::ENOENT);
    }
    // SAFETY: by C's contract.
    let [dir, file] = unsafe { [CStr::from_ptr(dir), CStr::from_ptr(file)] };
    let path =
        Path::new(OsStr::from_bytes(dir.to_bytes())).join(OsStr::from_bytes(file.to_bytes()));
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) => return minus_one(Errno::of(&error)),
    };
    let text = &text[..text.len().min(size)];
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    // SAFETY: by C's contract; the text is at most `size` bytes.
    unsafe { buf.copy_from_nonoverlapping(line.as_ptr().cast(), line.len()) };
    if line.len() < size {
        // SAFETY: by C's contract.
        unsafe { *buf.add(line.len()) = 0 };
    }
    line.len() as c_int
}
