//! What the kernel side keeps: the device, open files, handles, event files. No command is known
//! here.

pub(crate) mod device;
pub(crate) mod events;
pub(crate) mod file;
pub(crate) mod flows;
pub(crate) mod objects;
pub(crate) mod raw_queues;
pub(crate) mod xrc;
