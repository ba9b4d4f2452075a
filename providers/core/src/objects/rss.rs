//! RSS tables of work queues, and queue pairs that spread packets over them: the kernel objects.
//!
//! # Safety
//!
//! Each object is destroyed by its handle, once.
#![allow(unsafe_code, reason = "makes and ends kernel objects by numbers")]

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::attr::QpState;
use crate::commands::wq::{CreateRssQp, IndTableCreated};
use crate::error::Error;
use crate::objects::context::{ContextCore, unique_id};
use crate::objects::pd::PdCore;
use crate::objects::qp_object::QpObject;
use crate::objects::wq::WqCore;

/// Error for an object of another open device.
fn foreign(verb: &'static str, what: &'static str) -> Error {
    Error::Invalid {
        verb,
        what,
        value: "of another context".to_owned(),
        why: "work queues, table and queue pairs must belong to the same open device",
    }
}

/// A table of work queues, which it keeps alive. Destroyed with its last holder, including queue
/// pairs, or earlier by [`destroy`](Self::destroy).
pub struct IndTableCore {
    context: Arc<ContextCore>,
    created: IndTableCreated,
    queues: Vec<Arc<WqCore>>,
    destroyed: Mutex<bool>,
}

impl IndTableCore {
    /// Creates a table. A queue may occur at several entries. `most` is the maximum number of
    /// entries.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] above `most`; [`Error::Invalid`] for a number that is no power of two, and
    /// for queues of another context; the kernel's refusal.
    pub fn create(
        context: &Arc<ContextCore>,
        queues: Vec<Arc<WqCore>>,
        most: u32,
    ) -> Result<Arc<Self>, Error> {
        let verb = "create_rwq_ind_table";
        let places = u32::try_from(queues.len()).unwrap_or(u32::MAX);
        Error::limit(verb, "queues", places, most)?;
        if !places.is_power_of_two() {
            return Err(Error::Invalid {
                verb,
                what: "queues",
                value: places.to_string(),
                why: "a table has a power of two of entries, selected by the lowest bits of the \
                      hash; a queue may have several",
            });
        }
        if queues.iter().any(|wq| !Arc::ptr_eq(wq.pd().context(), context)) {
            return Err(foreign(verb, "work queue"));
        }
        let handles: Vec<u32> = queues.iter().map(|wq| wq.handle()).collect();
        // SAFETY: the table holds the queues, so they are alive.
        let created = unsafe { context.uverbs().create_rwq_ind_table(&handles) }?;
        let (context, destroyed) = (Arc::clone(context), Mutex::default());
        Ok(Arc::new(Self { context, created, queues, destroyed }))
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.created.handle
    }

    /// Device's number of the table.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.created.number
    }

    /// Open device of the table.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// Queue at each entry.
    #[must_use]
    pub fn queues(&self) -> &[Arc<WqCore>] {
        &self.queues
    }

    /// Destroys the table now. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while a queue pair uses it; the table then stays valid.
    ///
    /// # Safety
    ///
    /// No queue pair is created over it afterwards: its number may be reused.
    pub unsafe fn destroy(&self) -> Result<(), Error> {
        let (verb, uverbs) = ("destroy_rwq_ind_table", self.context.uverbs());
        // A forked child also drops its parent's table. A thread of the parent may hold the lock.
        uverbs.check_own(verb)?;
        let mut destroyed = self.destroyed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*destroyed {
            // SAFETY: this object's handle, destroyed here for the first time; no queue pair is
            // created over it afterwards by the contract of `destroy`.
            unsafe { uverbs.destroy_rwq_ind_table(self.handle()) }?;
            *destroyed = true;
        }
        Ok(())
    }
}

impl Drop for IndTableCore {
    fn drop(&mut self) {
        // A refusal is ignored: closing the file ends the table. The kernel then also refuses to
        // destroy its queues, which are leaked.
        // SAFETY: the last holder is gone, so the table is unused.
        let _ = unsafe { self.destroy() };
    }
}

impl fmt::Debug for IndTableCore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IndTableCore")
            .field("handle", &self.handle())
            .field("places", &self.queues.len())
            .finish_non_exhaustive()
    }
}

/// A queue pair that spreads packets over an RSS table, which it keeps alive. It has no queues, no
/// number and no state. Destroyed with its last holder, including rules, or earlier by
/// [`destroy`](Self::destroy).
#[derive(Debug)]
pub struct RssCore {
    object: QpObject,
    table: Arc<IndTableCore>,
    _pd: Arc<PdCore>,
}

impl RssCore {
    /// Creates the queue pair. `uhw_in` is the driver's request, which sets the hash; the response
    /// buffer is the driver's too.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for objects of two contexts; the kernel's refusal.
    ///
    /// # Safety
    ///
    /// Memory that `uhw_in` names is valid during the call.
    pub unsafe fn create(
        pd: &Arc<PdCore>,
        table: &Arc<IndTableCore>,
        uhw_in: &[u8],
        uhw_out: &mut [u8],
    ) -> Result<Arc<Self>, Error> {
        let context = pd.context();
        if !Arc::ptr_eq(context, table.context()) {
            return Err(foreign("create_qp", "table"));
        }
        let attr = CreateRssQp {
            pd: pd.handle(),
            table: table.handle(),
            user_handle: unique_id(),
            event_fd: context.event_file(),
        };
        // SAFETY: domain and table are alive, since they are held here; the rest is the caller's
        // promise.
        let handle = unsafe { context.uverbs().create_rss_qp(&attr, uhw_in, uhw_out) }?;
        let (of, id) = (Arc::clone(context), attr.user_handle);
        // SAFETY: the kernel just returned the handle, and only this object destroys it.
        let object = unsafe { QpObject::new(of, (handle, 0), id, QpState::Reset) };
        Ok(Arc::new(Self { object, table: Arc::clone(table), _pd: Arc::clone(pd) }))
    }

    /// Kernel object of the queue pair.
    #[must_use]
    pub fn object(&self) -> &QpObject {
        &self.object
    }

    /// RSS table.
    #[must_use]
    pub fn table(&self) -> &Arc<IndTableCore> {
        &self.table
    }

    /// Destroys the queue pair now. A second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while it has rules; the queue pair then stays valid.
    pub fn destroy(&self) -> Result<(), Error> {
        // SAFETY: it has no queues, so nothing can be posted to it.
        unsafe { self.object.destroy() }.map(drop)
    }
}

impl Drop for RssCore {
    fn drop(&mut self) {
        // A refusal is ignored: closing the file ends the queue pair.
        let _ = self.destroy();
    }
}
