//! Identity of the process that owns an object. After a `fork`, a child has copies of all objects
//! of its parent.
//!
//! # Safety
//!
//! One page, mapped once and never unmapped. One word of it is used, atomically.
#![allow(unsafe_code, reason = "a page that the kernel empties in a forked child")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::{MmapOptions, MmapRaw};

/// Identity of a process, distinct for each forked child and grandchild.
///
/// Process ids are no identity: the kernel reuses them, and a new PID namespace starts again at
/// small ones. Instead the kernel clears one page in a forked child (`MADV_WIPEONFORK`, Linux
/// 4.14), and a process that finds it cleared takes the next number. Children inherit the counter
/// of numbers, so no child takes the number of an ancestor. Kernels without the flag use the
/// process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u64);

impl Process {
    /// The current process.
    #[must_use]
    pub fn current() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Some(mark) = mark() else { return Self(std::process::id().into()) };
        let seen = mark.load(Ordering::Relaxed);
        if seen != 0 {
            return Self(seen);
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // The first of concurrent threads sets the number.
        match mark.compare_exchange(0, number, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => Self(number),
            Err(first) => Self(first),
        }
    }

    /// True in the process itself, false in its forked children.
    #[inline]
    #[must_use]
    pub fn is_current(self) -> bool {
        self == Self::current()
    }
}

/// The word that is 0 in a newly forked process.
fn mark() -> Option<&'static AtomicU64> {
    static MARK: OnceLock<Option<&'static AtomicU64>> = OnceLock::new();
    *MARK.get_or_init(|| {
        if cfg!(miri) {
            return None;
        }
        let page = MmapRaw::from(MmapOptions::new().len(size_of::<u64>()).map_anon().ok()?);
        let at = page.as_mut_ptr();
        // SAFETY: whole pages of a new mapping.
        let wiped = unsafe { libc::madvise(at.cast(), page.len(), libc::MADV_WIPEONFORK) };
        if wiped != 0 {
            return None;
        }
        // Never unmapped.
        std::mem::forget(page);
        // SAFETY: page-aligned, zeroed, never unmapped, and accessed only through this reference.
        Some(unsafe { AtomicU64::from_ptr(at.cast()) })
    })
}

#[cfg(test)]
mod tests {
    use nix::sys::wait::{WaitStatus, waitpid};
    use nix::unistd::{ForkResult, fork};

    use super::*;

    /// Runs `child` in a forked child and returns its result.
    fn in_child(child: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls no function that needs a lock of another thread of the parent.
        match unsafe { fork() }.unwrap() {
            ForkResult::Child => {
                let code = i32::from(!child());
                // SAFETY: ends the child at once, without running the parent's destructors.
                unsafe { libc::_exit(code) }
            }
            ForkResult::Parent { child } => {
                matches!(waitpid(child, None).unwrap(), WaitStatus::Exited(_, 0))
            }
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "forks")]
    fn a_child_is_another_process_and_so_is_its_child() {
        let parent = Process::current();
        assert!(parent.is_current());
        assert!(in_child(|| {
            let child = Process::current();
            let apart = child != parent && child.is_current() && !parent.is_current();
            apart && in_child(|| !parent.is_current() && !child.is_current())
        }));
        assert!(parent.is_current());
    }
}
