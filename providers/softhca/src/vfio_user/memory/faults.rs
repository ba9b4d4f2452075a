//! Accesses to a client's file, whose pages may be missing.
//!
//! The seals of a file forbid to cut it, and allow holes at any time. If the kernel can't allocate
//! the page of a hole (`vm.overcommit_memory=2`, `mm/shmem.c`, `shmem_inode_acct_blocks`), the
//! access raises SIGBUS. Pages that are allocated when the client maps them are no remedy: it can
//! punch holes later, and a guest's memory is sparse on purpose. A copy by the kernel (pread) would
//! fail with an error, and cost a system call for each access.
//!
//! So a handler of SIGBUS puts an empty page of this process in the place of the missing one, and
//! the access ends, as failed. The client has lost the file then: the page is not the file's.
//!
//! # Safety
//!
//! A thread's access is noted in its `ACCESS` before it begins, and no longer than it lasts. The
//! handler replaces pages that such an access touches, and no others: it runs on the thread whose
//! access raised the signal. Its system call (mmap) is no library function with locks. Callers of
//! [`reach`] name addresses of a mapping that they hold, which has no references into it. All other
//! signals go to the previous handler.
#![allow(unsafe_code, reason = "a signal handler maps memory")]

use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence};
use std::sync::{Once, OnceLock};

use nix::sys::signal::{SigSet, Signal};
use uverbs_core::memory::pages::page_size;

/// The access of a thread.
struct Access {
    /// First address.
    from: AtomicUsize,
    /// Address behind the last one; 0 without an access.
    end: AtomicUsize,
    /// A page was missing.
    failed: AtomicBool,
    /// The thread takes the signal.
    ready: AtomicBool,
}

thread_local! {
    static ACCESS: Access = const {
        Access {
            from: AtomicUsize::new(0),
            end: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            ready: AtomicBool::new(false),
        }
    };
}

/// The previous handler, and the bytes of a page.
static BEFORE: OnceLock<(libc::sigaction, usize)> = OnceLock::new();

/// Runs an access to `len` bytes at `at`, all of one mapping of a file. `None` if a page was
/// missing: its bytes are zeros here from now on, and not the file's.
pub(super) fn reach<T>(at: u64, len: usize, access: impl FnOnce() -> T) -> Option<T> {
    ACCESS.with(|noted| {
        if !noted.ready.swap(true, Ordering::Relaxed) {
            install();
        }
        let at = at as usize;
        noted.from.store(at, Ordering::Relaxed);
        noted.end.store(at.saturating_add(len), Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let done = access();
        compiler_fence(Ordering::SeqCst);
        noted.end.store(0, Ordering::Relaxed);
        (!noted.failed.swap(false, Ordering::Relaxed)).then_some(done)
    })
}

/// Sets the action of the signal, if it is given. Returns the previous one.
fn action(new: Option<&libc::sigaction>) -> libc::sigaction {
    let new = new.map_or(ptr::null(), ptr::from_ref);
    let mut before = none();
    // SAFETY: null or a reference, and a local variable.
    unsafe { libc::sigaction(libc::SIGBUS, new, &raw mut before) };
    before
}

/// The default action.
fn none() -> libc::sigaction {
    // SAFETY: all zeros is a value.
    unsafe { std::mem::zeroed() }
}

/// Sets the handler, once in this process, and lets this thread take the signal: the kernel ends a
/// process that blocks it.
fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let page = page_size();
        // The handler finds it from its first call on.
        BEFORE.get_or_init(|| (action(None), page));
        let (sa_sigaction, sa_flags) =
            (handle as *const () as usize, libc::SA_SIGINFO | libc::SA_ONSTACK);
        action(Some(&libc::sigaction { sa_sigaction, sa_flags, ..none() }));
    });
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGBUS);
    let _ = signals.thread_unblock();
}

/// Bytes of a page, if the thread's access has the address.
fn of_access(at: usize) -> Option<usize> {
    let page = BEFORE.get()?.1;
    let is_ours = ACCESS.try_with(|noted| {
        (noted.from.load(Ordering::Relaxed)..noted.end.load(Ordering::Relaxed)).contains(&at)
    });
    is_ours.unwrap_or(false).then_some(page)
}

extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel's structure.
    let told = unsafe { &*info };
    // SAFETY: this signal has an address.
    let at = unsafe { told.si_addr() }.addr();
    // Memory with a hardware error has another code.
    if let (libc::BUS_ADRERR, Some(page)) = (told.si_code, of_access(at)) {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let how = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        let place = ptr::with_exposed_provenance_mut(at & !(page - 1));
        // SAFETY: a page of the mapping that the access is in.
        if unsafe { libc::mmap(place, page, rights, how, -1, 0) } != libc::MAP_FAILED {
            let _ = ACCESS.try_with(|noted| noted.failed.store(true, Ordering::Relaxed));
            return;
        }
    }
    pass_on(signal, info, context);
}

/// Calls the previous handler. Without one, restores the default action, which ends the process
/// when the access is repeated.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    match BEFORE.get() {
        Some((before, _)) if ![libc::SIG_DFL, libc::SIG_IGN].contains(&before.sa_sigaction) => {
            let handler = ptr::with_exposed_provenance::<()>(before.sa_sigaction);
            match before.sa_flags & libc::SA_SIGINFO {
                0 => {
                    // SAFETY: a handler that sigaction returned, without SA_SIGINFO.
                    let handler: extern "C" fn(libc::c_int) =
                        unsafe { std::mem::transmute(handler) };
                    handler(signal);
                }
                _ => {
                    // SAFETY: a handler that sigaction returned, with SA_SIGINFO.
                    let handler: WithInfo = unsafe { std::mem::transmute(handler) };
                    handler(signal, info, context);
                }
            }
        }
        _ => {
            action(Some(&none()));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use super::super::PAGE;
    use super::super::files::{ClientFile, PROCESS};
    use super::super::tests::growing;
    use super::*;

    /// Mapping of a file of two pages that was cut to one.
    fn cut() -> (ClientFile, u64) {
        let file = growing(2);
        let map = ClientFile::map(&file, 2 * PAGE as usize, &PROCESS).unwrap();
        file.set_len(PAGE).unwrap();
        let at = map.address();
        (map, at)
    }

    fn load(at: u64) -> u8 {
        // SAFETY: in a mapping that the caller holds.
        unsafe { ptr::with_exposed_provenance::<u8>(at as usize).read_volatile() }
    }

    #[test]
    fn an_access_without_a_page_fails_and_others_go_on() {
        let (_map, at) = cut();
        for _ in 0..2 {
            assert_eq!(reach(at, 1, || load(at)), Some(0));
        }
        assert_eq!(reach(at, 2 * PAGE as usize, || load(at + PAGE + 7)), None);
        assert_eq!(reach(at + PAGE, 1, || load(at + PAGE)), Some(0), "an empty page");
        // A thread that blocks all signals, as the library's own.
        let (_map, at) = cut();
        let blocks = move || {
            SigSet::all().thread_block().unwrap();
            reach(at + PAGE, 1, || load(at + PAGE))
        };
        assert_eq!(std::thread::spawn(blocks).join().unwrap(), None);
    }

    #[test]
    #[ignore = "ends its process"]
    fn child() {
        let (_map, at) = cut();
        assert_eq!(reach(at, 1, || load(at)), Some(0));
        load(at + PAGE);
    }

    #[test]
    fn other_accesses_end_the_process() {
        let name = concat!(module_path!(), "::child").split_once("::").unwrap().1;
        let mut child = Command::new(std::env::current_exe().unwrap());
        let status = child.args(["--exact", name, "--ignored"]).output().unwrap().status;
        assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
    }
}
