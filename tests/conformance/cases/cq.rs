//! Completion queues.

use std::os::fd::RawFd;

use uverbs_kernel_abi::cq::ib_uverbs_destroy_cq_resp;
use uverbs_kernel_abi::mlx5::*;
use uverbs_kernel_abi::objects::*;

use super::case;
use crate::case::{Case, World};
use crate::rig::Rig;
use crate::want::{EBADF, EFAULT, EINVAL, EOPNOTSUPP, Want};

const CREATE: &str = "core/uverbs_std_types_cq.c:UVERBS_METHOD_CQ_CREATE";
const MLX5: &str = "hw/mlx5/cq.c:mlx5_ib_create_cq, create_cq_user";

/// Commit a2917582887a ("RDMA/core: Reject zero CQE count"), after 6.19 and before 7.2.
const MLX5_NO_ENTRIES: Want = Want::Since((7, 0), &Want::Ok, &EINVAL);

pub(super) fn cases() -> Vec<Case> {
    let entries = |cqe: u32, want| {
        let source = "hw/mlx5/cq.c:mlx5_ib_create_cq; sw/rxe/rxe_cq.c:rxe_cq_chk_attr";
        case("completion queues", format!("{cqe} entries"), source, want, move |rig: &Rig| {
            rig.run(&rig.create_cq(cqe))
        })
    };
    let number = |name, id, value: u64, want| {
        case("completion queues", name, CREATE, want, move |rig: &Rig| {
            rig.run(&rig.create_cq(15).edit(id, |attr| attr.data = value))
        })
    };
    let flags = |value: u32, want| {
        case("completion queues", format!("flags {value:#x}"), CREATE, want, move |rig: &Rig| {
            rig.run(&rig.create_cq(15).input(&rig.memory, UVERBS_ATTR_CREATE_CQ_FLAGS, &value))
        })
    };
    let mut all = vec![
        entries(0, Want::Driver { mlx5: &MLX5_NO_ENTRIES, rxe: &EINVAL }),
        entries(1, Want::Ok),
        entries(1000, Want::Ok),
        entries(1 << 30, EINVAL),
        entries((1 << 31) - 1, EINVAL),
        entries(1 << 31, EINVAL),
        entries(u32::MAX, EINVAL),
        number("vector 0xffff", UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, 0xffff, EINVAL),
        number("vector 0xffffffff", UVERBS_ATTR_CREATE_CQ_COMP_VECTOR, u32::MAX.into(), EINVAL),
        flags(0, Want::Ok),
        flags(1, Want::Driver { mlx5: &Want::Ok, rxe: &EOPNOTSUPP }),
        flags(2, Want::Driver { mlx5: &Want::Ok, rxe: &EOPNOTSUPP }),
        flags(4, EINVAL),
        flags(1 << 31, EINVAL),
        case("completion queues", "a channel of another file", CREATE, EBADF, |rig| {
            let other = Rig::new(&rig.target)?;
            let fd = other.channel();
            rig.run(&rig.create_cq(15).handle(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, fd as u64))
        }),
        case("completion queues", "an event file of another file", CREATE, EBADF, |rig| {
            let other = Rig::new(&rig.target)?;
            let fd = other.events();
            rig.run(&rig.create_cq(15).handle(UVERBS_ATTR_CREATE_CQ_EVENT_FD, fd as u64))
        }),
        case("completion queues", "a channel by another number", CREATE, Want::Ok, |rig| {
            let fd = nix::unistd::dup(borrow(rig.channel()))?;
            let fd = std::os::fd::AsRawFd::as_raw_fd(&fd) as u64;
            rig.run(&rig.create_cq(15).handle(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, fd))
        }),
        case("completion queues", "the channel is closed first", CREATE, Want::Is("ok"), |rig| {
            let channel = rig.channel();
            let cmd = rig.create_cq(15).handle(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, channel as u64);
            let cq = rig.send(&cmd)?[0].data;
            rig.close_fd(channel);
            rig.send(&rig.destroy(UVERBS_OBJECT_CQ, cq))?;
            Ok("ok".to_owned())
        }),
        case("completion queues", "two on a channel", CREATE, Want::Ok, |rig| {
            let channel = rig.channel() as u64;
            let make = || rig.create_cq(15).handle(UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL, channel);
            rig.send(&make())?;
            rig.run(&make())
        }),
        case("completion queues", "events of a new one", CREATE, Want::Is("0 0"), |rig| {
            let cmd = rig.destroy(UVERBS_OBJECT_CQ, rig.cq());
            rig.send(&cmd)?;
            let events: ib_uverbs_destroy_cq_resp = rig.answer(&cmd, UVERBS_ATTR_DESTROY_CQ_RESP);
            Ok(format!("{} {}", events.comp_events_reported, events.async_events_reported))
        }),
        case("completion queues", "as many as were asked for", CREATE, Want::Is("true"), |rig| {
            let cmd = rig.create_cq(100);
            rig.send(&cmd)?;
            Ok((rig.answer::<u32>(&cmd, UVERBS_ATTR_CREATE_CQ_RESP_CQE) >= 100).to_string())
        }),
    ];
    all.extend(driver_rxe());
    all.extend(driver_mlx5());
    all
}

/// A descriptor that the rig keeps open.
#[allow(unsafe_code, reason = "borrows a descriptor by number")]
fn borrow(fd: RawFd) -> std::os::fd::BorrowedFd<'static> {
    // SAFETY: the rig keeps it open for longer than its callers use it.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) }
}

fn driver_rxe() -> Vec<Case> {
    let room = |name, want, len: usize| {
        let source = "sw/rxe/rxe_verbs.c:rxe_create_cq";
        case("completion queues", name, source, want, move |rig: &Rig| {
            let cmd = rig.create_cq(15).without(UVERBS_ATTR_UHW_OUT);
            rig.run(&cmd.output(&rig.memory, UVERBS_ATTR_UHW_OUT, len))
        })
        .only(World::Rxe, "the driver's data")
    };
    vec![
        room("driver's room of 15 bytes", EINVAL, 15),
        room("driver's room of 17 bytes", Want::Ok, 17),
        case(
            "completion queues",
            "no room for the driver",
            "sw/rxe/rxe_verbs.c:rxe_create_cq",
            EINVAL,
            |rig| rig.run(&rig.create_cq(15).without(UVERBS_ATTR_UHW_OUT)),
        )
        .only(World::Rxe, "the driver's data"),
        case(
            "completion queues",
            "the driver can't write",
            "sw/rxe/rxe_queue.c:do_mmap_info",
            EFAULT,
            |rig| {
                let hole = rig.memory.hole();
                rig.run(&rig.create_cq(15).edit(UVERBS_ATTR_UHW_OUT, |attr| attr.data = hole))
            },
        ),
    ]
}

fn driver_mlx5() -> Vec<Case> {
    let request = |name, want, change: fn(&Rig, &mut mlx5_ib_create_cq)| {
        case("completion queues", name, MLX5, want, move |rig: &Rig| {
            let cmd = rig.create_cq(15);
            let addr = cmd.find(UVERBS_ATTR_UHW_IN).expect("driver data").data;
            rig.memory.edit(addr, |request| change(rig, request));
            rig.run(&cmd)
        })
        .only(World::Mlx5, "the driver's data")
    };
    vec![
        request("entries of 32 bytes", EINVAL, |_, cq| cq.cqe_size = 32),
        request("entries of 0 bytes", EINVAL, |_, cq| cq.cqe_size = 0),
        request("reserved 0", EINVAL, |_, cq| cq.reserved0 = 1),
        request("reserved 1", EINVAL, |_, cq| cq.reserved1 = 1),
        request("unknown driver flag", EINVAL, |_, cq| cq.flags |= 1 << 15),
        request("buffer unmapped", EFAULT, |rig, cq| cq.buf_addr = rig.memory.hole()),
        request("buffer read-only", EFAULT, |rig, cq| cq.buf_addr = rig.memory.read_only()),
        request("record unmapped", EFAULT, |rig, cq| cq.db_addr = rig.memory.hole()),
        request("compressed, with hashes", Want::Ok, |_, cq| {
            (cq.cqe_comp_en, cq.cqe_comp_res_format) = (1, MLX5_IB_CQE_RES_FORMAT_HASH);
        }),
        request("compressed, with checksums", Want::Ok, |_, cq| {
            (cq.cqe_comp_en, cq.cqe_comp_res_format) = (1, MLX5_IB_CQE_RES_FORMAT_CSUM);
        }),
        request("compressed, with strides", EOPNOTSUPP, |_, cq| {
            (cq.cqe_comp_en, cq.cqe_comp_res_format) = (1, MLX5_IB_CQE_RES_FORMAT_CSUM_STRIDX);
        }),
        request("compressed in no format", EINVAL, |_, cq| cq.cqe_comp_en = 1),
        request("a format and no compression", Want::Ok, |_, cq| cq.cqe_comp_res_format = 1 << 7),
    ]
}
