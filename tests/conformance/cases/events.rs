//! Completion channels, async event files and the device's own file as descriptors.
#![allow(unsafe_code, reason = "reads descriptors by number, and forks")]

use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::case;
use crate::case::{Case, World};
use crate::rig::Rig;
use crate::want::{Outcome, Want};

const READ: &str = "core/uverbs_main.c:ib_uverbs_event_read";

fn borrow(fd: RawFd) -> BorrowedFd<'static> {
    // SAFETY: the caller's rig keeps it open for longer.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Reads without waiting.
fn read(fd: RawFd, len: usize) -> Result<usize, Errno> {
    let fd = borrow(fd);
    let flags = OFlag::from_bits_truncate(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    nix::unistd::read(fd, &mut vec![0; len])
}

fn poll_now(fd: RawFd) -> Result<PollFlags, Errno> {
    let mut fds = [PollFd::new(borrow(fd), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO)?;
    Ok(fds[0].revents().unwrap_or(PollFlags::empty()))
}

pub(super) fn cases() -> Vec<Case> {
    let of = |name: &str, source, want: [Want; 2], run: fn(&Rig, RawFd) -> Outcome| {
        let [channel, events] = want;
        [
            case("descriptors", format!("channel: {name}"), source, channel, move |rig: &Rig| {
                run(rig, rig.channel())
            }),
            case("descriptors", format!("async: {name}"), source, events, move |rig: &Rig| {
                // An address that Linux has just given to a network device is an event here.
                while matches!(read(rig.events(), 64), Ok(1..)) {}
                run(rig, rig.events())
            }),
        ]
    };
    let again = Want::Err(Errno::EAGAIN);
    let sockets = "softhca's event files are sockets";
    let mut all = Vec::new();
    all.extend(of("nothing to read", READ, [again; 2], |_, fd| {
        read(fd, 64).map(|len| len.to_string())
    }));
    let into_nothing = of("nothing to read into nothing", READ, [again; 2], |_, fd| {
        read(fd, 0).map(|len| len.to_string())
    });
    all.extend(into_nothing.map(|case| case.only(World::Kernel, sockets)));
    all.extend(of("nothing to poll", READ, [Want::Is("none"); 2], |_, fd| {
        let events = poll_now(fd)?;
        Ok(if events.is_empty() { "none".to_owned() } else { format!("{events:?}") })
    }));
    all.extend(of(
        "close on exec",
        "core/rdma_core.c:alloc_begin_fd_uobject",
        [Want::Is("true"); 2],
        |_, fd| {
            let flags = FdFlag::from_bits_truncate(fcntl(borrow(fd), FcntlArg::F_GETFD)?);
            Ok(flags.contains(FdFlag::FD_CLOEXEC).to_string())
        },
    ));
    let read_only = of(
        "read and nothing else",
        "core/rdma_core.c:alloc_begin_fd_uobject",
        [Want::Is("0"); 2],
        |_, fd| {
            let flags = OFlag::from_bits_truncate(fcntl(borrow(fd), FcntlArg::F_GETFL)?);
            Ok((flags & OFlag::O_ACCMODE).bits().to_string())
        },
    );
    all.extend(read_only.map(|case| case.only(World::Kernel, sockets)));
    all.extend([
        case("descriptors", "async: two files", READ, Want::Is("true"), |rig| {
            Ok((rig.new_events()? != rig.new_events()?).to_string())
        }),
        case(
            "descriptors",
            "a child shares the file",
            "core/uverbs_main.c:ib_uverbs_open",
            Want::Is("child 0, parent 1"),
            |rig| {
                // SAFETY: the child calls nothing but the command and `_exit`, and no other thread
                // holds a lock that it could need: on a real device this program has one thread.
                match unsafe { libc::fork() } {
                    0 => {
                        let status = rig.new_pd().map_or(100, |pd| pd as i32);
                        // SAFETY: ends the child, and nothing else of it runs.
                        unsafe { libc::_exit(status) }
                    }
                    child => {
                        let status =
                            nix::sys::wait::waitpid(nix::unistd::Pid::from_raw(child), None)?;
                        let nix::sys::wait::WaitStatus::Exited(_, code) = status else {
                            return Ok(format!("{status:?}"));
                        };
                        Ok(format!("child {code}, parent {}", rig.new_pd()?))
                    }
                }
            },
        )
        .only(World::Kernel, "softhca lives in the process, and a child has a copy"),
        case("descriptors", "closed behind the device", READ, Want::Ok, |rig| {
            let other = Rig::new(&rig.target)?;
            other.furnish();
            let (memory, fds) = other.close();
            drop(fds);
            drop(memory);
            Ok(String::new())
        }),
        after_close("channel: read after the device was closed", Want::Err(Errno::EIO), |fds| {
            read(fds[0].as_raw_fd(), 64).map(|len| len.to_string())
        }),
        after_close(
            "channel: poll after the device was closed",
            Want::Is("PollFlags(POLLERR)"),
            |fds| poll_now(fds[0].as_raw_fd()).map(|events| format!("{events:?}")),
        ),
    ]);
    all
}

/// Looks at a channel whose device file has been closed.
fn after_close(name: &'static str, want: Want, look: fn(&[OwnedFd]) -> Outcome) -> Case {
    case("descriptors", name, "core/uverbs_main.c:ib_uverbs_close", want, move |rig: &Rig| {
        let other = Rig::new(&rig.target)?;
        other.channel();
        let (_memory, fds) = other.close();
        look(&fds)
    })
    .only(World::Kernel, "softhca's channels are sockets, which say end of file")
}
