//! Counts every system call of a child by phase. A tracer (ptrace) follows the marks of
//! `src/trace.rs`, and for a kernel's device its descriptors.
//!
//! # Safety
//!
//! The child asks to be traced between fork and exec, where a system call is allowed.
#![allow(unsafe_code, reason = "a hook between fork and exec")]

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use nix::errno::Errno;
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::Pid;

use super::files::Files;

/// Descriptor of marks, as in `src/trace.rs`.
const MARK: libc::c_int = -1000;

/// Number of calls by name.
pub type Calls = BTreeMap<String, u64>;

/// Calls that manage a process's memory.
const MEMORY: [&str; 5] = ["brk", "mmap", "munmap", "mremap", "madvise"];

/// Calls of a phase.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Phase {
    pub name: String,
    pub calls: Calls,
}

/// Tests for a call that manages memory.
pub fn is_memory(call: &str) -> bool {
    MEMORY.contains(&call)
}

/// Number of calls whose name matches.
pub fn count(calls: &Calls, which: impl Fn(&str) -> bool) -> u64 {
    calls.iter().filter(|(name, _)| which(name)).map(|(_, count)| count).sum()
}

/// Runs a command and counts its calls. `Err`: the reason why tracing is impossible.
pub fn trace(command: &mut Command) -> Result<Vec<Phase>, String> {
    command.env("UVERBS_SOFTHCA_MARKED", "1").env("UVERBS_SOFTHCA_STEPPED", "1");
    command.stdin(Stdio::null());
    // SAFETY: one system call, which uses no memory of the parent.
    unsafe { command.pre_exec(|| ptrace::traceme().map_err(std::io::Error::from)) };
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            return Err(format!("ptrace is refused here: {error}"));
        }
        Err(error) => panic!("{command:?}: {error}"),
    };
    let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
    // The stop at exec.
    match waitpid(pid, None).unwrap() {
        WaitStatus::Stopped(_, Signal::SIGTRAP) => {}
        other => panic!("{command:?}: {other:?}"),
    }
    ptrace::setoptions(pid, Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL).unwrap();
    let memory = File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut tracer =
        Tracer { memory, phases: Vec::new(), inside: 0, named: false, files: Files::default() };
    let mut signal = None;
    loop {
        match ptrace::syscall(pid, signal.take()) {
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => panic!("ptrace: {errno}"),
        }
        match waitpid(pid, None).unwrap() {
            WaitStatus::PtraceSyscall(_) => {
                let info = ptrace::syscall_info(pid).unwrap();
                if info.op == libc::PTRACE_SYSCALL_INFO_ENTRY {
                    // SAFETY: the stop is an entry, so this member is valid.
                    let entry = unsafe { info.u.entry };
                    tracer.entry(entry.nr, entry.args);
                } else if info.op == libc::PTRACE_SYSCALL_INFO_EXIT {
                    // SAFETY: the stop is an exit, so this member is valid.
                    let exit = unsafe { info.u.exit };
                    tracer.files.result(exit.sval);
                }
            }
            WaitStatus::Stopped(_, other) => signal = Some(other),
            WaitStatus::Exited(_, status) => {
                assert_eq!(status, 0, "{command:?}");
                break;
            }
            other => panic!("{command:?}: {other:?}"),
        }
    }
    // The child was waited for; this releases `Child`.
    let _ = child.try_wait();
    Ok(tracer.phases)
}

struct Tracer {
    memory: File,
    phases: Vec<Phase>,
    /// Number of calls that the preloaded library is answering.
    inside: u32,
    /// The current call has a name.
    named: bool,
    /// Descriptors of kernel devices.
    files: Files,
}

impl Tracer {
    fn entry(&mut self, number: u64, args: [u64; 6]) {
        let number = libc::c_long::try_from(number).unwrap();
        if number == libc::SYS_write && args[0] as libc::c_int == MARK {
            let mut text = vec![0; usize::try_from(args[2]).unwrap()];
            self.memory.read_exact_at(&mut text, args[1]).unwrap();
            self.mark(str::from_utf8(&text).unwrap());
        } else if number == libc::SYS_fcntl && args[1] as libc::c_int == libc::F_GETFD {
            // Rust's standard library makes this call in debug builds only, before it closes a
            // descriptor.
        } else if self.inside == 0 {
            let name = name(number);
            match self.files.call(number, args, &name, &self.memory) {
                Some(call) => self.count(&format!("device {call}")),
                None => self.count(&name),
            }
        }
    }

    fn mark(&mut self, text: &str) {
        match text.split_once(' ') {
            Some(("#", name)) => {
                assert_eq!(self.inside, 0, "a phase in the middle of a call");
                self.phases.push(Phase { name: name.to_owned(), calls: Calls::new() });
            }
            Some(("=", name)) => {
                assert!(!self.named, "a call of two names");
                self.named = true;
                self.count(&format!("device {name}"));
            }
            _ if text == ">" => {
                assert_eq!(self.inside, 0, "a call within a call");
                self.inside += 1;
                self.named = false;
            }
            _ if text == "<" => {
                assert!(self.named, "a call without a name");
                self.inside -= 1;
            }
            _ => panic!("a mark {text:?}"),
        }
    }

    /// Counts a call. Calls before the first phase are left out: the program is loading.
    fn count(&mut self, name: &str) {
        if let Some(phase) = self.phases.last_mut() {
            *phase.calls.entry(name.to_owned()).or_insert(0) += 1;
        }
    }
}

macro_rules! names {
    ($($(#[$only:meta])? $name:ident = $number:ident;)*) => {
        fn name(number: libc::c_long) -> String {
            match number {
                $($(#[$only])? libc::$number => stringify!($name).to_owned(),)*
                other => format!("system call {other}"),
            }
        }
    };
}

names! {
    #[cfg(target_arch = "x86_64")] open = SYS_open;
    #[cfg(target_arch = "x86_64")] stat = SYS_stat;
    #[cfg(target_arch = "x86_64")] readlink = SYS_readlink;
    #[cfg(target_arch = "x86_64")] access = SYS_access;
    #[cfg(target_arch = "x86_64")] poll = SYS_poll;
    openat = SYS_openat;
    close = SYS_close;
    read = SYS_read;
    pread64 = SYS_pread64;
    write = SYS_write;
    lseek = SYS_lseek;
    fstat = SYS_fstat;
    newfstatat = SYS_newfstatat;
    statx = SYS_statx;
    getdents64 = SYS_getdents64;
    readlinkat = SYS_readlinkat;
    faccessat = SYS_faccessat;
    fcntl = SYS_fcntl;
    ioctl = SYS_ioctl;
    mmap = SYS_mmap;
    munmap = SYS_munmap;
    mremap = SYS_mremap;
    mprotect = SYS_mprotect;
    madvise = SYS_madvise;
    brk = SYS_brk;
    socket = SYS_socket;
    bind = SYS_bind;
    getsockname = SYS_getsockname;
    setsockopt = SYS_setsockopt;
    getsockopt = SYS_getsockopt;
    sendto = SYS_sendto;
    sendmsg = SYS_sendmsg;
    recvfrom = SYS_recvfrom;
    recvmsg = SYS_recvmsg;
    ppoll = SYS_ppoll;
    futex = SYS_futex;
    getrandom = SYS_getrandom;
    getpid = SYS_getpid;
    getuid = SYS_getuid;
    geteuid = SYS_geteuid;
    uname = SYS_uname;
    clock_gettime = SYS_clock_gettime;
    prlimit64 = SYS_prlimit64;
    sched_getaffinity = SYS_sched_getaffinity;
    rt_sigaction = SYS_rt_sigaction;
    rt_sigprocmask = SYS_rt_sigprocmask;
    exit_group = SYS_exit_group;
}
