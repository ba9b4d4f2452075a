#![no_main]
#![allow(dead_code, reason = "a test's rig, of which a part is used")]

#[path = "../../providers/softhca/tests/kernel/rig.rs"]
mod rig;
#[path = "../../providers/softhca/tests/kernel/sequences.rs"]
mod sequences;

libfuzzer_sys::fuzz_target!(|data: &[u8]| sequences::ioctls(data));
