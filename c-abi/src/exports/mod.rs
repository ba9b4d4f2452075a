//! Names and versions under which functions are exported.

#[cfg(not(any(test, fuzzing)))]
pub(crate) mod cm;
pub(crate) mod context_ops;
#[cfg(not(any(test, fuzzing)))]
pub(crate) mod efa;
#[cfg(not(any(test, fuzzing)))]
pub(crate) mod mlx5;
pub(crate) mod stubs;
#[cfg(not(any(test, fuzzing)))]
pub(crate) mod verbs;
