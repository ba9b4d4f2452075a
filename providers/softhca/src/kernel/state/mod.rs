//! What the kernel side keeps: the device, open files, handles, event files. No command is known
//! here.

pub(crate) mod device;
pub(crate) mod events;
pub(crate) mod file;
pub(crate) mod objects;
pub(crate) mod xrc;
