//! Rendezvous of two processes by the connection manager, at an IP address and a port.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use uverbs::Device;
use uverbs::cm::{ConnectionRequest, Connector, EventChannel, Listener, Lookup, Route};
use uverbs_streams::{RdmaStream, StreamOptions};

use crate::base::error::Error;
use crate::base::output;
use crate::base::select;
use crate::base::units::parse_timeout;

/// Options that say where.
#[derive(Debug, clap::Args)]
pub(crate) struct MeetArgs {
    /// The server's name or address
    #[arg(conflicts_with = "server", required_unless_present = "server")]
    host: Option<String>,

    /// Wait for a client
    #[arg(long)]
    server: bool,

    #[command(flatten)]
    waits: Waits,

    #[command(flatten)]
    by: ByArgs,
}

/// Options of who waits.
#[derive(Debug, clap::Args)]
pub(crate) struct Waits {
    /// Name or address that the server listens on [default: all]
    #[arg(long, value_name = "ADDRESS")]
    bind: Option<String>,

    /// Seconds that the server waits for a client [default: 600]
    #[arg(long, value_name = "SECONDS")]
    #[arg(allow_negative_numbers = true, value_parser = parse_timeout)]
    wait: Option<Duration>,
}

/// Options that are the same for both ends.
#[derive(Debug, clap::Args)]
pub(crate) struct ByArgs {
    /// RDMA port that the server listens on [default: the C program's, 7471 or 7174]
    #[arg(short, long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// Software HCA to use: `softhca` or `softhca@ADDRESS`. It has a separate connection manager;
    /// the machine's devices are found by the address [default: `softhca` without any]
    #[arg(short, long, value_name = "NAME")]
    device: Option<String>,

    /// Seconds to wait for the other side; fractions are allowed
    #[arg(long, value_name = "SECONDS", default_value = "10")]
    #[arg(allow_negative_numbers = true, value_parser = parse_timeout)]
    pub(crate) timeout: Duration,
}

/// Time that a server waits for a client.
const WAIT: Duration = Duration::from_secs(600);

impl ByArgs {
    /// The device whose connection manager is used; `None` for the kernel's.
    fn device(&self) -> Result<Option<Device>, Error> {
        match self.device.as_deref() {
            None if !uverbs::devices()?.is_empty() => Ok(None),
            name => Ok(Some(select::reachable(name)?.client)),
        }
    }

    pub(crate) fn channel(&self) -> Result<EventChannel, Error> {
        Ok(match self.device()? {
            Some(device) => EventChannel::of(&device)?,
            None => EventChannel::open()?,
        })
    }

    /// Adds time limit and device to stream options.
    pub(crate) fn streams(&self, options: StreamOptions) -> Result<StreamOptions, Error> {
        let options = options.limit(self.timeout);
        Ok(match self.device()? {
            Some(device) => options.on(&device),
            None => options,
        })
    }

    /// Addresses of the server's name.
    pub(crate) fn resolve(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, Error> {
        let port = self.port.unwrap_or(port).to_string();
        let found = Lookup::new().find(Some(host), Some(&port)).map_err(|error| {
            Error::Argument { option: "HOST", value: host.to_owned(), why: error.to_string() }
        })?;
        Ok(found.into_iter().filter_map(|info| info.peer).collect())
    }

    /// Route to the first reachable address of a name.
    pub(crate) fn route(&self, host: &str, port: u16) -> Result<Route, Error> {
        let mut last = None;
        for addr in self.resolve(host, port)? {
            match Connector::new(addr).limit(self.timeout).resolve_on(self.channel()?) {
                Ok(route) => return Ok(route),
                Err(error) => last = Some(error),
            }
        }
        let nothing = || Error::Peer(format!("{host} has no address"));
        Err(last.map_or_else(nothing, Error::Verb))
    }

    /// Address that a server listens at: the one of `bind`, or all IPv4 addresses.
    pub(crate) fn own(&self, bind: Option<&str>, port: u16) -> Result<SocketAddr, Error> {
        let port = self.port.unwrap_or(port);
        let lookup = Lookup::new().passive();
        let lookup = if bind.is_some() { lookup } else { lookup.ipv4() };
        let found = lookup.find(bind, Some(&port.to_string())).map_err(|error| {
            let value = bind.unwrap_or_default().to_owned();
            Error::Argument { option: "--bind", value, why: error.to_string() }
        })?;
        let first = found.into_iter().find_map(|info| info.own);
        Ok(first.unwrap_or_else(|| SocketAddr::from(([0, 0, 0, 0], port))))
    }

    /// Waits for the next client.
    pub(crate) fn request(&self, waits: &Waits, port: u16) -> Result<ConnectionRequest, Error> {
        let builder = Listener::builder(self.own(waits.bind(), port)?).limit(self.timeout);
        let listener = builder.listen_on(self.channel()?)?;
        self.tell(listener.local_addr()?)?;
        Ok(listener.next(waits.limit())?)
    }

    /// Prints where a server listens, for who starts the client: at all addresses of a software
    /// HCA, its first is named.
    pub(crate) fn tell(&self, at: Option<SocketAddr>) -> Result<(), Error> {
        let Some(mut at) = at else { return Ok(()) };
        if at.ip().is_unspecified()
            && let Some(device) = self.device()?
            && let Some(own) = device.addresses()?.first()
        {
            at.set_ip(*own);
        }
        output::complain(&format!("listening at {at}"));
        Ok(())
    }
}

impl Waits {
    fn bind(&self) -> Option<&str> {
        self.bind.as_deref()
    }

    fn limit(&self) -> Duration {
        self.wait.unwrap_or(WAIT)
    }
}

impl MeetArgs {
    /// Name of the server; `None` at the server.
    pub(crate) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    pub(crate) fn by(&self) -> &ByArgs {
        &self.by
    }

    /// Waits for the next client.
    pub(crate) fn request(&self, port: u16) -> Result<ConnectionRequest, Error> {
        self.by.request(&self.waits, port)
    }

    /// Opens a stream to the other side.
    pub(crate) fn stream(&self, options: StreamOptions, port: u16) -> Result<RdmaStream, Error> {
        let options = self.by.streams(options)?;
        let failed = |what| move |error| Error::Stream { what, error };
        let stream = match self.host() {
            Some(host) => {
                let at = self.by.resolve(host, port)?;
                options.connect(&at[..]).map_err(failed("connecting"))?
            }
            None => {
                let listener = options.listen(self.by.own(self.waits.bind(), port)?);
                let listener = listener.map_err(failed("listening"))?;
                self.by.tell(listener.local_addr().ok())?;
                listener.set_nonblocking(true).map_err(failed("listening"))?;
                let end = Instant::now() + self.waits.limit();
                loop {
                    match listener.accept() {
                        Ok((stream, _)) => break stream,
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                            sleep(listener.as_fd(), end).map_err(failed("waiting for a client"))?;
                        }
                        Err(error) => return Err(failed("accepting")(error)),
                    }
                }
            }
        };
        let limit = Some(self.by.timeout);
        let set = stream.set_read_timeout(limit).and_then(|()| stream.set_write_timeout(limit));
        set.map_err(failed("setting a timeout"))?;
        Ok(stream)
    }
}

/// Sleeps until the file is readable.
fn sleep(file: BorrowedFd<'_>, end: Instant) -> io::Result<()> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let limit = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
    poll(&mut [PollFd::new(file, PollFlags::POLLIN)], limit)?;
    Ok(())
}
