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

use super::channel::Channel;
use super::connect::{fail, ready};
use super::done;
use super::ece;
use super::id::{self, Id, UD, deliver, give, migrate, refresh, unique_key};
use super::invalid;
use super::multicast;
use super::resolve;
use super::sys::{
    rdma_cm_event, rdma_cm_id, rdma_conn_param, rdma_event_channel, rdma_event_param, rdma_ud_param,
};
use crate::base::cancel;
use crate::base::convert;

/// `RDMA_CM_EVENT_*`.
pub(crate) const ADDR_RESOLVED: u32 = 0;
const ADDR_ERROR: u32 = 1;
const ROUTE_RESOLVED: u32 = 2;
const ROUTE_ERROR: u32 = 3;
pub(crate) const CONNECT_REQUEST: u32 = 4;
const CONNECT_RESPONSE: u32 = 5;
const CONNECT_ERROR: u32 = 6;
pub(crate) const REJECTED: u32 = 8;
const ESTABLISHED: u32 = 9;
const DISCONNECTED: u32 = 10;
pub(crate) const MULTICAST_JOIN: u32 = 12;
pub(crate) const MULTICAST_ERROR: u32 = 13;
pub(crate) const ADDRINFO_RESOLVED: u32 = 16;
const ADDRINFO_ERROR: u32 = 17;
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
    /// Id that counts the acknowledgement: of a request, the listener.
    owner: *mut rdma_cm_id,
    private_data: [u8; 256],
}

impl Event {
    fn new(raw: &rdma_ucm_event_resp, owner: *mut rdma_cm_id) -> Box<Self> {
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

pub(crate) unsafe extern "C-unwind" fn get_cm_event(
    channel: *mut rdma_event_channel,
    event: *mut *mut rdma_cm_event,
) -> c_int {
    if event.is_null() {
        return done(Err(invalid("rdma_get_cm_event")));
    }
    // SAFETY: by C's contract.
    done(unsafe { next(channel) }.map(|found| unsafe { *event = Box::into_raw(found).cast() }))
}

/// Returns the next event that concerns the program. A cancellation point.
///
/// # Safety
///
/// C's contract. The caller holds no lock and no value that needs dropping.
pub(crate) unsafe fn next(channel: *mut rdma_event_channel) -> Result<Box<Event>, Error> {
    // SAFETY: by C's contract.
    let of = unsafe { Channel::of(channel) };
    loop {
        // SAFETY: by the contract of `next`. The call is a cancellation point in C's library, too,
        // with or without an event.
        unsafe { cancel::point() };
        let Some(raw) = of.ucma().next_event()? else {
            // SAFETY: by the contract of `next`. The call is a cancellation point in C's library,
            // too, with or without an event.
            let waited = unsafe { of.wait() };
            waited.map_err(|errno| Error::kernel("rdma_get_cm_event", errno))?;
            continue;
        };
        if matches!(raw.event, MULTICAST_JOIN | MULTICAST_ERROR)
            && let Some(event) = multicast::joined(&raw)
        {
            return Ok(event);
        }
        let Some(owner) = deliver(raw.uid) else {
            // Event of an id that was destroyed after the kernel sent it. A connection request
            // without a listener is destroyed.
            if raw.event == CONNECT_REQUEST {
                let _ = of.ucma().destroy_id(raw.id);
            }
            continue;
        };
        let event = Event::new(&raw, owner);
        // SAFETY: the id is not destroyed before the event is acknowledged.
        match unsafe { understood(event, &raw) } {
            Ok(event) => return Ok(event),
            // SAFETY: the id is not destroyed before the event is acknowledged.
            Err(event) => unsafe { acknowledge(&event) },
        }
    }
}

/// Applies the event. `Err`: an event that the program must not see.
///
/// # Safety
///
/// C's contract.
unsafe fn understood(
    mut event: Box<Event>,
    raw: &rdma_ucm_event_resp,
) -> Result<Box<Event>, Box<Event>> {
    let owner = event.owner;
    // SAFETY: by C's contract.
    let (of, has_qp) = unsafe { (Id::of(owner), !(*owner).qp.is_null()) };
    let failed = of.state().failed;
    // SAFETY: by C's contract.
    unsafe {
        match event.c.event {
            ADDR_RESOLVED => event.turn(refresh(owner), ADDR_RESOLVED, ADDR_ERROR),
            ROUTE_RESOLVED => event.turn(refresh(owner), ROUTE_RESOLVED, ROUTE_ERROR),
            CONNECT_REQUEST => match request(owner, raw) {
                Ok(id) => (event.c.id, event.c.listen_id) = (id, owner),
                Err(_) => return Err(event),
            },
            CONNECT_RESPONSE if has_qp => {
                let up = ece::answer(owner, raw.ece.into()).and_then(|()| ready(owner));
                let up = up.and_then(|()| id::ucma(owner).accept(of.number(), of.key(), None));
                of.state().failed = up.is_err();
                if up.is_err() {
                    fail(owner);
                }
                event.turn(up, ESTABLISHED, CONNECT_ERROR);
            }
            CONNECT_RESPONSE => of.state().ece.remote = raw.ece.into(),
            REJECTED if failed => return Err(event),
            REJECTED => fail(owner),
            ESTABLISHED | DISCONNECTED if failed => return Err(event),
            ADDRINFO_RESOLVED => {
                event.turn(resolve::fetch(owner), ADDRINFO_RESOLVED, ADDRINFO_ERROR);
            }
            // Event of a resolved name, whose addresses are known already.
            INTERNAL if event.c.param.arg == u64::from(ADDRINFO_RESOLVED) => {
                // C's library reports the event without an argument.
                (event.c.event, event.c.param.arg) = (ADDRINFO_RESOLVED, 0);
            }
            INTERNAL => return Err(event),
            _ => {}
        }
    }
    if event.c.event == ADDRINFO_ERROR {
        resolve::forget(&mut of.state());
    }
    Ok(event)
}

impl Event {
    /// Sets the event by the result.
    fn turn(&mut self, result: Result<(), Error>, good: u32, bad: u32) {
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

/// Creates the id of a connection request: on the listener's channel, or synchronous if the
/// listener is.
///
/// # Safety
///
/// C's contract.
unsafe fn request(
    listener: *mut rdma_cm_id,
    raw: &rdma_ucm_event_resp,
) -> Result<*mut rdma_cm_id, Error> {
    // SAFETY: by C's contract.
    let (of, c) = unsafe { (Id::of(listener), &*listener) };
    let key = unique_key();
    let id = give((c.channel, false), (key, raw.id), c.context, (c.ps, c.qp_type));
    if c.qp_type != UD {
        let param = raw.conn();
        // SAFETY: the id was just created.
        let mut state = unsafe { Id::of(id) }.state();
        (state.serves, state.asks) = (param.responder_resources, param.initiator_depth);
    }
    // SAFETY: the id was just created.
    unsafe { Id::of(id) }.state().ece.remote = raw.ece.into();
    let waits = of.state().waits;
    // SAFETY: the id was just created.
    let made = unsafe {
        let moved = if waits { migrate(id, null_mut()) } else { Ok(()) };
        moved.and_then(|()| refresh(id))
    };
    if let Err(error) = made {
        // SAFETY: the id was created above and is unknown to the program.
        unsafe { id::destroy_id(id) };
        return Err(error);
    }
    Ok(id)
}

/// # Safety
///
/// C's contract.
unsafe fn acknowledge(event: &Event) {
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
