//! `libibverbs.so.1` for C programs: the functions and tables of `infiniband/verbs.h`, over
//! uverbs' providers. README.md says how it is built and what it lacks.
//!
//! | file | what |
//! |---|---|
//! | [`sys`] | C's structs |
//! | `exports` | exported names and versions |
//! | `table` | functions in an open device's tables |
//! | all others | a verbs object each |
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

mod ah;
mod answer;
mod barrier;
mod buf;
mod cancel;
mod channel;
mod cm;
mod completion;
mod context;
mod convert;
mod copies;
mod counters;
mod cq;
mod cq_ex;
mod device;
mod devx;
mod devx_events;
mod dm;
mod dr;
mod dr_action;
mod dr_dump;
mod ece;
mod environment;
mod event;
#[cfg(not(any(test, fuzzing)))]
mod exports;
#[cfg(not(any(test, fuzzing)))]
mod exports_cm;
#[cfg(not(any(test, fuzzing)))]
mod exports_mlx5;
mod extended;
mod file;
mod flow;
mod fork;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
mod gid;
mod import;
mod left;
mod links;
mod lock;
mod make_cq;
mod make_qp;
mod matcher;
mod mkey;
mod mlx5dv;
mod mlx5dv_caps;
mod mlx5dv_make;
mod modify;
mod mr;
mod mr_ex;
mod mw;
mod names;
mod object;
mod open;
mod parent_domain;
mod pd;
mod poll;
mod port;
mod post;
mod posts;
mod qp;
mod query_device;
mod rate;
mod recv;
mod request;
mod rsocket;
mod rss;
mod send;
mod sent_kinds;
mod shown;
mod srq;
mod stubs;
pub mod sys;
mod sysfs;
mod table;
mod tags;
mod thread;
mod waiting;
mod wq;
mod wr;
mod xrc_target;
mod xrcd;
