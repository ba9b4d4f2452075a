//! Shared by all functions for C: results, locks, objects, names, the environment.

pub(crate) mod answer;
pub(crate) mod barrier;
pub(crate) mod cancel;
pub(crate) mod convert;
pub(crate) mod environment;
pub(crate) mod file;
pub(crate) mod fork;
pub(crate) mod live;
pub(crate) mod lock;
pub(crate) mod names;
pub(crate) mod object;
pub(crate) mod thread;
