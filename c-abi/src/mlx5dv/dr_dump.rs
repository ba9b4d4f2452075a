//! Dumps of steering domains as text for `mlx5_steering_dump` (`mlx5dv_dump_dr_*`). A line is a
//! record: its number, then its fields, separated by commas. Records of the device's own steering
//! memory are left out: domains here have none.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;

use libc::FILE;
use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_core::provider::ContextOps;
use uverbs_mlx5::matcher::Destination;

use crate::base::answer::{code, refuse};
use crate::device::context::Context;
use crate::mlx5dv::dr::{Domain, Matcher, Rule, Table};
use crate::mlx5dv::dr_action::Action;

// Numbers of records (rdma-core, `providers/mlx5/dr_dbg.c`, `enum dr_dump_rec_type`).
const DOMAIN: u32 = 3000;
const DEVICE: u32 = 3002;
const TABLE: u32 = 3100;
const MATCHER: u32 = 3200;
const RULE: u32 = 3300;
const CHANGE: u32 = 3402;
const DROP: u32 = 3403;
const QUEUE_PAIR: u32 = 3404;
const COUNT: u32 = 3406;
const TAG: u32 = 3407;
const OBJECT: u32 = 3411;
const MISS: u32 = 3423;

/// Id of a domain in the records, as in C's library: process and type. Other objects have their
/// address as id.
fn domain_id(domain: &Domain) -> u64 {
    u64::from(std::process::id()) << 8 | u64::from(domain.place.table)
}

/// # Errors
///
/// Returns an error if the device's attributes cannot be queried.
fn domain(domain: &Domain) -> Result<String, Error> {
    // SAFETY: C's contract: the device is open while its objects are in use.
    let context = unsafe { Context::of(domain.place.context) };
    let attr = context.ops().query_device()?;
    let (id, kind, version) = (domain_id(domain), domain.place.table, env!("CARGO_PKG_VERSION"));
    let name = context.device().name();
    // Software steering is off, so its fields are 0: gvmi, vport, flags, memory counts, format.
    Ok(format!(
        "{DOMAIN},{id:#x},{kind},00,0,{version},{name},0,0,0,0,0\n{DEVICE},{id:#x},{},{},0\n",
        attr.phys_port_count,
        attr.firmware(),
    ))
}

fn table(of: &Table) -> String {
    let domain = of.domain();
    // A table has its domain's type, and the first table is level 0.
    format!("{TABLE},{of:p},{:#x},{},0\n", domain_id(domain), domain.place.table)
}

fn matcher(of: &Matcher) -> String {
    format!("{MATCHER},{of:p},{:p},{}\n", of.table, of.priority)
}

fn action(rule: &Rule, of: &Action) -> String {
    let id = format!("{of:p},{rule:p}");
    match of {
        Action::To(Destination::Drop, _) => format!("{DROP},{id}\n"),
        Action::To(Destination::Miss, _) => format!("{MISS},{id}\n"),
        Action::To(Destination::QueuePair(_), qpn) => format!("{QUEUE_PAIR},{id},{qpn:#x}\n"),
        // C's library writes device numbers in the following records. Only kernel handles are known
        // here.
        Action::To(Destination::Object(handle), _) => format!("{OBJECT},{id},{handle:#x}\n"),
        Action::Tag(tag) => format!("{TAG},{id},{tag:#x}\n"),
        Action::Count(count) => {
            format!("{COUNT},{id},{:#x}\n", count.object.wrapping_add(count.offset.unwrap_or(0)))
        }
        Action::Change(_, handle) => format!("{CHANGE},{id},{handle:#x},0,0x0,0x0,0x0\n"),
    }
}

fn rule(of: &Rule) -> String {
    let actions: String = of.actions.iter().map(|it| action(of, it)).collect();
    format!("{RULE},{of:p},{:p}\n{actions}", of.matcher)
}

/// Writes the records of an object's domain and of the object; `lines` returns both.
///
/// # Safety
///
/// C's contract: null, or a file open for writing; null, or an object that isn't destroyed
/// meanwhile.
unsafe fn dump<T>(
    file: *mut FILE,
    of: *const T,
    lines: impl FnOnce(&T) -> (&Domain, String),
) -> c_int {
    // SAFETY: by the contract of `dump`.
    let Some(of) = (unsafe { of.as_ref() }).filter(|_| !file.is_null()) else {
        return -refuse(Errno::EINVAL);
    };
    let (of, lines) = lines(of);
    let text = match domain(of) {
        Ok(text) => text + &lines,
        Err(error) => return -code(Err(error)),
    };
    // SAFETY: `text` has that many bytes; the file is valid by the contract of the caller.
    let written = unsafe { libc::fwrite(text.as_ptr().cast(), 1, text.len(), file) };
    if written == text.len() { 0 } else { -1 }
}

pub(crate) unsafe extern "C" fn dump_domain(file: *mut FILE, of: *const Domain) -> c_int {
    // SAFETY: by C's contract; no table is destroyed meanwhile.
    unsafe { dump(file, of, |of| (of, of.tables.each(table))) }
}

pub(crate) unsafe extern "C" fn dump_table(file: *mut FILE, of: *const Table) -> c_int {
    // SAFETY: by C's contract.
    unsafe { dump(file, of, |of| (of.domain(), table(of))) }
}

pub(crate) unsafe extern "C" fn dump_matcher(file: *mut FILE, of: *const Matcher) -> c_int {
    // SAFETY: by C's contract; no rule is destroyed meanwhile.
    unsafe {
        dump(file, of, |of| {
            (of.table().domain(), table(of.table()) + &matcher(of) + &of.rules.each(rule))
        })
    }
}

pub(crate) unsafe extern "C" fn dump_rule(file: *mut FILE, of: *const Rule) -> c_int {
    // SAFETY: by C's contract.
    unsafe {
        dump(file, of, |of| {
            let up = of.matcher();
            (up.table().domain(), table(up.table()) + &matcher(up) + &rule(of))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use super::*;
    use crate::mlx5dv::dr::{DrTable, Made};
    use crate::mlx5dv::dr_action;

    #[test]
    fn each_object_has_its_line() {
        // The functions under test send no command, so the device may be null.
        let place = DrTable { context: null_mut(), table: 1 };
        let domain = Domain { place, tables: Made::none() };
        let of = domain.tables.add(Table { domain: &raw const domain, matchers: Made::none() });
        let id = u64::from(std::process::id()) << 8 | 1;
        // SAFETY: each is destroyed at the end of the test, children first.
        unsafe {
            assert_eq!(domain.tables.each(table), format!("3100,{of:p},{id:#x},1,0\n"));
            let new = Matcher { table: of, priority: 7, handle: 3, rules: Made::none() };
            let up = (*of).matchers.add(new);
            assert_eq!(matcher(&*up), format!("3200,{up:p},{of:p},7\n"));
            let (tag, end) = (dr_action::create_tag(0x2a), dr_action::create_drop());
            let actions = [tag, end].map(|it| Action::shared(it)).to_vec();
            let made = (*up).rules.add(Rule { matcher: up, actions, handle: 4 });
            let lines = format!("3300,{made:p},{up:p}\n3407,{tag:p},{made:p},0x2a\n");
            assert_eq!((*up).rules.each(rule), lines + &format!("3403,{end:p},{made:p}\n"));
            // An action in use by a rule cannot be destroyed.
            assert_eq!(dr_action::destroy(tag), Errno::EBUSY.raw());
            assert_eq!(rule(&*made).matches(&format!("{tag:p}")).count(), 1);
            drop(Box::from_raw(made));
            assert_eq!((dr_action::destroy(tag), dr_action::destroy(end)), (0, 0));
            drop((Box::from_raw(up), Box::from_raw(of)));
        }
    }

    #[test]
    fn nothing_is_refused() {
        // SAFETY: the functions check for null.
        let refused = unsafe {
            [
                dump_domain(null_mut(), null_mut()),
                dump_table(null_mut(), null_mut()),
                dump_matcher(null_mut(), null_mut()),
                dump_rule(null_mut(), null_mut()),
            ]
        };
        assert_eq!(refused, [-Errno::EINVAL.raw(); 4]);
    }
}
