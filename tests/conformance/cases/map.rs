//! Mappings of the device file.

use uverbs_kernel_abi::objects::UVERBS_ATTR_UHW_OUT;
use uverbs_kernel_abi::rxe::mminfo;

use super::{bare, case};
use crate::case::{Case, World};
use crate::cmd::known;
use crate::rig::Rig;
use crate::want::{Driver, EINVAL, Outcome, Want};

const MMAP: &str =
    "core/ib_core_uverbs.c:rdma_user_mmap_entry_get_pgoff; sw/rxe/rxe_mmap.c:rxe_mmap";

/// Something that can be mapped: offset and length.
fn area(rig: &Rig) -> (u64, usize) {
    match rig.driver() {
        Driver::Mlx5 => (rig.uar().offset, 4096),
        Driver::Rxe => {
            let cmd = rig.create_cq(15);
            rig.send(&cmd).expect("a CQ");
            let info: mminfo = rig.answer(&cmd, UVERBS_ATTR_UHW_OUT);
            (info.offset, info.size as usize)
        }
    }
}

fn map(rig: &Rig, len: usize, offset: u64) -> Outcome {
    rig.door().mmap(len, offset).map_err(known).map(|map| (map.len() == len).to_string())
}

pub(super) fn cases() -> Vec<Case> {
    let with = |name, want, change: fn(u64, usize) -> (u64, usize)| {
        case("mappings", name, MMAP, want, move |rig: &Rig| {
            let (offset, len) = area(rig);
            let (offset, len) = change(offset, len);
            map(rig, len, offset)
        })
    };
    vec![
        with("good", Want::Is("true"), |offset, len| (offset, len)),
        with("two pages more", EINVAL, |offset, len| (offset, len + 8192)),
        with("another offset", EINVAL, |offset, len| (offset + (1 << 30), len)),
        with("offset 0x7fff0000", EINVAL, |_, _| (0x7fff_0000, 4096)),
        with("offset at the end", EINVAL, |_, _| (0x7fff_ffff_f000, 4096)),
        case("mappings", "of another file", MMAP, EINVAL, |rig| {
            let other = Rig::new(&rig.target)?;
            // Offsets count from 0 in each file: this one's isn't there in the file that is asked.
            if other.is_mlx5() {
                other.send(&other.alloc_uar())?;
            }
            let (offset, len) = area(&other);
            map(rig, len, offset)
        }),
        case(
            "mappings",
            "twice",
            MMAP,
            Want::Driver { mlx5: &Want::Is("true"), rxe: &EINVAL },
            |rig| {
                let (offset, len) = area(rig);
                let _first = rig.door().mmap(len, offset).map_err(known)?;
                map(rig, len, offset)
            },
        ),
        case("mappings", "outlives the file", MMAP, Want::Ok, |rig| {
            let other = Rig::new(&rig.target)?;
            let (offset, len) = area(&other);
            let map = other.door().mmap(len, offset).map_err(known)?;
            drop(other);
            Ok((map.len() == len).to_string())
        }),
        case("mappings", "of a destroyed object", MMAP, EINVAL, |rig| {
            let uar = rig.uar();
            rig.send(&rig.destroy(uverbs_kernel_abi::mlx5::MLX5_IB_OBJECT_UAR, uar.handle))?;
            map(rig, 4096, uar.offset)
        })
        .only(World::Mlx5, "an object of mlx5's own"),
        bare("mappings", "without a context", MMAP, EINVAL, |rig| map(rig, 4096, 0x90_0000)),
    ]
}
