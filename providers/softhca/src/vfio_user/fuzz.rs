//! Fuzz target: a misbehaving vfio-user client.

use std::io::{IoSlice, PipeReader, Read, Write, pipe};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::eventfd::EventFd;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use zerocopy::IntoBytes;

use super::Server;
use super::message::{
    DeviceInfo, DmaMap, DmaUnmap, Header, IrqInfo, IrqSet, Region, RegionInfo, Transfer, Version,
    command, flag, split,
};
use super::session::Session;
use crate::feed::Feed;
use crate::pci::{CONFIG_LEN, PciOptions};

/// Number of messages per run.
const STEPS: usize = 48;
const PAGE: u64 = 4096;
/// Maximum descriptors of a message.
const MAX_FDS: usize = 16;

/// Sends arbitrary messages. Each complete one is answered, others end the session. The next client
/// must find the function as after power-on, without this client's memory and descriptors.
pub(crate) fn clients(data: &[u8]) {
    let mut server = Server::new(&PciOptions::default()).expect("a descriptor is left");
    let fresh = config(&server);
    let mut feed = Feed::new(data);
    let mut pipes = Vec::new();
    let (here, there) = UnixStream::pair().expect("descriptors are left");
    server.cable.replug();
    std::thread::scope(|scope| {
        // The session's thread sends; a second thread reads replies, which may be longer than the
        // socket's buffer, and answers the session's own commands.
        let reader = scope.spawn(|| {
            let mut answers = Vec::new();
            // A session that leaves bytes unread resets the connection; earlier replies are
            // complete.
            while let Some(answer) = receive(&there) {
                answers.extend(answer);
            }
            answers
        });
        let sent = talk(&mut server, here, &there, &mut feed, &mut pipes);
        // Closes the socket.
        server.leave();
        check(&sent, &reader.join().expect("it only reads"));
    });
    assert_eq!(server.memory.check(), 0, "memory of a client that has gone");
    assert_eq!(config(&server), fresh);
    for mut pipe in pipes {
        // An open pipe would block here for ever.
        assert!(pipe.read_to_end(&mut Vec::new()).is_ok_and(|bytes| bytes % 8 == 0));
    }
}

/// Receives the next reply. Commands of the session before it are answered: an odd page number is
/// refused.
fn receive(mut there: &UnixStream) -> Option<Vec<u8>> {
    loop {
        let mut header = Header::default();
        there.read_exact(header.as_mut_bytes()).ok()?;
        let mut body = vec![0; header.size as usize - size_of::<Header>()];
        there.read_exact(&mut body).ok()?;
        if !header.is_command() {
            return Some([header.as_bytes(), &body].concat());
        }
        let (transfer, _) = split::<Transfer>(&body).expect("a transfer");
        let refuses = transfer.address / PAGE % 2 == 1;
        let len = match header.command {
            _ if refuses => 0,
            command::DMA_READ => size_of::<Transfer>() + transfer.count as usize,
            _ => size_of::<Transfer>(),
        };
        body.resize(len, 0xa5);
        let flags = flag::REPLY | if refuses { flag::ERROR } else { 0 };
        let size = (size_of::<Header>() + len) as u32;
        let reply = Header { size, flags, error: refuses.into(), ..header };
        // No other thread sends now: the session waits for this reply.
        send(there, &[reply.as_bytes(), &body].concat(), &[]);
    }
}

fn config(server: &Server) -> [u8; CONFIG_LEN as usize] {
    let mut bytes = [0; CONFIG_LEN as usize];
    server.hca.config_read(0, &mut bytes);
    bytes
}

/// Sends messages, and lets the session answer each. Returns the messages that must be answered.
fn talk(
    server: &mut Server,
    here: UnixStream,
    there: &UnixStream,
    feed: &mut Feed<'_>,
    pipes: &mut Vec<PipeReader>,
) -> Vec<(Header, Vec<u8>)> {
    let memory = Arc::clone(&server.memory);
    let mut session = Session::new(server, here).expect("a socket");
    let mut sent = Vec::new();
    for _ in 0..STEPS {
        if feed.is_empty() {
            break;
        }
        if feed.u8() % 32 == 31 {
            // Arbitrary bytes, perhaps of several messages, and then the end.
            let bytes = feed.bytes(600);
            (&mut &*there).write_all(bytes).expect("room for a few bytes");
            there.shutdown(Shutdown::Write).expect("a socket");
            while session.message().unwrap_or(false) {}
            return sent;
        }
        let (header, body) = message(feed);
        let fds: Vec<OwnedFd> = match feed.below(8) {
            0..4 => Vec::new(),
            4..7 => (0..1 + feed.below(3)).map(|_| descriptor(feed, pipes)).collect(),
            _ => (0..feed.below(MAX_FDS + 2)).map(|_| descriptor(feed, pipes)).collect(),
        };
        send(there, &[header.as_bytes(), &body].concat(), &fds);
        let (count, is_message) = (fds.len(), header.body().is_some() && header.is_command());
        drop(fds);
        match session.message() {
            Ok(goes_on) => assert!(goes_on && is_message && count <= MAX_FDS),
            Err(error) => {
                assert!(!is_message || count > MAX_FDS, "{header:?}: {error}");
                return sent;
            }
        }
        if header.flags & flag::NO_REPLY == 0 {
            sent.push((header, body));
        }
        session.work();
        memory.check();
    }
    there.shutdown(Shutdown::Write).expect("a socket");
    assert_eq!(session.message().ok(), Some(false), "the client has left");
    sent
}

fn send(to: &UnixStream, bytes: &[u8], fds: &[OwnedFd]) {
    let numbers: Vec<_> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let with = [ControlMessage::ScmRights(&numbers)];
    let with = if fds.is_empty() { &[][..] } else { &with };
    let parts = [IoSlice::new(bytes)];
    let sent = sendmsg::<()>(to.as_raw_fd(), &parts, with, MsgFlags::empty(), None);
    assert_eq!(sent, Ok(bytes.len()), "there is room for a message");
}

/// A descriptor: a memfd that cannot shrink, short or longer than any memory; one that can; an
/// eventfd; a pipe, which must be closed in the end.
fn descriptor(feed: &mut Feed<'_>, pipes: &mut Vec<PipeReader>) -> OwnedFd {
    let kind = feed.below(8);
    let len = match kind {
        0 => 1 << 40,
        1 => i64::MAX.cast_unsigned() & !(PAGE - 1),
        _ => 16 * PAGE,
    };
    match kind {
        5 => EventFd::new().expect("a descriptor is left").into(),
        6 => {
            let (reader, writer) = pipe().expect("descriptors are left");
            pipes.push(reader);
            writer.into()
        }
        7 => std::fs::File::open("/dev/null").expect("it is everywhere").into(),
        _ => {
            let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
            let file = std::fs::File::from(memfd_create("guest", flags).expect("a memfd"));
            file.set_len(len).expect("it has no contents");
            if kind != 4 {
                let seal = FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_SHRINK);
                fcntl(&file, seal).expect("it allows that");
            }
            file.into()
        }
    }
}

/// A message that is nearly valid.
fn message(feed: &mut Feed<'_>) -> (Header, Vec<u8>) {
    let (number, mut body) = body(feed);
    feed.edit(&mut body);
    if feed.u8() % 16 == 15 {
        body.truncate(feed.below(40));
    }
    let size = (size_of::<Header>() + body.len()) as u32;
    let flags = match feed.u8() {
        0..200 => flag::COMMAND,
        200..240 => flag::COMMAND | flag::NO_REPLY,
        _ => feed.u32(),
    };
    (Header { id: feed.u16(), command: number, size, flags, error: 0 }, body)
}

/// A command and its body.
fn body(feed: &mut Feed<'_>) -> (u16, Vec<u8>) {
    let index = feed.below(10) as u32;
    match feed.below(12) {
        0 => (command::VERSION, Version { major: 0, minor: index as u16 }.as_bytes().to_vec()),
        1..4 => {
            let (address, size) = range(feed);
            let offset = feed.below(4) as u64 * PAGE;
            let map = DmaMap { argsz: 32, flags: 3, offset, address, size };
            (command::DMA_MAP, map.as_bytes().to_vec())
        }
        4 => {
            let ((address, size), all) = (range(feed), u32::from(feed.u8() % 8 == 7));
            let unmap = DmaUnmap { argsz: 24, flags: all << 1, address, size };
            (command::DMA_UNMAP, unmap.as_bytes().to_vec())
        }
        5 => match feed.below(3) {
            0 => (command::DEVICE_GET_INFO, DeviceInfo::default().as_bytes().to_vec()),
            1 => {
                let info = RegionInfo { argsz: 32, index, ..Default::default() };
                (command::DEVICE_GET_REGION_INFO, info.as_bytes().to_vec())
            }
            _ => {
                let info = IrqInfo { argsz: 16, index, ..Default::default() };
                (command::DEVICE_GET_IRQ_INFO, info.as_bytes().to_vec())
            }
        },
        6 | 7 => {
            let index = if feed.u8() % 8 == 7 { index } else { 2 };
            let flags = if feed.u8() % 4 == 3 { feed.u32() } else { 0x24 };
            let (start, count) = (feed.below(72) as u32, feed.below(8) as u32);
            let set = IrqSet { argsz: 20, flags, index, start, count };
            (command::DEVICE_SET_IRQS, set.as_bytes().to_vec())
        }
        8 => (command::REGION_READ, region(feed, index).as_bytes().to_vec()),
        9 => {
            let data = feed.bytes(256);
            let region = Region { count: data.len() as u32, ..region(feed, index) };
            (command::REGION_WRITE, [region.as_bytes(), data].concat())
        }
        10 => (command::DEVICE_RESET, Vec::new()),
        _ => (feed.u16() % 20, feed.bytes(100).to_vec()),
    }
}

/// A page range: few pages or many, near or far, or more than exist.
fn range(feed: &mut Feed<'_>) -> (u64, u64) {
    match feed.below(4) {
        0..3 => (feed.below(32) as u64 * PAGE, feed.below(17) as u64 * PAGE),
        _ => (feed.u64(), feed.u64() >> feed.below(64)),
    }
}

/// A range of BAR 0, of configuration space, or of another region.
fn region(feed: &mut Feed<'_>, index: u32) -> Region {
    let index = [0, 0, 0, 7, 7, index][feed.below(6)];
    let mask = [0xff, 0x3fff, 0x1ff_ffff, u32::MAX][feed.below(4)];
    let (offset, count) = (feed.u32() & mask, feed.u32());
    let count = count >> [31, 28, 24, 11][feed.below(4)];
    Region { offset: offset.into(), index, count }
}

/// Checks that each message has its reply, in order, with the length that its command defines.
fn check(sent: &[(Header, Vec<u8>)], mut answers: &[u8]) {
    for (header, body) in sent {
        let (answer, rest) = split::<Header>(answers).expect("an answer to each message");
        assert_eq!((answer.id, answer.command), (header.id, header.command));
        let len = answer.size as usize - size_of::<Header>();
        let is_error = match answer.flags {
            flag::REPLY => false,
            other => {
                assert_eq!(other, flag::REPLY | flag::ERROR);
                true
            }
        };
        assert_eq!(answer.error != 0, is_error, "{answer:?}");
        assert_eq!(len, if is_error { 0 } else { answer_len(header.command, body) });
        answers = rest.get(len..).expect("all of it");
    }
}

/// Bytes of the reply to a successful command.
fn answer_len(number: u16, body: &[u8]) -> usize {
    match number {
        command::VERSION => size_of::<Version>(),
        command::DMA_UNMAP => size_of::<DmaUnmap>(),
        command::DEVICE_GET_INFO => size_of::<DeviceInfo>(),
        command::DEVICE_GET_REGION_INFO => size_of::<RegionInfo>(),
        command::DEVICE_GET_IRQ_INFO => size_of::<IrqInfo>(),
        command::REGION_READ => {
            let (region, _) = split::<Region>(body).expect("it was carried out");
            size_of::<Region>() + region.count as usize
        }
        command::REGION_WRITE => size_of::<Region>(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

        #[test]
        fn any_messages(data in prop::collection::vec(any::<u8>(), 0..1000)) {
            super::clients(&data);
        }
    }
}
