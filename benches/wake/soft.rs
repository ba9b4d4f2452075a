//! The software HCA's side: two connected queue pairs, on one device or on two.

use std::thread;
use std::time::{Duration, Instant};

use uverbs::softhca::SoftHca;
use uverbs::softhca::wire::Fabric;
use uverbs::{
    Completed, CompletionQueue, Context, Device, Frame, Local, ProtectionDomain, QueuePair,
    WorkCompletion,
};

use crate::system::{Spread, usage};
use crate::{Pace, SIZE};

type Fallible<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Limit of every wait.
const LIMIT: Duration = Duration::from_secs(20);
/// Idle time before a message that wakes the device.
pub(crate) const IDLE: Duration = Duration::from_millis(100);
/// Messages under way in the rate's case, and work requests per doorbell.
const WINDOW: usize = 64;
const CHAIN: usize = 16;

/// The devices of the two sides.
#[derive(Debug)]
pub(crate) struct Two([Device; 2]);

fn device(fabric: &Fabric, pace: &Pace) -> Fallible<Device> {
    let builder = SoftHca::builder().fabric(fabric).idle(|idle| {
        idle.spin = pace.spin.unwrap_or(idle.spin);
        idle.awake = pace.awake.unwrap_or(idle.awake);
        idle.look = pace.look.unwrap_or(idle.look);
        idle.protect &= !pace.blind;
    });
    Ok(Device::from(builder.build()?))
}

pub(crate) fn one_device(pace: &Pace) -> Fallible<Two> {
    let device = device(&Fabric::new(), pace)?;
    Ok(Two([device.clone(), device]))
}

pub(crate) fn two_devices(pace: &Pace) -> Fallible<Two> {
    let fabric = Fabric::new();
    Ok(Two([device(&fabric, pace)?, device(&fabric, pace)?]))
}

/// A queue pair with a completion queue for each direction.
struct Side {
    qp: QueuePair,
    sends: CompletionQueue,
    receives: CompletionQueue,
    pd: ProtectionDomain,
    _context: Context,
}

impl Side {
    fn new(device: &Device) -> Fallible<Self> {
        let context = device.open()?;
        let pd = context.alloc_pd()?;
        let (sends, receives) = (context.create_cq(256)?, context.create_cq(256)?);
        let qp = context.queue_pair(&pd, &sends).recv_cq(&receives).build()?;
        Ok(Self { qp, sends, receives, pd, _context: context })
    }

    fn frames(&self, count: usize) -> Fallible<Vec<Frame>> {
        let slab = self.pd.slab(SIZE, count)?;
        let mut frames = Vec::with_capacity(count);
        while let Some(mut frame) = slab.take() {
            frame.set_len(SIZE);
            frames.push(frame);
        }
        Ok(frames)
    }

    fn expect(&mut self, frame: Frame) -> Fallible<()> {
        Ok(self.qp.post_recv(0, frame)?)
    }

    fn send(&mut self, frame: Frame) -> Fallible<()> {
        let mut batch = self.qp.batch();
        batch.send(1, frame)?;
        batch.ring();
        Ok(())
    }
}

/// The next completion's frame.
fn wait(cq: &mut CompletionQueue) -> Fallible<Frame> {
    let done = cq.wait(LIMIT)?;
    done.result?;
    done.frame.ok_or_else(|| "a completion without its frame".into())
}

fn pair(two: &Two) -> Fallible<[Side; 2]> {
    let [mut client, mut server] = [Side::new(&two.0[0])?, Side::new(&two.0[1])?];
    let local = Local::default();
    let (here, there) = (client.qp.prepare(&local)?, server.qp.prepare(&local)?);
    client.qp.connect(&there)?;
    server.qp.connect(&here)?;
    Ok([client, server])
}

/// Half of each round trip of a ping-pong between two threads, which yield between polls.
pub(crate) fn half_trips(two: &Two, trips: usize) -> Fallible<Spread> {
    let [mut client, mut server] = pair(two)?;
    let warm = trips / 10;
    for side in [&mut client, &mut server] {
        for frame in side.frames(2)? {
            side.expect(frame)?;
        }
    }
    let echo = thread::spawn(move || -> Fallible<()> {
        let mut frame = server.frames(1)?.pop().ok_or("no frame")?;
        for _ in 0..warm + trips {
            let arrived = wait(&mut server.receives)?;
            server.expect(arrived)?;
            server.send(frame)?;
            frame = wait(&mut server.sends)?;
        }
        Ok(())
    });
    let mut frame = client.frames(1)?.pop().ok_or("no frame")?;
    let mut times = Vec::with_capacity(trips);
    for trip in 0..warm + trips {
        let start = Instant::now();
        client.send(frame)?;
        let arrived = wait(&mut client.receives)?;
        let took = start.elapsed();
        client.expect(arrived)?;
        frame = wait(&mut client.sends)?;
        if trip >= warm {
            times.push(took / 2);
        }
    }
    echo.join().expect("the echoing thread")?;
    Ok(Spread::of(times))
}

/// Messages per second one way, in chains.
pub(crate) fn rate(two: &Two, messages: usize) -> Fallible<f64> {
    let [mut client, mut server] = pair(two)?;
    for frame in server.frames(2 * WINDOW)? {
        server.expect(frame)?;
    }
    let start = Instant::now();
    let sink = thread::spawn(move || -> Fallible<Side> {
        let mut left = messages;
        while left > 0 {
            let first = wait(&mut server.receives)?;
            let mut arrived = vec![first];
            server.receives.poll_with(WINDOW, |mut done| arrived.extend(done.take_frame()));
            left -= arrived.len();
            let (recv, mut frames) = (&mut server.qp, arrived.into_iter());
            let mut batch = recv.recv_batch();
            frames.try_for_each(|frame| batch.post(0, frame))?;
            batch.ring();
        }
        Ok(server)
    });
    let mut free = client.frames(WINDOW)?;
    let mut posted = 0;
    while posted < messages || free.len() < WINDOW {
        let chain = CHAIN.min(free.len()).min(messages - posted);
        if chain > 0 {
            let mut batch = client.qp.batch();
            for frame in free.drain(free.len() - chain..) {
                batch.send(1, frame)?;
            }
            batch.ring();
            posted += chain;
        } else {
            free.push(wait(&mut client.sends)?);
        }
        client.sends.poll_with(WINDOW, |mut done| free.extend(done.take_frame()));
    }
    let server = sink.join().expect("the receiving thread")?;
    let took = start.elapsed();
    drop(server);
    Ok(messages as f64 / took.as_secs_f64())
}

/// Processor use of an open device without work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Idle {
    pub(crate) percent: f64,
    pub(crate) wakes: f64,
}

/// The process's share over `time`, with two connected queue pairs that have talked.
pub(crate) fn idle(two: &Two, time: Duration) -> Fallible<Idle> {
    let mut sides = pair(two)?;
    message(&mut sides)?;
    thread::sleep(IDLE);
    let before = usage();
    thread::sleep(time);
    let after = usage();
    let share = (after.0 - before.0).as_secs_f64() / time.as_secs_f64();
    Ok(Idle { percent: share * 100.0, wakes: (after.1 - before.1) / time.as_secs_f64() })
}

/// From the post to the receiver's completion, each behind an idle time.
pub(crate) fn wakes(two: &Two, count: usize) -> Fallible<Spread> {
    let mut sides = pair(two)?;
    message(&mut sides)?;
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        thread::sleep(IDLE);
        times.push(message(&mut sides)?);
    }
    Ok(Spread::of(times))
}

/// One message, sent and received by this thread.
fn message([client, server]: &mut [Side; 2]) -> Fallible<Duration> {
    let (sent, received) = (client.frames(1)?, server.frames(1)?);
    for frame in received {
        server.expect(frame)?;
    }
    let start = Instant::now();
    for frame in sent {
        client.send(frame)?;
    }
    // Without yielding: on a busy machine that would measure how long others keep the processor.
    let mut done = [WorkCompletion::default()];
    while server.receives.poll_into(&mut done) == 0 && start.elapsed() < LIMIT {
        std::hint::spin_loop();
    }
    let took = start.elapsed();
    let [done] = done;
    if done.result? != Completed::Recv {
        return Err("not a receive".into());
    }
    wait(&mut client.sends)?;
    Ok(took)
}
