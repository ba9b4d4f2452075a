//! Exchange of addresses with the other process, in the order of `ibv_rc_pingpong`: the client
//! sends its address, the server connects its queue pair and sends its own, the client answers
//! `done`, and the connection is closed (`rc_pingpong.c:pp_client_exch_dest`,
//! `pp_server_exch_dest`).

use std::fmt;
use std::sync::atomic::AtomicBool;

use super::address::{Address, AddressError, LEN};
use crate::base::error::Error;
use crate::base::peer_text::shown;
use crate::link::tcp::{Stream, TcpError};

/// Last message of the client: a C string.
const DONE: [u8; 5] = *b"done\0";

/// Bytes of a [`Way`].
const WAY: usize = 14;

/// XRC receivers of a side: numbers of a target and of a shared receive queue. Only this program
/// sends it; `xsrq_pingpong` has a different exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) target: u32,
    pub(crate) srqn: u32,
}

impl Way {
    /// Both numbers, six digits each, as a C string.
    pub(super) fn encode(self) -> [u8; WAY] {
        let text = format!("{:06x}:{:06x}\0", self.target & 0xff_ffff, self.srqn & 0xff_ffff);
        text.as_bytes().try_into().unwrap_or([0; WAY])
    }

    fn decode(bytes: &[u8; WAY]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.strip_suffix('\0')?;
        let (target, srqn) = text.split_once(':')?;
        let number = |digits: &str| match digits.len() {
            6 => u32::from_str_radix(digits, 16).ok(),
            _ => None,
        };
        Some(Self { target: number(target)?, srqn: number(srqn)? })
    }
}

/// Reason that the exchange failed.
#[derive(Debug)]
pub(super) enum ExchangeError {
    /// Only part of a message came, or none.
    Cut { what: &'static str, bytes: usize, of: usize, error: TcpError },
    /// Malformed address from the peer.
    Address(AddressError),
    /// Malformed [`Way`] from the peer, after its address.
    NoWay { found: Vec<u8> },
    /// The peer's last message is not `done`.
    NotDone { found: Vec<u8> },
    /// The message could not be sent.
    Tcp(TcpError),
}

impl fmt::Display for ExchangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cut { what, bytes, of, error } => {
                write!(f, "{what} did not come ({bytes} bytes of {of}): {error}")
            }
            Self::Address(error) => {
                write!(f, "the peer doesn't speak as ibv_rc_pingpong does: {error}")
            }
            Self::NoWay { found } => write!(
                f,
                "the peer isn't `uverbs pingpong -c XRC`: `{}` in place of its target and queue",
                shown(found)
            ),
            Self::NotDone { found } => write!(
                f,
                "the peer doesn't speak as ibv_rc_pingpong does: `{}` in place of `done`",
                shown(found)
            ),
            Self::Tcp(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ExchangeError {}

impl From<ExchangeError> for Error {
    fn from(error: ExchangeError) -> Self {
        Self::Peer(error.to_string())
    }
}

/// TCP connection to the other side.
#[derive(Debug)]
pub(crate) struct Peer<'a> {
    stream: Stream,
    /// Set by Ctrl-C.
    stop: &'a AtomicBool,
}

impl<'a> Peer<'a> {
    pub(crate) fn new(stream: Stream, stop: &'a AtomicBool) -> Self {
        Self { stream, stop }
    }

    /// Sends by one write, since the C program reads once and expects the whole message.
    fn write(&mut self, bytes: &[u8]) -> Result<(), ExchangeError> {
        let deadline = self.stream.deadline();
        self.stream.send(bytes, deadline, self.stop).map_err(ExchangeError::Tcp)
    }

    /// Reads `N` bytes in any parts. The limit is for all of them.
    fn read<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], ExchangeError> {
        let deadline = self.stream.deadline();
        let mut got = Vec::with_capacity(N);
        loop {
            if let Some(all) = got.first_chunk() {
                return Ok(*all);
            }
            let most = N - got.len();
            let read = match self.stream.fill(&mut got, most) {
                Ok(true) => Ok(()),
                Ok(false) => self.stream.wait(deadline, self.stop),
                Err(error) => Err(error),
            };
            read.map_err(|error| ExchangeError::Cut { what, bytes: got.len(), of: N, error })?;
        }
    }

    /// Sends the XRC receivers, an addition of this program after the address.
    pub(crate) fn write_way(&mut self, way: Way) -> Result<(), ExchangeError> {
        self.write(&way.encode())
    }

    /// Receives the peer's XRC receivers.
    pub(crate) fn read_way(&mut self) -> Result<Way, ExchangeError> {
        let bytes = self.read::<WAY>("the peer's target")?;
        Way::decode(&bytes).ok_or_else(|| ExchangeError::NoWay { found: bytes.to_vec() })
    }

    /// Sends this side's address.
    pub(crate) fn write_address(&mut self, address: &Address) -> Result<(), ExchangeError> {
        self.write(&address.encode())
    }

    /// Receives the peer's address.
    pub(crate) fn read_address(&mut self) -> Result<Address, ExchangeError> {
        let bytes = self.read::<LEN>("the peer's address")?;
        Address::decode(&bytes).map_err(ExchangeError::Address)
    }

    /// Confirms the server's address.
    pub(crate) fn write_done(mut self) -> Result<(), ExchangeError> {
        self.write(&DONE)
    }

    /// Waits for the client's confirmation.
    pub(crate) fn read_done(mut self) -> Result<(), ExchangeError> {
        let found = self.read("the client's `done`")?;
        if found == DONE { Ok(()) } else { Err(ExchangeError::NotDone { found: found.to_vec() }) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpStream};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::link::tcp::Listener;

    static NEVER: AtomicBool = AtomicBool::new(false);
    const LIMIT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(20);

    fn address(qpn: u32) -> Address {
        Address { lid: 0, qpn, psn: 9, gid: None }
    }

    #[test]
    fn errors_show_what_came_as_visible_text() {
        let found = || b"\x1b[2J".to_vec();
        let told =
            [ExchangeError::NoWay { found: found() }, ExchangeError::NotDone { found: found() }];
        for told in told.map(|error| error.to_string()) {
            assert!(told.contains("`\\u{1b}[2J`"), "{told:?}");
        }
    }

    fn accept(listener: Listener, limit: Duration) -> Peer<'static> {
        Peer::new(listener.accept(LONG, limit, &NEVER).unwrap(), &NEVER)
    }

    /// Runs `serve` on the server's only client, and `call` on the client's raw connection.
    fn between<T: Send>(
        limit: Duration,
        serve: impl FnOnce(Peer<'static>) -> T + Send,
        call: impl FnOnce(TcpStream),
    ) -> T {
        let listener = Listener::bind(0).unwrap();
        let port = listener.port();
        std::thread::scope(|scope| {
            let server = scope.spawn(move || serve(accept(listener, limit)));
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
                let mut peer = accept(listener, LONG);
                assert_eq!(peer.read_address().unwrap(), address(1));
                peer.write_address(&address(2)).unwrap();
                peer.read_done().unwrap();
            });
            let stream = Stream::connect("localhost", port, LONG).unwrap();
            let mut peer = Peer::new(stream, &NEVER);
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
        let read = |mut peer: Peer<'_>| peer.read_address().unwrap_err();
        // Silent, and connected until the server has given up.
        let started = Instant::now();
        let error = between(LIMIT, read, |stream| {
            std::thread::sleep(2 * LIMIT);
            drop(stream);
        });
        let silent = |error: &TcpError| matches!(error, TcpError::Silent { .. });
        let ExchangeError::Cut { bytes: 0, of: LEN, error, .. } = error else { panic!("{error}") };
        assert!(silent(&error), "{error}");
        assert!(started.elapsed() < LONG);
        // A byte at a time: the limit is for the whole message.
        let error = between(LIMIT, read, |mut stream| {
            for _ in 0..8 {
                let _ = stream.write_all(b"0");
                std::thread::sleep(LIMIT / 4);
            }
        });
        let ExchangeError::Cut { bytes: 1..LEN, error, .. } = error else { panic!("{error}") };
        assert!(silent(&error), "{error}");
        // The client closes the connection.
        let error = between(LONG, read, |mut stream| stream.write_all(b"0012:").unwrap());
        let ExchangeError::Cut { bytes: 5, of: LEN, error, .. } = error else { panic!("{error}") };
        assert!(matches!(error, TcpError::Closed { .. }), "{error}");
        // Another protocol.
        let error = between(LONG, read, |mut stream| {
            stream.write_all(&[b"GET / HTTP/1.1\r\n".as_slice(), &[b'x'; LEN]].concat()).unwrap();
        });
        assert!(matches!(error, ExchangeError::Address(_)), "{error}");
        assert!(error.to_string().contains("ibv_rc_pingpong"), "{error}");
        // Another last message.
        let error = between(
            LONG,
            |peer| peer.read_done().unwrap_err(),
            |mut stream| {
                stream.write_all(b"nope\0").unwrap();
            },
        );
        assert!(matches!(error, ExchangeError::NotDone { .. }), "{error}");
    }
}
