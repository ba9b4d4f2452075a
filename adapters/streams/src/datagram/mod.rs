//! Datagrams: [`RdmaDatagram`], as programs have it.
//!
//! | file | what |
//! |---|---|
//! | `engine` | the socket, without waiting |
//! | `peers` | where each peer's queue pair is |
//! | `local` | one own address: a device and a queue pair |
//! | `wire` | bytes of messages |

mod engine;
mod local;
mod peers;
mod wire;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use uverbs::Error;
use uverbs::cm::EventChannel;

use self::engine::Engine;
use super::Ready;
use super::options::{StreamOptions, no_address};
use super::timeouts::Timeouts;
use super::waiting::{Limit, Waiting};

/// A datagram socket between programs, like [`std::net::UdpSocket`], over RDMA's unreliable
/// datagrams, by rsocket's protocol (`SOCK_DGRAM`).
///
/// ```
/// use uverbs_streams::StreamOptions;
///
/// let device = uverbs::device("softhca@loopback")?; // of the kernel's: `RdmaDatagram::bind`
/// let options = StreamOptions::new().on(&device);
/// let server = options.datagrams("0.0.0.0:0")?;
/// let client = options.datagrams("0.0.0.0:0")?;
/// client.connect(server.local_addr()?)?;
/// client.send(b"hello")?;
/// let mut room = [0; 64];
/// let (len, from) = server.recv_from(&mut room)?;
/// assert_eq!((&room[..len], from), (&b"hello"[..], client.local_addr()?));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Datagrams can be lost, as on UDP sockets: if the receiver has no room, or the network drops
/// them. They may overtake one another while a peer is new. A datagram is one packet: its maximum
/// is the port's MTU less rsocket's header of 8 bytes (IPv6: 24), and 2,032 bytes (2,020) in any
/// case.
///
/// *How it works.* The socket has a UDP port of the same address. It sends its first datagrams
/// there, until the peer has announced its queue pair. This side checks that port whenever it reads
/// or sends, so it needs no thread; a program that does neither answers no new peer. A socket bound
/// to an unspecified address has a queue pair for each local address that it has sent from.
///
/// *Security.* The sender of a datagram is not authenticated, as with rsocket and UDP.
///
/// Any number of threads may use it at once.
#[derive(Debug)]
pub struct RdmaDatagram {
    waiting: Waiting<Engine>,
    timeouts: Timeouts,
    /// Time limit for sent datagrams when the socket is dropped.
    limit: Duration,
}

impl StreamOptions {
    /// A socket of datagrams at the first of these addresses that can be; a port of 0 is one that
    /// the system chooses. Of a device on the loopback network, which no route leads to, an
    /// unspecified address is the device's own. The buffers and queues count for each own address;
    /// each datagram takes 2 KiB of a buffer.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`], [`io::ErrorKind::AddrNotAvailable`] and others that sockets
    /// have, also where no RDMA device has the address; [`io::ErrorKind::InvalidInput`] for options
    /// over their limits; [`Error::Unsupported`] for a device that has no datagrams (iWARP).
    #[doc(alias = "SOCK_DGRAM")]
    pub fn datagrams(&self, addr: impl ToSocketAddrs) -> io::Result<RdmaDatagram> {
        self.check()?;
        let mut last = None;
        for addr in addr.to_socket_addrs()? {
            let addr = self.on_loopback(addr)?;
            match RdmaDatagram::at(self.channel()?, addr, self) {
                Ok(socket) => return Ok(socket),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(no_address))
    }

    /// The address of a device on the loopback network in place of an unspecified one.
    fn on_loopback(&self, addr: SocketAddr) -> Result<SocketAddr, Error> {
        let Some(device) = self.device.as_ref().filter(|_| addr.ip().is_unspecified()) else {
            return Ok(addr);
        };
        let mut own = device.addresses()?.into_iter();
        let own = own.find(|ip| ip.is_loopback() && ip.is_ipv4() == addr.is_ipv4());
        Ok(own.map_or(addr, |ip| SocketAddr::new(ip, addr.port())))
    }
}

impl RdmaDatagram {
    fn at(channel: EventChannel, addr: SocketAddr, options: &StreamOptions) -> io::Result<Self> {
        let waiting = Waiting::new(Engine::new(channel, addr, options.sizes)?)?;
        Ok(Self { waiting, timeouts: Timeouts::default(), limit: options.limit })
    }

    /// A socket at the first of these addresses that can be. [`StreamOptions::datagrams`] has
    /// options.
    ///
    /// ```no_run
    /// use uverbs_streams::RdmaDatagram;
    ///
    /// let socket = RdmaDatagram::bind("10.0.0.2:7174")?;
    /// socket.send_to(b"hello", "10.0.0.1:7174")?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`StreamOptions::datagrams`].
    #[doc(alias = "rbind")]
    pub fn bind(addr: impl ToSocketAddrs) -> io::Result<Self> {
        StreamOptions::new().datagrams(addr)
    }

    /// Sets the destination of [`send`](Self::send): the first of these addresses with a route from
    /// a local one. As with rsocket, and unlike UDP, datagrams of others are still received.
    ///
    /// # Errors
    ///
    /// The system's error if no route or no RDMA device leads there.
    #[doc(alias = "rconnect")]
    pub fn connect(&self, addr: impl ToSocketAddrs) -> io::Result<()> {
        let mut last = None;
        for addr in addr.to_socket_addrs()? {
            match self.waiting.look(|engine| engine.connect(addr)) {
                Ok(()) => return Ok(()),
                Err(error) => last = Some(error),
            }
        }
        Err(last.unwrap_or_else(no_address))
    }

    /// Sends a datagram to the first of these addresses. Waits for a free work request as long as
    /// it takes, unless it has a [timeout](Self::set_write_timeout) or is
    /// [nonblocking](Self::set_nonblocking).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] with [`Error::Limit`](uverbs::Error::Limit) for a datagram
    /// that is too long; [`io::ErrorKind::WouldBlock`], [`io::ErrorKind::TimedOut`]; the system's
    /// error if no route leads there; a [`StreamError`](super::StreamError) with the cause if the
    /// queue pair broke.
    #[doc(alias = "rsendto")]
    pub fn send_to(&self, bytes: &[u8], to: impl ToSocketAddrs) -> io::Result<()> {
        let to = to.to_socket_addrs()?.next().ok_or_else(no_address)?;
        self.send_within(bytes, to, self.timeouts.write_limit())
    }

    /// [`send_to`](Self::send_to) that never waits, nonblocking or not.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] where nothing may go; as [`send_to`](Self::send_to).
    #[doc(alias = "MSG_DONTWAIT")]
    pub fn try_send_to(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        self.send_within(bytes, to, Limit::Now)
    }

    fn send_within(&self, bytes: &[u8], to: SocketAddr, limit: Limit) -> io::Result<()> {
        self.waiting.run(limit, |engine| engine.send(bytes, to))
    }

    /// Sends a datagram to the address that it was [connected](Self::connect) to.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`]; as [`send_to`](Self::send_to).
    #[doc(alias = "rsend")]
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_within(bytes, self.peer_addr()?, self.timeouts.write_limit())
    }

    /// Receives a datagram: its length, and its sender's address. Bytes beyond `to` are lost. Waits
    /// for one as long as it takes, unless it has a [timeout](Self::set_read_timeout) or is
    /// [nonblocking](Self::set_nonblocking).
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`], [`io::ErrorKind::TimedOut`]; a
    /// [`StreamError`](super::StreamError) with the cause if a queue pair broke.
    #[doc(alias = "rrecvfrom")]
    pub fn recv_from(&self, to: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.waiting.run(self.timeouts.read_limit(), |engine| engine.read(to, false))
    }

    /// [`recv_from`](Self::recv_from) that never waits, nonblocking or not.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] where none is there; as [`recv_from`](Self::recv_from).
    #[doc(alias = "MSG_DONTWAIT")]
    pub fn try_recv_from(&self, to: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.waiting.run(Limit::Now, |engine| engine.read(to, false))
    }

    /// Receives a datagram, from whomever.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from).
    #[doc(alias = "rrecv")]
    pub fn recv(&self, to: &mut [u8]) -> io::Result<usize> {
        self.recv_from(to).map(|(len, _)| len)
    }

    /// [`recv_from`](Self::recv_from) without consuming the datagram.
    ///
    /// # Errors
    ///
    /// As [`recv_from`](Self::recv_from).
    #[doc(alias = "MSG_PEEK")]
    pub fn peek_from(&self, to: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.waiting.run(self.timeouts.read_limit(), |engine| engine.read(to, true))
    }

    /// [`peek_from`](Self::peek_from) that never waits, nonblocking or not.
    ///
    /// # Errors
    ///
    /// As [`try_recv_from`](Self::try_recv_from).
    pub fn try_peek_from(&self, to: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.waiting.run(Limit::Now, |engine| engine.read(to, true))
    }

    /// Returns which of the wanted directions are ready: a receive or a send wouldn't wait. If none
    /// is, the file ([`AsFd`]) becomes readable when another check makes sense.
    ///
    /// # Errors
    ///
    /// The device's error.
    #[doc(alias = "rpoll")]
    pub fn ready(&self, wanted: Ready) -> io::Result<Ready> {
        match self.waiting.run(Limit::Now, |engine| Ok(engine.ready(wanted))) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Ready::default()),
            other => other,
        }
    }

    /// The local address, with the port that the system chose if it was 0.
    ///
    /// # Errors
    ///
    /// None; as [`std::net::UdpSocket::local_addr`] it may get some.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.waiting.look(|engine| engine.own()))
    }

    /// The address that it was connected to.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] for a socket without a peer.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.waiting.look(|engine| engine.peer()).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// If `nonblocking`, calls that would wait fail with [`io::ErrorKind::WouldBlock`] instead. The
    /// file ([`AsFd`]) becomes readable when a retry makes sense, also of a send.
    ///
    /// # Errors
    ///
    /// None; as [`std::net::UdpSocket::set_nonblocking`] it may get some.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.timeouts.set_nonblocking(nonblocking);
        Ok(())
    }

    /// Sets the time limit of receives; `None`, the default, is unlimited. A receive that exceeds
    /// it fails with [`io::ErrorKind::TimedOut`].
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for no time at all, as of sockets.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.timeouts.set_read(limit)
    }

    /// Sets the time limit of sends; `None`, the default, is unlimited. A send that exceeds it
    /// fails with [`io::ErrorKind::TimedOut`].
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for no time at all, as of sockets.
    pub fn set_write_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.timeouts.set_write(limit)
    }

    /// Time limit of receives.
    #[must_use]
    pub fn read_timeout(&self) -> Option<Duration> {
        self.timeouts.read()
    }

    /// Time limit of sends.
    #[must_use]
    pub fn write_timeout(&self) -> Option<Duration> {
        self.timeouts.write()
    }
}

/// Readable when a nonblocking call that failed is worth another try.
impl AsFd for RdmaDatagram {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.waiting.as_fd()
    }
}

impl Drop for RdmaDatagram {
    fn drop(&mut self) {
        // A forked child has copies of the queues, and must not touch them.
        if self.waiting.is_own() {
            // Sent datagrams leave before the queue pair is destroyed (`ds_shutdown`).
            let limit = Limit::Within(self.limit);
            let _ = self.waiting.run(limit, |engine| Ok(engine.is_flushed().then_some(())));
        }
    }
}
