//! Multicast groups.

use uverbs_kernel_abi::mcast::ib_uverbs_attach_mcast;
use uverbs_kernel_abi::objects::{UVERBS_ATTR_CORE_IN, UVERBS_OBJECT_QP};
use uverbs_kernel_abi::qp::{
    IB_QP_PKEY_INDEX, IB_QP_PORT, IB_QP_QKEY, IB_QP_STATE, IB_QPS_INIT, ib_uverbs_modify_qp,
};

use super::case;
use super::mr::NO_OBJECT;
use crate::case::Case;
use crate::rig::Rig;
use crate::want::{EBUSY, EINVAL, Want};

const ATTACH: &str = "core/uverbs_cmd.c:ib_uverbs_attach_mcast; core/verbs.c:ib_attach_mcast";
const DETACH: &str = "core/uverbs_cmd.c:ib_uverbs_detach_mcast; core/verbs.c:ib_detach_mcast";
const LID: &str = "core/verbs.c:is_valid_mcast_lid";
const FREE: &str = "core/uverbs_std_types_qp.c:uverbs_free_qp";

/// RoCE has no LIDs; rxe's port is Ethernet, too.
const ON_INFINIBAND: Want = Want::Link { ethernet: &Want::Ok, infiniband: &EINVAL };

pub(super) fn cases() -> Vec<Case> {
    let attach = |name, source, want, change: fn(&Rig, &mut ib_uverbs_attach_mcast)| {
        case("multicast", name, source, want, move |rig: &Rig| {
            let mut request = rig.group();
            change(rig, &mut request);
            rig.run(&rig.attach(&request))
        })
    };
    let detach = |name, source, want, change: fn(&Rig, &mut ib_uverbs_attach_mcast)| {
        case("multicast", name, source, want, move |rig: &Rig| {
            rig.send(&rig.attach(&rig.group()))?;
            let mut request = rig.group();
            change(rig, &mut request);
            rig.run(&rig.detach(&request))
        })
    };
    let mapped = |first: u8| [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, first, 1, 2, 3];
    let of = |name, gid: [u8; 16], want| {
        case("multicast", name, ATTACH, want, move |rig: &Rig| {
            rig.run(&rig.attach(&ib_uverbs_attach_mcast { gid, ..rig.group() }))
        })
    };
    let mut unicast = [0; 16];
    (unicast[0], unicast[1], unicast[15]) = (0xfe, 0x80, 1);
    vec![
        attach("attach", ATTACH, Want::Ok, |_, _| ()),
        attach("attach, reserved", ATTACH, Want::Ok, |_, mcast| mcast.reserved = 1),
        attach("attach no QP", ATTACH, NO_OBJECT, |_, mcast| mcast.qp_handle = 999),
        attach("attach a PD", ATTACH, EINVAL, |rig, mcast| mcast.qp_handle = rig.pd()),
        attach("attach an RC QP", ATTACH, EINVAL, |rig, mcast| mcast.qp_handle = rig.qp()),
        attach("a LID of no group", LID, ON_INFINIBAND, |_, mcast| mcast.mlid = 0xbfff),
        attach("LID 0", LID, ON_INFINIBAND, |_, mcast| mcast.mlid = 0),
        attach("the permissive LID", LID, ON_INFINIBAND, |_, mcast| mcast.mlid = 0xffff),
        of("GID 0", [0; 16], EINVAL),
        of("a unicast GID", unicast, EINVAL),
        of("GID of an IPv4 group", mapped(239), Want::Ok),
        of("GID of the first IPv4 group", mapped(224), Want::Ok),
        of("GID of an IPv4 address", mapped(223), EINVAL),
        of("GID over the IPv4 groups", mapped(240), EINVAL),
        case("multicast", "attach in INIT", LID, Want::Ok, |rig| {
            rig.send(&rig.modify(&init(rig)))?;
            rig.run(&rig.attach(&rig.group()))
        }),
        case("multicast", "attach in INIT, with LID 0", LID, ON_INFINIBAND, |rig| {
            rig.send(&rig.modify(&init(rig)))?;
            rig.run(&rig.attach(&ib_uverbs_attach_mcast { mlid: 0, ..rig.group() }))
        }),
        case("multicast", "attach twice, detach twice", DETACH, Want::Is("EINVAL"), |rig| {
            let (attach, detach) = (rig.attach(&rig.group()), rig.detach(&rig.group()));
            for cmd in [&attach, &attach, &detach] {
                rig.send(cmd)?;
            }
            Ok(format!("{:?}", rig.run(&detach).unwrap_err()))
        }),
        detach("detach", DETACH, Want::Ok, |_, _| ()),
        detach("detach from another group", DETACH, EINVAL, |_, mcast| mcast.gid[15] ^= 1),
        detach("detach by another LID", DETACH, EINVAL, |_, mcast| mcast.mlid ^= 1),
        detach("detach no QP", DETACH, NO_OBJECT, |_, mcast| mcast.qp_handle = 999),
        detach("detach an RC QP", DETACH, EINVAL, |rig, mcast| mcast.qp_handle = rig.qp()),
        case("multicast", "destroy a member", FREE, EBUSY, |rig| {
            rig.send(&rig.attach(&rig.group()))?;
            rig.run(&rig.destroy(UVERBS_OBJECT_QP, rig.datagram_qp()))
        }),
        case("multicast", "destroy a former member", FREE, Want::Ok, |rig| {
            rig.send(&rig.attach(&rig.group()))?;
            rig.send(&rig.detach(&rig.group()))?;
            rig.run(&rig.destroy(UVERBS_OBJECT_QP, rig.datagram_qp()))
        }),
        case("multicast", "close the file of a member", FREE, Want::Ok, |rig| {
            let other = Rig::new(&rig.target)?;
            other.send(&other.attach(&other.group()))?;
            drop(other);
            rig.run(&rig.attach(&rig.group()))
        }),
        case("multicast", "a short request", ATTACH, crate::want::ENOSPC, |rig| {
            let cmd = rig.attach(&rig.group());
            rig.run(&cmd.edit(UVERBS_ATTR_CORE_IN, |attr| attr.len = 20))
        }),
    ]
}

/// RESET to INIT of the datagram queue pair.
fn init(rig: &Rig) -> ib_uverbs_modify_qp {
    ib_uverbs_modify_qp {
        qp_handle: rig.datagram_qp(),
        attr_mask: IB_QP_STATE | IB_QP_PKEY_INDEX | IB_QP_PORT | IB_QP_QKEY,
        qp_state: IB_QPS_INIT,
        port_num: 1,
        qkey: 0x1111,
        ..Default::default()
    }
}
