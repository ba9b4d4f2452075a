//! Fuzzer of discovery: responses like a kernel's, nearly like them, or arbitrary.

use super::*;
use crate::discovery::{complete, select};
use crate::report::resources::ResourceKind;

/// Datagrams of one run.
const STEPS: usize = 256;
/// Name in a stray answer.
const STRAY: &str = "stray";

pub(super) fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
    bytes.extend(kind.to_ne_bytes());
    bytes.extend([0, 0]);
    bytes.extend(sequence.to_ne_bytes());
    bytes.extend([0; 4]);
    bytes.extend(body);
    bytes.resize(aligned(bytes.len()), 0);
    bytes
}

pub(super) fn attr(id: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = ((ATTR_HEADER + payload.len()) as u16).to_ne_bytes().to_vec();
    bytes.extend(id.to_ne_bytes());
    bytes.extend(payload);
    bytes.resize(aligned(bytes.len()), 0);
    bytes
}

/// A fake kernel that answers one query with these messages.
#[cfg(test)]
pub(super) struct Script {
    bodies: std::vec::IntoIter<Vec<u8>>,
    asked: (u32, u16),
}

#[cfg(test)]
impl Script {
    pub(super) fn new(bodies: Vec<Vec<u8>>) -> Self {
        Self { bodies: bodies.into_iter(), asked: (0, 0) }
    }
}

#[cfg(test)]
impl Kernel for Script {
    fn send(&mut self, request: &[u8]) -> Result<(), Errno> {
        let sent = messages(request).next().expect("a request is a message");
        self.asked = (sent.sequence, sent.kind);
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let (sequence, kind) = self.asked;
        let bytes = match self.bodies.next() {
            Some(body) => message(kind, sequence, &body),
            None => message(NLMSG_DONE, sequence, &[0; 4]),
        };
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

/// A fake kernel whose responses follow the fuzzer's bytes.
struct Any<'a> {
    bytes: std::slice::Iter<'a, u8>,
    /// Sequence number and command of the request.
    asked: (u32, u16),
    steps: usize,
    /// Devices that valid messages reported, in order, and the number of messages.
    told: Vec<String>,
    messages: usize,
}

impl Any<'_> {
    fn u8(&mut self) -> u8 {
        self.bytes.next().copied().unwrap_or(0)
    }

    fn any(&mut self, most: usize) -> Vec<u8> {
        let len = usize::from(self.u8()) % most;
        let bytes: Vec<u8> = self.bytes.by_ref().take(len).copied().collect();
        // Prevents a fuzzer that found the name from forging a stray response.
        let is_stray = bytes.windows(STRAY.len()).any(|some| some == STRAY.as_bytes());
        if is_stray { Vec::new() } else { bytes }
    }

    /// The dump's message about a device of this name.
    fn device(&mut self, name: &str) -> Vec<u8> {
        let index = u32::from(self.u8());
        [
            attr(RDMA_NLDEV_ATTR_DEV_INDEX, &index.to_ne_bytes()),
            attr(RDMA_NLDEV_ATTR_DEV_NAME, &[name.as_bytes(), b"\0"].concat()),
            attr(RDMA_NLDEV_ATTR_PORT_INDEX, &2u32.to_ne_bytes()),
            attr(RDMA_NLDEV_ATTR_NODE_GUID, &[self.u8(); 8]),
            attr(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, &[1]),
        ]
        .concat()
    }

    /// The message about a device's node.
    fn chardev(&mut self, name: &str) -> Vec<u8> {
        [
            attr(RDMA_NLDEV_ATTR_CHARDEV, &[self.u8(); 8]),
            attr(RDMA_NLDEV_ATTR_CHARDEV_ABI, &1u64.to_ne_bytes()),
            attr(RDMA_NLDEV_ATTR_CHARDEV_NAME, &[name.as_bytes(), b"\0"].concat()),
            attr(RDMA_NLDEV_ATTR_UVERBS_DRIVER_ID, &u32::from(self.u8()).to_ne_bytes()),
        ]
        .concat()
    }

    /// One message: a response to the last query, or a stray one.
    fn message(&mut self) -> Vec<u8> {
        self.messages += 1;
        let (sequence, command) = self.asked;
        let is_dump = command == RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET);
        match self.u8() % 8 {
            0..3 if is_dump => {
                let name = format!("mlx5_{}", self.told.len());
                let body = self.device(&name);
                self.told.push(name);
                message(command, sequence, &body)
            }
            0..3 => {
                let name = format!("uverbs{sequence}");
                let body = self.chardev(&name);
                message(command, sequence, &body)
            }
            3 => {
                // Response to an earlier query, or to none.
                let body = [self.device(STRAY), self.chardev(STRAY)].concat();
                message(command, sequence.wrapping_add(1 + u32::from(self.u8())), &body)
            }
            4 | 5 => {
                let mut body = [self.device("near"), self.chardev("near")].concat();
                for _ in 0..1 + self.u8() % 4 {
                    let at = usize::from(self.u8()) % body.len();
                    body[at] = self.u8();
                }
                message(command, sequence, &body)
            }
            6 => {
                let kind = [NLMSG_DONE, NLMSG_ERROR][usize::from(self.u8() % 2)];
                let errno = i32::from(self.u8().cast_signed());
                message(kind, sequence, &errno.min(0).to_ne_bytes())
            }
            _ => {
                let (kind, body) = (u16::from(self.u8()), self.any(100));
                message(kind, sequence, &body)
            }
        }
    }
}

impl Kernel for Any<'_> {
    fn send(&mut self, request: &[u8]) -> Result<(), Errno> {
        let sent = messages(request).next().expect("a request is a message");
        assert!(sent.sequence > self.asked.0, "a number that another question had");
        self.asked = (sent.sequence, sent.kind);
        Ok(())
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        self.steps += 1;
        if self.steps > STEPS || self.bytes.len() == 0 {
            // The end of the response.
            let done = message(NLMSG_DONE, self.asked.0, &[0; 4]);
            buffer[..done.len()].copy_from_slice(&done);
            return Ok(done.len());
        }
        let bytes = match self.u8() % 16 {
            0 => return Err(Errno::EAGAIN),
            1 => return Err(Errno::from_raw(i32::from(self.u8()))),
            // Longer than the buffer.
            2 => return Ok(buffer.len() + 1 + usize::from(self.u8())),
            3 => self.any(200),
            4..8 => {
                let first = self.message();
                // Bytes after the end message are ignored.
                match u16_at(&first, 4) {
                    Some(NLMSG_DONE | NLMSG_ERROR) => first,
                    _ => [first, self.message()].concat(),
                }
            }
            _ => self.message(),
        };
        buffer[..bytes.len()].copy_from_slice(&bytes);
        Ok(bytes.len())
    }
}

/// Runs discovery against the fuzzer's responses. Discovery returns an error, or exactly the
/// reported devices in order, without devices from other queries.
pub(crate) fn netlink(data: &[u8]) {
    let bytes = data.iter();
    let any = Any { bytes, asked: (0, 0), steps: 0, told: Vec::new(), messages: 0 };
    let mut session = Session::new(any);
    let found = devices(&mut session);
    // Queries about a device read the same kind of bytes; they have no invariant but their end.
    let _ = ports::ports(&mut session, 0);
    let _ = counters::qp_counters(&mut session, 0);
    let _ = resources::resources(&mut session, 0, ResourceKind::Qp);
    let Any { told, messages, .. } = session.kernel;
    let Ok(found) = found else { return };
    assert!(found.len() <= messages);
    let mut names = found.iter().map(|device| &device.record.name);
    for name in &told {
        assert!(names.any(|found| found == name), "{name} is lost: {found:?}");
    }
    for device in &found {
        let record = &device.record;
        assert!(!record.name.is_empty() && record.index.is_some(), "{record:?}");
        assert!(record.name != STRAY && record.uverbs_name != STRAY, "{record:?}");
        // A node's name without its number would come from another question.
        assert_eq!(device.rdev.is_some(), !record.uverbs_name.is_empty());
    }
    let count = found.len();
    let completed = complete(found.clone(), &found);
    let dev = std::path::Path::new("/nowhere");
    assert_eq!((completed.len(), select(completed, dev, dev)), (count, Vec::new()));
}
