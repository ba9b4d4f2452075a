//! Streams of bytes over RDMA, as TCP's, and datagrams: [`RdmaStream`], [`RdmaListener`] and
//! [`RdmaDatagram`] for [`TcpStream`](std::net::TcpStream),
//! [`TcpListener`](std::net::TcpListener) and [`UdpSocket`](std::net::UdpSocket).
//!
//! They speak rsocket's protocol, so the other end may be a C program on librdmacm's `rsocket`
//! (`rstream`, `riostream`, or any under its preload library).
//!
//! ```
//! use std::io::{Read, Write};
//! use uverbs_streams::StreamOptions;
//!
//! # let device = uverbs::device("softhca0")?;
//! # let addr = device.addresses()?[0];
//! let options = StreamOptions::new().on(&device); // of the kernel's devices: `RdmaListener::bind`
//! let listener = options.listen((addr, 0))?;
//! let to = listener.local_addr()?;
//! let client = std::thread::spawn(move || -> std::io::Result<()> {
//!     let mut stream = options.connect(to)?;
//!     stream.write_all(b"hello")
//! });
//! let (mut stream, peer) = listener.accept()?;
//! let mut text = String::new();
//! stream.read_to_string(&mut text)?; // until the peer's end
//! assert_eq!((text.as_str(), peer.ip()), ("hello", addr));
//! client.join().expect("it doesn't panic")?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! *How it works.* Each end has a receive buffer in two halves and announces a half to its peer.
//! The writer copies its bytes into a ring and RDMA-writes them into the announced half; the
//! message that says so carries no bytes. A half that was read goes back to the writer. Messages
//! are counted, so that a sender never has more in flight than the receiver has receives.
//!
//! | C | here |
//! |---|---|
//! | `rsocket`, `rbind`, `rlisten`, `raccept` | [`RdmaListener::bind`], [`RdmaListener::accept`] |
//! | `rconnect` | [`RdmaStream::connect`] |
//! | `rsend`, `rrecv` | [`Write`](std::io::Write), [`Read`](std::io::Read) |
//! | `rpoll` | [`RdmaStream::ready`]; [`AsFd`](std::os::fd::AsFd) for poll, epoll or a reactor |
//! | `MSG_DONTWAIT` | [`RdmaStream::try_read`], [`RdmaStream::try_write`] |
//! | `rshutdown` | [`RdmaStream::shutdown`] |
//! | `rclose` | drop the stream |
//! | `rsocket` of `SOCK_DGRAM`, `rsendto`, `rrecvfrom` | [`RdmaDatagram`] |
//! | `riomap`, `riounmap` | [`RdmaStream::map`], [`RdmaStream::unmap`] |
//! | `riowrite` | [`RdmaStream::write_at`] |
//! | `rsetsockopt` | [`StreamOptions`] |
//!
//! *Differences.* A peer that vanishes without closing is an error here
//! ([`StreamError::Lost`]), while rsocket reports the end of the stream. The preload library's
//! forking mode is unsupported.

mod datagram;
mod endpoint;
mod engine;
mod error;
mod files;
mod incoming;
mod keep_alive;
mod listener;
mod mapping;
mod options;
mod outgoing;
mod rdma_stream;
mod ready;
mod timeouts;
mod waiting;
mod wire;

pub use datagram::RdmaDatagram;
pub use error::StreamError;
pub use listener::RdmaListener;
pub use options::StreamOptions;
pub use rdma_stream::RdmaStream;
pub use ready::Ready;
