//! The stream as programs have it.
//!
//! # Safety
//!
//! Memory of the program's that the peer writes is registered by address, on the caller's word.
#![allow(unsafe_code, reason = "registers the program's own memory")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uverbs::cm::{Connection, Connector};
use uverbs::{AccessFlags, Error, ExposedMemory, Refused};

use super::Ready;
use super::endpoint::{Domain, Parts, hello};
use super::engine::Engine;
use super::files::Engine as _;
use super::keep_alive::{KeepAlives, Kept};
use super::mapping::Mapped;
use super::options::{StreamOptions, no_address};
use super::timeouts::Timeouts;
use super::waiting::{Limit, Waiting};
use super::wire::Hello;

/// Time that a peer, which has been accepted, may take to confirm before the stream is dropped. A
/// live one takes a round trip.
const CONFIRMATION: Duration = Duration::from_secs(1);

/// A stream of bytes between two programs, as [`std::net::TcpStream`] is.
///
/// Any number of threads may read and write at once, by references: [`Read`] and [`Write`] are
/// there for `&RdmaStream`, too.
///
/// Reads and writes wait without limit unless they have a timeout
/// ([`set_read_timeout`](Self::set_read_timeout)) or the stream is
/// [nonblocking](Self::set_nonblocking), as on sockets. If the peer's host vanishes, only a write
/// or a [keep-alive](StreamOptions::keep_alive) notices. If the peer's process ends, the stream
/// notices at once.
///
/// Dropping the stream tells the peer that no more bytes follow, and waits until the peer's memory
/// has all written bytes. This needs no action of the peer's program, and takes ten seconds at most
/// ([`StreamOptions::limit`]).
#[derive(Debug)]
pub struct RdmaStream {
    waiting: Arc<Waiting<Engine>>,
    /// Behind `waiting`: who is told by it looks whether that is gone.
    kept: Mutex<Option<Kept>>,
    local: Option<SocketAddr>,
    peer: Option<SocketAddr>,
    timeouts: Timeouts,
    /// Time limit of the farewell. A forked child sends none.
    limit: Duration,
}

impl StreamOptions {
    /// Connects to the first of these addresses that answers.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::ConnectionRefused`], [`io::ErrorKind::TimedOut`] and others that sockets
    /// have; [`io::ErrorKind::InvalidInput`] for options over their limits;
    /// [`io::ErrorKind::InvalidData`] with a [`StreamError`](super::StreamError) where another kind
    /// of program accepted.
    pub fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<RdmaStream> {
        self.check()?;
        let mut last = None;
        for addr in addr.to_socket_addrs()? {
            match self.connect_to(addr) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(no_address))
    }

    fn connect_to(&self, addr: SocketAddr) -> io::Result<RdmaStream> {
        let connector = Connector::new(addr).limit(self.limit);
        let connector = match self.from {
            Some(from) => connector.from(from),
            None => connector,
        };
        let route = connector.resolve_on(self.channel()?)?;
        let domain = Domain::of(route.id())?;
        let (parts, mut qp) = Parts::new(&domain, &self.sizes)?;
        route.init(&mut qp)?;
        parts.expect(&mut qp)?;
        let connection = route.connect(qp, &parts.param()).map_err(Refused::into_error)?;
        let hello = hello(connection.private_data())?;
        RdmaStream::new(parts, connection, &hello, self)
    }
}

impl RdmaStream {
    pub(super) fn new(
        parts: Parts,
        connection: Connection,
        hello: &Hello,
        options: &StreamOptions,
    ) -> io::Result<Self> {
        let (local, peer) = (connection.local_addr()?, connection.peer_addr()?);
        let mut engine = Engine::new(parts, connection, hello);
        // Announces the whole buffer: the peer may fill it before the first read.
        engine.tell()?;
        let waiting = Arc::new(Waiting::new(engine)?);
        let kept = options.keep_alive.as_ref().map(|all| all.keep(&waiting)).transpose()?;
        let limit = options.limit;
        let (kept, timeouts) = (Mutex::new(kept), Timeouts::default());
        Ok(Self { waiting, kept, local, peer, timeouts, limit })
    }

    /// Connects to the first of these addresses that answers. [`StreamOptions::connect`] has
    /// options.
    ///
    /// ```no_run
    /// use std::io::{Read, Write};
    /// use uverbs_streams::RdmaStream;
    ///
    /// let mut stream = RdmaStream::connect("storage.example:7471")?;
    /// stream.write_all(b"hello")?;
    /// stream.shutdown(std::net::Shutdown::Write)?;
    /// let mut answer = String::new();
    /// stream.read_to_string(&mut answer)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`StreamOptions::connect`].
    #[doc(alias = "rconnect")]
    pub fn connect(addr: impl ToSocketAddrs) -> io::Result<Self> {
        StreamOptions::new().connect(addr)
    }

    /// The peer's address.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] where the connection manager knew none.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.peer.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// This side's address.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] where the connection manager knew none.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.local.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Ends one direction or both, and waits until the peer's memory has all that was written. Of a
    /// nonblocking stream it only begins: [`is_flushed`](Self::is_flushed) tells.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] of one that has ended; [`io::ErrorKind::TimedOut`] after the
    /// timeout for writes; the stream's own end.
    #[doc(alias = "rshutdown")]
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.waiting.run(Limit::Now, |engine| engine.shutdown(how).map(Some))?;
        if self.timeouts.is_nonblocking() {
            return Ok(());
        }
        self.waiting
            .run(self.timeouts.write_limit(), |engine| Ok(engine.is_flushed().then_some(())))
    }

    /// True if the peer's memory has all written bytes.
    ///
    /// # Errors
    ///
    /// The device's error.
    pub fn is_flushed(&self) -> io::Result<bool> {
        let done = self.waiting.run(Limit::Now, |engine| Ok(engine.is_flushed().then_some(())));
        match done {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            other => other.map(|()| true),
        }
    }

    /// If `nonblocking`, reads and writes that would wait fail with [`io::ErrorKind::WouldBlock`]
    /// instead. The file ([`AsFd`]) becomes readable when a retry makes sense, also of a write.
    ///
    /// # Errors
    ///
    /// None; as [`std::net::TcpStream::set_nonblocking`] it may get some.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.timeouts.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Sets the time limit of reads; `None`, the default, is unlimited. A read that exceeds it
    /// fails with [`io::ErrorKind::TimedOut`].
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for no time at all, as of sockets.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.timeouts.set_read(limit)
    }

    /// Sets the time limit of writes and [`shutdown`](Self::shutdown); `None`, the default, is
    /// unlimited. A call that exceeds it fails with [`io::ErrorKind::TimedOut`].
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for no time at all, as of sockets.
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.timeouts.set_write(limit)
    }

    /// Time limit of reads.
    #[must_use]
    pub fn read_timeout(&self) -> Option<Duration> {
        self.timeouts.read()
    }

    /// Time limit of writes.
    #[must_use]
    pub fn write_timeout(&self) -> Option<Duration> {
        self.timeouts.write()
    }

    /// Reads available bytes, and never waits, nonblocking or not.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] where nothing is; as reads.
    #[doc(alias = "MSG_DONTWAIT")]
    pub fn try_read(&self, to: &mut [u8]) -> io::Result<usize> {
        self.waiting.run(Limit::Now, |engine| engine.read(to))
    }

    /// Copies available bytes without consuming them: the next read returns them again. Waits as a
    /// read does.
    ///
    /// # Errors
    ///
    /// As reads.
    #[doc(alias = "MSG_PEEK")]
    pub fn peek(&self, to: &mut [u8]) -> io::Result<usize> {
        self.waiting.run(self.timeouts.read_limit(), |engine| engine.peek(to))
    }

    /// [`peek`](Self::peek) that never waits, nonblocking or not.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] where nothing is; as reads.
    pub fn try_peek(&self, to: &mut [u8]) -> io::Result<usize> {
        self.waiting.run(Limit::Now, |engine| engine.peek(to))
    }

    /// Writes as much as may go, and never waits, nonblocking or not.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] where nothing may; as writes.
    #[doc(alias = "MSG_DONTWAIT")]
    pub fn try_write(&self, from: &[u8]) -> io::Result<usize> {
        self.waiting.run(Limit::Now, |engine| engine.write(from))
    }

    /// [`write_at`](Self::write_at) that never waits, nonblocking or not.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] where nothing may go; as [`write_at`](Self::write_at).
    pub fn try_write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        self.waiting.run(Limit::Now, |engine| engine.write_at(from, offset))
    }

    /// Returns which of the wanted directions are ready: a read or a write wouldn't wait. If none
    /// is, the file ([`AsFd`]) becomes readable when another check makes sense.
    ///
    /// # Errors
    ///
    /// The device's error.
    #[doc(alias = "rpoll")]
    pub fn ready(&self, wanted: Ready) -> io::Result<Ready> {
        match self.waiting.run(Limit::Now, |engine| engine.ready(wanted)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Ready::default()),
            other => other,
        }
    }

    /// Ready directions as of [`ready`](Self::ready), by a look at completions alone: without a
    /// system call, and without arming. The file stays as it is, so a program that finds no stream
    /// ready calls `ready` before it sleeps. A peer whose process or host is gone is noticed by
    /// `ready` alone.
    ///
    /// # Errors
    ///
    /// As [`ready`](Self::ready).
    pub fn glance(&self, wanted: Ready) -> io::Result<Ready> {
        self.waiting.glance(|engine| engine.ready(wanted)).map(Option::unwrap_or_default)
    }

    /// True if both directions have ended, and all received bytes were read.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.waiting.look(|engine| engine.is_over())
    }

    /// Sends keep-alives at this interval from now on; `None` stops them.
    /// [`StreamOptions::keep_alive`] sets them from the start, with one thread for many streams.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for less than a millisecond; the system's error if it can't
    /// start a thread.
    #[doc(alias = "SO_KEEPALIVE")]
    pub fn set_keep_alive(&self, every: Option<Duration>) -> io::Result<()> {
        let kept = match every {
            Some(every) => {
                StreamOptions::new().keep_alive(every).check()?;
                Some(Arc::new(KeepAlives::new(every)).keep(&self.waiting)?)
            }
            None => None,
        };
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        Ok(())
    }

    /// Counter that changes whenever a call has processed an event of the peer or of the device. If
    /// two tasks share the file, the task that finds it changed wakes the other task.
    #[must_use]
    pub fn activity(&self) -> u64 {
        self.waiting.look(|engine| engine.activity())
    }

    /// Offers the peer `len` bytes of memory at offsets from `offset` on. The peer writes there
    /// without action of this side ([`write_at`](Self::write_at)), until the last handle is
    /// dropped; the stream holds a handle until its end.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::QuotaExceeded`] where the peer has no room for another mapping
    /// ([`StreamOptions::mappings`]); [`io::ErrorKind::InvalidInput`] for more than 4 GiB; as
    /// writes.
    #[doc(alias = "riomap")]
    pub fn map(&self, len: usize, offset: u64) -> io::Result<ExposedMemory> {
        let fits = u32::try_from(len).is_ok();
        if !fits {
            let (value, limit) = (len as u64, u32::MAX.into());
            return Err(Error::Limit { verb: "map", what: "length", value, limit }.into());
        }
        let pd = self.waiting.look(|engine| engine.domain.pd.clone());
        let memory = pd.expose(len, AccessFlags::REMOTE_WRITE)?;
        let mut offered = Some(Mapped::Exposed(memory.clone()));
        self.waiting
            .run(self.timeouts.write_limit(), |engine| engine.offer(&mut offered, offset))?;
        Ok(memory)
    }

    /// [`map`](Self::map) of memory that is the program's own.
    ///
    /// # Safety
    ///
    /// The memory stays mapped, and nothing holds a reference to it, until [`unmap`](Self::unmap)
    /// took it back or the stream was dropped: the peer writes to it at any time.
    ///
    /// # Errors
    ///
    /// As [`map`](Self::map); as registering memory.
    #[doc(alias = "riomap")]
    pub unsafe fn map_at(&self, addr: *mut u8, len: usize, offset: u64) -> io::Result<()> {
        let pd = self.waiting.look(|engine| engine.domain.pd.clone());
        let access = AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE;
        if u32::try_from(len).is_err() {
            let (value, limit) = (len as u64, u32::MAX.into());
            return Err(Error::Limit { verb: "map_at", what: "length", value, limit }.into());
        }
        // SAFETY: the caller upholds this function's contract; the stream deregisters it in
        // `unmap`, or before it is gone.
        let region = unsafe { pd.register(addr, len, access) }?;
        let mut offered = Some(Mapped::Region(region));
        self.waiting.run(self.timeouts.write_limit(), |engine| engine.offer(&mut offered, offset))
    }

    /// Takes back memory that was mapped, by its address and length. The peer isn't told, as of
    /// rsocket's: a later write of its there ends the stream, once the memory has no other owner.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for an address that isn't mapped; `EBUSY` while a
    /// memory window uses the region.
    #[doc(alias = "riounmap")]
    pub fn unmap(&self, addr: u64, len: usize) -> io::Result<()> {
        match self.waiting.look(|engine| engine.take_back(addr, len)) {
            Some(Mapped::Region(region)) => region.deregister().map_err(|refused| {
                let (error, object) = refused.into_parts();
                self.waiting.look(|engine| engine.keep_offered(Mapped::Region(object)));
                error.into()
            }),
            Some(Mapped::Exposed(_)) => Ok(()),
            None => {
                let why = format!("no {len} bytes are mapped at {addr:#x}");
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }

    /// Writes into the peer's mapped memory from `offset` on, and returns the number of bytes
    /// written. The peer gets no message: the bytes appear in its memory, in the order of the
    /// writes.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] where the peer has mapped nothing, which may be because its
    /// message isn't here yet; as writes.
    #[doc(alias = "riowrite")]
    pub fn write_at(&self, from: &[u8], offset: u64) -> io::Result<usize> {
        self.waiting.run(self.timeouts.write_limit(), |engine| engine.write_at(from, offset))
    }
}

impl Read for &RdmaStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.waiting.run(self.timeouts.read_limit(), |engine| engine.read(to))
    }
}

impl Write for &RdmaStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        self.waiting.run(self.timeouts.write_limit(), |engine| engine.write(from))
    }

    /// There is nothing to flush: a write goes when it is called.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for RdmaStream {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        (&*self).read(to)
    }
}

impl Write for RdmaStream {
    fn write(&mut self, from: &[u8]) -> io::Result<usize> {
        (&*self).write(from)
    }

    /// There is nothing to flush: a write goes when it is called.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Readable when a nonblocking read or write that failed is worth another try.
impl AsFd for RdmaStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiting.as_fd()
    }
}

impl RdmaStream {
    /// Sends the farewell to a connected peer.
    fn part(&self) {
        // A peer that has yet to confirm would take the end for a refusal.
        let _ = self.waiting.run(Limit::Within(self.limit.min(CONFIRMATION)), |engine| {
            Ok((engine.is_closed() || engine.is_established()).then_some(()))
        });
        // An unconfirmed peer was sent no bytes.
        if self.waiting.look(|engine| engine.is_closed() || !engine.is_established()) {
            return;
        }
        let limit = Limit::Within(self.limit);
        // If the farewell can't be sent, the connection's end tells the peer.
        let _ = self.waiting.run(Limit::Now, |engine| engine.shutdown(Shutdown::Both).map(Some));
        let _ = self.waiting.run(limit, |engine| Ok(engine.is_flushed().then_some(())));
    }
}

impl Drop for RdmaStream {
    fn drop(&mut self) {
        // A forked child has copies of the queues, and must not touch them.
        if !self.waiting.is_own() {
            return;
        }
        self.part();
        // The thread of keep-alives may have the rest for a while yet; the memory is the program's.
        drop(self.waiting.look(|engine| engine.take_all_back()));
    }
}
