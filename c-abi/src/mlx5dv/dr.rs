//! Steering by tables, matchers and rules that a program creates one by one (`mlx5dv_dr_*`). Only
//! the first table of each type (level 0) is supported, which the kernel owns: its matchers and
//! rules are implemented in `matcher.rs`. Further tables, which C's library writes to the device's
//! steering memory, are unsupported.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uverbs_core::Errno;
use uverbs_core::commands::Uverbs;
use uverbs_mlx5::matcher::{self, MatcherInit};

use crate::base::answer::{code, given, null, refuse};
use crate::device::context::Context;
use crate::device::devx::uverbs;
use crate::mlx5dv::dr_action::{Action, together};
use crate::mlx5dv::matcher::Parameters;
use crate::sys::ibv_context;

/// Children of an object, which cannot be destroyed before them.
#[derive(Debug)]
pub(crate) struct Made<T>(Mutex<Vec<*const T>>);

impl<T> Made<T> {
    pub(crate) fn none() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Locks the list. A poisoned lock is sound: no code panics under it.
    fn list(&self) -> MutexGuard<'_, Vec<*const T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an object, and gives it to C.
    pub(crate) fn add(&self, object: T) -> *mut T {
        let object = Box::into_raw(Box::new(object));
        self.list().push(object);
        object
    }

    fn forget(&self, object: *const T) {
        self.list().retain(|it| *it != object);
    }

    /// Returns 0 without children, `EBUSY` otherwise.
    fn unused(&self) -> c_int {
        if self.list().is_empty() { 0 } else { refuse(Errno::EBUSY) }
    }

    /// Concatenates the text of each child.
    ///
    /// # Safety
    ///
    /// No child is destroyed during the call.
    pub(crate) unsafe fn each(&self, text: impl Fn(&T) -> String) -> String {
        // SAFETY: by the contract of `each`; a destroyed object has left the list.
        self.list().iter().map(|it| text(unsafe { &**it })).collect()
    }
}

/// Open device and table type of a steering object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DrTable {
    pub(crate) context: *mut ibv_context,
    /// `MLX5_IB_UAPI_FLOW_TABLE_TYPE_*`, which are `MLX5DV_DR_DOMAIN_TYPE_*`.
    pub(crate) table: u32,
}

impl DrTable {
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn uverbs<'a>(&self) -> &'a Uverbs {
        // SAFETY: C's contract: the device is open while its objects are in use.
        unsafe { Context::of(self.context) }.core().uverbs()
    }
}

/// `struct mlx5dv_dr_domain`.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) place: DrTable,
    pub(crate) tables: Made<Table>,
}

/// `struct mlx5dv_dr_table`.
#[derive(Debug)]
pub(crate) struct Table {
    pub(crate) domain: *const Domain,
    pub(crate) matchers: Made<Matcher>,
}

/// `struct mlx5dv_dr_matcher`.
#[derive(Debug)]
pub(crate) struct Matcher {
    pub(crate) table: *const Table,
    pub(crate) priority: u16,
    pub(crate) handle: u32,
    pub(crate) rules: Made<Rule>,
}

/// `struct mlx5dv_dr_rule`.
#[derive(Debug)]
pub(crate) struct Rule {
    pub(crate) matcher: *const Matcher,
    pub(crate) actions: Vec<Arc<Action>>,
    pub(crate) handle: u32,
}

/// `MLX5DV_DR_DOMAIN_TYPE_FDB`, which needs an eswitch.
const SWITCH: u32 = 2;

pub(crate) unsafe extern "C" fn domain_create(context: *mut ibv_context, kind: u32) -> *mut Domain {
    // SAFETY: by C's contract.
    if unsafe { uverbs(context) }.is_none() || kind == SWITCH {
        return null(Errno::EOPNOTSUPP);
    }
    if kind > SWITCH {
        return null(Errno::EINVAL);
    }
    let place = DrTable { context, table: kind };
    Box::into_raw(Box::new(Domain { place, tables: Made::none() }))
}

pub(crate) unsafe extern "C" fn domain_destroy(domain: *mut Domain) -> c_int {
    // SAFETY: by C's contract.
    let refused = unsafe { &*domain }.tables.unused();
    if refused == 0 {
        // SAFETY: the object was kept as a box of this type, and is used no more.
        drop(unsafe { Box::from_raw(domain) });
    }
    refused
}

/// Synchronises a domain: done already, since the kernel applies a rule before it returns.
pub(crate) unsafe extern "C" fn domain_sync(_: *mut Domain, flags: u32) -> c_int {
    if flags & !7 == 0 { 0 } else { refuse(Errno::EINVAL) }
}

pub(crate) unsafe extern "C" fn table_create(domain: *const Domain, level: u32) -> *mut Table {
    if level != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    // SAFETY: by C's contract.
    unsafe { &*domain }.tables.add(Table { domain, matchers: Made::none() })
}

pub(crate) unsafe extern "C" fn table_destroy(table: *mut Table) -> c_int {
    // SAFETY: by C's contract.
    let of = unsafe { &*table };
    let refused = of.matchers.unused();
    if refused == 0 {
        of.domain().tables.forget(table);
        // SAFETY: the object was kept as a box of this type, and is used no more.
        drop(unsafe { Box::from_raw(table) });
    }
    refused
}

impl Table {
    pub(crate) fn domain(&self) -> &Domain {
        // SAFETY: a domain isn't destroyed before its tables.
        unsafe { &*self.domain }
    }
}

pub(crate) unsafe extern "C" fn matcher_create(
    table: *const Table,
    priority: u16,
    criteria: u8,
    mask: *const Parameters,
) -> *mut Matcher {
    // SAFETY: by C's contract.
    let (of, mask) = unsafe { (&*table, Parameters::bytes(mask)) };
    let place = of.domain().place;
    let init = MatcherInit { mask, criteria, priority, table: Some(place.table), flags: 0 };
    // SAFETY: by C's contract.
    let made = matcher::create(unsafe { place.uverbs() }, &init);
    given(
        made.map(|handle| {
            of.matchers.add(Matcher { table, priority, handle, rules: Made::none() })
        }),
    )
}

pub(crate) unsafe extern "C" fn matcher_destroy(matcher: *mut Matcher) -> c_int {
    // SAFETY: by C's contract.
    let of = unsafe { &*matcher };
    let refused = of.rules.unused();
    if refused != 0 {
        return refused;
    }
    // SAFETY: by C's contract.
    let done = unsafe { matcher::destroy(of.place().uverbs(), of.handle) };
    if done.is_ok() {
        of.table().matchers.forget(matcher);
        // SAFETY: the object was kept as a box of this type, and is destroyed.
        drop(unsafe { Box::from_raw(matcher) });
    }
    code(done)
}

impl Matcher {
    pub(crate) fn table(&self) -> &Table {
        // SAFETY: a table isn't destroyed before its matchers.
        unsafe { &*self.table }
    }

    fn place(&self) -> DrTable {
        self.table().domain().place
    }
}

pub(crate) unsafe extern "C" fn rule_create(
    matcher: *const Matcher,
    value: *const Parameters,
    count: usize,
    list: *const *const Action,
) -> *mut Rule {
    // SAFETY: by C's contract.
    let (of, value) = unsafe { (&*matcher, Parameters::bytes(value)) };
    // SAFETY: by C's contract.
    let actions: Vec<_> = (0..count).map(|at| unsafe { Action::shared(*list.add(at)) }).collect();
    let together = match together(&actions) {
        Ok(together) => together,
        Err(errno) => return null(errno),
    };
    // SAFETY: by C's contract.
    let uverbs = unsafe { of.place().uverbs() };
    let made = matcher::create_rule(uverbs, of.handle, value, &together);
    given(made.map(|handle| of.rules.add(Rule { matcher, actions, handle })))
}

pub(crate) unsafe extern "C" fn rule_destroy(rule: *mut Rule) -> c_int {
    // SAFETY: by C's contract.
    let of = unsafe { &*rule };
    // SAFETY: by C's contract; the handle is the object's.
    let done = unsafe { of.matcher().place().uverbs().destroy_flow(of.handle) };
    if done.is_ok() {
        of.matcher().rules.forget(rule);
        // SAFETY: the object was kept as a box of this type, and is destroyed.
        drop(unsafe { Box::from_raw(rule) });
    }
    code(done)
}

impl Rule {
    pub(crate) fn matcher(&self) -> &Matcher {
        // SAFETY: a matcher isn't destroyed before its rules.
        unsafe { &*self.matcher }
    }
}
