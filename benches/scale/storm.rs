//! A storm of connections by UDP: all begin to resolve their peer's address at once, and each goes
//! on as its events come. Memory of a connection's two ends.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use uverbs::cm::{Event, EventChannel, EventKind, Id, Param, PortSpace};
use uverbs::softhca::{Carrier, SoftHca, Udp};
use uverbs::{CompletionQueue, Context, Device, Error, ProtectionDomain, QueuePair};

use crate::{Column, Done, process, timed};

/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) fn measure(sizes: &[usize]) -> Done {
    let mut columns = ["connect", "connect, elapsed"].map(Column::new);
    let mut bytes = Column::new("memory of two ends");
    for &size in sizes {
        let [to, from] = [device()?, device()?];
        let ip = to.addresses()?.into_iter().find(IpAddr::is_ipv4).ok_or("no address")?;
        let (mut server, mut client) = (Side::new(&to)?, Side::new(&from)?);
        let listener = server.channel.create_id(PortSpace::Tcp)?;
        listener.bind((ip, 0).into())?;
        listener.listen(0)?;
        let addr = listener.local_addr()?.ok_or("no address of its own")?;
        let (before, start) = (process::resident()?, Instant::now());
        let (done, time) = timed(|| {
            thread::scope(|scope| {
                let served = scope.spawn(|| server.serve(size));
                client.connect(addr, size).and(served.join().expect("it returns errors"))
            })
        });
        done?;
        columns[0].time(size, time, size);
        columns[1].time(size, start.elapsed(), size);
        let grown = process::resident()?.saturating_sub(before);
        bytes.value(size, grown as f64 / size as f64, "bytes");
    }
    Ok(())
}

/// A device that others reach by UDP alone.
fn device() -> Result<Device, Box<dyn std::error::Error>> {
    let udp = Udp::loopback().by(Carrier::Udp);
    Ok(SoftHca::builder().udp(udp).build()?.into())
}

/// One end: its objects, and its connections by key.
struct Side {
    channel: EventChannel,
    context: Context,
    pd: ProtectionDomain,
    cq: CompletionQueue,
    connections: BTreeMap<u64, (Id, QueuePair)>,
}

impl Side {
    fn new(device: &Device) -> Result<Self, Error> {
        let channel = EventChannel::of(device)?;
        let context = device.open()?;
        let (pd, cq) = (context.alloc_pd()?, context.create_cq(64)?);
        Ok(Self { channel, context, pd, cq, connections: BTreeMap::new() })
    }

    fn queue_pair(&self) -> Result<QueuePair, Error> {
        let qp = self.context.queue_pair(&self.pd, &self.cq).overcommit();
        qp.max_send_wr(16).max_recv_wr(16).build()
    }

    /// Accepts so many requests, and waits until all are confirmed.
    fn serve(&mut self, count: usize) -> Result<(), Error> {
        let mut established = 0;
        while established < count {
            let mut event = self.channel.next(LIMIT)?;
            let Some(id) = event.take_request() else {
                event.expect(EventKind::Established)?;
                established += 1;
                continue;
            };
            let mut qp = self.queue_pair()?;
            id.ready(&mut qp, 1, 1)?;
            id.accept(qp.qpn(), &Param::default())?;
            self.connections.insert(id.key(), (id, qp));
        }
        Ok(())
    }

    /// Begins so many connections, and waits until all are established.
    fn connect(&mut self, to: SocketAddr, count: usize) -> Result<(), Error> {
        for _ in 0..count {
            let id = self.channel.create_id(PortSpace::Tcp)?;
            id.resolve_addr(None, to, LIMIT)?;
            self.connections.insert(id.key(), (id, self.queue_pair()?));
        }
        let mut connected = 0;
        while connected < count {
            let event = self.channel.next(LIMIT)?;
            connected += usize::from(self.advance(event)?);
        }
        Ok(())
    }

    /// Takes the next step of a connection. True after the last.
    fn advance(&mut self, event: Event) -> Result<bool, Error> {
        let found = self.connections.get_mut(&event.key());
        let (id, qp) = found.expect("an id of this channel");
        match event.kind() {
            EventKind::AddressResolved => id.resolve_route(LIMIT)?,
            EventKind::RouteResolved => id.connect(qp.qpn(), &Param::default())?,
            _ => {
                event.expect(EventKind::ConnectResponse)?;
                id.ready(qp, 1, 1)?;
                id.establish()?;
                return Ok(true);
            }
        }
        Ok(false)
    }
}
