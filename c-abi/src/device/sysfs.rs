//! Reading of sysfs files for programs (`ibv_read_sysfs_file`).
//!
//! # Safety
//!
//! Names are C strings, and results are written to the caller's buffers.
#![allow(unsafe_code, reason = "functions of C")]

use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use uverbs::softhca::SoftHca;
use uverbs_core::Errno;
use uverbs_core::environment::Variable;

use crate::base::answer::minus_one;
use crate::device::list;
use crate::device::tree::Tree;

/// Mount point of sysfs: `SYSFS_PATH` without trailing slashes, or `/sys`.
pub(crate) fn mount() -> &'static str {
    static MOUNT: OnceLock<String> = OnceLock::new();
    MOUNT.get_or_init(|| {
        let path = Variable::SysfsPath.text().filter(|path| !path.is_empty());
        path.map_or("/sys".to_owned(), |path| path.trim_end_matches('/').to_owned())
    })
}

/// Installed sysfs directory of a software HCA, in the library's directory. Programs recognise
/// a ConnectX by its PCI files.
const EMBEDDED: &str = "sysfs/softhca/infiniband/softhca";

/// Tree of this process, and names whose devices are described in it.
static TREE: Mutex<Option<(Tree, Vec<String>)>> = Mutex::new(None);

fn tree() -> MutexGuard<'static, Option<(Tree, Vec<String>)>> {
    TREE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if the kernel has a node of that number.
pub(crate) fn is_node(number: usize) -> bool {
    Path::new(&format!("{}/class/infiniband_verbs/uverbs{number}", mount())).exists()
}

/// Writes the files of a device. Returns the root of the tree, if it could be written.
pub(crate) fn publish(name: &str, number: usize, hca: &SoftHca) -> Option<String> {
    let mut tree = tree();
    if tree.as_ref().is_none_or(|(tree, _)| tree.is_inherited()) {
        *tree = Some((Tree::create().ok()?, Vec::new()));
    }
    let (tree, _) = tree.as_ref()?;
    tree.write(name, number, hca).ok()?;
    tree.root().to_str().map(str::to_owned)
}

/// Writes a counter of a device again, if its files are in the tree.
pub(crate) fn count(name: &str, hca: &SoftHca, counter: &Counter<'_>) {
    if let Some((tree, _)) = &*tree()
        && !tree.is_inherited()
    {
        // Without room for the new values the old ones stay.
        let _ = tree.count(name, hca, |folder, file| counter.is(folder, file));
    }
}

/// Folder and file of a counter: `ports/1/counters/FILE`, `ports/1/hw_counters/FILE`.
pub(crate) struct Counter<'a> {
    folder: &'a [u8],
    file: &'a [u8],
}

impl<'a> Counter<'a> {
    /// `None` if the path is not a counter's.
    fn of(path: &'a [u8]) -> Option<Self> {
        let mut parts = path.rsplit(|byte| *byte == b'/');
        let (file, folder) = (parts.next()?, parts.next()?);
        (folder == b"counters" || folder == b"hw_counters").then_some(Self { folder, file })
    }

    fn is(&self, folder: &str, file: &str) -> bool {
        (self.folder, self.file) == (folder.as_bytes(), file.as_bytes())
    }
}

/// Returns true if the device of that name has been described in the tree.
pub(crate) fn has(name: &str) -> bool {
    tree().as_ref().is_some_and(|(tree, names)| {
        !tree.is_inherited() && names.iter().any(|known| known == name)
    })
}

/// Notes that the device of that name is described in the tree.
pub(crate) fn remember(name: String) {
    if let Some((_, names)) = &mut *tree() {
        names.push(name);
    }
}

/// Shows a device of the kernel beside the software HCAs. Returns true if it is shown.
pub(crate) fn show(name: &str) -> bool {
    let tree = tree();
    tree.as_ref().is_some_and(|(tree, _)| !tree.is_inherited() && tree.show(name).is_ok())
}

/// Root of the tree; its text is kept for the program.
pub(crate) fn root() -> Option<&'static CStr> {
    static ROOTS: Mutex<Vec<&'static CStr>> = Mutex::new(Vec::new());
    let root = CString::new(tree().as_ref()?.0.root().as_os_str().as_bytes()).ok()?;
    let mut roots = ROOTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = roots.iter().find(|known| ***known == *root) {
        return Some(known);
    }
    // One for each process: a program that forks has another one.
    let kept: &'static CStr = Box::leak(root.into_boxed_c_str());
    roots.push(kept);
    Some(kept)
}

/// `uverbs_sysfs`: folder that stands for `/sys` in paths of RDMA devices, for the preloaded
/// `c-abi/nodes`. Null if programs see the kernel's devices. A counter gets its value of now if
/// `path`, which may be null, is its path.
pub(crate) unsafe extern "C" fn folder(path: *const c_char) -> *const c_char {
    let Some(root) = list::publish() else { return std::ptr::null() };
    // SAFETY: null or a C string, by the function's description.
    let path = (!path.is_null()).then(|| unsafe { CStr::from_ptr(path) });
    if let Some(counter) = path.and_then(|path| Counter::of(path.to_bytes())) {
        list::count(&counter);
    }
    root.as_ptr()
}

/// Removes the tree when the process ends.
#[cfg(not(any(test, fuzzing)))]
#[used]
// The section holds pointers to functions.
#[unsafe(link_section = ".fini_array")]
static ENDED: extern "C" fn() = ended;

#[cfg(not(any(test, fuzzing)))]
extern "C" fn ended() {
    if let Ok(mut tree) = TREE.try_lock()
        && let Some((tree, _)) = tree.take()
    {
        tree.remove();
    }
}

/// Stand-in directory, if installed. For devices whose files can't be written.
pub(crate) fn embedded() -> Option<String> {
    let mut found = MaybeUninit::<libc::Dl_info>::uninit();
    let own: unsafe extern "C" fn() -> *const c_char = get_sysfs_path;
    // SAFETY: `dladdr` accepts any address and writes to a local struct.
    if unsafe { libc::dladdr(own as *const libc::c_void, found.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: the call above filled in the struct, and the name lives as long as the library.
    let library = unsafe { CStr::from_ptr(found.assume_init().dli_fname) };
    let folder = Path::new(OsStr::from_bytes(library.to_bytes())).with_file_name(EMBEDDED);
    folder.is_dir().then(|| folder.to_str().map(str::to_owned))?
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
    if let Some(counter) = Counter::of(path.as_os_str().as_bytes()) {
        list::count(&counter);
    }
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
