//! `uverbs cm watch`: prints events of the connection manager.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;
use uverbs::cm::{Event, EventChannel, EventKind, Id, PortSpace};

use crate::base::error::Error;
use crate::base::interrupt;
use crate::base::output;
use crate::link::meet::ByArgs;

/// Longest delay of Ctrl-C.
const LOOK: Duration = Duration::from_millis(100);
/// rdma-core's port.
const PORT: u16 = 7471;

/// Look at the connection manager (rdma_cm).
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Watch(Watch),
}

/// Print the connection manager's events as they come.
///
/// With HOST it looks for the way there, and prints the events of that: the device's address, then
/// the path. Without, it listens at a port for connections and for datagram peers, prints who asks
/// and with what private data, and refuses.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "\
EXAMPLES:\n  \
    uverbs cm watch --port 7471\n  \
    uverbs cm watch 192.0.2.7\n\n\
EXIT STATUS:\n  \
    0  so many events came as were asked for, or Ctrl-C\n  \
    1  there is no way to the host, or a call was refused\n  \
    2  bad arguments")]
struct Watch {
    /// Host to resolve a route to
    host: Option<String>,

    /// Name or address to listen on [default: all]
    #[arg(long, value_name = "ADDRESS", conflicts_with = "host")]
    bind: Option<String>,

    /// End after this number of events [default: Ctrl-C]
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "host")]
    iters: Option<u64>,

    #[command(flatten)]
    by: ByArgs,

    /// Print a JSON object for each event
    #[arg(long)]
    json: bool,
}

/// Description of an event.
#[derive(Debug, Serialize)]
struct Line {
    seconds: f64,
    space: &'static str,
    event: String,
    status: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    peer: Option<SocketAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device: Option<String>,
    /// Hexadecimal digits, without the kernel's zero padding.
    #[serde(skip_serializing_if = "String::is_empty")]
    private_data: String,
}

pub(crate) fn run(args: &Args) -> Result<(), Error> {
    let Command::Watch(args) = &args.command;
    match &args.host {
        Some(host) => resolve(args, host),
        None => listen(args),
    }
}

/// Prints the events of resolving a host.
fn resolve(args: &Watch, host: &str) -> Result<(), Error> {
    let start = Instant::now();
    let limit = args.by.timeout;
    let mut last = None;
    for addr in args.by.resolve(host, PORT)? {
        let channel = args.by.channel()?;
        let id = channel.create_id(PortSpace::Tcp)?;
        id.resolve_addr(None, addr, limit)?;
        let next = |kind| -> Result<Result<(), Error>, Error> {
            let event = channel.next(limit)?;
            tell(args, start, "tcp", &event, Some(&id))?;
            Ok(event.expect(kind).map(drop).map_err(Error::from))
        };
        if let Err(error) = next(EventKind::AddressResolved)? {
            last = Some(error);
            continue;
        }
        id.resolve_route(limit)?;
        match next(EventKind::RouteResolved)? {
            Ok(()) => return Ok(()),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| Error::Peer(format!("{host} has no address"))))
}

/// Prints the events of incoming requests.
fn listen(args: &Watch) -> Result<(), Error> {
    let stop = interrupt::watch()?;
    let channel = args.by.channel()?;
    let spaces = [("tcp", PortSpace::Tcp), ("udp", PortSpace::Udp)];
    let ids = spaces.map(|(name, space)| listener(args, &channel, space).map(|id| (name, id)));
    let [tcp, udp] = ids;
    let ids = [tcp?, udp?];
    args.by.tell(Some(own(args)?))?;
    let start = Instant::now();
    let mut seen = 0;
    while !stop.load(Ordering::Relaxed) && args.iters.is_none_or(|most| seen < most) {
        let mut event = match channel.next(LOOK) {
            Ok(event) => event,
            Err(uverbs::Error::TimedOut { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let space = ids.iter().find(|(_, id)| id.key() == event.key()).map_or("", |(name, _)| name);
        let request = event.take_request();
        tell(args, start, space, &event, request.as_ref())?;
        // Dropping a request rejects it.
        drop(request);
        seen += 1;
    }
    Ok(())
}

fn own(args: &Watch) -> Result<SocketAddr, Error> {
    args.by.own(args.bind.as_deref(), PORT)
}

fn listener(args: &Watch, channel: &EventChannel, space: PortSpace) -> Result<Id, Error> {
    let id = channel.create_id(space)?;
    id.bind(own(args)?)?;
    id.listen(0)?;
    Ok(id)
}

fn tell(
    args: &Watch,
    start: Instant,
    space: &'static str,
    event: &Event,
    id: Option<&Id>,
) -> Result<(), Error> {
    let private_data = match space {
        "udp" => event.datagram().private_data,
        _ => event.connection().private_data,
    };
    let asks = event.kind() == EventKind::ConnectRequest;
    let used = private_data.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let used = &private_data[..if asks { used } else { 0 }];
    let line = Line {
        seconds: start.elapsed().as_secs_f64(),
        space,
        event: format!("{:?}", event.kind()),
        status: event.status(),
        peer: id.and_then(|id| id.peer_addr().ok().flatten()),
        device: id.and_then(|id| id.device().ok()).map(|device| device.name().to_owned()),
        private_data: used.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if args.json {
        let text = serde_json::to_string(&line).map_err(std::io::Error::other);
        return output::print(&(text.map_err(Error::Output)? + "\n"));
    }
    let mut text = format!("{:9.3} s  {space} {}", line.seconds, line.event);
    let parts = [
        (line.status != 0).then(|| format!("status {}", line.status)),
        line.peer.map(|peer| format!("peer {peer}")),
        line.device.map(|device| format!("by {device}")),
        (!used.is_empty()).then(|| format!("private data {}", line.private_data)),
    ];
    for part in parts.into_iter().flatten() {
        text.push_str(&format!(", {part}"));
    }
    output::print(&(text + "\n"))
}
