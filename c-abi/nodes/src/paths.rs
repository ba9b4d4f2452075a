//! Paths that stand for other paths.
//!
//! # Safety
//!
//! A path is a C string or null, as for libc's functions. `uverbs_sysfs` of libibverbs takes such a
//! path, and returns a C string that is never freed, or null.
#![allow(unsafe_code, reason = "reads paths of C functions, and asks the loader for a function")]

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicPtr, Ordering};

/// Device whose `stat` and `access` results stand for a node's.
const LIKE: &CStr = c"/dev/null";
/// Folder of the nodes.
const NODES: &[u8] = b"/dev/infiniband/";
/// Folders of sysfs that show RDMA devices, and the PCI functions of software HCAs, whose domain no
/// other device has.
const SHOWN: [&[u8]; 5] = [
    b"/sys/class/infiniband",
    b"/sys/class/infiniband_verbs",
    b"/sys/class/infiniband_mad",
    b"/sys/bus/pci/devices/ca05:00:",
    b"/sys/devices/pcica05:00",
];
/// Part of the tree's name.
const PREFIX: &[u8] = b"/uverbs-sysfs-";
/// Bytes of `/sys`.
const MOUNT: usize = 4;

thread_local! {
    /// The thread asks the library, whose own paths are the kernel's.
    static ASKS: Cell<bool> = const { Cell::new(false) };
}

/// A path for libc.
pub(crate) enum Path {
    Asked(*const c_char),
    Other(CString),
}

impl Path {
    /// Returns the path to ask libc about: a file of the process's tree for a path of sysfs, else
    /// `asked`.
    ///
    /// # Safety
    ///
    /// `asked` is a C string or null, and is not changed while the result is in use.
    pub(crate) unsafe fn in_sysfs(asked: *const c_char) -> Self {
        // SAFETY: by the contract of `in_sysfs`.
        let text = unsafe { text(asked) };
        // Most paths of a program end here.
        if !text.starts_with(b"/sys/") {
            return Self::Asked(asked);
        }
        // SAFETY: by the contract of `in_sysfs`.
        unsafe { in_tree(asked, text) }.map_or(Self::Asked(asked), Self::Other)
    }

    /// As [`Path::in_sysfs`], and [`LIKE`] for a software HCA's node.
    ///
    /// # Safety
    ///
    /// As of [`Path::in_sysfs`].
    pub(crate) unsafe fn like_null(asked: *const c_char) -> Self {
        // SAFETY: by the contract of `like_null`.
        match unsafe { text(asked) }.strip_prefix(NODES) {
            Some(node) if is_node(node) => Self::Other(LIKE.to_owned()),
            // SAFETY: by the contract of `like_null`.
            _ => unsafe { Self::in_sysfs(asked) },
        }
    }

    pub(crate) fn as_ptr(&self) -> *const c_char {
        match self {
            Self::Asked(path) => *path,
            Self::Other(path) => path.as_ptr(),
        }
    }
}

/// Bytes of a path; empty for null.
///
/// # Safety
///
/// `path` is a C string or null, and is not changed while the result is in use.
unsafe fn text<'a>(path: *const c_char) -> &'a [u8] {
    if path.is_null() {
        return &[];
    }
    // SAFETY: by the contract of `text`.
    unsafe { CStr::from_ptr(path) }.to_bytes()
}

/// File of the tree for a path of sysfs.
///
/// # Safety
///
/// `asked` is a C string, whose bytes `text` has.
unsafe fn in_tree(asked: *const c_char, text: &[u8]) -> Option<CString> {
    let is_within = |folder: &&[u8]| {
        text.strip_prefix(*folder)
            .is_some_and(|rest| folder.ends_with(b":") || rest.is_empty() || rest.starts_with(b"/"))
    };
    SHOWN.iter().any(is_within).then_some(())?;
    // SAFETY: by the contract of `in_tree`.
    let tree = unsafe { tree(asked) }?.to_bytes();
    let below = |part: &[u8]| CString::new([tree, part].concat()).ok();
    let path = below(&text[MOUNT..])?;
    if exists(&path) {
        return Some(path);
    }
    // A device beside the software HCAs is the kernel's. A software HCA may have such a device's
    // name, and lacks some of its files.
    let mut slashes = (MOUNT..text.len()).filter(|at| text[*at] == b'/').skip(3);
    let device = &text[MOUNT..slashes.next().unwrap_or(text.len())];
    let is_ours = !device.ends_with(b"/..") && exists(&below(device)?);
    is_ours.then_some(path)
}

/// Returns true if there is a file or link of that name.
fn exists(path: &CStr) -> bool {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    let (at, flags) = (libc::AT_FDCWD, libc::AT_SYMLINK_NOFOLLOW);
    // SAFETY: a C string, and room for the answer. `lstat` of libc is hidden by this library's.
    let answer = unsafe {
        libc::syscall(libc::SYS_newfstatat, at, path.as_ptr(), found.as_mut_ptr(), flags)
    };
    answer == 0
}

/// Shows a path below the tree as one of sysfs, in place; returns it.
///
/// # Safety
///
/// `path` is null or a C string that can be written.
pub(crate) unsafe fn back(path: *mut c_char) -> *mut c_char {
    // SAFETY: by the contract of `back`.
    let found = unsafe { text(path) };
    // Most paths of a program end here.
    if !found.windows(PREFIX.len()).any(|part| part == PREFIX) {
        return path;
    }
    // SAFETY: null.
    let tree = unsafe { tree(null()) };
    let Some(rest) = tree.and_then(|tree| found.strip_prefix(tree.to_bytes())) else {
        return path;
    };
    let shown = [b"/sys", rest, b"\0"].concat();
    // SAFETY: the tree's name is longer than `/sys`, so the text fits where the longer one was.
    unsafe { path.copy_from_nonoverlapping(shown.as_ptr().cast(), shown.len()) };
    path
}

/// True for the node of a software HCA.
fn is_node(name: &[u8]) -> bool {
    if !name.starts_with(b"uverbs") || name.contains(&b'/') {
        return false;
    }
    // SAFETY: null.
    let Some(tree) = (unsafe { tree(null()) }) else { return false };
    let path = CString::new([tree.to_bytes(), b"/class/infiniband_verbs/", name].concat());
    path.is_ok_and(|path| exists(&path))
}

/// Folder that stands for `/sys`. The library writes it at the first question, and a counter
/// before it is opened.
///
/// # Safety
///
/// `path` is a C string or null.
unsafe fn tree(path: *const c_char) -> Option<&'static CStr> {
    if ASKS.replace(true) {
        return None;
    }
    // SAFETY: by the contract of `tree`.
    let tree = unsafe { ask(path) };
    ASKS.set(false);
    tree
}

/// `uverbs_sysfs` of libibverbs, once found. A search takes the loader's lock, which a thread that
/// loads a library holds while it asks. So a program that is linked with libibverbs searches when
/// it starts.
static FOLDER: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Name of that function.
const NAME: &CStr = c"uverbs_sysfs";

#[used]
// The section holds pointers to functions.
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    // SAFETY: a special handle.
    unsafe { find(libc::RTLD_DEFAULT) };
}

/// Searches for the function.
///
/// # Safety
///
/// `library` is one of the loader's handles.
unsafe fn find(library: *mut c_void) -> *mut c_void {
    // SAFETY: by the contract of `find`, and a C string.
    let found = unsafe { libc::dlsym(library, NAME.as_ptr()) };
    if found.is_null() {
        // The program must not see this failure.
        // SAFETY: the call has no obligation.
        unsafe { libc::dlerror() };
    }
    FOLDER.store(found, Ordering::Relaxed);
    found
}

/// # Safety
///
/// `path` is a C string or null.
unsafe fn ask(path: *const c_char) -> Option<&'static CStr> {
    type Folder = unsafe extern "C" fn(*const c_char) -> *const c_char;
    let mut found = FOLDER.load(Ordering::Relaxed);
    if found.is_null() {
        // SAFETY: a special handle.
        found = unsafe { find(libc::RTLD_DEFAULT) };
    }
    if found.is_null() {
        // A program without the library loads it.
        // SAFETY: a C string.
        let library = unsafe { libc::dlopen(c"libibverbs.so.1".as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return None;
        }
        // SAFETY: the handle of the library.
        found = unsafe { find(library) };
    }
    if found.is_null() {
        // Another libibverbs.
        return None;
    }
    // SAFETY: our library's function of that name has this type.
    let folder = unsafe { std::mem::transmute::<*mut c_void, Folder>(found) };
    // SAFETY: by the contract of `ask`.
    let folder = unsafe { folder(path) };
    // SAFETY: by the file's head.
    (!folder.is_null()).then(|| unsafe { CStr::from_ptr(folder) })
}
