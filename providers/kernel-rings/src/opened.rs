//! Answers of the kernel when a device is opened.

use std::fmt::Debug;

use uverbs_core::attr::DeviceAttr;
use uverbs_core::commands::Uverbs;
use uverbs_core::error::Error;
use zerocopy::{FromBytes, IntoBytes};

use crate::elements::ElementLimits;

/// Driver part of a command's answer.
pub trait Answer: Debug + Default + FromBytes + IntoBytes {}

impl<T: Debug + Default + FromBytes + IntoBytes> Answer for T {}

/// Limits of a device.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Work requests of a send queue.
    pub send_wr: u32,
    /// Work requests of a queue pair's receive queue.
    pub recv_wr: u32,
    /// SGEs of a send.
    pub send_sge: u32,
    /// SGEs of a receive.
    pub recv_sge: u32,
    /// Bytes of inline data.
    pub inline: u32,
    /// Receives of a shared queue.
    pub srq_wr: u32,
    /// SGEs of a shared queue's receive.
    pub srq_sge: u32,
    /// Entries of a completion queue.
    pub cqe: u32,
    /// Completion vectors.
    pub vectors: u32,
}

/// Answers of the kernel to GET_CONTEXT and QUERY_DEVICE.
#[derive(Debug)]
pub struct Opened<S> {
    /// Limits.
    pub limits: Limits,
    /// Capabilities.
    pub device: DeviceAttr,
    /// Everything else that a driver keeps.
    pub state: S,
}

/// Opens a device whose driver has no part in the requests, and an answer `A` to GET_CONTEXT that
/// says nothing. Its elements have room for `most`.
///
/// # Errors
///
/// The kernel's refusal.
pub fn open<A: Answer>(uverbs: &Uverbs, most: ElementLimits) -> Result<Opened<()>, Error> {
    let info = uverbs.get_context(&[], A::default().as_mut_bytes())?;
    let device = uverbs.query_device_ex(&mut [])?;
    let sge = device.max_sge.min(most.max_sge);
    let limits = Limits {
        send_wr: device.max_qp_wr,
        recv_wr: device.max_qp_wr,
        send_sge: sge,
        recv_sge: sge,
        inline: most.max_inline,
        srq_wr: device.max_srq_wr,
        srq_sge: device.max_srq_sge.min(most.max_sge),
        cqe: device.max_cqe,
        vectors: info.num_comp_vectors,
    };
    Ok(Opened { limits, device, state: () })
}
