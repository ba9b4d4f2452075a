//! Connecting by `uverbs::cm`, both ends in one thread, for a tracer: what it does between two
//! phase marks is counted. The twin of `c/connect.c`, with the same steps in the same order.
//!
//! `connect-path calls N`: one connection made and taken down, then N further ones, each by itself.
//! `connect-path times N`: the same without marks, and in the end how many nanoseconds each phase
//! took. `UVERBS_TEST_DEVICE` names the device, `UVERBS_TEST_GID` the index of a GID of it that is
//! an IPv4 address.

#[path = "../phases.rs"]
mod phases;

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use uverbs::cm::{Event, EventChannel, EventKind, Id, Param, PortSpace};
use uverbs::{CompletionQueue, Context, ProtectionDomain, QueuePair};

use crate::phases::{phase, print_times, take_times};

const PATIENCE: Duration = Duration::from_secs(2);

type Done<T> = Result<T, Box<dyn std::error::Error>>;

/// The event channels, and what queue pairs are made of.
struct Ends {
    asking: EventChannel,
    answering: EventChannel,
    _listener: Id,
    to: SocketAddr,
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
}

/// One end of a connection.
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
        let context = listener.device()?.open()?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(16)?);
        Ok(Self { asking, answering, _listener: listener, to, context, pd, cq })
    }

    fn queue_pair(&self) -> Done<QueuePair> {
        let builder = self.context.queue_pair(&self.pd, &self.cq).max_send_wr(4).max_recv_wr(4);
        Ok(builder.overcommit().build()?)
    }

    /// Client and server.
    fn make(&self) -> Done<[End; 2]> {
        let param = Param::default();
        let id = self.asking.create_id(PortSpace::Tcp)?;
        id.resolve_addr(None, self.to, PATIENCE)?;
        event(&self.asking, EventKind::AddressResolved)?;
        id.resolve_route(PATIENCE)?;
        event(&self.asking, EventKind::RouteResolved)?;
        // librdmacm brings a new queue pair to INIT.
        let mut qp = self.queue_pair()?;
        id.init(&mut qp)?;
        id.connect(qp.qpn(), &param)?;
        let mut request = event(&self.answering, EventKind::ConnectRequest)?;
        let mut client = End { id, qp };
        let id = request.take_request().ok_or("a request without an id")?;
        let mut server = End { id, qp: self.queue_pair()? };
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

/// Outside of the phases: the IPv4 address that is this GID of the device.
fn find_address() -> Done<IpAddr> {
    let index: u32 = std::env::var("UVERBS_TEST_GID")?.parse()?;
    let context = uverbs::open(&std::env::var("UVERBS_TEST_DEVICE")?)?;
    let table = context.query_gid_table()?;
    let entry = table.iter().find(|entry| entry.index == index).ok_or("no such GID")?;
    Ok(Ipv6Addr::from(entry.gid.0).to_canonical())
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
