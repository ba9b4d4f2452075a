//! Forks of a listening server: librdmacm hands its listeners on to whichever process accepts next.
//!
//! # Safety
//!
//! The handler is a function that stays loaded: the library is never unloaded.
#![allow(unsafe_code, reason = "registers a function with the C library")]

use std::sync::Once;

use crate::rdma::{self, inside};

/// Prepares for forks.
pub(crate) fn expect() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler takes no arguments. Without memory for it, children inherit nothing.
        unsafe { libc::pthread_atfork(Some(before), None, None) };
    });
}

/// Runs in the thread that forks, before it does. Rdma-core's library lacks the function.
unsafe extern "C" fn before() {
    // SAFETY: the function takes no arguments.
    inside(|| unsafe { rdma::uverbs_before_fork() });
}
