//! Release: what users of the published crates and packages get, and what these depend on.

pub(crate) mod api;
mod container;
pub(crate) mod deb;
pub(crate) mod dependencies;
pub(crate) mod installed;
pub(crate) mod minimal;
pub(crate) mod msrv;
pub(crate) mod package;
