//! UAR pages that a client maps: it rings by stores, without messages. Their file is as long as the
//! BAR, and has the device memory, too.
//!
//! The server looks at the pages while it is awake, and for a while after the last work. Then it
//! asks the client to arm them: to tell of the next store ([`command::LOOK`]). It goes on with rare
//! looks, so that a client which can't tell, as QEMU, is served, too.
//!
//! Event queues have no doorbell record, so that two stores into their registers could become one.
//! A client that asked for the pages rings these by messages. QEMU's guests don't know that: the
//! first page, which Linux's driver allocates first and gives to its event queues, is not mapped.
//!
//! [`command::LOOK`]: super::message::command::LOOK

use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ftruncate;
use uverbs_core::memory::pages::Pages;
use uverbs_front::uar::{DOORBELLS, KERNEL_DOORBELLS, take_doorbells};

use super::message::Area;
use crate::board::bar::{BAR0_LEN, DEVICE_MEMORY, FIRST_UAR, LAST_UAR, PAGE};
use crate::board::capabilities::DEVICE_MEMORY_LEN;

/// Text by which a client asks for the pages in VERSION.
const ASKS: &[u8] = b"\"uverbs_doorbells\":true";
/// Bytes of BAR 0 up to the end of the pages.
const END: u64 = (LAST_UAR as u64 + 1) * PAGE;

/// Time after the last work in which the server looks without a pause.
const AWAKE: Duration = Duration::from_micros(200);
/// Maximum wait for a store that the client told of.
const STORE: Duration = Duration::from_millis(20);
/// Threshold of a slow yield: other threads want the processor. A thread that sleeps instead runs
/// as soon as it is woken.
const LATE_YIELD: Duration = Duration::from_micros(100);
/// Time after a slow yield in which the server sleeps instead of yielding.
const CROWDED: Duration = Duration::from_millis(10);
/// First pause of a server that sleeps, and pause before a store that was told of.
const NAP: Duration = Duration::from_micros(20);
/// Longest pause between looks at a guest's pages.
const GUEST: Duration = Duration::from_millis(1);

/// True if a client's capabilities ask for doorbell pages.
pub(super) fn are_asked_for(capabilities: &[u8]) -> bool {
    capabilities.windows(ASKS.len()).any(|text| text == ASKS)
}

/// Kind of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Client {
    /// Asked for the pages: rings event queues by messages, and tells of stores.
    #[default]
    Asks,
    /// QEMU: neither.
    Guest,
}

/// Pages of one client. The first look takes memory for a page, and the first after the client
/// freed it; with `vm.overcommit_memory=2` it raises a signal if the system's limit is reached.
#[derive(Debug)]
pub(super) struct Doorbells {
    file: OwnedFd,
    pages: Pages,
    client: Client,
    /// UARs that the driver has.
    uars: BTreeSet<u32>,
    pub(super) rest: Rest,
}

impl Doorbells {
    pub(super) fn new(client: Client) -> io::Result<Self> {
        let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
        let file = memfd_create(c"softhca-bar", flags)?;
        ftruncate(&file, BAR0_LEN.cast_signed())?;
        let memory = [DEVICE_MEMORY, DEVICE_MEMORY_LEN].map(u64::cast_signed);
        fallocate(&file, FallocateFlags::empty(), memory[0], memory[1])?;
        let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
        fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
        let pages = Pages::shared(file.as_fd(), END as usize, 0);
        let pages = pages.map_err(|errno| io::Error::from_raw_os_error(errno.raw()))?;
        let rest = Rest { client, ..Rest::default() };
        Ok(Self { file, pages, client, uars: BTreeSet::new(), rest })
    }

    /// Areas of BAR 0 that the client maps; their offsets are the same in the file.
    pub(super) fn areas(&self) -> Vec<Area> {
        let uars = self.mapped();
        let uars = Area { offset: u64::from(uars.start) * PAGE, size: uars.len() as u64 * PAGE };
        match self.client {
            Client::Asks => vec![uars, Area { offset: DEVICE_MEMORY, size: DEVICE_MEMORY_LEN }],
            Client::Guest => vec![uars],
        }
    }

    /// UARs that the client maps.
    pub(super) fn mapped(&self) -> Range<u32> {
        match self.client {
            Client::Asks => FIRST_UAR..LAST_UAR + 1,
            Client::Guest => FIRST_UAR + 1..LAST_UAR + 1,
        }
    }

    /// Notes which UARs the driver has after a message. Words that were stored into a page before
    /// its allocation are dropped.
    pub(super) fn follow(&mut self, uars: impl Iterator<Item = u32>) {
        let before = std::mem::replace(&mut self.uars, uars.collect());
        for uar in self.uars.difference(&before) {
            self.take(*uar, |_, _| ());
        }
    }

    /// Takes the doorbells in a UAR: offset in it, and word.
    pub(super) fn take(&self, uar: u32, ring: impl FnMut(u32, u64)) {
        let words = match self.client {
            Client::Asks => &DOORBELLS[..],
            Client::Guest => &KERNEL_DOORBELLS,
        };
        take_doorbells(&self.pages, uar as usize * PAGE as usize, words, ring);
    }
}

impl AsFd for Doorbells {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Rest of a server whose client maps pages.
#[derive(Debug, Default)]
pub(super) struct Rest {
    client: Client,
    /// Time of the last work, or of a told store.
    since: Duration,
    /// A store was told of, and is not seen yet.
    expects: bool,
    /// The client was asked to tell of the next store.
    armed: bool,
    nap: Duration,
    /// End of the time in which the server does not yield.
    crowded: Duration,
}

impl Rest {
    /// Notes work.
    pub(super) fn saw_work(&mut self, now: Duration) {
        let Self { client, crowded, .. } = *self;
        *self = Self { client, since: now, crowded, ..Self::default() };
    }

    /// Notes that the client told of a store, or that its pages are armed.
    pub(super) fn was_told(&mut self, now: Duration, stored: bool, longest: Duration) {
        if stored {
            self.saw_work(now);
            self.expects = true;
        } else if self.armed {
            self.nap = longest;
        }
    }

    /// Notes how long a yield took.
    pub(super) fn yielded(&mut self, before: Duration, now: Duration) {
        if now.saturating_sub(before) >= LATE_YIELD {
            self.crowded = now + CROWDED;
        }
    }

    /// Pause until the next look, and whether the client must arm its pages first.
    pub(super) fn pause(&mut self, now: Duration, longest: Duration) -> (Duration, bool) {
        let idle = now.saturating_sub(self.since);
        if idle < AWAKE && now >= self.crowded {
            return (Duration::ZERO, false);
        }
        if idle < AWAKE || self.expects && idle < STORE {
            return (NAP, false);
        }
        let (asks, longest) = match self.client {
            Client::Asks => (true, longest),
            Client::Guest => (false, longest.min(GUEST)),
        };
        let arms = asks && !std::mem::replace(&mut self.armed, true);
        self.nap = if arms { NAP } else { (2 * self.nap).clamp(NAP, longest) };
        (self.nap, arms)
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::uio::pwrite;

    use super::*;

    const LONGEST: Duration = Duration::from_millis(5);

    fn after(micros: u64) -> Duration {
        Duration::from_micros(micros)
    }

    #[test]
    fn a_server_without_work_asks_once_and_sleeps_longer_and_longer() {
        let mut rest = Rest::default();
        rest.saw_work(after(1000));
        assert_eq!(rest.pause(after(1199), LONGEST), (Duration::ZERO, false));
        assert_eq!(rest.pause(after(1200), LONGEST), (NAP, true));
        assert_eq!(rest.pause(after(1220), LONGEST), (2 * NAP, false));
        let naps = (0..10).map(|_| rest.pause(after(2000), LONGEST));
        assert_eq!(naps.last(), Some((LONGEST, false)));
        // Armed pages need no looks.
        rest.saw_work(after(9000));
        assert_eq!(rest.pause(after(9300), LONGEST), (NAP, true));
        rest.was_told(after(9310), false, LONGEST);
        assert_eq!(rest.pause(after(9320), LONGEST), (LONGEST, false));
    }

    #[test]
    fn a_told_store_is_waited_for() {
        let mut rest = Rest::default();
        assert_eq!(rest.pause(after(300), LONGEST), (NAP, true));
        rest.was_told(after(400), true, LONGEST);
        assert_eq!(rest.pause(after(500), LONGEST), (Duration::ZERO, false));
        assert_eq!(rest.pause(after(700), LONGEST), (NAP, false));
        // It never came.
        assert_eq!(rest.pause(after(20_400), LONGEST), (NAP, true));
        // An answer that is overtaken by work.
        rest.saw_work(after(20_500));
        rest.was_told(after(20_600), false, LONGEST);
        assert_eq!(rest.pause(after(20_900), LONGEST), (NAP, true));
    }

    #[test]
    fn a_server_on_a_crowded_processor_naps_at_once() {
        let mut rest = Rest::default();
        rest.saw_work(after(1000));
        rest.yielded(after(1001), after(1100));
        assert_eq!(rest.pause(after(1100), LONGEST), (Duration::ZERO, false));
        rest.yielded(after(1100), after(1200));
        rest.saw_work(after(1250));
        assert_eq!(rest.pause(after(1251), LONGEST), (NAP, false));
        rest.saw_work(after(11_200));
        assert_eq!(rest.pause(after(11_201), LONGEST), (Duration::ZERO, false));
    }

    #[test]
    fn a_guest_is_not_asked_and_waits_less() {
        let mut rest = Rest { client: Client::Guest, ..Rest::default() };
        rest.saw_work(after(1000));
        assert_eq!(rest.pause(after(1199), LONGEST), (Duration::ZERO, false));
        assert_eq!(rest.pause(after(1200), LONGEST), (NAP, false));
        let naps = (0..10).map(|_| rest.pause(after(2000), LONGEST));
        assert_eq!(naps.last(), Some((GUEST, false)));
    }

    #[test]
    fn a_client_asks_by_its_capabilities() {
        assert!(are_asked_for(b"{\"capabilities\":{\"uverbs_doorbells\":true}}\0"));
        assert!(!are_asked_for(b"{\"capabilities\":{\"max_msg_fds\":8}}\0"));
        assert!(!are_asked_for(b""));
    }

    #[test]
    fn a_store_is_taken_once() {
        let doorbells = Doorbells::new(Client::Asks).unwrap();
        for uar in [FIRST_UAR, LAST_UAR] {
            let at = u64::from(uar) * PAGE + 0x800;
            pwrite(doorbells.as_fd(), &7u64.to_be_bytes(), at.cast_signed()).unwrap();
            let mut taken = Vec::new();
            doorbells.take(uar, |offset, word| taken.push((offset, word)));
            doorbells.take(uar, |offset, word| taken.push((offset, word)));
            assert_eq!(taken, [(0x800, 7)]);
        }
        // A register of the kernel's.
        for (client, count) in [(Client::Asks, 0), (Client::Guest, 1)] {
            let doorbells = Doorbells::new(client).unwrap();
            let at = u64::from(LAST_UAR) * PAGE + 0xf00;
            pwrite(doorbells.as_fd(), &7u64.to_be_bytes(), at.cast_signed()).unwrap();
            let mut taken = Vec::new();
            doorbells.take(LAST_UAR, |offset, word| taken.push((offset, word)));
            assert_eq!(taken, [(0xf00, 7)][..count]);
        }
        // Beyond the file.
        doorbells.take(LAST_UAR + 1, |_, _| panic!());
    }

    #[test]
    fn words_from_before_an_allocation_are_dropped() {
        let mut doorbells = Doorbells::new(Client::Asks).unwrap();
        let [one, other] = [FIRST_UAR, FIRST_UAR + 1];
        let store = |doorbells: &Doorbells, uar| {
            let at = u64::from(uar) * PAGE + 0x800;
            pwrite(doorbells.as_fd(), &7u64.to_be_bytes(), at.cast_signed()).unwrap();
        };
        let count = |doorbells: &Doorbells, uar| {
            let mut count = 0;
            doorbells.take(uar, |_, _| count += 1);
            count
        };
        doorbells.follow([one].into_iter());
        [one, other].iter().for_each(|uar| store(&doorbells, *uar));
        doorbells.follow([one, other].into_iter());
        assert_eq!([count(&doorbells, one), count(&doorbells, other)], [1, 0]);
        // Freed, as by a reset, and allocated again.
        doorbells.follow([].into_iter());
        store(&doorbells, one);
        doorbells.follow([one].into_iter());
        assert_eq!(count(&doorbells, one), 0);
    }
}
