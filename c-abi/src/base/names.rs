//! Names of numbers, for messages. They are C's, which programs and tests know.
#![allow(unsafe_code, reason = "functions of C")]

use std::ffi::{CStr, c_char, c_int};

/// `IBV_NODE_*`, from 1.
const NODES: [&CStr; 7] = [
    c"InfiniBand channel adapter",
    c"InfiniBand switch",
    c"InfiniBand router",
    c"iWARP NIC",
    c"usNIC",
    c"usNIC UDP",
    c"unspecified",
];

/// `IBV_PORT_*`.
const PORTS: [&CStr; 6] =
    [c"no state change (NOP)", c"down", c"init", c"armed", c"active", c"active defer"];

/// `IBV_EVENT_*`.
const EVENTS: [&CStr; 21] = [
    c"CQ error",
    c"local work queue catastrophic error",
    c"invalid request local work queue error",
    c"local access violation work queue error",
    c"communication established",
    c"send queue drained",
    c"path migrated",
    c"path migration request error",
    c"local catastrophic error",
    c"port active",
    c"port error",
    c"LID change",
    c"P_Key change",
    c"SM change",
    c"SRQ catastrophic error",
    c"SRQ limit reached",
    c"last WQE reached",
    c"client reregistration",
    c"GID table change",
    c"WQ fatal",
    c"Device link speed change",
];

/// `IBV_WC_*` of statuses.
const STATUSES: [&CStr; 24] = [
    c"success",
    c"local length error",
    c"local QP operation error",
    c"local EE context operation error",
    c"local protection error",
    c"Work Request Flushed Error",
    c"memory management operation error",
    c"bad response error",
    c"local access error",
    c"remote invalid request error",
    c"remote access error",
    c"remote operation error",
    c"transport retry counter exceeded",
    c"RNR retry counter exceeded",
    c"local RDD violation error",
    c"remote invalid RD request",
    c"aborted error",
    c"invalid EE context number",
    c"invalid EE context state",
    c"fatal error",
    c"response timeout error",
    c"general error",
    c"TM error",
    c"TM software rendezvous",
];

fn name(of: &[&'static CStr], number: c_int) -> *const c_char {
    let known = usize::try_from(number).ok().and_then(|at| of.get(at));
    known.copied().unwrap_or(c"unknown").as_ptr()
}

pub(crate) unsafe extern "C" fn node_type(number: c_int) -> *const c_char {
    name(&NODES, number.wrapping_sub(1))
}

pub(crate) unsafe extern "C" fn port_state(number: c_int) -> *const c_char {
    name(&PORTS, number)
}

pub(crate) unsafe extern "C" fn event_type(number: c_int) -> *const c_char {
    name(&EVENTS, number)
}

pub(crate) unsafe extern "C" fn wc_status(number: c_int) -> *const c_char {
    name(&STATUSES, number)
}
