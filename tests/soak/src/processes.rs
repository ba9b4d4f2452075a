//! Processes of a run: `host`, `guest`, and `inside`, which has all in one process.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use uverbs::softhca::SoftHca;
use uverbs::softhca::wire::Fabric;

use crate::host::{Counts, Host};
use crate::kind::KINDS;
use crate::patience::{Patience, Starved};
use crate::random::Random;
use crate::said::{Held, Said, Status, command, monotonic, say};
use crate::session::{Plan, options, visit};
use crate::trouble::Trouble;
use crate::wire::{PORT, Wire, counters, listening, opened};

/// Time in which a device must be empty once its clients have gone: a connection keeps its id for
/// some seconds if its peer does not answer.
const EMPTY: Duration = Duration::from_secs(30);
/// Sessions of one guest in the process `inside`.
const SESSIONS: u32 = 6;

/// Serves guests of other processes until its input ends. `count` asks for a [`Status`], `replug`
/// takes the device out and brings another one in at the same address.
pub(crate) fn host(wire: Wire, ip: Ipv4Addr) -> Result<(), String> {
    let begin = || -> std::io::Result<(SoftHca, Host)> {
        let hca = wire.device(ip)?;
        let host = Host::start(hca.clone())?;
        Ok((hca, host))
    };
    let (mut hca, mut host) = begin().map_err(|error| error.to_string())?;
    let (mut before, mut damaged, mut retransmits) = (Counts::default(), 0, 0);
    say(&Said::Ready);
    while let Some(command) = command() {
        if command == "count" {
            let mut counts = before.clone();
            counts.add(host.counts());
            let (bad, again) = (damage(&hca), hca.stats().retransmits);
            let (damaged, retransmits) = (damaged + bad, retransmits + again);
            let (held, broken, counters) = (Held::of(&hca), host.broken(), counters(&hca));
            let status = Status { counts, held, damaged, retransmits, broken, counters };
            say(&Said::Status(status));
        } else if command == "replug" {
            damaged += damage(&hca);
            retransmits += hca.stats().retransmits;
            hca.unplug();
            match host.stop() {
                Ok(counts) => before.add(counts),
                Err(waited) => return Err(hung("sessions of a device that is gone", waited)),
            }
            emptied(&hca)?;
            drop(hca);
            (hca, host) = begin().map_err(|error| error.to_string())?;
            say(&Said::Ready);
        }
    }
    host.stop().map(drop).map_err(|waited| hung("sessions", waited))
}

fn hung(what: &str, waited: Duration) -> String {
    format!("{what} are there after {} s", waited.as_secs())
}

/// Damaged packets and rings.
fn damage(hca: &SoftHca) -> u64 {
    let udp = hca.udp_stats().map_or(0, |stats| stats.bad_icrc + stats.malformed);
    udp + hca.shared_stats().map_or(0, |stats| stats.broken)
}

/// Waits until the device holds no objects.
fn emptied(hca: &SoftHca) -> Result<(), String> {
    let patience = Patience::here(EMPTY);
    loop {
        match Held::of(hca) {
            Held { objects: 0, ids: 0, pinned: 0 } => return Ok(()),
            held if patience.ended().is_some() => {
                return Err(format!("{held:?} are left of a device without clients"));
            }
            _ => thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Runs one session after the other with a host, which is identified by its process.
pub(crate) fn guest(
    wire: Wire,
    ip: Ipv4Addr,
    (to, process): (Ipv4Addr, u32),
    (seed, sessions): (u64, u32),
) -> Result<(), String> {
    let hca = wire.device(ip).map_err(|error| error.to_string())?;
    let (device, mut random) = (opened(&hca), Random::new(seed));
    let options = options(&device);
    let host = SocketAddr::from((to, PORT));
    for _ in 0..sessions {
        let kind = random.of(&KINDS);
        let began = monotonic();
        let starved = Starved::of(&[std::process::id(), process]);
        match visit(&device, &options, host, Plan::random(&mut random, kind)) {
            Ok(done) => say(&Said::Session { messages: done.messages, lost: done.lost }),
            Err(error) => {
                let (took, waited) = (monotonic().saturating_sub(began), starved.since());
                let why = format!(
                    "{kind}: {error} (after {} ms; a thread waited {} ms for a processor; {})",
                    took.as_millis(),
                    waited.as_millis(),
                    counters(&hca),
                );
                let (excusable, starved) = (error.is_excusable(), Starved::is_half(waited, took));
                let began = began.as_millis() as u64;
                say(&Said::Failed { why, excusable, began, starved });
            }
        }
    }
    drop((options, device));
    emptied(&hca)
}

/// Rounds of hosts and guests in one process until its input ends. `pause` is answered when the
/// round is over; the next command lets it go on.
pub(crate) fn inside(seed: u64) -> Result<(), String> {
    let (fabric, mut random) = (Fabric::new(), Random::new(seed));
    let (commands, asked) = mpsc::channel();
    thread::spawn(move || while command().is_some_and(|it| commands.send(it).is_ok()) {});
    say(&Said::Ready);
    loop {
        match asked.try_recv() {
            Ok(_) => {
                say(&Said::Ready);
                if asked.recv().is_err() {
                    return Ok(());
                }
            }
            Err(mpsc::TryRecvError::Empty) => say(&round(&fabric, &mut random)?),
            Err(mpsc::TryRecvError::Disconnected) => return Ok(()),
        }
    }
}

/// Two devices come, a host on one serves two guests on the other, and both go: after the last
/// session, or one of them before.
fn round(fabric: &Fabric, random: &mut Random) -> Result<Said, String> {
    let new = || SoftHca::builder().fabric(fabric).build().map_err(|error| error.to_string());
    let (here, there) = (new()?, new()?);
    let host = Host::start(there.clone()).map_err(|error| error.to_string())?;
    let victim = random.of(&[None, None, Some(&here), Some(&there)]);
    let stop = AtomicBool::new(false);
    let run = |mut random: Random| -> Result<(u64, u64), Trouble> {
        let (device, mut done) = (opened(&here), (0, 0));
        let options = options(&device);
        for _ in 0..SESSIONS {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let kind = random.of(&KINDS);
            let (start, kept) = (Instant::now(), Starved::of(&[std::process::id()]));
            match visit(&device, &options, listening(&there), Plan::random(&mut random, kind)) {
                Ok(_) => done.0 += 1,
                Err(error) if !error.is_excusable() => return Err(error),
                Err(_) if stop.load(Ordering::Relaxed) => {}
                Err(_) if Starved::is_half(kept.since(), start.elapsed()) => done.1 += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    };
    let seeds = [random.next(), random.next()];
    let wait = Duration::from_millis(20 + random.below(300));
    let ended = thread::scope(|scope| {
        let guests = seeds.map(|seed| scope.spawn(move || run(Random::new(seed))));
        if let Some(victim) = victim {
            thread::sleep(wait);
            stop.store(true, Ordering::Relaxed);
            victim.unplug();
        }
        guests.map(thread::ScopedJoinHandle::join)
    });
    let (mut done, mut starved) = (0, 0);
    for guest in ended {
        let guest = guest.map_err(|_| "a guest panicked".to_owned())?;
        let (ended, kept) = guest.map_err(|error| error.to_string())?;
        (done, starved) = (done + ended, starved + kept);
    }
    let counts = host.stop().map_err(|waited| hung("sessions", waited))?;
    emptied(&here)?;
    emptied(&there)?;
    if let Some(why) = counts.wrong {
        return Err(why);
    }
    // The last words of a guest may be lost with a device.
    let consistent = match victim {
        None => counts.done == done && counts.broken <= starved,
        Some(_) => counts.begun >= done,
    };
    if !consistent {
        return Err(format!("{done} sessions ended for guests, and for the host {counts:?}"));
    }
    Ok(Said::Round {
        sessions: counts.done,
        broken: counts.broken,
        messages: counts.messages,
        unplugged: victim.is_some(),
        starved,
    })
}
