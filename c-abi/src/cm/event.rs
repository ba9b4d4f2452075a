//! Events of connection managers.
//!
//! # Safety
//!
//! By C's contract (crate root), a pointer is null only where the header allows it, otherwise valid
//! for its type, and an object is in use only until its destruction. An event's private data lies
//! behind it, in the same box.
#![allow(unsafe_code, reason = "functions and pointers of C")]

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use uverbs_core::Errno;
use uverbs_core::error::Error;
use uverbs_kernel_abi::rdma_cm::rdma_ucm_event_resp;

use super::done;
use super::id::Id;
use super::sys::{UD, rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_param, rdma_ud_param};
use crate::base::convert;

/// `RDMA_CM_EVENT_*`.
pub(crate) const ADDR_RESOLVED: u32 = 0;
pub(crate) const ADDR_ERROR: u32 = 1;
pub(crate) const ROUTE_RESOLVED: u32 = 2;
pub(crate) const ROUTE_ERROR: u32 = 3;
pub(crate) const CONNECT_REQUEST: u32 = 4;
pub(crate) const CONNECT_RESPONSE: u32 = 5;
pub(crate) const CONNECT_ERROR: u32 = 6;
pub(crate) const REJECTED: u32 = 8;
pub(crate) const ESTABLISHED: u32 = 9;
pub(crate) const DISCONNECTED: u32 = 10;
pub(crate) const MULTICAST_JOIN: u32 = 12;
pub(crate) const MULTICAST_ERROR: u32 = 13;
pub(crate) const ADDRINFO_RESOLVED: u32 = 16;
pub(crate) const ADDRINFO_ERROR: u32 = 17;
/// `RDMA_CM_EVENT_USER` of the program, and an internal event of the kernel and the library.
pub(crate) const USER: u32 = 18;
pub(crate) const INTERNAL: u32 = 19;

/// Names of events, for messages of programs.
const NAMES: [&CStr; 18] = [
    c"RDMA_CM_EVENT_ADDR_RESOLVED",
    c"RDMA_CM_EVENT_ADDR_ERROR",
    c"RDMA_CM_EVENT_ROUTE_RESOLVED",
    c"RDMA_CM_EVENT_ROUTE_ERROR",
    c"RDMA_CM_EVENT_CONNECT_REQUEST",
    c"RDMA_CM_EVENT_CONNECT_RESPONSE",
    c"RDMA_CM_EVENT_CONNECT_ERROR",
    c"RDMA_CM_EVENT_UNREACHABLE",
    c"RDMA_CM_EVENT_REJECTED",
    c"RDMA_CM_EVENT_ESTABLISHED",
    c"RDMA_CM_EVENT_DISCONNECTED",
    c"RDMA_CM_EVENT_DEVICE_REMOVAL",
    c"RDMA_CM_EVENT_MULTICAST_JOIN",
    c"RDMA_CM_EVENT_MULTICAST_ERROR",
    c"RDMA_CM_EVENT_ADDR_CHANGE",
    c"RDMA_CM_EVENT_TIMEWAIT_EXIT",
    c"RDMA_CM_EVENT_ADDRINFO_RESOLVED",
    c"RDMA_CM_EVENT_ADDRINFO_ERROR",
];

#[repr(C)]
pub(crate) struct Event {
    pub(crate) c: rdma_cm_event,
    /// Id whose acknowledged events are counted; of a connection request, the listener.
    pub(crate) owner: *mut rdma_cm_id,
    private_data: [u8; 256],
}

impl Event {
    pub(crate) fn new(raw: &rdma_ucm_event_resp, owner: *mut rdma_cm_id) -> Box<Self> {
        // SAFETY: numbers and pointers that may be null.
        let param: rdma_event_param = unsafe { std::mem::zeroed() };
        let c = rdma_cm_event {
            id: owner,
            listen_id: null_mut(),
            event: raw.event,
            status: raw.status,
            param,
        };
        let mut event = Box::new(Self { c, owner, private_data: [0; 256] });
        // SAFETY: the id exists: an event of it is being delivered.
        let is_datagram = unsafe { (*owner).qp_type } == UD;
        if matches!(raw.event, USER | INTERNAL) {
            event.c.param.arg = raw.arg();
        } else if is_datagram {
            event.set_datagram(raw);
        } else {
            event.set_connection(raw);
        }
        event
    }

    /// Copies the private data behind the event. Null if empty.
    fn private(&mut self, bytes: &[u8; 256], len: u8) -> *const c_void {
        self.private_data = *bytes;
        if len == 0 { null_mut() } else { self.private_data.as_ptr().cast() }
    }

    fn set_connection(&mut self, raw: &rdma_ucm_event_resp) {
        let param = raw.conn();
        self.c.param.conn = rdma_conn_param {
            private_data: self.private(&param.private_data, param.private_data_len),
            private_data_len: param.private_data_len,
            responder_resources: param.responder_resources,
            initiator_depth: param.initiator_depth,
            flow_control: param.flow_control,
            retry_count: param.retry_count,
            rnr_retry_count: param.rnr_retry_count,
            srq: param.srq,
            qp_num: param.qp_num,
        };
    }

    fn set_datagram(&mut self, raw: &rdma_ucm_event_resp) {
        let param = raw.ud();
        self.c.param.ud = rdma_ud_param {
            private_data: self.private(&param.private_data, param.private_data_len),
            private_data_len: param.private_data_len,
            ah_attr: convert::ah_from_kernel(&param.ah_attr),
            qp_num: param.qp_num,
            qkey: param.qkey,
        };
    }
}

impl Event {
    /// Sets the event by the result.
    pub(crate) fn turn(&mut self, result: Result<(), Error>, good: u32, bad: u32) {
        match result {
            Ok(()) => self.c.event = good,
            Err(error) => {
                (self.c.event, self.c.status) = (bad, -error.to_errno().raw());
            }
        }
    }

    pub(crate) fn of_group(
        raw: &rdma_ucm_event_resp,
        owner: *mut rdma_cm_id,
        context: *const c_void,
    ) -> Box<Self> {
        let mut event = Self::new(raw, owner);
        event.set_datagram(raw);
        event.c.param.ud.private_data = context;
        event
    }
}

/// # Safety
///
/// C's contract.
pub(crate) unsafe fn acknowledge(event: &Event) {
    // SAFETY: C's contract: the destruction of the id waits for this acknowledgement.
    unsafe { Id::of(event.owner) }.acks().acknowledge(1);
}

pub(crate) unsafe extern "C" fn ack_cm_event(event: *mut rdma_cm_event) -> c_int {
    if event.is_null() {
        return done(Err(Error::kernel("rdma_ack_cm_event", Errno::EINVAL)));
    }
    // SAFETY: C's contract: an event that was delivered and is not used again.
    unsafe {
        let event = Box::from_raw(event.cast::<Event>());
        acknowledge(&event);
    }
    0
}

pub(crate) unsafe extern "C" fn event_str(event: u32) -> *const c_char {
    NAMES.get(event as usize).unwrap_or(&c"UNKNOWN EVENT").as_ptr()
}
