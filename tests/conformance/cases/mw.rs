//! Memory windows.

use uverbs_kernel_abi::mlx5::mlx5_ib_alloc_mw;
use uverbs_kernel_abi::mw::{IB_MW_TYPE_1, IB_MW_TYPE_2, ib_uverbs_alloc_mw};
use uverbs_kernel_abi::objects::*;

use super::case;
use super::mr::NO_OBJECT;
use crate::case::{Case, World};
use crate::rig::Rig;
use crate::want::{EBUSY, EINVAL, ENOENT, EOPNOTSUPP, Want};

const ALLOC: &str = "core/uverbs_cmd.c:ib_uverbs_alloc_mw";
const MLX5: &str = "hw/mlx5/mr.c:mlx5_ib_alloc_mw";
const DESTROY: &str = "core/uverbs_std_types.c:uverbs_free_mw";

pub(super) fn cases() -> Vec<Case> {
    let with = |name, want, change: fn(&Rig, &mut ib_uverbs_alloc_mw)| {
        case("windows", name, ALLOC, want, move |rig: &Rig| {
            let mut request = rig.alloc_mw_request();
            change(rig, &mut request);
            rig.run(&rig.alloc_mw(&request))
        })
    };
    let driver = |name, want, change: fn(&mut mlx5_ib_alloc_mw)| {
        case("windows", name, MLX5, want, move |rig: &Rig| {
            let mut own = mlx5_ib_alloc_mw::default();
            change(&mut own);
            let cmd = rig.alloc_mw(&rig.alloc_mw_request());
            rig.run(&cmd.input(&rig.memory, UVERBS_ATTR_UHW_IN, &own))
        })
        .only(World::Mlx5, "the driver's data")
    };
    vec![
        with("type 1", Want::Ok, |_, mw| mw.mw_type = IB_MW_TYPE_1),
        with("type 2", Want::Ok, |_, mw| mw.mw_type = IB_MW_TYPE_2),
        with("type 0", EINVAL, |_, mw| mw.mw_type = 0),
        with("type 3", EINVAL, |_, mw| mw.mw_type = 3),
        with("reserved", Want::Ok, |_, mw| mw.reserved = [1; 3]),
        with("no PD", NO_OBJECT, |_, mw| mw.pd_handle = 999),
        with("a CQ as PD", EINVAL, |rig, mw| mw.pd_handle = rig.cq()),
        with("no PD, and type 3", NO_OBJECT, |_, mw| (mw.pd_handle, mw.mw_type) = (999, 3)),
        driver("parts", Want::Ok, |own| own.num_klms = 8),
        driver("unknown driver's data", EOPNOTSUPP, |own| own.comp_mask = 1),
        driver("reserved driver's byte", EOPNOTSUPP, |own| own.reserved1 = 1),
        driver("reserved driver's word", EOPNOTSUPP, |own| own.reserved2 = 1),
        case("windows", "its key", ALLOC, Want::Is("key true"), |rig| {
            let [one, two] = [rig.new_mw()?, rig.new_mw()?];
            Ok(format!("key {}", one.rkey >> 8 != two.rkey >> 8))
        }),
        case("windows", "destroyed", DESTROY, Want::Ok, |rig| {
            let mw = rig.new_mw()?;
            rig.run(&rig.destroy(UVERBS_OBJECT_MW, mw.mw_handle))
        }),
        case("windows", "destroyed twice", DESTROY, ENOENT, |rig| {
            let mw = rig.new_mw()?;
            rig.send(&rig.destroy(UVERBS_OBJECT_MW, mw.mw_handle))?;
            rig.run(&rig.destroy(UVERBS_OBJECT_MW, mw.mw_handle))
        }),
        case("windows", "a region as window", DESTROY, EINVAL, |rig| {
            rig.run(&rig.destroy(UVERBS_OBJECT_MW, rig.mr()))
        }),
        case("windows", "its PD while it is there", DESTROY, EBUSY, |rig| {
            let pd = rig.new_pd()?;
            let request = ib_uverbs_alloc_mw { pd_handle: pd, ..rig.alloc_mw_request() };
            rig.send(&rig.alloc_mw(&request))?;
            rig.run(&rig.destroy(UVERBS_OBJECT_PD, pd))
        }),
    ]
}
