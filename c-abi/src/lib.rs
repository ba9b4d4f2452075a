//! `libibverbs.so.1` for C programs: the functions and tables of `infiniband/verbs.h`, over
//! uverbs' providers. README.md says how it is built and what it lacks.
//!
//! | folder | contents |
//! |---|---|
//! | [`sys`] | C's structs |
//! | `exports` | exported names and versions, function tables of an open device |
//! | `base` | results, locks, objects, environment |
//! | `device`, `memory`, `queues` | a verbs object in each file |
//! | `post`, `poll` | the data path |
//! | `mlx5dv`, `efadv`, `cm`, `rsocket` | `mlx5dv.h`, `efadv.h`, librdmacm, `rsocket.h` |
//!
//! `uverbs-core` implements the verbs. This crate translates arguments, takes locks, and maps
//! numbers to pointers.
//!
//! # Safety
//!
//! Every function is called by C, which keeps the contract of `verbs.h`: a pointer is null only
//! where the header allows it, otherwise valid for its type. An object's pointer comes from this
//! library and is not used after the object's destruction. Memory named by a work request stays
//! registered until the request completes. "C's contract" in a `SAFETY` comment means this.
//! References made of such pointers live for the call.
//!
//! Objects are boxes whose first member is C's struct, so a pointer to the object is a pointer to
//! the struct. Members that programs read while the library writes them are in an `UnsafeCell`.
#![allow(clippy::multiple_unsafe_ops_per_block, reason = "a call's pointers are read together")]
#![allow(clippy::missing_safety_doc, reason = "C's contract, above")]
#![cfg_attr(any(test, fuzzing), allow(dead_code, reason = "nothing is exported there"))]

mod base;
mod cm;
mod device;
mod efadv;
mod exports;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod memory;
mod mlx5dv;
mod poll;
mod post;
mod queues;
mod rsocket;
pub mod sys;
