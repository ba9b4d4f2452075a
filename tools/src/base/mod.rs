//! Shared by all commands: output, errors, units, the device that a command works on.

pub(crate) mod device_facts;
pub(crate) mod error;
pub(crate) mod foreign;
pub(crate) mod histogram;
pub(crate) mod interrupt;
pub(crate) mod keeper;
pub(crate) mod output;
pub(crate) mod peer_text;
pub(crate) mod progress;
pub(crate) mod select;
pub(crate) mod setup;
pub(crate) mod sleep;
pub(crate) mod sysfs;
pub(crate) mod table;
pub(crate) mod units;
