//! A client sends files whose last close takes long. The server doesn't wait for that close.

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

/// Returns a socket and its peer. The last close of the socket waits for unsent data (`SO_LINGER`)
/// until the peer, which reads nothing, is closed.
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

/// Lets `how` send a socket of [`slow_to_close`] and disconnects. Checks that the server answers
/// the next client soon.
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

/// Sends a message with a file, and closes the client's copy before the last bytes of the message.
/// The server closes the file after it has received these bytes, so its close is the last one.
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
        // The server closes the connection because of this message and doesn't read the next one.
        assert!(host.send(&words(&[7, 15, 0, 0]), &[]));
        let _ = host.send(&[0], &[slow.as_raw_fd()]);
        drop_elsewhere(slow);
    });
}

/// Closes a file in another thread. If the server has closed its copies, this close is the last
/// one and waits.
fn drop_elsewhere(file: OwnedFd) {
    std::thread::spawn(move || drop(file));
}

/// Sends a Unix socket that holds a file of [`slow_to_close`] in an unread message.
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

/// When too many of a client's files wait to be closed, the server closes the connection, before
/// the process runs out of descriptors.
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

/// Resets the event's counter when dropped, so that a thread that waits to write to it continues.
struct Drained<'a>(&'a EventFd);

impl Drop for Drained<'_> {
    fn drop(&mut self) {
        let _ = self.0.read();
    }
}

/// The event's counter is one below its maximum, and client and server increment it at the same
/// time.
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
                // This write waits if the server incremented the counter first.
                event.write(1).unwrap();
            });
            begin.wait();
            let _drained = Drained(&event);
            // The server signals vector 0 after the answer of a command. If it waited there, it
            // would not answer the next request.
            alive(&mut driver);
            assert_eq!(driver.host.config(0), 0x101d_15b3);
        });
    }
}
