//! An end of a connection, and the round trips over it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use uverbs::cm::{Connection, Connector, EventChannel, Listener, Param};
use uverbs::{
    CompletionChannel, CompletionQueue, Context, Device, ProtectionDomain, QueuePair, Refused,
    WorkCompletion,
};

use crate::{Fallible, LIMIT};

/// Bytes of a message.
pub(crate) const SIZE: usize = 64;
/// First byte of the last message.
const LAST: u8 = 1;

/// The device that processes of this user share.
pub(crate) fn device() -> Fallible<Device> {
    Ok(uverbs::device("softhca")?)
}

/// An end of a connection.
pub(crate) struct Side {
    pub(crate) cq: CompletionQueue,
    pub(crate) channel: Option<CompletionChannel>,
    /// Queues that stay empty.
    pub(crate) others: Vec<CompletionQueue>,
    connection: Connection,
    _pd: ProtectionDomain,
}

struct Objects {
    cq: CompletionQueue,
    channel: Option<CompletionChannel>,
    qp: QueuePair,
    pd: ProtectionDomain,
}

fn objects(context: &Context, events: bool) -> Fallible<Objects> {
    let pd = context.alloc_pd()?;
    let channel = events.then(|| context.create_comp_channel()).transpose()?;
    let mut builder = context.completion_queue(256);
    if let Some(channel) = &channel {
        builder = builder.channel(channel);
    }
    let cq = builder.build()?;
    let qp = context.queue_pair(&pd, &cq).build()?;
    Ok(Objects { cq, channel, qp, pd })
}

/// Listens, and prints the address.
pub(crate) fn listen(device: &Device) -> Fallible<Listener> {
    let ip = *device.addresses()?.first().ok_or("the device has no address")?;
    let listener =
        Listener::builder(SocketAddr::new(ip, 0)).listen_on(EventChannel::of(device)?)?;
    println!("{}", listener.local_addr()?.ok_or("a listener has an address")?);
    Ok(listener)
}

impl Side {
    pub(crate) fn accept(device: &Device, listener: &Listener, events: bool) -> Fallible<Self> {
        let context = device.open()?;
        let request = listener.next(LIMIT)?;
        let Objects { cq, channel, mut qp, pd } = objects(&context, events)?;
        request.init(&mut qp)?;
        stock(&mut qp, &pd)?;
        let connection = request.accept(qp, &Param::default()).map_err(Refused::into_error)?;
        Ok(Self { cq, channel, others: Vec::new(), connection, _pd: pd })
    }

    pub(crate) fn connect(device: &Device, to: SocketAddr, events: bool) -> Fallible<Self> {
        let route = Connector::new(to).limit(LIMIT).resolve_on(EventChannel::of(device)?)?;
        let context = device.open()?;
        let Objects { cq, channel, mut qp, pd } = objects(&context, events)?;
        route.init(&mut qp)?;
        stock(&mut qp, &pd)?;
        let connection = route.connect(qp, &Param::default()).map_err(Refused::into_error)?;
        Ok(Self { cq, channel, others: Vec::new(), connection, _pd: pd })
    }

    /// Adds queues that stay empty.
    pub(crate) fn with_others(mut self, device: &Device, count: usize) -> Fallible<Self> {
        let context = device.open()?;
        self.others = (0..count).map(|_| context.create_cq(256)).collect::<Result<_, _>>()?;
        Ok(self)
    }

    pub(crate) fn send(&mut self, last: bool) -> Fallible<()> {
        let mut message = [0; SIZE];
        message[0] = if last { LAST } else { 0 };
        Ok(self.connection.queue_pair().post_send_inline(0, &message)?)
    }

    /// Takes a completion: true for a message, which is posted again, and whether it is the last.
    pub(crate) fn take(&mut self, done: WorkCompletion) -> Fallible<Option<bool>> {
        done.result?;
        let Some(frame) = done.frame.filter(|_| done.is_recv) else { return Ok(None) };
        let last = frame[0] == LAST;
        self.connection.queue_pair().post_recv(0, frame)?;
        Ok(Some(last))
    }

    /// Waits for a message; true for the last.
    fn receive(&mut self, wait: &mut Wait<'_>) -> Fallible<bool> {
        loop {
            let done = wait(self)?;
            if let Some(last) = self.take(done)? {
                return Ok(last);
            }
        }
    }

    /// Sends back each message.
    pub(crate) fn echo(mut self, wait: &mut Wait<'_>) -> Fallible<()> {
        loop {
            let last = self.receive(wait)?;
            self.send(last)?;
            if last {
                // The answer has left once it completes.
                while wait(&mut self)?.is_recv {}
                return Ok(());
            }
        }
    }

    /// Time of a round trip.
    pub(crate) fn trips(mut self, time: Duration, wait: &mut Wait<'_>) -> Fallible<Duration> {
        let mut trips = Trips::new(time);
        while trips.go_on() {
            self.send(trips.is_last())?;
            self.receive(wait)?;
        }
        Ok(trips.median())
    }
}

/// Times of round trips. Other work on the machine hardly changes the median.
pub(crate) struct Trips {
    start: Instant,
    limit: Duration,
    ends: Vec<Duration>,
    is_last: bool,
}

impl Trips {
    pub(crate) fn new(limit: Duration) -> Self {
        Self { start: Instant::now(), limit, ends: Vec::new(), is_last: false }
    }

    /// Notes the end of a trip; false after the last.
    pub(crate) fn go_on(&mut self) -> bool {
        self.ends.push(self.start.elapsed());
        let was_last = std::mem::replace(&mut self.is_last, self.start.elapsed() >= self.limit);
        !was_last
    }

    /// True if the trip that begins is the last.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last
    }

    pub(crate) fn median(&self) -> Duration {
        let trips = self.ends.windows(2).map(|two| two[1] - two[0]);
        let mut trips: Vec<Duration> = trips.collect();
        trips.sort_unstable();
        trips.get(trips.len() / 2).copied().unwrap_or_default()
    }
}

/// A way to wait for a completion.
pub(crate) type Wait<'a> = dyn FnMut(&mut Side) -> Fallible<WorkCompletion> + 'a;

fn stock(qp: &mut QueuePair, pd: &ProtectionDomain) -> Fallible<()> {
    let slab = pd.slab(SIZE, 4)?;
    while let Some(frame) = slab.take() {
        qp.post_recv(0, frame)?;
    }
    Ok(())
}
