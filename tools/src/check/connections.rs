//! Connections by address: what the connection manager connects carries verified messages. iWARP is
//! connected in no other way.

use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use nix::ifaddrs::getifaddrs;
use uverbs::cm::{Endpoint, EndpointListener, EventChannel, Lookup, NewEndpoint, Param};
use uverbs::{
    AccessFlags, Device, ExposedMemory, Frame, QpCap, QueuePair, Slab, Unposted, WorkCompletion,
};

use super::Budget;
use super::messages::SIZES;
use super::report::Row;
use crate::base::error::Error;
use crate::base::select::Two;
use crate::link::operation::Operation;
use crate::link::verify::{Pattern, Who};

const PART: &str = "connections";

/// Limit of each wait.
const LIMIT: Duration = Duration::from_secs(10);

/// Reason to post nothing to a queue pair that another part would connect.
pub(super) const IWARP: &str = "iWARP connects by address alone: see connections";

/// A row for each operation that all transports of the connection manager have. None for a device
/// without an address, unless it has no other way to connect.
pub(super) fn rows(devices: &Two, longest: u32, budget: &Budget) -> Vec<Row> {
    let Some(ip) = address_of(&devices.server) else {
        let why = "the device's interface has no IPv4 address";
        let iwarp = devices.client.is_iwarp();
        return iwarp.then(|| Row::untried(PART, "RC by address", why)).into_iter().collect();
    };
    let all = [Operation::Send, Operation::Write, Operation::Read];
    all.into_iter().map(|operation| row(devices, (ip, longest), operation, budget)).collect()
}

fn row(devices: &Two, (ip, longest): (IpAddr, u32), operation: Operation, budget: &Budget) -> Row {
    let name = format!("RC {operation} by address");
    if let Some(why) = budget.over() {
        return Row::untried(PART, &name, why);
    }
    let channels = [&devices.server, &devices.client].map(EventChannel::of);
    let channels = match channels {
        [Ok(server), Ok(client)] => (server, client),
        [Err(error), _] | [_, Err(error)] => return Row::untried(PART, &name, error.to_string()),
    };
    let sizes = SIZES.into_iter().filter(|size| *size <= longest);
    let run = || -> Result<usize, Error> {
        let mut ends = Ends::new(channels, ip, longest.min(SIZES[SIZES.len() - 1]))?;
        for (iteration, size) in (0..).zip(sizes.clone()) {
            ends.turn(operation, iteration, size as usize)?;
        }
        Ok(sizes.count())
    };
    match run() {
        Ok(count) => Row::good(PART, &name, format!("{count} sizes verified, at {ip}")),
        Err(error) => Row::of_error(PART, &name, &error),
    }
}

/// An IPv4 address of the device: a GID's, or on iWARP its interface's.
fn address_of(device: &Device) -> Option<IpAddr> {
    let told = device.addresses().unwrap_or_default();
    let interfaces = device.net_interfaces();
    told.into_iter().find(IpAddr::is_ipv4).or_else(|| {
        let mut all = getifaddrs().ok()?.filter(|one| interfaces.contains(&one.interface_name));
        all.find_map(|one| Some(IpAddr::V4(one.address?.as_sockaddr_in()?.ip())))
    })
}

/// One side of a connection.
struct Side {
    end: Endpoint,
    memory: ExposedMemory,
    slab: Slab,
}

/// Both sides.
struct Ends {
    client: Side,
    server: Side,
}

impl Side {
    fn new(end: Endpoint, longest: u32) -> Result<Self, uverbs::Error> {
        let access = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ;
        let memory = end.pd().expose(longest as usize, access)?;
        let slab = end.pd().slab(longest as usize, 2)?;
        Ok(Self { end, memory, slab })
    }

    /// A frame of this length. The slab has two, of which each turn uses one at a time.
    fn frame(&self, len: usize) -> Result<Frame, Error> {
        let frame = self.slab.take().ok_or_else(|| Error::Peer("no frame came back".to_owned()));
        frame.map(|mut frame| {
            frame.set_len(len);
            frame
        })
    }

    fn post(
        &mut self,
        post: impl FnOnce(&mut QueuePair) -> Result<(), Unposted<Frame>>,
    ) -> Result<(), uverbs::Error> {
        post(self.end.queue_pair()).map_err(Into::into)
    }
}

impl Ends {
    /// Connects two queue pairs at an address, of which the second channel is the client's.
    fn new(
        (there, here): (EventChannel, EventChannel),
        ip: IpAddr,
        longest: u32,
    ) -> Result<Self, Error> {
        let cap = QpCap { max_send_wr: 4, max_recv_wr: 4, ..QpCap::default() };
        let find = |lookup: Lookup, port: Option<&str>| {
            let found = lookup.numeric().find(Some(&ip.to_string()), port);
            let found = found.ok().and_then(|found| found.into_iter().next());
            found.ok_or_else(|| Error::Peer(format!("{ip} has no address information")))
        };
        let own = find(Lookup::new().passive(), None)?;
        let mut listener = EndpointListener::listen_on(there, &own, &cap)?;
        let at = listener.listener().local_addr()?.map_or(0, |at| at.port());
        let peer = find(Lookup::new(), Some(&at.to_string()))?;
        let (client, server) = thread::scope(|scope| {
            let server = scope.spawn(|| listener.next(LIMIT)?.accept(&Param::default()));
            let client = NewEndpoint::to_on(here, &peer, &cap, LIMIT)
                .and_then(|new| new.connect(&Param::default()));
            let panicked = |_| Err(uverbs::Error::kernel("rdma_accept", uverbs::Errno::EIO));
            (client, server.join().unwrap_or_else(panicked))
        });
        Ok(Self { client: Side::new(client?, longest)?, server: Side::new(server?, longest)? })
    }
    /// One operation of the client, checked where its bytes arrive.
    fn turn(&mut self, operation: Operation, iteration: u64, size: usize) -> Result<(), Error> {
        let Self { client, server } = self;
        let pattern = Pattern::new(iteration, Who::Client);
        let memory = server.memory.remote(0);
        let mut frame = client.frame(size)?;
        if operation == Operation::Read {
            let mut bytes = vec![0; size];
            pattern.fill(&mut bytes);
            server.memory.write(0, &bytes).map_err(uverbs::Error::from)?;
            client.post(|qp| qp.post_read(iteration, frame, memory))?;
            return Ok(pattern.check(&done(client.end.send_completion(LIMIT))?)?);
        }
        pattern.fill(&mut frame);
        let room = server.frame(size)?;
        server.post(|qp| qp.post_recv(iteration, room))?;
        if operation == Operation::Send {
            client.post(|qp| qp.post_send(iteration, frame))?;
            done(client.end.send_completion(LIMIT))?;
            return Ok(pattern.check(&done(server.end.recv_completion(LIMIT))?)?);
        }
        client.post(|qp| qp.post_write(iteration, frame, memory))?;
        done(client.end.send_completion(LIMIT))?;
        // It arrives behind the WRITE.
        let told = client.frame(1)?;
        client.post(|qp| qp.post_send(iteration, told))?;
        done(client.end.send_completion(LIMIT))?;
        done(server.end.recv_completion(LIMIT))?;
        let mut bytes = vec![0; size];
        server.memory.read(0, &mut bytes).map_err(uverbs::Error::from)?;
        Ok(pattern.check(&bytes)?)
    }
}

/// Frame of a completed work request.
fn done(completion: Result<WorkCompletion, uverbs::Error>) -> Result<Frame, Error> {
    let WorkCompletion { result, frame, .. } = completion?;
    result.map_err(uverbs::Error::from)?;
    frame.ok_or_else(|| Error::Peer("a completion brought no frame".to_owned()))
}
