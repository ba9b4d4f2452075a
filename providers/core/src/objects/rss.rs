//! Tables of work queues, and queue pairs that spread packets over them: the kernel's objects.
//!
//! # Safety
//!
//! Each is ended by its number, once.
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

/// Names what is of another open device.
fn foreign(verb: &'static str, what: &'static str) -> Error {
    Error::Invalid {
        verb,
        what,
        value: "of another context".to_owned(),
        why: "queues, their table and its queue pairs are made from the same open device",
    }
}

/// A table of work queues, which it keeps. Destroyed when the last holder is gone, queue pairs
/// included, or before by [`destroy`](Self::destroy).
pub struct IndTableCore {
    context: Arc<ContextCore>,
    created: IndTableCreated,
    queues: Vec<Arc<WqCore>>,
    destroyed: Mutex<bool>,
}

impl IndTableCore {
    /// Makes a table. A queue may have several places. `most` is how many places a table has at
    /// most.
    ///
    /// # Errors
    ///
    /// [`Error::Limit`] over `most`; [`Error::Invalid`] for another number than a power of two, and
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
                why: "the lowest bits of the hash are the place, so there is a power of two of \
                      places; a queue may have several",
            });
        }
        if queues.iter().any(|wq| !Arc::ptr_eq(wq.pd().context(), context)) {
            return Err(foreign(verb, "work queue"));
        }
        let handles: Vec<u32> = queues.iter().map(|wq| wq.handle()).collect();
        // SAFETY: the queues are alive, since they are held here.
        let created = unsafe { context.uverbs().create_rwq_ind_table(&handles) }?;
        let (context, destroyed) = (Arc::clone(context), Mutex::default());
        Ok(Arc::new(Self { context, created, queues, destroyed }))
    }

    /// The kernel's handle.
    #[must_use]
    pub fn handle(&self) -> u32 {
        self.created.handle
    }

    /// The device's number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.created.number
    }

    /// The device it is of.
    #[must_use]
    pub fn context(&self) -> &Arc<ContextCore> {
        &self.context
    }

    /// The queue at each place.
    #[must_use]
    pub fn queues(&self) -> &[Arc<WqCore>] {
        &self.queues
    }

    /// Destroys it now. Once only: a second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while a queue pair uses it; the table then goes on.
    ///
    /// # Safety
    ///
    /// No queue pair is made over it afterwards: its number may be another's by then.
    pub unsafe fn destroy(&self) -> Result<(), Error> {
        let (verb, uverbs) = ("destroy_rwq_ind_table", self.context.uverbs());
        // A forked child drops its parent's table, too: a thread that it hasn't may hold the lock.
        uverbs.check_own(verb)?;
        let mut destroyed = self.destroyed.lock().unwrap_or_else(PoisonError::into_inner);
        if !*destroyed {
            // SAFETY: its own number, for the only time; nothing is made over it afterwards, says
            // the caller.
            unsafe { uverbs.destroy_rwq_ind_table(self.handle()) }?;
            *destroyed = true;
        }
        Ok(())
    }
}

impl Drop for IndTableCore {
    fn drop(&mut self) {
        // Nothing to be done about a refusal: closing the file ends it. Its queues' own destruction
        // is then refused, too, and leaks them.
        // SAFETY: nobody has it any more.
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

/// A queue pair that spreads packets over a table, which it keeps. It has no queues of its own, no
/// number and no state. Destroyed when the last holder is gone, rules included, or before by
/// [`destroy`](Self::destroy).
#[derive(Debug)]
pub struct RssCore {
    object: QpObject,
    table: Arc<IndTableCore>,
    _pd: Arc<PdCore>,
}

impl RssCore {
    /// Makes one. `uhw` is the driver's request, which says how it hashes, and room for its
    /// response.
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
        // SAFETY: the kernel just gave it out, and it is ended here alone.
        let object = unsafe { QpObject::new(of, (handle, 0), id, QpState::Reset) };
        Ok(Arc::new(Self { object, table: Arc::clone(table), _pd: Arc::clone(pd) }))
    }

    /// The kernel's object.
    #[must_use]
    pub fn object(&self) -> &QpObject {
        &self.object
    }

    /// The table.
    #[must_use]
    pub fn table(&self) -> &Arc<IndTableCore> {
        &self.table
    }

    /// Destroys it now. Once only: a second call does nothing.
    ///
    /// # Errors
    ///
    /// The kernel's refusal, `EBUSY` while it has rules; the queue pair then goes on.
    pub fn destroy(&self) -> Result<(), Error> {
        // SAFETY: it has no queues that anything could be posted to.
        unsafe { self.object.destroy() }.map(drop)
    }
}

impl Drop for RssCore {
    fn drop(&mut self) {
        // Nothing to be done about a refusal: closing the file ends it.
        let _ = self.destroy();
    }
}
