//! Release: contents, public items and dependencies of the published crates and packages.

pub(crate) mod api;
mod container;
pub(crate) mod deb;
pub(crate) mod dependencies;
pub(crate) mod install;
pub(crate) mod installed;
pub(crate) mod minimal;
pub(crate) mod msrv;
pub(crate) mod package;
