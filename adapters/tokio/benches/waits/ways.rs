//! Ways in which programs wait.
//!
//! # Safety
//!
//! One call forks a process with one thread that is the program's.
#![allow(unsafe_code, reason = "forks")]

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::wait::waitpid;
use nix::unistd::{ForkResult, fork};
use uverbs::{Notify, WorkCompletion};
use uverbs_streams::{RdmaListener, RdmaStream, StreamOptions};

use crate::side::{SIZE, Side, Trips, device, listen};
use crate::{Fallible, LIMIT, NAP, connections};

/// Ways that are compared with each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    Messages,
    /// Messages, by a loop that sleeps.
    Sleeps,
    Connections,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Way {
    pub(crate) name: &'static str,
    pub(crate) group: Group,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Busy,
    Sleep,
    Yield,
    Queues,
    Wait,
    Events,
    Short,
    PolledEvents,
    Epoll,
    Stream,
    PolledStream,
    Tokio,
    Threads,
    Fork,
    Connect,
    ConnectPolled,
}

const fn way(name: &'static str, group: Group, kind: Kind) -> Way {
    Way { name, group, kind }
}

pub(crate) const ALL: [Way; 16] = [
    way("busy", Group::Messages, Kind::Busy),
    way("sleep", Group::Sleeps, Kind::Sleep),
    way("yield", Group::Messages, Kind::Yield),
    way("queues", Group::Messages, Kind::Queues),
    way("wait", Group::Messages, Kind::Wait),
    way("events", Group::Messages, Kind::Events),
    way("events_short", Group::Messages, Kind::Short),
    way("events_polled", Group::Messages, Kind::PolledEvents),
    way("epoll", Group::Messages, Kind::Epoll),
    way("stream", Group::Messages, Kind::Stream),
    way("stream_polled", Group::Messages, Kind::PolledStream),
    way("tokio", Group::Messages, Kind::Tokio),
    way("threads", Group::Messages, Kind::Threads),
    way("fork", Group::Messages, Kind::Fork),
    way("connect", Group::Connections, Kind::Connect),
    way("connect_polled", Group::Connections, Kind::ConnectPolled),
];

/// Empty queues that are polled, too.
const QUEUES: usize = 8;
/// Timeout of short waits for events.
const SHORT: Duration = Duration::from_micros(100);

impl Way {
    pub(crate) fn named(name: &str) -> Option<Self> {
        ALL.into_iter().find(|way| way.name == name)
    }

    /// True if one process starts the other side.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.kind, Kind::Threads | Kind::Fork)
    }

    pub(crate) fn serve(self) -> Fallible<()> {
        let device = device()?;
        match self.kind {
            Kind::Stream | Kind::PolledStream => return self.serve_stream(),
            Kind::Tokio => return tokio_side(None, Duration::ZERO).map(drop),
            Kind::Connect => return connections::serve(&device, false),
            Kind::ConnectPolled => return connections::serve(&device, true),
            _ => {}
        }
        let listener = listen(&device)?;
        let side = Side::accept(&device, &listener, self.has_events())?;
        self.equipped(side)?.echo(&mut *self.waiter()?)
    }

    /// Time of a round trip, as a client.
    pub(crate) fn measure(self, to: SocketAddr, time: Duration) -> Fallible<Duration> {
        let device = device()?;
        match self.kind {
            Kind::Stream | Kind::PolledStream => return self.measure_stream(to, time),
            Kind::Tokio => return tokio_side(Some(to), time),
            Kind::Connect | Kind::ConnectPolled => {
                return connections::measure(&device, to, time);
            }
            _ => {}
        }
        let side = Side::connect(&device, to, self.has_events())?;
        self.equipped(side)?.trips(time, &mut *self.waiter()?)
    }

    /// Time of a round trip to a side that this process starts.
    pub(crate) fn alone(self, time: Duration) -> Fallible<Duration> {
        if self.kind == Kind::Threads {
            let (here, there) = (uverbs::device("softhca0")?, uverbs::device("softhca1")?);
            let listener = listen_silently(&there)?;
            let at = listener.local_addr()?.ok_or("a listener has an address")?;
            let server =
                std::thread::spawn(move || Side::accept(&there, &listener, false)?.echo(&mut busy));
            let took = Side::connect(&here, at, false)?.trips(time, &mut busy)?;
            server.join().map_err(|_| "the server panicked")??;
            return Ok(took);
        }
        let device = device()?;
        let listener = listen_silently(&device)?;
        let at = listener.local_addr()?.ok_or("a listener has an address")?;
        // SAFETY: the program's only thread is this one; the child takes no lock of the device's
        // thread, since it opens a device of its process.
        if let ForkResult::Parent { child } = unsafe { fork() }? {
            Side::accept(&device, &listener, false)?.echo(&mut busy)?;
            waitpid(child, None)?;
            std::process::exit(0);
        }
        std::mem::forget((device, listener));
        Side::connect(&crate::side::device()?, at, false)?.trips(time, &mut busy)
    }

    fn has_events(self) -> bool {
        matches!(self.kind, Kind::Events | Kind::Short | Kind::PolledEvents | Kind::Epoll)
    }

    fn equipped(self, side: Side) -> Fallible<Side> {
        if self.kind == Kind::Queues { side.with_others(&device()?, QUEUES) } else { Ok(side) }
    }

    fn waiter(self) -> Fallible<Box<crate::side::Wait<'static>>> {
        Ok(match self.kind {
            Kind::Sleep => Box::new(|side| polled(side, || std::thread::sleep(NAP))),
            Kind::Yield => Box::new(|side| polled(side, std::thread::yield_now)),
            Kind::Queues => Box::new(queues),
            Kind::Wait | Kind::Events => Box::new(|side| Ok(side.cq.wait(LIMIT)?)),
            Kind::Short => Box::new(|side| {
                loop {
                    match side.cq.wait(SHORT) {
                        Err(uverbs::Error::TimedOut { .. }) => {}
                        done => return Ok(done?),
                    }
                }
            }),
            Kind::PolledEvents => Box::new(polled_events),
            Kind::Epoll => epoll()?,
            _ => Box::new(busy),
        })
    }

    fn serve_stream(self) -> Fallible<()> {
        let listener = listen_streams()?;
        println!("{}", listener.local_addr()?);
        let (mut stream, _) = listener.accept()?;
        let mut message = [0; SIZE];
        while self.fill(&mut stream, &mut message)? {
            stream.write_all(&message)?;
        }
        Ok(())
    }

    fn measure_stream(self, to: SocketAddr, time: Duration) -> Fallible<Duration> {
        let mut stream = StreamOptions::new().on(&device()?).connect(to)?;
        let (mut trips, mut message) = (Trips::new(time), [0; SIZE]);
        while trips.go_on() {
            stream.write_all(&message)?;
            self.fill(&mut stream, &mut message)?;
        }
        Ok(trips.median())
    }

    /// Reads a message; false at the end.
    fn fill(self, stream: &mut RdmaStream, message: &mut [u8]) -> Fallible<bool> {
        if self.kind == Kind::Stream {
            return Ok(stream.read(message)? == SIZE);
        }
        let start = Instant::now();
        loop {
            match stream.try_read(message) {
                Ok(count) => return Ok(count == SIZE),
                Err(error) if error.kind() != std::io::ErrorKind::WouldBlock => Err(error)?,
                Err(_) => in_time(start)?,
            }
        }
    }
}

fn listen_streams() -> Fallible<RdmaListener> {
    let device = device()?;
    let ip = *device.addresses()?.first().ok_or("the device has no address")?;
    Ok(StreamOptions::new().on(&device).listen(SocketAddr::new(ip, 0))?)
}

fn listen_silently(device: &uverbs::Device) -> Fallible<uverbs::cm::Listener> {
    let ip = *device.addresses()?.first().ok_or("the device has no address")?;
    let channel = uverbs::cm::EventChannel::of(device)?;
    Ok(uverbs::cm::Listener::builder(SocketAddr::new(ip, 0)).listen_on(channel)?)
}

fn in_time(start: Instant) -> Fallible<()> {
    if start.elapsed() < LIMIT { Ok(()) } else { Err("nothing came".into()) }
}

/// Polls, with `pause` after each poll that finds nothing.
fn polled(side: &mut Side, pause: impl Fn()) -> Fallible<WorkCompletion> {
    let (start, mut one) = (Instant::now(), [WorkCompletion::default()]);
    while side.cq.poll_into(&mut one) == 0 {
        pause();
        in_time(start)?;
    }
    let [done] = one;
    Ok(done)
}

fn busy(side: &mut Side) -> Fallible<WorkCompletion> {
    polled(side, std::hint::spin_loop)
}

/// Polls one queue after the other.
fn queues(side: &mut Side) -> Fallible<WorkCompletion> {
    let (start, mut one) = (Instant::now(), [WorkCompletion::default()]);
    while side.cq.poll_into(&mut one) == 0 {
        for other in &mut side.others {
            other.poll_with(1, |_| ());
        }
        in_time(start)?;
    }
    let [done] = one;
    Ok(done)
}

/// Arms, polls once more, and asks for the event until it comes.
fn polled_events(side: &mut Side) -> Fallible<WorkCompletion> {
    let start = Instant::now();
    let mut one = [WorkCompletion::default()];
    while side.cq.poll_into(&mut one) == 0 {
        side.cq.arm(Notify::Any)?;
        if side.cq.poll_into(&mut one) != 0 {
            break;
        }
        while side.channel.as_ref().ok_or("no channel")?.try_next()?.is_none() {
            in_time(start)?;
        }
    }
    let [done] = one;
    Ok(done)
}

/// Arms, polls once more, and sleeps at an epoll instance.
fn epoll() -> Fallible<Box<crate::side::Wait<'static>>> {
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    let mut is_watched = false;
    Ok(Box::new(move |side| {
        let mut one = [WorkCompletion::default()];
        let channel = side.channel.clone().ok_or("no channel")?;
        if !std::mem::replace(&mut is_watched, true) {
            epoll.add(channel.as_fd(), EpollEvent::new(EpollFlags::EPOLLIN, 0))?;
        }
        while side.cq.poll_into(&mut one) == 0 {
            side.cq.arm(Notify::Any)?;
            if side.cq.poll_into(&mut one) != 0 {
                break;
            }
            let limit = EpollTimeout::try_from(LIMIT)?;
            if epoll.wait(&mut [EpollEvent::empty()], limit)? == 0 {
                return Err("nothing came".into());
            }
            while channel.try_next()?.is_some() {}
        }
        let [done] = one;
        Ok(done)
    }))
}

/// Streams of the adapter, in a runtime of one thread: a server without an address.
fn tokio_side(to: Option<SocketAddr>, time: Duration) -> Fallible<Duration> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut message = [0; SIZE];
        let Some(to) = to else {
            let listener = listen_streams()?;
            println!("{}", listener.local_addr()?);
            let listener = uverbs_tokio::RdmaListener::new(listener)?;
            let (mut stream, _) = listener.accept().await?;
            while stream.read_exact(&mut message).await.is_ok() {
                stream.write_all(&message).await?;
            }
            return Ok(Duration::ZERO);
        };
        let stream = StreamOptions::new().on(&device()?).connect(to)?;
        let mut stream = uverbs_tokio::RdmaStream::new(stream)?;
        let mut trips = Trips::new(time);
        while trips.go_on() {
            stream.write_all(&message).await?;
            stream.read_exact(&mut message).await?;
        }
        Ok(trips.median())
    })
}
