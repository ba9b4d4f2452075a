//! One end of a stream, without waiting: handles its completions and posts its work requests.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use uverbs::cm::{Connection, ConnectionErrorKind};
use uverbs::{
    Completed, CompletionChannel, CompletionQueue, Error, ExposedMemory, Notify, Remote, Slab,
    Status, WorkCompletion, Wr,
};

use super::endpoint::{BURST, CONTROLS, Domain, MESSAGE_LEN, Parts, expect};
use super::files::Engine as Waited;
use super::incoming::Incoming;
use super::outgoing::{Copied, Outgoing, Piece};
use super::wire::{Hello, Message, PLACE_LEN, RemoteMemory, SLOTS};
use super::{Ready, StreamError, mapping};

/// Kind of a work request: the upper half of its id; the lower half counts bytes of the ring.
const DATA: u64 = 1 << 32;
const CONTROL: u64 = 2 << 32;
/// A control message behind which nothing comes.
const FAREWELL: u64 = 3 << 32;

/// A WRITE that the message behind it stands for.
const QUIET: Wr = Wr::new(0).unsignaled();

/// Message of a peer on iWARP. Its byte order is assumed to be this host's, as rsocket assumes.
fn said(completion: &WorkCompletion) -> Result<Message, StreamError> {
    let frame = completion.frame.as_deref();
    let bytes = frame.filter(|_| completion.byte_len as usize == MESSAGE_LEN);
    let bytes = bytes.and_then(|bytes| bytes.first_chunk().copied());
    bytes
        .map_or(Err(StreamError::ForeignMessage), |bytes| Message::parse(u32::from_ne_bytes(bytes)))
}

/// Message of the peer about its memory.
#[derive(Debug)]
pub(super) struct Peer {
    list: RemoteMemory,
    /// The entry of its list that is written next.
    slot: u32,
    /// The peer has the other byte order.
    pub(super) swap: bool,
    /// Mappings that it has room for, behind its list.
    pub(super) mappings: u16,
}

impl Peer {
    fn new(hello: &Hello) -> Self {
        let swap = hello.big_endian != cfg!(target_endian = "big");
        // Slot 0 stands for the buffer that the peer announced when it connected.
        let slot = 1 % hello.list.len;
        Self { list: hello.list, slot, swap, mappings: hello.mappings }
    }

    /// The entry to be written now; the next one comes after it.
    fn next_slot(&mut self) -> Remote {
        let offset = u64::from(self.slot) * PLACE_LEN as u64;
        self.slot = (self.slot + 1) % self.list.len;
        Remote { addr: self.list.addr.wrapping_add(offset), rkey: self.list.key }
    }

    /// The entry of its mappings with this index.
    pub(super) fn mapping(&self, index: u16) -> Remote {
        let list = u64::from(self.list.len) * PLACE_LEN as u64;
        let offset = list + u64::from(index) * super::wire::MAPPING_LEN as u64;
        Remote { addr: self.list.addr.wrapping_add(offset), rkey: self.list.key }
    }
}

/// Phase of the stream.
#[derive(Debug, Default)]
struct Phase {
    /// The peer knows that the connection stands, so that it takes messages.
    established: bool,
    /// This side may tell of room. The side that accepts on iWARP first waits for a message: the
    /// other's kernel fails the connection if one comes with its answer (kernel `siw_cm.c`,
    /// `siw_recv_mpa_rr`; RFC 5044, 7.1.2). Until then the peer has half of the buffer.
    tells: bool,
    /// The peer may still send.
    readable: bool,
    /// This side may still send bytes.
    writable: bool,
    /// The stream has ended, cleanly or not.
    closed: bool,
    /// The connection manager has nothing more to say.
    parted: bool,
    error: Option<StreamError>,
    /// Farewell that waits for a control slot.
    farewell: Option<Message>,
}

#[derive(Debug)]
pub(super) struct Engine {
    // First: memory that the peer reaches is freed behind the queue pair.
    connection: Connection,
    pub(super) domain: Arc<Domain>,
    cq: CompletionQueue,
    channel: CompletionChannel,
    ring: ExposedMemory,
    buffer: ExposedMemory,
    /// This end's list of places, which the peer writes, and behind it the peer's mappings.
    pub(super) list: ExposedMemory,
    incoming: Incoming,
    /// See [`Parts`].
    messages: Option<Slab>,
    pub(super) outgoing: Outgoing,
    pub(super) peer: Peer,
    pub(super) offered: mapping::Offered,
    /// Index of the next entry of the local list, and a hint that it may have changed.
    slot: usize,
    look: bool,
    controls: u32,
    sends: u32,
    phase: Phase,
    armed: bool,
    activity: u64,
}

impl Engine {
    pub(super) fn new(parts: Parts, connection: Connection, hello: &Hello) -> Self {
        let Parts {
            domain,
            cq,
            channel,
            ring,
            buffer,
            list,
            incoming,
            messages,
            sends,
            inline,
            mappings,
            ..
        } = parts;
        let slots = sends - CONTROLS;
        let len = ring.len() as u32;
        let outgoing = Outgoing::new(slots, len, inline, hello.credits, hello.data);
        let established = connection.is_established();
        let tells = established || messages.is_none();
        let phase =
            Phase { established, tells, readable: true, writable: true, ..Phase::default() };
        Self {
            connection,
            domain,
            cq,
            channel,
            ring,
            buffer,
            list,
            incoming,
            messages,
            outgoing,
            peer: Peer::new(hello),
            offered: mapping::Offered::new(mappings),
            slot: 1,
            look: false,
            controls: CONTROLS,
            sends: slots,
            phase,
            armed: false,
            activity: 0,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.phase.closed
    }

    /// True if the stream is closed, and all bytes were read.
    pub(super) fn is_over(&self) -> bool {
        self.phase.closed && !self.incoming.has_some()
    }

    /// Handles a received message; true if the receive is to be posted again.
    fn received(&mut self, completion: &WorkCompletion) -> bool {
        if self.phase.closed {
            return false;
        }
        let message = match (completion.result, completion.immediate) {
            (Ok(Completed::RecvWriteImm), Some(imm)) => Message::parse(imm),
            (Ok(Completed::Recv), _) if self.messages.is_some() => said(completion),
            (Ok(_), _) => Err(StreamError::ForeignMessage),
            (Err(failure), _) if failure.status == Status::Flushed => Err(StreamError::Lost),
            (Err(failure), _) => Err(StreamError::Failed(failure)),
        };
        match message.and_then(|message| self.obey(message)) {
            Ok(()) => true,
            Err(error) => {
                self.fail(error);
                false
            }
        }
    }

    fn obey(&mut self, message: Message) -> Result<(), StreamError> {
        (self.phase.established, self.phase.tells) = (true, true);
        match message {
            Message::Data(len) => self.incoming.came(len)?,
            Message::Credit(limit) => {
                self.outgoing.allow(limit);
                self.look = true;
            }
            Message::Mapping(index) => self.learn(index),
            Message::KeepAlive => {}
            Message::Shutdown if self.phase.writable => self.phase.readable = false,
            Message::Shutdown | Message::Disconnect => self.close(),
        }
        Ok(())
    }

    fn sent(&mut self, completion: &WorkCompletion) {
        match completion.id & !u64::from(u32::MAX) {
            DATA => self.outgoing.completed(completion.id as u32),
            kind => {
                self.controls += 1;
                if kind == FAREWELL {
                    self.close();
                }
            }
        }
        if let Err(failure) = completion.result {
            self.fail(StreamError::Failed(failure));
        }
    }

    fn close(&mut self) {
        let phase = &mut self.phase;
        (phase.closed, phase.readable, phase.writable) = (true, false, false);
        phase.farewell = None;
    }

    /// Notes a failure; the first one with a cause stays.
    fn fail(&mut self, error: StreamError) {
        let known = self.phase.error.is_some();
        if self.phase.closed && !(known && self.phase.error == Some(StreamError::Lost)) {
            return;
        }
        // Flushed work requests don't tell the cause of the failure.
        let flushed = matches!(&error, StreamError::Failed(it) if it.status == Status::Flushed);
        let error = if flushed { StreamError::Lost } else { error };
        self.phase.error = Some(error);
        self.close();
    }

    /// Posts receives for messages, which carry no bytes.
    pub(super) fn expect(&mut self, count: u32) -> io::Result<()> {
        if count == 0 {
            return Ok(());
        }
        let batch = self.connection.queue_pair().recv_batch();
        Ok(expect(batch, self.messages.as_ref(), count)?)
    }

    /// Announces free room to the peer, or that this side sends no more.
    pub(super) fn tell(&mut self) -> io::Result<()> {
        let Phase { established, tells, .. } = self.phase;
        while self.controls > 0 && established && tells && self.incoming.owes() {
            let grant = self.incoming.grant();
            let imm = Message::Credit(grant.limit).to_imm();
            let Some(span) = grant.half else {
                self.control(CONTROL, &[], Remote { addr: 0, rkey: 0 }, imm)?;
                continue;
            };
            let at = self.buffer.remote(span.at as usize);
            let place = RemoteMemory { addr: at.addr, key: at.rkey, len: span.len };
            let to = self.peer.next_slot();
            self.control(CONTROL, &place.to_bytes(self.peer.swap), to, imm)?;
        }
        if self.controls > 0
            && self.phase.established
            && let Some(message) = self.phase.farewell.take()
        {
            let last = message == Message::Disconnect;
            let kind = if last { FAREWELL } else { CONTROL };
            self.control(kind, &[], Remote { addr: 0, rkey: 0 }, message.to_imm())?;
        }
        Ok(())
    }

    fn control(&mut self, kind: u64, bytes: &[u8], to: Remote, imm: u32) -> io::Result<()> {
        let mut batch = self.connection.queue_pair().batch();
        if self.messages.is_some() {
            if !bytes.is_empty() {
                batch.write_inline(QUIET, bytes, to).map_err(Error::from)?;
            }
            batch.send_inline(kind, &imm.to_ne_bytes()).map_err(Error::from)?;
        } else {
            batch.write_imm_inline(kind, bytes, to, imm).map_err(Error::from)?;
        }
        batch.ring();
        self.controls -= 1;
        Ok(())
    }

    /// Sends a WRITE of no bytes, which the peer's device acknowledges and its program doesn't see
    /// (`tcp_svc_send_keepalive`). Where no work request is free, others are on their way.
    pub(super) fn keep_alive(&mut self) -> io::Result<()> {
        if self.controls == 0 || !self.phase.established || self.phase.closed {
            return Ok(());
        }
        let mut batch = self.connection.queue_pair().batch();
        let nowhere = Remote { addr: 0, rkey: 0 };
        batch.write_inline(CONTROL, &[], nowhere).map_err(Error::from)?;
        batch.ring();
        self.controls -= 1;
        Ok(())
    }

    /// Copies received bytes out. `None` while the ring is empty; 0 at the stream's end.
    pub(super) fn read(&mut self, to: &mut [u8]) -> io::Result<Option<usize>> {
        let mut done = 0;
        while let Some(span) = self.incoming.take(to.len() - done) {
            let part = &mut to[done..done + span.len as usize];
            self.buffer.read(span.at as usize, part).map_err(Error::from)?;
            done += part.len();
        }
        if done > 0 {
            if !self.phase.closed {
                self.tell()?;
            }
            return Ok(Some(done));
        }
        if to.is_empty() {
            return Ok(Some(0));
        }
        match &self.phase {
            Phase { error: Some(error), .. } => Err(error.clone().into()),
            Phase { readable: false, .. } => Ok(Some(0)),
            _ => Ok(None),
        }
    }

    /// [`read`](Self::read) without consuming the bytes.
    pub(super) fn peek(&mut self, to: &mut [u8]) -> io::Result<Option<usize>> {
        let mut done = 0;
        for span in self.incoming.ahead(to.len()) {
            let part = &mut to[done..done + span.len as usize];
            self.buffer.read(span.at as usize, part).map_err(Error::from)?;
            done += part.len();
        }
        // With no bytes available, `read` consumes none and returns the end of the stream or its
        // error.
        if done == 0 { self.read(to) } else { Ok(Some(done)) }
    }

    /// Returns the error of a write, if the stream can't be written.
    pub(super) fn may_write(&self) -> io::Result<()> {
        match &self.phase {
            Phase { error: Some(error), .. } => Err(error.clone().into()),
            Phase { writable: true, .. } => Ok(()),
            Phase { closed: true, .. } => Err(io::ErrorKind::ConnectionReset.into()),
            _ => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    pub(super) fn is_established(&self) -> bool {
        self.phase.established
    }

    /// Sends as much as possible now. `None` if no byte can be sent.
    pub(super) fn write(&mut self, from: &[u8]) -> io::Result<Option<usize>> {
        self.may_write()?;
        if from.is_empty() {
            return Ok(Some(0));
        }
        let mut done = 0;
        while self.phase.established && done < from.len() {
            self.find_place()?;
            let Some(piece) = self.outgoing.piece(from.len() - done, done) else { break };
            let to = self.outgoing.send(piece);
            let to = Remote { addr: to.addr, rkey: to.key };
            let imm = Message::Data(piece.len).to_imm();
            self.post(piece, &from[done..done + piece.len as usize], to, Some(imm))?;
            done += piece.len as usize;
        }
        Ok((done > 0).then_some(done))
    }

    /// Returns the wanted directions that are worth a try; `None` if no direction is.
    pub(super) fn ready(&mut self, wanted: Ready) -> io::Result<Option<Ready>> {
        let mut ready =
            Ready { read: self.incoming.has_some() || !self.phase.readable, write: true };
        if self.may_write().is_ok() {
            self.find_place()?;
            ready.write = self.phase.established && self.outgoing.may_write();
        }
        let ready = Ready { read: ready.read && wanted.read, write: ready.write && wanted.write };
        Ok((ready.read || ready.write).then_some(ready))
    }

    /// Posts a WRITE of `bytes`, which are copied.
    pub(super) fn post(
        &mut self,
        piece: Piece,
        bytes: &[u8],
        to: Remote,
        imm: Option<u32>,
    ) -> io::Result<()> {
        let id = DATA | u64::from(piece.ring_bytes());
        // Without immediate data the message is a SEND behind the WRITE, and completes after it.
        let message = imm.filter(|_| self.messages.is_some()).map(u32::to_ne_bytes);
        let imm = imm.filter(|_| self.messages.is_none());
        let id: Wr = id.into();
        let (id, last) = if message.is_some() { (QUIET, id) } else { (id, id) };
        let mut batch = self.connection.queue_pair().batch();
        match piece.copied {
            Copied::Inline => match imm {
                Some(imm) => batch.write_imm_inline(id, bytes, to, imm),
                None => batch.write_inline(id, bytes, to),
            }
            .map_err(Error::from)?,
            Copied::At(at) => {
                self.ring.write(at as usize, bytes).map_err(Error::from)?;
                let part = self.ring.part(at as usize, bytes.len()).map_err(Error::from)?;
                match imm {
                    Some(imm) => batch.write_imm(id, part, to, imm)?,
                    None => batch.write(id, part, to)?,
                }
            }
        }
        if let Some(message) = message {
            batch.send_inline(last, &message).map_err(Error::from)?;
        }
        batch.ring();
        Ok(())
    }

    /// Takes the peer's next place for bytes, if the current one is used up and the peer announced
    /// another.
    ///
    /// The peer's device wrote the entry before its message came. The length is read first and
    /// emptied: the peer fills the entry again only when all of its place was used.
    pub(super) fn find_place(&mut self) -> io::Result<()> {
        if !self.look || !self.outgoing.needs_place() {
            return Ok(());
        }
        let at = self.slot * PLACE_LEN;
        let key_len = self.list.load(at + 8).map_err(Error::from)?;
        let addr = self.list.load(at).map_err(Error::from)?;
        let place = RemoteMemory::from_words(addr, key_len);
        if place.len == 0 {
            self.look = false;
            return Ok(());
        }
        self.list.store(at + 8, 0).map_err(Error::from)?;
        self.outgoing.set_place(place);
        self.slot = (self.slot + 1) % SLOTS;
        Ok(())
    }

    /// Starts to end one direction or both.
    pub(super) fn shutdown(&mut self, how: std::net::Shutdown) -> io::Result<()> {
        use std::net::Shutdown::{Both, Read, Write};
        let phase = &mut self.phase;
        if phase.closed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let farewell = match how {
            Write if !phase.writable => return Ok(()),
            Write if phase.readable => Message::Shutdown,
            Read if phase.writable => {
                phase.readable = false;
                return Ok(());
            }
            Write | Read | Both => {
                phase.readable = false;
                Message::Disconnect
            }
        };
        phase.writable = false;
        phase.farewell = Some(farewell);
        self.tell()
    }

    /// True if the peer's memory has all written bytes, and the peer has the farewell.
    pub(super) fn is_flushed(&self) -> bool {
        let idle = self.controls == CONTROLS && self.outgoing.free_slots() == self.sends;
        self.phase.closed || (idle && self.phase.farewell.is_none())
    }

    /// Takes the event of the completion channel. There is one at most, since the queue is armed
    /// once it was taken; a further one would leave the file readable.
    fn drain_channel(&mut self) -> io::Result<()> {
        if self.channel.try_next()?.is_some() {
            self.armed = false;
            self.activity += 1;
        }
        Ok(())
    }

    /// Handles events of the connection manager; true if more may follow.
    fn hear(&mut self) -> io::Result<bool> {
        self.activity += 1;
        let ended = match self.connection.is_closed(Duration::ZERO) {
            Ok(false) => None,
            Ok(true) => Some(StreamError::Lost),
            Err(Error::Connection(error)) if error.kind == ConnectionErrorKind::DeviceRemoved => {
                Some(StreamError::DeviceRemoved)
            }
            Err(error) => return Err(error.into()),
        };
        self.phase.established |= self.connection.is_established();
        if let Some(error) = ended {
            self.phase.parted = true;
            // Messages that came before the disconnect count: bytes, or a farewell.
            self.progress()?;
            self.fail(error);
        }
        Ok(!self.phase.parted)
    }
}

/// Its files: the completion channel's, and the connection's.
impl Waited for Engine {
    fn activity(&self) -> u64 {
        self.activity
    }

    fn progress(&mut self) -> io::Result<()> {
        let mut done: [WorkCompletion; BURST] = Default::default();
        let mut received = 0;
        loop {
            let count = self.cq.poll_into(&mut done);
            for completion in &done[..count] {
                self.activity += 1;
                match completion.is_recv {
                    true => received += u32::from(self.received(completion)),
                    false => self.sent(completion),
                }
            }
            if count < BURST {
                break;
            }
        }
        self.cq.check()?;
        if !self.phase.closed {
            self.expect(received)?;
            self.tell()?;
        }
        Ok(())
    }

    fn arm(&mut self) -> io::Result<bool> {
        if self.armed {
            return Ok(false);
        }
        self.cq.arm(Notify::Any)?;
        self.armed = true;
        Ok(true)
    }

    fn source(&self, number: usize) -> Option<BorrowedFd<'_>> {
        match number {
            0 => Some(self.channel.as_fd()),
            1 => Some(self.connection.as_fd()),
            _ => None,
        }
    }

    fn take(&mut self, number: usize) -> io::Result<bool> {
        match number {
            0 => self.drain_channel().map(|()| true),
            // After the connection's end only its time-wait event comes.
            _ => self.hear(),
        }
    }

    fn look_at_device(&mut self) {
        if self.domain.context.is_gone() {
            self.fail(StreamError::DeviceRemoved);
        }
    }
}
