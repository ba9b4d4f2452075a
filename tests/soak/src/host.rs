//! A host: a device on which guests' sessions are served, one thread for each.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde::{Deserialize, Serialize};
use uverbs::Device;
use uverbs::softhca::SoftHca;
use uverbs_streams::RdmaListener;

use crate::patience::Patience;
use crate::session::{options, serve};
use crate::trouble::Trouble;
use crate::wire::{listening, opened};

/// How long sessions may take to end once their device is gone.
const END: Duration = Duration::from_secs(60);

/// Maximum of broken sessions whose reason a host keeps.
const TOLD: usize = 8;

/// Counts of the sessions that a host has served.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Counts {
    /// Sessions that began.
    pub(crate) begun: u64,
    /// Sessions that ended as planned.
    pub(crate) done: u64,
    /// Sessions that ended in a typed error, since the peer or the device went.
    pub(crate) broken: u64,
    pub(crate) messages: u64,
    pub(crate) lost: u64,
    /// First failure that no kill or removal excuses.
    pub(crate) wrong: Option<String>,
}

impl Counts {
    /// Sessions under way.
    pub(crate) fn under_way(&self) -> u64 {
        self.begun - self.done - self.broken
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.begun += other.begun;
        self.done += other.done;
        self.broken += other.broken;
        self.messages += other.messages;
        self.lost += other.lost;
        self.wrong = self.wrong.take().or(other.wrong);
    }
}

/// A session that broke: time and reason.
type Broken = (Instant, String);

/// Records of the sessions' threads.
#[derive(Debug, Default)]
struct Told {
    counts: Counts,
    /// The last ones that broke.
    broken: VecDeque<Broken>,
}

/// See the [module](self).
pub(crate) struct Host {
    told: Arc<Mutex<Told>>,
    stop: Arc<AtomicBool>,
    listener: JoinHandle<()>,
}

impl Host {
    /// Listens on the device.
    pub(crate) fn start(hca: SoftHca) -> io::Result<Self> {
        let device = opened(&hca);
        let listener = options(&device).backlog(64).listen(listening(&hca))?;
        listener.set_nonblocking(true)?;
        let (told, stop) = (Arc::<Mutex<Told>>::default(), Arc::<AtomicBool>::default());
        let (own, end) = (Arc::clone(&told), Arc::clone(&stop));
        let listener = thread::Builder::new().name("listener".into()).spawn(move || {
            accept(&listener, &device, (&own, &end));
        })?;
        Ok(Self { told, stop, listener })
    }

    pub(crate) fn counts(&self) -> Counts {
        lock(&self.told).counts.clone()
    }

    /// Why the last sessions that broke did so.
    pub(crate) fn broken(&self) -> Vec<String> {
        let told = lock(&self.told);
        let ago = |(when, why): &Broken| format!("{} ms ago: {why}", when.elapsed().as_millis());
        told.broken.iter().map(ago).collect()
    }

    /// Takes no more guests, and waits for the present ones.
    pub(crate) fn stop(self) -> Result<Counts, Duration> {
        self.stop.store(true, Ordering::Relaxed);
        let patience = Patience::here(END);
        while !self.listener.is_finished() || self.counts().under_way() > 0 {
            if let Some(waited) = patience.ended() {
                return Err(waited);
            }
            thread::sleep(Duration::from_millis(5));
        }
        if self.listener.join().is_err() {
            lock(&self.told).counts.wrong = Some("the listener panicked".into());
        }
        Ok(lock(&self.told).counts.clone())
    }
}

/// A session that panicked holds no lock.
fn lock(told: &Mutex<Told>) -> MutexGuard<'_, Told> {
    told.lock().unwrap_or_else(PoisonError::into_inner)
}

fn accept(
    listener: &RdmaListener,
    device: &Device,
    (told, stop): (&Arc<Mutex<Told>>, &AtomicBool),
) {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, peer)) => {
                let (device, own, begun) = (device.clone(), Arc::clone(told), Instant::now());
                lock(told).counts.begun += 1;
                let session = move || {
                    let served = AssertUnwindSafe(|| serve(&device, stream));
                    let ended = std::panic::catch_unwind(served);
                    // A session that has ended holds no device.
                    drop(device);
                    note(&own, (peer, begun), ended);
                };
                // A thread that can't be had is a session that broke.
                let name = thread::Builder::new().name("session".into());
                if let Err(error) = name.spawn(session) {
                    note(told, (peer, begun), Ok(Err(Trouble::Stream(error))));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let mut files = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
                let _ = poll(&mut files, PollTimeout::from(50u8));
            }
            // The device is gone, or this side lacks something for the moment.
            Err(_) => thread::sleep(Duration::from_millis(20)),
        }
    }
}

type Served = Result<(crate::kind::Kind, crate::session::Done), Trouble>;

fn note(told: &Mutex<Told>, (peer, begun): (SocketAddr, Instant), served: thread::Result<Served>) {
    let Told { counts, broken } = &mut *lock(told);
    let (why, excusable) = match served {
        Ok(Ok((_, done))) => {
            counts.done += 1;
            counts.messages += done.messages;
            counts.lost += done.lost;
            return;
        }
        Ok(Err(trouble)) => (trouble.to_string(), trouble.is_excusable()),
        Err(_) => ("a session panicked".to_owned(), false),
    };
    counts.broken += 1;
    if broken.len() == TOLD {
        broken.pop_front();
    }
    broken.push_back((
        Instant::now(),
        format!("{peer}: {why} (after {} ms)", begun.elapsed().as_millis()),
    ));
    if !excusable {
        counts.wrong.get_or_insert(why);
    }
}
