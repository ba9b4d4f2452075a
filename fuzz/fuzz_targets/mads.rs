#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| uverbs_front::fuzzing::mads(data));
