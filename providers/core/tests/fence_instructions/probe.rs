//! Each fence between two accesses that the compiler would join without it. Compiled by the test
//! beside it, never run.
#![no_std]
#![allow(missing_docs, reason = "functions for a disassembler")]

extern crate core as std;

#[path = "../../src/order"]
mod order {
    pub mod doorbell_memory;
    pub mod fence;
}

use order::doorbell_memory::DoorbellMemory::{NonCached, WriteCombining};
use order::fence;

macro_rules! between_stores {
    ($($number:literal $name:ident: $fence:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(at: *mut u64) {
            // Not twice the same: functions that are alike become one.
            unsafe { at.write($number) };
            $fence;
            unsafe { at.write(2) };
        }
    )*};
}

between_stores! {
    11 wqe_before_record: fence::wqe_before_record();
    12 record_before_doorbell_nc: fence::record_before_doorbell(NonCached);
    13 record_before_doorbell_wc: fence::record_before_doorbell(WriteCombining);
    14 doorbell_flush_wc: fence::doorbell_flush(WriteCombining);
    15 copy_flush: fence::copy_flush();
}

// No barrier to the compiler: behind a volatile store, as in the provider.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_flush_nc(at: *mut u64) {
    unsafe { at.write_volatile(1) };
    fence::doorbell_flush(NonCached);
    unsafe { at.write_volatile(2) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cqe_owner_before_body(at: *const u64) -> u64 {
    let owner = unsafe { at.read() };
    fence::cqe_owner_before_body();
    owner ^ unsafe { at.read() }
}
