//! Address handles.

use uverbs_kernel_abi::ah::ib_uverbs_create_ah;

use super::case;
use super::modify::RESOLVE;
use super::mr::NO_OBJECT;
use crate::case::{Case, World};
use crate::rig::Rig;
use crate::want::{EINVAL, ENODATA, Want};

const CREATE: &str = "core/uverbs_cmd.c:ib_uverbs_create_ah";
const PATH: &str = "core/verbs.c:rdma_fill_sgid_attr, rdma_check_ah_attr";

/// InfiniBand routes by LID, and looks at no GID.
pub(super) const ON_ETHERNET: Want = Want::Link { ethernet: &EINVAL, infiniband: &Want::Ok };

/// Why rxe isn't asked for a GID beyond its table.
pub(super) const LONG_TABLE: &str = "its GID table is longer than an index of 8 bits can say";

pub(super) fn cases() -> Vec<Case> {
    let with = |name, source, want, change: fn(&Rig, &mut ib_uverbs_create_ah)| {
        case("address handles", name, source, want, move |rig: &Rig| {
            let mut request = rig.create_ah_request();
            change(rig, &mut request);
            rig.run(&rig.create_ah(&request))
        })
    };
    vec![
        with("good", CREATE, Want::Ok, |_, _| ()),
        with("reserved", CREATE, Want::Ok, |_, ah| {
            (ah.reserved, ah.attr.reserved, ah.attr.grh.reserved) = (1, 1, 1);
        }),
        with("port 0", CREATE, EINVAL, |_, ah| ah.attr.port_num = 0),
        with("port 2", CREATE, EINVAL, |_, ah| ah.attr.port_num = 2),
        with("no PD", CREATE, NO_OBJECT, |_, ah| ah.pd_handle = 999),
        with("a CQ as PD", CREATE, EINVAL, |rig, ah| ah.pd_handle = rig.cq()),
        with("no PD, and port 2", CREATE, EINVAL, |_, ah| {
            (ah.pd_handle, ah.attr.port_num) = (999, 2);
        }),
        with("no PD, and no GRH", CREATE, NO_OBJECT, |_, ah| {
            (ah.pd_handle, ah.attr.is_global) = (999, 0);
        }),
        with("no GRH", PATH, ON_ETHERNET, |_, ah| ah.attr.is_global = 0),
        with("an empty GID", PATH, ENODATA, |rig, ah| ah.attr.grh.sgid_index = rig.empty_gid()),
        with("no GID", PATH, EINVAL, |rig, ah| ah.attr.grh.sgid_index = rig.no_gid())
            .only(World::Mlx5, LONG_TABLE),
        with("GID of another family", RESOLVE, ON_ETHERNET, |_, ah| ah.attr.grh.dgid = [0; 16]),
        with("GID of another family, link local", RESOLVE, ON_ETHERNET, |_, ah| {
            ah.attr.grh.dgid = [0; 16];
            (ah.attr.grh.dgid[0], ah.attr.grh.dgid[1], ah.attr.grh.dgid[15]) = (0xfe, 0x80, 1);
        }),
        with("a multicast GID", RESOLVE, Want::Ok, |_, ah| ah.attr.grh.dgid = [0xff; 16]),
        with("service level 255", CREATE, Want::Ok, |_, ah| ah.attr.sl = 255),
        with("a rate", CREATE, Want::Ok, |_, ah| ah.attr.static_rate = 2),
        with("flow label over 20 bits", CREATE, Want::Ok, |_, ah| {
            ah.attr.grh.flow_label = u32::MAX;
        }),
    ]
}
