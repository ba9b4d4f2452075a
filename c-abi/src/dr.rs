//! Steering by tables, matchers and rules that a program makes one by one (`mlx5dv_dr_*`). Of each
//! kind of table there is the first one (level 0), which is the kernel's: its matchers and rules
//! are those of `matcher.rs`. The others a program writes into the device's own memory; these
//! aren't implemented.
//!
//! # Safety
//!
//! C's contract.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::sync::Arc;

use uverbs_core::Errno;
use uverbs_core::commands::Uverbs;
use uverbs_mlx5::matcher::{self, MatcherInit};

use crate::answer::{boxed, code, null, refuse};
use crate::context::Context;
use crate::devx::uverbs;
use crate::dr_action::{Action, together};
use crate::matcher::Parameters;
use crate::sys::ibv_context;

/// Counts what is made of an object: each holds another reference.
type Users = Arc<()>;

/// Where packets are steered: in which open device, and by which type of table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    context: *mut ibv_context,
    /// `MLX5_IB_UAPI_FLOW_TABLE_TYPE_*`, which are `MLX5DV_DR_DOMAIN_TYPE_*`.
    pub(crate) table: u32,
}

impl Place {
    /// # Safety
    ///
    /// C's contract.
    pub(crate) unsafe fn uverbs<'a>(&self) -> &'a Uverbs {
        // SAFETY: C's contract: it is open while something made of it is in use.
        unsafe { Context::of(self.context) }.core().uverbs()
    }
}

/// `struct mlx5dv_dr_domain`.
#[derive(Debug)]
pub(crate) struct Domain {
    pub(crate) place: Place,
    users: Users,
}

/// `struct mlx5dv_dr_table`.
#[derive(Debug)]
pub(crate) struct Table {
    place: Place,
    _of: Users,
    users: Users,
}

/// `struct mlx5dv_dr_matcher`.
#[derive(Debug)]
pub(crate) struct Matcher {
    place: Place,
    handle: u32,
    _of: Users,
    users: Users,
}

/// `struct mlx5dv_dr_rule`.
#[derive(Debug)]
pub(crate) struct Rule {
    place: Place,
    handle: u32,
    _of: Users,
}

/// `MLX5DV_DR_DOMAIN_TYPE_FDB`, which needs an eswitch.
const SWITCH: u32 = 2;

pub(crate) unsafe extern "C" fn domain_create(context: *mut ibv_context, kind: u32) -> *mut Domain {
    // SAFETY: C's contract.
    if unsafe { uverbs(context) }.is_none() || kind == SWITCH {
        return null(Errno::EOPNOTSUPP);
    }
    if kind > SWITCH {
        return null(Errno::EINVAL);
    }
    let place = Place { context, table: kind };
    Box::into_raw(Box::new(Domain { place, users: Users::default() }))
}

/// Whether nothing is made of an object; the errno otherwise.
fn unused(users: &Users) -> c_int {
    if Arc::strong_count(users) > 1 { refuse(Errno::EBUSY) } else { 0 }
}

pub(crate) unsafe extern "C" fn domain_destroy(domain: *mut Domain) -> c_int {
    // SAFETY: C's contract.
    let refused = unused(&unsafe { &*domain }.users);
    if refused == 0 {
        // SAFETY: it was made as this box, and is used no more.
        drop(unsafe { Box::from_raw(domain) });
    }
    refused
}

/// Rules are the kernel's, which has made them when it says so.
pub(crate) unsafe extern "C" fn domain_sync(_: *mut Domain, flags: u32) -> c_int {
    if flags & !7 == 0 { 0 } else { refuse(Errno::EINVAL) }
}

pub(crate) unsafe extern "C" fn table_create(domain: *const Domain, level: u32) -> *mut Table {
    if level != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    // SAFETY: C's contract.
    let domain = unsafe { &*domain };
    let of = Arc::clone(&domain.users);
    Box::into_raw(Box::new(Table { place: domain.place, _of: of, users: Users::default() }))
}

pub(crate) unsafe extern "C" fn table_destroy(table: *mut Table) -> c_int {
    // SAFETY: C's contract.
    let refused = unused(&unsafe { &*table }.users);
    if refused == 0 {
        // SAFETY: it was made as this box, and is used no more.
        drop(unsafe { Box::from_raw(table) });
    }
    refused
}

pub(crate) unsafe extern "C" fn matcher_create(
    table: *const Table,
    priority: u16,
    criteria: u8,
    mask: *const Parameters,
) -> *mut Matcher {
    // SAFETY: C's contract.
    let (table, mask) = unsafe { (&*table, Parameters::bytes(mask)) };
    let place = table.place;
    let init = MatcherInit { mask, criteria, priority, table: Some(place.table), flags: 0 };
    // SAFETY: as above.
    let made = matcher::create(unsafe { place.uverbs() }, &init);
    boxed(made.map(|handle| {
        let of = Arc::clone(&table.users);
        Box::new(Matcher { place, handle, _of: of, users: Users::default() })
    }))
}

pub(crate) unsafe extern "C" fn matcher_destroy(matcher: *mut Matcher) -> c_int {
    // SAFETY: C's contract.
    let of = unsafe { &*matcher };
    let refused = unused(&of.users);
    if refused != 0 {
        return refused;
    }
    // SAFETY: as above.
    let done = unsafe { matcher::destroy(of.place.uverbs(), of.handle) };
    if done.is_ok() {
        // SAFETY: it was made as this box, and is gone.
        drop(unsafe { Box::from_raw(matcher) });
    }
    code(done)
}

pub(crate) unsafe extern "C" fn rule_create(
    matcher: *const Matcher,
    value: *const Parameters,
    count: usize,
    list: *const *const Action,
) -> *mut Rule {
    // SAFETY: C's contract.
    let (matcher, value) = unsafe { (&*matcher, Parameters::bytes(value)) };
    // SAFETY: as above.
    let actions = (0..count).map(|at| unsafe { &**list.add(at) });
    let actions = match together(actions) {
        Ok(actions) => actions,
        Err(errno) => return null(errno),
    };
    let place = matcher.place;
    // SAFETY: C's contract.
    let uverbs = unsafe { place.uverbs() };
    let made = matcher::create_rule(uverbs, matcher.handle, value, &actions);
    boxed(made.map(|handle| Box::new(Rule { place, handle, _of: Arc::clone(&matcher.users) })))
}

pub(crate) unsafe extern "C" fn rule_destroy(rule: *mut Rule) -> c_int {
    // SAFETY: C's contract; its own handle.
    let done = unsafe { (*rule).place.uverbs().destroy_flow((*rule).handle) };
    if done.is_ok() {
        // SAFETY: it was made as this box, and is gone.
        drop(unsafe { Box::from_raw(rule) });
    }
    code(done)
}
