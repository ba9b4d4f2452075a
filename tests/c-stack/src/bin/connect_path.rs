//! Connections by `uverbs::cm`, both ends in one thread, for a tracer that counts the calls between
//! phase marks. Counterpart with the same steps: `c/connect.c`.
//!
//! `connect-path calls N`: connects and disconnects once, then N times more, one after the other.
//! `connect-path times N`: the same without marks; prints the nanoseconds of each phase.
//! `UVERBS_TEST_DEVICE`, `UVERBS_TEST_GID` and `UVERBS_TEST_ADDRESS` name the address
//! (`connecting.rs`).

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use uverbs::QueuePair;
use uverbs::cm::{Event, EventChannel, EventKind, Id, Param, PortSpace};

use c_stack::connecting::{Domain, Done, find_address};
use c_stack::phases::{phase, print_times, take_times};

const PATIENCE: Duration = Duration::from_secs(2);

/// Event channels, and the objects that queue pairs are created from.
struct Ends {
    asking: EventChannel,
    answering: EventChannel,
    _listener: Id,
    to: SocketAddr,
    domain: Domain,
}

/// An end of a connection.
struct End {
    id: Id,
    qp: QueuePair,
}

fn event(channel: &EventChannel, wanted: EventKind) -> Done<Event> {
    Ok(channel.next(PATIENCE)?.expect(wanted)?)
}

impl Ends {
    fn open(ip: IpAddr) -> Done<Self> {
        let (asking, answering) = (EventChannel::open()?, EventChannel::open()?);
        let listener = answering.create_id(PortSpace::Tcp)?;
        listener.bind((ip, 0).into())?;
        listener.listen(16)?;
        let to = listener.local_addr()?.ok_or("no address")?;
        let domain = Domain::open(listener.device()?.open()?)?;
        Ok(Self { asking, answering, _listener: listener, to, domain })
    }

    /// Creates client and server.
    fn make(&self) -> Done<[End; 2]> {
        let param = Param::default();
        let id = self.asking.create_id(PortSpace::Tcp)?;
        id.resolve_addr(None, self.to, PATIENCE)?;
        event(&self.asking, EventKind::AddressResolved)?;
        id.resolve_route(PATIENCE)?;
        event(&self.asking, EventKind::RouteResolved)?;
        // librdmacm brings a new queue pair to INIT.
        let mut qp = self.domain.queue_pair()?;
        id.init(&mut qp)?;
        id.connect(qp.qpn(), &param)?;
        let mut request = event(&self.answering, EventKind::ConnectRequest)?;
        let mut client = End { id, qp };
        let id = request.take_request().ok_or("a request without an id")?;
        let mut server = End { id, qp: self.domain.queue_pair()? };
        server.id.init(&mut server.qp)?;
        server.id.ready(&mut server.qp, 1, 1)?;
        server.id.accept(server.qp.qpn(), &param)?;
        event(&self.asking, EventKind::ConnectResponse)?;
        client.id.ready(&mut client.qp, 1, 1)?;
        client.id.establish()?;
        event(&self.answering, EventKind::Established)?;
        Ok([client, server])
    }

    fn unmake(&self, [mut client, mut server]: [End; 2]) -> Done<()> {
        client.qp.fail()?;
        client.id.disconnect()?;
        event(&self.answering, EventKind::Disconnected)?;
        server.qp.fail()?;
        server.id.disconnect()?;
        event(&self.asking, EventKind::Disconnected)?;
        drop(client.qp.destroy()?);
        drop(server.qp.destroy()?);
        Ok(())
    }
}

fn main() -> Done<()> {
    let args: Vec<String> = std::env::args().collect();
    let usage = "connect-path calls|times N";
    let [_, mode, count] = &args[..] else { return Err(usage.into()) };
    let count: usize = count.parse()?;
    if count == 0 {
        return Err(usage.into());
    }
    if mode == "times" {
        take_times();
    }
    let ip = find_address()?;
    phase("open and listen");
    let ends = Ends::open(ip)?;
    phase("connection");
    ends.unmake(ends.make()?)?;
    phase("connection, further");
    for _ in 0..count {
        ends.unmake(ends.make()?)?;
    }
    phase("close");
    drop(ends);
    phase("end");
    print_times();
    Ok(())
}
