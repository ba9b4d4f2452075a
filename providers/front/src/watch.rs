//! Watch over clients' mappings of doorbell pages: the next store wakes the device.
//!
//! Any thread may protect and release the mappings, without the device's lock. A mapping that a
//! client makes meanwhile is protected at once.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use nix::errno::Errno;
use uverbs_core::memory::pages::Pages;

use crate::guard::{Guard, Guarded};
use crate::maps;

/// Guard of a device's doorbell pages.
#[derive(Debug)]
pub struct Watch {
    guard: Guard,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pages: Vec<Weak<WatchedPage>>,
    protects: bool,
    ended: bool,
}

impl Watch {
    /// Creates a watch without pages.
    ///
    /// # Errors
    ///
    /// The errors of [`Guard::new`].
    pub fn new() -> Result<Self, Errno> {
        Ok(Self { guard: Guard::new()?, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Write-protects all client mappings: the next store faults, and the descriptor becomes
    /// readable. Returns false if a mapping can't be protected, or after [`Watch::end`].
    pub fn protect(&self) -> bool {
        let mut state = self.state();
        if state.ended {
            return false;
        }
        state.protects = true;
        let pages = state.pages.iter().filter_map(Weak::upgrade);
        pages.filter(|page| !page.protect()).count() == 0
    }

    /// Lets stores pass, also waiting ones.
    pub fn release(&self) {
        let mut state = self.state();
        state.protects = false;
        state.pages.iter().filter_map(Weak::upgrade).for_each(|page| page.release());
    }

    /// Lets stores pass for ever.
    pub fn end(&self) {
        self.state().ended = true;
        self.release();
    }

    /// Watches clients' mappings of a page: `len` bytes at `offset` of a file. `own`: address of
    /// the device's mapping.
    pub(crate) fn page(
        self: &Arc<Self>,
        file: &Arc<OwnedFd>,
        offset: u64,
        len: usize,
        own: Option<usize>,
    ) -> Arc<WatchedPage> {
        let (watch, file, clients) = (Arc::clone(self), Arc::clone(file), Mutex::default());
        let page = Arc::new(WatchedPage { watch, file, offset, len, own, clients });
        let mut state = self.state();
        state.pages.retain(|page| page.strong_count() > 0);
        state.pages.push(Arc::downgrade(&page));
        page
    }
}

impl AsFd for Watch {
    /// Readable while a store waits.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.guard.as_fd()
    }
}

/// A doorbell page.
#[derive(Debug)]
pub(crate) struct WatchedPage {
    watch: Arc<Watch>,
    file: Arc<OwnedFd>,
    offset: u64,
    len: usize,
    own: Option<usize>,
    clients: Mutex<Clients>,
}

/// Mappings of a page by clients.
#[derive(Debug, Default)]
struct Clients {
    guarded: Vec<Guarded>,
    /// A mapping could not be registered: stores through it wake no thread.
    unguarded: bool,
}

impl WatchedPage {
    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Watches a client's new mapping.
    pub(crate) fn add(&self, map: &Pages) {
        let state = self.watch.state();
        let mut clients = self.clients();
        match self.watch.guard.register(map.as_mut_ptr().addr(), map.len()) {
            Ok(guarded) => clients.guarded.push(guarded),
            Err(_) => clients.unguarded = true,
        }
        drop(clients);
        if state.protects {
            self.protect();
        }
    }

    /// False if a mapping is not registered.
    fn protect(&self) -> bool {
        let guard = &self.watch.guard;
        let mut clients = self.clients();
        let before = clients.guarded.len();
        let mut failed = false;
        clients.guarded.retain_mut(|one| match guard.protect(one) {
            Ok(()) => true,
            // The client unmapped or moved it.
            Err(Errno::ENOENT) => false,
            Err(_) => {
                failed = true;
                true
            }
        });
        if clients.guarded.len() < before {
            failed |= !self.guard_moved(&mut clients.guarded);
        }
        !failed && !clients.unguarded
    }

    /// Guards mappings that clients have moved; false if one cannot be.
    fn guard_moved(&self, guarded: &mut Vec<Guarded>) -> bool {
        let guard = &self.watch.guard;
        let mut all = true;
        for at in maps::addresses(&*self.file, self.offset, self.len as u64) {
            if Some(at) == self.own || guarded.iter().any(|one| one.address() == at) {
                continue;
            }
            let found = guard.register(at, self.len).and_then(|mut one| {
                guard.protect(&mut one)?;
                Ok(one)
            });
            match found {
                Ok(one) => guarded.push(one),
                Err(_) => all = false,
            }
        }
        all
    }

    /// Lets stores pass.
    pub(crate) fn release(&self) {
        self.clients().guarded.iter_mut().for_each(|one| self.watch.guard.release(one));
    }
}
