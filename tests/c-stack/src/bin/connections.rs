//! Connections by `uverbs::cm` one after the other, with a process for client and server each.
//! Counterpart: `c/connections.c`, by the blocking calls.
//!
//! - `connections server calls|times N PORT`: accepts N + 1 connections, and waits for each end.
//! - `connections client calls|times N PORT`: makes N + 1 connections, and ends each.
//!
//! The first connection is a warm-up. With `calls` a tracer counts the calls of the others; `times`
//! prints the nanoseconds until each was established, and the total. `UVERBS_TEST_DEVICE`,
//! `UVERBS_TEST_GID` and `UVERBS_TEST_ADDRESS` name the address (`connecting.rs`).

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use uverbs::Errno;
use uverbs::cm::{Connection, Connector, EventChannel, Listener, Param};

use c_stack::connecting::{Domain, Done, find_address};
use c_stack::phases::{phase, print_times, take_times};

const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two tries before the server listens.
const PAUSE: Duration = Duration::from_millis(20);

struct Client {
    channel: EventChannel,
    /// Shared by all connections.
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
            // The server does not listen yet.
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
