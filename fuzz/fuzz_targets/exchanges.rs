#![no_main]
#![allow(dead_code, unused_imports, reason = "the tools' modules, of which a part is used")]

#[path = "../../tools/src/fuzzing.rs"]
mod fuzzing;

#[path = "../../tools/src/base"]
mod base {
    pub(crate) mod error;
    pub(crate) mod peer_text;
}

#[path = "../../tools/src/link"]
mod link {
    pub(crate) mod doorbell;
    pub(crate) mod receives;
    pub(crate) mod tcp;
    pub(crate) mod transport;
    pub(crate) mod verify;
}

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
            pub(super) endpoint: crate::link::transport::Reach,
            pub(super) memory: uverbs::Remote,
        }
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzzing::exchanges(data));
