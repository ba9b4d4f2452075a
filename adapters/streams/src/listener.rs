//! Listening for streams.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use uverbs::Error;
use uverbs::cm::{ConnectionRequest, Listener};

use super::RdmaStream;
use super::endpoint::{Domain, Parts, hello};
use super::options::{StreamOptions, no_address};

/// Waits for streams at an address, as [`std::net::TcpListener`] does.
///
/// Dropping it refuses the pending requests.
#[derive(Debug)]
pub struct RdmaListener {
    listener: Listener,
    options: StreamOptions,
    nonblocking: AtomicBool,
    /// The device that the last request came by.
    domain: Mutex<Option<Arc<Domain>>>,
}

impl StreamOptions {
    /// Listens at the first of these addresses that can be.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`], [`io::ErrorKind::AddrNotAvailable`] and others that sockets
    /// have; [`io::ErrorKind::InvalidInput`] for options over their limits.
    pub fn listen(&self, addr: impl ToSocketAddrs) -> io::Result<RdmaListener> {
        self.check()?;
        let mut last = None;
        for addr in addr.to_socket_addrs()? {
            let builder = Listener::builder(addr).backlog(self.backlog).limit(self.limit);
            let builder = if self.v6_only { builder.v6_only() } else { builder };
            match self.channel().and_then(|channel| builder.listen_on(channel)) {
                Ok(listener) => return Ok(RdmaListener::new(listener, self.clone())),
                Err(error) => last = Some(error.into()),
            }
        }
        Err(last.unwrap_or_else(no_address))
    }
}

impl RdmaListener {
    fn new(listener: Listener, options: StreamOptions) -> Self {
        let (nonblocking, domain) = Default::default();
        Self { listener, options, nonblocking, domain }
    }

    /// Listens at the first of these addresses that can be. [`StreamOptions::listen`] has options.
    ///
    /// # Errors
    ///
    /// As [`StreamOptions::listen`].
    #[doc(alias = "rlisten")]
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        StreamOptions::new().listen(addr)
    }

    /// Returns the next stream, and its peer's address. Waits as long as it takes; for a wait with
    /// a limit, poll the file ([`AsFd`]).
    ///
    /// The library refuses peers that don't speak the protocol, without an error here. The peer of
    /// the stream may have confirmed nothing yet, and may never do so: reads and writes of the
    /// stream find out, so it delays no other stream.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] for a nonblocking listener; the error that kept this side from
    /// accepting, after which the peer is refused.
    #[doc(alias = "raccept")]
    pub fn accept(&self) -> io::Result<(RdmaStream, SocketAddr)> {
        self.accept_with(&self.options)
    }

    /// [`accept`](Self::accept) with options for this stream.
    ///
    /// # Errors
    ///
    /// As [`accept`](Self::accept); [`io::ErrorKind::InvalidInput`] for options over their limits.
    pub fn accept_with(&self, options: &StreamOptions) -> io::Result<(RdmaStream, SocketAddr)> {
        options.check()?;
        loop {
            let request = if self.nonblocking.load(Ordering::Relaxed) {
                self.listener.try_next()?.ok_or(io::ErrorKind::WouldBlock)?
            } else {
                match self.listener.next(Duration::from_secs(3600)) {
                    Err(Error::TimedOut { .. }) => continue,
                    other => other?,
                }
            };
            if let Some(stream) = self.answer(request, options)? {
                let peer = stream.peer_addr()?;
                return Ok((stream, peer));
            }
        }
    }

    /// Accepts, if the peer is one to be accepted.
    fn answer(
        &self,
        request: ConnectionRequest,
        options: &StreamOptions,
    ) -> io::Result<Option<RdmaStream>> {
        let Ok(hello) = hello(request.private_data()) else { return Ok(None) };
        // A request that fails here or below belongs to a peer that is gone, so it isn't an error.
        let Some(domain) = self.domain(&request)? else { return Ok(None) };
        let (parts, mut qp) = Parts::new(&domain, &options.sizes)?;
        if request.init(&mut qp).is_err() {
            return Ok(None);
        }
        parts.expect(&mut qp)?;
        match request.begin_accept(qp, &parts.param()) {
            Ok(connection) => RdmaStream::new(parts, connection, &hello, options).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The device that the request came by, which stays open; `None` where the request fails.
    fn domain(&self, request: &ConnectionRequest) -> io::Result<Option<Arc<Domain>>> {
        // A request without a device belongs to a peer that is gone.
        if request.device().is_err() {
            return Ok(None);
        }
        let domain = Domain::of(request.id())?;
        let mut last = self.domain.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(Some(Arc::clone(last.insert(domain))))
    }

    /// The streams that come, one after the other, without end.
    pub fn incoming(&self) -> impl Iterator<Item = io::Result<RdmaStream>> + '_ {
        std::iter::repeat_with(|| self.accept().map(|(stream, _)| stream))
    }

    /// The address that it listens at: with the port that the system chose, if it was 0.
    ///
    /// # Errors
    ///
    /// `ENXIO` of a removed device.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()?.ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
    }

    /// If `nonblocking`, [`accept`](Self::accept) fails with [`io::ErrorKind::WouldBlock`] instead
    /// of waiting. Accepted streams are unaffected.
    ///
    /// # Errors
    ///
    /// None; as [`std::net::TcpListener::set_nonblocking`] it may get some.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
        Ok(())
    }
}

/// Readable while a request may be there.
impl AsFd for RdmaListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}
