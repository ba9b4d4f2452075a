//! Conducts a run: starts processes, kills them, unplugs their devices, and checks their resources
//! when all are quiet.
//!
//! Three hosts stay for the whole run or nearly: one on shared memory, one on UDP, whose devices
//! are taken out and come back; and one on either, which is killed. Each has a guest at a time;
//! half of these are killed at a random moment. A fourth process runs hosts and guests inside.
//!
//! A cycle is traffic for a while, and then quiet: all guests have gone, and the hosts must hold
//! only the objects that they held before.

mod quiet;

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use crate::bounds::judge;
use crate::child::Child;
use crate::random::Random;
use crate::report::{Report, Totals};
use crate::said::{Said, Status, monotonic};
use crate::trouble::Fault;
use crate::watch::{Sample, left};
use crate::wire::{Net, Wire};

/// Cycles of a run, unless they would be too long or too short.
const CYCLES: u32 = 12;
const SHORTEST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(120);
/// Sessions of a guest that isn't killed.
const SESSIONS: u64 = 12;
/// Longest life of a process that ends by a kill, in milliseconds.
const LIFE: u64 = 3000;
/// Sessions that may end early because their processes were kept from running: this many, and one
/// in so many.
const STARVED: u64 = 2;
const SELDOM: u64 = 1000;
/// Reasons of starved sessions that the report lists, at most.
const TOLD: usize = 40;
/// Time that the kernel may take to free a killed process's objects.
const GONE: Duration = Duration::from_secs(30);

/// A host, its guest, and their state.
struct SoakHost {
    wire: Wire,
    number: u8,
    host: Child,
    /// With when it is killed, if it is.
    guest: Option<(Child, Option<Instant>)>,
    /// When its device or itself was last away, by [`monotonic`].
    away: Option<Duration>,
    /// Its device is away now.
    returning: bool,
    /// When that happens in this cycle.
    due: Option<Instant>,
    /// Guests' sessions that ended as planned.
    done: u64,
    /// Guests' other sessions, also of killed guests.
    broken: u64,
    retransmits: u64,
    samples: Vec<Sample>,
}

/// See the [module](self).
pub(crate) struct Run {
    net: Net,
    random: Random,
    places: Vec<SoakHost>,
    inside: Child,
    inside_samples: Vec<Sample>,
    totals: Totals,
    /// See [`Report::early`].
    early: Vec<String>,
    faults: Vec<Fault>,
    /// The last address that a guest had.
    guest: u8,
}

/// Runs for so long. `progress` is called at the end of each cycle.
pub(crate) fn run(length: Duration, seed: u64, progress: impl Fn(&str)) -> Report {
    let start = Instant::now();
    let net = Net::of(std::process::id());
    let (mut cycles, cycle) = (0, (length / CYCLES).clamp(SHORTEST, LONGEST));
    let mut report = Report {
        kind: "uverbs-soak",
        seed,
        seconds: 0,
        cycles,
        totals: Totals::default(),
        early: Vec::new(),
        hosts: Vec::new(),
        samples: BTreeMap::new(),
        left: 0,
        faults: Vec::new(),
    };
    match Run::start(net, seed) {
        Err(fault) => report.faults.push(fault),
        Ok(mut run) => {
            let ended = loop {
                if start.elapsed() >= length || !run.faults.is_empty() {
                    break Ok(());
                }
                if let Err(fault) = run.cycle(cycle) {
                    break Err(fault);
                }
                cycles += 1;
                progress(&run.line(start.elapsed(), length));
            };
            run.faults.extend(ended.err());
            run.end(&mut report);
        }
    }
    let gone = Instant::now();
    while left(net) > 0 && gone.elapsed() < GONE {
        thread::sleep(Duration::from_millis(50));
    }
    report.left = left(net);
    if report.left > 0 {
        let (process, what) = ("all".into(), "sockets and files".into());
        report.faults.push(Fault::Left { process, what, count: report.left });
    }
    (report.cycles, report.seconds) = (cycles, start.elapsed().as_secs());
    report
}

fn host(net: Net, wire: Wire, number: u8) -> Result<Child, Fault> {
    let words = ["host", "--wire", name(wire), "--ip", &net.address(number).to_string()];
    let mut host = Child::start(&format!("host {}", name(wire)), &words.map(str::to_owned))?;
    host.ready(drop)?;
    Ok(host)
}

fn name(wire: Wire) -> &'static str {
    match wire {
        Wire::Shm => "shm",
        Wire::Udp => "udp",
        Wire::Either => "either",
    }
}

impl SoakHost {
    fn new(net: Net, wire: Wire, number: u8) -> Result<Self, Fault> {
        Ok(Self {
            wire,
            number,
            host: host(net, wire, number)?,
            guest: None,
            away: None,
            returning: false,
            due: None,
            done: 0,
            broken: 0,
            retransmits: 0,
            samples: Vec::new(),
        })
    }

    /// The host's last broken sessions and its device's counters, if it still answers.
    fn tell(&mut self) -> Vec<String> {
        let name = self.host.name.clone();
        let Ok(Status { broken, counters, .. }) = self.host.status(drop) else { return Vec::new() };
        let broken = broken.into_iter().map(|why| format!("{name}: {why}"));
        broken.chain([format!("{name}: {counters}")]).collect()
    }

    /// Returns `true` if the host's process lives through the run.
    fn is_steady(&self) -> bool {
        self.wire != Wire::Either
    }
}

impl Run {
    fn start(net: Net, seed: u64) -> Result<Self, Fault> {
        let wires = [Wire::Shm, Wire::Udp, Wire::Either].into_iter().zip(1..);
        let places: Result<_, Fault> =
            wires.map(|(wire, number)| SoakHost::new(net, wire, number)).collect();
        let inside = ["inside".to_owned(), "--seed".to_owned(), seed.to_string()];
        let mut inside = Child::start("inside", &inside)?;
        inside.ready(drop)?;
        Ok(Self {
            net,
            random: Random::new(seed),
            places: places?,
            inside,
            inside_samples: Vec::new(),
            totals: Totals::default(),
            early: Vec::new(),
            faults: Vec::new(),
            guest: 10,
        })
    }

    /// Traffic for a while, and quiet.
    fn cycle(&mut self, length: Duration) -> Result<(), Fault> {
        let start = Instant::now();
        for place in &mut self.places {
            let within = length.as_millis() as u64;
            place.due = Some(start + Duration::from_millis(self.random.below(within)));
        }
        while start.elapsed() < length && self.faults.is_empty() {
            for at in 0..self.places.len() {
                self.tend(at, true)?;
            }
            self.hear_inside()?;
            thread::sleep(Duration::from_millis(10));
        }
        self.quiet()
    }

    /// Looks after one place: its host, what is due for that, and its guest; a new one comes where
    /// none is, if guests are invited.
    fn tend(&mut self, at: usize, invite: bool) -> Result<(), Fault> {
        self.hear_host(at)?;
        let place = &mut self.places[at];
        if invite && place.due.is_some_and(|due| due <= Instant::now()) {
            place.due = None;
            place.away = Some(monotonic());
            if place.is_steady() {
                place.returning = true;
                place.host.command("replug")?;
            } else {
                place.host.kill();
                place.host = host(self.net, place.wire, place.number)?;
                place.away = Some(monotonic());
                self.totals.hosts_killed += 1;
            }
        }
        match self.places[at].guest.take() {
            Some((guest, kill)) => self.hear_guest(at, guest, kill),
            None if invite => self.invite(at),
            None => Ok(()),
        }
    }

    fn hear_host(&mut self, at: usize) -> Result<(), Fault> {
        let place = &mut self.places[at];
        for said in place.host.heard() {
            match said {
                Said::Ready => {
                    place.returning = false;
                    place.away = Some(monotonic());
                    self.totals.replugged += 1;
                }
                other => self.faults.push(unexpected(&place.host.name, other)),
            }
        }
        match place.host.ended() {
            Some(_) if !self.faults.is_empty() => Ok(()),
            Some(status) => {
                let (process, status) = (place.host.name.clone(), status.to_string());
                Err(Fault::Died { process, status })
            }
            None => Ok(()),
        }
    }

    /// A guest with its own address. Half of them are killed.
    fn invite(&mut self, at: usize) -> Result<(), Fault> {
        self.guest = if self.guest == 250 { 10 } else { self.guest + 1 };
        let place = &mut self.places[at];
        let kill = self.random.below(2) == 0;
        let kill = kill.then(|| Duration::from_millis(1 + self.random.below(LIFE)));
        let words = [
            ("--wire", name(place.wire).to_owned()),
            ("--ip", self.net.address(self.guest).to_string()),
            ("--to", self.net.address(place.number).to_string()),
            ("--host", place.host.id().to_string()),
            ("--seed", self.random.next().to_string()),
            ("--sessions", (1 + self.random.below(SESSIONS)).to_string()),
        ];
        let words = words.into_iter().flat_map(|(option, value)| [option.to_owned(), value]);
        let words: Vec<String> = ["guest".to_owned()].into_iter().chain(words).collect();
        let guest = Child::start(&format!("guest of {}", place.host.name), &words)?;
        place.guest = Some((guest, kill.map(|kill| Instant::now() + kill)));
        self.totals.guests += 1;
        Ok(())
    }

    /// Hears a guest, and keeps it unless it has ended or is killed.
    fn hear_guest(
        &mut self,
        at: usize,
        mut guest: Child,
        kill: Option<Instant>,
    ) -> Result<(), Fault> {
        let killed = kill.is_some_and(|kill| kill <= Instant::now());
        if killed {
            guest.kill();
            self.totals.guests_killed += 1;
            self.places[at].broken += 1;
        }
        // In this order: the guest's last lines have been read once it has ended.
        let ended = guest.ended();
        let said = if ended.is_some() { guest.rest() } else { guest.heard() };
        for said in said {
            self.note(at, &guest.name, said);
        }
        match ended {
            None => self.places[at].guest = Some((guest, kill)),
            Some(status) if !killed && !status.success() && self.faults.is_empty() => {
                let (process, status) = (guest.name.clone(), status.to_string());
                return Err(Fault::Died { process, status });
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Notes a guest's message on a session.
    fn note(&mut self, at: usize, name: &str, said: Said) {
        let place = &mut self.places[at];
        match said {
            Said::Session { messages, lost } => {
                place.done += 1;
                self.totals.sessions += 1;
                self.totals.messages += messages;
                self.totals.lost += lost;
            }
            Said::Failed { why, excusable, began, starved } => {
                place.broken += 1;
                let began = Duration::from_millis(began);
                let away = place.returning || place.away.is_some_and(|away| away >= began);
                let why = match place.away {
                    Some(at) if !away => {
                        let before = began.saturating_sub(at).as_millis();
                        format!("{why}; the host was away {before} ms before it began")
                    }
                    _ => why,
                };
                if away && excusable {
                    self.totals.excused += 1;
                } else if starved && excusable {
                    if self.early.len() < TOLD {
                        self.early.push(format!("{name}: {why}"));
                    }
                    self.starved(name, 1, why);
                } else {
                    self.faults.push(Fault::Session { process: name.to_owned(), why });
                }
            }
            other => self.faults.push(unexpected(name, other)),
        }
    }

    /// Notes sessions that ended since their processes were kept from running. This may happen now
    /// and then.
    fn starved(&mut self, process: &str, count: u64, why: String) {
        self.totals.starved += count;
        let Totals { starved, sessions, inside_sessions, .. } = self.totals;
        if starved > STARVED + (sessions + inside_sessions) / SELDOM {
            let why = format!("the {starved}th that ended early on a busy machine: {why}");
            self.faults.push(Fault::Session { process: process.to_owned(), why });
        }
    }

    fn hear_inside(&mut self) -> Result<(), Fault> {
        for said in self.inside.heard() {
            self.note_inside(said);
        }
        match self.inside.ended() {
            Some(status) if self.faults.is_empty() => {
                Err(Fault::Died { process: "inside".into(), status: status.to_string() })
            }
            _ => Ok(()),
        }
    }

    fn note_inside(&mut self, said: Said) {
        match said {
            Said::Round { sessions, messages, unplugged, starved, .. } => {
                self.totals.inside_rounds += 1;
                self.totals.inside_sessions += sessions;
                self.totals.inside_messages += messages;
                self.totals.inside_unplugged += u64::from(unplugged);
                if starved > 0 {
                    self.starved("inside", starved, "ended early".to_owned());
                }
            }
            other => self.faults.push(unexpected("inside", other)),
        }
    }

    /// Ends all processes, and judges their results.
    fn end(mut self, report: &mut Report) {
        if !self.faults.is_empty() {
            report.hosts = self.places.iter_mut().flat_map(SoakHost::tell).collect();
        }
        let mut samples = vec![("inside", self.inside_samples)];
        let mut ended = vec![self.inside.end()];
        for place in self.places {
            if let Some((mut guest, _)) = place.guest {
                guest.kill();
            }
            samples.push((name(place.wire), place.samples));
            ended.push(place.host.end());
        }
        let said = !self.faults.is_empty();
        // After a fault, errors of other processes are consequences.
        self.faults.extend(ended.into_iter().filter_map(Result::err).filter(|_| !said));
        for (name, samples) in samples.into_iter().filter(|(_, samples)| !samples.is_empty()) {
            self.faults.extend(judge(name, &samples));
            report.samples.insert(name.to_owned(), samples);
        }
        (report.totals, report.early, report.faults) = (self.totals, self.early, self.faults);
    }

    /// One line of progress.
    fn line(&self, elapsed: Duration, length: Duration) -> String {
        let Totals { sessions, messages, guests_killed, inside_rounds, .. } = self.totals;
        let samples = [("inside", &self.inside_samples)].into_iter();
        let places = self.places.iter().filter(|place| place.is_steady());
        let samples = samples.chain(places.map(|place| (name(place.wire), &place.samples)));
        let has = samples.filter_map(|(name, samples)| {
            let Sample { rss, files, threads, .. } = samples.last()?;
            Some(format!("; {name} {rss} KiB, {files} files, {threads} threads"))
        });
        let (now, all) = (elapsed.as_secs(), length.as_secs());
        format!(
            "{now} of {all} s: {sessions} sessions, {messages} messages, {guests_killed} killed, \
             {inside_rounds} rounds inside{}",
            has.collect::<String>()
        )
    }
}

/// Fault for a message that is no expected answer.
fn unexpected(process: &str, said: Said) -> Fault {
    let why = match said {
        Said::Wrong { why } => why,
        other => format!("unexpected: {other:?}"),
    };
    Fault::Session { process: process.to_owned(), why }
}
