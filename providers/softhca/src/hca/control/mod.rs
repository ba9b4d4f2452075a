//! What a front asks for: the objects of the device, one noun each.

mod cq;
mod dct;
mod mcast;
mod mkey;
mod qp;
mod srq;
