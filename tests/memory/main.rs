//! Memory: registered, exposed, remapped and owned by frames.

mod device_memory;
mod dm_operations;
mod dmabuf;
mod frames;
mod huge_pages;
mod indirect_keys;
mod null_region;
mod ownership;
mod paging;
mod registration;
mod windows;
