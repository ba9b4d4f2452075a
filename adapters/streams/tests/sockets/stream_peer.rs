//! A stream's peer that breaks the rules: for tests, and for a fuzzer (`fuzz/`).

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use uverbs::cm::{Connection, Connector, EventChannel, Param};
use uverbs::{
    AccessFlags, CompletionQueue, Device, Error, ExposedMemory, PostError, QueuePair, Remote,
};
use uverbs_streams::{RdmaListener, RdmaStream, StreamOptions};

/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(20);
/// Messages of one run.
const MESSAGES: usize = 60;

pub(crate) fn listen(options: &StreamOptions, ip: IpAddr) -> (RdmaListener, SocketAddr) {
    let listener = options.listen((ip, 0)).unwrap();
    let at = listener.local_addr().unwrap();
    (listener, at)
}

pub(crate) fn options(device: &Device) -> StreamOptions {
    StreamOptions::new().on(device).limit(LIMIT)
}

/// A peer that speaks the protocol as far as it likes: a queue pair of the test's own.
pub(crate) struct Raw {
    pub(crate) connection: Connection,
    pub(crate) cq: CompletionQueue,
    pub(crate) list: ExposedMemory,
    /// Without immediate data a message is a SEND of four bytes behind its WRITE.
    is_iwarp: bool,
    /// Buffer in which the peer receives its first bytes.
    pub(crate) place: Remote,
}

impl Raw {
    /// Connects with `hello` as private data, in which it sets the list's address and key.
    pub(crate) fn connect(device: &Device, to: SocketAddr, hello: &[u8]) -> Result<Self, Error> {
        let channel = EventChannel::of(device)?;
        let route = Connector::new(to).limit(LIMIT).resolve_on(channel)?;
        let context = route.device()?.open()?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(512)?;
        let mut qp: QueuePair = context.queue_pair(&pd, &cq).max_recv_wr(300).build()?;
        route.init(&mut qp)?;
        let messages = pd.slab(4, 300)?;
        let mut batch = qp.recv_batch();
        while let Some(frame) = messages.take() {
            batch.post(0, frame)?;
        }
        batch.ring();
        let list = pd.expose(4096, AccessFlags::REMOTE_WRITE)?;
        let mut private_data = hello.to_vec();
        if private_data.len() == 40 {
            private_data[8..16].copy_from_slice(&list.addr().to_be_bytes());
            private_data[16..20].copy_from_slice(&list.rkey().to_be_bytes());
        }
        let param = Param { private_data, rnr_retry_count: 7, ..Param::default() };
        let connection = route.connect(qp, &param)?;
        let answer = connection.private_data();
        let place = Remote {
            addr: u64::from_be_bytes(answer[24..32].try_into().unwrap()),
            rkey: u32::from_be_bytes(answer[32..36].try_into().unwrap()),
        };
        let is_iwarp = device.is_iwarp();
        Ok(Self { connection, cq, list, is_iwarp, place })
    }

    /// The other end's list of places, which its answer names first; mappings stand behind it.
    pub(crate) fn their_list(&self) -> Remote {
        let answer = self.connection.private_data();
        Remote {
            addr: u64::from_be_bytes(answer[8..16].try_into().unwrap()),
            rkey: u32::from_be_bytes(answer[16..20].try_into().unwrap()),
        }
    }

    /// Sends a message, after `bytes`.
    pub(crate) fn tell(&mut self, imm: u32, bytes: &[u8]) {
        // The queues don't run full; how it went is for the other end to say.
        match self.post(imm, bytes) {
            // siw rejects posts after a failure.
            Err(PostError::State | PostError::DoorbellRefused) if self.is_iwarp => return,
            posted => posted.unwrap(),
        }
        let start = Instant::now();
        loop {
            match self.cq.wait(Duration::from_millis(100)) {
                Ok(done) if done.id == 1000 => return,
                Ok(_) => {}
                // siw's kernel flushes once: a later post never completes.
                Err(_) if self.is_iwarp && self.connection.is_closed(Duration::ZERO).unwrap() => {
                    return;
                }
                Err(error) => assert!(start.elapsed() < LIMIT, "{error}"),
            }
        }
    }

    fn post(&mut self, imm: u32, bytes: &[u8]) -> Result<(), PostError> {
        let mut batch = self.connection.queue_pair().batch();
        if self.is_iwarp {
            batch.write_inline(999, bytes, self.place)?;
            batch.send_inline(1000, &imm.to_ne_bytes())?;
        } else {
            batch.write_imm_inline(1000, bytes, self.place, imm)?;
        }
        batch.ring();
        Ok(())
    }
}

/// Private data with a list of two entries, no place for data, and messages allowed.
pub(crate) fn hello() -> [u8; 40] {
    let mut hello = [0; 40];
    (hello[0], hello[1], hello[2], hello[23]) = (1, 2, 1, 2);
    hello
}

/// Bytes of each buffer and messages on their way: the least there are.
const BUFFER: u32 = 2048;
const UNREAD: u16 = 16;
/// Layout of the peer's memory: the end of its list, and the buffer that takes bytes.
const LIST_END: usize = 2 * 16;
const PLACE: usize = 2048;

/// Account of the notifications that a stream received, and of the bytes that it read.
#[derive(Debug, Default)]
struct Account {
    said: u64,
    read: u64,
    /// Messages of no bytes, since one that had some.
    empty: u64,
    /// The stream reported an error, or the peer ended it.
    over: bool,
    /// Length of the longest buffer that the peer offered.
    place: usize,
}

impl Account {
    fn told(&mut self, imm: u32) {
        match (self.over, imm >> 29, imm & 0x1fff_ffff) {
            (true, ..) => {}
            (_, 0, 0) => self.empty += 1,
            (_, 0, len) => (self.empty, self.said) = (0, self.said + u64::from(len)),
            (_, 4 | 6, _) | (_, 7, 1) => {}
            _ => self.over = true,
        }
    }

    /// Reads the bytes that arrived. Returns true if announced bytes are left.
    fn reads(&mut self, stream: &mut RdmaStream, buffer: &mut [u8]) -> bool {
        use ErrorKind::{TimedOut, WouldBlock};
        match stream.read(buffer) {
            Ok(len) => self.read += len as u64,
            Err(error) => self.over |= !matches!(error.kind(), TimedOut | WouldBlock),
        }
        self.read < self.said
    }

    /// Checks that the stream took no more than its buffer, and changed only memory that the peer
    /// had named.
    fn check(&self, list: &ExposedMemory) {
        let mut memory = vec![0; list.len()];
        list.read(0, &mut memory).unwrap();
        let kept = [&memory[LIST_END..PLACE], &memory[PLACE + self.place..]].concat();
        assert!(kept.iter().all(|byte| *byte == 0), "{self:?}: bytes beside list and place");
        if !self.over {
            let left = self.said.checked_sub(self.read).expect("no more than was said");
            assert!(left <= BUFFER.into(), "{self:?}: more than there is room for");
            assert!(self.empty <= UNREAD.into(), "{self:?}: more than may be unread");
        }
    }
}

/// A peer that sends any messages, and writes into the memory that it was offered: reads and writes
/// of the stream end in bytes or errors, within their limits.
pub(crate) fn messages(device: &Device, ip: IpAddr, data: &[u8]) {
    let least = options(device).mappings(1).send_buffer(BUFFER).recv_buffer(BUFFER).recvs(UNREAD);
    let (listener, at) = listen(&least, ip);
    let server = thread::spawn(move || listener.accept().unwrap().0);
    let mut raw = Raw::connect(device, at, &hello()).unwrap();
    let mut stream = server.join().unwrap();
    let soon = Some(Duration::from_millis(2));
    stream.set_read_timeout(soon).unwrap();
    stream.set_write_timeout(soon).unwrap();
    let list = raw.their_list();
    let (first, mut buffer) = (raw.place, vec![0; 5000]);
    let (mut account, sent) = (Account::default(), [0xab; 5000]);
    let mut input = data.iter().copied();
    let mut late = 0;
    for at in 0..MESSAGES {
        // A stream that is over posts no receives any more.
        late += u16::from(account.over);
        let Some(op) = input.next().filter(|_| late < UNREAD / 2) else { break };
        let mut next = || input.next().unwrap_or(0);
        let value = u32::from_le_bytes([next(), next(), next(), 0]);
        let imm = match op % 8 {
            // Bytes that came, more than came, credits, a mapping, the ends and the rest.
            0 | 1 => u32::from(op >> 3),
            2 if op & 8 != 0 => value & 0x3ff,
            2 => value,
            3 => 4 << 29 | value & 0xffff,
            4 => 6 << 29 | value & 0xff,
            5 => 7 << 29 | value & 3,
            6 => 7 << 29 | 1,
            _ => value << 8 | u32::from(op),
        };
        let mut bytes: [u8; 16] = match op & 64 {
            0 => [7; 16],
            _ => std::array::from_fn(|_| next()),
        };
        let mut len = usize::from(next()) % 17;
        raw.place = match op & 128 {
            0 => first,
            _ => Remote { addr: list.addr + 8 * u64::from(next() % 6), ..list },
        };
        if op % 16 == 11 {
            // A valid buffer, in either entry of the list.
            let to = raw.list.remote(PLACE);
            bytes[..8].copy_from_slice(&to.addr.to_ne_bytes());
            bytes[8..12].copy_from_slice(&to.rkey.to_ne_bytes());
            bytes[12..].copy_from_slice(&(value >> 16).to_ne_bytes());
            raw.place = Remote { addr: list.addr + 16 * u64::from(value & 1), ..list };
            (len, account.place) = (16, account.place.max((value >> 16) as usize));
        }
        raw.tell(imm, &bytes[..len]);
        account.told(imm);
        account.reads(&mut stream, &mut buffer);
        let written = stream.write(&sent[..usize::from(next()) * 16]);
        let kind = written.err().map(|error| error.kind());
        assert_ne!(kind, Some(ErrorKind::InvalidInput), "a piece outside of the stream's memory");
        let _ = stream.write_at(&sent[..at], u64::from(next()));
    }
    for _ in 0..=MESSAGES {
        if !account.reads(&mut stream, &mut buffer) || account.over {
            break;
        }
    }
    account.check(&raw.list);
}
