//! Tests of queues over heap memory or behind a fake door: the bytes that they write and read.
//!
//! Tests over heap memory make no system calls, so Miri can run them.

#[cfg(test)]
mod asked;
#[cfg(test)]
mod build;
#[cfg(test)]
mod compressed;
#[cfg(test)]
mod copy;
#[cfg(test)]
mod cq;
#[cfg(test)]
mod create;
#[cfg(test)]
mod datagram;
#[cfg(test)]
mod dc;
#[cfg(test)]
mod dm;
pub(crate) mod door;
pub(crate) mod fixture;
#[cfg(test)]
mod indirect;
#[cfg(test)]
mod lone;
#[cfg(test)]
mod packet;
#[cfg(test)]
mod rekey;
#[cfg(test)]
mod rows;
#[cfg(test)]
mod rq;
#[cfg(test)]
mod scattered;
#[cfg(test)]
mod sq;
#[cfg(test)]
mod srq;
#[cfg(test)]
mod strays;
#[cfg(test)]
mod usual;
#[cfg(test)]
mod wqe;
