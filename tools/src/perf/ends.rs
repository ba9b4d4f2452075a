//! Ends of a run: both in this process, or one with a connection to the other; and waits of one end
//! for the other.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::clock::Clock;
use super::exchange::{Control, Done};
use super::shape::Shape;
use super::side::{About, Prepared, Side};
use crate::base::error::Error;
use crate::base::progress::{Length, Progress};
use crate::base::select::Two;
use crate::base::sleep::Sleep;
use crate::link::verify::Who;

/// Empty polls between two looks at the clock, if polls never yield. The software HCA's
/// yield, and then other threads may run for milliseconds: it is looked at each time.
const PATIENCE: u32 = 256;
/// Time between two looks at the other process, and at reasons for missing messages.
const LOOK: Duration = Duration::from_millis(1);
/// Time between two looks at anything else.
const TICK: Duration = Duration::from_millis(100);

/// Ends in this process.
pub(crate) enum Ends {
    Both(Pair),
    One(Box<Side>, Control),
}

/// Both ends, driven by one thread.
pub(crate) struct Pair {
    pub(crate) client: Box<Side>,
    pub(crate) server: Box<Side>,
}

/// Sides of a run that are in this process.
pub(crate) trait Here {
    fn sides(&mut self) -> impl Iterator<Item = &mut Side>;
}

impl Pair {
    /// Makes the queue pairs of client and server.
    pub(crate) fn prepare(devices: &Two, bench: &Bench<'_>) -> Result<[Prepared; 2], Error> {
        let make =
            |who, device| Prepared::new(who, device, devices.embedded, bench.shape, bench.size);
        Ok([make(Who::Client, &devices.client)?, make(Who::Server, &devices.server)?])
    }

    pub(crate) fn connect(client: Prepared, server: Prepared) -> Result<Self, Error> {
        let hands = client.hands.clone();
        let client = Box::new(client.connect(&server.hands)?);
        Ok(Self { client, server: Box::new(server.connect(&hands)?) })
    }

    pub(crate) fn side(&mut self, who: Who) -> &mut Side {
        match who {
            Who::Client => &mut self.client,
            Who::Server => &mut self.server,
        }
    }

    /// Looks for a reason that no message comes, in the completions of both sides.
    pub(crate) fn look(&mut self, iteration: u64) -> Result<Option<Done>, Error> {
        self.client.look(iteration)?;
        self.server.look(iteration)?;
        Ok(None)
    }
}

impl Here for Pair {
    fn sides(&mut self) -> impl Iterator<Item = &mut Side> {
        [&mut *self.client, &mut *self.server].into_iter()
    }
}

/// Context of all measuring loops.
pub(crate) struct Bench<'a> {
    pub(crate) shape: &'a Shape,
    pub(crate) size: u32,
    pub(crate) clock: &'a Clock,
    /// Set by Ctrl-C.
    pub(crate) stop: &'a AtomicBool,
    /// The device is software in this process, and needs processor time.
    pub(crate) embedded: bool,
    pub(crate) quiet: bool,
    /// Name of this part of a run over several sizes.
    pub(crate) part: &'a str,
}

impl Ends {
    /// Brings both ends up in this process.
    pub(crate) fn both(devices: &Two, bench: &Bench<'_>) -> Result<Self, Error> {
        let [client, server] = Pair::prepare(devices, bench)?;
        Pair::connect(client, server).map(Self::Both)
    }

    /// Brings up one end, and connects it with the other over TCP.
    pub(crate) fn one(
        who: Who,
        devices: &Two,
        mut control: Control,
        bench: &Bench<'_>,
    ) -> Result<Self, Error> {
        let device = if who == Who::Client { &devices.client } else { &devices.server };
        let met = (|| {
            control.agree(bench.shape, bench.size, bench.stop)?;
            let side = Prepared::new(who, device, devices.embedded, bench.shape, bench.size)?;
            let peers = control.swap(&side.hands, bench.stop)?;
            let side = side.connect(&peers)?;
            control.ready(bench.shape.qps, bench.stop)?;
            control.start();
            Ok(Box::new(side))
        })();
        match met {
            Ok(side) => Ok(Self::One(side, control)),
            Err(error) => {
                control.give_up(&error);
                Err(error)
            }
        }
    }

    /// Description of the ends in this process, for a record.
    pub(crate) fn about(&self) -> Vec<About> {
        match self {
            Self::Both(pair) => vec![pair.client.about.clone(), pair.server.about.clone()],
            Self::One(side, _) => vec![side.about.clone()],
        }
    }
}

/// Result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The awaited message came.
    Came,
    /// The user ended the run.
    Stopped,
    /// The other process was done before.
    Done(Done),
}

impl Bench<'_> {
    pub(crate) fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Bench for the last exchange of a run that the user ended, whose results are reported. A
    /// second Ctrl-C ends the program.
    pub(crate) fn parting(&self) -> Self {
        static NEVER: AtomicBool = AtomicBool::new(false);
        Self { stop: &NEVER, ..*self }
    }

    /// Called between two empty polls of all local `sides`.
    #[inline]
    pub(crate) fn idle<'s>(
        &self,
        sleep: &mut Sleep,
        sides: impl IntoIterator<Item = &'s mut Side>,
    ) -> Result<(), Error> {
        if self.shape.events {
            sleep.idle(sides.into_iter().map(Side::queue))?;
        } else {
            spin_loop();
        }
        Ok(())
    }

    /// Polls `ends` until `came`, within the time limit. Sometimes, and at the limit, `look` tests
    /// for a reason that nothing comes.
    #[inline]
    pub(crate) fn wait<E: Here>(
        &self,
        ends: &mut E,
        iteration: u64,
        what: &'static str,
        mut came: impl FnMut(&mut E) -> Result<bool, Error>,
        mut look: impl FnMut(&mut E) -> Result<Option<Done>, Error>,
    ) -> Result<Waited, Error> {
        // Tested first, since the code below is skipped while all awaited messages are there.
        if self.stopped() {
            return Ok(Waited::Stopped);
        }
        let patience = if self.shape.events || self.embedded { 1 } else { PATIENCE };
        let mut fruitless = 0u32;
        let (mut since, mut next) = (None, LOOK);
        let mut sleep = Sleep::default();
        while !came(ends)? {
            fruitless = fruitless.wrapping_add(1);
            // Between sleeps there is time to look.
            if fruitless.is_multiple_of(patience) {
                let waited = since.get_or_insert_with(Instant::now).elapsed();
                let over = waited >= self.shape.timeout();
                if over || waited >= next {
                    next = waited + LOOK;
                    if let Some(done) = look(ends)? {
                        return Ok(Waited::Done(done));
                    }
                    if self.stopped() {
                        return Ok(Waited::Stopped);
                    }
                }
                if over {
                    return Err(Error::Silence { iteration, what, waited });
                }
            }
            self.idle(&mut sleep, ends.sides())?;
        }
        Ok(Waited::Came)
    }
}

/// Work done ten times a second: the bar and the sign of life. Other ticks cost a comparison.
pub(crate) struct Ticker {
    progress: Progress,
    every: u64,
    next: u64,
}

impl Ticker {
    /// `messages` is 0 for an end that only serves.
    pub(crate) fn new(bench: &Bench<'_>, messages: u64) -> Self {
        let length = match bench.shape.duration() {
            _ if messages == 0 => Length::Unknown,
            Some(time) => Length::Time(time.as_millis() as u64),
            None => Length::Count(messages, "messages"),
        };
        let progress = Progress::new(length, bench.part, bench.quiet);
        let every = bench.clock.ticks(TICK).max(1);
        Self { progress, every, next: bench.clock.now().saturating_add(every) }
    }

    /// Returns `true` if a tick is due.
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        now >= self.next
    }

    /// Shows how far the run is: messages, or the time since `start`.
    #[cold]
    pub(crate) fn tick(&mut self, bench: &Bench<'_>, start: u64, now: u64, messages: u64) {
        self.next = now.saturating_add(self.every);
        let done = match bench.shape.duration_s {
            Some(_) => bench.clock.ns(start, now) / 1_000_000,
            None => messages,
        };
        self.progress.tick(done, Instant::now());
    }
}

/// Two threads in place of two processes, which could not share the software HCA. The code is the
/// same.
#[cfg(test)]
mod tests {
    use std::thread;

    use clap::Parser;
    use nix::sys::resource::{UsageWho, getrusage};
    use nix::sys::time::TimeVal;

    use super::super::options::Options;
    use super::super::shape::{Family, Test};
    use super::super::{bw, lat};
    use super::*;
    use crate::base::select;
    use crate::link::tcp::{Listener, Stream};

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        options: Options,
    }

    #[derive(Debug, PartialEq)]
    enum Gave {
        Samples(u64),
        Messages { own: u64, peer: u64 },
        Lossy { own: u64, lost: u64 },
        Nothing,
    }

    fn end(
        who: Who,
        devices: &Two,
        control: Control,
        shape: &Shape,
        size: u32,
        stop: &AtomicBool,
    ) -> Result<Gave, Error> {
        let clock = Clock::new();
        let bench =
            Bench { shape, size, clock: &clock, stop, embedded: true, quiet: true, part: "" };
        let mut ends = Ends::one(who, devices, control, &bench)?;
        Ok(match shape.test {
            Test::Lat => match lat::run(&mut ends, &bench)? {
                Some(run) => Gave::Samples(run.histogram.len()),
                None => Gave::Nothing,
            },
            Test::Bw => match bw::run(&mut ends, &bench)? {
                Some(run) if run.lost > 0 => Gave::Lossy { own: run.messages, lost: run.lost },
                Some(run) => Gave::Messages { own: run.messages, peer: run.peer.messages },
                None => Gave::Nothing,
            },
        })
    }

    /// Runs both ends, each with its arguments, and returns the result of each.
    fn both(family: Family, client_args: &str, server_args: &str) -> [Result<Gave, String>; 2] {
        let never = AtomicBool::new(false);
        both_until(&never, family, client_args, server_args)
    }

    /// Runs both ends until the client's user stops it.
    fn both_until(
        enough: &AtomicBool,
        family: Family,
        client_args: &str,
        server_args: &str,
    ) -> [Result<Gave, String>; 2] {
        let plan = |args: &str| {
            let words = std::iter::once("perf").chain(args.split(' '));
            Only::parse_from(words).options.plan(family).unwrap()
        };
        let (mine, theirs) = (plan(client_args), plan(server_args));
        let devices = select::two(Some("softhca"), true).unwrap();
        let stop = AtomicBool::new(false);
        let limit = Duration::from_secs(60);
        let listener = Listener::bind(0).unwrap();
        let port = listener.port();
        let text = |gave: Result<Gave, Error>| gave.map_err(|error| error.to_string());
        thread::scope(|scope| {
            let server = scope.spawn(|| {
                let control = Control::new(listener.accept(limit, limit, &stop)?);
                end(Who::Server, &devices, control, &theirs.shape, theirs.sizes[0], &stop)
            });
            let client = Stream::connect("127.0.0.1", port, limit).map_err(Error::from);
            let client = client.and_then(|stream| {
                let control = Control::new(stream);
                end(Who::Client, &devices, control, &mine.shape, mine.sizes[0], enough)
            });
            [text(client), text(server.join().unwrap())]
        })
    }

    impl Here for () {
        fn sides(&mut self) -> impl Iterator<Item = &mut Side> {
            std::iter::empty()
        }
    }

    /// Processor time of this thread.
    fn processor_time() -> Duration {
        let used = getrusage(UsageWho::RUSAGE_THREAD).unwrap();
        let micros = |time: TimeVal| time.tv_sec() * 1_000_000 + time.tv_usec();
        Duration::from_micros((micros(used.user_time()) + micros(used.system_time())) as u64)
    }

    #[test]
    fn who_waits_by_events_takes_no_processor_time() {
        let devices = select::two(Some("softhca"), true).unwrap();
        let (clock, stop) = (Clock::new(), AtomicBool::new(false));
        for connection in ["RC", "UC", "UD", "XRC", "DC", "RC --use-srq"] {
            let args = format!("perf lat -e --timeout 0.6 -c {connection}");
            let shape = Only::parse_from(args.split(' ')).options.plan(Family::Send).unwrap().shape;
            let bench = Bench {
                shape: &shape,
                size: 8,
                clock: &clock,
                stop: &stop,
                embedded: true,
                quiet: true,
                part: "",
            };
            let Ends::Both(mut pair) = Ends::both(&devices, &bench).unwrap() else {
                unreachable!("both ends")
            };
            let (before, started) = (processor_time(), Instant::now());
            let seen = |pair: &mut Pair| pair.server.seen(1);
            let error = bench.wait(&mut pair, 1, "a message", seen, |_| Ok(None)).unwrap_err();
            assert!(matches!(error, Error::Silence { .. }), "{connection}: {error}");
            let (used, waited) = (processor_time() - before, started.elapsed());
            assert!(used * 10 < waited, "{connection}: {used:?} of {waited:?}");
        }
    }

    #[test]
    fn a_wait_that_is_never_in_vain_can_be_interrupted() {
        let shape = Only::parse_from(["perf", "lat"]).options.plan(Family::Write).unwrap().shape;
        let (clock, stop) = (Clock::new(), AtomicBool::new(false));
        let bench = Bench {
            shape: &shape,
            size: 2,
            clock: &clock,
            stop: &stop,
            embedded: true,
            quiet: true,
            part: "",
        };
        let wait = || bench.wait(&mut (), 1, "all", |()| Ok(true), |()| Ok(None)).unwrap();
        assert_eq!(wait(), Waited::Came);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(wait(), Waited::Stopped);
    }

    #[test]
    fn a_client_that_is_interrupted_keeps_what_it_measured() {
        for (family, args) in [
            (Family::Write, "lat -D 600"),
            (Family::Read, "lat -D 600"),
            (Family::Send, "bw -D 600 -s 64 --check"),
            (Family::Write, "bw -D 600 -s 64 -b"),
        ] {
            let interrupted = |after: u64| {
                let enough = AtomicBool::new(false);
                thread::scope(|scope| {
                    scope.spawn(|| {
                        thread::sleep(Duration::from_millis(after));
                        enough.store(true, Ordering::Relaxed);
                    });
                    both_until(&enough, family, args, args)
                })
            };
            // A client that is interrupted before it measures has no result. On a busy machine the
            // warm-up takes seconds.
            let early = |[client, _]: &[Result<Gave, String>; 2]| {
                client.as_ref().is_err_and(|error| error == "interrupted")
            };
            let mut gave = interrupted(500);
            for after in [2000, 8000, 32_000] {
                if early(&gave) {
                    gave = interrupted(after);
                }
            }
            let [Ok(client), Ok(server)] = gave else { panic!("{family:?} {args}: {gave:?}") };
            assert_ne!(client, Gave::Nothing, "{family:?} {args}");
            assert_eq!(server != Gave::Nothing, args.ends_with("-b"), "{family:?} {args}");
        }
    }

    #[test]
    fn two_ends_measure_latency() {
        for (family, args) in [
            (Family::Write, "lat -n 200 --warmup 10 -s 100"),
            (Family::Write, "lat -n 200 --warmup 10 -s 5000 --check"),
            (Family::Send, "lat -n 200 --warmup 10 -s 100 --check"),
            (Family::Send, "lat -n 200 --warmup 10 -s 5000 -I 0"),
            (Family::Read, "lat -n 200 --warmup 10 -s 5000 --check"),
            (Family::Atomic, "lat -n 200 --warmup 10 --check"),
            (Family::Atomic, "lat -n 200 --warmup 10 --check -A cas"),
            (Family::Write, "lat -n 200 --warmup 10 -s 5000 --check -c UC"),
            (Family::Send, "lat -n 200 --warmup 10 -s 5000 --check -c UC"),
            (Family::Send, "lat -n 200 --warmup 10 -s 100 --check -c UD"),
            (Family::Send, "lat -n 200 --warmup 10 -s 1024 -I 0 --check -c UD"),
            (Family::Send, "lat -n 200 --warmup 10 -s 100 --check -e"),
            (Family::Send, "lat -n 200 --warmup 10 -s 100 --check -e -c UC"),
            (Family::Send, "lat -n 200 --warmup 10 -s 100 --check -e -c UD"),
            (Family::Send, "lat -n 200 --warmup 10 -s 100 --check -e -c XRC"),
            (Family::Send, "lat -n 200 --warmup 10 -s 100 --check -e --use-srq"),
            (Family::Read, "lat -n 200 --warmup 10 -s 5000 --check -e"),
            (Family::Atomic, "lat -n 200 --warmup 10 --check -e -c XRC"),
        ] {
            let gave = both(family, args, args);
            assert_eq!(gave, [Ok(Gave::Samples(200)), Ok(Gave::Nothing)], "{family:?} {args}");
        }
    }

    #[test]
    fn two_ends_measure_bandwidth() {
        for (family, args, own, back) in [
            (Family::Write, "bw -n 500 --warmup 10 -s 5000 --check", 500, 0),
            (Family::Write, "bw -n 500 --warmup 10 -s 100 -I 128 -b --check -q 3", 1500, 1500),
            (Family::Send, "bw -n 500 --warmup 10 -s 5000 --check -q 2", 1000, 0),
            (Family::Send, "bw -n 500 --warmup 10 -s 64 -b -r 700 --check", 500, 500),
            (Family::Read, "bw -n 500 --warmup 10 -s 5000 --check -b", 500, 500),
            (Family::Atomic, "bw -n 500 --warmup 10 --check -q 2 -A cas", 1000, 0),
            (Family::Write, "bw -n 500 --warmup 10 -s 5000 --check -c UC", 500, 0),
            (Family::Send, "bw -n 400 --warmup 10 -s 5000 --check -c UC -q 2", 800, 0),
            (Family::Send, "bw -n 400 --warmup 10 -s 1024 --check -c UD -b", 400, 400),
            (Family::Write, "bw -n 500 --warmup 10 -s 5000 --check -e", 500, 0),
            (Family::Write, "bw -n 500 --warmup 10 -s 5000 --check -e -c UC", 500, 0),
            (Family::Send, "bw -n 500 --warmup 10 -s 5000 --check -e -q 2 --use-srq", 1000, 0),
            (Family::Send, "bw -n 400 --warmup 10 -s 64 --check -e -c UD -b", 400, 400),
            (Family::Read, "bw -n 500 --warmup 10 -s 5000 --check -e -b -c XRC", 500, 500),
        ] {
            let served = match back {
                0 => Gave::Nothing,
                _ => Gave::Messages { own: back, peer: own },
            };
            let gave = both(family, args, args);
            let measured = Gave::Messages { own, peer: back };
            assert_eq!(gave, [Ok(measured), Ok(served)], "{family:?} {args}");
        }
    }

    /// A server that does not poll receives as many datagrams as it has receives.
    #[test]
    fn what_datagrams_lose_is_counted() {
        let [client, server] = both(
            Family::Send,
            "bw -n 3000 --warmup 0 -s 64 -c UD -r 4",
            "bw -n 3000 --warmup 0 -s 64 -c UD -r 4",
        );
        let Ok(Gave::Lossy { own: 3000, lost: lost @ 1..3000 }) = client else {
            panic!("{client:?}")
        };
        assert_eq!(server, Ok(Gave::Nothing), "{lost}");
    }

    #[test]
    fn each_end_may_run_for_its_own_time() {
        let [client, server] =
            both(Family::Write, "bw -D 0.2 -s 64 -b", "bw -D 0.1 -s 64 -b -t 8 -Q 3");
        let (Ok(Gave::Messages { own, peer }), Ok(server)) = (client, server) else {
            panic!("no messages");
        };
        assert!(own > 0 && peer > 0);
        assert_eq!(server, Gave::Messages { own: peer, peer: own });
    }

    #[test]
    fn ends_that_differ_both_say_so() {
        let [client, server] = both(Family::Write, "bw -s 64", "bw -s 128");
        assert!(client.unwrap_err().contains("the server measures something else: --size 64 here"));
        assert!(server.unwrap_err().contains("the client measures something else: --size 128"));
    }

    #[test]
    fn why_one_end_can_not_is_told_to_the_other() {
        let [client, server] = both(Family::Write, "lat -x 77", "lat");
        assert!(client.unwrap_err().contains("--gid-index 77"));
        let told = server.unwrap_err();
        assert!(told.contains("the client failed: --gid-index 77"), "{told}");
    }
}
