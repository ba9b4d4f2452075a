//! State of the kernel side: the device, open files, handles, event files. The modules here know no
//! commands.

pub(crate) mod device;
pub(crate) mod device_memory;
pub(crate) mod events;
pub(crate) mod file;
pub(crate) mod flows;
pub(crate) mod objects;
pub(crate) mod raw_queues;
pub(crate) mod xrc;
