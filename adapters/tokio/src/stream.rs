//! Streams for tasks.
//!
//! # Safety
//!
//! Two calls, which hand a stream's and a listener's file to tokio.
#![allow(unsafe_code, reason = "hands a file to tokio by its number")]

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use uverbs_streams as sync;

use crate::watch::watch;

/// A stream or a listener: its file stays open, with one descriptor, as long as it lives.
#[derive(Debug)]
struct File<T>(T);

impl<T: AsFd> AsRawFd for File<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_fd().as_raw_fd()
    }
}

/// The tasks that wait at a stream: one that reads, one that writes. The file signals both at once,
/// so both are woken.
#[derive(Debug, Default)]
struct Sleepers([Mutex<Option<Waker>>; 2]);

impl Sleepers {
    fn set(&self, at: usize, waker: &Waker) {
        let mut place = self.0[at].lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *place {
            Some(known) => known.clone_from(waker),
            None => *place = Some(waker.clone()),
        }
    }

    fn wake_one(&self, at: usize) {
        let waker = self.0[at].lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Wake for Sleepers {
    fn wake(self: Arc<Self>) {
        self.wake_one(READER);
        self.wake_one(WRITER);
    }
}

const READER: usize = 0;
const WRITER: usize = 1;

/// A stream for tasks: [`AsyncRead`] and [`AsyncWrite`], as [`tokio::net::TcpStream`] has them. One
/// task may read while another writes ([`tokio::io::split`]).
///
/// `shutdown` ends this side's direction, and is done when the peer's memory has all that was
/// written. Without it, dropping the stream waits for that, and holds up its thread meanwhile.
#[derive(Debug)]
pub struct RdmaStream {
    file: AsyncFd<File<sync::RdmaStream>>,
    sleepers: Arc<Sleepers>,
    /// Waker for tokio's reactor, which wakes the sleepers.
    waker: Waker,
    shut: bool,
}

impl RdmaStream {
    /// Connects, on a thread for work that blocks.
    ///
    /// ```no_run
    /// # async fn f() -> std::io::Result<()> {
    /// use tokio::io::AsyncWriteExt;
    /// use uverbs_streams::StreamOptions;
    /// use uverbs_tokio::RdmaStream;
    ///
    /// let options = StreamOptions::new();
    /// let mut stream = RdmaStream::connect(&options, "10.0.0.1:7471".parse().unwrap()).await?;
    /// stream.write_all(b"hello").await?;
    /// stream.shutdown().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`StreamOptions::connect`](sync::StreamOptions::connect).
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime, or in one without I/O, as all that tokio watches.
    pub async fn connect(options: &sync::StreamOptions, addr: SocketAddr) -> io::Result<Self> {
        let options = options.clone();
        let connected = tokio::task::spawn_blocking(move || options.connect(addr)).await;
        Self::new(connected.map_err(io::Error::other)??)
    }

    /// Watches a stream on the current runtime. It becomes nonblocking.
    ///
    /// # Errors
    ///
    /// Where tokio can't watch it.
    ///
    /// # Panics
    ///
    /// As [`connect`](Self::connect).
    pub fn new(stream: sync::RdmaStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        // SAFETY: a stream has one file, and keeps it open.
        let file = unsafe { watch(File(stream), "watching a stream") }?;
        let sleepers = Arc::<Sleepers>::default();
        let waker = Waker::from(Arc::clone(&sleepers));
        Ok(Self { file, sleepers, waker, shut: false })
    }

    /// The stream itself.
    #[must_use]
    pub fn inner(&self) -> &sync::RdmaStream {
        &self.file.get_ref().0
    }

    /// Runs `attempt`, or has this task woken when another try may succeed.
    fn poll<T>(
        &self,
        who: usize,
        context: &Context<'_>,
        mut attempt: impl FnMut(&sync::RdmaStream) -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let stream = self.inner();
        // Registered before the attempt: an event that another task takes from here on wakes this
        // one.
        self.sleepers.set(who, context.waker());
        let before = stream.activity();
        let done = loop {
            match attempt(stream) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => break Poll::Ready(done),
            }
            match self.file.poll_read_ready(&mut Context::from_waker(&self.waker)) {
                Poll::Ready(Ok(mut ready)) => ready.clear_ready(),
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
        };
        if stream.activity() != before {
            // This task may have consumed the event that the other task waits for; the file won't
            // report it again.
            self.sleepers.wake_one(1 - who);
        }
        done
    }
}

impl AsyncRead for RdmaStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = to.initialize_unfilled();
        let done = self.poll(READER, context, |mut stream| stream.read(room));
        done.map_ok(|count| to.advance(count))
    }
}

impl AsyncWrite for RdmaStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll(WRITER, context, |mut stream| stream.write(from))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.shut {
            self.shut = true;
            match self.inner().shutdown(Shutdown::Write) {
                Ok(()) => {}
                // The peer ended both directions before.
                Err(error) if error.kind() == io::ErrorKind::NotConnected => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        self.poll(WRITER, context, |stream| match stream.is_flushed()? {
            true => Ok(()),
            false => Err(io::ErrorKind::WouldBlock.into()),
        })
    }
}

/// Waits for streams, as [`tokio::net::TcpListener`] does.
#[derive(Debug)]
pub struct RdmaListener {
    file: AsyncFd<File<sync::RdmaListener>>,
}

impl RdmaListener {
    /// Watches a listener on the current runtime. It becomes nonblocking.
    ///
    /// # Errors
    ///
    /// Where tokio can't watch it.
    ///
    /// # Panics
    ///
    /// As [`RdmaStream::connect`].
    pub fn new(listener: sync::RdmaListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        // SAFETY: a listener's id keeps its channel and the channel its file, which is one.
        let file = unsafe { watch(File(listener), "watching a listener") }?;
        Ok(Self { file })
    }

    /// The listener itself.
    #[must_use]
    pub fn inner(&self) -> &sync::RdmaListener {
        &self.file.get_ref().0
    }

    /// The next stream, and its peer's address.
    ///
    /// # Errors
    ///
    /// As [`RdmaListener::accept`](sync::RdmaListener::accept).
    pub async fn accept(&self) -> io::Result<(RdmaStream, SocketAddr)> {
        loop {
            let mut ready = self.file.readable().await?;
            match ready.get_inner().0.accept() {
                Ok((stream, peer)) => return Ok((RdmaStream::new(stream)?, peer)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) => return Err(error),
            }
        }
    }
}
