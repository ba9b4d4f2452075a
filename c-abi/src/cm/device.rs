//! Open devices of ids. Each is opened once and stays open.
//!
//! # Safety
//!
//! The pointers are of devices that this library opened and never closes.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::{Mutex, PoisonError};

use uverbs_core::Errno;
use uverbs_core::error::Error;

use super::invalid;
use crate::base::answer::{last_errno, null};
use crate::device::list;
use crate::device::open::{close_device, open_device};
use crate::device::query_device::query_device;
use crate::memory::pd::{alloc_pd, dealloc_pd};
use crate::queues::xrcd::{ATTR_BOTH, open_xrcd};
use crate::sys::{ibv_context, ibv_device_attr, ibv_pd, ibv_xrcd, ibv_xrcd_init_attr};

/// An open device.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    guid: u64,
    pub(crate) verbs: *mut ibv_context,
    /// Default protection domain, for ids without one.
    pub(crate) pd: *mut ibv_pd,
    /// Default XRC domain; null until it is used.
    xrcd: *mut ibv_xrcd,
    /// Maximum READs and atomics of a queue pair: as responder, and as initiator.
    pub(crate) serves: u8,
    pub(crate) asks: u8,
}

// SAFETY: open devices may be used by any thread.
unsafe impl Send for Opened {}

static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

fn open(of: &std::sync::Arc<list::Device>) -> Result<Opened, Error> {
    let failed = || Error::kernel("rdma_open_device", last_errno());
    // SAFETY: the device is in the list, which is held here.
    let verbs = unsafe { open_device(of.c()) };
    if verbs.is_null() {
        return Err(failed());
    }
    // SAFETY: the device was just opened.
    let pd = unsafe { alloc_pd(verbs) };
    let mut attr = std::mem::MaybeUninit::<ibv_device_attr>::uninit();
    // SAFETY: the device was just opened, and `attr` has room for the attributes.
    if pd.is_null() || unsafe { query_device(verbs, &raw mut attr) } != 0 {
        let error = failed();
        // SAFETY: nothing else has it yet.
        unsafe {
            if !pd.is_null() {
                dealloc_pd(pd);
            }
            close_device(verbs);
        }
        return Err(error);
    }
    // SAFETY: the call above wrote it.
    let attr = unsafe { attr.assume_init() };
    let byte = |number: c_int| number.clamp(0, 0xff) as u8;
    let (serves, asks) = (byte(attr.max_qp_rd_atom), byte(attr.max_qp_init_rd_atom));
    Ok(Opened { guid: of.device().node_guid(), verbs, pd, xrcd: null_mut(), serves, asks })
}

/// Returns all devices that can be opened; opens those seen for the first time. One that
/// can't be opened stays out.
fn all() -> Result<Vec<Opened>, Error> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    for device in list::devices()? {
        if !opened.iter().any(|known| known.guid == device.device().node_guid()) {
            opened.extend(open(&device));
        }
    }
    Ok(opened.clone())
}

/// Returns the device with this GUID; opens it if it is seen for the first time.
pub(crate) fn find(guid: u64) -> Result<Opened, Error> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = opened.iter().find(|known| known.guid == guid) {
        return Ok(*known);
    }
    let here = list::devices()?.into_iter().find(|device| device.device().node_guid() == guid);
    let device = here.ok_or_else(|| Error::kernel("rdma_query_addr", Errno::ENODEV))?;
    let new = open(&device)?;
    opened.push(new);
    Ok(new)
}

/// Returns the device of an id's context.
pub(crate) fn of(verbs: *const ibv_context) -> Result<Opened, Error> {
    let opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let found = opened.iter().find(|device| device.verbs.cast_const() == verbs).copied();
    found.ok_or_else(|| invalid("rdma_connect"))
}

/// Returns the XRC domain for ids without one, opened at the first call.
pub(crate) fn xrcd(verbs: *const ibv_context) -> Result<*mut ibv_xrcd, Error> {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let found = opened.iter_mut().find(|device| device.verbs.cast_const() == verbs);
    let found = found.ok_or_else(|| invalid("open_xrcd"))?;
    if found.xrcd.is_null() {
        let attr = ibv_xrcd_init_attr { comp_mask: ATTR_BOTH, fd: -1, oflags: libc::O_CREAT };
        // SAFETY: the device stays open.
        found.xrcd = unsafe { open_xrcd(found.verbs, &raw const attr) };
        if found.xrcd.is_null() {
            let errno = last_errno();
            return Err(Error::kernel("open_xrcd", errno));
        }
    }
    Ok(found.xrcd)
}

pub(crate) unsafe extern "C" fn get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    let found = all().and_then(|found| match found.is_empty() {
        true => Err(Error::kernel("rdma_get_devices", Errno::ENODEV)),
        false => Ok(found),
    });
    // SAFETY: by C's contract; it may be null.
    if let Some(count) = unsafe { count.as_mut() } {
        *count = found.as_ref().map_or(0, |found| found.len() as c_int);
    }
    let found = match found {
        Ok(found) => found,
        Err(error) => return null(error.to_errno()),
    };
    let list: Box<[*mut ibv_context]> =
        found.iter().map(|device| device.verbs).chain([null_mut()]).collect();
    Box::into_raw(list).cast()
}

pub(crate) unsafe extern "C" fn free_devices(list: *mut *mut ibv_context) {
    if list.is_null() {
        return;
    }
    let mut len = 0;
    // SAFETY: C's contract: a list that `rdma_get_devices` returned, which ends with null.
    while !unsafe { *list.add(len) }.is_null() {
        len += 1;
    }
    // SAFETY: the list was allocated as a boxed slice of this length.
    drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(list, len + 1)) });
}
