//! System calls of a traced program: counted by phase, named, and in tables.

pub mod files;
pub mod names;
pub mod table;
pub mod trace;
