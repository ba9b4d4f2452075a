//! Objects in use, destroyed ones, and the numbers of handles.

use uverbs_kernel_abi::mr::ib_uverbs_reg_mr;
use uverbs_kernel_abi::objects::*;

use super::case;
use crate::case::{Case, World};
use crate::rig::Rig;
use crate::want::{EBUSY, EFAULT, EINVAL, ENOENT, Outcome, Want};

const DESTROY: &str = "core/rdma_core.c:uobj_destroy, uverbs_destroy_uobject";
const USED: &str = "core/uverbs_std_types.c:uverbs_free_pd and its kin";

/// mlx5_ib wrote its answer to address 0, until "RDMA: Convert drivers using sizeof() to
/// ib_respond_udata()" (after 6.19, before 7.2) has it go without room.
pub(super) const MLX5_ROOM: Want = Want::Since((7, 0), &EFAULT, &Want::Ok);
const NO_ROOM: Want = Want::Driver { mlx5: &MLX5_ROOM, rxe: &Want::Ok };
/// On RoCE mlx5_ib answers with the destination's MAC, and requires an output buffer for it.
const ROOM_ON_ETHERNET: Want = Want::Link { ethernet: &EINVAL, infiniband: &Want::Ok };

pub(super) fn cases() -> Vec<Case> {
    let with =
        |name, source, want, run: fn(&Rig) -> Outcome| case("handles", name, source, want, run);
    vec![
        with("PD with a region", USED, EBUSY, |rig| {
            rig.mr();
            rig.run(&rig.destroy(UVERBS_OBJECT_PD, rig.pd()))
        }),
        with("PD with an address handle", USED, EBUSY, |rig| {
            rig.ah();
            rig.run(&rig.destroy(UVERBS_OBJECT_PD, rig.pd()))
        }),
        with("PD with a QP", USED, EBUSY, |rig| {
            rig.qp();
            rig.run(&rig.destroy(UVERBS_OBJECT_PD, rig.pd()))
        }),
        with("CQ with a QP", USED, EBUSY, |rig| {
            rig.qp();
            rig.run(&rig.destroy(UVERBS_OBJECT_CQ, rig.cq()))
        }),
        with("in use, then not", USED, Want::Is("EBUSY EBUSY ok"), |rig| {
            rig.mr();
            let destroy = rig.destroy(UVERBS_OBJECT_PD, rig.pd());
            let first = [rig.run(&destroy), rig.run(&destroy)].map(|result| result.unwrap_err());
            rig.send(&rig.destroy(UVERBS_OBJECT_MR, rig.mr()))?;
            rig.send(&destroy)?;
            Ok(format!("{:?} {:?} ok", first[0], first[1]))
        }),
        with("a refused object frees its PD", USED, Want::Ok, |rig| {
            let hole = rig.memory.hole();
            let request = ib_uverbs_reg_mr { start: hole, hca_va: hole, ..rig.reg_mr_request() };
            rig.run(&rig.reg_mr(&request)).unwrap_err();
            rig.run(&rig.destroy(UVERBS_OBJECT_PD, rig.pd()))
        }),
        with("an object whose answer can't be written", USED, Want::Is("EFAULT ok"), |rig| {
            let cmd = rig.reg_mr(&rig.reg_mr_request());
            let hole = rig.memory.hole();
            let refused = rig.run(&cmd.edit(UVERBS_ATTR_CORE_OUT, |attr| attr.data = hole));
            rig.send(&rig.destroy(UVERBS_OBJECT_PD, rig.pd()))?;
            Ok(format!("{:?} ok", refused.unwrap_err()))
        }),
        with(
            "a PD without room for the driver",
            "hw/mlx5/main.c:mlx5_ib_alloc_pd; include/rdma/ib_verbs.h:ib_copy_to_udata",
            NO_ROOM,
            |rig| rig.run(&rig.alloc_pd().without(UVERBS_ATTR_UHW_OUT)),
        ),
        with(
            "a CQ without room for the driver",
            "hw/mlx5/cq.c:mlx5_ib_create_cq; sw/rxe/rxe_verbs.c:rxe_create_cq",
            Want::Driver { mlx5: &MLX5_ROOM, rxe: &EINVAL },
            |rig| rig.run(&rig.create_cq(15).without(UVERBS_ATTR_UHW_OUT)),
        ),
        with(
            "a QP without room for the driver",
            "hw/mlx5/qp.c:mlx5_ib_create_qp; sw/rxe/rxe_verbs.c:rxe_create_qp",
            Want::Driver { mlx5: &Want::Ok, rxe: &EINVAL },
            |rig| rig.run(&rig.create_qp().without(UVERBS_ATTR_UHW_OUT)),
        ),
        with(
            "an address handle without room for the driver",
            "hw/mlx5/ah.c:mlx5_ib_create_ah; sw/rxe/rxe_verbs.c:rxe_create_ah",
            Want::Driver { mlx5: &ROOM_ON_ETHERNET, rxe: &Want::Ok },
            |rig| {
                let cmd = rig.create_ah(&rig.create_ah_request());
                rig.run(&cmd.without(UVERBS_ATTR_UHW_OUT))
            },
        ),
        twice("a PD twice", |rig| rig.destroy(UVERBS_OBJECT_PD, rig.pd())),
        twice("a region twice", |rig| rig.destroy(UVERBS_OBJECT_MR, rig.mr())),
        twice("a CQ twice", |rig| rig.destroy(UVERBS_OBJECT_CQ, rig.cq())),
        twice("a QP twice", |rig| rig.destroy(UVERBS_OBJECT_QP, rig.qp())),
        twice("an address handle twice", |rig| rig.destroy(UVERBS_OBJECT_AH, rig.ah())),
        with("numbers from 0, lowest first", DESTROY, Want::Is("0 1 2 3, then 1 2 4"), |rig| {
            let first = (0..4).map(|_| rig.new_pd()).collect::<Result<Vec<_>, _>>()?;
            for pd in [2u32, 1] {
                rig.send(&rig.destroy(UVERBS_OBJECT_PD, pd))?;
            }
            let then = (0..3).map(|_| rig.new_pd()).collect::<Result<Vec<_>, _>>()?;
            let words =
                |numbers: &[u32]| numbers.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
            Ok(format!("{}, then {}", words(&first), words(&then)))
        }),
        with("descriptors take no number", DESTROY, Want::Is("0"), |rig| {
            rig.channel();
            rig.events();
            Ok(rig.new_pd()?.to_string())
        }),
        with("another file has numbers of its own", DESTROY, Want::Is("0"), |rig| {
            rig.new_pd()?;
            let other = Rig::new(&rig.target)?;
            Ok(other.new_pd()?.to_string())
        }),
        with("a handle of another file", DESTROY, ENOENT, |rig| {
            let other = Rig::new(&rig.target)?;
            other.new_pd()?;
            rig.run(&rig.destroy(UVERBS_OBJECT_PD, other.new_pd()?))
        }),
        with("a PD as region", DESTROY, EINVAL, |rig| {
            rig.run(&rig.destroy(UVERBS_OBJECT_MR, rig.pd()))
        }),
        with("a QP as CQ", DESTROY, EINVAL, |rig| {
            rig.run(&rig.destroy(UVERBS_OBJECT_CQ, rig.qp()))
        }),
        with("of another type, and in use", DESTROY, EINVAL, |rig| {
            rig.qp();
            rig.run(&rig.destroy(UVERBS_OBJECT_MR, rig.pd()))
        }),
        with("close with everything in use, and open again", DESTROY, Want::Is("0"), |rig| {
            let other = Rig::new(&rig.target)?;
            other.furnish();
            other.bring_to(uverbs_kernel_abi::qp::IB_QPS_RTS)?;
            drop(other);
            let again = Rig::new(&rig.target)?;
            Ok(again.new_pd()?.to_string())
        }),
        with("a UAR page in use", DESTROY, Want::Ok, |rig| {
            rig.qp();
            rig.run(&rig.destroy(uverbs_kernel_abi::mlx5::MLX5_IB_OBJECT_UAR, rig.uar().handle))
        })
        .only(World::Mlx5, "an object of mlx5's own"),
    ]
}

fn twice(name: &'static str, make: fn(&Rig) -> crate::cmd::Cmd) -> Case {
    case("handles", name, DESTROY, ENOENT, move |rig: &Rig| {
        let cmd = make(rig);
        rig.send(&cmd)?;
        rig.run(&cmd)
    })
}
