//! Files of a client's that take long to close: the server waits for none of them.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::Instant;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg, setsockopt, sockopt};

use crate::host::{Host, LIMIT, message, words};

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

#[test]
fn a_file_that_nobody_asked_for() {
    slow_file_sent(|host, slow| {
        assert!(host.send(&message(1, 0, &[0; 4]), &[slow.as_raw_fd()]));
    });
}

#[test]
fn a_file_amid_a_message() {
    slow_file_sent(|host, slow| {
        let version = message(1, 0, &[0; 4]);
        assert!(host.send(&version[..17], &[]));
        assert!(host.send(&version[17..], &[slow.as_raw_fd()]));
    });
}

#[test]
fn a_file_that_is_no_memory() {
    slow_file_sent(|host, slow| {
        host.request(1, &[0; 4], &[]).unwrap();
        // The client's own copy is closed before the server looks.
        assert!(host.send(&message(2, 0, &map_of(4096)), &[slow.as_raw_fd()]));
    });
}

#[test]
fn a_file_that_is_no_event() {
    slow_file_sent(|host, slow| {
        host.request(1, &[0; 4], &[]).unwrap();
        let _ = host.vectors(&[slow.as_raw_fd()]);
    });
}

#[test]
fn a_file_beyond_what_a_message_may_bring() {
    slow_file_sent(|host, slow| {
        assert!(host.send(&message(1, 0, &[0; 4]), &[slow.as_raw_fd(); 17]));
    });
}

#[test]
fn a_file_that_lies_unread() {
    slow_file_sent(|host, slow| {
        // Behind a message that ends the session.
        assert!(host.send(&words(&[7, 15, 0, 0]), &[]));
        let _ = host.send(&[0], &[slow.as_raw_fd()]);
    });
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
        assert!(host.send(&message(1, 0, &[0; 4]), &[other.as_raw_fd()]));
    });
}

/// A client with more of them than may wait is thrown out before the process has no more room.
#[test]
fn many_files() {
    slow_file_sent(|host, slow| {
        assert!(host.send(&message(1, 1 << 4, &[0; 4]), &[slow.as_raw_fd()]));
        drop(slow);
        let pipe = std::io::pipe().unwrap();
        let sent = (0..100)
            .take_while(|_| host.send(&message(1, 1 << 4, &[0; 4]), &[pipe.0.as_raw_fd(); 16]));
        assert!(sent.count() < 100, "it was thrown out");
    });
}
