//! The connection manager with many listeners.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use uverbs::cm::{Connector, EventChannel, Listener, Param, PortSpace};
use uverbs::softhca::SoftHca;
use uverbs::{Context, Device, Error, QueuePair};

use crate::{Column, Done, timed};

const LIMIT: Duration = Duration::from_secs(20);
/// Connections to one listener among the others.
const CONNECTIONS: usize = 200;

pub(crate) fn measure(sizes: &[usize]) -> Done {
    let mut columns = ["listen", "connect", "end a listener"].map(Column::new);
    for &size in sizes {
        let device = Device::from(SoftHca::builder().build()?);
        let ip = device.addresses()?.into_iter().find(IpAddr::is_ipv4).ok_or("no address")?;
        let channel = EventChannel::of(&device)?;
        let listen = |_| {
            let id = channel.create_id(PortSpace::Tcp)?;
            id.bind((ip, 0).into())?;
            id.listen(0)?;
            Ok::<_, Error>(id)
        };
        let (ids, time) = timed(|| (0..size).map(listen).collect::<Result<Vec<_>, _>>());
        let ids = ids?;
        columns[0].time(size, time, size);
        let listener = Listener::builder((ip, 0).into()).limit(LIMIT);
        let listener = listener.listen_on(EventChannel::of(&device)?)?;
        let to = listener.local_addr()?.ok_or("no address of its own")?;
        let (done, time) = timed(|| connect(&device, listener, to));
        done?;
        columns[1].time(size, time, CONNECTIONS);
        let ((), time) = timed(|| drop(ids));
        columns[2].time(size, time, size);
    }
    Ok(())
}

fn queue_pair(context: &Context) -> Result<QueuePair, Error> {
    let (pd, cq) = (context.alloc_pd()?, context.create_cq(8)?);
    context.queue_pair(&pd, &cq).max_send_wr(4).max_recv_wr(4).build()
}

/// Connects one after the other, and keeps all until the end.
fn connect(device: &Device, listener: Listener, to: SocketAddr) -> Done {
    let there = device.clone();
    let server = std::thread::spawn(move || {
        let context = there.open()?;
        let accept = |_| {
            let request = listener.next(LIMIT)?;
            Ok(request.accept(queue_pair(&context)?, &Param::default())?)
        };
        (0..CONNECTIONS).map(accept).collect::<Result<Vec<_>, Error>>()
    });
    let context = device.open()?;
    let mut all = Vec::new();
    for _ in 0..CONNECTIONS {
        let route = Connector::new(to).limit(LIMIT).resolve_on(EventChannel::of(device)?)?;
        all.push(route.connect(queue_pair(&context)?, &Param::default())?);
    }
    let accepted = server.join().map_err(|_| "the server panicked")??;
    drop((accepted, all));
    Ok(())
}
