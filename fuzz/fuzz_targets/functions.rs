#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| uverbs_mlx5_vfio::fuzzing::functions(data));
