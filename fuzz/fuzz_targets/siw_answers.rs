#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| uverbs_siw::fuzzing::siw_answers(data));
