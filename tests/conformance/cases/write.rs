//! The old interface: commands by write(2) on the device file. No door has it, so that only a real
//! kernel is asked: what these say is why INVOKE_WRITE's checks are as they are.
#![allow(unsafe_code, reason = "writes to a descriptor by number")]

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use uverbs_kernel_abi::write::*;
use zerocopy::IntoBytes;

use super::busy::MLX5_ROOM;
use super::case;
use crate::case::{Case, World};
use crate::rig::Rig;
use crate::want::{EFAULT, EINVAL, ENOENT, ENOSPC, EOPNOTSUPP, Outcome, Want};

const HEADER: &str = "core/uverbs_main.c:ib_uverbs_write, verify_hdr";

const WITH_ROOM: Want = Want::Driver { mlx5: &MLX5_ROOM, rxe: &Want::Is("true") };

fn write(rig: &Rig, bytes: &[u8]) -> Outcome {
    let fd = rig.door().raw_fd().ok_or(Errno::EBADF)?;
    // SAFETY: the rig's door keeps it open.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    nix::unistd::write(fd, bytes).map(|len| format!("{}", len == bytes.len()))
}

fn alloc_pd(rig: &Rig, change: impl FnOnce(&mut ib_uverbs_cmd_hdr)) -> Vec<u8> {
    let mut header =
        ib_uverbs_cmd_hdr { command: IB_USER_VERBS_CMD_ALLOC_PD, in_words: 4, out_words: 1 };
    change(&mut header);
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(rig.memory.room(64).to_ne_bytes());
    bytes
}

fn query_device_ex(
    rig: &Rig,
    change: impl FnOnce(&mut ib_uverbs_cmd_hdr, &mut ib_uverbs_ex_cmd_hdr),
) -> Vec<u8> {
    let mut header = ib_uverbs_cmd_hdr {
        command: IB_USER_VERBS_CMD_FLAG_EXTENDED | IB_USER_VERBS_EX_CMD_QUERY_DEVICE,
        in_words: 1,
        out_words: 38,
    };
    let mut extended =
        ib_uverbs_ex_cmd_hdr { response: rig.memory.room(304), ..Default::default() };
    change(&mut header, &mut extended);
    let mut bytes = header.as_bytes().to_vec();
    bytes.extend(extended.as_bytes());
    bytes.extend([0; 8]);
    bytes
}

pub(super) fn cases() -> Vec<Case> {
    let why = "a door has no write";
    let raw = |name, want, make: fn(&Rig) -> Vec<u8>| {
        case("write(2)", name, HEADER, want, move |rig: &Rig| write(rig, &make(rig)))
            .only(World::Kernel, why)
    };
    let header = |name, want, change: fn(&mut ib_uverbs_cmd_hdr)| {
        case("write(2)", name, HEADER, want, move |rig: &Rig| write(rig, &alloc_pd(rig, change)))
            .only(World::Kernel, why)
    };
    let extended = |name, want, change: fn(&mut ib_uverbs_cmd_hdr, &mut ib_uverbs_ex_cmd_hdr)| {
        case("write(2)", name, HEADER, want, move |rig: &Rig| {
            write(rig, &query_device_ex(rig, change))
        })
        .only(World::Kernel, why)
    };
    vec![
        raw("nothing", EINVAL, |_| Vec::new()),
        raw("7 bytes", EINVAL, |_| vec![0; 7]),
        raw("a request cut short", EINVAL, |rig| alloc_pd(rig, |_| ())[..12].to_vec()),
        // mlx5_ib answers with its own number of the PD, for which there must be room.
        header("good", WITH_ROOM, |_| ()),
        header("with room for the driver", Want::Is("true"), |header| header.out_words = 2),
        header("in_words one too many", EINVAL, |header| header.in_words = 5),
        header("in_words one too few", EINVAL, |header| header.in_words = 3),
        header("in_words 0", EINVAL, |header| header.in_words = 0),
        header("out_words 0", ENOSPC, |header| header.out_words = 0),
        header("out_words 16", Want::Is("true"), |header| header.out_words = 16),
        header("an unknown command", EOPNOTSUPP, |header| header.command = 200),
        header("a flag that no command has", EINVAL, |header| header.command |= 1 << 30),
        header("a bit between", EINVAL, |header| header.command |= 1 << 8),
        raw("nowhere to answer", EFAULT, |rig| {
            let mut bytes = alloc_pd(rig, |_| ());
            let hole = rig.memory.hole();
            bytes[8..].copy_from_slice(&hole.to_ne_bytes());
            bytes
        }),
        extended("extended: good", Want::Is("true"), |_, _| ()),
        extended("extended: in_words 0", EINVAL, |header, _| header.in_words = 0),
        extended("extended: in_words 2", EINVAL, |header, _| header.in_words = 2),
        extended("extended: provider's words", EINVAL, |_, ex| ex.provider_in_words = 1),
        extended("extended: reserved", EINVAL, |_, ex| ex.cmd_hdr_reserved = 1),
        extended("extended: nowhere to answer", EINVAL, |_, ex| ex.response = 0),
        extended("extended: an answer in nowhere", EFAULT, |_, ex| ex.response = 8),
        extended("extended: no room, but an address", EINVAL, |header, _| header.out_words = 0),
        raw("extended: header cut short", EINVAL, |rig| {
            query_device_ex(rig, |_, _| ())[..16].to_vec()
        }),
        case(
            "write(2)",
            "DEALLOC_PD of no PD",
            "core/uverbs_cmd.c:ib_uverbs_dealloc_pd",
            ENOENT,
            |rig| {
                let header = ib_uverbs_cmd_hdr {
                    command: IB_USER_VERBS_CMD_DEALLOC_PD,
                    in_words: 3,
                    out_words: 0,
                };
                let mut bytes = header.as_bytes().to_vec();
                bytes.extend(999u32.to_ne_bytes());
                write(rig, &bytes)
            },
        )
        .only(World::Kernel, why),
    ]
}
