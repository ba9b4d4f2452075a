//! A forked child: it has neither the function nor its buffers, and leaves the parent's alone.
//!
//! # Safety
//!
//! The child calls only what takes no lock that another thread of the parent may hold, and ends by
//! `_exit`.
#![allow(unsafe_code, reason = "forks")]

use std::os::unix::net::UnixListener;
use std::time::Duration;

use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use uverbs_mlx5_vfio::transport::vfio_user::VfioUser;
use uverbs_mlx5_vfio::{Error, Function, Limits};
use uverbs_softhca::pci::PciOptions;
use uverbs_softhca::vfio_user::Server;

/// Tells if the driver's thread runs.
fn has_thread() -> bool {
    // A thread that was told to end has some time to do so.
    std::thread::sleep(Duration::from_millis(300));
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
    names.flatten().any(|name| name.trim() == "uverbs-mlx5")
}

#[test]
fn a_child_leaves_the_function_alone() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("hca.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut server = Server::new(&PciOptions::default()).unwrap();
    let served = std::thread::spawn(move || server.serve_one(&listener));
    let transport = VfioUser::connect(&socket).unwrap();
    let function = Function::open(transport, Limits::default()).unwrap();
    let before = function.alloc_pd().unwrap().number();
    // SAFETY: module docs.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            // SAFETY: a system call by a number.
            unsafe { libc::alarm(60) };
            let refused = matches!(function.alloc_pd(), Err(Error::Forked));
            let closed = matches!(function.close(), Err(Error::Forked));
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!(refused && closed))) }
        }
        ForkResult::Parent { child } => {
            assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
        }
    }
    assert_eq!(function.alloc_pd().unwrap().number(), before);
    assert!(has_thread(), "the child ended the parent's thread");
    function.close().unwrap();
    served.join().unwrap().unwrap();
}
