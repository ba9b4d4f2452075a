//! Options of streams and of sockets of datagrams.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use uverbs::cm::EventChannel;
use uverbs::{Device, Error};

use super::endpoint::Sizes;
use super::keep_alive::KeepAlives;
use super::wire::{MOST_DATA, MOST_MAPPINGS};

/// Minimum of the time between keep-alives.
const SHORTEST_KEEP_ALIVE: Duration = Duration::from_millis(1);
/// Maximum: an `Instant` this far ahead can still be computed.
const LONGEST_KEEP_ALIVE: Duration = Duration::from_secs(u32::MAX as u64);

/// Options of a stream, or of the streams that a listener accepts. Buffers and queues have
/// rsocket's sizes by default.
///
/// ```
/// use uverbs_streams::StreamOptions;
/// # let device = uverbs::device("softhca0")?;
/// # let addr = device.addresses()?[0];
///
/// let options = StreamOptions::new().on(&device).recv_buffer(1 << 20);
/// let listener = options.listen((addr, 0))?;
/// let to = listener.local_addr()?;
/// # let accepting = std::thread::spawn(move || listener.accept().map(drop));
/// let stream = options.connect(to)?; // while somebody accepts
/// # drop(stream);
/// # accepting.join().expect("it doesn't panic")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct StreamOptions {
    pub(super) sizes: Sizes,
    pub(super) limit: Duration,
    pub(super) keep_alive: Option<Arc<KeepAlives>>,
    pub(super) backlog: u32,
    pub(super) device: Option<Device>,
    pub(super) from: Option<SocketAddr>,
    pub(super) v6_only: bool,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            sizes: Sizes {
                send_buffer: 128 << 10,
                recv_buffer: 128 << 10,
                sends: 384,
                recvs: 384,
                inline: 64,
                mappings: 0,
            },
            limit: Duration::from_secs(10),
            keep_alive: None,
            backlog: 0,
            device: None,
            from: None,
            v6_only: false,
        }
    }
}

impl StreamOptions {
    /// Default options.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes that may be on their way and not yet acknowledged: 128 KiB, and 2 KiB to 512 MiB. They
    /// are pinned.
    #[must_use]
    #[doc(alias = "SO_SNDBUF")]
    pub fn send_buffer(mut self, bytes: u32) -> Self {
        self.sizes.send_buffer = bytes;
        self
    }

    /// Bytes that may be here unread: 128 KiB, and 2 KiB to 512 MiB. They are pinned.
    #[must_use]
    #[doc(alias = "SO_RCVBUF")]
    pub fn recv_buffer(mut self, bytes: u32) -> Self {
        self.sizes.recv_buffer = bytes;
        self
    }

    /// Messages that may be on their way: 384. The device's limit counts, and 16 at least.
    #[must_use]
    #[doc(alias = "RDMA_SQSIZE")]
    pub fn sends(mut self, count: u16) -> Self {
        self.sizes.sends = count;
        self
    }

    /// Messages that may be here unread: 384. The device's limit counts, and 16 at least.
    #[must_use]
    #[doc(alias = "RDMA_RQSIZE")]
    pub fn recvs(mut self, count: u16) -> Self {
        self.sizes.recvs = count;
        self
    }

    /// Writes of so many bytes or fewer are copied into the work request: 64, and 24 at least.
    #[must_use]
    #[doc(alias = "RDMA_INLINE")]
    pub fn inline(mut self, bytes: u32) -> Self {
        self.sizes.inline = bytes;
        self
    }

    /// Mappings that the peer may offer for
    /// [`RdmaStream::write_at`](super::RdmaStream::write_at): none, and 128 at most.
    #[must_use]
    #[doc(alias = "RDMA_IOMAPSIZE")]
    pub fn mappings(mut self, count: u16) -> Self {
        self.sizes.mappings = count;
        self
    }

    /// Time limit of each step of connecting, and of the farewell when a stream is dropped; default
    /// ten seconds.
    #[must_use]
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sends keep-alives at this interval, without help of the peer's program. If the peer's host
    /// doesn't acknowledge, the stream ends after the acknowledgement timeout and its retries,
    /// which take some seconds. Without keep-alives a stream that only reads doesn't notice. One
    /// thread serves all streams made with these options and their clones.
    #[must_use]
    #[doc(alias = "SO_KEEPALIVE")]
    #[doc(alias = "TCP_KEEPIDLE")]
    pub fn keep_alive(mut self, every: Duration) -> Self {
        self.keep_alive = Some(Arc::new(KeepAlives::new(every)));
        self
    }

    /// Maximum of pending requests of a listener; 0 is the system's limit.
    #[must_use]
    pub fn backlog(mut self, backlog: u32) -> Self {
        self.backlog = backlog;
        self
    }

    /// Connects from this address; without it the system chooses.
    #[must_use]
    #[doc(alias = "rbind")]
    pub fn from(mut self, from: SocketAddr) -> Self {
        self.from = Some(from);
        self
    }

    /// A listener at an IPv6 address leaves IPv4 alone.
    #[must_use]
    #[doc(alias = "IPV6_V6ONLY")]
    pub fn v6_only(mut self) -> Self {
        self.v6_only = true;
        self
    }

    /// Uses the connection manager of this device; a software HCA has a separate one. The default
    /// is the kernel's, which finds the device by the address.
    #[must_use]
    pub fn on(mut self, device: &Device) -> Self {
        self.device = Some(device.clone());
        self
    }

    pub(super) fn channel(&self) -> Result<EventChannel, Error> {
        self.device.as_ref().map_or_else(EventChannel::open, EventChannel::of)
    }

    /// Refuses values that the protocol's fields can't hold.
    pub(super) fn check(&self) -> Result<(), Error> {
        for (what, value) in
            [("send_buffer", self.sizes.send_buffer), ("recv_buffer", self.sizes.recv_buffer)]
        {
            let fits = value.clamp(2 << 10, MOST_DATA);
            if fits != value {
                let (value, limit) = (value.into(), fits.into());
                return Err(Error::Limit { verb: "stream", what, value, limit });
            }
        }
        if self.keep_alive.as_ref().is_some_and(|all| all.every < SHORTEST_KEEP_ALIVE) {
            let limit = SHORTEST_KEEP_ALIVE.as_millis() as u64;
            let what = "keep_alive in milliseconds";
            return Err(Error::Limit { verb: "stream", what, value: 0, limit });
        }
        if let Some(all) = &self.keep_alive {
            let (value, limit) = (all.every.as_secs(), LONGEST_KEEP_ALIVE.as_secs());
            if value > limit {
                return Err(Error::Limit { verb: "stream", what: "keep_alive", value, limit });
            }
        }
        Error::limit("stream", "mappings", u32::from(self.sizes.mappings), u32::from(MOST_MAPPINGS))
    }
}

pub(super) fn no_address() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "the name has no address")
}
