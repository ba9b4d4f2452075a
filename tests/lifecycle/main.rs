//! Objects, connections and devices that come and go, and are freed completely.

mod cm_many;
mod life;
mod links;
mod removal;
mod unbind;

use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Open files of the process and objects of the kernel, which some tests count.
static COUNTED: RwLock<()> = RwLock::new(());

/// Keeps the other tests out: for a test that counts.
fn counting() -> RwLockWriteGuard<'static, ()> {
    COUNTED.write().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps tests that count out.
fn changing() -> RwLockReadGuard<'static, ()> {
    COUNTED.read().unwrap_or_else(PoisonError::into_inner)
}
