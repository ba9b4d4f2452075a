//! Files of a client's that take long to close: the server waits for none of them.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Barrier;
use std::time::Instant;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt};

use crate::driver::Driver;
use crate::host::{Host, LIMIT, message, words};
use crate::hostile::alive;

/// A socket whose last close waits as long as the other one is there, which takes nothing.
fn slow_to_close() -> (OwnedFd, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut slow = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (there, _) = listener.accept().unwrap();
    slow.set_nonblocking(true).unwrap();
    while slow.write(&[0; 1 << 16]).is_ok() {}
    slow.set_nonblocking(false).unwrap();
    let linger = libc::linger { l_onoff: 1, l_linger: 600 };
    setsockopt(&slow, sockopt::Linger, &linger).unwrap();
    (slow.into(), there)
}

/// A client that sends such a file in one way and leaves: the next client is served at once.
fn slow_file_sent(how: impl FnOnce(&mut Host, OwnedFd)) {
    let (slow, there) = slow_to_close();
    let mut host = Host::connected();
    how(&mut host, slow);
    let start = Instant::now();
    let mut next = Host::of(host.left());
    assert_eq!(next.config(0), 0x101d_15b3);
    drop(next.left());
    assert!(start.elapsed() < LIMIT / 4, "{:?}", start.elapsed());
    drop(there);
}

fn map_of(len: u64) -> Vec<u8> {
    let numbers = [0, 0, len].map(u64::to_ne_bytes).concat();
    [words(&[32, 3]), numbers].concat()
}

/// Sends a message with a file, of which the client keeps no copy: the server has the last one, since
/// it takes a message whole.
fn give(host: &mut Host, message: &[u8], file: impl Into<OwnedFd>) {
    let file = file.into();
    assert!(host.send(&message[..1], &[file.as_raw_fd()]));
    drop(file);
    assert!(host.send(&message[1..], &[]));
}

#[test]
fn a_file_that_nobody_asked_for() {
    slow_file_sent(|host, slow| give(host, &message(1, 0, &[0; 4]), slow));
}

#[test]
fn a_file_amid_a_message() {
    slow_file_sent(|host, slow| {
        let version = message(1, 0, &[0; 4]);
        assert!(host.send(&version[..17], &[]));
        give(host, &version[17..], slow);
    });
}

#[test]
fn a_file_that_is_no_memory() {
    slow_file_sent(|host, slow| {
        host.request(1, &[0; 4], &[]).unwrap();
        give(host, &message(2, 0, &map_of(4096)), slow);
    });
}

#[test]
fn a_file_that_is_no_event() {
    slow_file_sent(|host, slow| {
        host.request(1, &[0; 4], &[]).unwrap();
        give(host, &message(8, 0, &words(&[20, 0x24, 2, 0, 1])), slow);
    });
}

#[test]
fn a_file_beyond_what_a_message_may_bring() {
    slow_file_sent(|host, slow| {
        assert!(host.send(&message(1, 0, &[0; 4]), &[slow.as_raw_fd(); 17]));
        drop_elsewhere(slow);
    });
}

#[test]
fn a_file_that_lies_unread() {
    slow_file_sent(|host, slow| {
        // Behind a message that ends the session.
        assert!(host.send(&words(&[7, 15, 0, 0]), &[]));
        let _ = host.send(&[0], &[slow.as_raw_fd()]);
        drop_elsewhere(slow);
    });
}

/// The server may be done with its copies already: then this close waits.
fn drop_elsewhere(file: OwnedFd) {
    std::thread::spawn(move || drop(file));
}

/// A Unix socket in which such a file lies.
#[test]
fn a_file_in_a_file() {
    slow_file_sent(|host, slow| {
        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let fds = [slow.as_raw_fd()];
        let (rights, parts) = ([ControlMessage::ScmRights(&fds)], [std::io::IoSlice::new(&[1])]);
        sendmsg::<()>(one.as_raw_fd(), &parts, &rights, MsgFlags::empty(), None).unwrap();
        drop((one, slow));
        give(host, &message(1, 0, &[0; 4]), other);
    });
}

/// A client with more of them than may wait is thrown out before the process has no more room.
#[test]
fn many_files() {
    slow_file_sent(|host, slow| {
        let quiet = message(1, 1 << 4, &[0; 4]);
        give(host, &quiet, slow);
        let pipe = std::io::pipe().unwrap();
        let goes_on = |_: &i32| host.send(&quiet, &[pipe.0.as_raw_fd(); 16]);
        assert!((0..100_000).take_while(goes_on).count() < 100_000, "it was not thrown out");
    });
}

/// Lets whoever waits for room in an event go on, in the end.
struct Drained<'a>(&'a EventFd);

impl Drop for Drained<'_> {
    fn drop(&mut self) {
        let _ = self.0.read();
    }
}

/// An event with room for one more, which client and server want at the same moment.
#[test]
fn an_event_that_is_filled_at_any_moment() {
    let mut driver = Driver::up();
    driver.eq(0, 1 << 0xa);
    for round in 0..2000 {
        let event = EventFd::from_flags(EfdFlags::EFD_CLOEXEC).unwrap();
        event.write(u64::MAX - 2).unwrap();
        driver.host.vectors(&[event.as_raw_fd()]).unwrap();
        fcntl(&event, FcntlArg::F_SETFL(OFlag::empty())).unwrap();
        let begin = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                (0..round % 100 * 20).for_each(|_| std::hint::spin_loop());
                // It waits where the server was first.
                event.write(1).unwrap();
            });
            begin.wait();
            let _drained = Drained(&event);
            // A command raises vector 0 behind its answer. A server that waits answers no more.
            alive(&mut driver);
            assert_eq!(driver.host.config(0), 0x101d_15b3);
        });
    }
}
