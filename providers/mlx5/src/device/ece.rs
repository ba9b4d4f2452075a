//! Enhanced connection establishment: how mlx5_ib takes options and gives them (`mlx5-abi.h`;
//! rdma-core `verbs.c:mlx5_set_ece`).

use std::mem::size_of;

use uverbs_core::attr::EceDriver;
use uverbs_kernel_abi::mlx5::{mlx5_ib_modify_qp, mlx5_ib_modify_qp_resp};
use zerocopy::{FromBytes, IntoBytes};

use crate::Context;

/// Version 1, no options: what has the device say what it knows (rdma-core `verbs.c:create_qp`).
const TRIGGER: u32 = 1 << 28;

/// Options are the vendor's, by its PCI number.
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

/// What a queue pair is made with.
pub(crate) fn trigger(context: &Context) -> u32 {
    if context.ece { TRIGGER } else { 0 }
}
