//! Connections between two processes that measure together. Every wait has a limit and ends at
//! Ctrl-C.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::link::verify::Who;

/// TCP port of perftest, of ibv_rc_pingpong, and of this program.
pub(crate) const PORT: u16 = 18515;
/// Longest sleep between two tests for Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);

/// Reason that two processes did not meet, or lost their connection.
#[derive(Debug)]
pub(crate) enum TcpError {
    /// Listening at the port failed.
    Listen { port: u16, error: io::Error },
    /// No client came.
    NoClient { port: u16, waited: Duration },
    /// The host has no address.
    Host { host: String, error: io::Error },
    /// No server answers there.
    Connect { host: String, port: u16, error: io::Error },
    /// The connection broke.
    Broken { peer: Who, error: io::Error },
    /// The peer was silent for too long.
    Silent { peer: Who, limit: Duration },
    /// The peer closed the connection.
    Closed { peer: Who },
    /// Ctrl-C.
    Interrupted,
}

impl fmt::Display for TcpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen { port, error } => {
                write!(f, "listening on TCP port {port}: {error} (--port, on both sides)")
            }
            Self::NoClient { port, waited } => {
                let waited = waited.as_secs_f64();
                write!(f, "no client came to TCP port {port} within {waited} s (--wait)")
            }
            Self::Host { host, error } => write!(f, "looking up {host}: {error}"),
            Self::Connect { host, port, error } if error.kind() == ErrorKind::ConnectionRefused => {
                write!(
                    f,
                    "{host}, TCP port {port}: nobody listens there; start the server first, with \
                     the same --port"
                )
            }
            Self::Connect { host, port, error } => write!(f, "{host}, TCP port {port}: {error}"),
            Self::Broken { peer, error } => write!(f, "the connection to the {peer}: {error}"),
            Self::Silent { peer, limit } => {
                write!(f, "the {peer} said nothing for {} s (--timeout)", limit.as_secs_f64())
            }
            Self::Closed { peer } => {
                write!(f, "the {peer} closed the connection before it was done")
            }
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for TcpError {}

/// Fails after Ctrl-C.
pub(crate) fn check(stop: &AtomicBool) -> Result<(), TcpError> {
    match stop.load(Ordering::Relaxed) {
        true => Err(TcpError::Interrupted),
        false => Ok(()),
    }
}

fn is_again(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Waits until a file is ready, for a tenth of a second at most.
fn pause(
    file: &impl AsFd,
    events: PollFlags,
    left: Duration,
    stop: &AtomicBool,
) -> Result<(), TcpError> {
    check(stop)?;
    // Rounded up, so that the last fraction of a millisecond is slept, not spun.
    let millis = left.min(LOOK).as_millis() as u16 + 1;
    // Errors of poll are ignored: the next access reports them.
    let _ = poll(&mut [PollFd::new(file.as_fd(), events)], PollTimeout::from(millis));
    Ok(())
}

/// Server that waits for its client.
#[derive(Debug)]
pub(crate) struct Listener {
    socket: TcpListener,
}

impl Listener {
    /// Listens on all addresses; port 0 takes a free one.
    pub(crate) fn bind(port: u16) -> Result<Self, TcpError> {
        // An IPv6 socket accepts IPv4, too; a kernel without IPv6 has no such socket.
        let socket = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port))
            .or_else(|error| match error.kind() {
                ErrorKind::AddrInUse | ErrorKind::PermissionDenied => Err(error),
                _ => TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)),
            })
            .and_then(|socket| socket.set_nonblocking(true).map(|()| socket));
        let socket = socket.map_err(|error| TcpError::Listen { port, error })?;
        Ok(Self { socket })
    }

    pub(crate) fn port(&self) -> u16 {
        self.socket.local_addr().map_or(0, |address| address.port())
    }

    /// Accepts the next client within `wait`. `limit` is the time limit of later messages.
    pub(crate) fn accept(
        &self,
        wait: Duration,
        limit: Duration,
        stop: &AtomicBool,
    ) -> Result<Stream, TcpError> {
        let started = Instant::now();
        loop {
            match self.socket.accept() {
                Ok((tcp, _)) => return Stream::new(tcp, Who::Client, limit),
                // The client connected and left.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                Err(error) if is_again(&error) => {}
                Err(error) => return Err(TcpError::Listen { port: self.port(), error }),
            }
            let left = wait.saturating_sub(started.elapsed());
            if left.is_zero() {
                return Err(TcpError::NoClient { port: self.port(), waited: wait });
            }
            pause(&self.socket, PollFlags::POLLIN, left, stop)?;
        }
    }
}

/// TCP connection to the other process.
#[derive(Debug)]
pub(crate) struct Stream {
    tcp: TcpStream,
    pub(crate) peer: Who,
    pub(crate) limit: Duration,
}

impl Stream {
    pub(crate) fn new(tcp: TcpStream, peer: Who, limit: Duration) -> Result<Self, TcpError> {
        let plain = tcp.set_nonblocking(true).and_then(|()| tcp.set_nodelay(true));
        plain.map_err(|error| TcpError::Broken { peer, error })?;
        Ok(Self { tcp, peer, limit })
    }

    /// A connection whose peer has sent `bytes` and sends no more. It needs no TCP port, of which
    /// there are few. Also returns the peer's end, which keeps bytes sent to the peer.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn that_said(bytes: &[u8], peer: Who) -> (Self, std::os::unix::net::UnixStream) {
        use std::os::unix::net::UnixStream;

        let (here, mut there) = UnixStream::pair().expect("descriptors are left");
        // The peer's end sends as much as fits without waiting.
        there.set_nonblocking(true).expect("a socket");
        let _ = there.write_all(bytes);
        there.shutdown(std::net::Shutdown::Write).expect("a socket");
        here.set_nonblocking(true).expect("a socket");
        let tcp = TcpStream::from(std::os::fd::OwnedFd::from(here));
        (Self { tcp, peer, limit: Duration::from_secs(1) }, there)
    }

    /// Connects to a server, by any of its addresses.
    pub(crate) fn connect(host: &str, port: u16, limit: Duration) -> Result<Self, TcpError> {
        let unknown = |error| TcpError::Host { host: host.to_owned(), error };
        let mut last = io::Error::new(ErrorKind::NotFound, "it has no address");
        let started = Instant::now();
        for address in (host, port).to_socket_addrs().map_err(unknown)? {
            let left = limit.saturating_sub(started.elapsed()).max(Duration::from_millis(1));
            match TcpStream::connect_timeout(&address, left) {
                Ok(tcp) => return Self::new(tcp, Who::Server, limit),
                Err(error) => last = error,
            }
        }
        Err(TcpError::Connect { host: host.to_owned(), port, error: last })
    }

    /// Time at which an exchange that begins now must be over.
    pub(crate) fn deadline(&self) -> Instant {
        Instant::now() + self.limit
    }

    /// Sends all bytes, at once if the socket has room.
    pub(crate) fn send(
        &mut self,
        mut bytes: &[u8],
        deadline: Instant,
        stop: &AtomicBool,
    ) -> Result<(), TcpError> {
        while !bytes.is_empty() {
            match self.send_some(bytes)? {
                0 => self.pause(PollFlags::POLLOUT, deadline, stop)?,
                sent => bytes = &bytes[sent..],
            }
        }
        Ok(())
    }

    /// Sends as many bytes as the socket takes at once. Never waits.
    pub(crate) fn send_some(&mut self, bytes: &[u8]) -> Result<usize, TcpError> {
        match self.tcp.write(bytes) {
            Ok(sent) => Ok(sent),
            Err(error) if is_again(&error) => Ok(0),
            Err(error) => Err(self.broken(error)),
        }
    }

    /// Reads available bytes, at most `most`; `false` without bytes. Never waits.
    pub(crate) fn fill(&mut self, to: &mut Vec<u8>, most: usize) -> Result<bool, TcpError> {
        let from = to.len();
        to.resize(from + most, 0);
        let read = self.tcp.read(&mut to[from..]);
        to.truncate(from + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(TcpError::Closed { peer: self.peer }),
            Ok(_) => Ok(true),
            Err(error) if is_again(&error) => Ok(false),
            Err(error) => Err(self.broken(error)),
        }
    }

    /// Waits for readable bytes, until the deadline or a tenth of a second.
    pub(crate) fn wait(&self, deadline: Instant, stop: &AtomicBool) -> Result<(), TcpError> {
        self.pause(PollFlags::POLLIN, deadline, stop)
    }

    fn pause(
        &self,
        events: PollFlags,
        deadline: Instant,
        stop: &AtomicBool,
    ) -> Result<(), TcpError> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(TcpError::Silent { peer: self.peer, limit: self.limit });
        }
        pause(&self.tcp, events, left, stop)
    }

    fn broken(&self, error: io::Error) -> TcpError {
        match error.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                TcpError::Closed { peer: self.peer }
            }
            _ => TcpError::Broken { peer: self.peer, error },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    static NEVER: AtomicBool = AtomicBool::new(false);

    #[test]
    fn a_server_without_a_client_ends() {
        let listener = Listener::bind(0).unwrap();
        let port = listener.port();
        assert!(matches!(Listener::bind(port).unwrap_err(), TcpError::Listen { .. }));
        let started = Instant::now();
        let error = listener.accept(SECOND / 4, SECOND, &NEVER).unwrap_err().to_string();
        assert_eq!(error, format!("no client came to TCP port {port} within 0.25 s (--wait)"));
        assert!(started.elapsed() >= SECOND / 4);
        let stopped = AtomicBool::new(true);
        let listener = Listener::bind(0).unwrap();
        let error = listener.accept(600 * SECOND, SECOND, &stopped).unwrap_err().to_string();
        assert_eq!(error, "interrupted");
    }

    #[test]
    fn a_client_without_a_server_is_told_what_to_do() {
        let free = Listener::bind(0).unwrap().port();
        let error = Stream::connect("127.0.0.1", free, 20 * SECOND).unwrap_err();
        assert!(error.to_string().contains("nobody listens there; start the server"), "{error}");
        let error = Stream::connect("no such host", free, 20 * SECOND).unwrap_err();
        assert!(matches!(error, TcpError::Host { .. }), "{error}");
    }
}
