//! The exchange of addresses over TCP, in the order of `ibv_rc_pingpong`: the client writes its address, the server
//! connects its queue pair and writes its own, the client answers `done`, and the connection is closed
//! (`rc_pingpong.c:pp_client_exch_dest`, `pp_server_exch_dest`). Every wait has a limit.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::address::{Address, AddressError, LEN};

/// What the client ends with: a C string.
const DONE: [u8; 5] = *b"done\0";

/// Why there was no exchange.
#[derive(Debug)]
pub(crate) enum ExchangeError {
    /// The port can't be listened to.
    Listen { port: u16, error: io::Error },
    /// No client came.
    NoClient { waited: Duration },
    /// The host has no address.
    Host { host: String, error: io::Error },
    /// Nobody answers there.
    Connect { host: String, port: u16, error: io::Error },
    /// The connection broke.
    Broken { what: &'static str, error: io::Error },
    /// The peer said nothing for too long, or too little.
    Silent { what: &'static str, bytes: usize, of: usize, waited: Duration },
    /// The peer closed the connection.
    Closed { what: &'static str, bytes: usize, of: usize },
    /// What the peer sent is no address.
    Address(AddressError),
    /// What the peer sent in the end is not `done`.
    NotDone { found: Vec<u8> },
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { port, error } => {
                write!(
                    f,
                    "listening to TCP port {port}: {error} (another with --port, on both sides)"
                )
            }
            Self::NoClient { waited } => {
                write!(f, "no client came within {:.1} s (--wait)", waited.as_secs_f64())
            }
            Self::Host { host, error } => write!(f, "looking up {host}: {error}"),
            Self::Connect { host, port, error } => write!(
                f,
                "connecting to {host} TCP port {port}: {error} (start the server first, with the same --port)"
            ),
            Self::Broken { what, error } => write!(f, "{what}: {error}"),
            Self::Silent { what, bytes, of, waited } => write!(
                f,
                "{what} did not come within {:.3} s (--timeout): {bytes} bytes of {of}",
                waited.as_secs_f64()
            ),
            Self::Closed { what, bytes, of } => {
                write!(f, "the peer closed the connection before {what}: {bytes} bytes of {of}")
            }
            Self::Address(error) => {
                write!(f, "the peer doesn't speak as ibv_rc_pingpong does: {error}")
            }
            Self::NotDone { found } => write!(
                f,
                "the peer doesn't speak as ibv_rc_pingpong does: `{}` in place of `done`",
                found.escape_ascii()
            ),
        }
    }
}

impl std::error::Error for ExchangeError {}

/// A server that waits for its client.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
}

impl Listener {
    /// Listens to a port on all addresses; 0 takes a free one.
    pub(crate) fn bind(port: u16) -> Result<Self, ExchangeError> {
        // A socket for IPv6 takes IPv4, too, where the machine has both.
        let socket = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|error| match error.kind() {
                ErrorKind::AddrInUse | ErrorKind::PermissionDenied => Err(error),
                _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
            })
            .map_err(|error| ExchangeError::Listen { port, error })?;
        Ok(Self { socket })
    }

    /// The port that it got.
    #[cfg(test)]
    pub(crate) fn port(&self) -> u16 {
        self.socket.local_addr().unwrap().port()
    }

    /// Waits for a client, and closes the door behind it. `limit` is the time that each of its messages may take.
    pub(crate) fn accept(self, wait: Duration, limit: Duration) -> Result<Peer, ExchangeError> {
        let started = Instant::now();
        let broken = |error| ExchangeError::Broken { what: "waiting for a client", error };
        self.socket.set_nonblocking(true).map_err(broken)?;
        loop {
            match self.socket.accept() {
                Ok((stream, _)) => {
                    // Linux doesn't hand this on to an accepted socket, others do.
                    stream.set_nonblocking(false).map_err(broken)?;
                    return Peer::new(stream, limit);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::Interrupted => {}
                    // It came and went.
                    ErrorKind::ConnectionAborted => {}
                    _ => return Err(broken(error)),
                },
            }
            let waited = started.elapsed();
            let Some(left) = wait.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Err(ExchangeError::NoClient { waited });
            };
            // Rounded up, so that the last fraction of a millisecond is slept and not spun away.
            let millis = u32::try_from(left.as_millis() + 1).unwrap_or(u32::MAX);
            let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
            match poll(&mut [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)], timeout) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(broken(errno.into())),
            }
        }
    }
}

/// A connection to the other side.
#[derive(Debug)]
pub(crate) struct Peer {
    stream: TcpStream,
    limit: Duration,
}

impl Peer {
    fn new(stream: TcpStream, limit: Duration) -> Result<Self, ExchangeError> {
        let set = stream.set_write_timeout(Some(limit));
        set.map_err(|error| ExchangeError::Broken { what: "the connection", error })?;
        Ok(Self { stream, limit })
    }

    /// Connects to a server, by any of its addresses.
    pub(crate) fn connect(host: &str, port: u16, limit: Duration) -> Result<Self, ExchangeError> {
        let unknown = |error| ExchangeError::Host { host: host.to_owned(), error };
        let addresses: Vec<SocketAddr> = (host, port).to_socket_addrs().map_err(unknown)?.collect();
        let mut last = io::Error::new(ErrorKind::NotFound, "it has no address");
        let started = Instant::now();
        for address in addresses {
            let left = limit.saturating_sub(started.elapsed()).max(Duration::from_millis(1));
            match TcpStream::connect_timeout(&address, left) {
                Ok(stream) => return Self::new(stream, limit),
                Err(error) => last = error,
            }
        }
        Err(ExchangeError::Connect { host: host.to_owned(), port, error: last })
    }

    /// In one write, since the C program reads once and wants it all.
    fn write(&mut self, what: &'static str, bytes: &[u8]) -> Result<(), ExchangeError> {
        self.stream.write_all(bytes).map_err(|error| ExchangeError::Broken { what, error })
    }

    /// Reads all of `bytes`, however they come.
    fn read(&mut self, what: &'static str, bytes: &mut [u8]) -> Result<(), ExchangeError> {
        let started = Instant::now();
        let (mut got, of) = (0, bytes.len());
        while got < of {
            let waited = started.elapsed();
            let Some(left) = self.limit.checked_sub(waited).filter(|left| !left.is_zero()) else {
                return Err(ExchangeError::Silent { what, bytes: got, of, waited });
            };
            let set = self.stream.set_read_timeout(Some(left));
            set.map_err(|error| ExchangeError::Broken { what, error })?;
            match self.stream.read(&mut bytes[got..]) {
                Ok(0) => return Err(ExchangeError::Closed { what, bytes: got, of }),
                Ok(count) => got += count,
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted => {}
                    ErrorKind::ConnectionReset => {
                        return Err(ExchangeError::Closed { what, bytes: got, of });
                    }
                    _ => return Err(ExchangeError::Broken { what, error }),
                },
            }
        }
        Ok(())
    }

    /// Sends the own address.
    pub(crate) fn write_address(&mut self, address: &Address) -> Result<(), ExchangeError> {
        self.write("sending the own address", &address.encode())
    }

    /// Receives the peer's address.
    pub(crate) fn read_address(&mut self) -> Result<Address, ExchangeError> {
        let mut bytes = [0; LEN];
        self.read("the peer's address", &mut bytes)?;
        Address::decode(&bytes).map_err(ExchangeError::Address)
    }

    /// The client has the server's address.
    pub(crate) fn write_done(mut self) -> Result<(), ExchangeError> {
        self.write("sending `done`", &DONE)
    }

    /// Waits for the client to have it.
    pub(crate) fn read_done(mut self) -> Result<(), ExchangeError> {
        let mut bytes = [0; DONE.len()];
        self.read("the client's `done`", &mut bytes)?;
        if bytes == DONE { Ok(()) } else { Err(ExchangeError::NotDone { found: bytes.to_vec() }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(20);

    fn address(qpn: u32) -> Address {
        Address { lid: 0, qpn, psn: 9, gid: None }
    }

    /// A server that runs `serve` on its one client, and a client that does `call` with the raw connection.
    fn between<T: Send>(
        limit: Duration,
        serve: impl FnOnce(Peer) -> T + Send,
        call: impl FnOnce(TcpStream),
    ) -> T {
        let listener = Listener::bind(0).unwrap();
        let port = listener.port();
        std::thread::scope(|scope| {
            let server = scope.spawn(move || serve(listener.accept(LONG, limit).unwrap()));
            call(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap());
            server.join().unwrap()
        })
    }

    #[test]
    fn both_roles_agree() {
        let listener = Listener::bind(0).unwrap();
        let port = listener.port();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut peer = listener.accept(LONG, LONG).unwrap();
                assert_eq!(peer.read_address().unwrap(), address(1));
                peer.write_address(&address(2)).unwrap();
                peer.read_done().unwrap();
            });
            let mut peer = Peer::connect("localhost", port, LONG).unwrap();
            peer.write_address(&address(1)).unwrap();
            assert_eq!(peer.read_address().unwrap(), address(2));
            peer.write_done().unwrap();
        });
    }

    #[test]
    fn the_bytes_are_the_c_clients() {
        let raw = b"0000:000001:000009:00000000000000000000000000000000\0";
        between(
            LONG,
            |mut peer| {
                assert_eq!(peer.read_address().unwrap(), address(1));
                peer.write_address(&address(2)).unwrap();
                peer.read_done().unwrap();
            },
            |mut stream| {
                stream.write_all(raw).unwrap();
                let mut got = [0; LEN];
                stream.read_exact(&mut got).unwrap();
                assert_eq!(got, address(2).encode());
                stream.write_all(b"done\0").unwrap();
            },
        );
    }

    #[test]
    fn a_peer_that_misbehaves_is_an_error_within_the_limit() {
        let read = |mut peer: Peer| peer.read_address().unwrap_err();
        // Silent, and holding the line until the server has given up.
        let started = Instant::now();
        let error = between(LIMIT, read, |stream| {
            std::thread::sleep(2 * LIMIT);
            drop(stream);
        });
        assert!(matches!(error, ExchangeError::Silent { bytes: 0, of: LEN, .. }), "{error}");
        assert!(started.elapsed() < LONG);
        // A byte at a time: the limit is for the whole message.
        let error = between(LIMIT, read, |mut stream| {
            for _ in 0..8 {
                let _ = stream.write_all(b"0");
                std::thread::sleep(LIMIT / 4);
            }
        });
        assert!(matches!(error, ExchangeError::Silent { .. }), "{error}");
        // Gone.
        let error = between(LONG, read, |mut stream| stream.write_all(b"0012:").unwrap());
        assert!(matches!(error, ExchangeError::Closed { bytes: 5, of: LEN, .. }), "{error}");
        // Another protocol.
        let error = between(LONG, read, |mut stream| {
            stream.write_all(&[b"GET / HTTP/1.1\r\n".as_slice(), &[b'x'; LEN]].concat()).unwrap();
        });
        assert!(matches!(error, ExchangeError::Address(_)), "{error}");
        assert!(error.to_string().contains("ibv_rc_pingpong"), "{error}");
        // Another last word.
        let error = between(
            LONG,
            |peer| peer.read_done().unwrap_err(),
            |mut stream| {
                stream.write_all(b"nope\0").unwrap();
            },
        );
        assert!(matches!(error, ExchangeError::NotDone { .. }), "{error}");
    }

    #[test]
    fn nobody_there_is_an_error() {
        let listener = Listener::bind(0).unwrap();
        let port = listener.port();
        let error = Listener::bind(port).unwrap_err();
        assert!(matches!(error, ExchangeError::Listen { .. }), "{error}");
        let error = listener.accept(LIMIT, LIMIT).unwrap_err();
        assert!(matches!(error, ExchangeError::NoClient { .. }), "{error}");
        let error = Peer::connect("127.0.0.1", port, LONG).unwrap_err();
        assert!(matches!(error, ExchangeError::Connect { .. }), "{error}");
        let error = Peer::connect("no such host", port, LONG).unwrap_err();
        assert!(matches!(error, ExchangeError::Host { .. }), "{error}");
    }
}
