//! RDMA netlink: messages, and the two queries of discovery. Queries about one device have files in
//! `netlink/`.
//!
//! `RDMA_NLDEV_CMD_GET` as a dump lists the devices of this network namespace;
//! `RDMA_NLDEV_CMD_GET_CHARDEV` with the type `uverbs` returns a device's node and driver (kernel
//! `drivers/infiniband/core/nldev.c`). Message format: RFC 3549 section 2.3.2, netlink(7). Every
//! wait has a limit.

mod counters;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod ports;
mod resources;

use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send,
    setsockopt, socket, sockopt::ReceiveTimeout,
};
use nix::sys::time::{TimeVal, TimeValLike};
use uverbs_kernel_abi::netlink::{
    RDMA_NL_GET_TYPE, RDMA_NL_NLDEV, RDMA_NLDEV_ATTR_CHARDEV, RDMA_NLDEV_ATTR_CHARDEV_ABI,
    RDMA_NLDEV_ATTR_CHARDEV_NAME, RDMA_NLDEV_ATTR_CHARDEV_TYPE, RDMA_NLDEV_ATTR_DEV_INDEX,
    RDMA_NLDEV_ATTR_DEV_NAME, RDMA_NLDEV_ATTR_DEV_NODE_TYPE, RDMA_NLDEV_ATTR_NODE_GUID,
    RDMA_NLDEV_ATTR_PORT_INDEX, RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, RDMA_NLDEV_CMD_GET,
    RDMA_NLDEV_CMD_GET_CHARDEV,
};

use super::Found;
use crate::doors::DeviceRecord;

/// `struct nlmsghdr`: length, type, flags, sequence number, port.
const HEADER: usize = 16;
/// `struct nlattr`: length, type.
const ATTR_HEADER: usize = 4;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_ACK: u16 = 0x4;
const NLM_F_DUMP: u16 = 0x300;
/// Without `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER`.
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Time limit of a query, including the loading of a module.
const PATIENCE: Duration = Duration::from_secs(5);
/// Buffer for one datagram. The kernel sizes parts of a dump by the reader's buffer, at most 32
/// KiB.
const BUFFER: usize = 64 << 10;

/// Messages and attributes are padded to four bytes.
fn aligned(len: usize) -> usize {
    len.next_multiple_of(4)
}

/// A request being built.
#[derive(Debug)]
struct Request(Vec<u8>);

impl Request {
    fn new(op: u32, flags: u16, sequence: u32) -> Self {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend((HEADER as u32).to_ne_bytes());
        bytes.extend(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, op).to_ne_bytes());
        bytes.extend((NLM_F_REQUEST | flags).to_ne_bytes());
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(0u32.to_ne_bytes());
        Self(bytes)
    }

    /// Adds an attribute, which is a few bytes long.
    fn attr(mut self, id: u16, payload: &[u8]) -> Self {
        let len = (ATTR_HEADER + payload.len()) as u16;
        self.0.extend(len.to_ne_bytes());
        self.0.extend(id.to_ne_bytes());
        self.0.extend(payload);
        self.0.resize(aligned(self.0.len()), 0);
        let total = self.0.len() as u32;
        self.0[..4].copy_from_slice(&total.to_ne_bytes());
        self
    }
}

/// One message of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// `nlmsg_type`.
    pub kind: u16,
    /// `nlmsg_seq` of the request.
    pub sequence: u32,
    /// Payload after the header.
    pub body: &'a [u8],
}

/// Iterates over the messages of a datagram, up to the first truncated one.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let len = usize::try_from(u32_at(bytes, 0)?).ok()?;
        let body = bytes.get(HEADER..len)?;
        let message = Message { kind: u16_at(bytes, 4)?, sequence: u32_at(bytes, 8)?, body };
        bytes = bytes.get(aligned(len)..).unwrap_or(&[]);
        Some(message)
    })
}

/// Iterates over the attributes of a message's body (type and payload), up to the first truncated
/// one.
pub fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let len = usize::from(u16_at(bytes, 0)?);
        let payload = bytes.get(ATTR_HEADER..len)?;
        let kind = u16_at(bytes, 2)? & NLA_TYPE_MASK;
        bytes = bytes.get(aligned(len)..).unwrap_or(&[]);
        Some((kind, payload))
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn find(body: &[u8], id: u16) -> Option<&[u8]> {
    attributes(body).find(|(kind, _)| *kind == id).map(|(_, payload)| payload)
}

/// A number of any width, because the header's comments and the kernel's code differ for some
/// attributes.
fn number(body: &[u8], id: u16) -> Option<u64> {
    let payload = find(body, id)?;
    match payload.len() {
        1 => Some(u64::from(payload[0])),
        4 => u32_at(payload, 0).map(u64::from),
        8 => Some(u64::from_ne_bytes(payload.try_into().ok()?)),
        _ => None,
    }
}

/// Attributes of a message or of a nested attribute, whole: `EBADMSG` if the last one is truncated.
fn whole(bytes: &[u8]) -> Result<Vec<(u16, &[u8])>, Errno> {
    let all: Vec<_> = attributes(bytes).collect();
    let len: usize = all.iter().map(|(_, payload)| aligned(ATTR_HEADER + payload.len())).sum();
    // The last attribute of a message may lack its padding.
    if len >= bytes.len() { Ok(all) } else { Err(Errno::EBADMSG) }
}

/// Entries with type `entry` of the table with type `table`.
fn entries(body: &[u8], table: u16, entry: u16) -> Result<Vec<&[u8]>, Errno> {
    let mut found = Vec::new();
    for (_, table) in whole(body)?.into_iter().filter(|(kind, _)| *kind == table) {
        let all = whole(table)?.into_iter();
        found.extend(all.filter(|(kind, _)| *kind == entry).map(|(_, payload)| payload));
    }
    Ok(found)
}

/// A number that fits 32 bits.
fn short(body: &[u8], id: u16) -> Option<u32> {
    number(body, id)?.try_into().ok()
}

/// A string up to its terminating zero.
fn string(body: &[u8], id: u16) -> Option<String> {
    let text = find(body, id)?.split(|&byte| byte == 0).next()?;
    String::from_utf8(text.to_vec()).ok().filter(|text| !text.is_empty())
}

/// The device that a message of the dump describes. Requires the same attributes as rdma-core
/// (`find_sysfs_devs_nl_cb`).
fn device(body: &[u8]) -> Option<Found> {
    let mut record = DeviceRecord::new(string(body, RDMA_NLDEV_ATTR_DEV_NAME)?, 0);
    record.index = Some(number(body, RDMA_NLDEV_ATTR_DEV_INDEX)?.try_into().ok()?);
    record.node_guid = number(body, RDMA_NLDEV_ATTR_NODE_GUID)?;
    record.node_type = number(body, RDMA_NLDEV_ATTR_DEV_NODE_TYPE)?.try_into().ok()?;
    // In this message the port index is the number of ports.
    record.port_count = number(body, RDMA_NLDEV_ATTR_PORT_INDEX)?.try_into().ok()?;
    Some(Found { record, rdev: None })
}

/// Adds the content of the character device's message. Leaves the device unchanged if an attribute
/// is missing.
fn add_chardev(found: &mut Found, body: &[u8]) -> Option<()> {
    let name = string(body, RDMA_NLDEV_ATTR_CHARDEV_NAME)?;
    let dev = number(body, RDMA_NLDEV_ATTR_CHARDEV)?;
    let abi = number(body, RDMA_NLDEV_ATTR_CHARDEV_ABI)?;
    found.record.uverbs_name = name;
    found.record.abi_version = abi as u32;
    found.rdev = Some(decode_dev(dev));
    let driver = number(body, RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID);
    found.record.driver_id = driver.and_then(|id| id.try_into().ok()).unwrap_or(0);
    Some(())
}

/// Inverse of the kernel's `huge_encode_dev`.
fn decode_dev(dev: u64) -> u64 {
    nix::sys::stat::makedev((dev & 0xfff00) >> 8, dev & 0xff | dev >> 12 & 0xfff00)
}

/// Lists all devices of this network namespace.
///
/// # Errors
///
/// `EPROTONOSUPPORT` without RDMA netlink; else the errno of the socket or of the kernel's answer;
/// `ETIMEDOUT`.
pub fn list() -> Result<Vec<Found>, crate::Errno> {
    dump().map_err(crate::Errno::of_nix)
}

fn dump() -> Result<Vec<Found>, Errno> {
    devices(&mut Session::new(Socket::open()?))
}

fn devices(session: &mut Session<impl Kernel>) -> Result<Vec<Found>, Errno> {
    let mut devices = Vec::new();
    let request = Request::new(RDMA_NLDEV_CMD_GET, NLM_F_ACK | NLM_F_DUMP, session.next_sequence());
    session.ask(&request, |body| devices.extend(device(body)))?;
    for found in &mut devices {
        let index = found.record.index.unwrap_or(0);
        let request = Request::new(RDMA_NLDEV_CMD_GET_CHARDEV, NLM_F_ACK, session.next_sequence())
            .attr(RDMA_NLDEV_ATTR_DEV_INDEX, &index.to_ne_bytes())
            .attr(RDMA_NLDEV_ATTR_CHARDEV_TYPE, b"uverbs\0");
        // After a refusal sysfs supplies the character device. After a timeout the kernel is not
        // queried again.
        let asked = session.ask(&request, |body| {
            let _ = add_chardev(found, body);
        });
        if asked == Err(Errno::ETIMEDOUT) {
            break;
        }
    }
    Ok(devices)
}

/// Questions about one device, by its index.
pub(super) struct Queries(Session<Socket>);

impl Queries {
    /// Opens a socket.
    ///
    /// # Errors
    ///
    /// `EPROTONOSUPPORT` without RDMA netlink; else the errno of the socket.
    pub(super) fn open() -> Result<Self, crate::Errno> {
        Socket::open().map(|socket| Self(Session::new(socket))).map_err(crate::Errno::of_nix)
    }
}

/// Transport to the kernel: sends requests, receives datagrams.
trait Kernel {
    fn send(&mut self, request: &[u8]) -> Result<(), Errno>;

    /// Length of the next datagram, which may exceed the buffer; `EAGAIN` if none arrives for a
    /// while.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Errno>;
}

/// A socket of RDMA netlink.
struct Socket(OwnedFd);

impl Socket {
    fn open() -> Result<Self, Errno> {
        let socket = socket(
            AddressFamily::Netlink,
            SockType::Raw,
            SockFlag::SOCK_CLOEXEC,
            SockProtocol::NetlinkRDMA,
        )?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        setsockopt(&socket, ReceiveTimeout, &TimeVal::seconds(1))?;
        Ok(Self(socket))
    }
}

impl Kernel for Socket {
    fn send(&mut self, request: &[u8]) -> Result<(), Errno> {
        send(self.0.as_raw_fd(), request, MsgFlags::empty()).map(drop)
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        recv(self.0.as_raw_fd(), buffer, MsgFlags::MSG_TRUNC)
    }
}

/// Queries, one at a time.
struct Session<K> {
    kernel: K,
    sequence: u32,
    buffer: Vec<u8>,
}

impl<K: Kernel> Session<K> {
    fn new(kernel: K) -> Self {
        Self { kernel, sequence: 0, buffer: vec![0; BUFFER] }
    }

    fn next_sequence(&mut self) -> u32 {
        self.sequence += 1;
        self.sequence
    }

    /// Sends a request about a device, and passes each message of the response to `each`. An error
    /// of `each` is returned once the response ended.
    fn ask_device(
        &mut self,
        op: u32,
        flags: u16,
        index: u32,
        attrs: &[(u16, u32)],
        mut each: impl FnMut(&[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let request = Request::new(op, NLM_F_ACK | flags, self.next_sequence())
            .attr(RDMA_NLDEV_ATTR_DEV_INDEX, &index.to_ne_bytes());
        let request = attrs
            .iter()
            .fold(request, |request, (id, value)| request.attr(*id, &value.to_ne_bytes()));
        let mut failed = Ok(());
        self.ask(&request, |body| {
            let read = each(body);
            failed = failed.and(read);
        })?;
        failed
    }

    /// Sends a request and passes each message of the response to `each`, until the kernel ends the
    /// response.
    fn ask(&mut self, request: &Request, mut each: impl FnMut(&[u8])) -> Result<(), Errno> {
        let deadline = Instant::now() + PATIENCE;
        self.kernel.send(&request.0)?;
        loop {
            if Instant::now() >= deadline {
                return Err(Errno::ETIMEDOUT);
            }
            let len = match self.kernel.receive(&mut self.buffer) {
                Ok(len) => len,
                // SO_RCVTIMEO, or a signal: the deadline decides.
                Err(Errno::EAGAIN | Errno::EINTR) => continue,
                Err(errno) => return Err(errno),
            };
            let bytes = self.buffer.get(..len).ok_or(Errno::EMSGSIZE)?;
            if answer(bytes, self.sequence, &mut each)? {
                return Ok(());
            }
        }
    }
}

/// Processes one datagram of the response to request `sequence`. True if it was the last.
fn answer(bytes: &[u8], sequence: u32, each: &mut impl FnMut(&[u8])) -> Result<bool, Errno> {
    for message in messages(bytes).filter(|message| message.sequence == sequence) {
        match message.kind {
            NLMSG_DONE | NLMSG_ERROR => {
                // Both start with a negative errno, or 0 for success (the end of a dump, an
                // acknowledgement).
                let error = u32_at(message.body, 0).unwrap_or(0).cast_signed();
                return match error {
                    0 => Ok(true),
                    error => Err(Errno::from_raw(error.saturating_neg())),
                };
            }
            _ => each(message.body),
        }
    }
    // The kernel sends whole messages: a truncated one would leave the end of the response unseen.
    let len: usize = messages(bytes).map(|message| aligned(HEADER + message.body.len())).sum();
    if len >= bytes.len() { Ok(false) } else { Err(Errno::EBADMSG) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::fuzz::{attr, message};
    use super::*;

    fn body() -> Vec<u8> {
        [
            attr(RDMA_NLDEV_ATTR_DEV_INDEX, &3u32.to_ne_bytes()),
            attr(RDMA_NLDEV_ATTR_DEV_NAME, b"mlx5_0\0"),
            attr(RDMA_NLDEV_ATTR_PORT_INDEX, &2u32.to_ne_bytes()),
            attr(200, b"what a newer kernel says"),
            attr(RDMA_NLDEV_ATTR_NODE_GUID, &0x0c42_a103_0065_9a5eu64.to_ne_bytes()),
            attr(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, &[1]),
        ]
        .concat()
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn a_request_on_the_wire() {
        let request = Request::new(RDMA_NLDEV_CMD_GET_CHARDEV, NLM_F_ACK, 7)
            .attr(RDMA_NLDEV_ATTR_DEV_INDEX, &3u32.to_ne_bytes())
            .attr(RDMA_NLDEV_ATTR_CHARDEV_TYPE, b"uverbs\0");
        #[rustfmt::skip]
        assert_eq!(request.0, [
            36, 0, 0, 0,        // nlmsg_len
            0x0f, 0x14,         // nlmsg_type: client 5 << 10 | command 15
            5, 0,               // nlmsg_flags: REQUEST | ACK
            7, 0, 0, 0,         // nlmsg_seq
            0, 0, 0, 0,         // nlmsg_pid: the kernel
            8, 0, 1, 0,         // nla_len, nla_type DEV_INDEX
            3, 0, 0, 0,
            11, 0, 69, 0,       // nla_len, nla_type CHARDEV_TYPE
            b'u', b'v', b'e', b'r', b'b', b's', 0, 0, // and padding
        ]);
    }

    #[test]
    fn a_device_and_its_chardev_are_read() {
        let mut found = device(&body()).unwrap();
        assert_eq!(found.record.name, "mlx5_0");
        assert_eq!((found.record.index, found.record.port_count), (Some(3), 2));
        assert_eq!((found.record.node_guid, found.record.node_type), (0x0c42_a103_0065_9a5e, 1));
        let mut chardev = [
            attr(RDMA_NLDEV_ATTR_CHARDEV, &(231u64 << 8 | 192).to_ne_bytes()),
            attr(RDMA_NLDEV_ATTR_CHARDEV_ABI, &1u64.to_ne_bytes()),
            attr(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, &1u32.to_ne_bytes()),
        ]
        .concat();
        // Without a name the device stays unchanged.
        let before = found.clone();
        assert_eq!(add_chardev(&mut found, &chardev), None);
        assert_eq!(found, before);
        chardev.extend(attr(RDMA_NLDEV_ATTR_CHARDEV_NAME, b"uverbs0\0"));
        add_chardev(&mut found, &chardev).unwrap();
        assert_eq!((found.record.uverbs_name.as_str(), found.record.driver_id), ("uverbs0", 1));
        assert_eq!(found.rdev, Some(nix::sys::stat::makedev(231, 192)));
    }

    #[test]
    fn a_device_without_a_name_is_none() {
        let index = attr(RDMA_NLDEV_ATTR_DEV_INDEX, &3u32.to_ne_bytes());
        assert_eq!(device(&index), None);
        let name = attr(RDMA_NLDEV_ATTR_DEV_NAME, b"\0");
        assert_eq!(device(&[index, name].concat()), None);
    }

    #[test]
    fn wide_minors_are_decoded() {
        // huge_encode_dev: minor & 0xff | major << 8 | (minor & ~0xff) << 12
        let (major, minor) = (0x1ff_u64, 0x5_4321_u64);
        let encoded = minor & 0xff | major << 8 | (minor & !0xff) << 12;
        assert_eq!(decode_dev(encoded), nix::sys::stat::makedev(major, minor));
    }

    #[test]
    fn an_answer_ends_with_done_or_an_error() {
        let part = message(0x1401, 9, &body());
        let stray = message(0x1401, 8, &body());
        let mut seen = 0;
        let mut each = |_: &[u8]| seen += 1;
        assert_eq!(answer(&[stray, part.clone()].concat(), 9, &mut each), Ok(false));
        let done = message(NLMSG_DONE, 9, &0i32.to_ne_bytes());
        assert_eq!(answer(&[part, done].concat(), 9, &mut each), Ok(true));
        let refused = message(NLMSG_ERROR, 9, &(-libc::EPERM).to_ne_bytes());
        assert_eq!(answer(&refused, 9, &mut each), Err(Errno::EPERM));
        // Cut short: waiting for the rest would be in vain.
        assert_eq!(answer(&refused[..18], 9, &mut each), Err(Errno::EBADMSG));
        let worst = message(NLMSG_ERROR, 9, &i32::MIN.to_ne_bytes());
        assert!(answer(&worst, 9, &mut each).is_err());
        assert_eq!(seen, 2);
    }

    #[test]
    fn the_question_is_answered_or_refused_in_time() {
        let start = Instant::now();
        let _ = list();
        assert!(start.elapsed() < 2 * PATIENCE);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_harm(
            mut bytes in proptest::collection::vec(any::<u8>(), 0..200),
            len: u16,
        ) {
            // Half of the time, make the first length plausible, to get past it.
            if len & 1 == 0 && bytes.len() >= 4 {
                bytes[..4].copy_from_slice(&u32::from(len % 200).to_ne_bytes());
            }
            let mut each = |body: &[u8]| {
                let _ = device(body);
            };
            let _ = answer(&bytes, 0, &mut each);
            let total: usize = messages(&bytes).map(|message| HEADER + message.body.len()).sum();
            prop_assert!(total <= bytes.len());
            let lens = attributes(&bytes).map(|(_, payload)| ATTR_HEADER + payload.len());
            let total: usize = lens.sum();
            prop_assert!(total <= bytes.len());
        }

        #[test]
        fn a_cut_device_is_whole_or_none(cut in 0usize..200) {
            let whole = body();
            let part = &whole[..cut.min(whole.len())];
            prop_assert_eq!(device(part).is_some(), part.len() + 3 >= whole.len());
        }

        #[test]
        fn attributes_round_trip(
            all in proptest::collection::vec(
                (0u16..0x4000, proptest::collection::vec(any::<u8>(), 0..40)),
                0..8,
            ),
        ) {
            let bytes: Vec<u8> = all.iter().flat_map(|(id, payload)| attr(*id, payload)).collect();
            let read = attributes(&bytes).map(|(id, payload)| (id, payload.to_vec()));
            let read: Vec<_> = read.collect();
            prop_assert_eq!(read, all);
        }
    }
}
