//! Enhanced connection establishment: the encoding of options in mlx5_ib (`mlx5-abi.h`; rdma-core
//! `verbs.c:mlx5_set_ece`).

use std::mem::size_of;

use uverbs_core::attr::EceDriver;
use uverbs_kernel_abi::mlx5::{mlx5_ib_modify_qp, mlx5_ib_modify_qp_resp};
use zerocopy::{FromBytes, IntoBytes};

use crate::Context;

/// Version 1 without options, which makes the device report its options (rdma-core
/// `verbs.c:create_qp`).
const TRIGGER: u32 = 1 << 28;

/// ECE driver of the vendor, by its PCI vendor id.
pub(crate) static DRIVER: EceDriver = EceDriver {
    vendor: 0x15b3,
    request: |options| {
        let request = mlx5_ib_modify_qp { ece_options: options, ..Default::default() };
        request.as_bytes().to_vec()
    },
    answer: size_of::<mlx5_ib_modify_qp_resp>(),
    granted: |bytes| {
        mlx5_ib_modify_qp_resp::read_from_bytes(bytes).map_or(0, |answer| answer.ece_options)
    },
};

/// ECE options in the request for a queue pair.
pub(crate) fn trigger(context: &Context) -> u32 {
    if context.ece { TRIGGER } else { 0 }
}
