//! Control verbs, called by a front. Each file is for one kind of object.

mod cq;
mod dct;
mod mcast;
mod mkey;
mod qp;
mod srq;
