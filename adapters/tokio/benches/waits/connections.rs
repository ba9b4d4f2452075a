//! Connections, one after the other: the waits are for events of the connection manager.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use uverbs::cm::{Connector, EventChannel, Param};
use uverbs::{Device, Refused};

use crate::side::{Trips, listen};
use crate::{Fallible, LIMIT};

/// Private data of the last connection.
const LAST: &[u8] = b"last";

/// Accepts connections. `polled` asks for the next request until it comes.
pub(crate) fn serve(device: &Device, polled: bool) -> Fallible<()> {
    let listener = listen(device)?;
    let context = device.open()?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(256)?;
    loop {
        let start = Instant::now();
        let request = loop {
            if !polled {
                break listener.next(LIMIT)?;
            }
            if let Some(request) = listener.try_next()? {
                break request;
            }
            if start.elapsed() >= LIMIT {
                return Err("no connection came".into());
            }
        };
        let last = request.private_data().starts_with(LAST);
        let qp = context.queue_pair(&pd, &cq).build()?;
        let mut connection = request.accept(qp, &Param::default()).map_err(Refused::into_error)?;
        while !connection.is_closed(if polled { Duration::ZERO } else { LIMIT })? {}
        if last {
            return Ok(());
        }
    }
}

/// Time from the search for a route to the end of the connection.
pub(crate) fn measure(device: &Device, to: SocketAddr, time: Duration) -> Fallible<Duration> {
    let context = device.open()?;
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(256)?;
    let mut trips = Trips::new(time);
    while trips.go_on() {
        let route = Connector::new(to).limit(LIMIT).resolve_on(EventChannel::of(device)?)?;
        let qp = context.queue_pair(&pd, &cq).build()?;
        let private_data = if trips.is_last() { LAST.to_vec() } else { Vec::new() };
        let param = Param { private_data, ..Param::default() };
        let connection = route.connect(qp, &param).map_err(Refused::into_error)?;
        connection.disconnect(LIMIT).map_err(Refused::into_error)?;
    }
    Ok(trips.median())
}
