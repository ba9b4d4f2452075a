//! Connections by `uverbs::cm`, one after the other, client and server in a process each. The twin
//! of `c/connections.c`, by the calls that wait.
//!
//! - `connections server calls|times N PORT`: accepts N + 1 connections, and hears how each ends.
//! - `connections client calls|times N PORT`: makes as many, and ends each.
//!
//! The first one stands for itself. `calls` is for a tracer, which counts what is done for the
//! others; `times` prints how many nanoseconds it took until each stood, and all of them together.
//! `UVERBS_TEST_DEVICE` names the device; `UVERBS_TEST_GID` is the index of a GID that is an IPv4
//! address, or `UVERBS_TEST_ADDRESS` is the address.

#[path = "../phases.rs"]
mod phases;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use uverbs::cm::{Connection, Connector, EventChannel, Listener, Param};
use uverbs::{CompletionQueue, Context, Errno, ProtectionDomain, QueuePair};

use crate::phases::{phase, print_times, take_times};

const PATIENCE: Duration = Duration::from_secs(20);
/// Between two tries while nobody listens.
const PAUSE: Duration = Duration::from_millis(20);

type Done<T> = Result<T, Box<dyn std::error::Error>>;

/// What queue pairs are made of: the device is the same for all connections.
struct Domain {
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

impl Domain {
    fn open(context: Context) -> Done<Self> {
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
        Ok(Self { context, pd, cq })
    }

    fn queue_pair(&self) -> Done<QueuePair> {
        let builder = self.context.queue_pair(&self.pd, &self.cq).max_send_wr(4).max_recv_wr(4);
        Ok(builder.overcommit().build()?)
    }
}

struct Client {
    channel: EventChannel,
    domain: Option<Domain>,
    to: SocketAddr,
}

impl Client {
    fn make(&mut self) -> Done<Connection> {
        let connector = Connector::new(self.to).limit(PATIENCE);
        let route = connector.resolve_on(self.channel.clone())?;
        let domain = match &mut self.domain {
            Some(domain) => domain,
            none => none.insert(Domain::open(route.device()?.open()?)?),
        };
        Ok(route.connect(domain.queue_pair()?, &Param::default()).map_err(|it| it.error)?)
    }

    fn end(connection: Connection) -> Done<()> {
        Ok(connection.disconnect(PATIENCE)?.destroy().map(drop)?)
    }
}

fn ask(to: SocketAddr, count: usize, times: bool) -> Done<()> {
    let mut client = Client { channel: EventChannel::open()?, domain: None, to };
    let first = loop {
        match client.make() {
            Ok(connection) => break connection,
            // Nobody listens yet.
            Err(error) => match error.downcast_ref::<uverbs::Error>() {
                Some(refused) if refused.to_errno() == Errno::ECONNREFUSED => {
                    std::thread::sleep(PAUSE);
                }
                _ => return Err(error),
            },
        }
    };
    Client::end(first)?;
    phase("client, further");
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let began = times.then(Instant::now);
        let connection = client.make()?;
        took.extend(began.map(|began| began.elapsed().as_nanos()));
        Client::end(connection)?;
    }
    phase("end");
    took.iter().for_each(|took| println!("{took}"));
    Ok(())
}

fn serve(listener: &Listener, domain: &mut Option<Domain>) -> Done<()> {
    let request = listener.next(PATIENCE)?;
    let domain = match domain {
        Some(domain) => domain,
        none => none.insert(Domain::open(request.device()?.open()?)?),
    };
    let accepted = request.accept(domain.queue_pair()?, &Param::default());
    let mut connection = accepted.map_err(|it| it.error)?;
    if connection.is_closed(PATIENCE)? { Ok(()) } else { Err("the client doesn't end".into()) }
}

fn answer(at: SocketAddr, count: usize) -> Done<()> {
    let listener = Listener::bind(at)?;
    let mut domain = None;
    serve(&listener, &mut domain)?;
    phase("server, further");
    for _ in 0..count {
        serve(&listener, &mut domain)?;
    }
    phase("close");
    drop(listener);
    phase("end");
    Ok(())
}

fn find_address() -> Done<IpAddr> {
    if let Ok(address) = std::env::var("UVERBS_TEST_ADDRESS") {
        return Ok(address.parse()?);
    }
    let index: u32 = std::env::var("UVERBS_TEST_GID")?.parse()?;
    let context = uverbs::open(&std::env::var("UVERBS_TEST_DEVICE")?)?;
    let table = context.query_gid_table()?;
    let entry = table.iter().find(|entry| entry.index == index).ok_or("no such GID")?;
    Ok(Ipv6Addr::from(entry.gid.0).to_canonical())
}

fn main() -> Done<()> {
    let args: Vec<String> = std::env::args().collect();
    let usage = "connections server|client calls|times N PORT";
    let [_, side, mode, count, port] = &args[..] else { return Err(usage.into()) };
    let times = mode == "times";
    if times {
        take_times();
    }
    let at = SocketAddr::new(find_address()?, port.parse()?);
    match side.as_str() {
        "server" => answer(at, count.parse()?)?,
        "client" => ask(at, count.parse()?, times)?,
        _ => return Err(usage.into()),
    }
    print_times();
    Ok(())
}
