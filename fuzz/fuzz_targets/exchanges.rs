#![no_main]
#![allow(dead_code, unused_imports, reason = "the tools' modules, of which a part is used")]

#[path = "../../tools/src/doorbell.rs"]
mod doorbell;
#[path = "../../tools/src/error.rs"]
mod error;
#[path = "../../tools/src/fuzzing.rs"]
mod fuzzing;
#[path = "../../tools/src/receives.rs"]
mod receives;
#[path = "../../tools/src/tcp.rs"]
mod tcp;
#[path = "../../tools/src/transport.rs"]
mod transport;
#[path = "../../tools/src/verify.rs"]
mod verify;

#[path = "../../tools/src/files"]
mod files {
    pub(crate) mod fuzz;
    mod message;
}

#[path = "../../tools/src/pingpong"]
mod pingpong {
    pub(crate) mod remote {
        mod address;
        mod exchange;
        pub(crate) mod fuzz;
    }
}

#[path = "../../tools/src/perf"]
mod perf {
    pub(crate) mod exchange;
    mod shape;

    /// Of the file of that name, which needs all of the tool.
    mod side {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) struct Hand {
            pub(super) endpoint: crate::transport::Reach,
            pub(super) memory: uverbs::Remote,
        }
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::exchanges(data));
